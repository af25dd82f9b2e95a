/* SPDX-License-Identifier: Apache-2.0 */
/* The arena itself: made, given back, trimmed. */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/sized.h"
#include "store/device/arena_impl.h"

static size_t arena_bytes(uint32_t entries) {
    return sizeof(comet_arena) + ((size_t)entries + 1) * sizeof(arena_item);
}

/* Keeps the first of two errors. */
static comet_status both(comet_status first, comet_status second) {
    return first != COMET_OK ? first : second;
}

/* Gives back whatever there is. The device is done with it. */
static comet_status tear_down(comet_arena *a) {
    const arena_driver *d = a->driver;
    comet_status status = COMET_OK;
    while (a->range.granularity && a->mapped) {
        comet_status unmapped = comet_arena_unmap_last(a);
        status = both(status, unmapped);
        if (unmapped != COMET_OK)
            a->mapped = (a->mapped - 1) / a->piece * a->piece; /* the others first */
    }
    if (a->has_range)
        status = both(status, d->unreserve(d, &a->range));
    if (a->records)
        status = both(status, d->give(d, a->device, ARENA_MEMORY_DEVICE, a->records));
    if (a->arrived)
        status = both(status, d->give(d, a->device, ARENA_MEMORY_PAGE_LOCKED, a->arrived));
    for (int i = 0; i < ARENA_READBACKS; i++)
        if (a->readbacks[i].event)
            status = both(status, d->event_free(d, a->readbacks[i].event));
    pthread_cond_destroy(&a->closed);
    pthread_mutex_destroy(&a->lock);
    comet_memory_give(a->allocator, a, arena_bytes(a->most_entries));
    return status;
}

/* Pieces are at least a granule, and not too many. */
static void choose_piece(comet_arena *a) {
    size_t unit = a->range.granularity;
    a->piece = unit ? arena_round_up(a->range.bytes / ARENA_MOST_PIECES + 1, unit) : a->range.bytes;
    if (!unit)
        a->mapped = a->stats.peak_mapped_bytes = a->range.bytes;
}

static comet_status take_records(comet_arena *a) {
    const arena_driver *d = a->driver;
    size_t bytes = ((size_t)a->most_entries + 1) * ARENA_RECORD_BYTES;
    void *memory = NULL;
    comet_status status = d->take(d, a->device, ARENA_MEMORY_DEVICE, bytes, &memory);
    a->records = memory;
    if (status != COMET_OK)
        return status;
    memory = NULL;
    status = d->take(d, a->device, ARENA_MEMORY_PAGE_LOCKED, bytes, &memory);
    a->arrived = memory;
    if (status == COMET_OK)
        status = d->zero(d, a->records, bytes, a->queue); /* the bottom's end is 0 */
    return status == COMET_OK ? d->queue_wait(d, a->queue) : status;
}

static comet_status captured(void) {
    return comet_fail(COMET_ERROR_UNSUPPORTED, "the arena's queue is being captured");
}

static comet_status build(comet_arena *a, const comet_arena_options *o) {
    const arena_driver *d = a->driver;
    int is_capturing = 0;
    comet_status status = comet_arena_capturing(a, &is_capturing);
    if (status == COMET_OK && is_capturing)
        status = captured();
    if (status == COMET_OK)
        status = take_records(a);
    for (int i = 0; status == COMET_OK && i < ARENA_READBACKS; i++)
        status = d->event_new(d, a->device, &a->readbacks[i].event);
    if (status != COMET_OK)
        return status;
    status = d->reserve(d, a->device, o->limit_bytes, &a->range);
    if (status != COMET_OK)
        return status;
    a->has_range = 1;
    choose_piece(a);
    return comet_arena_map_up_to(a, o->initial_bytes < a->range.bytes ? o->initial_bytes : a->range.bytes);
}

static comet_status check_options(const comet_arena_options *o) {
    COMET_REQUIRE(o->limit_bytes >= ARENA_ALIGNMENT && o->limit_bytes <= SIZE_MAX / 4,
                  "options->limit_bytes is %zu: it must be %d to 2^62", o->limit_bytes, ARENA_ALIGNMENT);
    COMET_REQUIRE(o->initial_bytes <= o->limit_bytes, "options->initial_bytes is %zu: it must be at most limit_bytes",
                  o->initial_bytes);
    COMET_REQUIRE(o->max_entries > 0 && o->max_entries <= ARENA_MOST_ENTRIES,
                  "options->max_entries is %u: it must be 1 to %u", (unsigned)o->max_entries,
                  (unsigned)ARENA_MOST_ENTRIES);
    COMET_REQUIRE(o->device >= 0, "options->device is %d: it must not be negative", (int)o->device);
    return COMET_OK;
}

comet_status comet_arena_create_with(const arena_driver *driver, const comet_arena_options *options,
                                     comet_arena **arena) {
    static const comet_arena_options defaults = COMET_ARENA_OPTIONS_INIT;
    comet_arena_options o;
    COMET_REQUIRE_POINTER(arena);
    COMET_REQUIRE_POINTER(options);
    COMET_TRY(comet_sized_read(&o, sizeof o, options, &defaults, "options"));
    COMET_TRY(check_options(&o));
    comet_arena *a = comet_memory_take(o.allocator, arena_bytes(o.max_entries));
    if (!a)
        return COMET_ERROR_MEMORY;
    memset(a, 0, arena_bytes(o.max_entries));
    a->driver = driver;
    a->allocator = comet_memory_hold(&a->allocator_copy, o.allocator);
    a->device = o.device;
    a->queue = o.queue;
    a->most_entries = o.max_entries;
    a->items[0] = (arena_item){.state = ENTRY_LIVE, .knowledge = KNOWN};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->closed, NULL);
    comet_status status = build(a, &o);
    if (status != COMET_OK)
        (void)tear_down(a);
    else
        *arena = a;
    return status;
}

comet_status comet_arena_new(const comet_arena_options *options, comet_arena **arena) {
    const arena_driver *driver = comet_arena_driver_cuda();
    comet_begin();
    if (!driver)
        return comet_fail(COMET_ERROR_NO_DEVICE, "this library was built without CUDA");
    return comet_end(comet_arena_create_with(driver, options, arena));
}

comet_status comet_arena_free(comet_arena *arena) {
    comet_begin();
    if (!arena)
        return COMET_OK;
    int is_capturing = 0;
    comet_status status = comet_arena_capturing(arena, &is_capturing);
    if (status == COMET_OK && is_capturing)
        return captured();
    status = both(status, arena->driver->queue_wait(arena->driver, arena->queue));
    return both(status, tear_down(arena));
}

/* ---- trimming, and graphs ---- */

/* Nothing issued may still read what is unmapped, so the queue is waited for, last. */
static comet_status settle(comet_arena *a) {
    int any = 1;
    comet_status status = COMET_OK;
    while (status == COMET_OK && any)
        status = comet_arena_wait_for_one(a, &any);
    if (status != COMET_OK)
        return status;
    a->stats.waits++;
    return a->driver->queue_wait(a->driver, a->queue);
}

static comet_status trim_locked(comet_arena *a) {
    int is_capturing = 0;
    comet_status status = comet_arena_wait_for_turn(a); /* an open slot was told what is mapped */
    if (status == COMET_OK)
        status = comet_arena_capturing(a, &is_capturing);
    if (status == COMET_OK && is_capturing)
        status = captured();
    if (status == COMET_OK && a->graphs)
        status = comet_fail(COMET_ERROR_UNSUPPORTED, "the arena belongs to its graphs");
    if (status == COMET_OK)
        status = settle(a);
    if (a->range.granularity == 0)
        return status;
    size_t kept = arena_round_up(a->items[a->top].most_end, a->piece);
    while (status == COMET_OK && a->mapped > kept)
        status = comet_arena_unmap_last(a);
    return status;
}

comet_status comet_arena_trim(comet_arena *arena) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    comet_status status = trim_locked(arena);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

comet_status comet_arena_forget_graphs(comet_arena *arena) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    int held = 0;
    for (uint32_t p = 1; p <= arena->top; p++)
        held |= arena->items[p].captured;
    if (!held)
        arena->graphs = 0;
    pthread_mutex_unlock(&arena->lock);
    COMET_REQUIRE(!held, "entries of the arena's graphs are not released");
    return COMET_OK;
}
