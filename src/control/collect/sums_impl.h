/* SPDX-License-Identifier: Apache-2.0 */
/* A reduction under way: what all sums over rows have in common. */
#ifndef COMET_CONTROL_COLLECT_SUMS_IMPL_H
#define COMET_CONTROL_COLLECT_SUMS_IMPL_H

#include "base/vector/loop.h"
#include "control/collect/sums.h"

/*
 * So many values are added in fp32 before they go to fp64: a hundred times finer than what statistics are needed for.
 */
enum { COMET_SUMS_TOGETHER = 4 };

/* `arrays` sums for each channel, a set of them for each block of rows. */
typedef struct comet_reduction {
    int64_t rows, channels, block;
    int arrays;
    const comet_sums *memory; /* sums: [block][array][channel] */
    const void *input;
} comet_reduction;

static inline double *comet_reduction_sums(const comet_reduction *r, int64_t row) {
    return r->memory->sums + row / r->block * r->arrays * r->channels;
}

static inline int64_t comet_reduction_end(const comet_reduction *r, int64_t row) {
    return row + r->block < r->rows ? row + r->block : r->rows;
}

/* How many rows can be read at once from `row` on, of those before `end`. */
static inline int64_t comet_reduction_count(const comet_maps *m, int64_t row, int64_t end) {
    return m->is_rows || end - row < COMET_SUMS_STRIP ? end - row : COMET_SUMS_STRIP;
}

/* The strip of tensor 0 or 1 for the block that a row is in. */
static inline float *comet_reduction_strip(const comet_reduction *r, int which, int64_t channels, int64_t row) {
    float *strips = r->memory->strips[which];
    return strips ? strips + row / r->block * comet_sums_strip(channels) : NULL;
}

/*
 * Runs `body` over all rows, and adds the blocks' sums in their order to the first one's; the last `greatest` arrays
 * are maxima.
 */
void comet_reduce(comet_threads *threads, comet_reduction *r, comet_loop_body body, int greatest);

#endif
