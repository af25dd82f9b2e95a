// SPDX-License-Identifier: Apache-2.0
// The values of an exact tile in order of the format (docs/format.md, 'Sparse and raw tiles'): how a warp brings them
// into it and out again, and where those that are kept lie one behind the other.
#ifndef COMET_CODEC_CUDA_EXACT_ORDER_CUH
#define COMET_CODEC_CUDA_EXACT_ORDER_CUH

#include "codec/cuda/tile/exact.cuh"

enum { QUADS = 8 };

// A thread's 32 values of BYTES (4 or 2) each: quad a are those of index 128 a + 4 lane and the next three, as words.
template <int BYTES> struct Ordered { u32 w[QUADS][BYTES]; };

// Patterns are moved as they are: bf16 stands for fp16 too.
template <int BYTES> constexpr int DTYPE_OF_BYTES = BYTES == 4 ? COMET_F32 : COMET_BF16;
template <int BYTES> using pattern_word = typename Pattern<DTYPE_OF_BYTES<BYTES>>::Word;

// The kernels know rows of one kind: how wide they can be read is found at run time, as it costs nothing.
constexpr __host__ __device__ Reach exact_reach(Reach reach) {
    return reach_is_row(reach) ? REACH_ROW4 : reach;
}
template <int REACH> constexpr int any_row = reach_is_row(REACH) ? REACH_ROW1 : REACH;

// ---- through shared memory ----

// Where index i lies: 16 bytes are left free behind every 128 and 32 behind every row, so that the lanes of no reach
// meet in the same banks. Of indices that have no bit in common the places add up.
template <int BYTES> __device__ __forceinline__ constexpr u32 order_at(u32 i) {
    return BYTES * i + (BYTES * i >> 7 << 4) + (i >> 8 << 5);
}

template <int BYTES> constexpr u32 ORDER_BYTES = (1024 + 128) * BYTES + 96;

__device__ __forceinline__ void put_words(u8 *to, const u32 (&w)[4]) {
    *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}
__device__ __forceinline__ void put_words(u8 *to, const u32 (&w)[2]) {
    *(uint2 *)to = make_uint2(w[0], w[1]);
}
__device__ __forceinline__ void get_words(const u8 *from, u32 (&w)[4]) {
    unpack(*(const uint4 *)from, w);
}
__device__ __forceinline__ void get_words(const u8 *from, u32 (&w)[2]) {
    const uint2 v = *(const uint2 *)from;
    w[0] = v.x, w[1] = v.y;
}

template <int BYTES> __device__ __forceinline__ void pack_quad(u32 p0, u32 p1, u32 p2, u32 p3, u32 (&w)[BYTES]) {
    if constexpr (BYTES == 4)
        w[0] = p0, w[1] = p1, w[2] = p2, w[3] = p3;
    else
        w[0] = p0 | p1 << 16, w[1] = p2 | p3 << 16;
}
template <int BYTES>
__device__ __forceinline__ void unpack_quad(const u32 (&w)[BYTES], u32 &p0, u32 &p1, u32 &p2, u32 &p3) {
    if constexpr (BYTES == 4)
        p0 = w[0], p1 = w[1], p2 = w[2], p3 = w[3];
    else
        p0 = w[0] & 0xffff, p1 = w[0] >> 16, p2 = w[1] & 0xffff, p3 = w[1] >> 16;
}

// Calls visit(at, v0, v1, v2, v3) for every four of a thread's values that lie side by side in order; not of LAST4,
// where none do.
template <int REACH, int BYTES, class Patterns, class Visit>
__device__ __forceinline__ void for_quads(Patterns &p, u32 lane, Visit visit) {
    const u32 at = order_at<BYTES>(tile_index<REACH>(lane, 0, 0));
#pragma unroll
    for (int i = 0; i < QUADS; i++)
        if (REACH == REACH_LAST1) {
            const int k = i >> 1, m = 4 * (i & 1);
            visit(at + order_at<BYTES>(tile_index<REACH>(0, m, k)), p[m][k], p[m + 1][k], p[m + 2][k], p[m + 3][k]);
        } else {
            visit(at + order_at<BYTES>(tile_index<REACH>(0, i, 0)), p[i][0], p[i][1], p[i][2], p[i][3]);
        }
}

// A thread's values of rows are in order: quad a is p[4 (a mod 2) + a / 2].
template <int REACH, int BYTES> __device__ __forceinline__ void put_in_order(const u32 (&p)[8][4], u32 lane, u8 *room) {
    if constexpr (REACH == REACH_LAST4) {
        u8 *to = room + order_at<BYTES>(tile_index<REACH>(lane, 0, 0));
#pragma unroll
        for (int i = 0; i < 32; i++)
            *(pattern_word<BYTES> *)(to + order_at<BYTES>(tile_index<REACH>(0, i / 4, i % 4))) =
                (pattern_word<BYTES>)p[i / 4][i % 4];
    } else {
        for_quads<REACH, BYTES>(p, lane, [&](u32 at, u32 v0, u32 v1, u32 v2, u32 v3) {
            u32 w[BYTES];
            pack_quad<BYTES>(v0, v1, v2, v3, w);
            put_words(room + at, w);
        });
    }
}

// Brings a thread's values into order; room: ORDER_BYTES of the warp's own.
template <int REACH, int BYTES>
__device__ __forceinline__ void into_order(const u32 (&p)[8][4], u32 lane, u8 *room, Ordered<BYTES> &o) {
    if constexpr (!reach_is_row(REACH)) {
        put_in_order<REACH, BYTES>(p, lane, room);
        __syncwarp();
    }
#pragma unroll
    for (int a = 0; a < QUADS; a++)
        if constexpr (reach_is_row(REACH)) {
            const u32(&v)[4] = p[4 * (a & 1) + (a >> 1)];
            pack_quad<BYTES>(v[0], v[1], v[2], v[3], o.w[a]);
        } else {
            get_words(room + order_at<BYTES>(4 * lane) + order_at<BYTES>(128 * a), o.w[a]);
        }
}

template <int REACH, int BYTES>
__device__ __forceinline__ void get_from_order(const u8 *room, u32 lane, u32 (&p)[8][4]) {
    if constexpr (REACH == REACH_LAST4) {
        const u8 *from = room + order_at<BYTES>(tile_index<REACH>(lane, 0, 0));
#pragma unroll
        for (int i = 0; i < 32; i++)
            p[i / 4][i % 4] =
                *(const pattern_word<BYTES> *)(from + order_at<BYTES>(tile_index<REACH>(0, i / 4, i % 4)));
    } else {
        for_quads<REACH, BYTES>(p, lane, [&](u32 at, u32 &v0, u32 &v1, u32 &v2, u32 &v3) {
            u32 w[BYTES];
            get_words(room + at, w);
            unpack_quad<BYTES>(w, v0, v1, v2, v3);
        });
    }
}

// And out of it again. The room's old content has been read by all lanes.
template <int REACH, int BYTES>
__device__ __forceinline__ void out_of_order(const Ordered<BYTES> &o, u32 lane, u8 *room, u32 (&p)[8][4]) {
#pragma unroll
    for (int a = 0; a < QUADS; a++)
        if constexpr (reach_is_row(REACH)) {
            u32(&v)[4] = p[4 * (a & 1) + (a >> 1)];
            unpack_quad<BYTES>(o.w[a], v[0], v[1], v[2], v[3]);
        } else {
            put_words(room + order_at<BYTES>(4 * lane) + order_at<BYTES>(128 * a), o.w[a]);
        }
    if constexpr (!reach_is_row(REACH)) {
        __syncwarp();
        get_from_order<REACH, BYTES>(room, lane, p);
    }
}

// ---- which values are kept ----

// Bit 4 a + e of a thread's masks is value e of quad a.

// Moves bit i of each half to bit 2 i, and 2 i + 1.
__device__ __forceinline__ u32 interleave_halves(u32 v) {
    u32 x = permute<0x3120>(v, 0); // bytes 0 2 1 3
    u32 t = (x ^ x >> 4) & 0x00f000f0u;
    x ^= t ^ t << 4;
    t = (x ^ x >> 2) & 0x0c0c0c0cu;
    x ^= t ^ t << 2;
    t = (x ^ x >> 1) & 0x22222222u;
    return x ^ t ^ t << 1;
}

// Those whose pattern is not 0.
__device__ __forceinline__ u32 marks_of(const Ordered<4> &o) {
    u32 marks = 0;
#pragma unroll
    for (int i = 0; i < 32; i++)
        marks += min(o.w[i / 4][i % 4], 1u) << i;
    return marks;
}
__device__ __forceinline__ u32 marks_of(const Ordered<2> &o) {
    u32 marks = 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
        marks += __vminu2(o.w[i / 2][i % 2], 0x00010001u) << i;
    return interleave_halves(marks);
}

// Those that are not padding.
template <int REACH> __device__ __forceinline__ u32 real_in_order(const Geometry &g, const TileStart &s, u32 lane) {
    u32 real = 0;
#pragma unroll 1
    for (u32 j = 0; j < 8; j++) { // quads 2 k + j / 4, of the rows k
        u32 rows = real_bytes<REACH>(g, s, 16 * (j >> 2) + (lane >> 1), 4 * (lane & 1) + (j & 3));
        real |= (rows & 0x01010101u) << j;
    }
    return real;
}

// Where the kept values of a thread's quads lie among all that are kept.
struct Places {
    u32 before[2]; // in lanes before this one, of the even quads and of the odd ones: a byte each
    u32 of_all[2]; // in all lanes

    __device__ __forceinline__ u32 count() const {
        const u32 halves = (of_all[0] & 0x00ff00ffu) + (of_all[0] >> 8 & 0x00ff00ffu) + (of_all[1] & 0x00ff00ffu) +
                           (of_all[1] >> 8 & 0x00ff00ffu);
        return (halves & 0xffffu) + (halves >> 16);
    }
};

__device__ __forceinline__ Places places_of(u32 kept, u32 lane) {
    const u32 pairs = kept - (kept >> 1 & 0x55555555u), quads = (pairs & 0x33333333u) + (pairs >> 2 & 0x33333333u);
    const u32 own[2] = {quads & 0x0f0f0f0fu, quads >> 4 & 0x0f0f0f0fu};
    Places p;
    p.before[0] = own[0], p.before[1] = own[1];
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) { // at most 128 in a byte
        const u32 even = __shfl_up_sync(ALL_LANES, p.before[0], d), odd = __shfl_up_sync(ALL_LANES, p.before[1], d);
        if (lane >= d)
            p.before[0] += even, p.before[1] += odd;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        p.of_all[i] = __shfl_sync(ALL_LANES, p.before[i], 31);
        p.before[i] -= own[i];
    }
    return p;
}

// The same if all values are kept.
__device__ __forceinline__ Places places_of_all(u32 lane) {
    const u32 before = 0x04040404u * lane;
    return {{before, before}, {0x80808080u, 0x80808080u}};
}

// Calls visit(a, e, at) for the values that are kept, which lie from `at` on: Byte is u8 or const u8.
template <int BYTES, class Byte, class Visit>
__device__ __forceinline__ void for_kept(const Places &places, u32 kept, Byte *at, Visit visit) {
#pragma unroll
    for (int a = 0; a < QUADS; a++) {
        const int shift = 8 * (a >> 1);
        Byte *next = at + BYTES * (places.before[a & 1] >> shift & 0xff);
        at += BYTES * (places.of_all[a & 1] >> shift & 0xff);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (kept >> (4 * a + e) & 1) {
                visit(a, e, next);
                next += BYTES;
            }
    }
}

// ---- the bitmap ----

// Spreads four nibbles over four bytes.
__device__ __forceinline__ u32 spread_nibbles(u32 v) {
    v = (v | v << 8) & 0x00ff00ffu;
    return (v | v << 4) & 0x0f0f0f0fu;
}

// Byte 16 a + lane / 2 holds quads of two neighbouring lanes: the first writes those of a < 4, the second the others.
__device__ __forceinline__ void write_bitmap(u32 marks, u32 lane, u8 *to) {
    const bool second = lane & 1;
    const u32 mine = second ? marks >> 16 : marks & 0xffff;
    const u32 other = __shfl_xor_sync(ALL_LANES, second ? marks & 0xffff : marks >> 16, 1);
    const u32 bytes = spread_nibbles(second ? other : mine) | spread_nibbles(second ? mine : other) << 4;
    to += (lane >> 1) + (second ? 64 : 0);
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[16 * i] = (u8)(bytes >> 8 * i);
}

__device__ __forceinline__ u32 read_bitmap(const u8 *from, u32 lane) {
    u32 marks = 0;
#pragma unroll
    for (int a = 0; a < QUADS; a++)
        marks |= ((u32)from[16 * a + (lane >> 1)] >> 4 * (lane & 1) & 15) << 4 * a;
    return marks;
}

#endif
