/* SPDX-License-Identifier: Apache-2.0 */
/* How far a long command is, on standard error: a bar on a terminal, else a line every few seconds, or nothing. */
#ifndef COMET_CMD_PROGRESS_H
#define COMET_CMD_PROGRESS_H

#include <stddef.h>

typedef struct progress {
    int silent, terminal, drawn;
    size_t done, total;
    double start, last; /* times */
} progress;

void progress_start(progress *p, size_t total, int quiet);

/* One more is done: `what`. */
void progress_step(progress *p, const char *what);

/* Takes the bar off the screen: before other output, and at the end. */
void progress_clear(progress *p);

#endif
