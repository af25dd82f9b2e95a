// SPDX-License-Identifier: Apache-2.0
// Pixels in blocks wait for memory: a thread writes 16 bytes, and reads values side by side, a line of a block without
// gaps. Filters are some thousand values, whose divisions are of no account.
#include "train/backend/cuda/kernels/conv/conv_blocks.h"

#include "codec/cuda/divide.cuh"
#include "codec/cuda/runtime.h"
#include "codec/cuda/values.cuh"

constexpr u32 THREADS = 256;
constexpr u64 MOST_BLOCKS = 1 << 20;

static dim3 grid_for(u64 threads) {
    const u64 blocks = (threads + THREADS - 1) / THREADS;
    return dim3((u32)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS));
}

__device__ __forceinline__ u64 first_index() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}

__device__ __forceinline__ u64 index_step() {
    return (u64)gridDim.x * THREADS;
}

// ---- pixels ----

struct PixelsJob {
    void *blocks;
    const void *x;
    u64 vectors;                          // of 16 bytes in all blocks
    divider block_vectors, columns, rows; // vectors of a block, blocks of a row, rows of an image
    divider line;                         // values of a line of a block
    u64 height, row_values;               // of x
    int64_t padding, padding_values;      // lines above it, values before each line
    u32 stride;
};

// One vector's place: the image, the upper left corner of its block in x, and where in the block it begins.
struct PixelsPlace {
    u64 image;
    int64_t top, left;
    u32 line, value;
};

__device__ __forceinline__ PixelsPlace place_of_vector(const PixelsJob &job, u64 vector, u32 values) {
    const quotient block = split(vector, job.block_vectors), row = split(block.of, job.columns);
    const quotient image = split(row.of, job.rows), first = split(block.rest * values, job.line);
    return {image.of, (int64_t)image.rest * job.stride - job.padding,
            (int64_t)(row.rest * job.line.by) - job.padding_values, (u32)first.of, (u32)first.rest};
}

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) block_pixels(PixelsJob job) {
    constexpr u32 N = vector_values<D>;
    for (u64 i = first_index(); i < job.vectors; i += index_step()) {
        PixelsPlace p = place_of_vector(job, i, N);
        float v[N];
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            const u64 y = p.top + p.line, x = p.left + p.value; // what is negative becomes large
            const bool inside = p.line < job.stride && y < job.height && x < job.row_values;
            v[k] = inside ? load_value<D>(job.x, (p.image * job.height + y) * job.row_values + x) : 0.0f;
            if (++p.value == job.line.by) {
                p.value = 0;
                p.line++;
            }
        }
        store_values<D, N>(job.blocks, i * N, v);
    }
}

comet_status comet_cuda_conv_block_pixels(const comet_cuda_conv_blocks *b, void *blocks, const void *x,
                                          comet_dtype dtype, cudaStream_t queue) {
    const u64 count = (u64)b->batch * b->rows * b->columns * b->block_channels;
    if (count == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        constexpr int N = vector_values<d.value>;
        const PixelsJob job = {blocks,
                               x,
                               count / N,
                               divider_of((u64)b->block_channels / N),
                               divider_of((u64)b->columns),
                               divider_of((u64)b->rows),
                               divider_of((u64)b->stride * b->channels),
                               (u64)b->height,
                               (u64)b->width * b->channels,
                               b->padding,
                               (int64_t)b->padding_width * b->channels,
                               (u32)b->stride};
        return launch(block_pixels<d.value>, grid_for(job.vectors), dim3(THREADS), queue, job);
    }));
}

// ---- filters ----

// A value of the filter: output, row, column, channel.
struct Tap {
    u64 out;
    u32 row, column, channel;
    bool is_there; // in the filter, not a zero beside it
};

__device__ __forceinline__ Tap tap_of_block_value(const comet_cuda_conv_blocks &b, u64 i) {
    const u32 of_out = (u32)b.block_kernel * b.block_kernel_width * b.block_channels;
    const u64 out = i / of_out;
    const u32 inner = (u32)(i - out * of_out), block = inner / b.block_channels, value = inner % b.block_channels;
    const u32 pixel = value / b.channels, stride = b.stride;
    const u32 row = block / b.block_kernel_width * stride + pixel / stride;
    const u32 column = block % b.block_kernel_width * stride + pixel % stride;
    const bool is_there = pixel < stride * stride && row < (u32)b.kernel && column < (u32)b.kernel_width;
    return {out, row, column, value % b.channels, is_there};
}

__device__ __forceinline__ Tap tap_of_value(const comet_cuda_conv_blocks &b, u64 i) {
    const u32 row_values = (u32)b.kernel_width * b.channels, of_out = b.kernel * row_values;
    const u64 out = i / of_out;
    const u32 inner = (u32)(i - out * of_out), in_row = inner % row_values;
    return {out, inner / row_values, in_row / b.channels, in_row % b.channels, true};
}

__device__ __forceinline__ u64 value_of_tap(const comet_cuda_conv_blocks &b, const Tap &t) {
    return ((t.out * b.kernel + t.row) * b.kernel_width + t.column) * b.channels + t.channel;
}

__device__ __forceinline__ u64 block_value_of_tap(const comet_cuda_conv_blocks &b, const Tap &t) {
    const u32 stride = b.stride, pixel = t.row % stride * stride + t.column % stride;
    const u64 block = (t.out * b.block_kernel + t.row / stride) * b.block_kernel_width + t.column / stride;
    return block * b.block_channels + pixel * b.channels + t.channel;
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    block_filter(comet_cuda_conv_blocks b, void *blocks, const void *filter, u64 count) {
    for (u64 i = first_index(); i < count; i += index_step()) {
        const Tap tap = tap_of_block_value(b, i);
        store_value<D>(blocks, i, tap.is_there ? load_value<D>(filter, value_of_tap(b, tap)) : 0.0f);
    }
}

comet_status comet_cuda_conv_block_filter(const comet_cuda_conv_blocks *b, void *blocks, const void *filter,
                                          comet_dtype dtype, cudaStream_t queue) {
    const u64 count = (u64)b->out * b->block_kernel * b->block_kernel_width * b->block_channels;
    if (count == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        return launch(block_filter<d.value>, grid_for(count), dim3(THREADS), queue, *b, blocks, filter, count);
    }));
}

template <comet_dtype D, bool ADD>
__global__ static void __launch_bounds__(THREADS)
    unblock_gradient(comet_cuda_conv_blocks b, float *gradient, const void *blocks, u64 count) {
    for (u64 i = first_index(); i < count; i += index_step()) {
        const float v = load_value<D>(blocks, block_value_of_tap(b, tap_of_value(b, i)));
        gradient[i] = ADD ? gradient[i] + v : v;
    }
}

comet_status comet_cuda_conv_unblock_gradient(const comet_cuda_conv_blocks *b, float *gradient, const void *blocks,
                                              comet_dtype dtype, int accumulate, cudaStream_t queue) {
    const u64 count = (u64)b->out * b->kernel * b->kernel_width * b->channels;
    if (count == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        auto kernel = accumulate ? unblock_gradient<d.value, true> : unblock_gradient<d.value, false>;
        return launch(kernel, grid_for(count), dim3(THREADS), queue, *b, gradient, blocks, count);
    }));
}
