/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cpu/statistics.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "train/backend/cpu/bits.h"
#include "train/backend/cpu/loop.h"
#include "train/backend/cpu/math.h"

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

/* So many values are added in fp32 before they go to fp64: a hundred times finer than what statistics are needed for. */
enum { TOGETHER = 4, LANES = 16 };

COMET_RANGE(sizes_range) {
    const reduction *r = context;
    for (int64_t row = first; row < end; row += r->block) {
        const float *x = r->input;
        const int64_t stop = end_of_block(r, row);
        double squares[LANES] = {0}, sizes[LANES] = {0}, *sums = sums_of(r, row);
        int64_t i = row;
        for (; i + TOGETHER * LANES <= stop; i += TOGETHER * LANES)
            for (int k = 0; k < LANES; k++) {
                float square = 0, size = 0;
                for (int t = 0; t < TOGETHER; t++) {
                    const float v = x[i + t * LANES + k];
                    square += v * v;
                    size += fabsf(v);
                }
                squares[k] += (double)square;
                sizes[k] += (double)size;
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
    const reduction *r = context;
    const float *x = r->input;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = end_of_block(r, row);
        double *sums = sums_of(r, row);
        int64_t i = row;
        memset(sums, 0, (size_t)(2 * r->channels) * sizeof *sums);
        for (; i + TOGETHER <= stop; i += TOGETHER)
            add_moments(x + i * r->channels, TOGETHER, r->channels, sums);
        for (; i < stop; i++)
            add_moments(x + i * r->channels, 1, r->channels, sums);
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

/* The usual case, as a loop without choices that vectors can take: normalised, with a ReLU from u or none. */
COMET_INLINE void add_usual_norm(const comet_norm_rows *n, int64_t row, int rows, int64_t channels,
                                 double *restrict sums) {
    const float *u = n->x + row * channels, *dy = n->dy + row * channels;
    const float *restrict gamma = n->gamma, *restrict beta = n->beta, always = n->relu ? 0.0f : 1.0f;
    double *restrict square = sums, *restrict product = sums + channels, *restrict on = sums + 2 * channels;
    COMET_EACH for (int64_t c = 0; c < channels; c++) {
        float q = 0, p = 0, o = 0;
        for (int t = 0; t < rows; t++) {
            const float v = u[t * channels + c], is = fmaf(gamma[c], v, beta[c]) > 0 ? 1.0f : always;
            const float g = is * dy[t * channels + c];
            q += g * g;
            p += g * v;
            o += is;
        }
        square[c] += (double)q;
        product[c] += (double)p;
        on[c] += (double)o;
    }
}

COMET_RANGE(usual_norm_range) {
    const reduction *r = context;
    const comet_norm_rows *n = r->input;
    for (int64_t row = first; row < end; row += r->block) {
        double *sums = sums_of(r, row);
        int64_t i = row;
        memset(sums, 0, (size_t)(r->arrays * r->channels) * sizeof *sums);
        for (; i + TOGETHER <= end_of_block(r, row); i += TOGETHER)
            add_usual_norm(n, i, TOGETHER, r->channels, sums);
        for (; i < end_of_block(r, row); i++)
            add_usual_norm(n, i, 1, r->channels, sums);
    }
}

void comet_statistics_norm(comet_threads *threads, const comet_norm_rows *n, int64_t rows, int64_t channels,
                           double *scratch) {
    reduction r = {.rows = rows,
                   .channels = channels,
                   .arrays = n->greatest ? COMET_STATISTICS_MOST_ARRAYS : COMET_STATISTICS_ARRAYS,
                   .sums = scratch,
                   .input = n};
    const int usual = !n->scale && !n->mask && !n->greatest;
    reduce(threads, &r, usual ? usual_norm_range : norm_range, n->greatest ? 2 : 0);
}

COMET_CLONES(read_masked,
             (const float *dy, const unsigned char *mask, int64_t first, int64_t channels, float *restrict g),
             (dy, mask, first, channels, g)) {
    for (int64_t c = 0; c < channels; c++)
        g[c] = comet_bit(mask, first + c) ? dy[c] : 0;
}

/* u may be where g is written. */
COMET_CLONES(read_relu, (const comet_norm_rows *n, const float *u, const float *dy, int64_t channels, float *g),
             (n, u, dy, channels, g)) {
    const float *gamma = n->gamma, *beta = n->beta;
    COMET_EACH for (int64_t c = 0; c < channels; c++) g[c] = fmaf(gamma[c], u[c], beta[c]) > 0 ? dy[c] : 0;
}

COMET_CLONES(normalise, (const comet_norm_rows *n, const float *x, int64_t channels, float *restrict u),
             (n, x, channels, u)) {
    const float *scale = n->scale, *shift = n->shift;
    for (int64_t c = 0; c < channels; c++)
        u[c] = fmaf(scale[c], x[c], shift[c]);
}

void comet_statistics_norm_gradient(const comet_norm_rows *n, int64_t row, int64_t channels, float *g) {
    const float *x = n->x + row * channels, *dy = n->dy + row * channels;
    if (!n->relu) {
        memcpy(g, dy, (size_t)channels * sizeof *g);
    } else if (n->mask) {
        read_masked(dy, n->mask, (n->first + row) * channels, channels, g);
    } else if (n->scale) {
        normalise(n, x, channels, g);
        read_relu(n, g, dy, channels, g);
    } else {
        read_relu(n, x, dy, channels, g);
    }
}

/* ---- SiLU ---- */

/* act = y s, act' = s (1 + y (1 - s)), act'' = s (1 - s) (2 + y (1 - 2 s)). */
typedef struct silu_rows {
    const float *y, *dz, *beta;
} silu_rows;

/* act'(v), g act''(v), and g times the derivative of act'(v) (v - shift). */
COMET_INLINE void silu_terms(float v, float g, float shift, float *slope, float *curve, float *scale) {
    const float s = comet_sigmoidf(v), d = s * (1.0f + v * (1.0f - s));
    const float b = g * (s * (1.0f - s) * (2.0f + v * (1.0f - 2.0f * s))), a = g * d + b * (v - shift);
    *slope = d * d;
    *curve = b * b;
    *scale = a * a;
}

/* Two rows, by hand: a loop over them would keep the one over channels from becoming vectors. `other`: the second's distance, 0 if it is not there. */
COMET_INLINE void add_silu(const silu_rows *in, int64_t row, int64_t other, int64_t channels, double *restrict sums) {
    const float *y = in->y + row * channels, *dz = in->dz + row * channels, *restrict beta = in->beta;
    double *restrict slope = sums, *restrict curve = sums + channels, *restrict scale = sums + 2 * channels;
    const float second = other ? 1.0f : 0.0f;
    COMET_EACH for (int64_t c = 0; c < channels; c++) {
        float p, q, r, p2, q2, r2;
        silu_terms(y[c], dz[c], beta[c], &p, &q, &r);
        silu_terms(y[other + c], dz[other + c], beta[c], &p2, &q2, &r2);
        slope[c] += (double)(p + second * p2);
        curve[c] += (double)(q + second * q2);
        scale[c] += (double)(r + second * r2);
    }
}

COMET_RANGE(silu_range) {
    const reduction *r = context;
    for (int64_t row = first; row < end; row += r->block) {
        double *sums = sums_of(r, row);
        int64_t i = row;
        memset(sums, 0, (size_t)(3 * r->channels) * sizeof *sums);
        for (; i + 2 <= end_of_block(r, row); i += 2)
            add_silu(r->input, i, r->channels, r->channels, sums);
        if (i < end_of_block(r, row))
            add_silu(r->input, i, 0, r->channels, sums);
    }
}

void comet_statistics_silu(comet_threads *threads, const float *y, const float *dz, const float *beta, int64_t rows,
                           int64_t channels, double *scratch) {
    const silu_rows in = {y, dz, beta};
    reduction r = {.rows = rows, .channels = channels, .arrays = 3, .sums = scratch, .input = &in};
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
