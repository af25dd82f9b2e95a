/* SPDX-License-Identifier: Apache-2.0 */
/* Loops between the dtypes and fp32, inline so that files built for an instruction set get them in it. */
#ifndef COMET_BASE_CONVERT_H
#define COMET_BASE_CONVERT_H

#include "base/half.h"
#include "comet/tensor.h"

static inline uint8_t comet_u8_of_f32(float f) {
    f = f > 0.0f ? f : 0.0f; /* NaN too */
    f = f < 255.0f ? f : 255.0f;
    return (uint8_t)comet_bits_of(f + 0x1.8p23f); /* rounds to an integer, which is in the low bits */
}

/* Patterns may start at any address. */
static inline void comet_loop_to_f32(comet_dtype dtype, const uint8_t *patterns, int64_t count, float *values) {
    switch (dtype) {
    case COMET_F32:
        memcpy(values, patterns, (size_t)count * sizeof *values);
        break;
    case COMET_F16:
        for (int64_t i = 0; i < count; i++)
            values[i] = comet_f16_to_f32(comet_read_u16(patterns + 2 * i));
        break;
    case COMET_BF16:
        for (int64_t i = 0; i < count; i++)
            values[i] = comet_bf16_to_f32(comet_read_u16(patterns + 2 * i));
        break;
    case COMET_U8:
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)patterns[i];
        break;
    }
}

static inline void comet_loop_of_f32(comet_dtype dtype, const float *values, int64_t count, uint8_t *patterns) {
    switch (dtype) {
    case COMET_F32:
        memcpy(patterns, values, (size_t)count * sizeof *values);
        break;
    case COMET_F16:
        for (int64_t i = 0; i < count; i++)
            comet_write_u16(patterns + 2 * i, comet_f16_of_f32(values[i]));
        break;
    case COMET_BF16:
        for (int64_t i = 0; i < count; i++)
            comet_write_u16(patterns + 2 * i, comet_bf16_of_f32(values[i]));
        break;
    case COMET_U8:
        for (int64_t i = 0; i < count; i++)
            patterns[i] = comet_u8_of_f32(values[i]);
        break;
    }
}

#endif
