// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_decompress.cuh"
#include "codec/cuda/eb/eb_launch.h"

cudaError_t comet_eb_launch_decompress_f32(Reach reach, Mode mode, const DecompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    EB_FOR_REACH_AND_MODE(eb_decompress_kernel, COMET_F32, reach, mode)
}
