/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>

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
