/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors with random values, in several layouts, and workspaces of exactly the size asked for: for the tests of
 * comet/use_stats.h.
 */
#ifndef TESTS_SUPPORT_USE_STATS_CASE_H
#define TESTS_SUPPORT_USE_STATS_CASE_H

#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comet/use_stats.h"
#include "support/rng.h"

#define assert_near(a, b, relative)                                                                                    \
    do {                                                                                                               \
        const double near_a = (a), near_b = (b);                                                                       \
        if (!(fabs(near_a - near_b) <= (relative)*fabs(near_b)))                                                       \
            fail_msg("%s is %.9g, %s is %.9g", #a, near_a, #b, near_b);                                                \
    } while (0)

/* Values by image, row, column and channel. */
typedef struct batch {
    int64_t images, height, width, channels;
    float *values;
} batch;

static inline int64_t count_of(const batch *b) {
    return b->images * b->height * b->width * b->channels;
}

static inline int64_t index_of(const batch *b, int64_t n, int64_t h, int64_t w, int64_t c) {
    return ((n * b->height + h) * b->width + w) * b->channels + c;
}

static inline double at(const batch *b, int64_t n, int64_t h, int64_t w, int64_t c) {
    return (double)b->values[index_of(b, n, h, w, c)];
}

/* `zeros`: the share of values that are 0. */
static inline batch batch_new(rng *r, int64_t images, int64_t height, int64_t width, int64_t channels, double zeros) {
    batch b = {images, height, width, channels, NULL};
    b.values = malloc((size_t)count_of(&b) * sizeof *b.values);
    for (int64_t i = 0; i < count_of(&b); i++)
        b.values[i] = rng_unit(r) < zeros ? 0 : (float)(rng_gauss(r) + 0.3);
    return b;
}

/* A vector by channel. */
static inline float *channels_new(rng *r, int64_t channels, double mean, double deviation) {
    float *x = malloc((size_t)channels * sizeof *x);
    for (int64_t c = 0; c < channels; c++)
        x[c] = (float)(mean + deviation * rng_gauss(r));
    return x;
}

/* ---- layouts ---- */

enum { ROWS, PLANES, GAPS, MIRRORED_PLANES, FORMS };

typedef struct laid {
    comet_tensor tensor;
    float *memory;
} laid;

/* Strides of n, h, w, c; how many floats; where the first value lies. */
typedef struct plan {
    int64_t strides[4], floats, first;
} plan;

static inline plan plan_of(const batch *b, int form) {
    const int64_t h = b->height, w = b->width, c = b->channels;
    if (form == ROWS)
        return (plan){{h * w * c, w * c, c, 1}, count_of(b), 0};
    if (form == PLANES)
        return (plan){{c * h * w, w, 1, h * w}, count_of(b), 0};
    if (form == GAPS) { /* more channels, columns and rows lie in memory than belong to the view */
        const int64_t pixel = 2 * c + 3, row = (w + 1) * pixel, image = (h + 2) * row;
        return (plan){{image, row, pixel, 2}, b->images * image, 1};
    }
    return (plan){{c * h * w, -w, 1, h * w}, count_of(b), (h - 1) * w}; /* rows from the last to the first */
}

/* What is not the view's is NaN: it must not be read. */
static inline laid lay(const batch *b, int form) {
    const plan p = plan_of(b, form);
    const int is_rows = form == ROWS || form == GAPS;
    laid l = {.memory = malloc((size_t)p.floats * sizeof *l.memory)};
    for (int64_t i = 0; i < p.floats; i++)
        l.memory[i] = NAN;
    for (int64_t i = 0; i < count_of(b); i++) {
        const int64_t c = i % b->channels, pixel = i / b->channels, w = pixel % b->width, line = pixel / b->width;
        l.memory[p.first + line / b->height * p.strides[0] + line % b->height * p.strides[1] + w * p.strides[2] +
                 c * p.strides[3]] = b->values[i];
    }
    l.tensor = (comet_tensor){
        .data = l.memory + p.first,
        .dtype = COMET_F32,
        .layout = is_rows ? COMET_NHWC : COMET_NCHW,
        .ndim = 4,
        .shape = {b->images, is_rows ? b->height : b->channels, is_rows ? b->width : b->height,
                  is_rows ? b->channels : b->width},
        .strides = {p.strides[0], p.strides[is_rows ? 1 : 3], p.strides[is_rows ? 2 : 1], p.strides[is_rows ? 3 : 2]}};
    return l;
}

/* ---- running ---- */

/* A workspace of so many bytes, which sanitizers watch the end of. */
static inline comet_stats_exec exec_new(size_t bytes, comet_threads *threads) {
    comet_stats_exec e = COMET_STATS_EXEC_INIT;
    e.threads = threads;
    e.workspace_bytes = bytes;
    assert_int_equal(posix_memalign(&e.workspace, 64, bytes ? bytes : 1), 0);
    memset(e.workspace, 0x7f, bytes); /* nothing may depend on what is there */
    return e;
}

/* Query, run, give the workspace back. */
#define SEE(kind, pass, threads, into)                                                                                 \
    do {                                                                                                               \
        size_t see_bytes;                                                                                              \
        assert_ok(comet_stats_##kind##_workspace((pass), &see_bytes));                                                 \
        comet_stats_exec see_exec = exec_new(see_bytes, (threads));                                                    \
        assert_ok(comet_stats_see_##kind((pass), &see_exec, (into)));                                                  \
        free(see_exec.workspace);                                                                                      \
    } while (0)

/* ---- a layer ---- */

typedef struct conv {
    batch x, dy;
    float *weights;
    int kernel[2], stride[2], padding[2], dilation[2], groups;
} conv;

static inline int64_t output_of(int64_t in, int kernel, int stride, int padding, int dilation) {
    return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

static inline int64_t fan_in_of(const conv *v) {
    return v->x.channels / v->groups * v->kernel[0] * v->kernel[1];
}

/* Any convolution with so many images at most, and a map of 3 to 12 pixels each way. */
static inline conv conv_new(rng *r, int most_images) {
    conv v = {.groups = (int)rng_between(r, 1, 3)};
    int64_t in[2], out[2];
    for (int a = 0; a < 2; a++) {
        v.kernel[a] = (int)rng_between(r, 1, 3);
        v.stride[a] = (int)rng_between(r, 1, 2);
        v.padding[a] = (int)rng_between(r, 0, 2);
        v.dilation[a] = (int)rng_between(r, 1, 2);
        in[a] = rng_between(r, 5, 12);
        out[a] = output_of(in[a], v.kernel[a], v.stride[a], v.padding[a], v.dilation[a]);
    }
    const int64_t images = rng_between(r, 1, most_images);
    v.x = batch_new(r, images, in[0], in[1], v.groups * rng_between(r, 1, 9), 0.4);
    v.dy = batch_new(r, images, out[0], out[1], v.groups * rng_between(r, 1, 9), 0);
    v.weights = channels_new(r, v.dy.channels * fan_in_of(&v), 0, 1);
    return v;
}

static inline void conv_free(conv *v) {
    free(v->x.values);
    free(v->dy.values);
    free(v->weights);
}

static inline comet_layer_pass conv_pass(const conv *v, const comet_tensor *x, const comet_tensor *dy) {
    comet_layer_pass p = COMET_LAYER_PASS_INIT;
    p.what = COMET_STATS_OUTPUT | COMET_STATS_INPUT | COMET_STATS_COMMON;
    p.input = x;
    p.gradient = dy;
    p.weights = v->weights;
    memcpy(p.kernel, v->kernel, sizeof p.kernel);
    memcpy(p.stride, v->stride, sizeof p.stride);
    memcpy(p.padding, v->padding, sizeof p.padding);
    memcpy(p.dilation, v->dilation, sizeof p.dilation);
    p.groups = v->groups;
    return p;
}

/* ---- a batch norm ---- */

typedef struct norm {
    batch x, dy;
    float *scale, *shift, *gamma, *beta;
    uint8_t *mask; /* of x > 0 */
} norm;

static inline norm norm_of(rng *r, int64_t images, int64_t height, int64_t width, int64_t channels) {
    norm n = {.x = batch_new(r, images, height, width, channels, 0)};
    n.dy = batch_new(r, images, height, width, channels, 0.1);
    n.scale = channels_new(r, channels, 1.5, 0.1);
    n.shift = channels_new(r, channels, 0.2, 0.1);
    n.gamma = channels_new(r, channels, 0.4, 1);
    n.beta = channels_new(r, channels, 0.1, 0.3);
    n.mask = calloc((size_t)(count_of(&n.x) + 7) / 8, 1);
    for (int64_t i = 0; i < count_of(&n.x); i++)
        n.mask[i / 8] |= (uint8_t)((n.x.values[i] > 0) << (i % 8));
    return n;
}

static inline norm norm_new(rng *r, int64_t images) {
    const int64_t height = rng_between(r, 1, 9), width = rng_between(r, 1, 9);
    return norm_of(r, images, height, width, rng_between(r, 1, 21));
}

static inline void norm_free(norm *n) {
    free(n->x.values);
    free(n->dy.values);
    free(n->scale);
    free(n->shift);
    free(n->gamma);
    free(n->beta);
    free(n->mask);
}

static inline comet_norm_pass norm_pass(const norm *n, const comet_tensor *x, const comet_tensor *dy) {
    comet_norm_pass p = COMET_NORM_PASS_INIT;
    p.values = x;
    p.gradient = dy;
    p.scale = n->scale;
    p.gamma = n->gamma;
    p.beta = n->beta;
    return p;
}

#endif
