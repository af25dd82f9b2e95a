// SPDX-License-Identifier: Apache-2.0
// group on the device: the range of a group's values and their codes, eight values of a thread at a time.
#ifndef COMET_CODEC_CUDA_GROUP_CODES_CUH
#define COMET_CODEC_CUDA_GROUP_CODES_CUH

#include <float.h>

#include "codec/cuda/device.cuh"
#include "codec/cuda/divide.cuh"

constexpr int OCTET = 8; // values of a lane side by side: whole bytes of codes, and one draw of random bits
constexpr float LEAST_RANGE = 0x1p-100f;
constexpr float MAGIC = 0x1p23f; // what is added to a small number leaves the nearest integer in the low bits
constexpr u32 MAGIC_BITS = 0x4b000000u;

struct group_shape {
    u64 count, values, groups;
    u32 bits;
    u64 codes_at, bytes; // from the body's start; of the whole stream
    bool stochastic;
    u64 seed;
    u32 base; // 2^bits, which a compiler must not know: it would shift and add instead of doing both at once
    // compressing groups of up to 1,024 values
    u64 whole;        // groups that are not cut short
    u32 lanes_log;    // log2 of how many lanes of a warp share a group
    u32 a_warp;       // groups that a warp does at a time
    u32 next_group;   // from one of a lane's octets to the next: groups (0: all are of one)
    u32 next_value;   // and values
    divider by_group; // decompressing: vectors a group
};

// ---- minimum and range ----

struct scale {
    float least, range, inverse, levels;
};

__device__ __forceinline__ scale scale_of(float least, float greatest, float levels) {
    scale s = {least, 0.0f, 0.0f, levels};
    const float width = __fsub_rn(greatest, least);
    if (width >= LEAST_RANGE) {
        s.range = width <= FLT_MAX ? width : FLT_MAX;
        s.inverse = __fdiv_rn(levels, s.range);
    }
    return s;
}

__device__ __forceinline__ float levels_of(u32 bits) {
    return (float)((1u << bits) - 1);
}

// The extent of values, of which none is known to be finite.
struct extent {
    int least, greatest; // patterns in the order of the values
};

// fp32 patterns as integers in the order of the values, -0 below +0; its own inverse.
__device__ __forceinline__ int order_of(int pattern) {
    return pattern ^ (int)((u32)(pattern >> 31) >> 1);
}

__device__ __forceinline__ void extend(extent *e, float x) {
    int pattern = __float_as_int(x), order = order_of(pattern);
    bool finite = (pattern & 0x7fffffff) < 0x7f800000;
    e->least = min(e->least, finite ? order : INT32_MAX);
    e->greatest = max(e->greatest, finite ? order : INT32_MIN);
}

__device__ __forceinline__ extent reduce_warp(extent e) {
    return {__reduce_min_sync(ALL_LANES, e.least), __reduce_max_sync(ALL_LANES, e.greatest)};
}

__device__ __forceinline__ scale scale_of(extent e, u32 bits) {
    if (e.least > e.greatest) // nothing finite
        return {0.0f, 0.0f, 0.0f, levels_of(bits)};
    return scale_of(__int_as_float(order_of(e.least)), __int_as_float(order_of(e.greatest)), levels_of(bits));
}

// The same from patterns as they are, three at a time: as signed integers the greatest is the greatest value, if one is
// not negative, as unsigned ones the greatest is the least value, if one is negative; where all have one sign, the
// least unsigned one is the other end. What is not finite shows at the ends.
struct span {
    int high;
    u32 low, near;
};

__device__ __forceinline__ span span_of(const float (&x)[OCTET]) {
    span s = {__float_as_int(x[0]), __float_as_uint(x[0]), __float_as_uint(x[0])};
#pragma unroll
    for (int i = 1; i < OCTET; i += 2) { // the last one twice
        const float a = x[i], b = x[i + 1 < OCTET ? i + 1 : i];
        s.high = max3(s.high, __float_as_int(a), __float_as_int(b));
        s.low = max3(s.low, __float_as_uint(a), __float_as_uint(b));
        s.near = min3(s.near, __float_as_uint(a), __float_as_uint(b));
    }
    return s;
}

__device__ __forceinline__ span both(const span &a, const span &b) {
    return {max(a.high, b.high), max(a.low, b.low), min(a.near, b.near)};
}

// Over the lanes that share a group.
__device__ __forceinline__ span reduce_span(span s, u32 lanes_log) {
    if (lanes_log == 5)
        return {__reduce_max_sync(ALL_LANES, s.high), __reduce_max_sync(ALL_LANES, s.low),
                __reduce_min_sync(ALL_LANES, s.near)};
#pragma unroll 1
    for (int apart = 1 << lanes_log >> 1; apart; apart /= 2)
        s = both(s, {__shfl_xor_sync(ALL_LANES, s.high, apart), __shfl_xor_sync(ALL_LANES, s.low, apart),
                     __shfl_xor_sync(ALL_LANES, s.near, apart)});
    return s;
}

// Whether place() of all values lies where rounding alone brings it to between 0 and `levels`: they are finite, and so
// is their range.
__device__ __forceinline__ bool find_scale(const span &s, u32 bits, scale *found) {
    const float least = __uint_as_float((int)s.low < 0 ? s.low : s.near);
    const float greatest = __uint_as_float(s.high < 0 ? s.near : (u32)s.high);
    *found = scale_of(least, greatest, levels_of(bits));
    return s.high < 0x7f800000 && s.low < 0xff800000u && __fsub_rn(greatest, least) <= FLT_MAX;
}

// ---- codes: integers above MAGIC_BITS ----

// A value's place between 0 and `levels`; NaN, and everything if the inverse is 0, at 0.
__device__ __forceinline__ float place(float x, const scale &s) {
    float p = __fmul_rn(__fsub_rn(x, s.least), s.inverse);
    p = p > 0.0f ? p : 0.0f;
    return p < s.levels ? p : s.levels;
}

// Four codes side by side; above them may be what is left of MAGIC_BITS.
__device__ __forceinline__ u32 pack(const u32 *codes, u32 base) {
    return ((codes[3] * base + codes[2]) * base + codes[1]) * base + codes[0];
}

// The codes of an octet, four by four.
__device__ __forceinline__ uint2 round_nearest(const float (&x)[OCTET], const scale &s, u32 base) {
    u32 codes[OCTET];
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        codes[i] = __float_as_uint(__fadd_rn(place(x[i], s), MAGIC));
    return make_uint2(pack(codes, base), pack(codes + 4, base));
}

// The same where find_scale allows it: what place() would cut off is less than half above `levels`.
__device__ __forceinline__ uint2 round_plain(const float (&x)[OCTET], float least, float inverse, u32 base) {
    u32 codes[OCTET];
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        codes[i] = __float_as_uint(__fadd_rn(__fmul_rn(__fsub_rn(x[i], least), inverse), MAGIC));
    return make_uint2(pack(codes, base), pack(codes + 4, base));
}

// base/philox.h
__device__ __forceinline__ void philox(u32 (&c)[4], u64 key) {
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        u64 p0 = (u64)0xD2511F53u * c[0], p1 = (u64)0xCD9E8D57u * c[2];
        c[0] = (u32)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (u32)p1;
        c[2] = (u32)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (u32)p0;
    }
}

// A function of its own, which kernels have once for what they do in several places.
static __device__ __noinline__ uint2 round_random(float4 x0, float4 x1, scale s, u32 base, u64 group, u32 octet,
                                                  u64 seed) {
    const float x[OCTET] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
    u32 r[4] = {(u32)group, (u32)(group >> 32), octet, 1}, codes[OCTET];
    philox(r, seed);
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        int bits = (int)(r[i / 2] >> 16 * (i % 2) & 0xffffu);
        float sum = __fadd_rn(place(x[i], s), __fmul_rn((float)(2 * bits + 1), 0x1p-17f));
        codes[i] = MAGIC_BITS | (u32)(int)(sum < s.levels ? sum : s.levels); // it may round up to levels + 1
    }
    return make_uint2(pack(codes, base), pack(codes + 4, base));
}

__device__ __forceinline__ uint2 round_random(const group_shape &g, const float (&x)[OCTET], const scale &s, u64 group,
                                              u32 octet) {
    return round_random(make_float4(x[0], x[1], x[2], x[3]), make_float4(x[4], x[5], x[6], x[7]), s, g.base, group,
                        octet, g.seed);
}

__device__ __forceinline__ void store_codes(u8 *to, u32 bits, uint2 codes) {
    if (bits == 2)
        *(u16 *)to = (u16)permute<0x4140>(codes.x, codes.y);
    else if (bits == 4)
        *(u32 *)to = permute<0x5410>(codes.x, codes.y);
    else
        *(uint2 *)to = make_uint2(codes.x - MAGIC_BITS, codes.y - MAGIC_BITS);
}

// Of an octet that is cut short, n codes; those behind are 0, as what stands for their values is.
__device__ __forceinline__ void store_some(u8 *to, u32 bits, u32 n, uint2 codes) {
    const u32 four = bits == 8 ? ~0u : (1u << 4 * bits) - 1;
    const u32 magic = bits == 8 ? MAGIC_BITS : 0;
    const u64 packed = ((codes.x - magic) & four) | (u64)((codes.y - magic) & four) << 4 * bits;
    for (u32 i = 0; 8 * i < n * bits; i++)
        to[i] = (u8)(packed >> 8 * i);
}

#endif
