/* SPDX-License-Identifier: Apache-2.0 */
/* Loading from the device store, and what the device says of the streams that were read. */
#include <string.h>

#include "base/fail.h"
#include "base/tensor_check.h"
#include "store/device/device_store_impl.h"

enum { WORD_BYTES = HELD_ALIGNMENT };

/* ---- arguments ---- */

static comet_status check_entry(const comet_device_entry *e) {
    COMET_REQUIRE(e, "entry is NULL");
    int state = comet_device_entry_state(e);
    COMET_REQUIRE(state != 0, "entry is not settled");
    COMET_REQUIRE(state == 1, "entry holds no stream: its owner has the tensor");
    return COMET_OK;
}

static int same_shape(const comet_tensor *a, const comet_tensor *b) {
    return a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static comet_status check_tensor(const comet_device_entry *e, const comet_cuda_epilogue *epilogue,
                                 const comet_tensor *t) {
    COMET_TRY(comet_tensor_check(t, "tensor"));
    COMET_REQUIRE(same_shape(t, &e->tensor), "tensor has not the shape and layout of the one that was saved");
    comet_dtype dtype = e->params.grid ? COMET_F32 : e->tensor.dtype;
    COMET_REQUIRE(epilogue || e->params.codec == COMET_CODEC_MASK || t->dtype == dtype,
                  "tensor->dtype is %s: the stream's is %s", comet_dtype_name(t->dtype), comet_dtype_name(dtype));
    return COMET_OK;
}

/* ---- the status word ---- */

/* Zeroed once, on the first queue that reads; other queues come after that. */
static comet_status word_for(comet_device_store *s, held_lane *lane) {
    const comet_device_memory *memory = &s->options.memory;
    if (!s->word_memory) {
        void *word = memory->take(memory->context, WORD_BYTES, lane->queue);
        if (!word)
            return comet_fail(COMET_ERROR_MEMORY, "the caller has no memory for the status word");
        comet_status status = s->driver->zero(s->driver, word, WORD_BYTES, lane->queue);
        if (status != COMET_OK) {
            memory->give(memory->context, word, WORD_BYTES, lane->queue);
            return status;
        }
        if (s->word_memory) { /* another call has been here while it was taken */
            memory->give(memory->context, word, WORD_BYTES, lane->queue);
        } else {
            s->word_memory = word;
            s->word_lane = lane;
            lane->knows_word = 1;
        }
    }
    if (!lane->knows_word)
        COMET_TRY(comet_held_order(s, s->word_lane->queue, lane->queue));
    lane->knows_word = 1;
    return COMET_OK;
}

static comet_status copy_word(comet_device_store *s, const held_lane *lane) {
    if (++s->reads % HELD_HEALTH_LOADS)
        return COMET_OK;
    return s->driver->to_host(s->driver, (void *)(uintptr_t)s->word, s->word_memory, sizeof(int32_t), lane->queue);
}

comet_status comet_device_store_health(comet_device_store *store) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    if (!store->driver)
        return COMET_OK;
    if (atomic_load_explicit(&store->failed, memory_order_relaxed))
        return comet_held_failed(store);
    int32_t word = atomic_load(store->word);
    if (word == COMET_OK)
        return COMET_OK;
    return comet_fail((comet_status)word, "the device found a stream that it could not read");
}

/* ---- loading ---- */

/* The stream is on the device, and what `lane` is given from now on may read it. One on its way to the host stays. */
static comet_status make_readable(comet_device_store *s, comet_device_entry *e, held_lane *lane) {
    if (!e->base)
        COMET_TRY(comet_held_fetch(s, e, lane));
    e->wants_host = 0;
    if (e->copy && !e->copy->to_host)
        COMET_TRY(s->driver->queue_follow(s->driver, lane->queue, e->copy->event));
    if (lane == e->lane || lane == e->reader)
        return COMET_OK;
    if (e->reader) /* one reader is remembered: what it was asked for is issued by now */
        COMET_TRY(comet_held_order(s, e->reader->queue, e->lane->queue));
    e->reader = NULL;
    COMET_TRY(comet_held_order(s, e->lane->queue, lane->queue));
    e->reader = lane;
    return COMET_OK;
}

/* The last call of the caller's in here is for room of a stream that is on the host: what is known then stays true. */
static comet_status begin_read(comet_device_store *s, comet_device_entry *e, held_lane *lane) {
    COMET_TRY(word_for(s, lane));
    return make_readable(s, e, lane);
}

static comet_status load_entered(comet_device_store *s, comet_device_entry *e, void *queue,
                                 const comet_cuda_epilogue *epilogue, const comet_tensor *tensor) {
    held_lane *lane;
    COMET_TRY(comet_held_lane_of(s, queue, &lane));
    COMET_TRY(comet_held_workspace(s, lane, e->workspace));
    COMET_TRY(begin_read(s, e, lane));
    comet_codec_exec exec = comet_held_exec(lane);
    comet_cuda_slot slot = {e->base, e->room, NULL, NULL};
    COMET_TRY(s->driver->decompress(s->driver, &slot, &e->params, epilogue, &exec, tensor, s->word_memory));
    return copy_word(s, lane);
}

comet_status comet_device_store_load(comet_device_store *store, comet_device_entry *entry, void *queue,
                                     const comet_cuda_epilogue *epilogue, const comet_tensor *tensor) {
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(check_entry(entry));
    COMET_TRY(check_tensor(entry, epilogue, tensor));
    comet_status status;
    if (store->driver) {
        COMET_TRY(held_enter(store, &scope));
        status = load_entered(store, entry, queue, epilogue, tensor);
        held_leave(store, scope);
    } else if (epilogue) {
        status = comet_fail(COMET_ERROR_UNSUPPORTED, "epilogue is given, and the store is on a CPU");
    } else {
        status = comet_held_cpu_load(store, entry, tensor);
    }
    store->stats.loads += status == COMET_OK;
    return comet_end(status);
}

static comet_status slot_entered(comet_device_store *s, comet_device_entry *e, void *queue) {
    held_lane *lane;
    COMET_TRY(comet_held_lane_of(s, queue, &lane));
    COMET_TRY(begin_read(s, e, lane));
    return copy_word(s, lane);
}

comet_status comet_device_store_slot(comet_device_store *store, comet_device_entry *entry, void *queue,
                                     comet_cuda_slot *slot, int32_t **status) {
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE_POINTER(slot);
    COMET_REQUIRE_POINTER(status);
    COMET_TRY(check_entry(entry));
    if (!store->driver)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "the store is on a CPU, where there are no slots");
    COMET_TRY(held_enter(store, &scope));
    comet_status made = slot_entered(store, entry, queue);
    held_leave(store, scope);
    if (made != COMET_OK)
        return made;
    *slot = (comet_cuda_slot){entry->base, entry->room, NULL, NULL};
    *status = store->word_memory;
    store->stats.loads++;
    return comet_end(COMET_OK);
}
