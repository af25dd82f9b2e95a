// SPDX-License-Identifier: Apache-2.0
// Decompressing: codes to values, through the epilogue, and these to the tensor.
#ifndef COMET_CODEC_CUDA_EB_RESTORE_CUH
#define COMET_CODEC_CUDA_EB_RESTORE_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/eb/tile_decode.cuh"
#include "codec/cuda/eb/tile_exact.cuh"

// How the kernel turns codes into values: code times step alone, or whatever flags and epilogue say.
enum Restore { RESTORE_FAST, RESTORE_ANY };

enum { SWEEP_ROW = 64 }; // rows up to this long are written in order of memory: see store_sweep

// ---- values ----

// fp16 is clamped to its largest number, between the exact value and the code's: see docs/format.md.
template <int DTYPE> __device__ __forceinline__ u32 decoded_pattern(float v) {
    if (DTYPE == COMET_F16)
        v = fminf(fmaxf(v, -65504.0f), 65504.0f);
    return pattern_of_float<DTYPE>(v);
}

// Byte K of biased codes times the step. 2^15 + code + 128 is built in the bits of a float.
template <int DTYPE, int K> __device__ __forceinline__ float value_fast(u32 word, float step, float zero) {
    float f = __uint_as_float(permute<0x7504 | K << 4>(word, 0x47000000u));
    return __fmaf_rn(f, step, zero); // zero = -32896 * step, of 9 bits and 15 at most, is exact
}

// What is done to values of one channel: dequantising with its remainder, then the epilogue.
struct ChannelNumbers {
    float remainder, scale, shift;
};

// Codes and patterns to patterns of the output, in any mode and with any epilogue.
template <int DTYPE> struct Restorer {
    const DecompressArgs &args;
    quantiser_class c;
    u32 dtype; // of the stream

    __device__ __forceinline__ bool by_channel() const {
        return (args.flags & STREAM_GRID) || args.scale || args.shift;
    }

    __device__ __forceinline__ ChannelNumbers numbers(u32 channel) const {
        ChannelNumbers n = {0.0f, 1.0f, 0.0f};
        if ((args.flags & STREAM_GRID) && c.step != 0.0f)
            n.remainder = quantiser_grid(&c, __ldg(args.grid.threshold + channel), 1.0f).remainder;
        if (args.scale)
            n.scale = __ldg(args.scale + channel);
        if (args.shift)
            n.shift = __ldg(args.shift + channel);
        return n;
    }

    // y = act(scale * x + shift + add)
    __device__ __forceinline__ u32 finish(float x, const ChannelNumbers &n, u64 index) const {
        if (args.scale || args.shift)
            x = __fmaf_rn(n.scale, x, n.shift);
        if (args.add)
            x = __fadd_rn(x, float_of_pattern<DTYPE>(((const typename Pattern<DTYPE>::Word *)args.add)[index]));
        if (args.relu)
            x = x < 0.0f ? 0.0f : x; // a NaN stays
        return pattern_of_float<DTYPE>(x);
    }

    __device__ __forceinline__ u32 of_code(int q, const ChannelNumbers &n, u64 index) const {
        float x = value_of_code(q, c, n.remainder);
        if (dtype == COMET_F16)
            x = fminf(fmaxf(x, -65504.0f), 65504.0f);
        return finish(x, n, index);
    }

    // Of an exact tile: a pattern of the stream's dtype.
    __device__ __forceinline__ u32 of_pattern(u32 p, const ChannelNumbers &n, u64 index) const {
        if (dtype == DTYPE && !(args.scale || args.shift || args.add || args.relu))
            return p;
        float x = dtype == COMET_F32 ? __uint_as_float(p) : dtype == COMET_BF16 ? float_of_bf16(p) : float_of_f16(p);
        return finish(x, n, index);
    }
};

// Fills p[a][e] with make(a, e, numbers of its channel, its index).
template <int REACH, int DTYPE, class Make>
__device__ __forceinline__ void restore(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                        u32 (&p)[8][4], Make make) {
    constexpr int WIDTH = reach_width(REACH), STEP = reach_is_last(REACH) ? 0 : 1, FIXED = REACH == REACH_LAST4 ? 4 : 1;
    const Geometry &g = restorer.args.geometry;
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
    const bool by_channel = restorer.by_channel(), inner = tile < g.inner;
    ChannelNumbers fixed[FIXED]; // where a thread's channels stay the same
#pragma unroll
    for (int i = 0; i < FIXED; i++)
        fixed[i] =
            by_channel && reach_is_last(REACH) ? restorer.numbers(channels.of(i, 0)) : ChannelNumbers{0.0f, 1.0f, 0.0f};
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
        ChannelNumbers n = fixed[0];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            bool real = inner || position + STEP * i < g.positions;
            if (reach_is_last(REACH))
                n = fixed[REACH == REACH_LAST4 ? i : 0];
            else if (by_channel && real && (i == 0 || REACH == REACH_FLAT)) // a piece of a row lies in one map
                n = restorer.numbers(channels.of(e + i, index + i));
            p[a][e + i] = real ? make(a, e + i, n, index + i) : 0;
        }
    });
}

// ---- storing ----

// The inverse of exchange_codes: this lane's biased codes u[m] to words for the thread's own values.
template <int REACH> __device__ __forceinline__ void exchange_back(u32 (&u)[8], u32 lane, u32 *exchange, u32 (&w)[8]) {
    uint4 *units = (uint4 *)exchange;
    if (REACH == REACH_LAST1) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            w[m] = u[m];
    } else if (REACH == REACH_LAST4) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            exchange[32 * m + lane] = u[m];
        __syncwarp();
        unpack(units[lane], w);
        unpack(units[lane + 32], w + 4);
    } else if (REACH == REACH_FLAT) {
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
        const u32 pair = unit_place(2 * lane);
        units[pair] = make_uint4(u[0], u[4], u[1], u[5]);
        units[pair ^ 1] = make_uint4(u[2], u[6], u[3], u[7]);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = exchange[(32 * j + lane) ^ ((j & 1) << 2)];
    } else {
        const u32 pair = unit_place(2 * lane), unit = unit_place(lane);
        units[pair] = make_uint4(u[0], u[1], u[2], u[3]);
        units[pair ^ 1] = make_uint4(u[4], u[5], u[6], u[7]);
        __syncwarp();
        unpack(units[unit], w);
        unpack(units[unit + 32], w + 4);
    }
}

// Where the byte of v[a][e] is in the words of exchange_back.
template <int REACH> __device__ __forceinline__ constexpr int word_of(int a, int e) {
    return REACH == REACH_FLAT || REACH == REACH_LAST1 ? a : (a & 4) + e;
}
template <int REACH> __device__ __forceinline__ constexpr int byte_of(int a, int e) {
    return REACH == REACH_FLAT || REACH == REACH_LAST1 ? e : a & 3;
}

template <int DTYPE> __device__ __forceinline__ u32 pattern_fast(u32 word, int byte, float step, float zero) {
    float v = byte == 0   ? value_fast<DTYPE, 0>(word, step, zero)
              : byte == 1 ? value_fast<DTYPE, 1>(word, step, zero)
              : byte == 2 ? value_fast<DTYPE, 2>(word, step, zero)
                          : value_fast<DTYPE, 3>(word, step, zero);
    return decoded_pattern<DTYPE>(v);
}

__device__ __forceinline__ int code_at(u32 word, int byte) {
    return (int)(word >> 8 * byte & 0xff) - 128;
}

// Biased codes, this lane's columns u, as values where a thread's pieces lie.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void store_pieces(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                             u32 (&u)[8], u32 *exchange) {
    u32 p[8][4], w[8];
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    exchange_back<REACH>(u, lane, exchange, w);
    if (HOW == RESTORE_FAST) {
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[a][e] = pattern_fast<DTYPE>(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e), step, zero);
    } else {
        restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
            return restorer.of_code(code_at(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e)), n, index);
        });
    }
    store_patterns<REACH, DTYPE>(restorer.args.y, restorer.args.geometry, tile, s, lane, p);
}

// Codes of short rows as bytes in order of memory; 0, which no biased code is, where a byte belongs to another tile.
template <int REACH>
__device__ __forceinline__ void stage_sweep(const Geometry &g, const TileStart &s, bool inner, u32 lane, u32 (&u)[8],
                                            u64 start, u8 *bytes) {
    constexpr int WIDTH = reach_width(REACH);
    transpose_bytes(u[0], u[1], u[2], u[3]); // words of rows, bytes of columns
    transpose_bytes(u[4], u[5], u[6], u[7]);
    u32 column = s.column + 8 * lane, bands = g.by_row(column), p = column - bands * g.row;
    u64 position = s.position + column + (u64)bands * 3 * g.row;
#pragma unroll
    for (int j = 0; j < 8; j += WIDTH) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u64 at = position + (u64)k * g.row;
            u32 v = u[(j & 4) + k] >> 8 * (j & 3);
            u8 *to = bytes + (u32)(at - start);
            if (inner && WIDTH == 4)
                *(u32 *)to = v;
            else if (inner && WIDTH == 2)
                *(u16 *)to = (u16)v;
            else
#pragma unroll
                for (int i = 0; i < WIDTH; i++)
                    if (inner || at + i < g.positions)
                        to[i] = (u8)(v >> 8 * i);
        }
        p += WIDTH, position += WIDTH;
        if (p == g.row)
            p = 0, position += 3 * (u64)g.row;
    }
}

// Writes short rows in order of memory, so that stores fill whole sectors. False: a code that no encoder writes.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool store_sweep(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                            u32 (&u)[8], u8 *bytes) {
    constexpr u32 UNITS = (1024 + 6 * SWEEP_ROW + 16) / 16;
    typedef typename Pattern<DTYPE>::Word Word;
    const Geometry &g = restorer.args.geometry;
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    u32 never = 0;
#pragma unroll
    for (int m = 0; m < 8; m++)
        never |= (u[m] - 0x01010101u) & ~u[m] & SIGN_BITS;
    if (__any_sync(ALL_LANES, never))
        return false;
    for (u32 i = lane; i < UNITS; i += 32)
        ((uint4 *)bytes)[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    const u64 start = (s.position + s.column) & ~3ull, end = column_position(g, s, 255) + 3 * (u64)g.row;
    stage_sweep<REACH>(g, s, tile < g.inner, lane, u, start, bytes);
    __syncwarp();
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
    const u32 quads = (u32)((end - start) >> 2) + 1;
#pragma unroll 4
    for (u32 i = lane; i < quads; i += 32) {
        u32 v = ((const u32 *)bytes)[i], p[4];
        u64 index = start + 4 * i;
        if (v == 0)
            continue;
        if (HOW == RESTORE_FAST) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[e] = pattern_fast<DTYPE>(v, e, step, zero);
        } else {
            ChannelNumbers n = {0.0f, 1.0f, 0.0f};
            u32 known = ~0u;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 channel = restorer.by_channel() ? channels.of(e, index + e) : 0;
                if (restorer.by_channel() && channel != known && (v >> 8 * e & 0xff))
                    n = restorer.numbers(channel), known = channel;
                p[e] = v >> 8 * e & 0xff ? restorer.of_code(code_at(v, e), n, index + e) : 0;
            }
        }
        Word *to = (Word *)restorer.args.y + index;
        if (!((v - 0x01010101u) & ~v & SIGN_BITS))
            write4<DTYPE>(to, p);
        else
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (v >> 8 * e & 0xff)
                    to[e] = (Word)p[e];
    }
    return true;
}

// Writes long rows of any length value by value, neighbours side by side.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void store_columns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                              u32 (&u)[8], u32 *exchange) {
    typedef typename Pattern<DTYPE>::Word Word;
    const Geometry &g = restorer.args.geometry;
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
#pragma unroll
    for (int m = 0; m < 8; m++)
        exchange[(8 * lane + m) ^ (lane >> 2 & 7)] = u[m];
    __syncwarp();
#pragma unroll 2
    for (u32 j = 0; j < 8; j++) {
        u32 column = 32 * j + lane, word = exchange[column ^ (column >> 5 & 7)];
        u64 position = column_position(g, s, column);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u64 index = position + (u64)k * g.row;
            if (tile >= g.inner && index >= g.positions)
                continue;
            u32 p;
            if (HOW == RESTORE_FAST) {
                p = pattern_fast<DTYPE>(word, k, step, zero);
            } else {
                ChannelNumbers n = {0.0f, 1.0f, 0.0f};
                if (restorer.by_channel())
                    n = restorer.numbers(channels.of(0, index));
                p = restorer.of_code(code_at(word, k), n, index);
            }
            ((Word *)restorer.args.y)[index] = (Word)p;
        }
    }
}

// Biased codes, this lane's columns u, as values to the tensor.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool store_codes(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                            u32 (&u)[8], u8 *stage) {
    const Geometry &g = restorer.args.geometry;
    if (reach_is_row(REACH) && g.row % 8 != 0 && g.row <= SWEEP_ROW)
        return store_sweep<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, stage);
    if (REACH == REACH_ROW2 || REACH == REACH_ROW1)
        store_columns<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, (u32 *)stage);
    else
        store_pieces<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, (u32 *)stage);
    return true;
}

#endif
