// SPDX-License-Identifier: Apache-2.0
// A bias for each channel, and its gradient. Channels are the last dimension, so that threads side by side read values
// side by side, 16 bytes each where rows allow it.
#include "train/backend/cuda/kernels/conv/conv_bias.h"

#include "codec/cuda/runtime.h"
#include "codec/cuda/values.cuh"

constexpr u32 THREADS = 256;
constexpr int64_t MOST_BLOCKS = 1 << 16;

// ---- adding ----

template <comet_dtype D, int N>
__global__ static void __launch_bounds__(THREADS)
    add_bias(void *values, const float *bias, u64 vectors, u32 row_vectors) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (u64)gridDim.x * THREADS) {
        const u32 channel = (u32)(i >> 32 ? i % row_vectors : (u32)i % row_vectors) * N;
        float v[N];
        load_values<D, N>(values, i * N, v);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] += bias[channel + k];
        store_values<D, N>(values, i * N, v);
    }
}

comet_status comet_cuda_conv_add_bias(void *values, const float *bias, comet_dtype dtype, int64_t rows, int channels,
                                      cudaStream_t queue) {
    if (rows == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        constexpr int N = vector_values<d.value>;
        const u32 row_vectors = (u32)(channels % N == 0 ? channels / N : channels);
        auto kernel = channels % N == 0 ? add_bias<d.value, N> : add_bias<d.value, 1>;
        const int64_t vectors = rows * row_vectors, blocks = (vectors + THREADS - 1) / THREADS;
        return launch(kernel, dim3((u32)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)), dim3(THREADS), queue, values,
                      bias, (u64)vectors, row_vectors);
    }));
}

// ---- summing ----
//
// A block sums some rows of up to 32 vectors of channels: its threads are so many columns, and the rest of them take
// turns with the rows. Then the blocks' sums are added up, for 32 channels in a block.

constexpr int64_t ROWS_PER_BLOCK = 64, MOST_SUMS = 512; // at least; in all
constexpr u32 LANES = 32, GROUPS = THREADS / LANES;

struct sums_shape {
    u64 rows, block_rows;
    u32 channels, columns; // columns: a power of two
};

template <comet_dtype D, int N>
__global__ static void __launch_bounds__(THREADS) sum_rows(const void *values, float *sums, sums_shape s) {
    __shared__ float shared[THREADS * N];
    const u32 column = threadIdx.x % s.columns, lane = threadIdx.x / s.columns, lanes = THREADS / s.columns;
    const u64 channel = ((u64)blockIdx.x * s.columns + column) * N, first = blockIdx.y * s.block_rows;
    const u64 end = first + s.block_rows < s.rows ? first + s.block_rows : s.rows;
    float sum[N] = {};
    if (channel < s.channels)
        for (u64 row = first + lane; row < end; row += lanes) {
            float v[N];
            load_values<D, N>(values, row * s.channels + channel, v);
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += v[k];
        }
#pragma unroll
    for (int k = 0; k < N; k++)
        shared[k * THREADS + threadIdx.x] = sum[k];
    __syncthreads();
    for (u32 half = lanes / 2; half > 0; half /= 2) {
        if (lane < half)
#pragma unroll
            for (int k = 0; k < N; k++)
                shared[k * THREADS + threadIdx.x] += shared[k * THREADS + threadIdx.x + half * s.columns];
        __syncthreads();
    }
    if (lane == 0 && channel < s.channels)
#pragma unroll
        for (int k = 0; k < N; k++)
            sums[(u64)blockIdx.y * s.channels + channel + k] = shared[k * THREADS + threadIdx.x];
}

template <bool ADD>
__global__ static void __launch_bounds__(THREADS)
    add_sums(const float *sums, float *gradient, u32 count, u32 channels) {
    __shared__ float shared[THREADS];
    const u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES, channel = blockIdx.x * LANES + lane;
    float sum = 0;
    if (channel < channels)
        for (u32 i = group; i < count; i += GROUPS)
            sum += sums[(u64)i * channels + channel];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (group != 0 || channel >= channels)
        return;
    for (u32 i = 1; i < GROUPS; i++)
        sum += shared[i * LANES + lane];
    gradient[channel] = ADD ? gradient[channel] + sum : sum;
}

// How the work is divided, which does not depend on the device: sums are the same on all of them.
struct sums_plan {
    sums_shape shape;
    u32 blocks_across, blocks_down;
    bool vectors;
};

static sums_plan plan_sums(comet_dtype dtype, int64_t rows, int channels) {
    const int n = 16 / (int)comet_dtype_size(dtype);
    sums_plan p = {};
    p.vectors = channels % n == 0;
    const u32 row_vectors = (u32)(p.vectors ? channels / n : channels);
    p.shape.columns = 1;
    while (p.shape.columns < row_vectors && p.shape.columns < LANES)
        p.shape.columns *= 2;
    p.blocks_across = (row_vectors + p.shape.columns - 1) / p.shape.columns;
    int64_t most = MOST_SUMS / p.blocks_across, down = (rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
    most = most > 16 ? most : 16;
    down = down < most ? down : most;
    p.shape.rows = (u64)rows;
    p.shape.block_rows = (u64)((rows + down - 1) / down);
    p.shape.channels = (u32)channels;
    p.blocks_down = (u32)((rows + (int64_t)p.shape.block_rows - 1) / (int64_t)p.shape.block_rows);
    return p;
}

size_t comet_cuda_conv_bias_bytes(comet_dtype dtype, int64_t rows, int channels) {
    return rows == 0 ? 0 : sizeof(float) * plan_sums(dtype, rows, channels).blocks_down * (size_t)channels;
}

comet_status comet_cuda_conv_sum_bias(float *gradient, const void *values, comet_dtype dtype, int64_t rows,
                                      int channels, int accumulate, void *scratch, cudaStream_t queue) {
    const sums_plan p = plan_sums(dtype, rows, channels);
    float *sums = (float *)scratch;
    const cudaError_t error = with_dtype(dtype, [&](auto d) {
        auto kernel = p.vectors ? sum_rows<d.value, vector_values<d.value>> : sum_rows<d.value, 1>;
        return launch(kernel, dim3(p.blocks_across, p.blocks_down), dim3(THREADS), queue, values, sums, p.shape);
    });
    if (error != cudaSuccess)
        return comet_cuda_status(error);
    auto kernel = accumulate ? add_sums<true> : add_sums<false>;
    return comet_cuda_status(launch(kernel, dim3(((u32)channels + LANES - 1) / LANES), dim3(THREADS), queue,
                                    (const float *)sums, gradient, p.blocks_down, (u32)channels));
}
