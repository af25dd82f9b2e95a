/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory as a space (train/graph/space.h). Calls that give the host something, or take something from it, are
 * done when they return; copies and fills are ordered on the queue.
 */
#ifndef COMET_TRAIN_CUDA_SPACE_H
#define COMET_TRAIN_CUDA_SPACE_H

#include <cuda_runtime.h>

#include "comet/allocator.h"
#include "train/graph/space.h"

/* What it holds on the device itself: a piece of what goes to the host or comes from it, in the order of files. */
enum { COMET_CUDA_SPACE_STAGE = 1 << 22 };

/*
 * The queue must outlive it. *weights_stale (may be NULL) becomes 1 whenever something is written through the space,
 * until comet_cuda_space_watch says what matters.
 */
comet_status comet_cuda_space_new(cudaStream_t queue, const comet_allocator *allocator, int *weights_stale,
                                  comet_space **space);
void comet_cuda_space_free(comet_space *space); /* NULL is allowed */

/* From now on only what is written to this memory makes weights stale. */
void comet_cuda_space_watch(comet_space *space, const void *memory, size_t bytes);

/* Some values in the order of files, whatever theirs, to another place on the device; on the queue. */
comet_status comet_cuda_space_plain(comet_space *space, const float *values, int64_t count, float *plain);

/*
 * Searches values that are not finite, on the queue: *first will be on the device, INT_MAX or the first span with such
 * a value, until the next search. When the queue has come this far, comet_cuda_space_found says the same to the host;
 * -1: none.
 */
comet_status comet_cuda_space_search(comet_space *space, const comet_span *spans, int count, const int **first);
int comet_cuda_space_found(const comet_space *space);

#endif
