/* SPDX-License-Identifier: Apache-2.0 */
/* The theory's gradient errors beside measured ones, for people, for programs and as pictures. */
#ifndef COMET_CMD_ASSESS_H
#define COMET_CMD_ASSESS_H

#include "cmd/common/parse.h"
#include "study/assess.h"
#include "train/run/run.h"

/* What was measured, and under which circumstances. */
typedef struct assess_case {
    const comet_run_options *run;
    const comet_assess *assess;
    text_list bounds;     /* as they were asked for: "0.1", "control" */
    int batches, factors; /* to assess; before, to measure factors */
    int height, width, channels;
    int64_t steps;
} assess_case;

/* ---- assess_summary.c ---- */

/* Of some numbers, those that are not finite left out; NaN where none is left. */
typedef struct assess_spread {
    int count;
    double median, low, high; /* low, high: the 10th and the 90th of a hundred */
} assess_spread;

/* Sorts them. */
assess_spread assess_spread_of(double *values, int count);

typedef struct assess_use_summary {
    char use[COMET_ASSESS_USE_TEXT];
    int bound;
    assess_spread ratio, joint_ratio;                         /* by the model */
    assess_spread ratio_with_factor, joint_ratio_with_factor; /* with measured factors */
} assess_use_summary;

typedef struct assess_tensor_summary {
    assess_spread variance, distance; /* over that of a uniform error; Kolmogorov-Smirnov */
} assess_tensor_summary;

/* Each use at each bound; an array of *count for the caller to free, NULL: no memory (and a line has said so). */
assess_use_summary *assess_summarise(const assess_case *c, int *count);
assess_tensor_summary assess_summarise_tensors(const assess_case *c, int bound);

/* 1: factors were measured, of some uses at least. */
int assess_has_factors(const assess_case *c);

/* Of a tensor's errors: variance over bound^2 / 3. */
double assess_variance(const comet_assess_tensor *tensor);

/* ---- what is shown ---- */

/* "resnet18 on dogs, 96x96x3, batch 16, after 30 steps, 2 batches, seed 1". */
void assess_describe(const assess_case *c, char *text, size_t capacity);

int assess_print(const assess_case *c);      /* assess_print.c */
int assess_print_json(const assess_case *c); /* assess_json.c */
int assess_report(const char *path, const assess_case *c);

#endif
