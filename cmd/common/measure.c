/* SPDX-License-Identifier: Apache-2.0 */
/* Time, medians of times, and resident memory from /proc/self. */
#include "cmd/common/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- time ---- */

double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, int count) {
    if (count == 0)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* ---- memory ---- */

typedef struct counts {
    size_t now, peak, files;
} counts;

static counts read_counts(void) {
    counts c = {0};
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        size_t kib;
        if (sscanf(line, "VmRSS: %zu kB", &kib) == 1)
            c.now = kib << 10;
        else if (sscanf(line, "VmHWM: %zu kB", &kib) == 1)
            c.peak = kib << 10;
        else if (sscanf(line, "RssFile: %zu kB", &kib) == 1)
            c.files = kib << 10;
    }
    if (file)
        fclose(file);
    return c;
}

void resident_begin(resident_mark *mark) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    mark->can_reset = file && fputs("5", file) >= 0;
    if (file && fclose(file) != 0)
        mark->can_reset = 0;
    counts c = read_counts();
    mark->resident = c.now;
    mark->files = c.files;
}

size_t resident_peak(const resident_mark *mark) {
    counts c = read_counts();
    size_t files = c.files > mark->files ? c.files - mark->files : 0;
    size_t before = mark->resident + files;
    return c.peak > before ? c.peak - before : 0;
}
