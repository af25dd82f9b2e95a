// SPDX-License-Identifier: Apache-2.0
// The bytes of a code tile, staged in shared memory, back to codes. Nothing of them is trusted: sizes are checked
// before anything behind them is read.
#ifndef COMET_CODEC_CUDA_TILE_DECODE_CUH
#define COMET_CODEC_CUDA_TILE_DECODE_CUH

#include "codec/cuda/tile/bits.cuh"
#include "codec/cuda/tile/place.cuh"

// A warp's staging area: the largest code tile, 16 bytes of skew, and room behind it that reading ahead may touch.
enum { STAGE_BYTES = 2592, LARGEST_CODE_TILE = 2560 };

// A word at any address of the stage.
__device__ __forceinline__ u32 stage_word(const u8 *stage, u32 at) {
    const u32 *words = (const u32 *)stage + (at >> 2);
    return __funnelshift_r(words[0], words[1], 8 * (at & 3));
}

// What a tile's first bytes say.
struct TileHead {
    u32 n, sign, count; // magnitude planes, sign plane, both
    u32 predicted;      // not 0: it is
    bool wide;
    u32 class_index;
};

__device__ __forceinline__ TileHead tile_head(u32 byte) {
    TileHead h;
    h.n = byte & 15, h.sign = byte >> 4 & 1, h.count = h.n + h.sign;
    h.predicted = byte >> 7;
    h.wide = h.n >= WIDE_FROM;
    h.class_index = byte >> HEAD_CLASS_SHIFT & 3;
    return h;
}

// ---- firsts ----

// This lane's first code of tiles with C > 1, which has up to MOST bits and a sign; moves `next` behind them. False if
// they are not valid. A lane reads its bit of every plane there may be, which costs less than asking which there are.
template <int MOST> __device__ __forceinline__ bool read_firsts(const u8 *stage, u32 &next, u32 lane, u32 &first) {
    const u32 firsts = stage[next], n = firsts & 15, sign = firsts >> 4;
    if (sign > 1 || n > MOST)
        return false;
    const u8 *mine = stage + next + 1 + (lane >> 3);
    u32 bits = 0;
#pragma unroll
    for (int b = 0; b < MOST; b++) // they come in at the top
        bits = __funnelshift_r(bits, (u32)mine[4 * b] >> (lane & 7), 1);
    const u32 negative = (u32)mine[4 * n] >> (lane & 7) & sign;
    first = bits >> (32 - MOST) & ((1u << n) - 1);
    if (negative)
        first ^= (2u << MOST) - 1; // unfold
    next += 1 + 4 * (n + sign);
    return true;
}

// ---- columns ----

// How a column of `count` planes is stored; the planes' flags lie at stage[flags ..].
__device__ __forceinline__ u32 column_flag(const u8 *stage, u32 flags, u32 column, u32 count) {
    return column < 4 * count ? stage[flags + (column >> 2)] >> 2 * (column & 3) & 3 : (u32)COLUMN_EMPTY;
}

// Which of its 32 bytes a lane's column stores, and how many; `ballots` moves behind those of all lanes. Data is not
// touched.
__device__ __forceinline__ void column_ballot(const u8 *stage, u32 flag, u32 lane, u32 &ballots, u32 &ballot,
                                              u32 &bytes) {
    u32 some = __ballot_sync(ALL_LANES, flag == COLUMN_SOME);
    ballot = 0, bytes = 0;
    if (flag == COLUMN_SOME) {
        ballot = stage_word(stage, ballots + 4 * __popc(some & ((1u << lane) - 1)));
        bytes = __popc(ballot);
    }
    if (flag == COLUMN_FULL)
        ballot = ALL_LANES, bytes = 32;
    if (flag == COLUMN_SINGLE)
        bytes = 1;
    ballots += 4 * __popc(some);
}

// A single bit becomes a column of one byte, in place.
__device__ __forceinline__ void open_single(u8 *stage, u32 flag, u32 at, u32 &ballot) {
    if (flag == COLUMN_SINGLE) {
        u32 bit = stage[at];
        ballot = 1u << (bit >> 3);
        stage[at] = (u8)(1u << (bit & 7));
    }
}

// This lane's four bytes of a plane; places[slot]: two columns each, as {ballot, before}.
__device__ __forceinline__ u32 read_plane(const u8 *stage, const uint4 *places, u32 slot, u32 up) {
    uint4 a = places[2 * slot], b = places[2 * slot + 1];
    u32 m0 = a.x << up, m1 = a.z << up, m2 = b.x << up, m3 = b.z << up; // top bit: this lane's byte is stored
    u32 v0 = stage[a.y + __popc(m0)], v1 = stage[a.w + __popc(m1)], v2 = stage[b.y + __popc(m2)],
        v3 = stage[b.w + __popc(m3)]; // another byte of the tile if not, which the mask then clears
    u32 have = permute<0x5410>(permute<0x00fb>(m0, m1), permute<0x00fb>(m2, m3));
    return (v0 + (v1 << 8) + (v2 << 16) + (v3 << 24)) & have;
}

// ---- narrow ----

// Undoes prediction: w[m] holds biased residuals, and gets biased codes.
template <int REACH> __device__ __forceinline__ void unpredict(u32 (&w)[8], u32 first, u32 lane) {
    u32 c[8], left = (first & 0xff) + 128; // biased codes of row 0 have it in common, and 128 taken off a column
    if (reach_is_last(REACH) || lane == 0) // a first stands in place of its residual
        w[0] = (w[0] & ~0xffu) | 128;
    c[0] = w[0];
#pragma unroll
    for (int m = 1; m < 8; m++)
        c[m] = c[m - 1] + w[m]; // the low byte is what counts
    if (!reach_is_last(REACH))
        left += inclusive_sum(c[7], lane) - c[7];
#pragma unroll
    for (int m = 0; m < 8; m++) { // each digit is the sum of those up to it, the code to the left of row 0 included
        u32 row = m ? (c[m - 1] + left + 128 * (m & 1)) & 0xff : left & 0xff;
        w[m] = (w[m] + row) * 0x01010101u - 0x80808080u * 0x01010101u;
    }
}

// Where the columns of the tile of `size` bytes at stage[at ..] lie, for read_planes; `first` becomes this lane's first
// code. False: the tile is not valid.
template <int REACH>
__device__ __forceinline__ bool find_columns(u8 *stage, u32 at, u32 size, const TileHead &h, u32 lane, u32 *columns,
                                             u32 &first) {
    u32 next = at + 1 + h.count, ballot, bytes;
    if (h.wide || size < 1 + h.count)
        return false;
    u32 flag = column_flag(stage, at + 1, lane, h.count);
    if (h.predicted) {
        if (!reach_is_last(REACH))
            first = stage[next++];
        else if (!read_firsts<7>(stage, next, lane, first))
            return false;
    }
    column_ballot(stage, flag, lane, next, ballot, bytes);
    u32 sum = inclusive_sum(bytes, lane), data = next + sum - bytes;
    if (next + __shfl_sync(ALL_LANES, sum, 31) != at + size)
        return false;
    __syncwarp(); // the ballots have been read, with bytes beside them
    open_single(stage, flag, data, ballot);
    ((uint2 *)columns)[lane] = make_uint2(ballot, data - 1);
    __syncwarp();
    return true;
}

// A word of each plane for this lane: bit m of byte k is of row k, column m. The last one is that of signs.
__device__ __forceinline__ void read_planes(const u8 *stage, const TileHead &h, u32 lane, const u32 *columns,
                                            u32 (&w)[8]) {
    const u32 up = 31 - lane;
#pragma unroll
    for (u32 b = 0; b < 8; b++) {
        w[b] = 0;
        if (b < 7 ? b < h.n : h.sign)
            w[b] = read_plane(stage, (const uint4 *)columns, b < 7 ? b : h.n, up);
    }
}

// Planes to biased codes, this lane's eight columns.
template <int REACH>
__device__ __forceinline__ void codes_of_planes(u32 (&w)[8], const TileHead &h, u32 first, u32 lane) {
    u32 signs = w[7];
#pragma unroll
    for (int b = 0; b < 7; b++)
        w[b] ^= signs; // unfold
    w[7] = ~signs;     // bias
    transpose_bits(w);
    if (h.predicted)
        unpredict<REACH>(w, first, lane);
}

// The tile of `size` bytes at stage[at ..] to biased codes, this lane's eight columns. False: it is not valid.
template <int REACH>
__device__ __forceinline__ bool decode_narrow(u8 *stage, u32 at, u32 size, const TileHead &h, u32 lane, u32 *columns,
                                              u32 (&w)[8]) {
    u32 first = 0;
    if (!find_columns<REACH>(stage, at, size, h, lane, columns, first))
        return false;
    read_planes(stage, h, lane, columns, w);
    codes_of_planes<REACH>(w, h, first, lane);
    return true;
}

// ---- wide ----

// The same for 16-bit codes, which go to codes[256 k + 8 l + m] (over the stage and what lies behind it).
template <int REACH>
__device__ __forceinline__ bool decode_wide(u8 *stage, u32 at, u32 size, const TileHead &h, u32 lane, u32 *columns,
                                            u16 *codes) {
    u32 next = at + 1 + h.count, first = 0, flag[2], ballot[2], bytes[2], data[2];
    if (size < 1 + h.count || h.class_index)
        return false;
    flag[0] = column_flag(stage, at + 1, lane, h.count);
    flag[1] = column_flag(stage, at + 1, lane + 32, h.count);
    if (h.predicted) {
        if (!reach_is_last(REACH)) {
            first = stage[next] | stage[next + 1] << 8;
            next += 2;
        } else if (!read_firsts<15>(stage, next, lane, first)) {
            return false;
        }
    }
    column_ballot(stage, flag[0], lane, next, ballot[0], bytes[0]);
    column_ballot(stage, flag[1], lane, next, ballot[1], bytes[1]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 sum = inclusive_sum(bytes[half], lane);
        data[half] = next + sum - bytes[half];
        next += __shfl_sync(ALL_LANES, sum, 31);
    }
    if (next != at + size)
        return false;
    u32 w[2][8];
    const u32 up = 31 - lane;
    __syncwarp(); // the ballots have been read, with bytes beside them
#pragma unroll
    for (u32 half = 0; half < 2; half++) { // columns of 32 columns' places at a time
        open_single(stage, flag[half], data[half], ballot[half]);
        ((uint2 *)columns)[lane] = make_uint2(ballot[half], data[half] - 1);
        __syncwarp();
#pragma unroll
        for (u32 b = 0; b < 8; b++) {
            u32 plane = 8 * half + b, slot = b;
            if (plane < h.n)
                w[half][b] = read_plane(stage, (const uint4 *)columns, slot, up);
            else if (half == 0 || plane < 15)
                w[half][b] = 0;
        }
        __syncwarp();
    }
    // the sign's plane is the last one there is
    w[1][7] = 0;
    if (h.sign) {
        u32 slot = h.n & 7, half = h.n >> 3;
        ((uint2 *)columns)[lane] = make_uint2(half ? ballot[1] : ballot[0], (half ? data[1] : data[0]) - 1);
        __syncwarp();
        w[1][7] = read_plane(stage, (const uint4 *)columns, slot, up);
        __syncwarp();
    }
    u32 signs = w[1][7];
#pragma unroll
    for (int b = 0; b < 15; b++)
        w[b >> 3][b & 7] ^= signs;
    transpose_bits(w[0]);
    transpose_bits(w[1]);
    u32 above[8], left = 0; // codes of the row above; mod 2^16
    if (h.predicted && !reach_is_last(REACH)) {
        u32 row = 0;
#pragma unroll
        for (int m = 0; m < 8; m++)
            row += m == 0 && lane == 0 ? 0 : (w[0][m] & 0xff) | (w[1][m] & 0xff) << 8;
        left = inclusive_sum(row, lane) - row;
    }
    left += first;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int m = 0; m < 8; m++) {
            u32 code = (w[0][m] >> 8 * k & 0xff) | (w[1][m] >> 8 * k & 0xff) << 8;
            if (h.predicted && k == 0 && m == 0 && (reach_is_last(REACH) || lane == 0))
                code = 0; // a first stands in place of its residual
            if (h.predicted && k == 0)
                left = code += left;
            else if (h.predicted)
                code += above[m];
            above[m] = code;
            codes[256 * k + 8 * lane + m] = (u16)code;
        }
    __syncwarp();
    return true;
}

#endif
