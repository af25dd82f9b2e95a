/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring coders: what to measure, what came out, and how it is shown. */
#ifndef COMET_CMD_BENCH_H
#define COMET_CMD_BENCH_H

#include "check.h"
#include "coder.h"
#include "tensors.h"

enum { BENCH_MAX = 32 }; /* of each list */

/* Every tensor in every layout and dtype, with every coder, at every bound (those without a bound: once). */
typedef struct bench_plan {
    tensor_list data;
    coder_spec coders[BENCH_MAX];
    double errors[BENCH_MAX]; /* bounds, relative to the rms of the non-zeros */
    comet_layout layouts[BENCH_MAX];
    comet_dtype dtypes[BENCH_MAX];
    int coder_count, error_count;
    int layout_count, dtype_count; /* 0: as the tensor is */
    comet_isa isa;
    comet_threads *threads;
    int runs;           /* medians of so many */
    size_t timed_bytes; /* tensors are repeated to at least this for timing */
    int warm_up;
    int quiet;
} bench_plan;

/* Bytes of the tensor per second, in 10^9; NaN: not measured. */
typedef struct bench_speed {
    double copy, compress, decompress;
} bench_speed;

typedef struct bench_result {
    const char *name;
    comet_tensor tensor; /* shape, layout and dtype only */
    const coder_spec *coder;
    double error_rel, bound; /* NaN: none */
    size_t bytes_raw, bytes_stored;
    check_report check;
    size_t bytes_timed;
    bench_speed one, all; /* one thread, all threads */
} bench_result;

typedef struct bench_results {
    bench_result *items;
    size_t count, room;
    size_t left_out; /* combinations that a coder does not take */
} bench_results;

/*
 * Runs the plan. `show` (may be NULL) is called with each result as it comes. Names and coders of the results point
 * into the plan.
 */
int bench_run(const bench_plan *plan, void (*show)(const bench_result *result), bench_results *results);
void bench_results_free(bench_results *results);

typedef struct bench_room {
    buffer input, output, stream; /* kept from one measurement to the next */
} bench_room;

/* Measures result->coder at result->error_rel on a tensor. COMET_ERROR_UNSUPPORTED: it does not take such a tensor. */
comet_status bench_measure(const bench_plan *plan, const comet_tensor *tensor, bench_room *room, bench_result *result);

/* The speed of `one` and `all` on the tensor, repeated. Both are prepared. */
comet_status bench_time(const bench_plan *plan, const comet_tensor *tensor, coder *one, coder *all, bench_room *room,
                        bench_result *result);

/* Results that differ in nothing but the tensor. */
typedef struct bench_group {
    const bench_result *example;
    int tensors;
    double ratio; /* geometric mean */
    double max_error_over_bound, rms_error;
    int64_t violations, zeros_broken, mask_broken;
    bench_speed one, all;                            /* medians */
    double compress_over_copy, decompress_over_copy; /* medians of the quotients, one thread */
    double compress_over_copy_all, decompress_over_copy_all;
    double compress_over_zfp, decompress_over_zfp; /* where zfp ran on the same tensor with the same bound */
} bench_group;

typedef struct bench_summary {
    bench_group *items;
    size_t count;
} bench_summary;

int bench_summarise(const bench_results *results, bench_summary *summary);
void bench_summary_free(bench_summary *summary);

void bench_print_head(void);
void bench_print_result(const bench_result *result);
void bench_print_summary(const bench_summary *summary);
void bench_print_json(const bench_plan *plan, const bench_results *results, const bench_summary *summary);

#endif
