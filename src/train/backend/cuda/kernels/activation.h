/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that go value by value. An output may be any of the inputs of its type. */
#ifndef COMET_TRAIN_CUDA_KERNELS_ACTIVATION_H
#define COMET_TRAIN_CUDA_KERNELS_ACTIVATION_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* mask: NULL, or a bit for each value, packed as in train/backend/cpu/bits.h. */
comet_status comet_cuda_relu_forward(const void *x, void *y, uint8_t *mask, int64_t count, comet_dtype dtype,
                                     cudaStream_t queue);
/* From the mask, or if that is NULL from y. */
comet_status comet_cuda_relu_backward(const void *y, const uint8_t *mask, const void *dy, void *dx, int64_t count,
                                      comet_dtype dtype, cudaStream_t queue);

comet_status comet_cuda_silu_forward(const void *x, void *y, int64_t count, comet_dtype dtype, cudaStream_t queue);
comet_status comet_cuda_silu_backward(const void *x, const void *dy, void *dx, int64_t count, comet_dtype dtype,
                                      cudaStream_t queue);

comet_status comet_cuda_sigmoid_forward(const void *x, void *y, int64_t count, comet_dtype dtype, cudaStream_t queue);
comet_status comet_cuda_sigmoid_backward(const void *y, const void *dy, void *dx, int64_t count, comet_dtype dtype,
                                         cudaStream_t queue);

comet_status comet_cuda_add_values(const void *a, const void *b, void *sum, int64_t count, comet_dtype dtype,
                                   cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
