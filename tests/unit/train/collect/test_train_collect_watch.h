/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of our own, value by value, from what each layer's backward is given: kernels that look before they do their
 * work.
 */
#ifndef TESTS_TRAIN_COLLECT_WATCH_H
#define TESTS_TRAIN_COLLECT_WATCH_H

#include "unit/train/test_train_case.h"

enum { MOST_NODES = 400, MOST_CHANNELS = 64, MOST_POSITIONS = 2000 };

typedef struct seen {
    double dy_squares, dy_sizes, x_squares, x_variances, x_common; /* a layer's */
    double g_squares[MOST_CHANNELS], product[MOST_CHANNELS], on[MOST_CHANNELS];
    double greatest_g[MOST_CHANNELS], greatest_u[MOST_CHANNELS];
    double slope[MOST_CHANNELS], curve[MOST_CHANNELS], scale[MOST_CHANNELS];
    double dy_channel[MOST_CHANNELS]; /* dy_squares by channel */
    double gain, factor;
    float inverse[MOST_CHANNELS];
} seen;

static seen saw[MOST_NODES];
static const comet_op_kernel *inner[COMET_OP_KINDS];

static inline seen *saw_at(const comet_op_call *call) {
    return &saw[call->node - call->graph->nodes];
}

static inline const float *input_of(const comet_op_call *call) {
    return call->x[0];
}

static inline const float *gradient_of(const comet_op_call *call) {
    return call->dy;
}

static inline int64_t rows_of(const comet_op_call *call, comet_value v, int *channels) {
    const comet_shape *s = comet_value_shape(call->graph, v);
    *channels = s->channels;
    return (int64_t)s->height * s->width * call->batch;
}

/* Input `i` of a convolution's output at a position, its group's first channel being `channel`; 0 in the padding. */
static inline double input_at(const comet_op_call *call, int64_t position, int channel, int i) {
    const comet_conv2d *conv = &call->node->as.conv;
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const int taps = conv->kernel * conv->kernel_width, tap = i % taps;
    const int64_t image = position / out->width / out->height;
    const int64_t y = position / out->width % out->height * conv->stride + tap / conv->kernel_width - conv->padding;
    const int64_t x = position % out->width * conv->stride + tap % conv->kernel_width - conv->padding_width;
    if (y < 0 || y >= in->height || x < 0 || x >= in->width)
        return 0;
    return (double)input_of(call)[((image * in->height + y) * in->width + x) * in->channels + channel + i / taps];
}

/* Of a kernel's taps, the part that is not in the padding. */
static inline double inside_of(const comet_op_call *call) {
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const comet_conv2d *conv = &call->node->as.conv;
    double inside = 0;
    if (call->node->kind != COMET_OP_CONV)
        return 1;
    for (int y = 0; y < out->height; y++)
        for (int r = 0; r < conv->kernel; r++) {
            const int at = y * conv->stride + r - conv->padding;
            inside += at >= 0 && at < in->height ? 1 : 0;
        }
    inside /= out->height * conv->kernel;
    return inside * inside; /* all is square here */
}

/* Of a convolution: mean over inputs of (sum of u x)^2 / sum of u^2, outputs weighted by 1 / sum of u^2. */
static inline double common_of(const comet_op_call *call) {
    int channels;
    const int64_t positions = rows_of(call, call->node->output, &channels);
    const comet_parameter *weight = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    const comet_conv2d *conv = &call->node->as.conv;
    const int inputs = (int)(weight->count / channels), in_group = inputs / conv->kernel / conv->kernel_width;
    double u[MOST_POSITIONS], sum = 0, weights = 0;
    for (int k = 0; k < channels; k++) {
        const int group = k / (channels / conv->groups);
        double mean = 0, squares = 0, all = 0;
        for (int64_t p = 0; p < positions; p++) {
            u[p] = 0;
            for (int i = 0; i < inputs; i++)
                u[p] += (double)weight->value[k * inputs + i] * input_at(call, p, group * in_group, i);
            mean += u[p] / (double)positions;
        }
        for (int64_t p = 0; p < positions; p++)
            squares += (u[p] - mean) * (u[p] - mean);
        for (int i = 0; i < inputs; i++) {
            double product = 0;
            for (int64_t p = 0; p < positions; p++)
                product += (u[p] - mean) * input_at(call, p, group * in_group, i);
            all += product * product / inputs;
        }
        sum += all / squares / squares;
        weights += 1 / squares;
    }
    return sum / weights;
}

static inline comet_status watch_layer(const comet_op_call *call) {
    int in, out;
    const int64_t rows = rows_of(call, call->node->input[0], &in), outputs = rows_of(call, call->node->output, &out);
    seen *s = saw_at(call);
    for (int64_t i = 0; i < outputs * out; i++) {
        s->dy_squares += (double)gradient_of(call)[i] * (double)gradient_of(call)[i];
        s->dy_sizes += fabs((double)gradient_of(call)[i]);
        s->dy_channel[i % out] += (double)gradient_of(call)[i] * (double)gradient_of(call)[i];
    }
    for (int c = 0; c < in; c++) {
        double mean = 0, square = 0, variance = 0;
        for (int64_t i = 0; i < rows; i++)
            mean += (double)input_of(call)[i * in + c] / (double)rows;
        for (int64_t i = 0; i < rows; i++) {
            const double x = (double)input_of(call)[i * in + c];
            square += x * x;
            variance += (x - mean) * (x - mean);
        }
        s->x_squares += square / in / (double)rows * (double)outputs * inside_of(call);
        s->x_variances += variance / in / (double)rows * (double)outputs * inside_of(call);
    }
    if (call->node->kind == COMET_OP_CONV && outputs <= MOST_POSITIONS)
        s->x_common = common_of(call);
    return inner[call->node->kind]->backward(call);
}

static inline void watch_norm_value(const comet_op_call *call, seen *s, int c, double u, double dy) {
    const double gamma = (double)comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->value[c];
    const double beta = (double)comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->value[c];
    const int on = !call->relu || gamma * u + beta > 0;
    const double g = on ? dy : 0;
    s->g_squares[c] += g * g;
    s->product[c] += g * u;
    s->on[c] += on;
    s->greatest_g[c] = fmax(s->greatest_g[c], fabs(g));
    s->greatest_u[c] = fmax(s->greatest_u[c], fabs(u));
}

/* Samples of its input, or of that normalised, beside as many of dy. */
static inline void watch_norm_rows(const comet_op_call *call, const float *x, const float *dy, int64_t rows) {
    const int channels = comet_value_shape(call->graph, call->node->output)->channels;
    const float *side = call->side;
    for (int64_t i = 0; i < rows; i++)
        for (int c = 0; c < channels; c++) {
            const float v = x[i * channels + c], u = call->normalised ? v : fmaf(side[c], v, side[channels + c]);
            watch_norm_value(call, saw_at(call), c, (double)u, (double)dy[i * channels + c]);
        }
    memcpy(saw_at(call)->inverse, side, (size_t)channels * sizeof *side);
}

static inline comet_status watch_norm(const comet_op_call *call) {
    int channels;
    watch_norm_rows(call, call->x[0], call->dy, rows_of(call, call->node->output, &channels));
    return inner[call->node->kind]->backward(call);
}

static comet_status (*inner_held_norm)(comet_holder *, const comet_held *, const comet_held *, const comet_op_call *,
                                       int);

static inline comet_status watch_held_norm(comet_holder *holder, const comet_held *held, const comet_held *output,
                                           const comet_op_call *call, int by_parts) {
    int channels;
    const int64_t some = rows_of(call, call->node->output, &channels) / held->parts;
    float *u = malloc((size_t)(some * channels) * sizeof *u);
    for (int part = 0; part < held->parts; part++) {
        assert_ok(holder->load_part(holder, held, part, u));
        watch_norm_rows(call, u, gradient_of(call) + part * some * channels, some);
    }
    free(u);
    return inner_held_norm(holder, held, output, call, by_parts);
}

static inline comet_status watch_silu(const comet_op_call *call) {
    int channels;
    const int64_t rows = rows_of(call, call->node->output, &channels);
    const int before = call->graph->values[call->node->input[0]].producer;
    const comet_node *norm = &call->graph->nodes[before];
    seen *s = saw_at(call);
    for (int64_t i = 0; i < rows * channels; i++) {
        const int c = (int)(i % channels);
        const double y = (double)input_of(call)[i], dz = (double)gradient_of(call)[i], step = 1e-4;
        const double act[3] = {(y - step) / (1 + exp(step - y)), y / (1 + exp(-y)), (y + step) / (1 + exp(-y - step))};
        const double slope = (act[2] - act[0]) / (2 * step), curve = (act[2] - 2 * act[1] + act[0]) / (step * step);
        const double beta = norm->kind == COMET_OP_BATCH_NORM
                                ? (double)comet_node_parameter(call->graph, norm, COMET_PARAMETER_BIAS)->value[c]
                                : 0;
        s->slope[c] += slope * slope;
        s->curve[c] += dz * curve * dz * curve;
        s->scale[c] += pow(dz * slope + dz * curve * (y - beta), 2);
    }
    return inner[call->node->kind]->backward(call);
}

static inline comet_status watch_scale(const comet_op_call *call) {
    int channels;
    const int64_t pixels = rows_of(call, call->node->output, &channels) / call->batch;
    seen *s = saw_at(call);
    for (int n = 0; n < call->batch; n++)
        for (int c = 0; c < channels; c++) {
            const double v = (double)((const float *)call->x[1])[n * channels + c];
            double squares = 0;
            for (int64_t p = 0; p < pixels; p++)
                squares += pow((double)gradient_of(call)[(n * pixels + p) * channels + c], 2);
            s->gain += v * v * (1 - v) * (1 - v) * squares / (call->batch * channels);
            s->factor += v * v / (call->batch * channels);
        }
    return inner[call->node->kind]->backward(call);
}

static inline void watch(train_case *watched) {
    comet_backend *b = watched->backend;
    static comet_op_kernel watchers[COMET_OP_KINDS];
    comet_status (*const functions[COMET_OP_KINDS])(const comet_op_call *) = {[COMET_OP_CONV] = watch_layer,
                                                                              [COMET_OP_LINEAR] = watch_layer,
                                                                              [COMET_OP_BATCH_NORM] = watch_norm,
                                                                              [COMET_OP_SILU] = watch_silu,
                                                                              [COMET_OP_SCALE] = watch_scale};
    for (int k = 0; k < COMET_OP_KINDS; k++) {
        if (!functions[k])
            continue;
        inner[k] = b->kernels[k];
        watchers[k] = *b->kernels[k];
        watchers[k].backward = functions[k];
        b->kernels[k] = &watchers[k];
    }
    inner_held_norm = watched->holder->norm_backward;
    watched->holder->norm_backward = watch_held_norm;
}

#endif
