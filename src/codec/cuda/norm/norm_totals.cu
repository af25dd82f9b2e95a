// SPDX-License-Identifier: Apache-2.0
// Partial sums of a backward pass to sums by channel, always in the same order, and what dx is made of.
#include "codec/cuda/norm/norm_launch.h"

extern "C" {
#include "codec/eb/geometry.h"
}

struct Sums {
    double dz, dot;
};

static __device__ __forceinline__ void add(Sums &s, double dz, double dot) {
    s.dz = __dadd_rn(s.dz, dz);
    s.dot = __dadd_rn(s.dot, dot);
}

// Pairs of `count` sums, `apart` from each other, to the first; a power of two. By all threads of the block.
static __device__ __forceinline__ void add_pairs(Sums *all, u32 at, u32 index, u32 count, u32 apart) {
    for (u32 half = count / 2; half; half /= 2) {
        __syncthreads();
        if (index < half)
            add(all[at], all[at + half * apart].dz, all[at + half * apart].dot);
    }
}

static __device__ __forceinline__ void write_totals(const NormBackwardArgs &args, u32 c, Sums sum) {
    const NormSums &s = args.sums;
    double gamma = (double)args.tables.gamma[c], slope = gamma * (double)args.tables.scale[c];
    double sign = gamma < 0.0 ? -1.0 : 1.0, share = s.count > 0.0 ? slope / s.count : 0.0;
    s.dbeta[c] = (float)sum.dz;
    s.dgamma[c] = (float)sum.dot;
    s.coefficients[c] = make_float4((float)slope, (float)(-sign * share * sum.dot), (float)(-share * sum.dz), 0.0f);
}

// ---- channels last ----

enum { TOTAL_CHANNELS = 8, TOTAL_ROWS = 64, TOTAL_THREADS = TOTAL_CHANNELS * TOTAL_ROWS };

static __global__ void __launch_bounds__(TOTAL_THREADS)
    norm_totals_last(const __grid_constant__ NormBackwardArgs args) {
    __shared__ Sums all[TOTAL_THREADS];
    const NormSums &s = args.sums;
    const u32 row = threadIdx.x / TOTAL_CHANNELS, c = blockIdx.x * TOTAL_CHANNELS + threadIdx.x % TOTAL_CHANNELS;
    Sums sum = {0.0, 0.0};
    if (c < s.channels)
#pragma unroll 8
        for (u64 i = c + (u64)row * s.channels; i < s.entries; i += (u64)TOTAL_ROWS * s.channels) {
            float2 p = s.partial[i];
            add(sum, (double)p.x, (double)p.y);
        }
    all[threadIdx.x] = sum;
    add_pairs(all, threadIdx.x, row, TOTAL_ROWS, TOTAL_CHANNELS);
    if (row == 0 && c < s.channels) {
        sum = all[threadIdx.x];
        if (args.tables.gamma[c] < 0.0f)
            sum.dot = -sum.dot; // of u, not of w
        write_totals(args, c, sum);
    }
}

// ---- maps ----

// The tiles that hold a map, and the map that a tile starts in.
static __device__ __forceinline__ u64 tile_of(const Geometry &g, u64 index, bool is_end) {
    if (g.row == 8)
        return index / 1024;
    u32 column;
    u64 row = g.long_by_row(index, &column), band = row / 4;
    return (band * g.row + (is_end ? g.row - 1 : 0)) / 256; // all columns of the band
}

static __device__ __forceinline__ u64 map_of(const Geometry &g, const ChannelMap &map, u64 tile) {
    u64 first = 1024 * tile;
    u32 rest;
    if (g.row != 8) {
        u64 band = g.long_by_row(256 * tile, &rest);
        first = 4 * band * g.row + rest;
    }
    return map.by_inner.divisor > 1 ? map.long_by_inner(first, &rest) : first;
}

// A block a channel.
static __global__ void __launch_bounds__(BLOCK_THREADS)
    norm_totals_maps(const __grid_constant__ NormBackwardArgs args) {
    __shared__ Sums all[BLOCK_THREADS];
    const NormSums &s = args.sums;
    const Geometry &g = args.codec.geometry;
    const ChannelMap &map = args.codec.channel_map;
    const u64 inner = map.by_inner.divisor;
    Sums sum = {0.0, 0.0};
    for (u64 i = threadIdx.x; i < s.samples * s.a_map; i += BLOCK_THREADS) {
        u64 sample = i / s.a_map, run = sample * s.channels + blockIdx.x;
        u64 tile = tile_of(g, run * inner, false) + (i - sample * s.a_map);
        if (tile > tile_of(g, (run + 1) * inner - 1, true) || tile >= g.tiles)
            continue;
        float2 p = s.partial[tile * s.slots + (run - map_of(g, map, tile))];
        add(sum, (double)p.x, (double)p.y);
    }
    all[threadIdx.x] = sum;
    add_pairs(all, threadIdx.x, threadIdx.x, BLOCK_THREADS, 1);
    if (threadIdx.x == 0)
        write_totals(args, blockIdx.x, all[0]);
}

cudaError_t comet_norm_launch_totals(bool is_last, const NormBackwardArgs &args, cudaStream_t queue) {
    const u32 channels = args.sums.channels;
    if (is_last)
        return launch(norm_totals_last, dim3((channels + TOTAL_CHANNELS - 1) / TOTAL_CHANNELS), TOTAL_THREADS, queue,
                      args);
    return launch(norm_totals_maps, dim3(channels), BLOCK_THREADS, queue, args);
}
