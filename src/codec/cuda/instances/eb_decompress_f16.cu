// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_decompress.cuh"
#include "codec/cuda/eb/eb_launch.h"

#define FAST(reach) launch(eb_decompress_kernel<reach, COMET_F16, RESTORE_FAST>, blocks, BLOCK_THREADS, queue, args)
#define ANY(reach)  launch(eb_decompress_kernel<reach, COMET_F16, RESTORE_ANY>, blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_eb_launch_decompress_f16(Reach reach, bool any, const DecompressArgs &args, cudaStream_t queue) {
    dim3 blocks = eb_blocks(args.groups);
    if (any)
        EB_FOR_REACH(reach, ANY)
    EB_FOR_REACH(reach, FAST)
}
