/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of worker threads that the caller owns. The library starts no thread anywhere else. */
#ifndef COMET_THREADS_H
#define COMET_THREADS_H

#include "comet/allocator.h"
#include "comet/export.h"
#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_threads comet_threads;

/*
 * A pool in which `count` threads work: the calling one and count - 1 workers. count 0 means one per
 * core that the calling thread may run on (its affinity).
 * allocator NULL: the C library's. COMET_ERROR_MEMORY when memory or threads cannot be had.
 */
COMET_API comet_status comet_threads_new(unsigned count, const comet_allocator *allocator, comet_threads **threads);

/* Waits for the workers and frees the pool. NULL is allowed. No call may still use the pool. */
COMET_API void comet_threads_free(comet_threads *threads);

/* How many threads work, the caller included; 1 for NULL. */
COMET_API unsigned comet_threads_count(const comet_threads *threads);

/* A pool may be shared: calls that use it at the same time take turns. */

#ifdef __cplusplus
}
#endif

#endif
