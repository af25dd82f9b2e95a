/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of the backward of a SiLU, and of a channel scale. */
#include <string.h>

#include "base/vector/math.h"
#include "control/collect/sums_impl.h"

/* ---- SiLU ---- */

/* act = y s, act' = s (1 + y (1 - s)), act'' = s (1 - s) (2 + y (1 - 2 s)). */
typedef struct silu_rows {
    const comet_maps *y, *dz;
    const float *beta;
} silu_rows;

/* act'(v), g act''(v), and g times the derivative of act'(v) (v - shift). */
COMET_INLINE void silu_terms(float v, float g, float shift, float *slope, float *curve, float *scale) {
    const float s = comet_sigmoidf(v), d = s * (1.0f + v * (1.0f - s));
    const float b = g * (s * (1.0f - s) * (2.0f + v * (1.0f - 2.0f * s))), a = g * d + b * (v - shift);
    *slope = d * d;
    *curve = b * b;
    *scale = a * a;
}

/*
 * Two rows, by hand: a loop over them would keep the one over channels from becoming vectors. `other`: the second's
 * distance, 0 if it is not there.
 */
COMET_INLINE void add_silu(const float *y, const float *dz, const float *restrict beta, int64_t other, int64_t channels,
                           double *restrict sums) {
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
    const comet_reduction *r = context;
    const silu_rows *in = r->input;
    const int64_t channels = r->channels;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = comet_reduction_end(r, row);
        double *sums = comet_reduction_sums(r, row);
        memset(sums, 0, (size_t)(3 * channels) * sizeof *sums);
        for (int64_t at = row, count; at < stop; at += count) {
            const int64_t of_y = comet_reduction_count(in->y, at, stop),
                          of_dz = comet_reduction_count(in->dz, at, stop);
            count = of_y < of_dz ? of_y : of_dz;
            const float *y = comet_maps_rows(in->y, at, count, comet_reduction_strip(r, 0, channels, row));
            const float *dz = comet_maps_rows(in->dz, at, count, comet_reduction_strip(r, 1, channels, row));
            int64_t i = 0;
            for (; i + 2 <= count; i += 2)
                add_silu(y + i * channels, dz + i * channels, in->beta, channels, channels, sums);
            if (i < count)
                add_silu(y + i * channels, dz + i * channels, in->beta, 0, channels, sums);
        }
    }
}

void comet_sums_silu(comet_threads *threads, const comet_maps *y, const comet_maps *dz, const float *beta,
                     const comet_sums *memory) {
    const silu_rows in = {y, dz, beta};
    comet_reduction r = {
        .rows = comet_maps_pixels(y), .channels = y->channels, .arrays = 3, .memory = memory, .input = &in};
    comet_reduce(threads, &r, silu_range, 0);
}

/* ---- channel scale ---- */

typedef struct factors {
    const comet_maps *s, *dy;
} factors;

/* The sum over the map of one image, by channel. */
COMET_INLINE void add_map(const comet_maps *m, int64_t image, float *strip, double *restrict map) {
    const int64_t channels = m->channels, first = image * m->height * m->width, end = first + m->height * m->width;
    memset(map, 0, (size_t)channels * sizeof *map);
    for (int64_t at = first, count; at < end; at += count) {
        count = comet_reduction_count(m, at, end);
        const float *rows = comet_maps_rows(m, at, count, strip);
        for (int64_t p = 0; p < count; p++) {
            const float *restrict dy = rows + p * channels;
            COMET_EACH for (int64_t c = 0; c < channels; c++) map[c] += (double)dy[c] * (double)dy[c];
        }
    }
}

/* Rows are images here; the third array is the sum over a map. */
COMET_RANGE(factors_range) {
    const comet_reduction *r = context;
    const factors *f = r->input;
    const int64_t channels = r->channels;
    for (int64_t row = first; row < end; row += r->block) {
        double *restrict gain = comet_reduction_sums(r, row), *restrict square = gain + channels,
                         *restrict map = square + channels;
        memset(gain, 0, (size_t)(2 * channels) * sizeof *gain);
        for (int64_t i = row; i < comet_reduction_end(r, row); i++) {
            const float *restrict s = comet_maps_rows(f->s, i, 1, comet_reduction_strip(r, 0, channels, row));
            add_map(f->dy, i, comet_reduction_strip(r, 1, channels, row), map);
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const double v = (double)s[c], slope = v * (1 - v);
                gain[c] += slope * slope * map[c];
                square[c] += v * v;
            }
        }
    }
}

void comet_sums_factors(comet_threads *threads, const comet_maps *s, const comet_maps *dy, const comet_sums *memory) {
    const factors f = {s, dy};
    comet_reduction r = {.rows = s->images, .channels = s->channels, .arrays = 3, .memory = memory, .input = &f};
    comet_reduce(threads, &r, factors_range, 0);
}
