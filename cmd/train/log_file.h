/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that a training writes while it runs, a line at a time, for others to follow. It is one training's; what an
 * earlier one left in it goes with the first line, or stays before it.
 */
#ifndef COMET_CMD_LOG_FILE_H
#define COMET_CMD_LOG_FILE_H

#include <stdio.h>

#include "base/message.h"

typedef struct log_file {
    FILE *file; /* NULL: none is wanted */
    const char *path;
    int fresh; /* 1: what is in it goes with the first line */
    int failed;
    long lines; /* of this run */
} log_file;

/*
 * path NULL: nothing will be written. `append`: of a run that may go on. Else the log is begun anew, with the first
 * line: a run that does not begin takes nothing away. COMET_ERROR_IO, with a line that names the option, where it
 * cannot be written, or another training writes it.
 */
comet_status log_file_open(log_file *log, const char *option, const char *path, int append, comet_message *message);

/* Before and after each line. */
void log_file_begin_line(log_file *log);
void log_file_end_line(log_file *log);

/* 1: it has no line of this run, though it has others: a run that never began has no end either. */
int log_file_is_foreign(const log_file *log);
int log_file_is_empty(const log_file *log);

/* FAILED, after a line, if not all of it could be written. */
int log_file_close(log_file *log);

#endif
