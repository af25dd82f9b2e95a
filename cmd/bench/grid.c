/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a threshold grid from a tensor's own values, and what is stored of them. */
#include "cmd/bench/grid.h"

#include <math.h>
#include <stdlib.h>

#include "base/tensor_check.h"
#include "cmd/common/command.h"
#include "cmd/files/values.h"

static const size_t table_alignment = 256; /* what device memory is asked for */

static int64_t channel_stride(const comet_tensor *t) {
    int64_t stride = 1;
    for (int d = 2; d < t->ndim && t->layout == COMET_NCHW; d++)
        stride *= t->shape[d];
    return stride;
}

typedef struct channel_sums {
    double sum, squares, count;
} channel_sums;

static void add_values(const comet_tensor *t, int64_t channels, channel_sums *sums) {
    int64_t count = comet_tensor_count(t), stride = channel_stride(t);
    for (int64_t i = 0; i < count; i++) {
        double v = (double)values_get(t->dtype, t->data, i);
        channel_sums *s = &sums[i / stride % channels];
        if (!isfinite(v))
            continue;
        s->sum += v;
        s->squares += v * v;
        s->count++;
    }
}

int bench_channels_measure(const comet_tensor *t, int64_t channels, float *mean, float *inverse_std) {
    channel_sums *sums = calloc((size_t)channels + 1, sizeof *sums);
    if (!sums)
        return FAILED;
    add_values(t, channels, sums);
    for (int64_t c = 0; c < channels; c++) {
        double n = fmax(sums[c].count, 1), m = sums[c].sum / n;
        mean[c] = (float)m;
        inverse_std[c] = (float)(1 / sqrt(fmax(sums[c].squares / n - m * m, 0) + 1e-5));
    }
    free(sums);
    return DONE;
}

void bench_slopes_make(float *gamma, float *beta, int64_t channels) {
    for (int64_t c = 0; c < channels; c++) {
        double a = sin(12.9898 * (double)c + 1), b = sin(78.233 * (double)c + 2);
        gamma[c] = (float)((c % 16 == 15 ? -1 : 1) * (1 + 0.5 * a));
        beta[c] = (float)(0.3 * b);
    }
}

/*
 * -beta / gamma, rounded such that gamma * threshold + beta is not above 0: what is on the threshold is off. The
 * product of two floats is exact in double.
 */
static float threshold_of(float gamma, float beta) {
    float threshold = (float)(-(double)beta / (double)gamma);
    int is_on = (double)threshold * (double)gamma > -(double)beta;
    return is_on ? nextafterf(threshold, gamma > 0 ? -INFINITY : INFINITY) : threshold;
}

size_t bench_grid_bytes(const bench_grid *g) {
    return g->table_room * GRID_TABLES;
}

const float *bench_grid_table(const bench_grid *g, const void *first, grid_table which) {
    return (const float *)(const void *)((const uint8_t *)first + (size_t)which * g->table_room);
}

comet_codec_grid bench_grid_at(const bench_grid *g, const void *first) {
    return (comet_codec_grid){.channels = g->channels,
                              .scale = bench_grid_table(g, first, GRID_SCALE),
                              .shift = bench_grid_table(g, first, GRID_SHIFT),
                              .threshold = bench_grid_table(g, first, GRID_THRESHOLD),
                              .slope = bench_grid_table(g, first, GRID_GAMMA)};
}

check_sides bench_grid_sides(const bench_grid *g) {
    return (check_sides){g->channels, g->stride, g->host.threshold, g->host.slope};
}

static float *own_table(bench_grid *g, grid_table which) {
    return (float *)(void *)(g->tables.data + (size_t)which * g->table_room);
}

static int make_tables(bench_grid *g, const comet_tensor *tensor) {
    float *scale = own_table(g, GRID_SCALE), *shift = own_table(g, GRID_SHIFT);
    float *gamma = own_table(g, GRID_GAMMA), *beta = own_table(g, GRID_BETA);
    if (bench_channels_measure(tensor, g->channels, shift, scale) != DONE) /* the mean, for now */
        return FAILED;
    bench_slopes_make(gamma, beta, g->channels);
    for (int64_t c = 0; c < g->channels; c++) {
        shift[c] = -(shift[c] * scale[c]);
        own_table(g, GRID_THRESHOLD)[c] = threshold_of(gamma[c], beta[c]);
    }
    return DONE;
}

static void make_values(bench_grid *g, const comet_tensor *t) {
    const float *scale = own_table(g, GRID_SCALE), *shift = own_table(g, GRID_SHIFT);
    float *values = (float *)(void *)g->values.data;
    int64_t count = comet_tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i / g->stride % g->channels;
        values[i] = fmaf(scale[c], values_get(t->dtype, t->data, i), shift[c]);
    }
}

int bench_grid_make(bench_grid *g, const comet_tensor *tensor) {
    g->channels = comet_tensor_channels(tensor);
    g->stride = g->channels > 1 ? channel_stride(tensor) : 1;
    g->table_room = ((size_t)g->channels * sizeof(float) + table_alignment - 1) / table_alignment * table_alignment;
    if (!buffer_reserve(&g->tables, bench_grid_bytes(g)) ||
        !buffer_reserve(&g->values, (size_t)comet_tensor_count(tensor) * sizeof(float)))
        return FAILED;
    if (make_tables(g, tensor) != DONE)
        return FAILED;
    make_values(g, tensor);
    g->host = bench_grid_at(g, g->tables.data);
    return DONE;
}

void bench_grid_free(bench_grid *g) {
    buffer_give(&g->tables);
    buffer_give(&g->values);
    *g = (bench_grid){0};
}
