/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch norm layer with random values, on the host and on the device, and what the CPU makes of it: for the tests of
 * comet/cuda_norm.h. Device memory is allocated to the byte.
 */
#ifndef TESTS_SUPPORT_CUDA_NORM_CASE_H
#define TESTS_SUPPORT_CUDA_NORM_CASE_H

#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cuda/cuda_impl.h"
#include "comet/cuda_norm.h"
#include "support/codec/tensors.h"
#include "support/cuda/device_memory.h"
#include "support/rng.h"

/* Every way to reach a tile, whole and ragged; channels that repeat in a block and that do not; many maps a tile. */
static const test_shape shapes[] = {
    {COMET_NHWC, 4, {4, 16, 16, 32}},
    {COMET_NHWC, 4, {3, 9, 9, 36}},
    {COMET_NHWC, 4, {2, 5, 7, 3}},
    {COMET_NHWC, 4, {2, 17, 16, 7}},
    {COMET_NHWC, 4, {2, 3, 7, 300}},
    {COMET_NHWC, 4, {40, 1, 1, 20}},
    {COMET_NHWC, 4, {5, 1, 2, 33}},
    {COMET_NHWC, 2, {64, 130}},
    {COMET_NHWC, 4, {1, 8, 12, 516}},
    {COMET_NCHW, 4, {2, 3, 40, 40}},
    {COMET_NCHW, 4, {4, 6, 10, 10}},
    {COMET_NCHW, 4, {3, 2, 28, 28}},
    {COMET_NCHW, 4, {5, 33, 7, 7}},
    {COMET_NCHW, 4, {2, 7, 1, 100}},
    {COMET_NCHW, 4, {1, 2, 3, 300}},
    {COMET_NCHW, 4, {2, 12, 8, 8}},
    {COMET_NCHW, 4, {2, 5, 9, 13}},
    {COMET_NCHW, 4, {1, 1, 20, 20}},
    {COMET_NCHW, 3, {40, 50, 1}},
    {COMET_NCHW, 4, {2, 4, 24, 15}},
    {COMET_NCHW, 5, {2, 3, 2, 9, 10}},
    /* small maps, whose borders lie anywhere in a tile, and rows that are no multiple of 4 */
    {COMET_NCHW, 4, {4, 60, 7, 7}},
    {COMET_NCHW, 4, {2, 12, 14, 14}},
    {COMET_NCHW, 4, {3, 70, 5, 5}},
    {COMET_NCHW, 4, {2, 65, 5, 7}},
    {COMET_NCHW, 4, {4, 300, 3, 1}},
    {COMET_NCHW, 4, {9, 400, 1, 1}},
    {COMET_NCHW, 4, {2, 80, 4, 4}},
    {COMET_NCHW, 4, {1, 9, 15, 15}},
    {COMET_NCHW, 4, {2, 3, 35, 35}},
    {COMET_NCHW, 4, {2, 9, 13, 17}},
    {COMET_NCHW, 4, {1, 4, 40, 42}},
    {COMET_NCHW, 4, {2, 8, 12, 12}},
    {COMET_NCHW, 4, {3, 5, 20, 20}},
    {COMET_NCHW, 4, {5, 1, 10, 14}},
    {COMET_NCHW, 4, {6, 1, 30, 7}},
    {COMET_NCHW, 4, {2, 200, 2, 9}},
    {COMET_NCHW, 4, {2, 3, 17, 70}},
    {COMET_NCHW, 4, {2, 3, 17, 69}},
    {COMET_NCHW, 4, {1, 61, 17, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- a layer, its input and gradient, on the host and on the device ---- */

typedef struct layer {
    test_shape shape;
    comet_dtype dtype;
    int64_t count, channels;
    size_t bytes;
    float *mean, *inverse_std, *gamma, *beta, *shift, *threshold; /* host */
    void *x, *dy;
    int relu;
    comet_cuda_norm norm;
    comet_tensor dx_tensor, dy_tensor, x_tensor, y_tensor; /* device */
    float *dgamma, *dbeta;                                 /* device */
    comet_codec_params params;
    comet_codec_exec exec;
    comet_cuda_slot slot;
    int32_t *status;
} layer;

static inline int64_t channel_of(const layer *l, int64_t i) {
    return i / shape_channel_stride(&l->shape) % l->channels;
}

/* -beta / gamma, rounded down, or up if gamma is negative: off is where gamma u + beta <= 0. */
static inline float threshold_of(float beta, float gamma) {
    if (gamma == 0)
        return beta <= 0 ? INFINITY : -INFINITY;
    float h = -beta / gamma;
    double rest = -(double)beta - (double)h * (double)gamma; /* exact; its sign, times gamma's, is that of -b/g - h */
    if (gamma > 0 && rest < 0)
        return nextafterf(h, -INFINITY);
    return gamma < 0 && rest < 0 ? nextafterf(h, INFINITY) : h;
}

static inline int is_off(float u, float threshold, float gamma) {
    return gamma < 0 ? u >= threshold : u <= threshold;
}

static inline float u_of(const layer *l, int64_t i) {
    int64_t c = channel_of(l, i);
    return fmaf(l->inverse_std[c], value_at(l->dtype, l->x, i), l->shift[c]);
}

/* Channels of every kind: slopes of both signs and none, thresholds that values lie on, that are far away, or at 0. */
static inline void make_tables(layer *l, rng *r) {
    float **all[] = {&l->mean, &l->inverse_std, &l->gamma, &l->beta, &l->shift, &l->threshold};
    for (size_t i = 0; i < 6; i++)
        *all[i] = take((size_t)l->channels * sizeof(float));
    for (int64_t c = 0; c < l->channels; c++) {
        int simple = rng_below(r, 3) == 0; /* u is x */
        l->mean[c] = simple ? 0 : (float)rng_gauss(r);
        l->inverse_std[c] = simple ? 1 : (float)(0.2 + 2 * rng_unit(r));
        l->gamma[c] = (float)((rng_below(r, 2) ? 1 : -1) * (0.3 + rng_unit(r)));
        l->beta[c] = simple ? l->gamma[c] * -0.5f : (float)rng_gauss(r) * 0.5f;
        if (rng_below(r, 6) == 0)
            l->gamma[c] = rng_below(r, 2) ? 0.0f : -0.0f;
        if (rng_below(r, 8) == 0)
            l->beta[c] = (float)rng_between(r, -1, 1) * 1e9f;
        l->shift[c] = -(l->mean[c] * l->inverse_std[c]);
        l->threshold[c] = threshold_of(l->beta[c], l->gamma[c]);
        if (!l->relu)
            l->threshold[c] = NAN;
    }
}

/* `wild`: with values that no code can hold. */
static inline void make_values(layer *l, rng *r, int wild) {
    l->x = take(l->bytes);
    l->dy = take(l->bytes);
    for (int64_t i = 0; i < l->count; i++) {
        float v = (float)rng_gauss(r);
        if (rng_below(r, 8) == 0)
            v = 0.5f; /* on the threshold of simple channels */
        if (wild && rng_below(r, 2000) == 0)
            v = (float)rng_gauss(r) * 3e4f;
        if (wild && rng_below(r, 3000) == 0)
            v = rng_below(r, 2) ? INFINITY : NAN;
        set_value(l->dtype, l->x, i, v);
        set_value(l->dtype, l->dy, i, (float)rng_gauss(r));
    }
}

static inline comet_tensor device_tensor(const layer *l, const void *from) {
    comet_tensor t;
    void *data = device_take(l->bytes, from);
    const comet_device device = {COMET_CUDA, 0};
    assert_ok(comet_tensor_init_on(&t, device, data, l->dtype, l->shape.layout, l->shape.ndim, l->shape.shape));
    return t;
}

static inline void to_device(layer *l) {
    size_t table = (size_t)l->channels * sizeof(float), capacity;
    l->norm = (comet_cuda_norm)COMET_CUDA_NORM_INIT;
    l->norm.channels = l->channels;
    l->norm.mean = device_take(table, l->mean);
    l->norm.inverse_std = device_take(table, l->inverse_std);
    l->norm.gamma = device_take(table, l->gamma);
    l->norm.beta = device_take(table, l->beta);
    l->norm.shift = device_take(table, NULL);
    l->norm.threshold = device_take(table, NULL);
    l->norm.relu = l->relu;
    l->dgamma = device_take(table, NULL);
    l->dbeta = device_take(table, NULL);
    l->x_tensor = device_tensor(l, l->x);
    l->y_tensor = device_tensor(l, NULL);
    l->dy_tensor = device_tensor(l, l->dy);
    l->dx_tensor = device_tensor(l, NULL);
    l->exec = (comet_codec_exec)COMET_CODEC_EXEC_INIT;
    assert_ok(comet_cuda_norm_workspace(&l->x_tensor, &l->params, &l->exec.workspace_bytes));
    l->exec.workspace = device_take(l->exec.workspace_bytes, NULL);
    assert_ok(comet_cuda_workspace_init(l->exec.workspace, l->exec.workspace_bytes, NULL));
    assert_ok(comet_cuda_norm_max_bytes(&l->x_tensor, &l->params, &capacity));
    l->slot = (comet_cuda_slot){device_take(capacity, NULL), capacity, NULL, NULL};
    l->slot.result = device_take(sizeof *l->slot.result, NULL);
    int32_t fine = COMET_OK;
    l->status = device_take(sizeof fine, &fine);
}

static inline void layer_new(layer *l, rng *r, const test_shape *shape, comet_dtype dtype, int relu, double bound,
                             int wild) {
    *l = (layer){.shape = *shape, .dtype = dtype, .relu = relu, .params = COMET_CODEC_PARAMS_INIT};
    l->count = shape_count(shape);
    l->channels = shape_channels(shape);
    l->bytes = (size_t)l->count * comet_dtype_size(dtype);
    l->params.bound = bound;
    make_tables(l, r);
    make_values(l, r, wild);
    to_device(l);
    assert_ok(comet_cuda_norm_prepare(&l->norm, NULL));
}

static inline void layer_free(layer *l) {
    unsigned char *zeroed = device_read(l->exec.workspace, CUDA_WORKSPACE_ZEROED);
    for (size_t i = 0; i < CUDA_WORKSPACE_ZEROED; i++)
        assert_int_equal(zeroed[i], 0);
    free(zeroed);
    void *host[] = {l->mean, l->inverse_std, l->gamma, l->beta, l->shift, l->threshold, l->x, l->dy};
    void *device[] = {(void *)l->norm.mean,
                      (void *)l->norm.inverse_std,
                      (void *)l->norm.gamma,
                      (void *)l->norm.beta,
                      l->norm.shift,
                      l->norm.threshold,
                      l->dgamma,
                      l->dbeta,
                      l->x_tensor.data,
                      l->y_tensor.data,
                      l->dy_tensor.data,
                      l->dx_tensor.data,
                      l->exec.workspace,
                      l->slot.base,
                      l->slot.result,
                      l->status};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        assert_cuda(cudaFree(device[i]));
}

static inline comet_codec_grid host_grid(const layer *l) {
    return (comet_codec_grid){l->channels, l->inverse_std, l->shift, l->threshold, l->gamma};
}

/* ---- what the CPU makes of it ---- */

/* The CPU's stream of the same tensor, and its result. */
static inline unsigned char *cpu_stream(const layer *l, size_t *bytes, comet_codec_result *result) {
    comet_codec_params p = l->params;
    comet_codec_grid grid = host_grid(l);
    comet_tensor x;
    size_t capacity;
    p.grid = &grid;
    assert_ok(comet_tensor_init(&x, l->x, l->dtype, l->shape.layout, l->shape.ndim, l->shape.shape));
    assert_ok(comet_codec_max_bytes(&x, &p, &capacity));
    unsigned char *stream = take(capacity);
    assert_ok(comet_codec_compress(&x, &p, NULL, stream, capacity, result));
    *bytes = result->bytes;
    return stream;
}

static inline void check_stream(const layer *l) {
    comet_cuda_result *result = device_read(l->slot.result, sizeof *result);
    comet_codec_result cpu = COMET_CODEC_RESULT_INIT;
    size_t bytes, expected_bytes;
    assert_int_equal(result->status, COMET_OK);
    unsigned char *stream = device_read(l->slot.base, result->codec.bytes), *serialised = take(result->codec.bytes);
    unsigned char *expected = cpu_stream(l, &expected_bytes, &cpu);
    assert_ok(comet_codec_serialise(stream, result->codec.bytes, 0, serialised, result->codec.bytes, &bytes));
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(serialised, expected, bytes);
    assert_memory_equal(&result->codec.stats, &cpu.stats, sizeof cpu.stats);
    assert_int_equal(result->codec.tiles_exact, cpu.tiles_exact);
    assert_int_equal(result->codec.tiles_wide, cpu.tiles_wide);
    free(result);
    free(stream);
    free(serialised);
    free(expected);
}

/* u', as the CPU decodes it. */
static inline float *decoded(const layer *l) {
    size_t bytes;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_codec_grid grid = host_grid(l);
    comet_tensor out;
    unsigned char *stream = cpu_stream(l, &bytes, &result);
    float *u = take((size_t)l->count * sizeof *u);
    assert_ok(comet_tensor_init(&out, u, COMET_F32, l->shape.layout, l->shape.ndim, l->shape.shape));
    assert_ok(comet_codec_decompress(stream, bytes, &grid, NULL, &out));
    free(stream);
    return u;
}

typedef struct gradients {
    void *dx;
    float *dgamma, *dbeta;
} gradients;

static inline void gradients_free(gradients *g) {
    free(g->dx);
    free(g->dgamma);
    free(g->dbeta);
}

/* What a number is expected to be, and how much of fp32's rounding has gone into it. */
typedef struct channel_sums {
    double dbeta, dgamma, abs_dz, abs_dot, most_u, most_dz;
} channel_sums;

static inline channel_sums *sum_channels(const layer *l, const float *u) {
    channel_sums *sums = calloc((size_t)l->channels, sizeof *sums);
    assert_non_null(sums);
    for (int64_t i = 0; i < l->count; i++) {
        int64_t c = channel_of(l, i);
        double dz = is_off(u[i], l->threshold[c], l->gamma[c]) ? 0 : (double)value_at(l->dtype, l->dy, i);
        sums[c].dbeta += dz;
        sums[c].dgamma += dz * (double)u[i];
        sums[c].abs_dz += fabs(dz);
        sums[c].abs_dot += fabs(dz * (double)u[i]);
        sums[c].most_u = fmax(sums[c].most_u, fabs((double)u[i]));
        sums[c].most_dz = fmax(sums[c].most_dz, fabs(dz));
    }
    return sums;
}

/* Sums within 2^-18 of the sum of magnitudes; dx within that of its largest term, and half a unit of its dtype. */
static inline void check_gradients(const layer *l, const float *u, const gradients *g) {
    const double part = 0x1p-18, unit = l->dtype == COMET_F32 ? 0x1p-22 : l->dtype == COMET_F16 ? 0x1p-11 : 0x1p-8;
    channel_sums *sums = sum_channels(l, u);
    double n = (double)l->count / (double)l->channels;
    for (int64_t c = 0; c < l->channels; c++) {
        assert_true(fabs((double)g->dbeta[c] - sums[c].dbeta) <= part * sums[c].abs_dz);
        assert_true(fabs((double)g->dgamma[c] - sums[c].dgamma) <= part * sums[c].abs_dot);
    }
    for (int64_t i = 0; i < l->count; i++) {
        int64_t c = channel_of(l, i);
        const channel_sums *s = &sums[c];
        double slope = (double)l->gamma[c] * (double)l->inverse_std[c];
        double dz = is_off(u[i], l->threshold[c], l->gamma[c]) ? 0 : (double)value_at(l->dtype, l->dy, i);
        double dx = slope * (dz - s->dbeta / n - (double)u[i] * s->dgamma / n);
        double most = fabs(slope) * (s->most_dz + s->abs_dz / n + s->most_u * s->abs_dot / n);
        double error = fabs((double)value_at(l->dtype, g->dx, i) - dx);
        assert_true(error <= part * most + unit * fabs(dx) + (l->dtype == COMET_F16 ? 0x1p-24 : 0));
    }
    free(sums);
}

static inline void check_same(const layer *l, const gradients *a, const gradients *b) {
    size_t table = (size_t)l->channels * sizeof(float);
    assert_memory_equal(a->dx, b->dx, l->bytes);
    assert_memory_equal(a->dgamma, b->dgamma, table);
    assert_memory_equal(a->dbeta, b->dbeta, table);
}

static inline float *exact_u(const layer *l) {
    float *u = take((size_t)l->count * sizeof *u);
    for (int64_t i = 0; i < l->count; i++)
        u[i] = u_of(l, i);
    return u;
}

#endif
