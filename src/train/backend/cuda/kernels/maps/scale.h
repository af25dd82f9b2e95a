/* SPDX-License-Identifier: Apache-2.0 */
/* Channels times a factor of their sample's. */
#ifndef COMET_TRAIN_CUDA_SCALE_H
#define COMET_TRAIN_CUDA_SCALE_H

#include <cuda_runtime.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_scale_job {
    comet_dtype dtype;
    int64_t batch, pixels, channels;
    const void *x, *factor;
    void *y;        /* forward; may be x */
    const void *dy; /* backward */
    void *dx;       /* NULL: not wanted; may be x or dy */
    void *dfactor;  /* NULL: not wanted */
    float *scratch; /* of comet_cuda_scale_bytes */
} comet_cuda_scale_job;

size_t comet_cuda_scale_bytes(comet_dtype dtype, int64_t batch, int64_t pixels, int64_t channels);

cudaError_t comet_cuda_launch_scale(const comet_cuda_scale_job *job, cudaStream_t queue);
cudaError_t comet_cuda_launch_scale_back(const comet_cuda_scale_job *job, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
