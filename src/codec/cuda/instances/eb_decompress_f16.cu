// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_decompress.cuh"
#include "codec/cuda/eb/eb_launch.h"

cudaError_t comet_eb_launch_decompress_f16(Reach reach, Mode mode, const DecompressArgs &a, cudaStream_t queue) {
    DecompressArgs args = a;
    const dim3 blocks = eb_walk(args, reach, decompress_blocks(COMET_F16, mode));
    EB_FOR_REACH_AND_MODE(eb_decompress_kernel, COMET_F16, reach, mode)
}
