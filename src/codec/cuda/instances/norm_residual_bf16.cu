// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/norm/norm_launch.h"
#include "codec/cuda/norm/norm_residual.cuh"

#define RESIDUAL(reach) launch(norm_residual_kernel<reach, COMET_BF16>, blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_norm_launch_residual_bf16(Reach reach, const NormResidualArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.forward.codec.groups);
    EB_FOR_GRID_REACH(reach, RESIDUAL)
}
