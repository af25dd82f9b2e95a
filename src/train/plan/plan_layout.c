/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of the buffers in one block. The largest buffers first, each into the smallest gap that is free for all of its
 * life, or behind the others: the usual greedy method, within a few percent of what lives at the worst moment for such
 * graphs.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"
#include "train/plan/plan_impl.h"

typedef struct item {
    size_t bytes;
    int first, index;
} item;

/* Larger first; then the earlier; then the order they were made in, so that a plan is always the same. */
static int by_size(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

typedef struct range {
    size_t start, end;
} range;

/* The smallest gap between taken ranges (in the order of their starts) that holds `bytes`. */
static size_t best_gap(const range *taken, int count, size_t bytes) {
    size_t end = 0, best = SIZE_MAX, best_bytes = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        if (taken[i].start > end && taken[i].start - end >= bytes && taken[i].start - end < best_bytes) {
            best = end;
            best_bytes = taken[i].start - end;
        }
        if (taken[i].end > end)
            end = taken[i].end;
    }
    return best != SIZE_MAX ? best : end;
}

static int overlap(const comet_buffer *a, const comet_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* `placed`: the buffers that have their place, by where it is; the new one is put among them. */
static void place(comet_plan *p, int index, int *placed, int count, range *taken) {
    comet_buffer *b = &p->buffers[index];
    int in_the_way = 0, at = count;
    for (int k = 0; k < count; k++) {
        const comet_buffer *other = &p->buffers[placed[k]];
        if (overlap(b, other))
            taken[in_the_way++] = (range){other->offset, other->offset + other->bytes};
    }
    b->offset = best_gap(taken, in_the_way, b->bytes);
    if (b->offset + b->bytes > p->buffer_bytes)
        p->buffer_bytes = b->offset + b->bytes;
    for (; at > 0 && p->buffers[placed[at - 1]].offset > b->offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = index;
}

static void count_live(comet_plan *p) {
    for (int t = 0; t <= 2 * p->n; t++) {
        size_t live = 0;
        for (int i = 0; i < p->buffer_count; i++)
            if (p->buffers[i].first <= t && t <= p->buffers[i].last)
                live += p->buffers[i].bytes;
        p->live_bytes = live > p->live_bytes ? live : p->live_bytes;
    }
}

comet_status comet_plan_layout(comet_plan *p) {
    const size_t count = (size_t)p->buffer_count;
    item *items = comet_memory_take(p->allocator, count * sizeof *items);
    range *taken = comet_memory_take(p->allocator, count * sizeof *taken);
    int *placed = comet_memory_take(p->allocator, count * sizeof *placed);
    comet_status status = items && taken && placed ? COMET_OK : COMET_ERROR_MEMORY;
    if (status == COMET_OK) {
        for (int i = 0; i < p->buffer_count; i++)
            items[i] = (item){p->buffers[i].bytes, p->buffers[i].first, i};
        qsort(items, count, sizeof *items, by_size);
        for (int i = 0; i < p->buffer_count; i++)
            place(p, items[i].index, placed, i, taken);
        count_live(p);
    }
    comet_memory_give(p->allocator, placed, count * sizeof *placed);
    comet_memory_give(p->allocator, taken, count * sizeof *taken);
    comet_memory_give(p->allocator, items, count * sizeof *items);
    return status;
}
