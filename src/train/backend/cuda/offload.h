/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to page-locked memory of the host and back, on a queue of their own, beside what the backend's queue computes.
 * Each slot has its memory on the host, which is kept from step to step.
 */
#ifndef COMET_TRAIN_CUDA_OFFLOAD_H
#define COMET_TRAIN_CUDA_OFFLOAD_H

#include <cuda_runtime.h>
#include <stddef.h>

#include "comet/allocator.h"
#include "comet/status.h"

typedef struct comet_cuda_offload comet_cuda_offload;

/* Takes no page-locked memory and no queue yet. */
comet_status comet_cuda_offload_new(int slots, cudaStream_t queue, const comet_allocator *allocator,
                                    comet_cuda_offload **offload);
void comet_cuda_offload_free(comet_cuda_offload *offload); /* NULL is allowed */

/* What was issued to the backend's queue before is done before the copy begins. */
comet_status comet_cuda_offload_out(comet_cuda_offload *offload, int slot, const void *from, size_t bytes);
comet_status comet_cuda_offload_back(comet_cuda_offload *offload, int slot, void *to);

/* What is issued to the backend's queue from here on waits for the slot's last copy. */
comet_status comet_cuda_offload_await(comet_cuda_offload *offload, int slot);

size_t comet_cuda_offload_host_bytes(const comet_cuda_offload *offload);

#endif
