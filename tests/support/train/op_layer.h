/* SPDX-License-Identifier: Apache-2.0 */
/* Random layers for op_case.h: one of any kind, small, of odd sizes as well as of such that vectors fit. */
#ifndef TESTS_SUPPORT_TRAIN_OP_LAYER_H
#define TESTS_SUPPORT_TRAIN_OP_LAYER_H

#include "support/rng.h"
#include "train/graph/graph_impl.h"

typedef struct op_layer {
    comet_op_kind kind;
    comet_shape in;
    comet_conv2d conv;
    comet_pool2d pool;
    int out;           /* a linear layer's outputs, a shortcut's channels */
    int height, width; /* of an adaptive pool's output */
    int stride;        /* of a shortcut */
    float probability;
} op_layer;

/* Channels: any few, or 8, 16, 24, ... */
int op_channels_draw(rng *r);

/* With a map of up to `most` pixels each way. */
op_layer op_layer_draw(comet_op_kind kind, int most, rng *r);

/* An op_builder; `how` is an op_layer. */
comet_value op_layer_build(comet_graph *g, const void *how);

#endif
