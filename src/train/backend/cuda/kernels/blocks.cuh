// SPDX-License-Identifier: Apache-2.0
// Sums over the threads of a block, in an order that is always the same.
#ifndef COMET_TRAIN_CUDA_BLOCKS_CUH
#define COMET_TRAIN_CUDA_BLOCKS_CUH

#include "codec/cuda/device.cuh"

// Combines a value of each of THREADS threads; all have the result. `combine` must not care which of two comes first.
template <int THREADS, class T, class Combine> __device__ __forceinline__ T over_block(T value, Combine combine) {
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps");
    constexpr int WARPS = THREADS / 32;
    __shared__ T parts[WARPS];
    const u32 thread = threadIdx.x, lane = thread % 32;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, step));
    __syncthreads(); // what was there before has been read
    if (lane == 0)
        parts[thread / 32] = value;
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; warp++)
        value = combine(value, parts[warp]);
    return value;
}

template <int THREADS, class T> __device__ __forceinline__ T sum_of_block(T value) {
    return over_block<THREADS>(value, [](T a, T b) { return a + b; });
}

#endif
