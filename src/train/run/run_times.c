/* SPDX-License-Identifier: Apache-2.0 */
/* How long updates take. */
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "train/run/run_impl.h"

/* More are not kept: the median of the last ones is as good, and a long run takes no more memory than a short one. */
enum { MOST_TIMES = 65536 };

comet_status comet_run_times_init(comet_run_times *t, int64_t most, const comet_allocator *allocator) {
    size_t capacity = most < 1 ? 1 : most > MOST_TIMES ? MOST_TIMES : (size_t)most;
    *t = (comet_run_times){.ms = comet_memory_take(allocator, capacity * sizeof(double)), .capacity = capacity};
    return t->ms ? COMET_OK : COMET_ERROR_MEMORY;
}

void comet_run_times_destroy(comet_run_times *t, const comet_allocator *allocator) {
    comet_memory_give(allocator, t->ms, t->capacity * sizeof(double));
    *t = (comet_run_times){0};
}

void comet_run_times_add(comet_run_times *t, double ms) {
    t->ms[t->next] = ms;
    t->next = (t->next + 1) % t->capacity;
    t->count += t->count < t->capacity;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double comet_run_times_median(comet_run_times *t) {
    if (t->count == 0)
        return 0.0;
    qsort(t->ms, t->count, sizeof *t->ms, compare);
    return (t->ms[(t->count - 1) / 2] + t->ms[t->count / 2]) / 2;
}

double comet_run_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}
