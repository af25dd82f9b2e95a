// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_compress.cuh"
#include "codec/cuda/eb/eb_launch.h"

#define SURVEY(reach) launch(eb_survey_kernel<reach, COMET_F16>, blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_eb_launch_compress_f16(Reach reach, Mode mode, const CompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    EB_FOR_REACH_AND_MODE(eb_compress_kernel, COMET_F16, reach, mode)
}

cudaError_t comet_eb_launch_survey_f16(Reach reach, const CompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    EB_FOR_PLAIN_REACH(reach, SURVEY);
}
