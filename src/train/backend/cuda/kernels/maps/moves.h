/* SPDX-License-Identifier: Apache-2.0 */
/* Values moved as they are. */
#ifndef COMET_TRAIN_CUDA_MOVES_H
#define COMET_TRAIN_CUDA_MOVES_H

#include <cuda_runtime.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The shortcut without parameters: every stride-th pixel, zeros for channels that are new. */
typedef struct comet_cuda_shortcut_job {
    comet_dtype dtype;
    int64_t batch;
    int height, width, channels; /* of the input */
    int out_height, out_width, out_channels;
    int stride;
} comet_cuda_shortcut_job;

cudaError_t comet_cuda_launch_shortcut(const comet_cuda_shortcut_job *s, const void *x, void *y, cudaStream_t queue);
cudaError_t comet_cuda_launch_shortcut_back(const comet_cuda_shortcut_job *s, const void *dy, void *dx,
                                            cudaStream_t queue);

/* Each of `batch` matrices of rows x columns becomes columns x rows. */
cudaError_t comet_cuda_launch_transpose(comet_dtype dtype, const void *from, void *to, int64_t batch, int64_t rows,
                                        int64_t columns, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
