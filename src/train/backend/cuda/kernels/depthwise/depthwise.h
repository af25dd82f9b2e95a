/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions: every channel has a filter of its own. Activations are NHWC of one dtype; filters are
 * channels x kernel x kernel of the same dtype, their gradients fp32. Sums are fp32 and always in the same order.
 * Memory of the device.
 */
#ifndef COMET_TRAIN_CUDA_DEPTHWISE_H
#define COMET_TRAIN_CUDA_DEPTHWISE_H

#include <cuda_runtime.h>
#include <stddef.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_depthwise {
    comet_dtype dtype;
    int batch, height, width, channels; /* of x */
    int out_height, out_width;
    int kernel, kernel_width, stride, padding, padding_width;
} comet_cuda_depthwise;

/*
 * Whether there are kernels for it: filters of 3 x 3 or 5 x 5, a stride of 1 or 2, pixels of whole 16 bytes, images
 * of at most 1 GiB. All three ways or none: what is not taken is left to cuDNN.
 */
int comet_cuda_depthwise_takes(const comet_cuda_depthwise *c);

/* Tensors are aligned to 16 bytes. */
cudaError_t comet_cuda_depthwise_forward(const comet_cuda_depthwise *c, const void *x, const void *filter, void *y,
                                         cudaStream_t queue);
cudaError_t comet_cuda_depthwise_by_input(const comet_cuda_depthwise *c, const void *dy, const void *filter, void *dx,
                                          cudaStream_t queue);

/* What the next one needs of scratch memory. */
size_t comet_cuda_depthwise_bytes(const comet_cuda_depthwise *c);

/* Writes the filter's gradient or, if `accumulate` is not 0, adds to it. */
cudaError_t comet_cuda_depthwise_by_filter(const comet_cuda_depthwise *c, const void *x, const void *dy,
                                           float *gradient, int accumulate, float *scratch, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
