/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow. */
#ifndef COMET_BASE_ARRAY_H
#define COMET_BASE_ARRAY_H

#include <stddef.h>

#include "comet/allocator.h"

/*
 * Room for `wanted` elements of `size` bytes, of which `count` are there: the array (NULL at first), or a larger one into
 * which they were moved. *room is how many it has room for, to be given back with comet_memory_give(array, room * size)
 * or, without an allocator, free(). NULL: there is no memory, and the array is as it was.
 *
 *     item *items = comet_array_reserve(allocator, list->items, list->count, list->count + 1, &list->room, sizeof *items);
 *     if (!items)
 *         return COMET_ERROR_MEMORY;
 *     list->items = items;
 */
void *comet_array_reserve(const comet_allocator *allocator, void *array, size_t count, size_t wanted, size_t *room,
                          size_t size);

#endif
