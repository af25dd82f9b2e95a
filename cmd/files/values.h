/* SPDX-License-Identifier: Apache-2.0 */
/* Values of all dtypes as the command needs them. Written apart from the library, whose results it checks. */
#ifndef COMET_CMD_VALUES_H
#define COMET_CMD_VALUES_H

#include <stdint.h>

#include "comet/tensor.h"

/* Value number `index` of an array without gaps. Exact for every dtype. */
float values_get(comet_dtype dtype, const void *values, int64_t index);

/* Rounds to nearest even; f16 overflows to infinity; u8 is cut to 0 .. 255, NaN is 0 there. */
void values_set(comet_dtype dtype, void *values, int64_t index, float value);

/* `count` values of one dtype to another. */
void values_convert(comet_dtype from, const void *source, comet_dtype to, void *target, int64_t count);

/* Copies what the view shows, row-major, without gaps. */
void values_pack(const comet_tensor *view, void *packed);

typedef struct values_summary {
    int64_t count, zeros, nonfinite;
    double min, max, rms; /* of the finite values; rms of the finite non-zeros; 0 if there are none */
} values_summary;

void values_summarise(comet_dtype dtype, const void *values, int64_t count, values_summary *summary);

#endif
