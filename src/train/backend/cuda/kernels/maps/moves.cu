// SPDX-License-Identifier: Apache-2.0
// Shortcuts and transpositions: values are moved as patterns, so that they only have a size.
#include "train/backend/cuda/kernels/maps/moves.h"

#include "train/backend/cuda/kernels/vectors.cuh"

// ---- shortcut ----

// Channels are counted in items: values, or vectors of 16 bytes.
struct Shortcut {
    u32 items;                      // of what is written
    Divide channels, width, height; // of that
    u32 other_channels, other_width, other_height;
    Divide stride;
};

struct Spot {
    u32 sample, row, column, channel;
};

__device__ __forceinline__ Spot spot_of(const Shortcut &s, u32 item) {
    const Parts pixel = parts_of(item, s.channels), line = parts_of(pixel.of, s.width),
                sample = parts_of(line.of, s.height);
    return {sample.of, sample.rest, line.rest, pixel.rest};
}

__device__ __forceinline__ u64 other_item(const Shortcut &s, const Spot &p, u32 row, u32 column) {
    return ((u64)(p.sample * s.other_height + row) * s.other_width + column) * s.other_channels + p.channel;
}

template <class Item>
__global__ static void __launch_bounds__(THREADS) shortcut_kernel(Shortcut s, const Item *x, Item *y) {
    const u32 item = (u32)thread_of_grid();
    if (item >= s.items)
        return;
    const Spot p = spot_of(s, item);
    Item v = {};
    if (p.channel < s.other_channels)
        v = x[other_item(s, p, p.row * s.stride.divisor, p.column * s.stride.divisor)];
    y[item] = v;
}

template <class Item>
__global__ static void __launch_bounds__(THREADS) shortcut_back_kernel(Shortcut s, const Item *dy, Item *dx) {
    const u32 item = (u32)thread_of_grid();
    if (item >= s.items)
        return;
    const Spot p = spot_of(s, item);
    const Parts row = parts_of(p.row, s.stride), column = parts_of(p.column, s.stride);
    Item v = {};
    if (row.rest == 0 && column.rest == 0)
        v = dy[other_item(s, p, row.of, column.of)];
    dx[item] = v;
}

// Calls run(an item's zero, values in it).
template <class Run>
static cudaError_t with_item(const comet_cuda_shortcut_job *j, const void *a, const void *b, Run run) {
    const int values = 16 / (int)comet_dtype_size(j->dtype);
    if (has_vectors(j->channels, values, a, b) && j->out_channels % values == 0)
        return run(uint4(), values);
    return values == 4 ? run(u32(), 1) : run(u16(), 1);
}

static u64 items_of(const comet_cuda_shortcut_job *j, int values, bool back) {
    const u64 pixels = back ? (u64)j->height * (u64)j->width : (u64)j->out_height * (u64)j->out_width;
    return (u64)j->batch * pixels * (u64)((back ? j->channels : j->out_channels) / values);
}

static Shortcut shortcut_of(const comet_cuda_shortcut_job *j, int values, bool back) {
    const u32 in[] = {(u32)j->height, (u32)j->width, (u32)(j->channels / values)},
              out[] = {(u32)j->out_height, (u32)j->out_width, (u32)(j->out_channels / values)};
    const u32 *here = back ? in : out, *there = back ? out : in;
    return {(u32)items_of(j, values, back),
            divide_by(here[2]),
            divide_by(here[1]),
            divide_by(here[0]),
            there[2],
            there[1],
            there[0],
            divide_by((u32)j->stride)};
}

cudaError_t comet_cuda_launch_shortcut(const comet_cuda_shortcut_job *j, const void *x, void *y, cudaStream_t queue) {
    return with_item(j, x, y, [&](auto item, int values) {
        typedef decltype(item) Item;
        const Shortcut s = shortcut_of(j, values, false);
        if (!can_count(items_of(j, values, false)))
            return cudaErrorInvalidValue;
        return launch(shortcut_kernel<Item>, blocks_for(s.items, THREADS), THREADS, queue, s, (const Item *)x,
                      (Item *)y);
    });
}

cudaError_t comet_cuda_launch_shortcut_back(const comet_cuda_shortcut_job *j, const void *dy, void *dx,
                                            cudaStream_t queue) {
    return with_item(j, dy, dx, [&](auto item, int values) {
        typedef decltype(item) Item;
        const Shortcut s = shortcut_of(j, values, true);
        if (!can_count(items_of(j, values, true)))
            return cudaErrorInvalidValue;
        return launch(shortcut_back_kernel<Item>, blocks_for(s.items, THREADS), THREADS, queue, s, (const Item *)dy,
                      (Item *)dx);
    });
}

// ---- transposition ----

constexpr u32 TILE = 32, TILE_LINES = THREADS / TILE;

struct Matrices {
    u32 rows, columns, tiles_down, tiles_right;
};

// A block has a tile. A column more, so that a column of the tile lies in different banks.
template <class Item>
__global__ static void __launch_bounds__(THREADS) transpose_kernel(Matrices m, const Item *from, Item *to) {
    __shared__ Item tile[TILE][TILE + 1];
    const u32 x = threadIdx.x % TILE, line = threadIdx.x / TILE, above = blockIdx.x / m.tiles_right,
              right = blockIdx.x - above * m.tiles_right, matrix = above / m.tiles_down,
              down = above - matrix * m.tiles_down;
    const u64 base = (u64)matrix * m.rows * m.columns;
    const u32 row = down * TILE, column = right * TILE;
#pragma unroll
    for (u32 i = line; i < TILE; i += TILE_LINES)
        if (row + i < m.rows && column + x < m.columns)
            tile[i][x] = from[base + (u64)(row + i) * m.columns + column + x];
    __syncthreads();
#pragma unroll
    for (u32 i = line; i < TILE; i += TILE_LINES)
        if (column + i < m.columns && row + x < m.rows)
            to[base + (u64)(column + i) * m.rows + row + x] = tile[x][i];
}

template <class Item>
static cudaError_t transpose(const void *from, void *to, int64_t batch, const Matrices &m, cudaStream_t queue) {
    const u64 blocks = (u64)batch * m.tiles_down * m.tiles_right;
    return launch(transpose_kernel<Item>, dim3((u32)blocks), THREADS, queue, m, (const Item *)from, (Item *)to);
}

cudaError_t comet_cuda_launch_transpose(comet_dtype dtype, const void *from, void *to, int64_t batch, int64_t rows,
                                        int64_t columns, cudaStream_t queue) {
    const Matrices m = {(u32)rows, (u32)columns, (u32)((rows + TILE - 1) / TILE), (u32)((columns + TILE - 1) / TILE)};
    return dtype == COMET_F32 ? transpose<u32>(from, to, batch, m, queue) : transpose<u16>(from, to, batch, m, queue);
}
