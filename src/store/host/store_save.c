/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving: an entry is made, its bytes are produced where they are going to stay, and what does not fit goes to the
 * file.
 */
#include <string.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "store/host/store.h"

/* ---- what a save is asked for ---- */

typedef struct save_order {
    const comet_tensor *tensor;
    comet_store_item item;
    comet_codec_params codec;
    size_t raw;
    size_t bound, workspace, load_workspace; /* CODEC */
} save_order;

static comet_status check_codec(const comet_store *s, save_order *o) {
    static const comet_codec_params defaults = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = s->threads;
    COMET_REQUIRE(o->item.codec, "item->codec is NULL");
    COMET_REQUIRE(!o->item.release, "item->release is for COMET_FORM_KEEP and RECOMPUTE: a stream takes nothing over");
    COMET_TRY(comet_sized_read(&o->codec, sizeof o->codec, o->item.codec, &defaults, "item->codec"));
    COMET_TRY(comet_codec_max_bytes(o->tensor, &o->codec, &o->bound));
    COMET_TRY(comet_codec_compress_workspace(o->tensor, &o->codec, &exec, &o->workspace));
    return comet_codec_decompress_workspace(o->tensor, &o->codec, &exec, &o->load_workspace);
}

static comet_status check_item(const comet_store *s, save_order *o) {
    const comet_store_item *item = &o->item;
    COMET_REQUIRE(item->form >= COMET_FORM_KEEP && item->form <= COMET_FORM_RECOMPUTE,
                  "item->form is %d, which is none", (int)item->form);
    if (item->form == COMET_FORM_RECOMPUTE) {
        COMET_REQUIRE(item->recompute, "item->recompute is NULL");
        COMET_REQUIRE(!item->offload, "item->offload is set, and what is computed again has no bytes");
        return COMET_OK;
    }
    if (o->tensor->device.kind != COMET_CPU)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor is not in host memory: comet/arena.h is for devices");
    if (item->offload && s->spill.file < 0)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "item->offload is set, and the store has no spill_directory");
    if (item->form == COMET_FORM_CODEC)
        return check_codec(s, o);
    COMET_REQUIRE(!item->release || comet_tensor_is_contiguous(o->tensor),
                  "tensor must be contiguous to be taken over (item->release)");
    return COMET_OK;
}

/* `with_data`: the values will be read. */
static comet_status take_order(const comet_store *s, const comet_tensor *tensor, const comet_store_item *given,
                               int with_data, save_order *o) {
    static const comet_store_item defaults = COMET_STORE_ITEM_INIT;
    *o = (save_order){.tensor = tensor};
    COMET_REQUIRE(s, "store is NULL");
    COMET_TRY(comet_sized_read(&o->item, sizeof o->item, given, &defaults, "item"));
    with_data = with_data && o->item.form != COMET_FORM_RECOMPUTE;
    COMET_TRY(with_data ? comet_tensor_check(tensor, "tensor") : comet_tensor_check_shape(tensor, "tensor"));
    o->raw = (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
    return check_item(s, o);
}

/* ---- what does not stay in memory ---- */

static comet_status refuse_locked(comet_store *s, size_t missing, size_t missing_too) {
    s->stats.missing_bytes = missing > missing_too ? missing : missing_too;
    return comet_store_over_limit(s);
}

/* The entry is in the file: counted, if it can be loaded from there within the limit. */
static comet_status rest_in_file(comet_store *s, store_entry *entry, size_t stored) {
    size_t need = comet_store_need(s, entry, 1, stored);
    pthread_mutex_lock(&s->lock);
    size_t missing = comet_store_missing_locked(s, 0, need);
    if (missing == 0) {
        entry->need = need;
        s->stats.spills++;
        s->stats.overflows += !entry->offload;
        entry->account->figures.spills++;
        comet_store_count_locked(s, entry, (comet_store_bytes){.raw = entry->raw, .stored = stored, .spilled = stored});
    }
    comet_status status = COMET_OK;
    if (missing) {
        comet_store_extent_free_locked(s, entry);
        status = refuse_locked(s, missing, 0);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static comet_status to_file(comet_store *s, store_entry *entry, const comet_tensor *tensor, const void *data,
                            size_t bytes) {
    if (s->spill.file < 0)
        return COMET_ERROR_CAPACITY;
    comet_status status = comet_store_offload(s, entry, tensor, data, bytes);
    return status == COMET_OK ? rest_in_file(s, entry, bytes) : status;
}

/* Counts the entry as resting in memory with `resident` bytes of the reservation, if it may. */
static int rest_locked(comet_store *s, store_entry *entry, store_flight *flight, void *memory, size_t stored,
                       size_t resident) {
    size_t need = comet_store_need(s, entry, 0, stored);
    size_t missing = comet_store_missing_locked(s, resident, need);
    if (missing) {
        (void)refuse_locked(s, missing, 0);
        return 0;
    }
    entry->need = need;
    entry->memory = memory;
    comet_store_settle_locked(flight, resident);
    comet_store_count_locked(s, entry, (comet_store_bytes){.raw = entry->raw, .stored = stored, .resident = resident});
    return 1;
}

/* ---- as it is ---- */

static void pack(const comet_tensor *tensor, size_t raw, void *block) {
    if (comet_tensor_is_contiguous(tensor))
        memcpy(block, tensor->data, raw);
    else
        comet_access_load_bits(tensor, 0, comet_tensor_count(tensor), block);
}

/* The memory in which it stays: the caller's, or a copy. NULL: there is none. */
static void *kept_memory(const comet_store *s, const save_order *o) {
    if (o->item.release)
        return o->tensor->data;
    void *block = comet_store_block_take(s, o->raw, 0);
    if (block)
        pack(o->tensor, o->raw, block);
    return block;
}

/* COMET_ERROR_CAPACITY: it must not stay in memory. */
static comet_status keep_in_memory(comet_store *s, store_entry *entry, const save_order *o) {
    size_t resident = o->item.release ? o->raw : comet_store_round(s, o->raw);
    store_flight flight;
    pthread_mutex_lock(&s->lock);
    size_t missing = comet_store_missing_locked(s, resident, 0);
    comet_status status =
        missing ? refuse_locked(s, missing, 0) : comet_store_depart_locked(s, resident, resident, &flight);
    pthread_mutex_unlock(&s->lock);
    if (status != COMET_OK)
        return status;
    void *memory = o->raw ? kept_memory(s, o) : NULL;
    if (o->raw && !memory)
        status = COMET_ERROR_MEMORY;
    pthread_mutex_lock(&s->lock);
    if (status == COMET_OK && !rest_locked(s, entry, &flight, memory, o->raw, resident))
        status = COMET_ERROR_CAPACITY;
    entry->taken = status == COMET_OK && memory && o->item.release;
    if (status != COMET_OK && memory && !o->item.release)
        comet_store_block_give(s, memory, o->raw);
    comet_store_arrive_locked(s, &flight);
    pthread_mutex_unlock(&s->lock);
    if (status == COMET_OK && o->item.release && !memory) /* of an empty tensor nothing is needed */
        o->item.release(o->item.context, o->tensor->data, 0);
    return status;
}

static comet_status keep_in_file(comet_store *s, store_entry *entry, const save_order *o) {
    const void *data = comet_tensor_is_contiguous(o->tensor) ? o->tensor->data : NULL;
    comet_status status = to_file(s, entry, o->tensor, o->raw ? data : "", o->raw);
    if (status == COMET_OK && o->item.release) /* written: the caller's memory is not needed any more */
        o->item.release(o->item.context, o->tensor->data, o->raw);
    return status;
}

static comet_status save_kept(comet_store *s, store_entry *entry, const save_order *o) {
    comet_status status = o->item.offload ? COMET_ERROR_CAPACITY : keep_in_memory(s, entry, o);
    return status == COMET_ERROR_CAPACITY ? keep_in_file(s, entry, o) : status;
}

/* ---- as a stream ---- */

/* A stream being made. */
typedef struct stream_job {
    store_flight flight;
    void *workspace, *block;
    size_t workspace_bytes, capacity, used; /* workspace_bytes as it counts */
} stream_job;

/* Reserves room for the worst case or, if there is less, as much as there is. */
static comet_status stream_depart(comet_store *s, const save_order *o, stream_job *job) {
    size_t copies = comet_store_fit_copies(s) ? 2 : 1, unit = comet_store_round(s, 1);
    size_t workspace = comet_store_round(s, o->workspace), worst = comet_store_round(s, o->bound);
    pthread_mutex_lock(&s->lock);
    comet_status status =
        comet_store_depart_locked(s, workspace + copies * unit, workspace + copies * worst, &job->flight);
    if (status == COMET_OK) {
        size_t room = (job->flight.reserved - workspace) / copies / unit * unit;
        job->capacity = room < o->bound ? room : o->bound;
        job->workspace_bytes = workspace;
        size_t block = copies > 1 ? comet_store_round(s, job->capacity) : 0; /* a sparse one counts as it fills */
        comet_store_scratch_locked(s, &job->flight, workspace + block);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void stream_scratch(comet_store *s, stream_job *job, size_t bytes) {
    pthread_mutex_lock(&s->lock);
    comet_store_scratch_locked(s, &job->flight, bytes);
    pthread_mutex_unlock(&s->lock);
}

static comet_status stream_compress(comet_store *s, store_entry *entry, const save_order *o, stream_job *job) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    job->workspace = o->workspace ? comet_store_block_take(s, o->workspace, 0) : NULL;
    job->block = comet_store_block_take(s, job->capacity, 1);
    if (!job->block || (o->workspace && !job->workspace))
        return COMET_ERROR_MEMORY;
    exec.threads = s->threads;
    exec.workspace = job->workspace;
    exec.workspace_bytes = o->workspace;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_status status = comet_codec_compress(o->tensor, &o->codec, &exec, job->block, job->capacity, &result);
    if (status == COMET_ERROR_CAPACITY) /* what it wrote until then was there */
        stream_scratch(s, job, job->workspace_bytes + comet_store_round(s, job->capacity));
    if (status == COMET_OK)
        entry->result = comet_codec_record_of(&result);
    job->used = result.bytes;
    return status;
}

/* Leaves the block with just the bytes used. */
static comet_status stream_fit(comet_store *s, stream_job *job) {
    size_t before = comet_store_round(s, job->capacity), after = comet_store_round(s, job->used);
    if (comet_store_fit_copies(s) && before != after)
        stream_scratch(s, job, job->workspace_bytes + before + after);
    void *block = comet_store_block_fit(s, job->block, job->capacity, job->used);
    if (!block)
        return COMET_ERROR_MEMORY;
    job->block = block;
    job->capacity = job->used;
    return COMET_OK;
}

/* Keeps the block, or says that it must not stay. */
static int stream_rest(comet_store *s, store_entry *entry, stream_job *job) {
    size_t resident = comet_store_round(s, job->used);
    pthread_mutex_lock(&s->lock);
    comet_store_scratch_locked(s, &job->flight, job->workspace_bytes);
    int rests = !entry->offload && rest_locked(s, entry, &job->flight, job->block, job->used, resident);
    if (rests)
        job->block = NULL;
    else
        comet_store_scratch_locked(s, &job->flight, job->workspace_bytes + resident);
    pthread_mutex_unlock(&s->lock);
    return rests;
}

static void stream_arrive(comet_store *s, const save_order *o, stream_job *job) {
    comet_store_block_give(s, job->block, job->capacity);
    comet_store_block_give(s, job->workspace, o->workspace);
    pthread_mutex_lock(&s->lock);
    comet_store_arrive_locked(s, &job->flight);
    pthread_mutex_unlock(&s->lock);
}

/* Neither room for the stream nor a way to learn how long it is: says what the worst case would have needed. */
static comet_status stream_refuse(comet_store *s, const store_entry *entry, const save_order *o, size_t reserved) {
    size_t copies = comet_store_fit_copies(s) ? 2 : 1, worst = comet_store_round(s, o->bound);
    size_t need = comet_store_need(s, entry, 0, o->bound);
    pthread_mutex_lock(&s->lock);
    size_t in_progress =
        reserved ? comet_store_round(s, o->workspace) + copies * worst - reserved : (size_t)s->stats.missing_bytes;
    comet_status status = refuse_locked(s, in_progress, comet_store_missing_locked(s, worst, need));
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* *room: what the stream could have taken at most. */
static comet_status try_stream(comet_store *s, store_entry *entry, const save_order *o, size_t *room) {
    stream_job job = {.used = 0};
    comet_status status = stream_depart(s, o, &job);
    *room = job.capacity;
    if (status != COMET_OK)
        return stream_refuse(s, entry, o, 0);
    status = stream_compress(s, entry, o, &job);
    if (status == COMET_ERROR_CAPACITY)
        status = stream_refuse(s, entry, o, job.flight.reserved);
    if (status == COMET_OK)
        status = stream_fit(s, &job);
    if (status == COMET_OK && !stream_rest(s, entry, &job))
        status = to_file(s, entry, o->tensor, job.block, job.used);
    stream_arrive(s, o, &job);
    return status;
}

/*
 * A stream has to be made in memory even if it goes to the file then. If there is no room for that, older entries make
 * way: for twice the room each time, so that a long stream is not begun too often.
 */
static comet_status save_stream(comet_store *s, store_entry *entry, const save_order *o) {
    for (;;) {
        size_t room, least = comet_store_round(s, o->bound / 16);
        comet_status status = try_stream(s, entry, o, &room);
        if (status != COMET_ERROR_CAPACITY)
            return status;
        comet_status made = comet_store_make_room(s, room > least ? room : least);
        if (made != COMET_OK)
            return made;
    }
}

/* ---- the call ---- */

static comet_status produce(comet_store *s, store_entry *entry, const save_order *o) {
    switch (o->item.form) {
    case COMET_FORM_KEEP:
        return save_kept(s, entry, o);
    case COMET_FORM_CODEC:
        return save_stream(s, entry, o);
    case COMET_FORM_RECOMPUTE:
        break;
    }
    return COMET_OK;
}

/* The entry appears, or disappears again. */
static void conclude_locked(comet_store *s, store_entry *entry, comet_status status) {
    if (status != COMET_OK) {
        s->stats.refused += status == COMET_ERROR_CAPACITY || status == COMET_ERROR_DISK_FULL;
        entry->release = NULL;
        entry->taken = 0;
        comet_store_entry_free_locked(s, entry);
        return;
    }
    comet_store_account *a = &entry->account->figures;
    entry->state = ENTRY_READY;
    if (entry->form == COMET_FORM_RECOMPUTE)
        comet_store_count_locked(s, entry, (comet_store_bytes){.raw = entry->raw});
    comet_store_number_locked(s, entry, 1);
    comet_store_form_name(entry, a->form);
    a->last = entry->bytes;
    a->saves++;
    s->stats.saves++;
    pthread_cond_broadcast(&s->changed);
}

static comet_status save_new_locked(comet_store *s, const save_order *o, store_entry **out) {
    store_entry *entry;
    COMET_TRY(comet_store_entry_new_locked(s, o->tensor, &o->item, &o->codec, &entry));
    entry->raw = o->raw;
    entry->load_workspace = o->load_workspace;
    pthread_mutex_unlock(&s->lock);
    comet_status status = produce(s, entry, o);
    pthread_mutex_lock(&s->lock);
    conclude_locked(s, entry, status);
    *out = entry;
    return status;
}

static void share_alias_locked(comet_store *s, store_entry *entry) {
    entry->holders++;
    entry->account->figures.aliases++;
    s->stats.aliases++;
}

comet_status comet_store_save(comet_store *store, const comet_tensor *tensor, const comet_store_item *item,
                              comet_store_handle *handle, comet_store_info *info) {
    save_order order;
    comet_status status = COMET_OK;
    comet_begin();
    COMET_REQUIRE_POINTER(handle);
    if (info)
        COMET_TRY(comet_sized_check(info, "info"));
    COMET_TRY(take_order(store, tensor, item, 1, &order));
    pthread_mutex_lock(&store->lock);
    store_entry *entry =
        order.item.generation ? comet_store_alias_locked(store, tensor, &order.item, &order.codec) : NULL;
    if (entry)
        share_alias_locked(store, entry);
    else
        status = save_new_locked(store, &order, &entry);
    comet_store_info now = {0};
    if (status == COMET_OK) {
        *handle = entry->handle;
        comet_store_fill_info(entry, &now);
    }
    pthread_mutex_unlock(&store->lock);
    if (status == COMET_OK && info)
        comet_sized_write(info, &now, sizeof now);
    return comet_end(status);
}

comet_status comet_store_scratch(const comet_store *store, const comet_tensor *tensor, const comet_store_item *item,
                                 size_t *save_bytes, size_t *load_bytes) {
    save_order o;
    comet_begin();
    COMET_TRY(take_order(store, tensor, item, 0, &o));
    store_entry entry = {.form = o.item.form, .load_workspace = o.load_workspace};
    size_t copies = comet_store_fit_copies(store) ? 2 : 1, save = 0;
    if (o.item.form == COMET_FORM_CODEC)
        save = comet_store_round(store, o.workspace) + copies * comet_store_round(store, o.bound);
    if (save_bytes)
        *save_bytes = save;
    if (load_bytes) /* the stream is at most as long as the bound */
        *load_bytes = comet_store_need(store, &entry, o.item.offload, o.bound);
    return COMET_OK;
}
