/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of batches on the device, in two places that take turns: those of the next batch come over beside the work
 * on this one, through page-locked memory and on a queue of their own. All zero: empty.
 */
#ifndef COMET_TRAIN_CUDA_BATCH_BYTES_H
#define COMET_TRAIN_CUDA_BATCH_BYTES_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include "comet/status.h"

typedef struct comet_cuda_batch_place {
    void *host, *device;
    cudaEvent_t arrived, read; /* recorded behind its copy; behind the last who reads it */
} comet_cuda_batch_place;

typedef struct comet_cuda_batch_bytes {
    comet_cuda_batch_place places[2];
    cudaStream_t copies;
    size_t bytes; /* of each place */
    int now;
    const uint8_t *ahead; /* what is on its way into the other place; NULL: nothing */
    size_t ahead_bytes;
} comet_cuda_batch_bytes;

/* The next batch begins to come over, behind nothing but the last readers of its place. */
comet_status comet_cuda_batch_bytes_ahead(comet_cuda_batch_bytes *b, const uint8_t *bytes, size_t count);

/*
 * What is issued to the queue from here on finds these bytes in *device; those that came ahead are not brought again.
 * NULL: those of the last call, once more. The source was read when this returns.
 */
comet_status comet_cuda_batch_bytes_begin(comet_cuda_batch_bytes *b, const uint8_t *bytes, size_t count,
                                          cudaStream_t queue, const uint8_t **device);

/* Whoever reads them was issued. */
comet_status comet_cuda_batch_bytes_end(comet_cuda_batch_bytes *b, cudaStream_t queue);

/* What batches of so many bytes take on the device. */
size_t comet_cuda_batch_bytes_on_device(size_t count);

void comet_cuda_batch_bytes_free(comet_cuda_batch_bytes *b);

#endif
