/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of images on the device as values of a tensor. */
#ifndef COMET_TRAIN_CUDA_KERNELS_IMAGES_H
#define COMET_TRAIN_CUDA_KERNELS_IMAGES_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/tensor.h"
#include "data/image/normalise.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_images_job {
    comet_normalisation normalisation;
    int channels;
    const uint8_t *bytes;           /* aligned to 16 */
    const uint8_t *const *bytes_at; /* NULL: `bytes`; else where the device finds it */
    void *values;                   /* aligned to 16 */
    int64_t used, count;            /* bytes, and values: those behind `used` become 0 */
} comet_cuda_images_job;

cudaError_t comet_cuda_launch_images(const comet_cuda_images_job *job, comet_dtype dtype, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
