// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation, from a stream of u or from x: first the sums dbeta and dgamma, then dx.
// Both passes go over tiles as the codec does, a warp a tile.
#ifndef COMET_CODEC_CUDA_NORM_BACKWARD_CUH
#define COMET_CODEC_CUDA_NORM_BACKWARD_CUH

#include "codec/cuda/norm/norm_sums.cuh"

template <int N> __device__ __forceinline__ void norm_copy(float2 (&to)[N], const float2 (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = from[i];
}

// The tiles of a warp that `left` has a bit for. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE, int FROM, int PASS>
__device__ __noinline__ void norm_rest(const NormBackwardArgs &args, DecompressShared &shared, u64 left,
                                       float2 (&sums)[NORM_SETS<REACH>]) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    StreamView view = {};
    float bound;
    u32 dtype;
    if (FROM == NORM_FROM_STREAM)
        view = view_stream(args.codec, stream_start(args.codec), lane, bound, dtype);
    for (u32 tile = blockIdx.x * GROUP_TILES + warp; left; tile += gridDim.x * GROUP_TILES, left >>= 1) {
        if (!(left & 1))
            continue;
        TileBytes bytes = {NULL, 0};
        if (FROM == NORM_FROM_STREAM)
            bytes = find_tile(view.payload, view.payload_bytes, read_row(view.table, tile, lane), tile, lane);
        const TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
        bool good = FROM == NORM_FROM_X || bytes.from;
        if constexpr (PASS == NORM_DX)
            good = good && norm_dx_rare<REACH, DTYPE, FROM>(args, shared.q, source, tile, lane);
        else
            good = good && norm_sums_rare<REACH, DTYPE, FROM>(args, shared.q, source, tile, lane, sums);
        if (!good && lane == 0)
            *args.codec.status = COMET_ERROR_CORRUPT;
        __syncwarp(); // the stage is used again
    }
}

template <int REACH, int DTYPE, int FROM, int PASS>
__global__ void __launch_bounds__(BLOCK_THREADS, norm_backward_blocks(FROM))
    norm_backward_kernel(const __grid_constant__ NormBackwardArgs args) {
    __shared__ NormBackwardShared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = blockIdx.x * GROUP_TILES + warp;
    StreamView view = {};
    if (FROM == NORM_FROM_STREAM && !open_stream(args.codec, shared.codec, view))
        return;
    norm_keep_numbers<REACH, FROM, PASS>(args, shared, first, lane);
    NormWalk<REACH, DTYPE, FROM, PASS> walk(args, shared);
    u64 left = 0;
    if (FROM == NORM_FROM_STREAM) {
        left = for_tiles(args.codec, shared.codec, view,
                         [&](u32 tile, const TileSource &source) { return walk.common(tile, source); });
    } else {
        const TileSource none = {};
        u64 bit = 1;
        for (u32 tile = first; tile < args.codec.geometry.tiles; tile += gridDim.x * GROUP_TILES, bit <<= 1)
            left |= walk.common(tile, none) ? 0 : bit;
    }
    if (left) {
        float2 sums[NORM_SETS<REACH>]; // a copy: its address is taken
        norm_copy(sums, walk.sums);
        norm_rest<REACH, DTYPE, FROM, PASS>(args, shared.codec, left, sums);
        norm_copy(walk.sums, sums);
    }
    if constexpr (PASS == NORM_SUMS && reach_is_last(REACH)) {
        norm_lane_sums<REACH>(walk.sums, lane, shared.sums + 32 * warp);
        __syncthreads();
        norm_put_block(args, shared.sums);
    }
}

#endif
