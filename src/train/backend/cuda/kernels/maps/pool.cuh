// SPDX-License-Identifier: Apache-2.0
// Where windows of pooling lie. A thread has a vector of channels of one pixel: forward of the output, and goes over
// its window; backward of the input, and goes over the windows that it is in.
#ifndef COMET_TRAIN_CUDA_POOL_CUH
#define COMET_TRAIN_CUDA_POOL_CUH

#include "train/backend/cuda/kernels/maps/pool.h"
#include "train/backend/cuda/kernels/vectors.cuh"

// Along one axis.
struct Axis {
    int in, out, kernel, stride, padding;
    Divide by_stride, by_in, by_out;
};

// Both ends of a range; the second is not in it.
struct Range {
    int from, to;
};

struct PoolMap {
    Axis down, right;
    u32 items;                      // vectors of what is written
    Divide vectors, columns, lines; // of that: in a pixel, in a line, in a map
    int channels, count_padding, bits;
};

struct PoolPlace {
    u32 sample;
    int row, column, channel;
};

template <int N> __device__ __forceinline__ PoolPlace pool_place_of(const PoolMap &m, u32 item) {
    const Parts pixel = parts_of(item, m.vectors), line = parts_of(pixel.of, m.columns),
                sample = parts_of(line.of, m.lines);
    return {sample.of, (int)sample.rest, (int)line.rest, (int)pixel.rest * N};
}

// Where a pixel's channel is, in values.
__device__ __forceinline__ u64 input_at(const PoolMap &m, const PoolPlace &p, int row, int column) {
    return ((u64)(p.sample * m.down.in + row) * m.right.in + column) * m.channels + p.channel;
}

__device__ __forceinline__ u64 output_pixel(const PoolMap &m, const PoolPlace &p, int row, int column) {
    return (u64)(p.sample * m.down.out + row) * m.right.out + column;
}

// The part of an output's window that is in the image.
__device__ __forceinline__ Range window_of(const Axis &a, int output) {
    const int first = output * a.stride - a.padding;
    return {max(first, 0), min(first + a.kernel, a.in)};
}

__device__ __forceinline__ Range adaptive_window_of(const Axis &a, int output) {
    return {(int)a.by_out((u32)(output * a.in)), (int)a.by_out((u32)((output + 1) * a.in + a.out - 1))};
}

// Outputs in whose window an input is.
__device__ __forceinline__ Range outputs_of(const Axis &a, int input) {
    const int behind = input + a.padding;
    return {behind < a.kernel ? 0 : (int)a.by_stride((u32)(behind - a.kernel)) + 1,
            min((int)a.by_stride((u32)behind) + 1, a.out)};
}

__device__ __forceinline__ Range adaptive_outputs_of(const Axis &a, int input) {
    return {(int)a.by_in((u32)(input * a.out)), (int)a.by_in((u32)((input + 1) * a.out + a.in - 1))};
}

// ---- host ----

static inline Axis axis_of(int in, int out, const comet_cuda_pool *p) {
    return {in,
            out,
            p->kernel,
            p->stride,
            p->padding,
            divide_by(p->adaptive ? 1 : (u32)p->stride),
            divide_by((u32)in),
            divide_by((u32)out)};
}

static inline u64 pool_items(const comet_cuda_pool *p, int n, bool back) {
    const int height = back ? p->height : p->out_height, width = back ? p->width : p->out_width;
    return (u64)p->batch * (u64)height * (u64)width * (u64)((p->channels + n - 1) / n);
}

// Whether kernels can count these items, and where windows are.
static inline bool can_pool(const comet_cuda_pool *p, int n, bool back) {
    return can_count(pool_items(p, n, back)) && can_count(((u64)p->height + 1) * ((u64)p->out_height + 1)) &&
           can_count(((u64)p->width + 1) * ((u64)p->out_width + 1));
}

// Of items of n channels, the last of a pixel perhaps of less.
static inline PoolMap pool_map_of(const comet_cuda_pool *p, int n, bool back) {
    return {axis_of(p->height, p->out_height, p),
            axis_of(p->width, p->out_width, p),
            (u32)pool_items(p, n, back),
            divide_by((u32)((p->channels + n - 1) / n)),
            divide_by((u32)(back ? p->width : p->out_width)),
            divide_by((u32)(back ? p->height : p->out_height)),
            p->channels,
            p->count_padding,
            p->bits};
}

#endif
