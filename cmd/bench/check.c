/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what went in with what came out. */
#include "cmd/bench/check.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cmd/files/values.h"

static int same_bits(const check_task *task, int64_t i) {
    size_t size = comet_dtype_size(task->dtype), at = (size_t)i * size;
    return memcmp((const char *)task->input + at, (const char *)task->output + at, size) == 0;
}

static int is_violation(const check_task *task, int64_t i, double x, double y, double error) {
    if (task->kind == CHECK_NOTHING || (task->sides && isnan(x) && isnan(y)))
        return 0;
    if (task->kind == CHECK_EXACT || !isfinite(x))
        return !same_bits(task, i);
    return !(error <= task->bound); /* written so that a NaN is one */
}

static int is_on(const check_sides *sides, int64_t channel, double value) {
    double threshold = sides->threshold[channel];
    return sides->slope[channel] < 0 ? value < threshold : value > threshold;
}

/* x is finite. */
static int is_mask_broken(const check_task *task, int64_t i, double x, double y) {
    const check_sides *sides = task->sides;
    if (!sides)
        return task->keep_mask && x != 0 && !(x > 0 ? y > 0 : y < 0);
    int64_t channel = (task->first + i) / sides->stride % sides->channels;
    return is_on(sides, channel, x) != is_on(sides, channel, y);
}

typedef struct sums {
    double squares, error_squares;
    int64_t nonzero, finite;
} sums;

static void check_value(const check_task *task, int64_t i, check_report *report, sums *s) {
    double x = values_get(task->dtype, task->input, i), y = values_get(task->dtype, task->output, i);
    double error = fabs(x - y);
    report->violations += is_violation(task, i, x, y, error);
    if (!isfinite(x))
        return;
    report->zeros += x == 0;
    report->zeros_broken += x == 0 && y != 0 && !task->sides;
    report->mask_broken += is_mask_broken(task, i, x, y);
    report->max_error = isnan(error) ? (double)INFINITY : fmax(report->max_error, error);
    s->squares += x * x;
    s->error_squares += error * error;
    s->nonzero += x != 0;
    s->finite++;
}

static void check_values(const check_task *task, check_report *report, sums *s) {
    for (int64_t i = 0; i < task->count; i++)
        check_value(task, i, report, s);
}

static void finish(const check_task *task, const sums *s, check_report *report) {
    report->max_error_over_bound = task->kind == CHECK_BOUNDED ? report->max_error / task->bound : (double)NAN;
    report->rms_error = NAN;
    if (s->nonzero)
        report->rms_error = sqrt(s->error_squares / (double)s->finite) / sqrt(s->squares / (double)s->nonzero);
}

void check_round_trip(const check_task *task, check_report *report) {
    sums s = {0};
    *report = (check_report){0};
    check_values(task, report, &s);
    finish(task, &s, report);
}

enum { MAX_WORKERS = 64 };

typedef struct repeated_job {
    const check_task *task;
    int64_t period;
    unsigned workers;
    check_report reports[MAX_WORKERS];
    sums sums[MAX_WORKERS];
} repeated_job;

/* A share of the output, in pieces that end where the input starts again. Its counts are its own. */
static void check_share(void *context, unsigned worker) {
    repeated_job *job = context;
    size_t size = comet_dtype_size(job->task->dtype);
    int64_t share = job->task->count / job->workers, at = share * worker;
    int64_t end = worker + 1 == job->workers ? job->task->count : at + share;
    check_report report = {0};
    sums s = {0};
    while (at < end) {
        check_task piece = *job->task;
        int64_t from = at % job->period;
        piece.first = from;
        piece.count = job->period - from < end - at ? job->period - from : end - at;
        piece.input = (const char *)job->task->input + (size_t)from * size;
        piece.output = (const char *)job->task->output + (size_t)at * size;
        check_values(&piece, &report, &s);
        at += piece.count;
    }
    job->reports[worker] = report;
    job->sums[worker] = s;
}

static void add_report(check_report *total, const check_report *part) {
    total->max_error = fmax(total->max_error, part->max_error);
    total->violations += part->violations;
    total->zeros += part->zeros;
    total->zeros_broken += part->zeros_broken;
    total->mask_broken += part->mask_broken;
}

static void add_sums(sums *total, const sums *part) {
    total->squares += part->squares;
    total->error_squares += part->error_squares;
    total->nonzero += part->nonzero;
    total->finite += part->finite;
}

void check_repeated(const check_task *task, int64_t period, comet_threads *threads, check_report *report) {
    unsigned count = comet_threads_count(threads);
    repeated_job job = {.task = task, .period = period, .workers = count < MAX_WORKERS ? count : MAX_WORKERS};
    sums s = {0};
    *report = (check_report){0};
    comet_parallel(threads, job.workers, check_share, &job);
    for (unsigned i = 0; i < job.workers; i++) {
        add_report(report, &job.reports[i]);
        add_sums(&s, &job.sums[i]);
    }
    finish(task, &s, report);
}
