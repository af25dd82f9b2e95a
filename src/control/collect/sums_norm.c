/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a batch norm's backward. */
#include <math.h>
#include <string.h>

#include "control/collect/sums_impl.h"

enum { TOGETHER = COMET_SUMS_TOGETHER };

/* A bit for each value: bit i % 8 of byte i / 8. */
COMET_INLINE int bit_at(const unsigned char *bits, int64_t i) {
    return bits[i / 8] >> (i % 8) & 1;
}

COMET_INLINE void norm_row(const comet_norm_rows *n, const float *restrict x, const float *restrict dy, int64_t row,
                           int64_t channels, double *restrict sums) {
    const float *restrict gamma = n->gamma, *restrict beta = n->beta;
    double *restrict square = sums, *restrict product = sums + channels, *restrict on = sums + 2 * channels;
    double *restrict greatest_g = sums + 3 * channels, *restrict greatest_u = sums + 4 * channels;
    COMET_EACH for (int64_t c = 0; c < channels; c++) {
        const float u = n->scale ? fmaf(n->scale[c], x[c], n->shift[c]) : x[c];
        int is = 1;
        if (n->relu)
            is = n->mask ? bit_at(n->mask, (n->first + row) * channels + c) : fmaf(gamma[c], u, beta[c]) > 0;
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

/* Rows of both tensors, as many as can be read at once. */
typedef struct pieces {
    const float *x, *dy;
    int64_t count;
} pieces;

COMET_INLINE pieces pieces_at(const comet_reduction *r, const comet_norm_rows *n, int64_t block, int64_t row,
                              int64_t end) {
    const int64_t of_x = comet_reduction_count(&n->x, row, end), of_dy = comet_reduction_count(&n->dy, row, end);
    const int64_t count = of_x < of_dy ? of_x : of_dy;
    return (pieces){comet_maps_rows(&n->x, row, count, comet_reduction_strip(r, 0, r->channels, block)),
                    comet_maps_rows(&n->dy, row, count, comet_reduction_strip(r, 1, r->channels, block)), count};
}

COMET_RANGE(norm_range) {
    const comet_reduction *r = context;
    const comet_norm_rows n = *(const comet_norm_rows *)r->input;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = comet_reduction_end(r, row), channels = r->channels;
        double *sums = comet_reduction_sums(r, row);
        memset(sums, 0, (size_t)(r->arrays * channels) * sizeof *sums);
        for (int64_t at = row; at < stop;) {
            const pieces p = pieces_at(r, &n, row, at, stop);
            for (int64_t i = 0; i < p.count; i++)
                norm_row(&n, p.x + i * channels, p.dy + i * channels, at + i, channels, sums);
            at += p.count;
        }
    }
}

/* The usual case, as a loop without choices that vectors can take: normalised, with a ReLU from u or none. */
COMET_INLINE void add_usual(const comet_norm_rows *n, const float *u, const float *dy, int rows, int64_t channels,
                            double *restrict sums) {
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

COMET_RANGE(usual_range) {
    const comet_reduction *r = context;
    const comet_norm_rows *n = r->input;
    for (int64_t row = first; row < end; row += r->block) {
        const int64_t stop = comet_reduction_end(r, row), channels = r->channels;
        double *sums = comet_reduction_sums(r, row);
        memset(sums, 0, (size_t)(r->arrays * channels) * sizeof *sums);
        for (int64_t at = row; at < stop;) {
            const pieces p = pieces_at(r, n, row, at, stop);
            int64_t i = 0;
            for (; i + TOGETHER <= p.count; i += TOGETHER)
                add_usual(n, p.x + i * channels, p.dy + i * channels, TOGETHER, channels, sums);
            for (; i < p.count; i++)
                add_usual(n, p.x + i * channels, p.dy + i * channels, 1, channels, sums);
            at += p.count;
        }
    }
}

void comet_sums_norm(comet_threads *threads, const comet_norm_rows *n, const comet_sums *memory) {
    comet_reduction r = {.rows = comet_maps_pixels(&n->x),
                         .channels = n->x.channels,
                         .arrays = n->greatest ? 5 : 3,
                         .memory = memory,
                         .input = n};
    const int usual = !n->scale && !n->mask && !n->greatest;
    comet_reduce(threads, &r, usual ? usual_range : norm_range, n->greatest ? 2 : 0);
}

/* ---- the gradient of one row ---- */

COMET_CLONES(read_masked,
             (const float *dy, const unsigned char *mask, int64_t first, int64_t channels, float *restrict g),
             (dy, mask, first, channels, g)) {
    for (int64_t c = 0; c < channels; c++)
        g[c] = bit_at(mask, first + c) ? dy[c] : 0;
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

void comet_norm_gradient(const comet_norm_rows *n, int64_t row, float *x_room, float *dy_room, float *g) {
    const int64_t channels = n->x.channels;
    const float *dy = comet_maps_rows(&n->dy, row, 1, dy_room);
    if (!n->relu) {
        memcpy(g, dy, (size_t)channels * sizeof *g);
        return;
    }
    if (n->mask) {
        read_masked(dy, n->mask, (n->first + row) * channels, channels, g);
        return;
    }
    const float *x = comet_maps_rows(&n->x, row, 1, x_room);
    if (n->scale)
        normalise(n, x, channels, g);
    read_relu(n, n->scale ? g : x, dy, channels, g);
}
