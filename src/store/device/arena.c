/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the arena: opened, closed, found again, released, and what is known of them. */
#include "store/device/arena.h"

#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "store/device/arena_impl.h"

/* ---- the stack ---- */

enum { HANDLE_POSITION_BITS = 21 };

static comet_arena_entry handle_of(const comet_arena *a, uint32_t position) {
    return a->items[position].serial << HANDLE_POSITION_BITS | position;
}

/* 0 if there is no such entry, or it is released. */
static uint32_t position_of(const comet_arena *a, comet_arena_entry entry) {
    uint32_t position = (uint32_t)(entry & ((1u << HANDLE_POSITION_BITS) - 1));
    if (position == 0 || position > a->top)
        return 0;
    const arena_item *item = &a->items[position];
    int held = item->state == ENTRY_OPEN || item->state == ENTRY_LIVE;
    return held && item->serial == entry >> HANDLE_POSITION_BITS ? position : 0;
}

static void push(comet_arena *a, const arena_wish *wish) {
    uint32_t position = wish->position;
    if (position > a->top) {
        a->top = position;
    } else {
        a->dead--;
        a->stats.saves_in_holes++;
    }
    a->items[position] = (arena_item){.serial = ++a->serial,
                                      .worst = wish->worst,
                                      .likely = wish->likely,
                                      .capacity = wish->capacity,
                                      .state = ENTRY_OPEN,
                                      .captured = wish->capturing};
    comet_arena_bound_ends(a, position);
    a->open = position;
    a->opener = pthread_self();
    a->graphs |= wish->capturing;
    a->stats.saves++;
    if (a->items[a->top].most_end > a->stats.peak_end_bytes)
        a->stats.peak_end_bytes = a->items[a->top].most_end;
}

static void end_opening(comet_arena *a) {
    a->open = 0;
    pthread_cond_broadcast(&a->closed);
}

/* Marks it, and takes off the top what is released there. */
static void drop(comet_arena *a, uint32_t position) {
    if (a->items[position].state == ENTRY_OPEN)
        end_opening(a);
    a->items[position].state = ENTRY_DEAD;
    a->dead++;
    while (a->items[a->top].state == ENTRY_DEAD) { /* the bottom is not */
        a->items[a->top--].state = ENTRY_FREE;
        a->dead--;
    }
}

/* ---- public: saving and loading ---- */

comet_status comet_arena_wait_for_turn(comet_arena *a) {
    while (a->open) {
        COMET_REQUIRE(!pthread_equal(a->opener, pthread_self()), "this thread has an entry open: close it first");
        pthread_cond_wait(&a->closed, &a->lock);
    }
    return COMET_OK;
}

static comet_status open_locked(comet_arena *a, arena_wish *wish) {
    comet_status status = comet_arena_wait_for_turn(a);
    if (status == COMET_OK)
        status = comet_arena_capturing(a, &wish->capturing);
    if (status != COMET_OK)
        return status;
    if (a->graphs && !wish->capturing)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "the arena belongs to its graphs, and its queue is not captured");
    if (wish->likely > a->range.bytes)
        return comet_arena_refuse(a, wish, COMET_ERROR_CAPACITY);
    status = comet_arena_make_room(a, wish);
    if (status == COMET_OK)
        push(a, wish);
    return status;
}

comet_status comet_arena_open(comet_arena *arena, size_t worst_bytes, size_t expected_bytes, comet_arena_entry *entry,
                              comet_cuda_slot *slot) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    COMET_REQUIRE_POINTER(entry);
    COMET_REQUIRE_POINTER(slot);
    COMET_REQUIRE(worst_bytes > 0 && worst_bytes <= SIZE_MAX / 4, "worst_bytes is %zu: it must be 1 to 2^62",
                  worst_bytes);
    int certain = expected_bytes == 0 || expected_bytes >= worst_bytes;
    arena_wish wish = {.worst = arena_round_up(worst_bytes, ARENA_ALIGNMENT)};
    wish.likely = certain ? wish.worst : arena_round_up(expected_bytes, ARENA_ALIGNMENT);
    pthread_mutex_lock(&arena->lock);
    comet_status status = open_locked(arena, &wish);
    if (status == COMET_OK) {
        uint32_t p = wish.position;
        *entry = handle_of(arena, p);
        *slot = (comet_cuda_slot){arena->range.base, wish.capacity, &arena_record_of(arena, p - 1)->end,
                                  arena_record_of(arena, p)};
    }
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

static comet_status close_locked(comet_arena *a, comet_arena_entry entry) {
    uint32_t position = position_of(a, entry);
    COMET_REQUIRE(position && a->items[position].state == ENTRY_OPEN, "entry is none that is open");
    a->items[position].state = ENTRY_LIVE;
    end_opening(a);
    if (a->items[position].captured)
        return COMET_OK; /* its record is written by replays, not now */
    comet_arena_note_unasked(a, position);
    if (a->unasked < ARENA_READBACK_ENTRIES && a->unasked_bytes < a->range.bytes / ARENA_READBACK_FRACTION)
        return COMET_OK;
    int is_capturing = 0;
    comet_status status = comet_arena_capturing(a, &is_capturing);
    if (status == COMET_OK && !is_capturing && a->asked - a->answered == ARENA_READBACKS)
        status = comet_arena_poll_arrived(a);
    return status == COMET_OK && !is_capturing ? comet_arena_ask(a) : status;
}

comet_status comet_arena_close(comet_arena *arena, comet_arena_entry entry) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    comet_status status = close_locked(arena, entry);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

/* Asks and takes in, unless the queue is captured. */
static comet_status poll_locked(comet_arena *a) {
    int is_capturing = 0;
    comet_status status = comet_arena_capturing(a, &is_capturing);
    if (status != COMET_OK || is_capturing)
        return status;
    status = comet_arena_poll_arrived(a);
    return status == COMET_OK ? comet_arena_ask(a) : status;
}

/* What the stream's own status has to say. */
static comet_status stored_status(const arena_item *item) {
    if (item->status == COMET_ERROR_CAPACITY)
        return comet_fail(item->status, "entry's stream did not fit when it was saved");
    return item->status;
}

static comet_status check_live(const comet_arena *a, uint32_t position) {
    COMET_REQUIRE(position && a->items[position].state == ENTRY_LIVE, "entry is none of this arena, open or released");
    return COMET_OK;
}

/* What may not have fit is looked up; the others cost no call of CUDA. */
static comet_status slot_locked(comet_arena *a, comet_arena_entry entry, comet_cuda_slot *slot) {
    uint32_t position = position_of(a, entry);
    const arena_item *item = &a->items[position];
    COMET_TRY(check_live(a, position));
    if (item->likely < item->worst && item->knowledge == UNKNOWN && !item->captured) {
        comet_status status = poll_locked(a);
        if (status != COMET_OK)
            return status;
    }
    if (item->knowledge != UNKNOWN && item->status != COMET_OK)
        return stored_status(item);
    comet_cuda_result *record = arena_record_of(a, position);
    *slot = (comet_cuda_slot){a->range.base, a->mapped, &record->start, record};
    return COMET_OK;
}

comet_status comet_arena_slot(comet_arena *arena, comet_arena_entry entry, comet_cuda_slot *slot) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    COMET_REQUIRE_POINTER(slot);
    pthread_mutex_lock(&arena->lock);
    comet_status status = slot_locked(arena, entry, slot);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

comet_status comet_arena_release(comet_arena *arena, comet_arena_entry entry) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    uint32_t position = position_of(arena, entry);
    if (position)
        drop(arena, position);
    pthread_mutex_unlock(&arena->lock);
    COMET_REQUIRE(position, "entry is none of this arena, or released");
    return COMET_OK;
}

/* ---- public: knowing ---- */

comet_status comet_arena_poll(comet_arena *arena) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    comet_status status = poll_locked(arena);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

/* Waits until *item is known. */
static comet_status wait_for(comet_arena *a, const arena_item *item) {
    int is_capturing = 0, any = 1;
    comet_status status = comet_arena_capturing(a, &is_capturing);
    if (status == COMET_OK && is_capturing)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "the arena's queue is being captured: it cannot be waited for");
    while (status == COMET_OK && item->knowledge == UNKNOWN && any)
        status = comet_arena_wait_for_one(a, &any);
    return status;
}

static comet_status result_locked(comet_arena *a, comet_arena_entry entry, int wait, int32_t *known,
                                  comet_cuda_result *result) {
    uint32_t position = position_of(a, entry);
    const arena_item *item = &a->items[position];
    *known = 0;
    COMET_TRY(check_live(a, position));
    if (item->captured)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "entry is of a graph: its result stays on the device");
    comet_status status = item->knowledge == UNKNOWN ? poll_locked(a) : COMET_OK;
    if (status == COMET_OK && item->knowledge == UNKNOWN && wait)
        status = wait_for(a, item);
    if (status != COMET_OK || item->knowledge == UNKNOWN)
        return status;
    *known = 1;
    if (result)
        memcpy(result, a->arrived + (size_t)position * ARENA_RECORD_BYTES, sizeof *result);
    return stored_status(item);
}

comet_status comet_arena_result(comet_arena *arena, comet_arena_entry entry, int32_t *known,
                                comet_cuda_result *result) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    COMET_REQUIRE_POINTER(known);
    pthread_mutex_lock(&arena->lock);
    comet_status status = result_locked(arena, entry, 0, known, result);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

comet_status comet_arena_await(comet_arena *arena, comet_arena_entry entry, comet_cuda_result *result) {
    int32_t known;
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    pthread_mutex_lock(&arena->lock);
    comet_status status = result_locked(arena, entry, 1, &known, result);
    pthread_mutex_unlock(&arena->lock);
    return comet_end(status);
}

/* What is not a counter or a peak. */
static void fill_stats(const comet_arena *a, comet_arena_stats *s) {
    s->limit_bytes = a->range.bytes;
    s->mapped_bytes = a->mapped;
    s->overhead_bytes = (size_t)(a->most_entries + 1) * ARENA_RECORD_BYTES;
    s->end_bytes = a->items[a->top].most_end;
    s->holes = a->dead;
    for (uint32_t p = 1; p <= a->top; p++) {
        const arena_item *item = &a->items[p];
        if (item->state == ENTRY_DEAD)
            continue;
        s->entries++;
        if (item->knowledge == KNOWN) {
            s->known_bytes += item->bytes;
        } else {
            s->unknown_entries++;
            s->unknown_bytes += item->worst;
        }
    }
}

comet_status comet_arena_get_stats(comet_arena *arena, comet_arena_stats *stats) {
    comet_begin();
    COMET_REQUIRE_POINTER(arena);
    COMET_TRY(comet_sized_check(stats, "stats"));
    pthread_mutex_lock(&arena->lock);
    comet_arena_stats s = arena->stats;
    fill_stats(arena, &s);
    pthread_mutex_unlock(&arena->lock);
    comet_sized_write(stats, &s, sizeof s);
    return COMET_OK;
}
