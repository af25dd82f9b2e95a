// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/norm/norm_forward.cuh"
#include "codec/cuda/norm/norm_launch.h"

#define FORWARD(reach) launch(norm_forward_kernel<reach, COMET_F32>, blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_norm_launch_forward_f32(Reach reach, const NormForwardArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.codec.groups);
    EB_FOR_GRID_REACH(reach, FORWARD)
}
