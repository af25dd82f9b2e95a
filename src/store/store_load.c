/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: from memory or from the file, as it is or decompressed, or computed again. */
#include <string.h>

#include "base/access.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "store/store.h"

static size_t workspace_of(const comet_store *s, const store_entry *entry) {
    const codec_vtable *codec = comet_codecs[entry->codec.codec];
    return codec->decompress_workspace
               ? codec->decompress_workspace(&entry->view, entry->codec.grid, comet_threads_count(s->threads))
               : 0;
}

size_t comet_store_need(const comet_store *s, const store_entry *entry, int spilled, size_t stored) {
    if (entry->form != COMET_FORM_CODEC)
        return 0;
    return comet_store_round(s, workspace_of(s, entry)) + (spilled ? comet_store_round(s, stored) : 0);
}

/* ---- as it was ---- */

static int same_shape(const comet_tensor *a, const comet_tensor *b) {
    return a->dtype == b->dtype && a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static comet_status load_kept(const comet_store *s, const store_entry *entry, const store_source *source,
                              const comet_tensor *tensor) {
    if (!same_shape(&entry->view, tensor))
        return COMET_ERROR_MISMATCH;
    if (source->stored == 0)
        return COMET_OK;
    if (!source->memory)
        return comet_store_fetch_tensor(s, source, tensor);
    if (comet_tensor_is_contiguous(tensor))
        memcpy(tensor->data, source->memory, source->stored);
    else
        comet_access_store_bits(tensor, 0, comet_tensor_count(tensor), source->memory);
    return COMET_OK;
}

/* ---- from a stream ---- */

typedef struct load_job {
    store_flight flight;
    void *workspace, *stream;
    size_t workspace_bytes, stream_bytes;
} load_job;

static comet_status load_take(const comet_store *s, load_job *job) {
    if (job->workspace_bytes)
        job->workspace = comet_store_block_take(s, job->workspace_bytes, 0);
    if (job->stream_bytes)
        job->stream = comet_store_block_take(s, job->stream_bytes, 0);
    return (!job->workspace_bytes || job->workspace) && (!job->stream_bytes || job->stream) ? COMET_OK
                                                                                            : COMET_ERROR_MEMORY;
}

static comet_status decode(const comet_store *s, const store_entry *entry, const store_source *source,
                           const load_job *job, const comet_tensor *tensor) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = s->threads;
    exec.workspace = job->workspace;
    exec.workspace_bytes = job->workspace_bytes;
    const void *stream = source->memory ? source->memory : job->stream;
    comet_status status = source->memory ? COMET_OK : comet_store_fetch(s, source, job->stream);
    return status == COMET_OK ? comet_codec_decompress(stream, source->stored, entry->codec.grid, &exec, tensor)
                              : status;
}

static comet_status load_stream(comet_store *s, const store_entry *entry, const store_source *source,
                                const comet_tensor *tensor) {
    load_job job = {.workspace_bytes = workspace_of(s, entry), .stream_bytes = source->memory ? 0 : source->stored};
    size_t scratch = comet_store_round(s, job.workspace_bytes) + comet_store_round(s, job.stream_bytes);
    if (scratch == 0)
        return decode(s, entry, source, &job, tensor);
    pthread_mutex_lock(&s->lock);
    comet_status status = comet_store_depart_locked(s, scratch, scratch, &job.flight);
    if (status == COMET_OK)
        comet_store_scratch_locked(s, &job.flight, scratch);
    pthread_mutex_unlock(&s->lock);
    if (status != COMET_OK)
        return status;
    status = load_take(s, &job);
    if (status == COMET_OK)
        status = decode(s, entry, source, &job, tensor);
    comet_store_block_give(s, job.workspace, job.workspace_bytes);
    comet_store_block_give(s, job.stream, job.stream_bytes);
    pthread_mutex_lock(&s->lock);
    comet_store_arrive_locked(s, &job.flight);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- the calls ---- */

/* Pins the entry and waits for a reader that is at it. */
static store_entry *begin_locked(comet_store *s, comet_store_handle handle, store_source *source) {
    store_entry *entry = comet_store_find_locked(s, handle);
    if (!entry)
        return NULL;
    comet_store_pin_locked(entry);
    while (entry->reading)
        pthread_cond_wait(&s->changed, &s->lock);
    *source = comet_store_source_locked(entry);
    s->stats.prefetched_used += entry->memory && entry->ahead;
    return entry;
}

static void end_locked(comet_store *s, store_entry *entry, comet_status status) {
    if (status == COMET_OK) {
        entry->loads++;
        entry->account->figures.loads++;
        s->stats.loads++;
        s->stats.recomputes += entry->form == COMET_FORM_RECOMPUTE;
    }
    comet_store_unpin_locked(s, entry);
}

comet_status comet_store_load(comet_store *store, comet_store_handle handle, const comet_tensor *tensor) {
    comet_status status = store ? comet_tensor_check(tensor) : COMET_ERROR_ARGUMENT;
    store_source source;
    if (status != COMET_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    store_entry *entry = begin_locked(store, handle, &source);
    pthread_mutex_unlock(&store->lock);
    if (!entry)
        return COMET_ERROR_ARGUMENT;
    if (entry->form == COMET_FORM_RECOMPUTE)
        status = same_shape(&entry->view, tensor) ? entry->recompute(entry->context, tensor) : COMET_ERROR_MISMATCH;
    else if (tensor->device.kind != COMET_CPU)
        status = COMET_ERROR_UNSUPPORTED;
    else if (entry->form == COMET_FORM_KEEP)
        status = load_kept(store, entry, &source, tensor);
    else
        status = load_stream(store, entry, &source, tensor);
    pthread_mutex_lock(&store->lock);
    end_locked(store, entry, status);
    pthread_mutex_unlock(&store->lock);
    return status;
}

comet_status comet_store_view(comet_store *store, comet_store_handle handle, comet_tensor *tensor) {
    if (!store || !tensor)
        return COMET_ERROR_ARGUMENT;
    comet_status status = COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry && (entry->form != COMET_FORM_KEEP || entry->extent)) {
        status = COMET_ERROR_UNSUPPORTED;
    } else if (entry) {
        const comet_tensor *v = &entry->view;
        entry->viewed = 1;
        status = comet_tensor_init(tensor, entry->memory, v->dtype, v->layout, v->ndim, v->shape);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}
