/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that go value by value. Outputs may be any of the inputs of the same type. */
#ifndef COMET_TRAIN_CUDA_ELEMENTWISE_H
#define COMET_TRAIN_CUDA_ELEMENTWISE_H

#include <cuda_runtime.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum comet_cuda_function {
    COMET_CUDA_RELU, /* of x */
    COMET_CUDA_SILU,
    COMET_CUDA_SIGMOID,
    COMET_CUDA_ADD,          /* of two tensors */
    COMET_CUDA_RELU_SLOPE,   /* of y and dy: dx */
    COMET_CUDA_SILU_SLOPE,   /* of x and dy */
    COMET_CUDA_SIGMOID_SLOPE /* of y and dy */
} comet_cuda_function;

/* `b` is not read where there is one input. */
cudaError_t comet_cuda_launch_function(comet_cuda_function function, comet_dtype dtype, const void *a, const void *b,
                                       void *to, int64_t count, cudaStream_t queue);

/* A ReLU that leaves a bit for each value, packed as in train/backend/cpu/bits.h, and its backward from them. */
cudaError_t comet_cuda_launch_relu_mask(comet_dtype dtype, const void *x, void *y, uint8_t *mask, int64_t count,
                                        cudaStream_t queue);
cudaError_t comet_cuda_launch_relu_unmask(comet_dtype dtype, const uint8_t *mask, const void *dy, void *dx,
                                          int64_t count, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
