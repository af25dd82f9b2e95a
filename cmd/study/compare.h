/* SPDX-License-Identifier: Apache-2.0 */
/* Variants of a run side by side: the same seeds, the same batches, each run in a process of its own. */
#ifndef COMET_CMD_COMPARE_H
#define COMET_CMD_COMPARE_H

#include "cmd/common/parse.h"
#include "cmd/study/compare_state.h"
#include "cmd/train/record.h"
#include "cmd/train/train_options.h"
#include "study/paired.h"

typedef struct compare_plan compare_plan;
struct compare_plan {
    comet_run_options run; /* of every run; what a variant changes, seed and perhaps batch differ */
    train_texts texts;     /* what was asked for */
    const char *const *variants;
    int variant_count;
    /* What a variant is. MISUSED after a line if there is no such variant. */
    int (*apply)(const compare_plan *plan, const char *variant, comet_run_options *run);
    int seeds;   /* run.trainer.seed and those behind it */
    int largest; /* 1: each variant at the largest batch that fits run.trainer.memory_bytes, up to the batch given */
    int quiet;
    compare_state_plan state; /* where finished runs are kept; `runs` is set from the above */
};

/* A variant that is a form, or a controller's name: for `apply`. */
int compare_form(const compare_plan *plan, const char *variant, comet_run_options *run);

/* variants x seeds, the seeds of a variant together. */
typedef struct compare_results {
    record *records;
    int count, per_variant;
    compare_state state; /* until it is known whether there is anything left to go on with */
} compare_results;

/*
 * Runs them, one after the other. A run that fails, even by a signal, is a record that says so; the others go on.
 * stop_code() where a signal ended it; FAILED only where no run can be had. No thread may have been started: the
 * process forks.
 */
int compare_run(const compare_plan *plan, compare_results *results);
void compare_results_free(compare_results *results);

/* Runs that are finished, of all that were wanted. */
int compare_finished(const compare_results *results);

int compare_failures(const compare_results *results);

/* Accuracy of variant `v` minus the first one's, over the seeds that both have. pairs 0: none. */
comet_paired compare_accuracy(const compare_results *results, int variant);

void compare_print(const compare_plan *plan, const compare_results *results);
void compare_print_json(const compare_plan *plan, const compare_results *results);
int compare_report(const char *path, const compare_plan *plan, const compare_results *results);

/*
 * "eb: -0.12 points of accuracy against none, 95 % interval -0.40 to 0.16 (3 pairs); saved bytes ..."; empty for the
 * first.
 */
void compare_text(const compare_results *results, int variant, char *text, size_t capacity);

#endif
