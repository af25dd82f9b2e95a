/* SPDX-License-Identifier: Apache-2.0 */
/* A bias for each channel, which is fp32, and its gradient. Rows are pixels. Memory of the device. */
#ifndef COMET_TRAIN_CUDA_CONV_BIAS_H
#define COMET_TRAIN_CUDA_CONV_BIAS_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* values += bias, rounded once. */
comet_status comet_cuda_conv_add_bias(void *values, const float *bias, comet_dtype dtype, int64_t rows, int channels,
                                      cudaStream_t queue);

/* What the next one needs of scratch memory. */
size_t comet_cuda_conv_bias_bytes(comet_dtype dtype, int64_t rows, int channels);

/*
 * The sum of each channel's values, in fp32 and always in the same order, written to the gradient or, if `accumulate`
 * is not 0, added.
 */
comet_status comet_cuda_conv_sum_bias(float *gradient, const void *values, comet_dtype dtype, int64_t rows,
                                      int channels, int accumulate, void *scratch, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
