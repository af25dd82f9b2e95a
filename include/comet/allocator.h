/* SPDX-License-Identifier: Apache-2.0 */
/* Where the library takes memory from, when it must. Hot calls take a workspace instead and never come here. */
#ifndef COMET_ALLOCATOR_H
#define COMET_ALLOCATOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Both callbacks may be called from any thread that calls the library. A NULL comet_allocator means the C library's. */
typedef struct comet_allocator {
    void *(*allocate)(void *context, size_t bytes); /* aligned to 64 bytes; NULL when it cannot */
    void (*release)(void *context, void *memory, size_t bytes);
    void *context;
} comet_allocator;

#ifdef __cplusplus
}
#endif

#endif
