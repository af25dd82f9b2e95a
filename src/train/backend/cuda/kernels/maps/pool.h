/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: the greatest or the mean of windows. Outputs are never over inputs. */
#ifndef COMET_TRAIN_CUDA_POOL_H
#define COMET_TRAIN_CUDA_POOL_H

#include <cuda_runtime.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_pool {
    comet_dtype dtype;
    int64_t batch;
    int channels, height, width, out_height, out_width;
    int kernel, stride, padding; /* not if it is adaptive */
    int adaptive;                /* an average's windows share the image evenly */
    int count_padding;           /* an average's divisor */
    int bits;                    /* in which a maximum's place in its window is kept */
} comet_cuda_pool;

/* `places` as train/backend/cpu/max_pool.c packs them; NULL: not kept. Backward adds up in the order of the windows. */
cudaError_t comet_cuda_launch_max_pool(const comet_cuda_pool *pool, const void *x, void *y, uint8_t *places,
                                       cudaStream_t queue);
cudaError_t comet_cuda_launch_max_pool_back(const comet_cuda_pool *pool, const void *dy, const uint8_t *places,
                                            void *dx, cudaStream_t queue);

/* Bytes of `scratch` of the forward pass. */
size_t comet_cuda_average_pool_bytes(const comet_cuda_pool *pool);

cudaError_t comet_cuda_launch_average_pool(const comet_cuda_pool *pool, const void *x, void *y, float *scratch,
                                           cudaStream_t queue);
cudaError_t comet_cuda_launch_average_pool_back(const comet_cuda_pool *pool, const void *dy, void *dx,
                                                cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
