// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/norm/norm_backward.cuh"
#include "codec/cuda/norm/norm_launch.h"

#define KERNEL(reach, from) norm_backward_kernel<reach, COMET_F32, from, NORM_MASKED_SUMS>
#define STREAM(reach)       launch(KERNEL(reach, NORM_FROM_STREAM), blocks, BLOCK_THREADS, queue, args)
#define X(reach)            launch(KERNEL(reach, NORM_FROM_X), blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_norm_launch_masked_f32(Reach reach, NormFrom from, const NormMaskedArgs &args, dim3 blocks,
                                         cudaStream_t queue) {
    if (from == NORM_FROM_STREAM) {
        EB_FOR_GRID_REACH(reach, STREAM)
    }
    EB_FOR_GRID_REACH(reach, X)
}
