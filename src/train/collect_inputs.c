/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is seen of a layer's input x: how large it is, and how many of the inputs of an output are independent. If A is the covariance of these inputs
 * (channels times the kernel's taps), that number is (trace A)^2 / trace A^2: docs/theory.md, 2.4.
 */
#include <math.h>
#include <stdlib.h>

#include "train/collect_impl.h"

typedef struct input {
    const float *x;
    int64_t pixels, channels;
    int width;
    const double *sums;     /* comet_statistics_moments */
    float *means;           /* room for them */
    double squares;         /* sum over channels of the mean of x^2, */
    double variances;       /* of the variance, */
    double square_variance; /* of its square, */
    double neighbours;      /* and of the covariance with the pixel beside, squared */
} input;

static double mean_of(const input *in, int64_t channel) {
    return in->sums[channel] / (double)in->pixels;
}

static void add_up(input *in) {
    const double pairs = (double)in->pixels / in->width * (in->width - 1);
    for (int64_t k = 0; k < in->channels; k++) {
        const double mean = mean_of(in, k), square = in->sums[in->channels + k] / (double)in->pixels;
        const double variance = fmax(square - mean * mean, 0) + 0 * square; /* NaN stays */
        const double beside = pairs > 0 ? in->sums[2 * in->channels + k] / pairs - mean * mean : 0;
        in->squares += square;
        in->variances += variance;
        in->square_variance += variance * variance;
        in->neighbours += beside * beside;
    }
}

/* What chance makes of a few pixels does not go below what uncorrelated channels would have. */
static double square_covariance(const input *in) {
    for (int64_t k = 0; k < in->channels; k++)
        in->means[k] = (float)mean_of(in, k);
    return fmax(comet_statistics_products(in->x, in->means, in->pixels, in->channels), in->square_variance);
}

/* Of the taps on a kernel's side: side^2 / sum of correlations^2, which fall by the same factor from pixel to pixel. */
static double independent_taps(int side, double square_correlation) {
    double sum = 0;
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++)
            sum += pow(square_correlation, abs(i - k));
    return side * side / sum;
}

static double independent_inputs(const input *in, const comet_node *node) {
    const double squares = square_covariance(in);
    const double channels = squares > 0 ? in->variances * in->variances / squares : 1;
    const double correlation = in->square_variance > 0 ? fmin(in->neighbours / in->square_variance, 1) : 0;
    if (node->kind != COMET_OP_CONV)
        return channels;
    return fmax(channels / node->as.conv.groups, 1) * independent_taps(node->as.conv.kernel, correlation) *
           independent_taps(node->as.conv.kernel_width, correlation);
}

/* Each input is seen at as many positions as there are outputs; borders, where there are fewer, are left out. */
void comet_collect_see_input(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const comet_shape *shape = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    input in = {.x = call->x[0],
                .pixels = (int64_t)shape->height * shape->width * call->batch,
                .channels = shape->channels,
                .width = shape->width,
                .sums = c->scratch,
                .means = c->inverse};
    const double seen = (double)out->height * out->width * call->batch / shape->channels;
    comet_statistics_moments(c->threads, in.x, in.pixels, in.width, in.channels, c->scratch);
    add_up(&in);
    n->input_squares += in.squares * seen;
    n->input_variances += in.variances * seen;
    n->independent += independent_inputs(&in, call->node);
    c->read_bytes += (uint64_t)(in.pixels * in.channels) * sizeof(float);
}
