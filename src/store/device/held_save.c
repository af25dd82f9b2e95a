/* SPDX-License-Identifier: Apache-2.0 */
/* Saving into the device store: an entry is made, gets room for what is expected of its stream, and is issued. */
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "store/device/device_store_impl.h"

enum { TENSOR_ALIGNMENT = 16 };

/* ---- arguments ---- */

static comet_status check_tensor(const comet_device_store *s, const comet_tensor *t) {
    const comet_device *device = &s->options.device;
    COMET_TRY(comet_tensor_check(t, "save->tensor"));
    COMET_REQUIRE(t->device.kind == device->kind && (!s->driver || t->device.index == device->index),
                  "save->tensor is not on the store's device");
    if (!s->driver)
        return COMET_OK;
    COMET_REQUIRE(comet_tensor_is_contiguous(t), "save->tensor is not contiguous");
    COMET_REQUIRE((uintptr_t)t->data % TENSOR_ALIGNMENT == 0, "save->tensor->data must be aligned to %d bytes",
                  TENSOR_ALIGNMENT);
    return COMET_OK;
}

static comet_status take_save(const comet_device_store *s, const comet_device_save *given, comet_device_save *save) {
    static const comet_device_save defaults = COMET_DEVICE_SAVE_INIT;
    COMET_REQUIRE_POINTER(given);
    COMET_TRY(comet_sized_read(save, sizeof *save, given, &defaults, "save"));
    COMET_TRY(check_tensor(s, save->tensor));
    COMET_REQUIRE(save->params, "save->params is NULL");
    return COMET_OK;
}

static comet_status describe(comet_device_store *s, comet_device_entry *e, const comet_device_save *save) {
    COMET_TRY(comet_call_params(&e->params, save->params));
    COMET_TRY(comet_call_choices(&e->params));
    if (s->driver && e->params.checksum)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "params->checksum is set, and is not made on a device");
    if (e->params.grid) {
        e->grid = *e->params.grid;
        e->params.grid = &e->grid;
    }
    e->tensor = *save->tensor;
    e->owner = save->owner;
    e->queue = save->queue;
    e->raw_bytes = (size_t)comet_tensor_count(save->tensor) * comet_dtype_size(save->tensor->dtype);
    return comet_held_lane_of(s, save->queue, &e->lane);
}

/* ---- room ---- */

/* Whether how long the stream is depends on the values. */
static int size_is_open(comet_codec codec) {
    return codec == COMET_CODEC_EB || codec == COMET_CODEC_ZVC;
}

static size_t room_for(const comet_device_entry *e, size_t expected) {
    size_t room = e->most;
    if (size_is_open(e->params.codec)) {
        size_t guess = e->most / (e->tensor.dtype == COMET_F32 ? 6 : 4);
        room = expected ? expected : guess > HELD_LEAST_GUESS ? guess : HELD_LEAST_GUESS;
        room = room < e->most ? room : e->most;
    }
    return held_round_up(room, HELD_ALIGNMENT);
}

/* Room, a record and a workspace; what it got is given back with the entry. */
static comet_status prepare(comet_device_store *s, comet_device_entry *e, const comet_device_save *save) {
    const device_store_driver *d = s->driver;
    held_record *record = NULL;
    int capturing = 0;
    COMET_TRY(d->queue_capturing(d, save->queue, &capturing));
    if (capturing)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "save->queue is being captured");
    COMET_TRY(d->measure(d, &e->tensor, &e->params, &e->most, &e->workspace));
    COMET_REQUIRE(e->most <= SIZE_MAX / 4, "save->tensor is too large");
    COMET_TRY(comet_held_record_new(s, &record));
    atomic_store_explicit(&e->record, record, memory_order_relaxed);
    return comet_held_place(s, e, e->lane, room_for(e, save->expected_bytes));
}

static comet_status issue(comet_device_store *s, comet_device_entry *e) {
    COMET_TRY(comet_held_workspace(s, e->lane, e->workspace));
    held_record *record = atomic_load_explicit(&e->record, memory_order_relaxed);
    comet_codec_exec exec = comet_held_exec(e->lane);
    comet_cuda_slot slot = {e->base, e->room, NULL, (comet_cuda_result *)(void *)record};
    return s->driver->compress(s->driver, &e->tensor, &e->params, &exec, &slot);
}

/* An entry that never was. Its kernel is not issued: nothing will be written to its record. Returns `status`. */
static comet_status undo(comet_device_store *s, comet_device_entry *e, comet_status status) {
    s->stats.refused += status == COMET_ERROR_MEMORY;
    held_record *record = atomic_load_explicit(&e->record, memory_order_relaxed);
    if (record)
        comet_held_record_drop(s, record, 1);
    if (s->driver)
        comet_held_displace(s, e);
    comet_held_entry_drop(s, e);
    return status;
}

/* ---- a misfit ---- */

/* Once more in larger room. If its size is not what the device said it was, there is a way that always ends. */
comet_status comet_held_again(comet_device_store *s, comet_device_entry *e, size_t bytes) {
    size_t room = e->misfits++ == 0 && bytes < e->most ? bytes : e->most;
    COMET_TRY(comet_held_place(s, e, e->lane, held_round_up(room, HELD_ALIGNMENT)));
    return issue(s, e);
}

/* ---- public ---- */

static comet_status begin(comet_device_store *s, const comet_device_save *given, comet_device_save *save,
                          comet_device_entry **entry) {
    COMET_REQUIRE(s, "store is NULL");
    COMET_TRY(take_save(s, given, save));
    if (atomic_load_explicit(&s->failed, memory_order_relaxed))
        return comet_held_failed(s);
    comet_device_entry *e;
    COMET_TRY(comet_held_entry_new(s, &e));
    comet_status status = describe(s, e, save);
    if (status == COMET_OK)
        *entry = e;
    else
        comet_held_entry_drop(s, e);
    return status;
}

static comet_status save_on_device(comet_device_store *s, comet_device_entry *e, const comet_device_save *save) {
    int scope;
    COMET_TRY(held_enter(s, &scope));
    comet_status status = prepare(s, e, save);
    if (status == COMET_OK)
        status = issue(s, e);
    held_leave(s, scope);
    return status;
}

comet_status comet_device_store_save(comet_device_store *store, const comet_device_save *save,
                                     comet_device_entry **entry) {
    comet_device_save taken;
    comet_device_entry *e = NULL;
    comet_begin();
    COMET_REQUIRE_POINTER(entry);
    COMET_TRY(begin(store, save, &taken, &e));
    comet_status status = store->driver ? save_on_device(store, e, &taken) : comet_held_cpu_compress(store, e);
    if (status != COMET_OK)
        return undo(store, e, status);
    comet_held_issued(store, e);
    store->stats.saves++;
    *entry = e;
    return comet_end(COMET_OK);
}

static comet_status gpu_alone(void) {
    return comet_fail(COMET_ERROR_UNSUPPORTED, "the store is on a CPU, where there are no slots");
}

comet_status comet_device_store_open(comet_device_store *store, const comet_device_save *save,
                                     comet_device_entry **entry, comet_cuda_slot *slot) {
    comet_device_save taken;
    comet_device_entry *e = NULL;
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(slot);
    COMET_REQUIRE_POINTER(entry);
    COMET_TRY(begin(store, save, &taken, &e));
    comet_status status = store->driver ? held_enter(store, &scope) : gpu_alone();
    if (status == COMET_OK) {
        status = prepare(store, e, &taken);
        held_leave(store, scope);
    }
    if (status != COMET_OK)
        return undo(store, e, status);
    held_record *record = atomic_load_explicit(&e->record, memory_order_relaxed);
    *slot = (comet_cuda_slot){e->base, e->room, NULL, (comet_cuda_result *)(void *)record};
    *entry = e;
    return comet_end(COMET_OK);
}

comet_status comet_device_store_close(comet_device_store *store, comet_device_entry *entry) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE(entry && entry->stage == HELD_OPEN, "entry is none that is open");
    comet_held_issued(store, entry);
    store->stats.saves++;
    return COMET_OK;
}

void comet_device_store_abandon(comet_device_store *store, comet_device_entry *entry) {
    if (store && entry && entry->stage == HELD_OPEN)
        (void)undo(store, entry, COMET_OK);
}

comet_status comet_device_store_exec(comet_device_store *store, void *queue, size_t workspace_bytes,
                                     comet_codec_exec *exec) {
    held_lane *lane;
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_sized_check(exec, "exec"));
    if (!store->driver)
        return gpu_alone();
    COMET_TRY(comet_held_lane_of(store, queue, &lane));
    if (workspace_bytes > lane->workspace_bytes) {
        COMET_TRY(held_enter(store, &scope));
        comet_status status = comet_held_workspace(store, lane, workspace_bytes);
        held_leave(store, scope);
        if (status != COMET_OK)
            return status;
    }
    comet_codec_exec made = comet_held_exec(lane);
    comet_sized_write(exec, &made, sizeof made);
    return COMET_OK;
}
