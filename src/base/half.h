/* SPDX-License-Identifier: Apache-2.0 */
/* fp16 and bf16 to fp32 and back, rounding to nearest even, NaN payloads kept as far as they fit. Portable and exact. */
#ifndef COMET_BASE_HALF_H
#define COMET_BASE_HALF_H

#include "base/bits.h"

static inline float comet_bf16_to_f32(uint16_t h) {
    return comet_float_of((uint32_t)h << 16);
}

static inline uint16_t comet_bf16_of_f32(float f) {
    uint32_t u = comet_bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* quiet: the payload's top bits alone could read as infinity */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float comet_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u)
        return comet_float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest >= 0x400u)
        return comet_float_of(sign | ((rest << 13) + (112u << 23)));
    /* subnormal: rest * 2^-24, exact in fp32; built from integers so that no mode of the machine can flush it */
    float magnitude = (float)rest * 0x1p-24f;
    return comet_float_of(sign | comet_bits_of(magnitude));
}

static inline uint16_t comet_f16_of_f32(float f) {
    uint32_t u = comet_bits_of(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (a >= 0x38800000u) {
        a += 0xfffu + ((a >> 13) & 1u);
        return (uint16_t)(sign | ((a - (112u << 23)) >> 13));
    }
    if (a < 0x33000000u)
        return (uint16_t)sign; /* below half of the least subnormal; exactly half is a tie to even, 0 */
    uint32_t shift = 126u - (a >> 23), mantissa = (a & 0x7fffffu) | 0x800000u;
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    kept += rest > half || (rest == half && (kept & 1u));
    return (uint16_t)(sign | kept);
}

#endif
