// SPDX-License-Identifier: Apache-2.0
// From a thread's values to codes, in every mode of the quantiser, and from the order in which threads read values to
// the order of the format: lane l of a warp has the columns of lane l of the tile, four codes a word.
#ifndef COMET_CODEC_CUDA_EB_CODES_CUH
#define COMET_CODEC_CUDA_EB_CODES_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/eb/tile_survey.cuh"

// How a kernel quantises: rounding to nearest alone, on a grid alone, or whatever the stream's flags say.
enum Quantise { QUANTISE_FAST, QUANTISE_ON_GRID, QUANTISE_ANY };

template <int QUANT> __device__ __forceinline__ bool quantise_has_grid(const CompressArgs &args) {
    return QUANT == QUANTISE_ON_GRID || (QUANT == QUANTISE_ANY && (args.flags & STREAM_GRID));
}

// ---- a tile's values ----

// Calls visit(a, e, channel) for every value of a thread.
template <int REACH, class Visit>
__device__ __forceinline__ void for_channels(const Geometry &g, const ChannelMap &map, u32 tile, const TileStart &s,
                                             u32 lane, Visit visit) {
    constexpr int WIDTH = reach_width(REACH);
    const TileChannels<REACH> channels(map, g, s, lane);
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
        u32 channel = channels.of(e, index);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            bool same = i == 0 || reach_is_row(REACH); // a piece of a row lies in one map
            visit(a, e + i, same ? channel : channels.of(e + i, index + i));
        }
    });
}

// The patterns as they are stored exactly: those of the tensor, or of fp32 where a grid scales and shifts them.
template <int REACH, int DTYPE>
__device__ __forceinline__ void scale_patterns(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                               u32 real, u32 (&p)[8][4]) {
    const GridTables &t = args.grid;
    for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
        float x = exact_float_of_pattern<DTYPE>(p[a][e]);
        bool is_real = real >> (4 * a + e) & 1;
        if (is_real && (t.scale || t.shift))
            x = scaled(x, t.scale ? __ldg(t.scale + channel) : 1.0f, t.shift ? __ldg(t.shift + channel) : 0.0f);
        p[a][e] = is_real ? __float_as_uint(x) : 0;
    });
}

// ---- quantising ----

// A thread's biased codes, byte k of word `unit` e, into the exchange; then this lane's words u[m].
template <int REACH> __device__ __forceinline__ void exchange_codes(u32 (&w)[8], u32 lane, u32 *exchange, u32 (&u)[8]) {
    uint4 *units = (uint4 *)exchange;
    if (REACH == REACH_LAST1) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = w[m];
        return;
    }
    if (REACH == REACH_FLAT) { // w[j]: four columns of one row
#pragma unroll
        for (int j = 0; j < 8; j++)
            exchange[(32 * j + lane) ^ ((j & 1) << 2)] = w[j];
        __syncwarp();
        const u32 pair = unit_place(2 * lane);
        uint4 a = units[pair], b = units[pair ^ 1]; // rows 0 to 3, both halves of each
        u[0] = a.x, u[1] = a.z, u[2] = b.x, u[3] = b.z, u[4] = a.y, u[5] = a.w, u[6] = b.y, u[7] = b.w;
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
    } else { // w[4 i + e]: four rows of one column
        const u32 unit = REACH == REACH_LAST4 ? lane : unit_place(lane), pair = unit_place(2 * lane);
        units[unit] = make_uint4(w[0], w[1], w[2], w[3]);
        units[unit + 32] = make_uint4(w[4], w[5], w[6], w[7]);
        __syncwarp();
        if (REACH == REACH_LAST4) { // [m][channel]
#pragma unroll
            for (int m = 0; m < 8; m++)
                u[m] = exchange[32 * m + lane];
        } else {
            uint4 a = units[pair], b = units[pair ^ 1];
            u[0] = a.x, u[1] = a.y, u[2] = a.z, u[3] = a.w, u[4] = b.x, u[5] = b.y, u[6] = b.z, u[7] = b.w;
        }
    }
    __syncwarp();
}

// Packs the codes `code(a, e)` of a thread's values into words for the exchange; `pack` takes four of them.
template <int REACH, class Pack> __device__ __forceinline__ void pack_words(u32 (&w)[8], Pack pack) {
    if (REACH == REACH_FLAT || REACH == REACH_LAST1) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = pack(j, 0, j, 1, j, 2, j, 3);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[4 * i + e] = pack(4 * i, e, 4 * i + 1, e, 4 * i + 2, e, 4 * i + 3, e);
    }
}

template <int REACH>
__device__ __forceinline__ void codes_nearest(const float (&v)[8][4], float inverse, u32 lane, u32 *exchange,
                                              u32 (&u)[8]) {
    u32 w[8];
    pack_words<REACH>(w, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_nearest(v[a0][e0], v[a1][e1], v[a2][e2], v[a3][e3], inverse);
    });
    exchange_codes<REACH>(w, lane, exchange, u);
}

// Noise of a thread's values for stochastic rounding: made where a lane owns all eight columns, moved through
// `exchange`.
template <int REACH>
__device__ __forceinline__ void tile_noise(u32 tile, u64 seed, bool wide, u32 lane, u32 *exchange,
                                           float (&noise)[8][4]) {
#pragma unroll
    for (int i = 0; i < 32; i++) // filled in two rows at a time, and never left unset
        noise[i / 4][i % 4] = 0.0f;
#pragma unroll 1
    for (u32 half = 0; half < 2; half++) { // two rows at a time
#pragma unroll
        for (u32 k = 0; k < 2; k++)
            ((uint4 *)exchange)[32 * k + lane] = philox(make_uint4(tile, 0, 4 * lane + 2 * half + k, 0), seed);
        __syncwarp();
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 i = tile_index<REACH>(lane, a, e);
                if (i >> 9 == half)
                    noise[a][e] = noise_of(((const u16 *)exchange)[i & 511], wide);
            }
        __syncwarp();
    }
}

// The code of every value as an integer, 0 for padding; on a grid:
template <int REACH>
__device__ __forceinline__ void codes_on_grid(const CompressArgs &args, const quantiser_class &c,
                                              const float (&v)[8][4], u32 tile, const TileStart &s, u32 lane, u32 real,
                                              int (&q)[8][4]) {
    for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
        bool is_real = real >> (4 * a + e) & 1;
        channel = is_real ? channel : 0;
        grid_channel g = quantiser_grid(&c, __ldg(args.grid.threshold + channel),
                                        args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f);
        q[a][e] = is_real ? code_grid(v[a][e], c.inverse, g) : 0;
    });
}

// And without one.
template <int REACH>
__device__ __forceinline__ void codes_off_grid(const CompressArgs &args, const quantiser_class &c,
                                               const float (&v)[8][4], u32 tile, u32 lane, u32 *exchange,
                                               int (&q)[8][4]) {
    float noise[8][4];
    if (c.mode == QUANTISE_STOCHASTIC)
        tile_noise<REACH>(tile, args.seed, c.wide, lane, exchange, noise);
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = v[a][e];
            q[a][e] = c.mode == QUANTISE_NEAREST      ? code_nearest(x, c.inverse)
                      : c.mode == QUANTISE_STOCHASTIC ? code_stochastic(x, c.inverse, noise[a][e])
                      : c.mode == QUANTISE_KEEP_RISE  ? code_keep_rise(x, c.inverse)
                                                      : code_keep_tread(x, c.inverse);
        }
}

template <int REACH, int QUANT>
__device__ __forceinline__ void codes_any(const CompressArgs &args, const quantiser_class &c, const float (&v)[8][4],
                                          u32 tile, const TileStart &s, u32 lane, u32 real, u32 *exchange,
                                          int (&q)[8][4]) {
    if (quantise_has_grid<QUANT>(args))
        codes_on_grid<REACH>(args, c, v, tile, s, lane, real, q);
    else if constexpr (QUANT != QUANTISE_ON_GRID)
        codes_off_grid<REACH>(args, c, v, tile, lane, exchange, q);
}

// With a grid, how many of the finite values lie on the side where a ReLU is on.
template <int REACH>
__device__ __forceinline__ u32 count_on(const CompressArgs &args, const float (&v)[8][4], u32 tile, const TileStart &s,
                                        u32 lane, u32 real) {
    u32 on = 0;
    for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
        float y = v[a][e];
        if (!(real >> (4 * a + e) & 1) || (__float_as_uint(y) & 0x7fffffffu) > LARGEST_FINITE)
            return;
        float threshold = __ldg(args.grid.threshold + channel);
        float slope = args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f;
        if (threshold != threshold)
            on += y > 0.0f;
        else
            on += slope < 0.0f ? y < threshold : y > threshold;
    });
    return __reduce_add_sync(ALL_LANES, on);
}

#endif
