/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as lines of JSON: "event" is start, step, evaluation, control, checkpoint, note or end. docs/command.md has the
 * keys.
 */
#ifndef COMET_CMD_TRAIN_LOG_H
#define COMET_CMD_TRAIN_LOG_H

#include <stdio.h>

#include "cmd/train/record.h"

typedef struct train_log {
    FILE *file; /* NULL: none is wanted */
    const char *path;
    int fresh; /* 1: what is in it goes with the first event */
    int failed;
} train_log;

/*
 * path NULL: nothing will be written. `append`: of a run that may go on. Else the log is begun anew, with the first
 * event: a run that does not begin takes nothing away. COMET_ERROR_IO where it cannot be written, or another training
 * writes it.
 */
comet_status train_log_open(train_log *log, const char *path, int append, comet_message *message);

/* `run`: what was asked for, once, with the first event. */
void train_log_event(train_log *log, const comet_run_options *run, const comet_run_event *event);

/* The last line; closes. FAILED, after a line, if not all of it could be written. */
int train_log_close(train_log *log, const record *r);

#endif
