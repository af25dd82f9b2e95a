/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as a table for spreadsheets: a row for each step, and one for each evaluation. docs/command.md has the columns.
 */
#ifndef COMET_CMD_TRAIN_CSV_H
#define COMET_CMD_TRAIN_CSV_H

#include "cmd/train/log_file.h"
#include "train/run/run.h"

/* To be called with each event of the run. */
void train_csv_event(log_file *log, const comet_run_event *event);

#endif
