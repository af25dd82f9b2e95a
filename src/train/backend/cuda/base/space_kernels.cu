// SPDX-License-Identifier: Apache-2.0
#include "train/backend/cuda/base/space_kernels.h"

#include "codec/cuda/device.cuh"

constexpr int THREADS = 256;
constexpr int64_t BLOCK_VALUES = COMET_CUDA_SEARCHED;
constexpr int64_t MOST_BLOCKS = 1 << 14; // of loops over all values: enough for any device

static dim3 blocks_for(int64_t count) {
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS));
}

__device__ __forceinline__ u64 first_of_thread() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}

__device__ __forceinline__ u64 threads_in_all() {
    return (u64)gridDim.x * THREADS;
}

// ---- filling ----

__global__ static void __launch_bounds__(THREADS) fill_kernel(float *values, u64 count, float value) {
    for (u64 i = first_of_thread(); i < count; i += threads_in_all())
        values[i] = value;
}

cudaError_t comet_cuda_launch_fill(float *values, int64_t count, float value, cudaStream_t queue) {
    if (count == 0)
        return cudaSuccess;
    return launch(fill_kernel, blocks_for(count), dim3(THREADS), queue, values, (u64)count, value);
}

// ---- another order ----

// Where value i of a file lies. Weights that are read or written are a few million: the divisions are of no account.
__device__ __forceinline__ u64 place_of(u64 i, u32 channels, u32 taps) {
    const u64 row = (u64)channels * taps, output = i / row;
    const u32 inner = (u32)(i - output * row), channel = inner / taps, tap = inner - channel * taps;
    return output * row + (u64)tap * channels + channel;
}

__global__ static void __launch_bounds__(THREADS)
    gather_kernel(comet_cuda_arranged weights, u64 first, u64 count, float *plain) {
    for (u64 i = first_of_thread(); i < count; i += threads_in_all())
        plain[i] = weights.values[place_of(first + i, weights.channels, weights.taps)];
}

__global__ static void __launch_bounds__(THREADS)
    scatter_kernel(comet_cuda_arranged weights, u64 first, u64 count, const float *plain) {
    for (u64 i = first_of_thread(); i < count; i += threads_in_all())
        weights.values[place_of(first + i, weights.channels, weights.taps)] = plain[i];
}

cudaError_t comet_cuda_launch_gather(const comet_cuda_arranged *weights, int64_t first, int64_t count, float *plain,
                                     cudaStream_t queue) {
    if (count == 0)
        return cudaSuccess;
    return launch(gather_kernel, blocks_for(count), dim3(THREADS), queue, *weights, (u64)first, (u64)count, plain);
}

cudaError_t comet_cuda_launch_scatter(const comet_cuda_arranged *weights, int64_t first, int64_t count,
                                      const float *plain, cudaStream_t queue) {
    if (count == 0)
        return cudaSuccess;
    return launch(scatter_kernel, blocks_for(count), dim3(THREADS), queue, *weights, (u64)first, (u64)count, plain);
}

// ---- values that are not finite ----

__device__ __forceinline__ bool is_bad(u32 pattern) {
    return (pattern & 0x7f800000u) == 0x7f800000u;
}

// The last entry that begins at this block or before: entries without values have no blocks.
__device__ __forceinline__ int entry_of(const comet_cuda_searched *table, int count, int64_t block) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (table[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

__device__ __forceinline__ bool has_bad(const u32 *values, u32 count) {
    bool bad = false;
    const u32 quads = (uintptr_t)values % 16 == 0 ? count / 4 : 0;
    for (u32 i = threadIdx.x; i < quads; i += THREADS) {
        const uint4 v = ((const uint4 *)values)[i];
        bad = bad || is_bad(v.x) || is_bad(v.y) || is_bad(v.z) || is_bad(v.w);
    }
    for (u32 i = 4 * quads + threadIdx.x; i < count; i += THREADS)
        bad = bad || is_bad(values[i]);
    return bad;
}

// An atomic of integers: the least is the same in whatever order blocks come.
__global__ static void __launch_bounds__(THREADS)
    search_kernel(const comet_cuda_searched *table, int count, int *first) {
    const int entry = entry_of(table, count, blockIdx.x);
    const int64_t at = ((int64_t)blockIdx.x - table[entry].first_block) * BLOCK_VALUES;
    const int64_t left = table[entry].count - at;
    const u32 here = (u32)(left < BLOCK_VALUES ? left : BLOCK_VALUES);
    const int found = __syncthreads_or(has_bad((const u32 *)table[entry].values + at, here));
    if (found && threadIdx.x == 0)
        atomicMin(first, entry);
}

cudaError_t comet_cuda_launch_search(const comet_cuda_searched *table, int count, int64_t blocks, int *first,
                                     cudaStream_t queue) {
    if (blocks == 0)
        return cudaSuccess;
    return launch(search_kernel, dim3((unsigned)blocks), dim3(THREADS), queue, table, count, first);
}
