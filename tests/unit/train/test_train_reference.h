/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks in fp64, one plain loop for each op: the loss that gradients are checked against by central differences.
 * Shares the graph with the library and nothing else. Training mode: statistics of the batch; what is dropped is drawn
 * again from the counter.
 */
#ifndef TESTS_TRAIN_REFERENCE_H
#define TESTS_TRAIN_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "train/graph/graph_impl.h"

typedef struct reference {
    const comet_graph *graph;
    int batch;
    uint64_t seed, step;
    const int32_t *labels;
    double smoothing;
    double **values;     /* by value */
    double **parameters; /* by parameter */
} reference;

static inline size_t reference_count(const reference *r, comet_value v) {
    return (size_t)comet_shape_count(r->graph->values[v].shape) * (size_t)r->batch;
}

static inline reference reference_new(const comet_graph *g, int batch, const float *input) {
    reference r = {.graph = g, .batch = batch};
    r.values = calloc((size_t)g->value_count, sizeof *r.values);
    r.parameters = calloc((size_t)g->parameter_count + 1, sizeof *r.parameters);
    for (int v = 0; v < g->value_count; v++)
        r.values[v] = calloc(reference_count(&r, v), sizeof(double));
    for (size_t i = 0; i < reference_count(&r, g->input); i++)
        r.values[g->input][i] = (double)input[i];
    for (int i = 0; i < g->parameter_count; i++) {
        r.parameters[i] = calloc((size_t)g->parameters[i].count, sizeof(double));
        for (int64_t k = 0; k < g->parameters[i].count; k++)
            r.parameters[i][k] = (double)g->parameters[i].value[k];
    }
    return r;
}

static inline void reference_free(reference *r) {
    for (int v = 0; v < r->graph->value_count; v++)
        free(r->values[v]);
    for (int i = 0; i < r->graph->parameter_count; i++)
        free(r->parameters[i]);
    free(r->values);
    free(r->parameters);
}

static inline const double *reference_parameter(const reference *r, const comet_node *n, int place) {
    return n->parameter[place] < 0 ? NULL : r->parameters[n->parameter[place]];
}

/* Value (b, h, w, c) of a tensor; 0 outside. */
static inline double reference_at(const comet_shape *s, const double *x, int b, int h, int w, int c) {
    if (h < 0 || w < 0 || h >= s->height || w >= s->width)
        return 0;
    return x[(((int64_t)b * s->height + h) * s->width + w) * s->channels + c];
}

static inline double reference_conv(const reference *r, const comet_node *n, int b, int h, int w, int o) {
    const comet_conv2d *c = &n->as.conv;
    const comet_shape *in = comet_value_shape(r->graph, n->input[0]);
    const double *weight = reference_parameter(r, n, COMET_PARAMETER_WEIGHT),
                 *bias = reference_parameter(r, n, COMET_PARAMETER_BIAS);
    const int group_in = in->channels / c->groups, group = o / (c->out / c->groups);
    double sum = bias ? bias[o] : 0;
    for (int i = 0; i < group_in; i++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel_width; x++)
                sum += weight[((o * group_in + i) * c->kernel + y) * c->kernel_width + x] *
                       reference_at(in, r->values[n->input[0]], b, h * c->stride - c->padding + y,
                                    w * c->stride - c->padding_width + x, group * group_in + i);
    return sum;
}

static inline double reference_pool(const reference *r, const comet_node *n, int b, int h, int w, int c) {
    const comet_pool2d *p = &n->as.pool;
    const comet_shape *in = comet_value_shape(r->graph, n->input[0]);
    double most = -INFINITY, sum = 0;
    int inside = 0, padded = 0;
    for (int y = h * p->stride - p->padding; y < h * p->stride - p->padding + p->kernel; y++)
        for (int x = w * p->stride - p->padding; x < w * p->stride - p->padding + p->kernel; x++) {
            padded += y < in->height + p->padding && x < in->width + p->padding;
            if (y < 0 || x < 0 || y >= in->height || x >= in->width)
                continue;
            const double v = reference_at(in, r->values[n->input[0]], b, y, x, c);
            most = v > most ? v : most;
            sum += v;
            inside++;
        }
    return n->kind == COMET_OP_MAX_POOL ? most : sum / (p->count_padding ? padded : inside);
}

static inline double reference_adaptive(const reference *r, const comet_node *n, int b, int h, int w, int c) {
    const comet_shape *in = comet_value_shape(r->graph, n->input[0]), *out = comet_value_shape(r->graph, n->output);
    double sum = 0;
    int count = 0;
    for (int y = h * in->height / out->height; y * out->height < (h + 1) * in->height; y++)
        for (int x = w * in->width / out->width; x * out->width < (w + 1) * in->width; x++, count++)
            sum += reference_at(in, r->values[n->input[0]], b, y, x, c);
    return sum / count;
}

static inline void reference_norm(const reference *r, const comet_node *n) {
    const int channels = comet_value_shape(r->graph, n->output)->channels;
    const size_t rows = reference_count(r, n->output) / (size_t)channels;
    const double *x = r->values[n->input[0]], *gamma = reference_parameter(r, n, COMET_PARAMETER_WEIGHT);
    const double *beta = reference_parameter(r, n, COMET_PARAMETER_BIAS);
    for (int c = 0; c < channels; c++) {
        double mean = 0, var = 0;
        for (size_t i = 0; i < rows; i++)
            mean += x[i * (size_t)channels + (size_t)c] / (double)rows;
        for (size_t i = 0; i < rows; i++)
            var += pow(x[i * (size_t)channels + (size_t)c] - mean, 2) / (double)rows;
        for (size_t i = 0; i < rows; i++)
            r->values[n->output][i * (size_t)channels + (size_t)c] =
                gamma[c] * (x[i * (size_t)channels + (size_t)c] - mean) / sqrt(var + (double)n->as.norm.epsilon) +
                beta[c];
    }
}

static inline double reference_kept(const reference *r, const comet_node *n, uint64_t counter, int word) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)r->step, (uint32_t)(n - r->graph->nodes), 16u << 16};
    comet_philox(c, r->seed);
    return (double)c[word] * 0x1p-32 < (double)n->as.probability ? 0 : 1 / (1 - (double)n->as.probability);
}

static inline double reference_linear(const reference *r, const comet_node *n, int b, int o) {
    const int in = comet_value_shape(r->graph, n->input[0])->channels;
    const double *weight = reference_parameter(r, n, COMET_PARAMETER_WEIGHT),
                 *bias = reference_parameter(r, n, COMET_PARAMETER_BIAS);
    double sum = bias ? bias[o] : 0;
    for (int i = 0; i < in; i++)
        sum += weight[o * in + i] * r->values[n->input[0]][b * in + i];
    return sum;
}

static inline double reference_value(const reference *r, const comet_node *n, int b, int h, int w, int c) {
    const comet_shape *in = comet_value_shape(r->graph, n->input[0]), *out = comet_value_shape(r->graph, n->output);
    const double *x = r->values[n->input[0]];
    const int64_t i = (((int64_t)b * out->height + h) * out->width + w) * out->channels + c;
    switch (n->kind) {
    case COMET_OP_CONV:
        return reference_conv(r, n, b, h, w, c);
    case COMET_OP_RELU:
        return x[i] > 0 ? x[i] : 0;
    case COMET_OP_SILU:
        return x[i] / (1 + exp(-x[i]));
    case COMET_OP_SIGMOID:
        return 1 / (1 + exp(-x[i]));
    case COMET_OP_ADD:
        return x[i] + r->values[n->input[1]][i];
    case COMET_OP_SCALE:
        return x[i] * r->values[n->input[1]][b * out->channels + c];
    case COMET_OP_MAX_POOL:
    case COMET_OP_AVERAGE_POOL:
        return reference_pool(r, n, b, h, w, c);
    case COMET_OP_ADAPTIVE_POOL:
        return reference_adaptive(r, n, b, h, w, c);
    case COMET_OP_SHORTCUT:
        return c < in->channels ? reference_at(in, x, b, h * n->as.stride, w * n->as.stride, c) : 0;
    case COMET_OP_FLATTEN:
        return reference_at(in, x, b, c / in->width % in->height, c % in->width, c / (in->width * in->height));
    case COMET_OP_LINEAR:
        return reference_linear(r, n, b, c);
    case COMET_OP_DROPOUT:
        return x[i] * reference_kept(r, n, (uint64_t)i / 4, (int)(i % 4));
    case COMET_OP_STOCHASTIC_DEPTH:
        return x[i] * reference_kept(r, n, (uint64_t)b, 0);
    default:
        return NAN;
    }
}

static inline double reference_entropy(const reference *r) {
    const int classes = comet_value_shape(r->graph, r->graph->output)->channels;
    double loss = 0;
    for (int b = 0; b < r->batch; b++) {
        const double *logits = r->values[r->graph->output] + b * classes;
        double total = 0;
        for (int k = 0; k < classes; k++)
            total += exp(logits[k]);
        for (int k = 0; k < classes; k++)
            loss -= (logits[k] - log(total)) * (r->smoothing / classes + (k == r->labels[b] ? 1 - r->smoothing : 0)) /
                    r->batch;
    }
    return loss;
}

static inline double reference_loss(reference *r) {
    for (int i = 0; i < r->graph->node_count; i++) {
        const comet_node *n = &r->graph->nodes[i];
        const comet_shape *s = comet_value_shape(r->graph, n->output);
        double *y = r->values[n->output];
        if (n->kind == COMET_OP_BATCH_NORM) {
            reference_norm(r, n);
            continue;
        }
        for (int b = 0; b < r->batch; b++)
            for (int h = 0; h < s->height; h++)
                for (int w = 0; w < s->width; w++)
                    for (int c = 0; c < s->channels; c++)
                        *y++ = reference_value(r, n, b, h, w, c);
    }
    return reference_entropy(r);
}

/* d loss / d parameters[index][at]. */
static inline double reference_slope(reference *r, int index, int64_t at) {
    double *p = &r->parameters[index][at], kept = *p, step = 1e-5;
    *p = kept + step;
    double above = reference_loss(r);
    *p = kept - step;
    double below = reference_loss(r);
    *p = kept;
    return (above - below) / (2 * step);
}

#endif
