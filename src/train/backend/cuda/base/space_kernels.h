/* SPDX-License-Identifier: Apache-2.0 */
/* What the space does with values on the device. */
#ifndef COMET_TRAIN_CUDA_SPACE_KERNELS_H
#define COMET_TRAIN_CUDA_SPACE_KERNELS_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t comet_cuda_launch_fill(float *values, int64_t count, float value, cudaStream_t queue);

/*
 * Of weights that lie as (out, height x width, in) while files have (out, in, height x width). The outputs are matrices
 * one behind the other, so their number does not matter.
 */
typedef struct comet_cuda_arranged {
    float *values;
    int64_t count;
    uint32_t channels, taps; /* in, height x width */
} comet_cuda_arranged;

/* Values first .. first + count - 1 in the order of files, to `plain` and from it. */
cudaError_t comet_cuda_launch_gather(const comet_cuda_arranged *weights, int64_t first, int64_t count, float *plain,
                                     cudaStream_t queue);
cudaError_t comet_cuda_launch_scatter(const comet_cuda_arranged *weights, int64_t first, int64_t count,
                                      const float *plain, cudaStream_t queue);

/* Values that lie together, in a table on the device. Each has its blocks of COMET_CUDA_SEARCHED values. */
typedef struct comet_cuda_searched {
    const float *values;
    int64_t count;
    int64_t first_block;
} comet_cuda_searched;

enum { COMET_CUDA_SEARCHED = 1 << 14 };

/*
 * *first becomes the first of `count` entries with a value that is infinite or NaN, and stays if there is none or
 * *first is less. The entries have `blocks` blocks in all.
 */
cudaError_t comet_cuda_launch_search(const comet_cuda_searched *table, int count, int64_t blocks, int *first,
                                     cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
