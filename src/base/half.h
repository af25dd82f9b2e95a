/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp16 and bf16 to fp32 and back, rounding to nearest even, NaN payloads kept as far as they fit. Portable and exact;
 * written with selections, not branches, so that loops over them become vector code.
 */
#ifndef COMET_BASE_HALF_H
#define COMET_BASE_HALF_H

#include "base/bits.h"

static inline float comet_bf16_to_f32(uint16_t h) {
    return comet_float_of((uint32_t)h << 16);
}

static inline uint16_t comet_bf16_of_f32(float f) {
    uint32_t u = comet_bits_of(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u; /* quiet: the payload's top bits alone could read as infinity */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float comet_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t special = 0x7f800000u | (rest & 0x3ffu) << 13;
    /* rest * 2^-24, built from an integer so that no mode of the machine can flush it */
    uint32_t subnormal = comet_bits_of((float)(int32_t)rest * 0x1p-24f);
    uint32_t magnitude = rest < 0x400u ? subnormal : normal;
    magnitude = rest >= 0x7c00u ? special : magnitude;
    return comet_float_of(sign | magnitude);
}

static inline uint16_t comet_f16_of_f32(float f) {
    uint32_t u = comet_bits_of(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    /* the spacing of fp32 at 1/2 is 2^-24, that of fp16's subnormals: the addition rounds */
    uint32_t subnormal = comet_bits_of(comet_float_of(a) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
    uint32_t magnitude = a < 0x38800000u ? subnormal : normal;
    magnitude = a >= 0x477ff000u ? 0x7c00u : magnitude; /* 65520 and above round to infinity */
    magnitude = a > 0x7f800000u ? nan : magnitude;
    return (uint16_t)(sign | magnitude);
}

#endif
