/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network as a static graph of ops, built layer by layer:
 *
 *     comet_value x = comet_graph_input(g, 32, 32, 3);
 *     x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 64, .kernel = 3, .padding = 1});
 *     x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
 *     ...
 *     comet_graph_output(g, comet_graph_linear(g, "fc", x, 10, 1));
 *     status = comet_graph_check(g, &message);
 *
 * A value is an activation, NHWC, of one sample; the batch is a number of the plan. Calls may be given the result of a
 * failed one: the graph remembers the first problem, and comet_graph_check tells it. Names are those of torchvision's
 * modules; a parameter's is the layer's with ".weight", ".bias", ".running_mean", ... behind it, in torchvision's
 * layout (convolutions: out, in / groups, height, width).
 */
#ifndef COMET_TRAIN_GRAPH_H
#define COMET_TRAIN_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/message.h"
#include "comet/allocator.h"
#include "comet/status.h"
#include "train/graph/space.h"

typedef struct comet_graph comet_graph;
typedef int comet_value; /* negative: the call that should have made it failed */

typedef struct comet_conv2d {
    int out;                    /* channels */
    int kernel, kernel_width;   /* kernel_width 0: square */
    int stride;                 /* 0 is 1 */
    int padding, padding_width; /* padding_width 0: as padding */
    int groups;                 /* 0 is 1; as many as channels: depthwise */
    int bias;
} comet_conv2d;

typedef struct comet_pool2d {
    int kernel, stride, padding; /* stride 0: as kernel */
    int ceil_mode;               /* sizes rounded up, as torchvision's flag of that name */
    int count_padding;           /* average: divide by kernel^2 everywhere */
} comet_pool2d;

typedef struct comet_shape { /* of one sample; after flatten and linear: 1 x 1 x channels */
    int height, width, channels;
} comet_shape;

comet_status comet_graph_new(const comet_allocator *allocator, comet_graph **graph);
void comet_graph_free(comet_graph *graph);

comet_value comet_graph_input(comet_graph *g, int height, int width, int channels);
comet_value comet_graph_conv2d(comet_graph *g, const char *name, comet_value x, const comet_conv2d *conv);
comet_value comet_graph_batch_norm(comet_graph *g, const char *name, comet_value x); /* epsilon 1e-5, momentum 0.1 */
comet_value comet_graph_batch_norm_with(comet_graph *g, const char *name, comet_value x, float epsilon, float momentum);
comet_value comet_graph_relu(comet_graph *g, comet_value x);
comet_value comet_graph_silu(comet_graph *g, comet_value x);
comet_value comet_graph_sigmoid(comet_graph *g, comet_value x);
comet_value comet_graph_add(comet_graph *g, comet_value a, comet_value b);
comet_value comet_graph_scale_channels(comet_graph *g, comet_value x,
                                       comet_value scale); /* squeeze-excite; scale: 1 x 1 x channels */
comet_value comet_graph_max_pool(comet_graph *g, comet_value x, const comet_pool2d *pool);
comet_value comet_graph_average_pool(comet_graph *g, comet_value x, const comet_pool2d *pool);
comet_value comet_graph_adaptive_average_pool(comet_graph *g, comet_value x, int height, int width);
comet_value comet_graph_shortcut(comet_graph *g, comet_value x, int stride,
                                 int channels); /* every stride-th pixel, zeros for the channels behind x's */
comet_value comet_graph_flatten(comet_graph *g,
                                comet_value x); /* in the order of NCHW, as weights of torchvision expect */
comet_value comet_graph_linear(comet_graph *g, const char *name, comet_value x, int out, int bias);
comet_value comet_graph_dropout(comet_graph *g, comet_value x, float probability);
comet_value comet_graph_stochastic_depth(comet_graph *g, comet_value x,
                                         float probability); /* rows: a sample is dropped or kept whole */
void comet_graph_output(comet_graph *g, comet_value logits); /* goes to softmax cross-entropy */

comet_status comet_graph_check(const comet_graph *g, comet_message *message);
comet_shape comet_graph_shape(const comet_graph *g, comet_value x);

/* ---- parameters ---- */

typedef enum comet_parameter_kind {
    COMET_CONV_WEIGHT,
    COMET_LINEAR_WEIGHT,
    COMET_BIAS,
    COMET_NORM_WEIGHT,
    COMET_NORM_BIAS,
    COMET_RUNNING_MEAN, /* from here on not trained */
    COMET_RUNNING_VAR
} comet_parameter_kind;

typedef struct comet_parameter {
    const char *name;
    comet_parameter_kind kind;
    int ndim;
    int64_t shape[4];
    int64_t count;
    comet_space *space; /* where the two below are */
    float *value;       /* NULL in a graph that has no memory yet */
    float *gradient;    /* NULL if it is not trained, or frozen */
    int fan_in, fan_out;
    int frozen; /* 1: it stays as it is, and has no gradient */
} comet_parameter;

/* 1: it has a gradient, and updates change it. */
static inline int comet_parameter_is_trained(const comet_parameter *p) {
    return p->kind < COMET_RUNNING_MEAN && !p->frozen;
}

int comet_graph_parameters(const comet_graph *g); /* how many, in the order of the layers; running_* included */
comet_parameter *comet_graph_parameter(comet_graph *g, int index);
comet_parameter *comet_graph_parameter_named(comet_graph *g, const char *name); /* NULL: none */

/*
 * Marks as frozen what the patterns fit, names of layers or parameters with commas between them: "conv1,layer1.*". One
 * that begins with '!' takes back what came before it: "*,!fc". COMET_ERROR_ARGUMENT, with a line, if one fits nothing,
 * or if nothing is left to train. Before the graph has memory, and before a plan is made of it.
 */
comet_status comet_graph_freeze(comet_graph *g, const char *patterns, comet_message *message);

/*
 * The memory of all values and, if they are trained and `gradients` is not 0, of their gradients, in one block of the
 * space, zeroed (running variances and norm weights: 1). Once per graph, which must be freed before the space.
 * COMET_ERROR_ARGUMENT: the graph has a problem or has memory already.
 */
comet_status comet_graph_allocate(comet_graph *g, comet_space *space, int gradients);
size_t comet_graph_static_bytes(const comet_graph *g, int gradients); /* what that takes */

/* Running statistics of all batch norms: bytes, and a copy of them in the same space; `back` 1: from the copy. */
size_t comet_graph_running_bytes(const comet_graph *g);
comet_status comet_graph_copy_running(comet_graph *g, float *copy, int back);

/* All gradients as one array, in the order of the parameters; the gaps between them are 0. NULL: there are none. */
float *comet_graph_gradients(const comet_graph *g, int64_t *count);

#endif
