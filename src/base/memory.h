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

/* Keeps what the caller's allocator says in `copy`; returns that, or NULL where there is none. */
static inline const comet_allocator *comet_memory_hold(comet_allocator *copy, const comet_allocator *allocator) {
    if (!allocator)
        return NULL;
    *copy = *allocator;
    return copy;
}

#endif
