// SPDX-License-Identifier: Apache-2.0
#include "train/backend/cuda/kernels/norm_tables.h"

#include "codec/cuda/device.cuh"
#include "codec/cuda/runtime.h"

namespace {

enum { THREADS = 256 };

unsigned blocks_for(int64_t count) {
    return (unsigned)((count + THREADS - 1) / THREADS);
}

__global__ void running_inverse(const float *variance, double epsilon, int64_t channels, float *inverse) {
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c < channels)
        inverse[c] = (float)(1 / sqrt((double)variance[c] + epsilon));
}

__global__ void add_to(float *sum, const float *part, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        sum[i] += part[i];
}

struct Spread {
    double variance; // sum over channels that have any
    int count;
    int flaw;
};

// One block: there are at most some thousand channels. Sums are in one order.
__global__ void norm_bound(const float *inverse, const float *shift, double epsilon, const float *relative,
                           int64_t channels, float *bound, int32_t *flaw) {
    __shared__ Spread parts[THREADS];
    Spread mine = {0, 0, 0};
    for (int64_t c = threadIdx.x; c < channels; c += THREADS) {
        const double variance = 1 - epsilon * (double)inverse[c] * (double)inverse[c];
        mine.flaw |= !isfinite(inverse[c]) || !isfinite(shift[c]);
        mine.variance += variance > 1e-6 ? variance : 0;
        mine.count += variance > 1e-6;
    }
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const Spread other = parts[threadIdx.x + half];
            parts[threadIdx.x].variance += other.variance;
            parts[threadIdx.x].count += other.count;
            parts[threadIdx.x].flaw |= other.flaw;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const Spread all = parts[0];
        *bound = (float)((double)*relative * (all.count ? sqrt(all.variance / all.count) : 1.0));
        *flaw = all.flaw;
    }
}

} // namespace

comet_status comet_cuda_running_inverse(const float *variance, double epsilon, int64_t channels, float *inverse,
                                        cudaStream_t queue) {
    return comet_cuda_status(launch(running_inverse, dim3(blocks_for(channels)), dim3(THREADS), queue, variance,
                                    epsilon, channels, inverse));
}

comet_status comet_cuda_norm_bound(const float *inverse, const float *shift, double epsilon, const float *relative,
                                   int64_t channels, float *bound, int32_t *flaw, cudaStream_t queue) {
    return comet_cuda_status(
        launch(norm_bound, dim3(1), dim3(THREADS), queue, inverse, shift, epsilon, relative, channels, bound, flaw));
}

comet_status comet_cuda_add_to(float *sum, const float *part, int64_t count, cudaStream_t queue) {
    return comet_cuda_status(launch(add_to, dim3(blocks_for(count)), dim3(THREADS), queue, sum, part, count));
}
