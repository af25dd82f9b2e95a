/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring batch normalisation with the codec in its kernels, on a GPU. Nothing here needs CUDA's headers. */
#ifndef COMET_CMD_BENCH_NORM_H
#define COMET_CMD_BENCH_NORM_H

#include "cmd/bench/bench_cuda.h"

/* What is timed. Forward and backward "plain" keep x, the others the stream of u. */
typedef enum norm_time {
    NORM_COPY,
    NORM_STATISTICS, /* of the batch, and the tables that follow */
    NORM_FORWARD,
    NORM_FORWARD_STREAM,
    NORM_BACKWARD,
    NORM_BACKWARD_STREAM,
    NORM_DECOMPRESS,
    NORM_DECOMPRESS_EPILOGUE, /* to the layer's output: scale, shift, ReLU */
    NORM_ADD,                 /* forward with an addend; */
    NORM_ADD_STREAM,          /* and the stream of u; */
    NORM_ADD_STREAMS,         /* and that of y */
    NORM_ADD_BACKWARD,        /* from both streams, with dz */
    NORM_TIMES
} norm_time;

typedef struct norm_result {
    const char *name;
    comet_tensor tensor; /* shape, layout and dtype only */
    double error_rel;    /* the bound, in units of u's rms, which is 1 */
    double size;         /* MiB asked for; 0: as the tensor is */
    size_t bytes_raw, bytes_resident;
    int64_t tiles, tiles_exact, tiles_wide;
    int buffers;
    double ms[NORM_TIMES]; /* medians of one call */
} norm_result;

typedef struct norm_results {
    cuda_facts facts;
    norm_result *items;
    size_t count, room;
} norm_results;

/* Runs the plan on its GPU and prints what comes out. */
int bench_norm(const bench_plan *plan, int as_json);

/* Runs the plan (cmd/cuda). `show` (may be NULL) is called with each result as it comes. */
int bench_norm_run(const bench_plan *plan, void (*show)(const norm_result *result), norm_results *results);

#endif
