/* SPDX-License-Identifier: Apache-2.0 */
#include "support/train/op_layer.h"

int op_channels_draw(rng *r) {
    return rng_below(r, 2) ? 8 * (int)rng_between(r, 1, 6) : (int)rng_between(r, 1, 21);
}

static comet_pool2d pool_draw(const comet_shape *in, rng *r) {
    const int least = in->height < in->width ? in->height : in->width;
    comet_pool2d p = {.kernel = (int)rng_between(r, 1, least < 5 ? least : 5)};
    if (rng_below(r, 2))
        p.kernel = least < 3 ? least : (int)rng_between(r, 2, 3);
    p.stride = (int)rng_between(r, 1, p.kernel + 1);
    p.padding = (int)rng_between(r, 0, p.kernel / 2);
    p.ceil_mode = (int)rng_below(r, 2);
    p.count_padding = (int)rng_below(r, 2);
    return p;
}

static comet_conv2d conv_draw(comet_shape *in, rng *r) {
    comet_conv2d c = {.groups = rng_below(r, 3) ? 1 : (int)rng_between(r, 2, 4)};
    if (c.groups > 1)
        in->channels = c.groups * (int)rng_between(r, 1, 8);
    if (rng_below(r, 4) == 0)
        c.groups = in->channels; /* depthwise */
    c.out = c.groups == in->channels ? in->channels : c.groups * op_channels_draw(r);
    c.kernel = (int)rng_between(r, 1, in->height < 5 ? in->height : 5);
    c.kernel_width = rng_below(r, 3) ? 0 : (int)rng_between(r, 1, in->width < 3 ? in->width : 3);
    if (c.kernel > in->width && !c.kernel_width)
        c.kernel = in->width;
    c.stride = (int)rng_between(r, 1, 2);
    c.padding = (int)rng_between(r, 0, c.kernel / 2);
    c.padding_width = c.kernel_width ? (int)rng_between(r, 0, c.kernel_width / 2) : 0;
    if (c.kernel_width && c.padding_width == 0)
        c.padding = 0; /* 0 is as padding */
    c.bias = (int)rng_below(r, 2);
    return c;
}

op_layer op_layer_draw(comet_op_kind kind, int most, rng *r) {
    op_layer l = {.kind = kind};
    l.in = (comet_shape){(int)rng_between(r, 1, most), (int)rng_between(r, 1, most), op_channels_draw(r)};
    if (kind == COMET_OP_LINEAR)
        l.in.height = l.in.width = 1;
    l.pool = pool_draw(&l.in, r);
    if (kind == COMET_OP_CONV)
        l.conv = conv_draw(&l.in, r);
    l.out =
        kind == COMET_OP_SHORTCUT ? l.in.channels + (rng_below(r, 2) ? 8 : (int)rng_below(r, 6)) : op_channels_draw(r);
    if (kind == COMET_OP_LINEAR)
        l.conv.bias = (int)rng_below(r, 2);
    l.height = rng_below(r, 2) ? 1 : (int)rng_between(r, 1, most);
    l.width = l.height == 1 ? 1 : (int)rng_between(r, 1, most);
    l.stride = (int)rng_between(r, 1, 3);
    l.probability = rng_below(r, 5) ? (float)(0.8 * rng_unit(r)) : 0;
    return l;
}

/* A value of 1 x 1 x channels, whatever made it. */
static comet_value vector_of(comet_graph *g, comet_value x) {
    return comet_graph_adaptive_average_pool(g, x, 1, 1);
}

comet_value op_layer_build(comet_graph *g, const void *how) {
    const op_layer *l = how;
    const comet_value x = comet_graph_input(g, l->in.height, l->in.width, l->in.channels);
    switch (l->kind) {
    case COMET_OP_CONV:
        return comet_graph_conv2d(g, "layer", x, &l->conv);
    case COMET_OP_BATCH_NORM:
        return comet_graph_batch_norm(g, "layer", x);
    case COMET_OP_RELU:
        return comet_graph_relu(g, x);
    case COMET_OP_SILU:
        return comet_graph_silu(g, x);
    case COMET_OP_SIGMOID:
        return comet_graph_sigmoid(g, x);
    case COMET_OP_ADD:
        return comet_graph_add(g, x, comet_graph_relu(g, x));
    case COMET_OP_SCALE:
        return comet_graph_scale_channels(g, x, vector_of(g, x));
    case COMET_OP_MAX_POOL:
        return comet_graph_max_pool(g, x, &l->pool);
    case COMET_OP_AVERAGE_POOL:
        return comet_graph_average_pool(g, x, &l->pool);
    case COMET_OP_ADAPTIVE_POOL:
        return comet_graph_adaptive_average_pool(g, x, l->height, l->width);
    case COMET_OP_SHORTCUT:
        return comet_graph_shortcut(g, x, l->stride, l->out);
    case COMET_OP_FLATTEN:
        return comet_graph_flatten(g, x);
    case COMET_OP_LINEAR:
        return comet_graph_linear(g, "layer", x, l->out, l->conv.bias);
    case COMET_OP_DROPOUT:
        return comet_graph_dropout(g, x, l->probability);
    case COMET_OP_STOCHASTIC_DEPTH:
        return comet_graph_stochastic_depth(g, x, l->probability);
    default:
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s is no layer", comet_op_name(l->kind));
    }
}
