// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_compress.cuh"
#include "codec/cuda/eb/eb_launch.h"

#define FAST(reach)   launch(eb_compress_kernel<reach, COMET_F16, QUANTISE_FAST>, blocks, BLOCK_THREADS, queue, args)
#define ANY(reach)    launch(eb_compress_kernel<reach, COMET_F16, QUANTISE_ANY>, blocks, BLOCK_THREADS, queue, args)
#define SURVEY(reach) launch(eb_survey_kernel<reach, COMET_F16>, blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_eb_launch_compress_f16(Reach reach, bool any, const CompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    if (any)
        EB_FOR_REACH(reach, ANY)
    EB_FOR_REACH(reach, FAST)
}

cudaError_t comet_eb_launch_survey_f16(Reach reach, const CompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    EB_FOR_REACH(reach, SURVEY)
}
