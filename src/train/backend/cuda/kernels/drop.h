/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and stochastic depth: what is dropped is drawn from the counters of train/backend/cpu/drop.c. */
#ifndef COMET_TRAIN_CUDA_DROP_H
#define COMET_TRAIN_CUDA_DROP_H

#include <cuda_runtime.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_drop {
    comet_dtype dtype;
    const void *from;
    void *to; /* may be `from` */
    int64_t count, sample_values;
    int64_t first_sample; /* of this rank among all samples */
    uint64_t seed;
    uint32_t step, node;
    const uint64_t *step_at; /* NULL: `step`; else where the device finds it */
    uint32_t limit;          /* a word below it: dropped */
    float scale;             /* of what is not */
} comet_cuda_drop;

cudaError_t comet_cuda_launch_dropout(const comet_cuda_drop *d, cudaStream_t queue);
cudaError_t comet_cuda_launch_stochastic_depth(const comet_cuda_drop *d, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
