/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands that study trainings have in common (assess, compare, sweep): options, --help, and the end of a
 * comparison.
 */
#ifndef COMET_CMD_STUDY_H
#define COMET_CMD_STUDY_H

#include "cmd/study/compare.h"
#include "cmd/train/train_options.h"

typedef struct study_options {
    train_texts texts;
    const char *report;
    const char *state, *resume; /* of comparisons */
    char *given;                /* what makes it this one: options.h */
    int json, quiet, help;
    text_array operands;
} study_options;

/*
 * Options of training, --report, --json, --quiet, --help, and a command's `own`. The operands are freed by
 * study_carry_out.
 */
int study_parse(study_options *options, const option *own, size_t own_count, int argc, char **argv);

/*
 * The rest of a command, after `parsed`, what reading its options came to: --help (`begin`; unless `end` is NULL,
 * `more`, the options of training, `end`), or `run`. `argv` is the command's: main's, in which its name is the second,
 * is one before.
 */
typedef struct study_command {
    const char *begin, *end;
    int (*run)(void *request);
    const char *more;
} study_command;
int study_carry_out(const study_command *command, study_options *options, void *request, int parsed, char **argv);

/* What a comparison is called, and how its results are shown. */
typedef struct study_views {
    const char *name;
    void (*table)(const compare_plan *plan, const compare_results *results);
    void (*json)(const compare_plan *plan, const compare_results *results);
    int (*report)(const char *path, const compare_plan *plan, const compare_results *results);
} study_views;

/* FAILED, after a line, if --report could not be written. */
int study_try_report(const study_options *options);

/* --help of --state and --resume, which are for comparisons: they are among their `own` options. */
extern const char study_runs_help[];

/*
 * Runs a comparison and shows what there is of it, even if it was stopped (stop_code()). FAILED if a run of it failed.
 * An existing report is replaced by one of all runs only. What is finished is kept until all of it is, and is shown.
 */
int study_compare(compare_plan *plan, const study_views *views, const study_options *options);

#endif
