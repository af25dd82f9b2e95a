/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an update may be made, from what a step has left on the device. All pointers are the device's. */
#ifndef COMET_TRAIN_CUDA_GUARD_H
#define COMET_TRAIN_CUDA_GUARD_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/cuda.h"
#include "train/backend/cuda/kernels/loss.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a holder knows of its slots: NULL where there is no holder. */
typedef struct comet_cuda_held_words {
    float bound;  /* of a normalised input */
    int32_t flaw; /* its tables are not finite */
} comet_cuda_held_words;

/* Results of streams are 16-byte aligned, also one behind the other. */
typedef struct comet_cuda_result_place {
#ifdef __cplusplus
    alignas(16) comet_cuda_result result;
#else
    _Alignas(16) comet_cuda_result result;
#endif
} comet_cuda_result_place;

typedef struct comet_cuda_guard_job {
    const comet_cuda_loss_result *loss;
    const int *nonfinite;                   /* comet_cuda_launch_search: INT_MAX where all values are finite */
    const comet_cuda_result_place *results; /* of slots */
    const comet_cuda_held_words *words;
    int slots;
    const int32_t *decoded; /* not 0: a stream could not be decoded */
    int32_t *refused;       /* becomes 1 if the update may not be made, else 0 */
} comet_cuda_guard_job;

cudaError_t comet_cuda_launch_guard(const comet_cuda_guard_job *job, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
