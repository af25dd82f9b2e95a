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

/* Values that make another part worth it; the most parts of one sum. */
enum { COMET_CUDA_SQUARES_PART = 1 << 13, COMET_CUDA_SQUARES_PARTS = 1024 };

/* Values of which the squares are summed up, in a table on the device. */
typedef struct comet_cuda_squared {
    const float *values;
    int64_t count;
    int32_t first_part, parts; /* 0 parts: there are no values */
} comet_cuda_squared;

/* The sums of `count` entries, which have `parts` parts in all; `partial` has room for as many. */
cudaError_t comet_cuda_launch_squares(const comet_cuda_squared *table, int count, int parts, double *partial,
                                      double *sums, cudaStream_t queue);

/* sum[c] = the sum of column c of rows x columns values, added to what is there if `accumulate`. */
cudaError_t comet_cuda_launch_sum_rows(float *sum, const void *values, int64_t rows, int64_t columns, int accumulate,
                                       comet_dtype dtype, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
