/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring codecs on a GPU, beside a device-to-device copy of the same tensor. Nothing here needs CUDA's headers: what
 * does is in cmd/cuda and only compiled where there is CUDA.
 */
#ifndef COMET_CMD_BENCH_CUDA_H
#define COMET_CMD_BENCH_CUDA_H

#include "cmd/bench/bench.h"

typedef struct cuda_facts {
    char name[256];
    int compute;                   /* 90 is 9.0 */
    int driver_cuda, runtime_cuda; /* 13000 is 13.0 */
    int multiprocessors;
    size_t memory, l2; /* bytes */
} cuda_facts;

/* Milliseconds of one call. */
typedef struct cuda_times {
    double copy, compress, decompress;
    double decompress_bn; /* to the output of batch norm and ReLU; NaN: not on a grid */
} cuda_times;

typedef struct cuda_result {
    bench_result base;     /* of the tensor cut or repeated to the size; bytes_stored is serialised, as on the CPU */
    double size;           /* MiB asked for; 0: as the tensor is */
    size_t bytes_resident; /* of the stream in device memory, gaps included */
    int64_t tiles, tiles_exact, tiles_wide;
    cuda_times ms;                   /* medians */
    int buffers;                     /* inputs (and streams, and outputs) that the calls went round over, */
    double l2_turns;                 /* and how many times the L2 cache the inputs are together */
    int stream_as_cpu, stats_as_cpu; /* 1: the same as the CPU's; -1: not compared */
} cuda_result;

typedef struct cuda_results {
    cuda_facts facts;
    cuda_result *items;
    size_t count, room;
    size_t left_out; /* combinations that a codec does not take */
} cuda_results;

/* Times in units of the copy's, over tensors. NaN and NULL: not measured. */
typedef struct cuda_quotient {
    double median, worst;
    const char *worst_name; /* of the tensor */
} cuda_quotient;

/* Results that differ in nothing but the tensor; of CODER_TRAINING: and in what that meant for it. */
typedef struct cuda_group {
    const cuda_result *example;
    coder_mode mode;
    int tensors;
    double ratio, ratio_resident; /* geometric means */
    double max_error_over_bound, rms_error;
    int64_t violations, zeros_broken, mask_broken;
    int differ;    /* streams or statistics that are not the CPU's */
    cuda_times ms; /* medians */
    cuda_quotient compress, decompress, decompress_bn;
} cuda_group;

/* Groups of one mode each, then those of CODER_TRAINING, where it was asked for. */
typedef struct cuda_summary {
    cuda_group *items;
    size_t count;
} cuda_summary;

/* Whether the plan's GPU can be used; says what to do if not. */
int bench_cuda_check(const bench_plan *plan);

/* Runs the plan and prints what comes out. */
int bench_cuda(const bench_plan *plan, int as_json);

/* Runs the plan (cmd/cuda). `show` (may be NULL) is called with each result as it comes. */
int bench_cuda_run(const bench_plan *plan, void (*show)(const cuda_result *result), cuda_results *results);

/* Summaries are freed with free(summary->items). */
int bench_cuda_summarise(const cuda_results *results, cuda_summary *summary);

double cuda_compress_over_copy(const cuda_result *result);
double cuda_decompress_over_copy(const cuda_result *result);
double cuda_decompress_bn_over_copy(const cuda_result *result);

void bench_cuda_print_head(void);
void bench_cuda_print_result(const cuda_result *result);
void bench_cuda_print_summary(const cuda_results *results, const cuda_summary *summary);
void bench_cuda_print_json(const bench_plan *plan, const cuda_results *results, const cuda_summary *summary);

#endif
