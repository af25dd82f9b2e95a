// SPDX-License-Identifier: Apache-2.0
#include "codec/cuda/norm/norm_backward.cuh"
#include "codec/cuda/norm/norm_launch.h"

#define KERNEL(reach, pass) norm_backward_kernel<reach, COMET_F16, NORM_FROM_STREAM, pass>
#define SUMS(reach)         launch(KERNEL(reach, NORM_SUMS), blocks, BLOCK_THREADS, queue, args)
#define DX(reach)           launch(KERNEL(reach, NORM_DX), blocks, BLOCK_THREADS, queue, args)

cudaError_t comet_norm_launch_stream_f16(Reach reach, NormPass pass, const NormBackwardArgs &args, dim3 blocks,
                                         cudaStream_t queue) {
    if (pass == NORM_SUMS) {
        EB_FOR_GRID_REACH(reach, SUMS)
    }
    EB_FOR_GRID_REACH(reach, DX)
}
