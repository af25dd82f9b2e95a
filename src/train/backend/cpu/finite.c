/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all values of an array are finite, at the speed at which they can be read. */
#include "train/backend/cpu/loop.h"
#include "train/backend/cpu/statistics.h"

enum { LANES = 16, FINITE_SMALL = 1 << 15, FINITE_GRAIN = 1 << 14 };

typedef struct search {
    const float *x;
    int *found;
} search;

/* 0 times a finite value is 0, times any other NaN, which a sum keeps. */
COMET_CLONES(sum_of_nothing, (const float *x, int64_t count, float *result), (x, count, result)) {
    float lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += 0.0f * x[i + k];
    for (; i < count; i++)
        sum += 0.0f * x[i];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    *result = sum;
}

static void search_range(const void *context, int64_t first, int64_t end) {
    const search *s = context;
    float sum;
    sum_of_nothing(s->x + first, end - first, &sum);
    if (!(sum == 0))
        __atomic_store_n(s->found, 1, __ATOMIC_RELAXED);
}

int comet_statistics_finite(comet_threads *threads, const float *x, int64_t count) {
    int found = 0;
    const search s = {x, &found};
    if (count < FINITE_SMALL)
        search_range(&s, 0, count);
    else
        comet_loop(threads, count, FINITE_GRAIN, search_range, &s);
    return !found;
}
