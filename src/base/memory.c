/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

void *comet_memory_take(const comet_allocator *allocator, size_t bytes) {
    if (bytes > SIZE_MAX - COMET_ALIGNMENT)
        return NULL;
    bytes = comet_align_up(bytes ? bytes : 1, COMET_ALIGNMENT);
    return allocator ? allocator->allocate(allocator->context, bytes) : aligned_alloc(COMET_ALIGNMENT, bytes);
}

void comet_memory_give(const comet_allocator *allocator, void *memory, size_t bytes) {
    if (!memory)
        return;
    if (allocator)
        allocator->release(allocator->context, memory, comet_align_up(bytes ? bytes : 1, COMET_ALIGNMENT));
    else
        free(memory);
}

enum { FIRST_ROOM = 64 };

void *comet_array_reserve(const comet_allocator *allocator, void *array, size_t count, size_t wanted, size_t *room,
                          size_t size) {
    if (array && wanted <= *room)
        return array;
    size_t more = *room ? *room : FIRST_ROOM / 2;
    do {
        if (more > SIZE_MAX / 2 / size)
            return NULL;
        more *= 2;
    } while (more < wanted);
    void *larger = comet_memory_take(allocator, more * size);
    if (!larger)
        return NULL;
    if (count)
        memcpy(larger, array, count * size);
    comet_memory_give(allocator, array, *room * size);
    *room = more;
    return larger;
}
