/* SPDX-License-Identifier: Apache-2.0 */
#include "support/number.h"

#include <math.h>

typedef struct format {
    int exponent, mantissa; /* bits */
} format;

static format format_of(comet_dtype dtype) {
    return dtype == COMET_F32 ? (format){8, 23} : dtype == COMET_F16 ? (format){5, 10} : (format){8, 7};
}

typedef struct parts {
    int negative, exponent, most; /* most: the exponent field of infinities and NaN */
    uint32_t mantissa;
} parts;

static parts parts_of(comet_dtype dtype, uint32_t bits) {
    format f = format_of(dtype);
    return (parts){.negative = (int)(bits >> (f.exponent + f.mantissa) & 1u),
                   .exponent = (int)(bits >> f.mantissa & ((1u << f.exponent) - 1u)),
                   .most = (1 << f.exponent) - 1,
                   .mantissa = bits & ((1u << f.mantissa) - 1u)};
}

number_class number_class_of(comet_dtype dtype, uint32_t bits) {
    if (dtype == COMET_U8)
        return bits ? NUMBER_FINITE : NUMBER_ZERO;
    parts p = parts_of(dtype, bits);
    if (p.exponent == p.most)
        return p.mantissa ? NUMBER_NAN : NUMBER_INFINITE;
    return p.exponent == 0 && p.mantissa == 0 ? NUMBER_ZERO : NUMBER_FINITE;
}

static int bias_of(format f) {
    return (1 << (f.exponent - 1)) - 1;
}

double number_of_bits(comet_dtype dtype, uint32_t bits) {
    if (dtype == COMET_U8)
        return (double)bits;
    if (dtype == COMET_F32)
        return (double)float_of_bits(bits);
    format f = format_of(dtype);
    parts p = parts_of(dtype, bits);
    double magnitude;
    if (p.exponent == p.most)
        magnitude = p.mantissa ? (double)NAN : (double)INFINITY;
    else if (p.exponent == 0)
        magnitude = ldexp((double)p.mantissa, 1 - bias_of(f) - f.mantissa);
    else
        magnitude = ldexp((double)(p.mantissa | 1u << f.mantissa), p.exponent - bias_of(f) - f.mantissa);
    return p.negative ? -magnitude : magnitude;
}

double number_largest(comet_dtype dtype) {
    if (dtype == COMET_U8)
        return 255.0;
    format f = format_of(dtype);
    return ldexp(2.0 - ldexp(1.0, -f.mantissa), bias_of(f));
}

double number_least(comet_dtype dtype) {
    if (dtype == COMET_U8)
        return 1.0;
    format f = format_of(dtype);
    return ldexp(1.0, 1 - bias_of(f) - f.mantissa);
}

static uint32_t u8_of_number(double value) {
    return !(value > 0.0) ? 0u : value >= 255.0 ? 255u : (uint32_t)nearbyint(value);
}

/* The magnitude's pattern: a multiple of the quantum of its binade. nearbyint ties to even. */
static uint32_t magnitude_bits(format f, double magnitude) {
    int exponent;
    if (magnitude == 0.0)
        return 0;
    frexp(magnitude, &exponent); /* magnitude = m * 2^exponent, 1/2 <= m < 1 */
    int least = 1 - bias_of(f), lead = exponent - 1 > least ? exponent - 1 : least;
    double multiple = nearbyint(ldexp(magnitude, f.mantissa - lead));
    /* A multiple of 2^mantissa or more carries into the exponent field by itself. */
    double bits = multiple + ldexp((double)(lead - least), f.mantissa);
    double infinity = ldexp((double)((1 << f.exponent) - 1), f.mantissa);
    return (uint32_t)(bits < infinity ? bits : infinity);
}

uint32_t bits_of_number(comet_dtype dtype, double value) {
    if (dtype == COMET_U8)
        return u8_of_number(value);
    format f = format_of(dtype);
    uint32_t sign = (uint32_t)(signbit(value) != 0) << (f.exponent + f.mantissa);
    uint32_t infinity = ((1u << f.exponent) - 1u) << f.mantissa;
    if (isnan(value))
        return sign | infinity | 1u << (f.mantissa - 1);
    return sign | (isinf(value) ? infinity : magnitude_bits(f, fabs(value)));
}

uint32_t bits_neighbour(comet_dtype dtype, uint32_t bits, int steps) {
    uint32_t sign = dtype == COMET_U8 ? 0 : bits & 1u << (8 * comet_dtype_size(dtype) - 1);
    int64_t magnitude = (int64_t)(bits ^ sign) + steps;
    int64_t most = dtype == COMET_U8 ? 255 : bits_of_number(dtype, number_largest(dtype));
    magnitude = magnitude < 0 ? 0 : magnitude > most ? most : magnitude;
    return sign | (uint32_t)magnitude;
}
