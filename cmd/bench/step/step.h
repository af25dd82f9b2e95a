/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench step: what a training step takes, in time and memory, and where the time goes. */
#ifndef COMET_CMD_BENCH_STEP_H
#define COMET_CMD_BENCH_STEP_H

#include "cmd/common/measure.h"
#include "cmd/common/parse.h"
#include "cmd/train/train_options.h"

/* Time of the device between two marks, summed over the nodes of one kind. */
typedef struct step_part {
    const char *name; /* of the kind of op; "loss", "images" */
    int nodes;
    double forward_ms, backward_ms;
} step_part;

enum { STEP_PARTS = COMET_OP_KINDS + 1, STEP_FIRST = 8 };

/* What one variant came to. */
typedef struct step_result {
    const char *variant, *numbers; /* "eb", "bf16" */
    comet_status status;
    comet_message why;                            /* of a failure */
    double ms, least_ms, most_ms;                 /* steps one by one: median, and how far they go */
    double row_ms;                                /* a step in a row, those that collect statistics included */
    double issue_ms;                              /* of the median step, until the host had issued its work */
    double images_per_second;                     /* in a row */
    double loss;                                  /* of the last step */
    size_t peak_bytes, first_peak_bytes;          /* measured, beyond what there was before; while settling */
    comet_trainer_bytes bytes;                    /* planned */
    uint64_t saved_raw_bytes, saved_stored_bytes; /* of the last step */
    uint64_t offloaded_bytes, recomputed_bytes;   /* of these, as planned: not in memory; of the raw ones, not held */
    int64_t settled;                              /* steps before */
    /* Until there is a trainer, kernels being chosen in it; then its first steps, their data included. */
    double start_ms, first_ms[STEP_FIRST];
    int first_count;
    int part_count; /* 0: not asked for */
    step_part parts[STEP_PARTS];
} step_result;

typedef struct step_plan {
    train_texts texts;
    text_list variants, dtypes; /* dtypes.count 0: the device's default */
    comet_run_options run;      /* of each; what a variant changes differs */
    int settle, steps, row, ready, parts, json, quiet;
} step_plan;

/*
 * One variant, from a new trainer to its figures. Stopped by a signal: result->status is not COMET_OK. *choices: NULL,
 * or which kernels to take (comet_trainer_get_choices); where it is NULL, those that were chosen, to be freed.
 */
void step_measure(const step_plan *plan, const comet_run_options *run, char **choices, step_result *result);

void step_print_head(const step_plan *plan);
void step_print(const step_result *result);
void step_print_parts(const step_result *result);
void step_print_json(const step_plan *plan, const step_result *results, int count);

#endif
