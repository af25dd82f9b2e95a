/* SPDX-License-Identifier: Apache-2.0 */
/* The finished runs of a comparison, in a file, so that an interrupted one can go on. One comparison's at a time. */
#ifndef COMET_CMD_COMPARE_STATE_H
#define COMET_CMD_COMPARE_STATE_H

#include "cmd/train/record.h"

typedef struct compare_state {
    const char *path;
    int file; /* -1: none */
    int kept; /* runs in it */
} compare_state;

/* What is kept: of which command, options and data. */
typedef struct compare_state_plan {
    const char *path; /* NULL: nothing is kept */
    comet_run_resume resume;
    const char *given; /* options.h */
    int runs;
} compare_state_plan;

/*
 * Opens the file. Where the comparison goes on, records[i] of the finished runs are filled; all others have no name.
 * Else what is in the file is put aside. FAILED, after a line, if it is of other options, or another comparison's.
 */
int compare_state_open(compare_state *s, const compare_state_plan *plan, record *records);

/* A run that is finished. If it cannot be kept a line says so: the comparison goes on. */
void compare_state_add(compare_state *s, int index, const record *r);

/* In a child: the file, and its lock, are the parent's. */
void compare_state_leave(compare_state *s);

/* `complete`: there is nothing to go on with. The file is removed then, and where no run is in it. */
void compare_state_close(compare_state *s, int complete);

#endif
