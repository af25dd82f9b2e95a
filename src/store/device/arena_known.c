/* SPDX-License-Identifier: Apache-2.0 */
/* What the host knows of where streams end: bounds, and results as they are read back. */
#include <string.h>

#include "store/device/arena_impl.h"

comet_status comet_arena_capturing(const comet_arena *a, int *is) {
    return a->driver->queue_capturing(a->driver, a->queue, is);
}

/* What is known needs nothing of what lies below it: ends are absolute. */
void comet_arena_bound_ends(comet_arena *a, uint32_t position) {
    for (uint32_t p = position; p <= a->top; p++) {
        arena_item *item = &a->items[p];
        const arena_item *below = item - 1;
        if (item->knowledge == KNOWN) {
            item->most_end = item->likely_end = item->end;
            continue;
        }
        size_t most = below->most_end + item->worst, likely = below->likely_end + item->likely;
        item->most_end = most < item->capacity ? most : item->capacity;
        item->likely_end = likely < item->capacity ? likely : item->capacity;
    }
}

/*
 * A result is what the kernel leaves in a record. A stale one means that the caller compressed nothing into the slot.
 */
static int is_result(const arena_item *item, const comet_cuda_result *r) {
    const arena_item *below = item - 1;
    if (r->start % ARENA_ALIGNMENT || r->end % ARENA_ALIGNMENT || r->start > r->end || r->end > item->capacity)
        return 0;
    if (below->knowledge == KNOWN && r->start != below->end)
        return 0;
    return r->status == COMET_OK ? r->codec.bytes <= r->end - r->start : r->end == r->start;
}

static void take_in(comet_arena *a, uint32_t position) {
    arena_item *item = &a->items[position];
    comet_cuda_result r;
    memcpy(&r, a->arrived + (size_t)position * ARENA_RECORD_BYTES, sizeof r);
    if (!is_result(item, &r)) {
        item->knowledge = WRONG;
        item->status = COMET_ERROR_CORRUPT;
        return;
    }
    item->knowledge = KNOWN;
    item->status = (comet_status)r.status;
    item->start = (size_t)r.start;
    item->end = (size_t)r.end;
    item->bytes = item->status == COMET_OK ? r.codec.bytes : 0;
    a->stats.overflows += item->status != COMET_OK;
    if (item->end > a->stats.peak_known_bytes)
        a->stats.peak_known_bytes = item->end;
}

/* The oldest readback has arrived. Entries that went away meanwhile, or came, have another number. */
static void answer(comet_arena *a) {
    const arena_readback *r = &a->readbacks[++a->answered % ARENA_READBACKS];
    for (uint32_t p = r->low; p <= r->high && p <= a->top; p++)
        if (a->items[p].readback == a->answered && a->items[p].knowledge == UNKNOWN)
            take_in(a, p);
    comet_arena_bound_ends(a, r->low);
}

/* What is released needs none: the entries above it say where they are themselves. */
static int wants_readback(const arena_item *item) {
    return item->state == ENTRY_LIVE && !item->readback && !item->captured;
}

/* With what lies between them. If it fails they stay unasked. */
comet_status comet_arena_ask(comet_arena *a) {
    const arena_driver *d = a->driver;
    if (!a->unasked || a->asked - a->answered == ARENA_READBACKS)
        return COMET_OK;
    arena_readback *r = &a->readbacks[(a->asked + 1) % ARENA_READBACKS];
    uint32_t low = a->unasked_low, high = a->unasked_high < a->top ? a->unasked_high : a->top;
    if (low <= high) {
        size_t offset = (size_t)low * ARENA_RECORD_BYTES, bytes = (size_t)(high - low + 1) * ARENA_RECORD_BYTES;
        comet_status status = d->copy(d, a->arrived + offset, a->records + offset, bytes, a->queue);
        if (status == COMET_OK)
            status = d->event_record(d, r->event, a->queue);
        if (status != COMET_OK)
            return status;
        r->low = low;
        r->high = high;
        a->asked++;
        a->stats.readbacks++;
        for (uint32_t p = low; p <= high; p++)
            if (wants_readback(&a->items[p]))
                a->items[p].readback = a->asked;
    }
    a->unasked = 0;
    a->unasked_bytes = 0;
    return COMET_OK;
}

void comet_arena_note_unasked(comet_arena *a, uint32_t position) {
    if (!a->unasked++)
        a->unasked_low = a->unasked_high = position;
    if (position < a->unasked_low)
        a->unasked_low = position;
    if (position > a->unasked_high)
        a->unasked_high = position;
    a->unasked_bytes += a->items[position].worst;
}

comet_status comet_arena_poll_arrived(comet_arena *a) {
    while (a->answered != a->asked) {
        int reached = 0;
        void *event = a->readbacks[(a->answered + 1) % ARENA_READBACKS].event;
        comet_status status = a->driver->event_query(a->driver, event, &reached);
        if (status != COMET_OK || !reached)
            return status;
        answer(a);
    }
    return COMET_OK;
}

comet_status comet_arena_wait_for_one(comet_arena *a, int *any) {
    comet_status status = a->asked == a->answered ? comet_arena_ask(a) : COMET_OK;
    *any = a->asked != a->answered;
    if (status != COMET_OK || !*any)
        return status;
    a->stats.waits++;
    status = a->driver->event_wait(a->driver, a->readbacks[(a->answered + 1) % ARENA_READBACKS].event);
    if (status == COMET_OK)
        answer(a);
    return status;
}
