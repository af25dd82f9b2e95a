/* SPDX-License-Identifier: Apache-2.0 */
/* Where a stream goes: behind the others, or into a hole; in memory that is mapped as it is needed. */
#include "base/fail.h"
#include "store/device/arena_impl.h"

/* ---- mapping ---- */

comet_status comet_arena_unmap_last(comet_arena *a) {
    size_t offset = (a->mapped - 1) / a->piece * a->piece;
    comet_status status = a->driver->unmap(a->driver, &a->range, offset, a->mapped - offset);
    if (status == COMET_OK)
        a->mapped = offset;
    return status;
}

comet_status comet_arena_map_up_to(comet_arena *a, size_t bytes) {
    size_t before = a->mapped;
    while (a->mapped < bytes) {
        size_t left = a->range.bytes - a->mapped, piece = left < a->piece ? left : a->piece;
        comet_status status = a->driver->map(a->driver, &a->range, a->mapped, piece);
        if (status != COMET_OK) {
            while (a->mapped > before && comet_arena_unmap_last(a) == COMET_OK)
                ;
            return status;
        }
        a->mapped += piece;
    }
    if (a->mapped > a->stats.peak_mapped_bytes)
        a->stats.peak_mapped_bytes = a->mapped;
    return COMET_OK;
}

/* ---- finding room ---- */

/* Who must be certain counts with the worst case of everything below, who need not with what was expected of it. */
static size_t end_for(const arena_wish *wish, const arena_item *item) {
    return wish->likely < wish->worst ? item->likely_end : item->most_end;
}

/*
 * Entries released between two others, where the upper one's start is known: the device is told to stay below that,
 * and the stream goes behind the lower one. The first such place will do.
 */
static int find_hole(const comet_arena *a, arena_wish *wish) {
    for (uint32_t p = 1; a->dead && p < a->top; p++) {
        if (a->items[p].state != ENTRY_DEAD)
            continue;
        uint32_t hole = p;
        while (a->items[p].state == ENTRY_DEAD)
            p++; /* the top is never dead */
        const arena_item *above = &a->items[p];
        if (above->knowledge == KNOWN && end_for(wish, &a->items[hole - 1]) + wish->likely <= above->start) {
            wish->position = hole;
            wish->capacity = above->start;
            return 1;
        }
    }
    return 0;
}

static size_t end_on_top(const comet_arena *a, const arena_wish *wish) {
    return end_for(wish, &a->items[a->top]) + wish->likely;
}

static int find_room(const comet_arena *a, arena_wish *wish) {
    if (a->top < a->most_entries && end_on_top(a, wish) <= a->mapped) {
        wish->position = a->top + 1;
        wish->capacity = a->mapped;
        return 1;
    }
    return find_hole(a, wish);
}

/* Whether mapping more would help. */
static int can_grow(const comet_arena *a, const arena_wish *wish) {
    return a->top < a->most_entries && end_on_top(a, wish) <= a->range.bytes;
}

comet_status comet_arena_refuse(comet_arena *a, const arena_wish *wish, comet_status status) {
    size_t room = status == COMET_ERROR_MEMORY ? a->mapped : a->range.bytes, end = end_on_top(a, wish);
    a->stats.missing_bytes = a->top < a->most_entries && end > room ? end - room : 0;
    a->stats.refused++;
    if (a->top >= a->most_entries)
        return comet_fail(status, "all of the arena's max_entries, %u, are taken", (unsigned)a->most_entries);
    return comet_fail(status, "%zu bytes are missing in %s", a->stats.missing_bytes,
                      status == COMET_ERROR_MEMORY ? "the device's memory" : "the arena's limit_bytes");
}

comet_status comet_arena_make_room(comet_arena *a, arena_wish *wish) {
    if (find_room(a, wish))
        return COMET_OK;
    comet_status status = wish->capturing ? COMET_OK : comet_arena_poll_arrived(a);
    while (status == COMET_OK) {
        if (find_room(a, wish))
            return COMET_OK;
        comet_status grown = can_grow(a, wish) ? comet_arena_map_up_to(a, end_on_top(a, wish)) : COMET_ERROR_CAPACITY;
        if (grown == COMET_OK)
            continue;
        if (grown != COMET_ERROR_CAPACITY && grown != COMET_ERROR_MEMORY)
            return grown;
        int any = 0;
        if (!wish->capturing)
            status = comet_arena_wait_for_one(a, &any);
        if (status == COMET_OK && !any)
            return comet_arena_refuse(a, wish, grown);
    }
    return status;
}
