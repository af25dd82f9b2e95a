/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bit patterns of every dtype as doubles, and back, from the definition of IEEE 754; independent of the library's code.
 */
#ifndef TESTS_SUPPORT_NUMBER_H
#define TESTS_SUPPORT_NUMBER_H

#include <stdint.h>
#include <string.h>

#include "comet/tensor.h"

typedef enum number_class { NUMBER_ZERO, NUMBER_FINITE, NUMBER_INFINITE, NUMBER_NAN } number_class;

static inline uint32_t bits_of_float(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The pattern of value i of an array. */
static inline uint32_t bits_at(comet_dtype dtype, const void *patterns, int64_t i) {
    uint32_t v = 0;
    size_t size = comet_dtype_size(dtype);
    memcpy(&v, (const char *)patterns + i * (int64_t)size, size);
    return v;
}

static inline void bits_put(comet_dtype dtype, void *patterns, int64_t i, uint32_t bits) {
    size_t size = comet_dtype_size(dtype);
    memcpy((char *)patterns + i * (int64_t)size, &bits, size);
}

number_class number_class_of(comet_dtype dtype, uint32_t bits);

/* The value; NAN and +-INFINITY for what is not finite. */
double number_of_bits(comet_dtype dtype, uint32_t bits);

/* The nearest pattern, ties to even; beyond the range +-infinity (u8: 0 or 255). NaN becomes a quiet NaN (u8: 0). */
uint32_t bits_of_number(comet_dtype dtype, double value);

/* The largest finite value and the least positive one (u8: 255 and 1). */
double number_largest(comet_dtype dtype);
double number_least(comet_dtype dtype);

/* The neighbour `steps` patterns away from zero (negative: towards it); stays finite and never passes zero. */
uint32_t bits_neighbour(comet_dtype dtype, uint32_t bits, int steps);

#endif
