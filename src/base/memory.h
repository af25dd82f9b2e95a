/* SPDX-License-Identifier: Apache-2.0 */
/* Memory through the caller's allocator, or the C library's where there is none. */
#ifndef COMET_BASE_MEMORY_H
#define COMET_BASE_MEMORY_H

#include "comet/allocator.h"

#define COMET_ALIGNMENT 64

/* NULL when it cannot. allocator may be NULL. bytes 0 gives a pointer that may be released. */
void *comet_memory_take(const comet_allocator *allocator, size_t bytes);

/* memory may be NULL. The allocator may lie in `memory` itself: it is not looked at again once that is given back. */
void comet_memory_give(const comet_allocator *allocator, void *memory, size_t bytes);

/*
 * An array that grows: room for `wanted` elements of `size` bytes, of which `count` are there. Returns the array (NULL
 * at first), or a larger one into which they were moved; *room is how many it has room for. It is given back with
 * comet_memory_give(allocator, array, room * size) or, without an allocator, free(). NULL: there is no memory, and the
 * array is as it was.
 *
 *     item *items = comet_array_reserve(allocator, l->items, l->count, l->count + 1, &l->room, sizeof *items);
 *     if (!items)
 *         return COMET_ERROR_MEMORY;
 *     l->items = items;
 */
void *comet_array_reserve(const comet_allocator *allocator, void *array, size_t count, size_t wanted, size_t *room,
                          size_t size);

/* Keeps what the caller's allocator says in `copy`; returns that, or NULL where there is none. */
static inline const comet_allocator *comet_memory_hold(comet_allocator *copy, const comet_allocator *allocator) {
    if (!allocator)
        return NULL;
    *copy = *allocator;
    return copy;
}

#endif
