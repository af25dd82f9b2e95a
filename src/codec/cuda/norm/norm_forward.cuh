// SPDX-License-Identifier: Apache-2.0
// The forward pass of a batch normalisation that keeps a stream: each tile is normalised, written as y and compressed,
// all while its values are in registers.
#ifndef COMET_CODEC_CUDA_NORM_FORWARD_CUH
#define COMET_CODEC_CUDA_NORM_FORWARD_CUH

#include "codec/cuda/eb/eb_compress.cuh"
#include "codec/cuda/norm/norm_args.cuh"

// The observer of compress_group: writes y of the tiles that compress_any does, value by value. Those of common groups
// it takes over altogether: see compress_common below.
template <int REACH, int DTYPE> struct NormForward {
    const NormForwardArgs &args;

    __device__ __forceinline__ void operator()(u32 tile, const TileStart &s, u32 lane, const float (&v)[8][4],
                                               u32 real) const {
        const CompressArgs &codec = args.codec;
        u32 p[8][4] = {};
        for_channels<REACH>(codec.geometry, codec.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
            if (real >> (4 * a + e) & 1)
                p[a][e] =
                    pattern_of_float<DTYPE>(norm_y(v[a][e], norm_channel(args.tables, channel), args.tables.floor));
        });
        store_patterns<REACH, DTYPE>(args.y, codec.geometry, tile, s, lane, p);
    }
};

// A thread's channels in registers. A channel is on above its edge, or below it if it is negative.
template <int REACH> struct NormForwardFew {
    float scale[NORM_SETS<REACH>], shift[NORM_SETS<REACH>], edge[NORM_SETS<REACH>];
    float gamma[NORM_SETS<REACH>], beta[NORM_SETS<REACH>];
    bool negative[NORM_SETS<REACH>];
    bool is_whole = true; // every channel so far has a threshold

    __device__ __forceinline__ void load(const NormTables &t, const NormSets<REACH> &sets) {
        norm_load<REACH>(t.scale, sets, scale);
        norm_load<REACH>(t.shift, sets, shift);
        norm_load<REACH>(t.threshold, sets, edge);
        norm_load<REACH>(t.gamma, sets, gamma);
        norm_load<REACH>(t.beta, sets, beta);
#pragma unroll
        for (int i = 0; i < NORM_SETS<REACH>; i++) {
            NormChannel n = {scale[i], shift[i], edge[i], gamma[i], beta[i]};
            is_whole &= n.has_threshold();
            negative[i] = n.is_negative();
            edge[i] = n.edge();
        }
    }
};

// What is known of a thread's values once they are normalised; bit 4 a + e is v[a][e]'s.
struct NormSides {
    u32 upper;     // where channels come last: above the edge of its channel
    u32 on;        // the ReLU is on
    bool is_whole; // every channel has a threshold
};

// Normalises a tile's values to v and writes y. Only right if all are finite.
template <int REACH, int DTYPE>
__device__ __forceinline__ NormSides norm_tile(const NormForwardArgs &args, NormSets<REACH> sets, u32 tile,
                                               const TileStart &s, u32 lane, u32 (&p)[8][4], float (&v)[8][4]) {
    typedef typename Pattern<DTYPE>::Word Word;
    constexpr int WIDTH = reach_width(REACH);
    const float floor = args.tables.floor;
    NormForwardFew<REACH> n;
    NormSides sides = {0, 0, true};
    if (reach_is_last(REACH))
        n.load(args.tables, sets);
    for_pieces<REACH>(args.codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
        Word *y = (Word *)args.y + index;
        if (sets.turn(a, index))
            n.load(args.tables, sets);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            int c = sets.of(e + i);
            float u = __fmaf_rn(n.scale[c], float_of_pattern<DTYPE>(p[a][e + i]), n.shift[c]);
            bool is_upper = u > n.edge[c], is_on = is_upper != n.negative[c];
            float x = norm_clamp(__fmaf_rn(n.gamma[c], u, n.beta[c]), floor);
            v[a][e + i] = u;
            if (reach_is_last(REACH))
                sides.upper |= (u32)is_upper << (4 * a + e + i);
            else
                sides.on |= (u32)is_on << (4 * a + e + i);
            p[a][e + i] = pattern_of_float<DTYPE>(is_on ? x : 0.0f);
        }
        if (WIDTH == 4)
            write4<DTYPE>(y, p[a]);
        else if (WIDTH == 2)
            write2<DTYPE>(y, p[a] + e);
        else
            *y = (Word)p[a][e];
    });
    if (reach_is_last(REACH)) {
        sides.on = sides.upper;
#pragma unroll
        for (int i = 0; i < NORM_SETS<REACH>; i++)
            sides.on ^= n.negative[i] ? (REACH == REACH_LAST4 ? 0x11111111u << i : ~0u) : 0;
    }
    sides.is_whole = n.is_whole;
    return sides;
}

// Thresholds in terms of codes that are the low bits of a float: what code_grid does, on the magic number's side.
template <int REACH> struct NormEdges {
    float edge[NORM_SETS<REACH>]; // where maps come last: comparing again is cheaper there than keeping bits
    float remainder[NORM_SETS<REACH>];
    int code[NORM_SETS<REACH>]; // A, as those bits

    __device__ __forceinline__ void load(const NormTables &t, const NormSets<REACH> &sets, const quantiser_class &c);
};

constexpr float NORM_MAGIC = MAGIC + 128.0f; // its low byte is the biased code

template <int REACH>
__device__ __forceinline__ void NormEdges<REACH>::load(const NormTables &t, const NormSets<REACH> &sets,
                                                       const quantiser_class &c) {
    float gamma[NORM_SETS<REACH>] = {};
    norm_load<REACH>(t.threshold, sets, edge);
    if (!reach_is_last(REACH))
        norm_load<REACH>(t.gamma, sets, gamma);
#pragma unroll
    for (int i = 0; i < NORM_SETS<REACH>; i++) {
        grid_channel g = quantiser_grid(&c, edge[i], reach_is_last(REACH) ? 1.0f : gamma[i]);
        edge[i] = g.edge, remainder[i] = g.remainder;
        code[i] = __float_as_int(NORM_MAGIC) + g.code;
    }
}

__device__ __forceinline__ u32 norm_code(float u, float inverse, bool is_upper, float remainder, int edge_code) {
    float q = __fmul_rn(__fsub_rn(u, remainder), inverse);
    int code = __float_as_int(__fadd_rd(q, NORM_MAGIC));
    return (u32)(is_upper ? max(code, edge_code) : min(code, edge_code - 1));
}

__device__ __forceinline__ u32 norm_pack(u32 q0, u32 q1, u32 q2, u32 q3) {
    return permute<0x5410>(permute<0x0040>(q0, q1), permute<0x0040>(q2, q3));
}

// Biased narrow codes of a tile without padding, as words for the exchange.
template <int REACH>
__device__ __forceinline__ void norm_codes(const NormForwardArgs &args, NormSets<REACH> sets, const quantiser_class &c,
                                           u32 tile, const TileStart &s, u32 lane, const float (&v)[8][4], u32 upper,
                                           u32 (&w)[8]) {
    NormEdges<REACH> edges;
    u32 q[8][4];
    if (reach_is_last(REACH))
        edges.load(args.tables, sets, c);
    for_pieces<REACH>(args.codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
        if (sets.turn(a, index))
            edges.load(args.tables, sets, c);
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            int k = sets.of(e + i);
            float u = v[a][e + i];
            bool is_upper = reach_is_last(REACH) ? upper >> (4 * a + e + i) & 1 : u > edges.edge[k];
            q[a][e + i] = norm_code(u, c.inverse, is_upper, edges.remainder[k], edges.code[k]);
        }
    });
    pack_words<REACH>(w, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return norm_pack(q[a0][e0], q[a1][e1], q[a2][e2], q[a3][e3]);
    });
}

// compress_group calls this in place of its own compress_common: the better match for the observer. ENTRY_LEFT: the
// tile has many channels, values that are not finite or no narrow codes, and is done by compress_any, y included.
template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ void compress_common(const CompressArgs &codec, CompressShared &shared, u32 tile, u32 lane,
                                                u32 warp, TilePlan &plan, const NormForward<REACH, DTYPE> &norm) {
    const Geometry &g = codec.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    const NormSets<REACH> sets(codec.channel_map, g, s, lane);
    if (warp == WARP_OF_RECORD && lane == 0)
        shared.range_known = range_so_far(&codec.workspace->totals);
    plan.entry = ENTRY_LEFT;
    if (!sets.few)
        return;
    u32 p[8][4];
    float v[8][4];
    load_inner<REACH, DTYPE>(codec.x, g, tile, s, lane, p);
    const NormSides sides = norm_tile<REACH, DTYPE>(norm.args, sets, tile, s, lane, p, v);
    const quantiser &q = quantiser_in(codec, shared);
    const Range range = range_of(v);
    const u32 magnitude = magnitude_of(range), class_index = class_of(q, magnitude);
    const bool any = __any_sync(ALL_LANES, sides.is_whole), all = __all_sync(ALL_LANES, sides.is_whole);
    if (!sums_fit_f32(magnitude) || class_index != 0 || any != all) // what counts as positive differs between channels
        return;
    Survey survey;
    survey_plain(v, range, survey);
    survey.sum = (double)plain_sums<REACH>(v, lane).rest();
    if (any)
        survey.positive = __reduce_add_sync(ALL_LANES, (u32)__popc(sides.on));
    keep_stats(survey, lane, shared.stats[warp]);
    u32 w[8], u[8];
    norm_codes<REACH>(norm.args, sets, q.classes[0], tile, s, lane, v, sides.upper, w);
    exchange_codes<REACH>(w, lane, shared.planes[warp], u);
    plan_narrow<REACH, false>(g, s, lane, u, 0, shared.planes[warp], shared.columns[warp], plan, NoAside());
}

enum { NORM_FORWARD_BLOCKS = 3 }; // on a multiprocessor

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, NORM_FORWARD_BLOCKS)
    norm_forward_kernel(const __grid_constant__ NormForwardArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, QUANTISE_ON_GRID>(args.codec, shared, NormForward<REACH, DTYPE>{args});
}

#endif
