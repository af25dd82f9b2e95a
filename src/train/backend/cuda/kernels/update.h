/* SPDX-License-Identifier: Apache-2.0 */
/* An update of all trained parameters in one launch, and their copies in 16 bits. All pointers are the device's. */
#ifndef COMET_TRAIN_CUDA_KERNELS_UPDATE_H
#define COMET_TRAIN_CUDA_KERNELS_UPDATE_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/tensor.h"
#include "train/optimiser/optimiser.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values that one block updates. */
#ifdef COMET_CUDA_EMULATION
enum { COMET_CUDA_UPDATE_CHUNK = 1 << 9 }; /* so that tests have several */
#else
enum { COMET_CUDA_UPDATE_CHUNK = 1 << 13 };
#endif

/* A trained parameter. */
typedef struct comet_cuda_updated {
    float *value;
    const float *gradient;
    float *state[COMET_OPTIMISER_MOST_ARRAYS]; /* NULL: there is none */
    void *copy;                                /* of the activations' type; NULL: none is wanted */
    int64_t count;
    int32_t first_chunk, chunks;
} comet_cuda_updated;

typedef struct comet_cuda_update_chunk {
    double sum; /* of |momentum| */
    int64_t finite;
} comet_cuda_update_chunk;

typedef struct comet_cuda_update_result {
    double mean;    /* comet_update_call.means */
    int64_t finite; /* 1: all values and all state are, after the update */
} comet_cuda_update_result;

typedef struct comet_cuda_update_job {
    const comet_cuda_updated *parameters;
    const comet_optimiser_rule *rules; /* one for each */
    const int32_t *owners;             /* of each chunk: its parameter */
    int count;
    int64_t chunks; /* of all */
    comet_optimiser_kind kind;
    int wants_means;        /* 0: they are 0 */
    const int32_t *refused; /* NULL, or: not 0 there: nothing is updated, and results are of no meaning */
    comet_cuda_update_chunk *partial;
    comet_cuda_update_result *results; /* one for each parameter */
} comet_cuda_update_job;

cudaError_t comet_cuda_launch_update(const comet_cuda_update_job *job, comet_dtype dtype, cudaStream_t queue);

/* `count` values, both arrays aligned to 16 bytes, to bf16 or fp16. */
cudaError_t comet_cuda_launch_narrow(const float *values, int64_t count, void *copy, comet_dtype dtype,
                                     cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
