/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between dtypes, strided copies, summaries. */
#include "cmd/files/values.h"

#include <math.h>
#include <string.h>

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0)
        return copysignf(ldexpf((float)fraction, -24), float_of(sign));
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Rounds bits to a multiple of 2^drop (nearest, ties to even) and drops those zeros. */
static uint32_t drop_bits(uint32_t bits, int drop) {
    uint32_t kept = bits >> drop, rest = bits & ((1u << drop) - 1), half = 1u << (drop - 1);
    return kept + (rest > half || (rest == half && kept & 1));
}

static uint16_t f16_of_float(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= bits_of(65520.0f))
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= bits_of(0x1p-14f))
        return (uint16_t)(sign | drop_bits(magnitude - (112u << 23), 13));
    return (uint16_t)(sign | (uint32_t)lrintf(ldexpf(fabsf(value), 24))); /* subnormal: a multiple of 2^-24 */
}

static uint16_t bf16_of_float(float value) {
    uint32_t bits = bits_of(value);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)drop_bits(bits, 16);
}

static uint8_t u8_of_float(float value) {
    if (!(value > 0))
        return 0;
    return value >= 255 ? 255 : (uint8_t)lrintf(value);
}

float values_get(comet_dtype dtype, const void *values, int64_t index) {
    switch (dtype) {
    case COMET_F32:
        return ((const float *)values)[index];
    case COMET_F16:
        return float_of_f16(((const uint16_t *)values)[index]);
    case COMET_BF16:
        return float_of((uint32_t)((const uint16_t *)values)[index] << 16);
    case COMET_U8:
        return ((const uint8_t *)values)[index];
    }
    return NAN;
}

void values_set(comet_dtype dtype, void *values, int64_t index, float value) {
    switch (dtype) {
    case COMET_F32:
        ((float *)values)[index] = value;
        break;
    case COMET_F16:
        ((uint16_t *)values)[index] = f16_of_float(value);
        break;
    case COMET_BF16:
        ((uint16_t *)values)[index] = bf16_of_float(value);
        break;
    case COMET_U8:
        ((uint8_t *)values)[index] = u8_of_float(value);
        break;
    }
}

void values_convert(comet_dtype from, const void *source, comet_dtype to, void *target, int64_t count) {
    if (from == to) {
        memcpy(target, source, (size_t)count * comet_dtype_size(to));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        values_set(to, target, i, values_get(from, source, i));
}

static uint8_t *pack_dimension(const comet_tensor *view, int32_t d, const uint8_t *from, uint8_t *to) {
    size_t size = comet_dtype_size(view->dtype);
    if (d == view->ndim) {
        memcpy(to, from, size);
        return to + size;
    }
    for (int64_t i = 0; i < view->shape[d]; i++)
        to = pack_dimension(view, d + 1, from + i * view->strides[d] * (int64_t)size, to);
    return to;
}

void values_pack(const comet_tensor *view, void *packed) {
    if (comet_tensor_is_contiguous(view))
        memcpy(packed, view->data, (size_t)comet_tensor_count(view) * comet_dtype_size(view->dtype));
    else
        pack_dimension(view, 0, view->data, packed);
}

void values_summarise(comet_dtype dtype, const void *values, int64_t count, values_summary *summary) {
    double squares = 0;
    int64_t finite = 0;
    *summary = (values_summary){.count = count};
    for (int64_t i = 0; i < count; i++) {
        double value = values_get(dtype, values, i);
        if (!isfinite(value))
            continue;
        summary->zeros += value == 0;
        summary->min = finite && summary->min < value ? summary->min : value;
        summary->max = finite && summary->max > value ? summary->max : value;
        squares += value * value;
        finite++;
    }
    summary->nonfinite = count - finite;
    if (finite > summary->zeros)
        summary->rms = sqrt(squares / (double)(finite - summary->zeros));
}
