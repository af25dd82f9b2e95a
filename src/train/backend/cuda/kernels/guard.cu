// SPDX-License-Identifier: Apache-2.0
#include "train/backend/cuda/kernels/guard.h"

#include <limits.h>

#include "codec/cuda/device.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ bool is_finite(double v) {
    return (__double2hiint(v) & 0x7ff00000) != 0x7ff00000;
}

__global__ static void __launch_bounds__(THREADS) guard_kernel(comet_cuda_guard_job job) {
    bool wrong = *job.nonfinite != INT_MAX || !is_finite(job.loss->loss) || (job.decoded && *job.decoded != 0);
    for (int i = (int)threadIdx.x; i < job.slots; i += THREADS)
        wrong = wrong || job.results[i].result.status != 0 || job.words[i].flaw != 0;
    const int refused = __syncthreads_or(wrong);
    if (threadIdx.x == 0)
        *job.refused = refused != 0;
}

cudaError_t comet_cuda_launch_guard(const comet_cuda_guard_job *job, cudaStream_t queue) {
    return launch(guard_kernel, dim3(1), dim3(THREADS), queue, *job);
}
