/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured: time, medians of it, and what the operating system says of the process's memory. */
#ifndef COMET_CMD_MEASURE_H
#define COMET_CMD_MEASURE_H

#include <stddef.h>

/* ---- time ---- */

/* Seconds from some fixed moment; only differences mean something. */
double clock_seconds(void);

/* Sorts `values`; NaN if count is 0. */
double median_of(double *values, int count);

/* ---- memory ---- */

/* Where measuring began. */
typedef struct resident_mark {
    size_t resident, files; /* bytes; of these, of files: code of libraries */
    int can_reset;          /* 0: the high-water mark is that of the whole life of the process */
} resident_mark;

/* Begins: resets the high-water mark, where the system lets us. */
void resident_begin(resident_mark *mark);

/*
 * The most that was resident since, beyond what was then: the high-water mark minus what was resident at the beginning,
 * without the pages of files (code of libraries that was run for the first time) that came since. 0: not known.
 */
size_t resident_peak(const resident_mark *mark);

#endif
