/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cpu/space.h"

#include <string.h>

#include "base/memory.h"
#include "base/pages.h"
#include "base/vector/loop.h"

/* ---- memory ---- */

/* Large blocks come from the system as pages and go back at once; the C library would keep some of them. */
enum { PAGES_FROM = 1 << 20 };

static int takes_pages(const comet_host_space *s, size_t bytes) {
    return !s->allocator && bytes >= PAGES_FROM;
}

static comet_status take(comet_space *space, size_t bytes, void **memory) {
    const comet_host_space *s = (const comet_host_space *)space;
    *memory =
        takes_pages(s, bytes) ? comet_pages_take(comet_pages_round(bytes), 0) : comet_memory_take(s->allocator, bytes);
    return *memory ? COMET_OK : COMET_ERROR_MEMORY;
}

static void give(comet_space *space, void *memory, size_t bytes) {
    const comet_host_space *s = (const comet_host_space *)space;
    if (takes_pages(s, bytes))
        comet_pages_give(memory, comet_pages_round(bytes));
    else
        comet_memory_give(s->allocator, memory, bytes);
}

static comet_status copy(comet_space *space, void *to, const void *from, size_t bytes) {
    (void)space;
    memcpy(to, from, bytes);
    return COMET_OK;
}

static comet_status fill(comet_space *space, float *values, int64_t count, float value) {
    (void)space;
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
    return COMET_OK;
}

/* ---- values that are not finite, at the speed at which they can be read ---- */

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

int comet_cpu_is_finite(comet_threads *threads, const float *x, int64_t count) {
    int found = 0;
    const search s = {x, &found};
    if (count < FINITE_SMALL)
        search_range(&s, 0, count);
    else
        comet_loop(threads, count, FINITE_GRAIN, search_range, &s);
    return !found;
}

static comet_status find_nonfinite(comet_space *space, const comet_span *spans, int count, int *first) {
    const comet_host_space *s = (const comet_host_space *)space;
    *first = -1;
    for (int i = 0; i < count && *first < 0; i++)
        if (!comet_cpu_is_finite(s->threads, spans[i].values, spans[i].count))
            *first = i;
    return COMET_OK;
}

/* ---- making one ---- */

static const comet_space methods = {.take = take,
                                    .give = give,
                                    .write = copy,
                                    .read = copy,
                                    .copy = copy,
                                    .fill = fill,
                                    .find_nonfinite = find_nonfinite};

void comet_host_space_init(comet_host_space *space, comet_threads *threads, const comet_allocator *allocator) {
    *space = (comet_host_space){methods, threads, allocator};
}

comet_space *comet_host_space_plain(void) {
    static comet_host_space plain = {.base = {.take = take,
                                              .give = give,
                                              .write = copy,
                                              .read = copy,
                                              .copy = copy,
                                              .fill = fill,
                                              .find_nonfinite = find_nonfinite}};
    return &plain.base;
}
