/* SPDX-License-Identifier: Apache-2.0 */
#include "train/cpu/statistics.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "train/cpu/bits.h"
#include "train/cpu/loop.h"
#include "train/cpu/math.h"

/* A reduction under way: `arrays` sums for each channel, a set of them for each block of rows. */
typedef struct reduction {
    int64_t rows, channels, block;
    int arrays;
    double *sums; /* [block][array][channel] */
    const void *input;
} reduction;

static int64_t rows_in_block(int64_t rows) {
    return (rows + COMET_STATISTICS_BLOCKS - 1) / COMET_STATISTICS_BLOCKS;
}

static double *sums_of(const reduction *r, int64_t row) {
    return r->sums + row / r->block * r->arrays * r->channels;
}

static int64_t end_of_block(const reduction *r, int64_t row) {
    return row + r->block < r->rows ? row + r->block : r->rows;
}

/* The blocks' sums into the first one's, in their order; the last `greatest` arrays are not sums but maxima. */
static void gather(const reduction *r, int greatest) {
    const int64_t count = r->arrays * r->channels, sums = (r->arrays - greatest) * r->channels;
    for (int64_t row = r->block; row < r->rows; row += r->block) {
        const double *more = sums_of(r, row);
        for (int64_t i = 0; i < sums; i++)
            r->sums[i] += more[i];
        for (int64_t i = sums; i < count; i++)
            r->sums[i] = more[i] > r->sums[i] ? more[i] : r->sums[i];
    }
}

static void reduce(comet_threads *threads, reduction *r, comet_loop_body body, int greatest) {
    r->block = rows_in_block(r->rows);
    comet_loop(threads, r->rows, r->block, body, r);
    gather(r, greatest);
}

/* ---- all values ---- */

enum { LANES = 16 };

COMET_RANGE(sizes_range) {
    const reduction *r = context;
    for (int64_t row = first; row < end; row += r->block) {
        const float *x = (const float *)r->input;
        const int64_t stop = end_of_block(r, row);
        double squares[LANES] = {0}, sizes[LANES] = {0}, *sums = sums_of(r, row);
        int64_t i = row;
        for (; i + LANES <= stop; i += LANES)
            for (int k = 0; k < LANES; k++) {
                const double v = (double)x[i + k];
                squares[k] += v * v;
                sizes[k] += fabs(v);
            }
        sums[0] = sums[1] = 0;
        for (; i < stop; i++) {
            sums[0] += (double)x[i] * (double)x[i];
            sums[1] += fabs((double)x[i]);
        }
        for (int k = 0; k < LANES; k++) {
            sums[0] += squares[k];
            sums[1] += sizes[k];
        }
    }
}

comet_sizes comet_statistics_sizes(comet_threads *threads, const float *x, int64_t count, double *scratch) {
    reduction r = {.rows = count, .channels = 1, .arrays = 2, .sums = scratch, .input = x};
    reduce(threads, &r, sizes_range, 0);
    return (comet_sizes){scratch[0], scratch[1]};
}

/* ---- by channel ---- */

COMET_RANGE(moments_range) {
    const reduction *r = context;
    const int64_t channels = r->channels;
    for (int64_t row = first; row < end; row += r->block) {
        double *restrict sum = sums_of(r, row), *restrict square = sum + channels;
        memset(sum, 0, (size_t)(2 * channels) * sizeof *sum);
        for (int64_t i = row; i < end_of_block(r, row); i++) {
            const float *restrict x = (const float *)r->input + i * channels;
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const double v = (double)x[c];
                sum[c] += v;
                square[c] += v * v;
            }
        }
    }
}

void comet_statistics_moments(comet_threads *threads, const float *x, int64_t rows, int64_t channels, double *scratch) {
    reduction r = {.rows = rows, .channels = channels, .arrays = 2, .sums = scratch, .input = x};
    reduce(threads, &r, moments_range, 0);
}

/* ---- batch norm ---- */

COMET_INLINE void norm_row(const comet_norm_rows *n, int64_t row, int64_t channels, double *restrict sums) {
    const float *restrict x = n->x + row * channels, *restrict dy = n->dy + row * channels;
    const float *restrict gamma = n->gamma, *restrict beta = n->beta;
    double *restrict square = sums, *restrict product = sums + channels, *restrict on = sums + 2 * channels;
    double *restrict greatest_g = sums + 3 * channels, *restrict greatest_u = sums + 4 * channels;
    COMET_EACH for (int64_t c = 0; c < channels; c++) {
        const float u = n->scale ? fmaf(n->scale[c], x[c], n->shift[c]) : x[c];
        int is = 1;
        if (n->relu)
            is = n->mask ? (int)comet_bit(n->mask, (n->first + row) * channels + c) : fmaf(gamma[c], u, beta[c]) > 0;
        const double g = is ? (double)dy[c] : 0;
        square[c] += g * g;
        product[c] += g * (double)u;
        on[c] += (double)is;
        if (n->greatest) {
            greatest_g[c] = fabs(g) > greatest_g[c] ? fabs(g) : greatest_g[c];
            greatest_u[c] = fabs((double)u) > greatest_u[c] ? fabs((double)u) : greatest_u[c];
        }
    }
}

COMET_RANGE(norm_range) {
    const reduction *r = context;
    comet_norm_rows n = *(const comet_norm_rows *)r->input;
    for (int64_t row = first; row < end; row += r->block) {
        double *sums = sums_of(r, row);
        memset(sums, 0, (size_t)(r->arrays * r->channels) * sizeof *sums);
        for (int64_t i = row; i < end_of_block(r, row); i++)
            norm_row(&n, i, r->channels, sums);
    }
}

/* The usual case, as loops without choices that vectors can take: normalised, with a ReLU from u or none. */
COMET_RANGE(usual_norm_range) {
    const reduction *r = context;
    const comet_norm_rows *n = r->input;
    const int64_t channels = r->channels;
    const float *restrict gamma = n->gamma, *restrict beta = n->beta;
    for (int64_t row = first; row < end; row += r->block) {
        double *restrict square = sums_of(r, row), *restrict product = square + channels,
                         *restrict on = product + channels;
        memset(square, 0, (size_t)(r->arrays * channels) * sizeof *square);
        for (int64_t i = row; i < end_of_block(r, row); i++) {
            const float *restrict u = n->x + i * channels, *restrict dy = n->dy + i * channels;
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const float y = fmaf(gamma[c], u[c], beta[c]);
                const double is = !n->relu || y > 0 ? 1 : 0, g = is * (double)dy[c];
                square[c] += g * g;
                product[c] += g * (double)u[c];
                on[c] += is;
            }
        }
    }
}

void comet_statistics_norm(comet_threads *threads, const comet_norm_rows *n, int64_t rows, int64_t channels,
                           double *scratch) {
    reduction r = {.rows = rows, .channels = channels, .arrays = 5, .sums = scratch, .input = n};
    const int usual = !n->scale && !n->mask && !n->greatest;
    reduce(threads, &r, usual ? usual_norm_range : norm_range, 2);
}

/* ---- SiLU ---- */

/* act = y s, act' = s (1 + y (1 - s)), act'' = s (1 - s) (2 + y (1 - 2 s)). */
COMET_RANGE(silu_range) {
    const reduction *r = context;
    const float *const *in = r->input;
    const int64_t channels = r->channels;
    for (int64_t row = first; row < end; row += r->block) {
        double *restrict slope = sums_of(r, row), *restrict curve = slope + channels,
                         *restrict scale = curve + channels;
        memset(slope, 0, (size_t)(3 * channels) * sizeof *slope);
        for (int64_t i = row; i < end_of_block(r, row); i++) {
            const float *restrict y = in[0] + i * channels, *restrict dz = in[1] + i * channels, *restrict beta = in[2];
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const float s = comet_sigmoidf(y[c]), d = s * (1.0f + y[c] * (1.0f - s));
                const float b = dz[c] * (s * (1.0f - s) * (2.0f + y[c] * (1.0f - 2.0f * s)));
                const float a = dz[c] * d + b * (y[c] - (beta ? beta[c] : 0));
                slope[c] += (double)d * (double)d;
                curve[c] += (double)b * (double)b;
                scale[c] += (double)a * (double)a;
            }
        }
    }
}

void comet_statistics_silu(comet_threads *threads, const float *y, const float *dz, const float *beta, int64_t rows,
                           int64_t channels, double *scratch) {
    const float *const in[3] = {y, dz, beta};
    reduction r = {.rows = rows, .channels = channels, .arrays = 3, .sums = scratch, .input = in};
    reduce(threads, &r, silu_range, 0);
}

/* ---- channel scale ---- */

typedef struct factors {
    const float *s, *dy;
    int64_t pixels;
} factors;

/* Rows are samples here; the third array is the sum over a map. */
COMET_RANGE(factors_range) {
    const reduction *r = context;
    const factors *f = r->input;
    const int64_t channels = r->channels;
    for (int64_t row = first; row < end; row += r->block) {
        double *restrict gain = sums_of(r, row), *restrict square = gain + channels, *restrict map = square + channels;
        memset(gain, 0, (size_t)(2 * channels) * sizeof *gain);
        for (int64_t i = row; i < end_of_block(r, row); i++) {
            const float *restrict s = f->s + i * channels;
            memset(map, 0, (size_t)channels * sizeof *map);
            for (int64_t p = 0; p < f->pixels; p++) {
                const float *restrict dy = f->dy + (i * f->pixels + p) * channels;
                COMET_EACH for (int64_t c = 0; c < channels; c++) map[c] += (double)dy[c] * (double)dy[c];
            }
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const double v = (double)s[c], slope = v * (1 - v);
                gain[c] += slope * slope * map[c];
                square[c] += v * v;
            }
        }
    }
}

void comet_statistics_factors(comet_threads *threads, const float *s, const float *dy, int64_t samples, int64_t pixels,
                              int64_t channels, double *scratch) {
    const factors f = {s, dy, pixels};
    reduction r = {.rows = samples, .channels = channels, .arrays = 3, .sums = scratch, .input = &f};
    reduce(threads, &r, factors_range, 0);
}

/* ---- finite ---- */

enum { FINITE_SMALL = 1 << 15, FINITE_GRAIN = 1 << 14 };

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
