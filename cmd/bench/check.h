/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of a round trip. It sees the values that went in, those that came out and the bound that was asked for,
 * nothing else, and computes in double: there the difference of two fp32 values is exact, or off by a 2^-53rd of itself
 * where one is more than 2^29 times the other.
 */
#ifndef COMET_CMD_CHECK_H
#define COMET_CMD_CHECK_H

#include <stdint.h>

#include "comet/tensor.h"
#include "comet/threads.h"

typedef enum check_kind {
    CHECK_EXACT,   /* every bit must come back */
    CHECK_BOUNDED, /* |x - x'| <= bound for finite x; NaN and infinities exactly */
    CHECK_NOTHING  /* errors are measured, none is a violation */
} check_kind;

/* Thresholds that no value may cross: of channel (i / stride) mod channels for value number i. */
typedef struct check_sides {
    int64_t channels, stride;
    const float *threshold, *slope; /* slope < 0: on below the threshold, else above it */
} check_sides;

typedef struct check_task {
    check_kind kind;
    double bound; /* CHECK_BOUNDED: > 0 */
    int keep_mask;
    const check_sides *sides; /* NULL: none. With them zeros are values as others, and a NaN may become another. */
    comet_dtype dtype;
    int64_t first; /* the number of input[0] in its tensor, for `sides` */
    int64_t count;
    const void *input, *output;
} check_task;

typedef struct check_report {
    double max_error;            /* over finite values */
    double max_error_over_bound; /* NaN unless CHECK_BOUNDED */
    double rms_error; /* over finite values, in units of the rms of the input's finite non-zeros; NaN without any */
    int64_t violations;
    int64_t zeros, zeros_broken; /* zeros of the input; how many came back as something else (0 with sides) */
    int64_t mask_broken;         /* keep_mask: non-zeros that came back as zero or with the other sign; */
                                 /* sides: values that came back on the other side of their threshold */
} check_report;

void check_round_trip(const check_task *task, check_report *report);

/* The same with an input of `period` values (> 0) that is repeated, or cut, to as many as the output has. */
void check_repeated(const check_task *task, int64_t period, comet_threads *threads, check_report *report);

#endif
