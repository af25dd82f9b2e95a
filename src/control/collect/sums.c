/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect/sums.h"

#include <math.h>
#include <string.h>

#include "control/collect/sums_impl.h"

static void gather(const comet_reduction *r, int greatest) {
    const int64_t count = r->arrays * r->channels, sums = (r->arrays - greatest) * r->channels;
    double *all = r->memory->sums;
    for (int64_t row = r->block; row < r->rows; row += r->block) {
        const double *more = comet_reduction_sums(r, row);
        for (int64_t i = 0; i < sums; i++)
            all[i] += more[i];
        for (int64_t i = sums; i < count; i++)
            all[i] = more[i] > all[i] ? more[i] : all[i];
    }
}

void comet_reduce(comet_threads *threads, comet_reduction *r, comet_loop_body body, int greatest) {
    r->block = (r->rows + COMET_SUMS_BLOCKS - 1) / COMET_SUMS_BLOCKS;
    comet_loop(threads, r->rows, r->block, body, r);
    gather(r, greatest);
}

/* ---- all values ---- */

enum { TOGETHER = COMET_SUMS_TOGETHER, LANES = 16 };

typedef struct lanes {
    double squares[LANES], sizes[LANES];
} lanes;

/* As many as are whole groups; what is left is for the end of a block. */
COMET_INLINE int64_t add_groups(const float *x, int64_t count, lanes *l) {
    int64_t i = 0;
    for (; i + TOGETHER * LANES <= count; i += TOGETHER * LANES)
        for (int k = 0; k < LANES; k++) {
            float square = 0, size = 0;
            for (int t = 0; t < TOGETHER; t++) {
                const float v = x[i + t * LANES + k];
                square += v * v;
                size += fabsf(v);
            }
            l->squares[k] += (double)square;
            l->sizes[k] += (double)size;
        }
    return i;
}

/* Rows are single values here. */
COMET_RANGE(sizes_range) {
    const comet_reduction *r = context;
    const comet_maps *m = r->input;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = comet_reduction_end(r, row), most = comet_sums_strip(m->channels);
        float *strip = comet_reduction_strip(r, 0, m->channels, row);
        double *sums = comet_reduction_sums(r, row);
        lanes l = {{0}, {0}};
        sums[0] = sums[1] = 0;
        for (int64_t i = row, count; i < stop; i += count) {
            const float *x = m->data + i;
            count = m->is_rows || stop - i < most ? stop - i : most;
            if (!m->is_rows) {
                comet_maps_values(m, i, count, strip);
                x = strip;
            }
            for (int64_t k = add_groups(x, count, &l); k < count; k++) {
                sums[0] += (double)x[k] * (double)x[k];
                sums[1] += fabs((double)x[k]);
            }
        }
        for (int k = 0; k < LANES; k++) {
            sums[0] += l.squares[k];
            sums[1] += l.sizes[k];
        }
    }
}

comet_sizes comet_sums_sizes(comet_threads *threads, const comet_maps *x, const comet_sums *memory) {
    comet_reduction r = {
        .rows = comet_maps_pixels(x) * x->channels, .channels = 1, .arrays = 2, .memory = memory, .input = x};
    comet_reduce(threads, &r, sizes_range, 0);
    return (comet_sizes){memory->sums[0], memory->sums[1]};
}

/* ---- by channel ---- */

/* A few rows at a time. */
COMET_INLINE void add_moments(const float *x, int rows, int64_t channels, double *restrict sums) {
    double *restrict sum = sums, *restrict square = sums + channels;
    COMET_EACH for (int64_t c = 0; c < channels; c++) {
        float s = 0, q = 0;
        for (int t = 0; t < rows; t++) {
            const float v = x[t * channels + c];
            s += v;
            q += v * v;
        }
        sum[c] += (double)s;
        square[c] += (double)q;
    }
}

COMET_RANGE(moments_range) {
    const comet_reduction *r = context;
    const comet_maps *m = r->input;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = comet_reduction_end(r, row);
        double *sums = comet_reduction_sums(r, row);
        memset(sums, 0, (size_t)(2 * r->channels) * sizeof *sums);
        for (int64_t at = row, count; at < stop; at += count) {
            count = comet_reduction_count(m, at, stop);
            const float *x = comet_maps_rows(m, at, count, comet_reduction_strip(r, 0, r->channels, row));
            int64_t i = 0;
            for (; i + TOGETHER <= count; i += TOGETHER)
                add_moments(x + i * r->channels, TOGETHER, r->channels, sums);
            for (; i < count; i++)
                add_moments(x + i * r->channels, 1, r->channels, sums);
        }
    }
}

void comet_sums_moments(comet_threads *threads, const comet_maps *x, const comet_sums *memory) {
    comet_reduction r = {
        .rows = comet_maps_pixels(x), .channels = x->channels, .arrays = 2, .memory = memory, .input = x};
    comet_reduce(threads, &r, moments_range, 0);
}
