/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as a report: a table, curves, memory over a step, ratio per layer. */
#ifndef COMET_CMD_TRAIN_REPORT_H
#define COMET_CMD_TRAIN_REPORT_H

#include "cmd/report/report.h"
#include "cmd/train/record.h"

/*
 * Runs of a variant stand together. Those that failed are left out. `lines`: paragraphs, each ended by a line feed, or
 * NULL. `run`: what was asked for, of one run or of all.
 */
int train_report_write(const char *path, const char *title, const char *subtitle, const char *lines,
                       const comet_run_options *run, const record *records, size_t count);

/* The columns of tables of runs, and a run's cells. */
enum { TRAIN_COLUMNS = 11, TRAIN_CELL = 48 };
extern const char *const train_columns[TRAIN_COLUMNS];
typedef struct train_row {
    char cells[TRAIN_COLUMNS][TRAIN_CELL];
} train_row;

/* The figures of `count` runs of a variant, one behind the other, as means. */
void train_row_fill(train_row *row, const record *records, int count);

#endif
