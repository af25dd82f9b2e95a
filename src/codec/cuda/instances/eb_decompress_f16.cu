// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_decompress.cuh"
#include "codec/cuda/eb/eb_launch.h"

cudaError_t comet_eb_launch_decompress_f16(Reach reach, Mode mode, const DecompressArgs &args, cudaStream_t queue) {
    const u64 channels = args.geometry.channels;
    dim3 blocks((unsigned)eb_walk_blocks(args.groups, reach, channels, decompress_blocks(COMET_F16, mode)));
    EB_FOR_REACH_AND_MODE(eb_decompress_kernel, COMET_F16, reach, mode)
}
