/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring coders: what to measure, what came out, and how it is shown. */
#ifndef COMET_CMD_BENCH_H
#define COMET_CMD_BENCH_H

#include "cmd/bench/check.h"
#include "cmd/bench/coder.h"
#include "cmd/bench/grid.h"
#include "cmd/common/json.h"
#include "cmd/files/tensors.h"

enum { BENCH_MAX = 32 }; /* of each list */

/* Every tensor in every layout and dtype, with every coder, at every bound (those without a bound: once). */
typedef struct bench_plan {
    comet_device device;
    tensor_list data;
    coder_spec coders[BENCH_MAX];
    double errors[BENCH_MAX]; /* bounds, relative to the rms of the non-zeros (of u, which is 1, on a grid) */
    comet_layout layouts[BENCH_MAX];
    comet_dtype dtypes[BENCH_MAX];
    int coder_count, error_count;
    int layout_count, dtype_count; /* 0: as the tensor is */
    double sizes[BENCH_MAX];       /* CUDA: MiB that a tensor is cut or repeated to; 0: as it is */
    int size_count;
    comet_isa isa;
    comet_threads *threads;
    int runs;           /* medians of so many */
    size_t timed_bytes; /* tensors are repeated to at least this for timing */
    int warm_up;
    int quiet;
    int stats; /* CUDA: statistics are gathered, too */
} bench_plan;

/* Bytes of the tensor per second, in 10^9; NaN: not measured. */
typedef struct bench_speed {
    double copy, compress, decompress;
} bench_speed;

typedef struct bench_result {
    const char *name;
    comet_tensor tensor; /* shape, layout and dtype only */
    const coder_spec *coder;
    coder_mode mode;         /* what the coder did: never CODER_TRAINING */
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

/* How many of the plan's bounds a coder is measured at. */
int bench_errors_of(const bench_plan *plan, const coder_spec *spec);

/* The tensor in the layout and dtype asked for, in memory of its own. */
int bench_variant(const named_tensor *item, comet_layout layout, comet_dtype dtype, array *variant);

typedef struct bench_room {
    buffer input, output, stream; /* kept from one measurement to the next */
    bench_grid grid;
} bench_room;

/* Measures result->coder at result->error_rel on a tensor. COMET_ERROR_UNSUPPORTED: it does not take such a tensor. */
comet_status bench_measure(const bench_plan *plan, const comet_tensor *tensor, bench_room *room, bench_result *result);

/* Values that are not what Comet's codec promises: beyond the bound, zeros or sides lost. 0 for peers. */
int64_t bench_broken(const bench_result *result);

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

/* Parts of tables: a number, or a dash where there is none; "eb+mask", "eb+grid". */
void bench_print_number(int width, int precision, double value);
void bench_print_count(int width, int promised, int64_t value);
const char *bench_label(const bench_result *result, char *label, size_t capacity);

/*
 * Parts of JSON objects: what a result is of, in a mode (its own, or CODER_TRAINING for a sum over modes); all its
 * fields; a count that is null where nothing was promised.
 */
void bench_json_key(json *j, const bench_result *result, coder_mode mode);
void bench_json_result(json *j, const bench_result *result);
void bench_json_count(json *j, const char *key, int promised, int64_t value);

/* The sub-command but for steps: comet bench codec, comet bench norm. argv[0] is "bench". */
int bench_tensors(int argc, char **argv);

#endif
