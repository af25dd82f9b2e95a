// SPDX-License-Identifier: Apache-2.0
// Rows of channels made longer or shorter. All of it waits for memory: padding writes 16 bytes a thread, and what it
// reads of a row its neighbours read, too.
#include "train/backend/cuda/kernels/conv/conv_channels.h"

#include "codec/cuda/runtime.h"
#include "codec/cuda/values.cuh"

constexpr u32 THREADS = 256;
constexpr int64_t MOST_BLOCKS = 1 << 20;

static dim3 blocks_for(int64_t threads) {
    const int64_t blocks = (threads + THREADS - 1) / THREADS;
    return dim3((u32)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS));
}

__device__ __forceinline__ u64 first_index() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}

__device__ __forceinline__ u64 index_step() {
    return (u64)gridDim.x * THREADS;
}

// Of most indices 32 bits are enough, and they are divided in a third of the time.
__device__ __forceinline__ u64 quotient(u64 index, u32 by) {
    return index >> 32 ? index / by : (u32)index / by;
}

// ONE: a row is one vector, as those of images are; then there is nothing to divide.
template <comet_dtype D, bool ONE>
__global__ static void __launch_bounds__(THREADS)
    pad_rows(void *padded, const void *values, u64 vectors, u32 row_vectors, u32 channels) {
    constexpr int N = vector_values<D>;
    for (u64 i = first_index(); i < vectors; i += index_step()) {
        const u64 row = ONE ? i : quotient(i, row_vectors);
        const u32 channel = ONE ? 0 : (u32)(i - row * row_vectors) * N;
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = channel + k < channels ? load_value<D>(values, row * channels + channel + k) : 0.0f;
        store_values<D, N>(padded, i * N, v);
    }
}

comet_status comet_cuda_pad_channels(void *padded, const void *values, comet_dtype dtype, int64_t rows, int from,
                                     int to, cudaStream_t queue) {
    if (rows == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        const u32 row_vectors = (u32)to / vector_values<d.value>;
        const u64 vectors = (u64)rows * row_vectors;
        auto kernel = row_vectors == 1 ? pad_rows<d.value, true> : pad_rows<d.value, false>;
        return launch(kernel, blocks_for((int64_t)vectors), dim3(THREADS), queue, padded, values, vectors, row_vectors,
                      (u32)from);
    }));
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    cut_rows(void *values, const void *padded, u64 count, u32 from, u32 to) {
    for (u64 i = first_index(); i < count; i += index_step()) {
        const u64 row = quotient(i, to);
        store_value<D>(values, i, load_value<D>(padded, row * from + (i - row * to)));
    }
}

comet_status comet_cuda_cut_channels(void *values, const void *padded, comet_dtype dtype, int64_t rows, int from,
                                     int to, cudaStream_t queue) {
    if (rows == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        return launch(cut_rows<d.value>, blocks_for(rows * to), dim3(THREADS), queue, values, padded, (u64)(rows * to),
                      (u32)from, (u32)to);
    }));
}

template <comet_dtype D, bool ADD>
__global__ static void __launch_bounds__(THREADS)
    take_rows(float *gradient, const void *values, u64 count, u32 padded, u32 channels) {
    for (u64 i = first_index(); i < count; i += index_step()) {
        const u64 row = padded == channels ? 0 : quotient(i, channels);
        const float v = load_value<D>(values, row * padded + (i - row * channels));
        gradient[i] = ADD ? gradient[i] + v : v;
    }
}

comet_status comet_cuda_take_gradient(float *gradient, const void *values, comet_dtype dtype, int64_t rows, int padded,
                                      int channels, int accumulate, cudaStream_t queue) {
    if (rows == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        auto kernel = accumulate ? take_rows<d.value, true> : take_rows<d.value, false>;
        return launch(kernel, blocks_for(rows * channels), dim3(THREADS), queue, gradient, values,
                      (u64)(rows * channels), (u32)padded, (u32)channels);
    }));
}
