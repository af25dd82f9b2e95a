/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as lines of JSON: "event" is start, step, evaluation, control, checkpoint, note or end. docs/command.md has the
 * keys.
 */
#ifndef COMET_CMD_TRAIN_LOG_H
#define COMET_CMD_TRAIN_LOG_H

#include "cmd/train/log_file.h"
#include "cmd/train/record.h"

/* `run`: what was asked for, once, with the first event. */
void train_log_event(log_file *log, const comet_run_options *run, const comet_run_event *event);

/* The last line; closes. FAILED, after a line, if not all of it could be written. */
int train_log_close(log_file *log, const record *r);

#endif
