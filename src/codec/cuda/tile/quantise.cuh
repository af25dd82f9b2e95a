// SPDX-License-Identifier: Apache-2.0
// Values to codes and back: docs/format.md, section 3. In every mode a value becomes a code by one fma against a magic
// constant, with the rounding that the mode asks for.
#ifndef COMET_CODEC_CUDA_TILE_QUANTISE_CUH
#define COMET_CODEC_CUDA_TILE_QUANTISE_CUH

#include "codec/cuda/tile/bits.cuh"
#include "codec/cuda/tile/values.cuh"

extern "C" {
#include "codec/eb/quantiser.h"
}
#include "codec/eb/quantiser_steps.h"

// How a kernel turns values into codes and codes into values.
enum Mode { MODE_NEAREST, MODE_KEEP, MODE_GRID, MODE_ANY }; // any: as the stream's flags say, value by value

constexpr float MAGIC = 12582912.0f; // 1.5 * 2^23: adding it to |v| < 2^22 rounds v to an integer, left in the low bits

// ---- values to codes ----

__device__ __forceinline__ int code_of_bits(float sum) {
    return __float_as_int(sum) - __float_as_int(MAGIC);
}

__device__ __forceinline__ int code_nearest(float x, float inverse) {
    return code_of_bits(__fmaf_rn(x, inverse, MAGIC));
}

__device__ __forceinline__ int code_keep_rise(float x, float inverse) {
    int code = code_of_bits(__fmaf_ru(fabsf(x), inverse, MAGIC));
    return __float_as_int(x) < 0 ? -code : code;
}

__device__ __forceinline__ int code_keep_tread(float x, float inverse) {
    u32 bits = __float_as_uint(x);
    int code = code_nearest(x, inverse), least = bits >> 31 ? -1 : 1;
    return code == 0 && (bits << 1) != 0 ? least : code;
}

__device__ __forceinline__ int code_stochastic(float x, float inverse, float noise) {
    return __float2int_rd(__fmaf_rn(x, inverse, noise));
}

__device__ __forceinline__ int code_grid(float y, float inverse, const grid_channel &g) {
    return g.code + code_of_bits(__fmaf_rd(__fsub_rn(y, g.edge), inverse, MAGIC));
}

// The code of a value, plus what `magic` has beyond MAGIC, in the low bits of a float. Keep-mask: of one that is not
// negative.
template <int MODE> __device__ __forceinline__ u32 code_bits(float x, float inverse, float magic) {
    return __float_as_uint(MODE == MODE_KEEP ? __fmaf_ru(x, inverse, magic) : __fmaf_rn(x, inverse, magic));
}

// Keep-mask, any value.
__device__ __forceinline__ u32 code_bits_signed(float x, float inverse, float magic) {
    float code = __fsub_rn(__fmaf_ru(fabsf(x), inverse, MAGIC), MAGIC);
    return __float_as_uint(__fadd_rn(copysignf(code, x), magic));
}

// Four values of rows 0 to 3 as biased bytes; bits(x, magic) as above. The constants are such that the sum has all four
// biases and no carry from the magic ones; all are even, so that ties go as without them.
template <class Bits> __device__ __forceinline__ u32 pack_values(float x0, float x1, float x2, float x3, Bits bits) {
    return bits(x0, MAGIC + 0x80) + (bits(x1, MAGIC + 0x80) << 8) + (bits(x2, MAGIC + 0x140) << 16) +
           (bits(x3, MAGIC + 0xf4) << 24);
}

// The lowest bytes of four words.
__device__ __forceinline__ u32 pack_bytes(u32 q0, u32 q1, u32 q2, u32 q3) {
    return permute<0x5410>(permute<0x0040>(q0, q1), permute<0x0040>(q2, q3));
}

// The second bytes of four words.
__device__ __forceinline__ u32 pack_second_bytes(u32 q0, u32 q1, u32 q2, u32 q3) {
    return permute<0x5410>(permute<0x0051>(q0, q1), permute<0x0051>(q2, q3));
}

// A code of 16 bits, in the lower half of the answer. Keep-mask of 16-bit types rounds to nearest, but not to 0.
template <int DTYPE, int MODE> __device__ __forceinline__ u32 wide_code(float x, float inverse) {
    if (MODE == MODE_KEEP)
        return (u32)(DTYPE == COMET_F32 ? code_keep_rise(x, inverse) : code_keep_tread(x, inverse));
    return __float_as_uint(__fmaf_rn(x, inverse, MAGIC));
}

// ---- noise ----

// Philox-4x32-10 of one counter.
__device__ __forceinline__ uint4 philox(uint4 c, u64 key) {
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        u32 high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c;
}

__device__ __forceinline__ float noise_of(u32 r, bool wide) {
    u32 odd = wide ? 2 * (r >> 8) + 1 : 2 * r + 1;
    return __fmul_rn(__int2float_rn((int)odd), wide ? 0x1p-9f : 0x1p-17f);
}

// ---- codes to values ----

// Of any class; base: of the channel's grid.
__device__ __forceinline__ float value_of_code(int q, const quantiser_class &c, float base) {
    if (c.mode == QUANTISE_GRID)
        return __fmaf_rn(__fadd_rn(__int2float_rn(q), QUANTISER_GRID_BIAS), c.step, base);
    if (c.mode == QUANTISE_KEEP_RISE)
        return __fmul_rn(__int2float_rn(2 * q - (q > 0) + (q < 0)), __fmul_rn(0.5f, c.step));
    return __fmul_rn(__int2float_rn(q), c.step);
}

// ---- grids ----

struct GridTables { // device memory; NULL where the format has a default
    const float *scale, *shift, *threshold, *slope;
};

static inline u32 is_whole(const GridTables &t) {
    return t.scale && t.shift && t.threshold && t.slope;
}

// The edge of quantiser_grid for codes that come as near as `limit` to 0, without its branches.
__device__ __forceinline__ float grid_edge(float threshold, float slope, float limit) {
    const u32 bits = __float_as_uint(__fadd_rn(threshold, 0.0f)); // -0 becomes 0
    const float after = __uint_as_float((int)bits < 0 ? bits - 1 : bits + 1);
    const float edge = slope < 0.0f ? threshold : after;
    return fabsf(threshold) < limit ? edge : 0.0f;
}

// fma(scale, x, shift); a NaN keeps its payload, one that the arithmetic makes of a number is 0x7fc00000.
__device__ __forceinline__ float scaled(float x, float scale, float shift) {
    float y = __fmaf_rn(scale, x, shift);
    u32 bits = __float_as_uint(x);
    if (y != y)
        y = __uint_as_float((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : 0x7fc00000u);
    return y;
}

#endif
