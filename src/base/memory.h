/* SPDX-License-Identifier: Apache-2.0 */
/* Memory through the caller's allocator, or the C library's where there is none. */
#ifndef COMET_BASE_MEMORY_H
#define COMET_BASE_MEMORY_H

#include "comet/allocator.h"

#define COMET_ALIGNMENT 64

/* NULL when it cannot. allocator may be NULL. bytes 0 gives a pointer that may be released. */
void *comet_memory_take(const comet_allocator *allocator, size_t bytes);

/* memory may be NULL. */
void comet_memory_give(const comet_allocator *allocator, void *memory, size_t bytes);

#endif
