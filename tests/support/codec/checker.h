/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker of the error-bounded codec. It sees what went in, what came out and what was promised, and nothing of the
 * library: all comparisons are in double, from the bit patterns.
 */
#ifndef TESTS_SUPPORT_CHECKER_H
#define TESTS_SUPPORT_CHECKER_H

#include <stdint.h>

#include "comet/codec.h"
#include "support/failure.h"

typedef struct check_rules {
    comet_dtype dtype; /* of the input; the output has it too, but for a grid, whose output is fp32 */
    double bound;      /* 0: every bit must be the same */
    int keep_mask;
    const comet_codec_grid *grid; /* NULL: none */
    int64_t channel_stride;       /* grid: value i has channel i / channel_stride mod channels */
} check_rules;

typedef struct check_counts {
    int64_t values;
    int64_t over_bound;     /* |x - x'| > bound, or not finite though x is */
    int64_t zeros_broken;   /* zero before, not after */
    int64_t mask_broken;    /* keep-mask: sign or non-zero lost */
    int64_t special_broken; /* a NaN or an infinity changed */
    int64_t side_broken;    /* grid: on the other side of the threshold */
    int64_t bits_broken;    /* bound 0: not identical */
    double worst;           /* largest |x - x'| / bound */
    int64_t first;          /* index of the first value that is wrong */
} check_counts;

/* Adds to *counts. Returns the number of values that break a promise. */
int64_t check_values(const check_rules *rules, const void *in, const void *out, int64_t count, check_counts *counts);

/* The same with a text for the first value that is wrong. */
int check_round_trip(const check_rules *rules, const void *in, const void *out, int64_t count, failure *f);

/* The statistics against a plain computation in double. */
int check_stats(const check_rules *rules, const void *in, int64_t count, const comet_codec_stats *stats, failure *f);

/* What the codec stores of value i: x itself, or fma(scale, x, shift) as fp32. Its pattern. */
uint32_t check_stored_bits(const check_rules *rules, const void *in, int64_t i);

#endif
