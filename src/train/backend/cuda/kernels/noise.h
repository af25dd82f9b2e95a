/* SPDX-License-Identifier: Apache-2.0 */
/* What measurements of other kernels need. */
#ifndef COMET_TRAIN_CUDA_NOISE_H
#define COMET_TRAIN_CUDA_NOISE_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values between -1 and 1 that look random, the same for the same seed. */
comet_status comet_cuda_noise(void *values, comet_dtype dtype, int64_t count, uint32_t seed, cudaStream_t queue);

/* Keeps the queue busy for about a quarter of a millisecond. */
comet_status comet_cuda_pause(cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
