/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels over a batch norm's channels: what libcomet's norms do not make themselves. */
#ifndef COMET_TRAIN_CUDA_NORM_TABLES_H
#define COMET_TRAIN_CUDA_NORM_TABLES_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* inverse = 1 / sqrt(variance + epsilon): evaluation, from running statistics. */
comet_status comet_cuda_running_inverse(const float *variance, double epsilon, int64_t channels, float *inverse,
                                        cudaStream_t queue);

/*
 * The bound of a normalised input: *bound = *relative x its rms, which follows from `inverse`: a channel's variance v
 * becomes v / (v + epsilon) = 1 - epsilon inverse^2. Channels without variance are all zeros and do not count; if there
 * are no others, the rms is taken as 1. *flaw becomes 1 if inverse or shift has a value that is not finite, else 0.
 */
comet_status comet_cuda_norm_bound(const float *inverse, const float *shift, double epsilon, const float *relative,
                                   int64_t channels, float *bound, int32_t *flaw, cudaStream_t queue);

/* sum += part */
comet_status comet_cuda_add_to(float *sum, const float *part, int64_t count, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
