/* SPDX-License-Identifier: Apache-2.0 */
/* The device store itself: made, looked into, given back. */
#include "store/device/device_store.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/sized.h"
#include "store/device/device_store_impl.h"

/* ---- giving back ---- */

/* Nobody uses any of it any more: queues are waited for even if they fail. */
static void wait_for_all(comet_device_store *s) {
    for (held_lane *lane = s->lanes; lane; lane = lane->next)
        (void)s->driver->queue_wait(s->driver, lane->queue);
    if (s->copy_queue)
        (void)s->driver->queue_wait(s->driver, s->copy_queue);
}

static void release_all(comet_device_store *s) {
    for (held_block *block = s->blocks; block; block = block->next)
        for (int i = 0; i < HELD_BLOCK_ENTRIES; i++) {
            comet_device_entry *e = &block->entries[i];
            if (e->stage == HELD_OPEN)
                comet_device_store_abandon(s, e);
            else if (e->stage != HELD_FREE)
                comet_held_release(s, e);
        }
}

static void free_lanes(comet_device_store *s) {
    const comet_device_memory *memory = &s->options.memory;
    if (s->word_memory)
        memory->give(memory->context, s->word_memory, HELD_ALIGNMENT, s->word_lane->queue);
    while (s->lanes) {
        held_lane *lane = s->lanes;
        s->lanes = lane->next;
        if (lane->workspace)
            memory->give(memory->context, lane->workspace, lane->workspace_bytes, lane->queue);
        comet_memory_give(s->allocator, lane, sizeof *lane);
    }
    while (s->free_segments) {
        held_segment *g = s->free_segments;
        s->free_segments = g->older;
        comet_memory_give(s->allocator, g, sizeof *g);
    }
}

static void free_device(comet_device_store *s) {
    comet_held_free_host(s);
    while (s->pools) {
        held_pool *pool = s->pools;
        s->pools = pool->next;
        s->driver->give(s->driver, pool->records);
        comet_memory_give(s->allocator, pool, sizeof *pool);
    }
    if (s->event)
        s->driver->event_free(s->driver, s->event);
}

static void free_host(comet_device_store *s) {
    while (s->blocks) {
        held_block *block = s->blocks;
        s->blocks = block->next;
        comet_memory_give(s->allocator, block, sizeof *block);
    }
    comet_memory_give(s->allocator, s->free_records, s->free_room * sizeof *s->free_records);
    comet_memory_give(s->allocator, s->late_records, s->late_room * sizeof *s->late_records);
    comet_memory_give(s->allocator, s->scratch, s->scratch_bytes);
    comet_memory_give(s->allocator, s->workspace, s->workspace_bytes);
    comet_memory_give(s->allocator, s, sizeof *s);
}

void comet_device_store_free(comet_device_store *store) {
    if (!store)
        return;
    int scope = 0, entered = store->driver && held_enter(store, &scope) == COMET_OK;
    if (store->driver)
        wait_for_all(store);
    release_all(store);
    free_lanes(store);
    if (store->driver)
        free_device(store);
    if (entered)
        held_leave(store, scope);
    free_host(store);
}

/* ---- making ---- */

static comet_status check_options(const device_store_driver *driver, const comet_device_store_options *o) {
    COMET_REQUIRE(o->settled, "options->settled is NULL");
    COMET_REQUIRE(!o->memory.take == !o->memory.give, "options->memory has one callback: it must have both, or none");
    if (!driver)
        return COMET_OK;
    COMET_REQUIRE(o->device.index >= 0, "options->device.index is %d: it must not be negative", (int)o->device.index);
    COMET_REQUIRE(o->memory.take, "options->memory.take is NULL: on a GPU memory comes from the caller");
    COMET_REQUIRE(o->segment_bytes >= HELD_SEGMENT_UNIT && o->segment_bytes <= SIZE_MAX / 4,
                  "options->segment_bytes is %zu: it must be 2 MiB at least", o->segment_bytes);
    return COMET_OK;
}

/* The first record is where the status word is copied to. */
static comet_status build_entered(comet_device_store *s) {
    held_record *record = NULL;
    COMET_TRY(comet_held_pool_new(s));
    COMET_TRY(comet_held_record_new(s, &record));
    memset((void *)(uintptr_t)record, 0, sizeof *record);
    s->word = (_Atomic int32_t *)(void *)record;
    return s->driver->event_new(s->driver, &s->event);
}

static comet_status build(comet_device_store *s) {
    int scope;
    if (!s->driver)
        return COMET_OK;
    COMET_TRY(held_enter(s, &scope));
    comet_status status = build_entered(s);
    held_leave(s, scope);
    return status;
}

static comet_status create(const device_store_driver *driver, const comet_device_store_options *options,
                           comet_device_store **store) {
    static const comet_device_store_options defaults = COMET_DEVICE_STORE_OPTIONS_INIT;
    comet_device_store_options o;
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE_POINTER(options);
    COMET_TRY(comet_sized_read(&o, sizeof o, options, &defaults, "options"));
    COMET_TRY(check_options(driver, &o));
    comet_device_store *s = comet_memory_take(o.allocator, sizeof *s);
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->driver = driver;
    s->options = o;
    s->allocator = comet_memory_hold(&s->allocator_copy, o.allocator);
    s->options.segment_bytes = held_round_up(o.segment_bytes, HELD_ALIGNMENT);
    comet_status status = build(s);
    if (status != COMET_OK)
        comet_device_store_free(s);
    else
        *store = s;
    return status;
}

comet_status comet_device_store_create_with(const device_store_driver *driver,
                                            const comet_device_store_options *options, comet_device_store **store) {
    comet_begin();
    return comet_end(create(driver, options, store));
}

comet_status comet_device_store_new(const comet_device_store_options *options, comet_device_store **store) {
    const device_store_driver *driver = NULL;
    comet_begin();
    COMET_TRY(comet_sized_check(options, "options"));
    COMET_REQUIRE(options->device.kind == COMET_CPU || options->device.kind == COMET_CUDA,
                  "options->device.kind is %d, which is none", (int)options->device.kind);
    if (options->device.kind == COMET_CUDA) {
        driver = comet_device_store_driver_cuda();
        if (!driver)
            return comet_fail(COMET_ERROR_NO_DEVICE, "this library was built without CUDA");
        COMET_TRY(comet_cuda_check(options->device.index));
    }
    return comet_end(create(driver, options, store));
}

/* ---- looking into it ---- */

void comet_device_store_get_stats(const comet_device_store *store, comet_device_store_stats *stats) {
    if (!store || comet_sized_check(stats, "stats") != COMET_OK)
        return;
    comet_device_store_stats s = store->stats;
    s.waits = atomic_load_explicit(&store->waits, memory_order_relaxed);
    comet_sized_write(stats, &s, sizeof s);
}

void comet_device_store_reset_peak(comet_device_store *store) {
    if (!store)
        return;
    store->stats.peak_segment_bytes = store->stats.segment_bytes;
    store->stats.peak_host_bytes = store->stats.host_bytes;
}

void comet_device_entry_get_info(const comet_device_entry *entry, comet_device_entry_info *info) {
    if (!entry || comet_sized_check(info, "info") != COMET_OK)
        return;
    comet_device_entry_info i = COMET_DEVICE_ENTRY_INFO_INIT;
    i.raw_bytes = entry->raw_bytes;
    i.room_bytes = entry->base ? entry->room : 0;
    i.state = comet_device_entry_state(entry);
    i.on_host = entry->slab && !entry->base;
    if (i.state == 1)
        i.result = entry->result;
    comet_sized_write(info, &i, sizeof i);
}
