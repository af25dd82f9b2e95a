// SPDX-License-Identifier: Apache-2.0
// The kernels of batch normalisation by dtype: files of their own, so that they compile side by side.
#ifndef COMET_CODEC_CUDA_NORM_LAUNCH_H
#define COMET_CODEC_CUDA_NORM_LAUNCH_H

#include "codec/cuda/eb/eb_launch.h"
#include "codec/cuda/norm/norm_args.cuh"
#include "codec/cuda/norm/norm_statistics.cuh"

extern "C" { // names that start with comet_

cudaError_t comet_norm_launch_prepare(const NormPrepareArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_statistics(comet_dtype dtype, const NormStatisticsArgs &args, cudaStream_t queue);

// Forward, without a stream and with one.
cudaError_t comet_norm_launch_plain(comet_dtype dtype, const NormPlainArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_forward_f32(Reach reach, const NormForwardArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_forward_f16(Reach reach, const NormForwardArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_forward_bf16(Reach reach, const NormForwardArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_residual_f32(Reach reach, const NormResidualArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_residual_f16(Reach reach, const NormResidualArgs &args, cudaStream_t queue);
cudaError_t comet_norm_launch_residual_bf16(Reach reach, const NormResidualArgs &args, cudaStream_t queue);

// Backward, from the stream or from x.
typedef cudaError_t norm_launch_backward(Reach reach, NormPass pass, const NormBackwardArgs &args, dim3 blocks,
                                         cudaStream_t queue);
norm_launch_backward comet_norm_launch_stream_f32, comet_norm_launch_stream_f16, comet_norm_launch_stream_bf16;
norm_launch_backward comet_norm_launch_x_f32, comet_norm_launch_x_f16, comet_norm_launch_x_bf16;
typedef cudaError_t norm_launch_masked(Reach reach, NormFrom from, const NormMaskedArgs &args, dim3 blocks,
                                       cudaStream_t queue);
norm_launch_masked comet_norm_launch_masked_f32, comet_norm_launch_masked_f16, comet_norm_launch_masked_bf16;

// Between the two passes: partial sums to dgamma, dbeta and the coefficients of dx. `is_last`: channels are the last
// extent.
cudaError_t comet_norm_launch_totals(bool is_last, const NormBackwardArgs &args, cudaStream_t queue);
}

#endif
