/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

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
