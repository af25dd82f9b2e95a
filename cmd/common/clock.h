/* SPDX-License-Identifier: Apache-2.0 */
/* Time, and medians of times. */
#ifndef COMET_CMD_CLOCK_H
#define COMET_CMD_CLOCK_H

/* Seconds from some fixed moment; only differences mean something. */
double clock_seconds(void);

/* Sorts `values`; NaN if count is 0. */
double median_of(double *values, int count);

#endif
