// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/eb/eb_launch.h"
#include "codec/cuda/eb/exact_compress.cuh"

template <int REACH> static cudaError_t launch_for(const CompressArgs &args, dim3 blocks, cudaStream_t queue) {
    return args.dtype == COMET_F32 ? launch(exact_compress_kernel<REACH, 4>, blocks, BLOCK_THREADS, queue, args)
                                   : launch(exact_compress_kernel<REACH, 2>, blocks, BLOCK_THREADS, queue, args);
}

cudaError_t comet_exact_launch_compress(Reach reach, const CompressArgs &args, cudaStream_t queue) {
    const dim3 blocks = eb_blocks(args.groups);
    switch (exact_reach(reach)) {
    case REACH_FLAT:
        return launch_for<REACH_FLAT>(args, blocks, queue);
    case REACH_LAST4:
        return launch_for<REACH_LAST4>(args, blocks, queue);
    case REACH_LAST1:
        return launch_for<REACH_LAST1>(args, blocks, queue);
    default:
        return launch_for<REACH_ROW4>(args, blocks, queue);
    }
}
