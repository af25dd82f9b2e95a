// SPDX-License-Identifier: Apache-2.0
// The graphs that cudnn_probe.c asks cuDNN for, by name.
#ifndef CUDNN_PATTERNS_H
#define CUDNN_PATTERNS_H
#include "cudnn_graphs.h"

typedef int (*place)(graph *, role); // before or after: the tensor that a chain of pointwise operations is over

static inline void build_forward(graph *g) {
    const int x = before(g, input), w = filter(g, input);
    convolve(g, forward, x, w, after(g, output));
}

static inline void build_by_input(graph *g) {
    const int dy = after(g, input), w = filter(g, input);
    convolve(g, by_input, before(g, output), w, dy);
}

static inline void build_by_filter(graph *g) {
    const int x = before(g, input), dy = after(g, input);
    convolve(g, by_filter, x, filter(g, output), dy);
}

// relu(scale x + bias), the form that batch norm takes once its statistics are known.
static inline int affine_relu(graph *g, place where, cudnnDataType_t type, int count, int x, role last) {
    const int scale = channels(g, input, type, count), bias = channels(g, input, type, count);
    const int scaled = where(g, inner), shifted = where(g, inner), y = where(g, last);
    pointwise(g, CUDNN_POINTWISE_MUL, x, scale, scaled);
    pointwise(g, CUDNN_POINTWISE_ADD, scaled, bias, shifted);
    pointwise(g, CUDNN_POINTWISE_RELU_FWD, shifted, -1, y);
    return y;
}

static inline void build_forward_affine(graph *g) {
    const int x = before(g, input), w = filter(g, input), y = after(g, inner);
    convolve(g, forward, x, w, y);
    affine_relu(g, after, g->type, g->shape->k, y, output);
}

static inline void build_forward_statistics(graph *g) {
    const int x = before(g, input), w = filter(g, input), y = after(g, output);
    convolve(g, forward, x, w, y);
    statistics(g, y);
}

static inline int build_affine_forward_to(graph *g) {
    const int x = affine_relu(g, before, g->type, g->shape->c, before(g, input), inner);
    const int w = filter(g, input), y = after(g, output);
    convolve(g, forward, x, w, y);
    return y;
}

static inline void build_affine_forward(graph *g) {
    build_affine_forward_to(g);
}

static inline void build_affine_forward_statistics(graph *g) {
    statistics(g, build_affine_forward_to(g));
}

static inline void build_affine_by_filter(graph *g) {
    const int x = affine_relu(g, before, g->type, g->shape->c, before(g, input), inner);
    const int dy = after(g, input);
    convolve(g, by_filter, x, filter(g, output), dy);
}

static inline void build_by_input_add(graph *g) {
    const int dy = after(g, input), w = filter(g, input), dx = before(g, inner), shortcut = before(g, input);
    convolve(g, by_input, dx, w, dy);
    pointwise(g, CUDNN_POINTWISE_ADD, dx, shortcut, before(g, output));
}

// Batch norm with known statistics, one operation for each step, as the pattern around dgrad wants it.
static inline int normalise(graph *g, saved of, int x) {
    const int centred = before(g, inner), unit = before(g, inner), scaled = before(g, inner), y = before(g, inner);
    pointwise(g, CUDNN_POINTWISE_SUB, x, of.mean, centred);
    pointwise(g, CUDNN_POINTWISE_MUL, centred, of.inverse, unit);
    pointwise(g, CUDNN_POINTWISE_MUL, unit, of.scale, scaled);
    pointwise(g, CUDNN_POINTWISE_ADD, scaled, of.bias, y);
    return y;
}

static inline void build_by_input_relu_norm(graph *g) {
    const saved of = saved_of(g, g->shape->c);
    const int dy = after(g, input), w = filter(g, input), gradient = before(g, inner), x = before(g, input);
    convolve(g, by_input, gradient, w, dy);
    const int activation = normalise(g, of, x), masked = before(g, output);
    pointwise(g, CUDNN_POINTWISE_RELU_BWD, gradient, activation, masked);
    norm_backward_weights(g, of, x, masked);
}

static inline void build_norm(graph *g) {
    const int x = after(g, input);
    norm_forward(g, x, after(g, output));
}

static inline void norm_relu(graph *g, bool add) {
    const int x = after(g, input), normal = after(g, inner), sum = add ? after(g, inner) : normal;
    const int y = after(g, output), zero = value(g, g->type);
    norm_forward(g, x, normal);
    if (add)
        pointwise(g, CUDNN_POINTWISE_ADD, normal, after(g, input), sum);
    pointwise(g, CUDNN_POINTWISE_RELU_FWD, sum, -1, y);
    pointwise(g, CUDNN_POINTWISE_CMP_GT, y, zero, mask(g, output));
}

static inline void build_norm_relu(graph *g) {
    norm_relu(g, false);
}

static inline void build_norm_add_relu(graph *g) {
    norm_relu(g, true);
}

static inline void build_norm_backward(graph *g) {
    const int x = after(g, input), dy = after(g, input);
    norm_backward(g, saved_of(g, g->shape->k), x, dy, after(g, output));
}

static inline void relu_norm_backward(graph *g, role shortcut) {
    const int x = after(g, input), dy = after(g, input), bits = mask(g, input), masked = after(g, shortcut);
    pointwise(g, CUDNN_POINTWISE_MUL, dy, bits, masked);
    norm_backward(g, saved_of(g, g->shape->k), x, masked, after(g, output));
}

static inline void build_relu_norm_backward(graph *g) {
    relu_norm_backward(g, inner);
}

static inline void build_relu_norm_backward_shortcut(graph *g) {
    relu_norm_backward(g, output);
}

static inline void build_recomputed_relu_norm_backward(graph *g) {
    const saved of = saved_of(g, g->shape->k);
    const int x = after(g, input), dy = after(g, input), activation = after(g, inner), masked = after(g, inner);
    norm_apply(g, of, x, activation);
    pointwise(g, CUDNN_POINTWISE_RELU_BWD, dy, activation, masked);
    norm_backward(g, of, x, masked, after(g, output));
}

static inline void build_affine_add_relu(graph *g) {
    const int x = after(g, input), shortcut = after(g, input), count = g->shape->k;
    const int scale = channels(g, input, single, count), bias = channels(g, input, single, count);
    const int scaled = after(g, inner), shifted = after(g, inner), sum = after(g, inner);
    pointwise(g, CUDNN_POINTWISE_MUL, x, scale, scaled);
    pointwise(g, CUDNN_POINTWISE_ADD, scaled, bias, shifted);
    pointwise(g, CUDNN_POINTWISE_ADD, shifted, shortcut, sum);
    pointwise(g, CUDNN_POINTWISE_RELU_FWD, sum, -1, after(g, output));
}

// The parts of a fusion: the time of pattern `alone`, and copies of the tensors before and after the convolution for
// the passes over memory it saves (one copy is one read and one write; the bits of a mask do not count).
typedef enum { everywhere, past_stem, norms } asked;
static const struct {
    const char *name;
    void (*build)(graph *);
    asked where;
    int alone;
    double copies_before, copies_after;
} patterns[] = {
    {"fwd", build_forward, everywhere, -1, 0, 0},
    {"dgrad", build_by_input, past_stem, -1, 0, 0},
    {"wgrad", build_by_filter, everywhere, -1, 0, 0},
    {"fwd+sbr", build_forward_affine, everywhere, 0, 0, 1},
    {"fwd+stats", build_forward_statistics, everywhere, 0, 0, 0.5},
    {"sbr+fwd", build_affine_forward, past_stem, 0, 1, 0},
    {"sbr+fwd+stats", build_affine_forward_statistics, past_stem, 0, 1, 0.5},
    {"sbr+wgrad", build_affine_by_filter, past_stem, 2, 1, 0},
    {"dgrad+add", build_by_input_add, past_stem, 1, 1.5, 0},
    {"dgrad+drelu+dbnw", build_by_input_relu_norm, past_stem, 1, 1.5, 0},
    {"bn", build_norm, norms, -1, 0, 0},
    {"bn+relu", build_norm_relu, norms, 10, 0, 1},
    {"bn+add+relu", build_norm_add_relu, norms, 10, 0, 1.5},
    {"dbn", build_norm_backward, norms, -1, 0, 0},
    {"drelu+dbn", build_relu_norm_backward, norms, 13, 0, 1},
    {"drelu+dbn+dz", build_relu_norm_backward_shortcut, norms, 13, 0, 1},
    {"bnx+drelu+dbn", build_recomputed_relu_norm_backward, norms, 13, 0, 1.5},
    {"sb+add+relu", build_affine_add_relu, norms, -1, 0, 0},
};
enum { pattern_count = sizeof patterns / sizeof patterns[0] };
#endif
