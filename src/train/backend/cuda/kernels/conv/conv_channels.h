/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of channels made longer or shorter, around convolutions that want a multiple of some number of channels. Rows
 * are pixels, or places of a filter. Memory of the device.
 */
#ifndef COMET_TRAIN_CUDA_CONV_CHANNELS_H
#define COMET_TRAIN_CUDA_CONV_CHANNELS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of `from` values become rows of `to`, which are 16 bytes or a multiple: zeros behind them. */
comet_status comet_cuda_pad_channels(void *padded, const void *values, comet_dtype dtype, int64_t rows, int from,
                                     int to, cudaStream_t queue);

/* And the other way round. */
comet_status comet_cuda_cut_channels(void *values, const void *padded, comet_dtype dtype, int64_t rows, int from,
                                     int to, cudaStream_t queue);

/*
 * A gradient in fp32 of rows of `channels` values, written or, if `accumulate` is not 0, added to, from rows of
 * `padded` values of the dtype.
 */
comet_status comet_cuda_take_gradient(float *gradient, const void *values, comet_dtype dtype, int64_t rows, int padded,
                                      int channels, int accumulate, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
