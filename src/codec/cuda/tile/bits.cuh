// SPDX-License-Identifier: Apache-2.0
// Codes as packed bytes and their bit-planes: the arithmetic of docs/format.md, 'Code tiles', on whole words.
//
// A word of codes is four bytes, byte k for row k; biased codes are code + 128, as the magic constant of the quantiser
// leaves them.
#ifndef COMET_CODEC_CUDA_TILE_BITS_CUH
#define COMET_CODEC_CUDA_TILE_BITS_CUH

#include "codec/cuda/device.cuh"

constexpr u32 SIGN_BITS = 0x80808080u;
constexpr u32 MAGNITUDE_BITS = 0x7f7f7f7fu;
constexpr u32 SIGN_BITS16 = 0x80008000u;
constexpr u32 MAGNITUDE_BITS16 = 0x7fff7fffu;

enum { COLUMN_EMPTY = 0, COLUMN_SOME = 1, COLUMN_FULL = 2, COLUMN_SINGLE = 3, FULL_FROM = 28, PREDICTION_COST = 128 };
enum { HEAD_SIGN = 0x10, HEAD_CLASS_SHIFT = 5, HEAD_PREDICTED = 0x80 };
enum { WIDE_FROM = 8 }; // so many magnitude planes or more: codes of 16 bits

__device__ __forceinline__ u32 choose(u32 mask, u32 a, u32 b) { // bits of a where the mask is 1, else of b
    return logic3<0xca>(mask, a, b);
}

// ---- bytes ----

// Biased codes folded: the sign bit, which they have upside down, stays; where it is 1 the other bits are inverted.
__device__ __forceinline__ u32 fold_biased_bytes(u32 v) {
    return logic3<0x87>(v, permute<0xba98>(v, 0), MAGNITUDE_BITS);
}

// ---- halves ----

__device__ __forceinline__ u32 subtract_halves(u32 a, u32 b) {
    u32 t = (a | SIGN_BITS16) - (b & MAGNITUDE_BITS16);
    return t ^ logic3<0x82>(a, b, SIGN_BITS16);
}

__device__ __forceinline__ u32 fold_halves(u32 v) {
    return logic3<0x78>(v, permute<0xbb99>(v, 0), MAGNITUDE_BITS16);
}

// ---- transposing ----

template <int SHIFT, u32 MASK> __device__ __forceinline__ void exchange_bits(u32 &a, u32 &b) {
    u32 low = choose(MASK, a, b << SHIFT);
    b = choose(MASK, a >> SHIFT, b);
    a = low;
}

// Bit b of byte k of word m becomes bit m of byte k of word b: words of codes to planes, and back.
__device__ __forceinline__ void transpose_bits(u32 (&w)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange_bits<4, 0x0f0f0f0fu>(w[i], w[i + 4]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange_bits<2, 0x33333333u>(w[(i & 1) + (i & 2) * 2], w[(i & 1) + (i & 2) * 2 + 2]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange_bits<1, 0x55555555u>(w[2 * i], w[2 * i + 1]);
}

// Byte i of word j becomes byte j of word i.
__device__ __forceinline__ void transpose_bytes(u32 &a, u32 &b, u32 &c, u32 &d) {
    u32 ab0 = permute<0x5140>(a, b), ab1 = permute<0x7362>(a, b), cd0 = permute<0x5140>(c, d),
        cd1 = permute<0x7362>(c, d);
    a = permute<0x5410>(ab0, cd0), b = permute<0x7632>(ab0, cd0), c = permute<0x5410>(ab1, cd1),
    d = permute<0x7632>(ab1, cd1);
}

// ---- over a warp ----

__device__ __forceinline__ u32 bit_width(u32 v) {
    return highest_bit(v) + 1;
}

// The sum over this lane and those before it.
__device__ __forceinline__ u32 inclusive_sum(u32 v, u32 lane) {
#ifdef COMET_CUDA_EMULATION
    for (int d = 1; d < 32; d *= 2) {
        u32 before = __shfl_up_sync(ALL_LANES, v, d);
        v += lane >= (u32)d ? before : 0;
    }
#else
    (void)lane;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) // the shuffle itself says whether there is such a lane
        asm volatile("{ .reg .pred p; .reg .u32 t; shfl.sync.up.b32 t|p, %0, %1, 0, -1; @p add.u32 %0, %0, t; }"
                     : "+r"(v)
                     : "r"(d));
#endif
    return v;
}

// Where a unit of 16 bytes lies in shared memory, so that lanes that read two neighbouring units meet no bank conflict.
// The units `lane` and lane + 32 of one access lie 32 apart, 2 lane and 2 lane + 1 of the other differ in the last bit.
__device__ __forceinline__ u32 unit_place(u32 unit) {
    return unit ^ (unit >> 3 & 1);
}

#endif
