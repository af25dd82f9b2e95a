// SPDX-License-Identifier: Apache-2.0
// What measurements of other kernels need.
#include "train/backend/cuda/kernels/noise.h"

#include "codec/cuda/runtime.h"
#include "codec/cuda/values.cuh"

constexpr u32 THREADS = 256;
constexpr int64_t MOST_BLOCKS = 4096;
constexpr u64 PAUSE = 300000; // nanoseconds: longer than it takes to issue some kernels

__device__ __forceinline__ float noise_of(u64 at, u32 seed) {
    u32 h = ((u32)at + seed * 0x9e3779b9u) ^ (u32)(at >> 32) * 0x85ebca6bu;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    return (float)(int)(h ^ h >> 16) * 0x1p-31f;
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) fill_with_noise(void *values, u64 count, u32 seed) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS)
        store_value<D>(values, i, noise_of(i, seed));
}

comet_status comet_cuda_noise(void *values, comet_dtype dtype, int64_t count, uint32_t seed, cudaStream_t queue) {
    if (count == 0)
        return COMET_OK;
    int64_t blocks = (count + THREADS - 1) / THREADS;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        return launch(fill_with_noise<d.value>, dim3((u32)blocks), dim3(THREADS), queue, values, (u64)count, seed);
    }));
}

#ifdef COMET_CUDA_EMULATION
__device__ static u64 nanoseconds() {
    static u64 now;
    return now += PAUSE;
}
#else
__device__ static u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
#endif

__global__ static void spin(u64 time) {
    const u64 begin = nanoseconds();
    while (nanoseconds() - begin < time) {}
}

comet_status comet_cuda_pause(cudaStream_t queue) {
    return comet_cuda_status(launch(spin, dim3(1), dim3(1), queue, PAUSE));
}
