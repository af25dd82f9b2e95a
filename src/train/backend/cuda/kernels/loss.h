/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy. All pointers are the device's. */
#ifndef COMET_TRAIN_CUDA_KERNELS_LOSS_H
#define COMET_TRAIN_CUDA_KERNELS_LOSS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_loss_sample {
    double loss;
    int64_t rank; /* how many classes come before the label's */
} comet_cuda_loss_sample;

typedef struct comet_cuda_loss_result {
    double loss; /* the mean */
    int32_t top1, top5;
} comet_cuda_loss_result;

typedef struct comet_cuda_loss_job {
    const void *logits; /* batch x classes */
    void *dlogits;      /* NULL: not wanted */
    const int32_t *labels;
    int batch, classes;
    double smoothing, scale; /* of dlogits */
    comet_cuda_loss_sample *samples;
    comet_cuda_loss_result *result;
} comet_cuda_loss_job;

cudaError_t comet_cuda_launch_loss(const comet_cuda_loss_job *job, comet_dtype dtype, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
