/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that study trainings have in common (assess, compare, sweep): options, --help, and the end of a comparison. */
#ifndef COMET_CMD_STUDY_H
#define COMET_CMD_STUDY_H

#include "compare.h"
#include "train_options.h"

typedef struct study_options {
    train_texts texts;
    const char *report;
    int json, quiet, help;
    text_array operands;
} study_options;

/* Options of training, --report, --json, --quiet, --help, and a command's `own`. The operands are freed by study_carry_out. */
int study_parse(study_options *options, const option *own, size_t own_count, int argc, char **argv);

/*
 * The rest of a command, after `parsed`, what reading its options came to: --help (`begin`, the options of training unless `end` is NULL, `end`), or
 * `run`. `argv` is the command's: main's, in which its name is the second, is one before.
 */
typedef struct study_command {
    const char *begin, *end;
    int (*run)(void *request);
} study_command;
int study_carry_out(const study_command *command, study_options *options, void *request, int parsed, char **argv);

/* How the results of a comparison are shown. */
typedef struct study_views {
    void (*table)(const compare_plan *plan, const compare_results *results);
    void (*json)(const compare_plan *plan, const compare_results *results);
    int (*report)(const char *path, const compare_plan *plan, const compare_results *results);
} study_views;

/* Runs a comparison and shows what there is of it, even if it was stopped. FAILED if a run of it failed. */
int study_compare(const compare_plan *plan, const study_views *views, const study_options *options);

#endif
