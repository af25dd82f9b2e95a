/* SPDX-License-Identifier: Apache-2.0 */
/* A series without its noise. */
#include <math.h>
#include <stdlib.h>

#include "cmd/report/report_impl.h"

enum { LEAST_POINTS = 60, PART = 40 }; /* a window is a fortieth of the series to each side */

/* Sums of what is finite, and how many these are, up to each point: the mean of any window is at hand then. */
static void add_up(const report_series *s, double *sums, double *counts) {
    sums[0] = counts[0] = 0;
    for (size_t i = 0; i < s->count; i++) {
        const int is_value = isfinite(s->y[i]) != 0;
        sums[i + 1] = sums[i] + (is_value ? s->y[i] : 0);
        counts[i + 1] = counts[i] + is_value;
    }
}

double *report_smooth(const report_series *s) {
    if (s->count < LEAST_POINTS)
        return NULL;
    const size_t reach = s->count / PART;
    double *y = malloc(s->count * sizeof *y), *sums = malloc(2 * (s->count + 1) * sizeof *sums);
    if (!y || !sums) {
        free(y);
        free(sums);
        return NULL;
    }
    double *counts = sums + s->count + 1;
    add_up(s, sums, counts);
    for (size_t i = 0; i < s->count; i++) {
        const size_t to_end = s->count - 1 - i, near = i < to_end ? i : to_end, side = near < reach ? near : reach;
        const double count = counts[i + side + 1] - counts[i - side];
        y[i] = count > 0 ? (sums[i + side + 1] - sums[i - side]) / count : (double)NAN;
    }
    free(sums);
    return y;
}
