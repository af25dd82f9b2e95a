// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows: one multiplication where both fit 32 bits.
#ifndef COMET_CODEC_CUDA_DIVIDE_CUH
#define COMET_CODEC_CUDA_DIVIDE_CUH

#include "codec/cuda/device.cuh"

struct divider {
    u64 by;
    u64 inverse; // ceil(2^64 / by); 0: none
};

struct quotient {
    u64 of, rest;
};

static inline divider divider_of(u64 by) {
    return {by, by > 1 && by <= 0xffffffffu ? ~(u64)0 / by + 1 : 0};
}

// inverse * by < 2^64 + by, so that n * inverse is above n / by * 2^64 by less than n * 2^32 / by: below 2^32 the floor
// is right.
__device__ __forceinline__ u64 divide(u64 n, divider d) {
    if (d.inverse && n <= 0xffffffffu)
        return __umul64hi(n, d.inverse);
    return d.by == 1 ? n : n / d.by;
}

// For a divider that has an inverse.
__device__ __forceinline__ u32 divide_small(u32 n, divider d) {
    return (u32)__umul64hi(n, d.inverse);
}

__device__ __forceinline__ quotient split(u64 n, divider d) {
    u64 of = divide(n, d);
    return {of, n - of * d.by};
}

// n / divisor for n < 2^31.
struct Divide {
    u32 divisor, multiplier, shift;
    __device__ __forceinline__ u32 operator()(u32 n) const {
        return (__umulhi(n, multiplier) + n) >> shift;
    }
};

static inline Divide divide_by(u32 divisor) {
    Divide d = {divisor, 0, 0};
    while ((1ull << d.shift) < divisor)
        d.shift++;
    d.multiplier = (u32)(((1ull << 32) * ((1ull << d.shift) - divisor)) / divisor + 1);
    return d;
}

// The same for divisors above 1, without the addition: multiplier * divisor is above 2^(32 + shift) by less than
// the divisor, and so by less than 2^(1 + shift), which n < 2^31 does not make a whole.
struct DivideAboveOne {
    u32 divisor, multiplier, shift;
    __device__ __forceinline__ u32 operator()(u32 n) const {
        return __umulhi(n, multiplier) >> shift;
    }
};

static inline DivideAboveOne divide_by_above_one(u32 divisor) {
    DivideAboveOne d = {divisor, 0, 0};
    while ((2ull << d.shift) < divisor)
        d.shift++;
    if (divisor > 1)
        d.multiplier = (u32)(((1ull << (32 + d.shift)) + divisor - 1) / divisor);
    return d;
}

#endif
