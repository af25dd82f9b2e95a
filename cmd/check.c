/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what went in with what came out. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "values.h"

static int same_bits(const check_task *task, int64_t i) {
    size_t size = comet_dtype_size(task->dtype), at = (size_t)i * size;
    return memcmp((const char *)task->input + at, (const char *)task->output + at, size) == 0;
}

static int is_violation(const check_task *task, int64_t i, double x, double error) {
    if (task->kind == CHECK_NOTHING)
        return 0;
    if (task->kind == CHECK_EXACT || !isfinite(x))
        return !same_bits(task, i);
    return !(error <= task->bound); /* written so that a NaN is one */
}

typedef struct sums {
    double squares, error_squares;
    int64_t nonzero, finite;
} sums;

static void check_value(const check_task *task, int64_t i, check_report *report, sums *s) {
    double x = values_get(task->dtype, task->input, i), y = values_get(task->dtype, task->output, i);
    double error = fabs(x - y);
    report->violations += is_violation(task, i, x, error);
    if (!isfinite(x))
        return;
    report->zeros += x == 0;
    report->zeros_broken += x == 0 && y != 0;
    report->mask_broken += task->keep_mask && x != 0 && !(x > 0 ? y > 0 : y < 0);
    report->max_error = isnan(error) ? (double)INFINITY : fmax(report->max_error, error);
    s->squares += x * x;
    s->error_squares += error * error;
    s->nonzero += x != 0;
    s->finite++;
}

void check_round_trip(const check_task *task, check_report *report) {
    sums s = {0};
    *report = (check_report){0};
    for (int64_t i = 0; i < task->count; i++)
        check_value(task, i, report, &s);
    report->max_error_over_bound = task->kind == CHECK_BOUNDED ? report->max_error / task->bound : (double)NAN;
    report->rms_error = NAN;
    if (s.nonzero)
        report->rms_error = sqrt(s.error_squares / (double)s.finite) / sqrt(s.squares / (double)s.nonzero);
}
