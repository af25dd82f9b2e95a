/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in fp64, in an order that shapes alone decide. All pointers are the device's. */
#ifndef COMET_TRAIN_CUDA_KERNELS_SUMS_H
#define COMET_TRAIN_CUDA_KERNELS_SUMS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMET_CUDA_SQUARES_PARTS = 1024 }; /* at most */

/* The sum of squares; `partial` has room for COMET_CUDA_SQUARES_PARTS. */
cudaError_t comet_cuda_launch_squares(const float *values, int64_t count, double *partial, double *sum,
                                      cudaStream_t queue);

/* sum[c] = the sum of column c of rows x columns values, added to what is there if `accumulate`. */
cudaError_t comet_cuda_launch_sum_rows(float *sum, const void *values, int64_t rows, int64_t columns, int accumulate,
                                       comet_dtype dtype, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
