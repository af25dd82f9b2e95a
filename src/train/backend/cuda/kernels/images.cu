// SPDX-License-Identifier: Apache-2.0
// Bytes as values: a byte of a channel has 256 of them, which each block works out once, as comet_normalise does.
#include "train/backend/cuda/kernels/images.h"

#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;
constexpr u32 GROUP = 8; // bytes that a thread reads at once
constexpr int64_t BLOCK_GROUPS = 16 * THREADS;

__device__ __forceinline__ void make_table(const comet_cuda_images_job &job, float *table) {
    for (int i = (int)threadIdx.x; i < 256 * job.channels; i += THREADS) {
        const int channel = i / 256;
        table[i] = ((float)(i % 256) / 255.0f - job.normalisation.mean[channel]) / job.normalisation.deviation[channel];
    }
}

__device__ __forceinline__ void read_group(const u8 *from, u64 used, u64 at, u8 (&bytes)[GROUP]) {
    if (at + GROUP <= used) {
        const uint2 v = *(const uint2 *)(from + at);
#pragma unroll
        for (u32 i = 0; i < GROUP; i++)
            bytes[i] = (u8)((i < 4 ? v.x : v.y) >> 8 * (i % 4));
        return;
    }
#pragma unroll
    for (u32 i = 0; i < GROUP; i++)
        bytes[i] = at + i < used ? from[at + i] : (u8)0;
}

template <comet_dtype D> __device__ __forceinline__ void write_group(void *values, u64 at, u64 count, const float *x) {
    constexpr u32 N = vector_values<D> < (int)GROUP ? vector_values<D> : (int)GROUP;
    if (at + GROUP <= count) {
#pragma unroll
        for (u32 i = 0; i < GROUP; i += N)
            store_values<D, (int)N>(values, at + i, x + i);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < GROUP; i++)
        if (at + i < count)
            store_value<D>(values, at + i, x[i]);
}

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) images_kernel(comet_cuda_images_job job) {
    __shared__ float table[256 * COMET_IMAGE_MOST_CHANNELS];
    make_table(job, table);
    __syncthreads();
    const u8 *from = job.bytes_at ? *job.bytes_at : job.bytes;
    const u64 groups = ((u64)job.count + GROUP - 1) / GROUP, used = (u64)job.used;
    for (u64 g = (u64)blockIdx.x * THREADS + threadIdx.x; g < groups; g += (u64)gridDim.x * THREADS) {
        u8 bytes[GROUP];
        float x[GROUP];
        u32 channel = (u32)(g * GROUP % (u32)job.channels);
        read_group(from, used, g * GROUP, bytes);
#pragma unroll
        for (u32 i = 0; i < GROUP; i++) {
            x[i] = g * GROUP + i < used ? table[256 * channel + bytes[i]] : 0.0f;
            channel = channel + 1 == (u32)job.channels ? 0 : channel + 1;
        }
        write_group<D>(job.values, g * GROUP, (u64)job.count, x);
    }
}

cudaError_t comet_cuda_launch_images(const comet_cuda_images_job *job, comet_dtype dtype, cudaStream_t queue) {
    const int64_t groups = (job->count + GROUP - 1) / GROUP;
    if (groups == 0)
        return cudaSuccess;
    const dim3 blocks((unsigned)((groups + BLOCK_GROUPS - 1) / BLOCK_GROUPS));
    return with_dtype(
        dtype, [&](auto d) { return launch(images_kernel<decltype(d)::value>, blocks, dim3(THREADS), queue, *job); });
}
