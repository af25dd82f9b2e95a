/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: from memory or from the file, as it is or decompressed, or computed again. */
#include <string.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/tensor_check.h"
#include "store/host/store.h"

size_t comet_store_need(const comet_store *s, const store_entry *entry, int spilled, size_t stored) {
    if (entry->form != COMET_FORM_CODEC)
        return 0;
    return comet_store_round(s, entry->load_workspace) + (spilled ? comet_store_round(s, stored) : 0);
}

/* ---- as it was ---- */

static int same_shape(const comet_tensor *a, const comet_tensor *b) {
    return a->dtype == b->dtype && a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static comet_status check_shape(const store_entry *entry, const comet_tensor *tensor) {
    if (!same_shape(&entry->view, tensor))
        return comet_fail(COMET_ERROR_MISMATCH, "tensor must have the shape, layout and dtype that were saved");
    return COMET_OK;
}

static comet_status load_kept(const comet_store *s, const store_entry *entry, const store_source *source,
                              const comet_tensor *tensor) {
    COMET_TRY(check_shape(entry, tensor));
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
    store_source source;
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

static comet_status decode(const comet_store *s, const store_entry *entry, const load_job *job,
                           const comet_tensor *tensor) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = s->threads;
    exec.workspace = job->workspace;
    exec.workspace_bytes = job->workspace_bytes;
    const store_source *source = &job->source;
    const void *stream = source->memory ? source->memory : job->stream;
    comet_status status = source->memory ? COMET_OK : comet_store_fetch(s, source, job->stream);
    return status == COMET_OK ? comet_codec_decompress(stream, source->stored, entry->codec.grid, &exec, tensor)
                              : status;
}

static comet_status load_stream(const comet_store *s, const store_entry *entry, load_job *job,
                                const comet_tensor *tensor) {
    comet_status status = load_take(s, job);
    if (status == COMET_OK)
        status = decode(s, entry, job, tensor);
    comet_store_block_give(s, job->workspace, job->workspace_bytes);
    comet_store_block_give(s, job->stream, job->stream_bytes);
    return status;
}

/* ---- the calls ---- */

/* What loading takes with the memory as it is now. */
static size_t need_locked(const comet_store *s, const store_entry *entry) {
    return comet_store_need(s, entry, !entry->memory, (size_t)entry->bytes.stored);
}

/*
 * Reserves what loading takes, and only then uses the entry's memory: nobody who waits for room keeps any. While it
 * waits that memory may go, if the file has it too; then loading takes more.
 */
static comet_status depart_locked(comet_store *s, store_entry *entry, load_job *job) {
    for (;;) {
        while (entry->reading)
            pthread_cond_wait(&s->changed, &s->lock);
        size_t need = need_locked(s, entry);
        comet_status status = comet_store_depart_locked(s, need, need, &job->flight);
        if (status != COMET_OK || need_locked(s, entry) <= need)
            return status;
        comet_store_arrive_locked(s, &job->flight);
    }
}

static comet_status begin_locked(comet_store *s, store_entry *entry, load_job *job) {
    COMET_TRY(depart_locked(s, entry, job));
    job->source = comet_store_source_locked(entry);
    if (entry->form == COMET_FORM_CODEC) {
        job->workspace_bytes = entry->load_workspace;
        job->stream_bytes = job->source.memory ? 0 : job->source.stored;
        comet_store_scratch_locked(s, &job->flight, need_locked(s, entry));
    }
    entry->uses += job->source.memory != NULL;
    s->stats.prefetched_used += job->source.memory && entry->ahead;
    return COMET_OK;
}

static void end_locked(comet_store *s, store_entry *entry, load_job *job) {
    comet_store_arrive_locked(s, &job->flight);
    if (job->source.memory)
        comet_store_unuse_locked(s, entry);
}

static comet_status load_stored(comet_store *s, store_entry *entry, const comet_tensor *tensor) {
    load_job job = {.workspace = NULL};
    if (tensor->device.kind != COMET_CPU)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor is not in host memory");
    pthread_mutex_lock(&s->lock);
    comet_status status = begin_locked(s, entry, &job);
    pthread_mutex_unlock(&s->lock);
    if (status != COMET_OK)
        return status;
    status =
        entry->form == COMET_FORM_KEEP ? load_kept(s, entry, &job.source, tensor) : load_stream(s, entry, &job, tensor);
    pthread_mutex_lock(&s->lock);
    end_locked(s, entry, &job);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static comet_status recompute(const store_entry *entry, const comet_tensor *tensor) {
    COMET_TRY(check_shape(entry, tensor));
    return entry->recompute(entry->context, tensor);
}

static void count_load_locked(comet_store *s, store_entry *entry) {
    entry->loads++;
    entry->account->figures.loads++;
    s->stats.loads++;
    s->stats.recomputes += entry->form == COMET_FORM_RECOMPUTE;
}

comet_status comet_store_load(comet_store *store, comet_store_handle handle, const comet_tensor *tensor) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_tensor_check(tensor, "tensor"));
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry)
        entry->pins++;
    pthread_mutex_unlock(&store->lock);
    if (!entry)
        return comet_store_unknown();
    comet_status status =
        entry->form == COMET_FORM_RECOMPUTE ? recompute(entry, tensor) : load_stored(store, entry, tensor);
    pthread_mutex_lock(&store->lock);
    if (status == COMET_OK)
        count_load_locked(store, entry);
    comet_store_unpin_locked(store, entry);
    pthread_mutex_unlock(&store->lock);
    return status;
}

comet_status comet_store_view(comet_store *store, comet_store_handle handle, comet_tensor *tensor) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE_POINTER(tensor);
    comet_status status;
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (!entry) {
        status = comet_store_unknown();
    } else if (entry->form != COMET_FORM_KEEP || entry->extent) {
        status = comet_fail(COMET_ERROR_UNSUPPORTED, "the entry %s",
                            entry->extent ? "is in the file: load it" : "is not kept as it is: load it");
    } else {
        const comet_tensor *v = &entry->view;
        entry->viewed = 1;
        status = comet_tensor_init(tensor, entry->memory, v->dtype, v->layout, v->ndim, v->shape);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}
