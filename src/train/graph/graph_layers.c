/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a graph: what shape each makes and which parameters it has. */
#include "train/graph/graph_impl.h"

const char *comet_op_name(comet_op_kind kind) {
    static const char *const names[COMET_OP_KINDS] = {"input",
                                                      "conv2d",
                                                      "batch_norm",
                                                      "relu",
                                                      "silu",
                                                      "sigmoid",
                                                      "add",
                                                      "scale_channels",
                                                      "max_pool",
                                                      "average_pool",
                                                      "adaptive_average_pool",
                                                      "shortcut",
                                                      "flatten",
                                                      "linear",
                                                      "dropout",
                                                      "stochastic_depth"};
    return kind >= 0 && kind < COMET_OP_KINDS ? names[kind] : "?";
}

/* The shape of an input; a graph with a problem gives one that no check complains about twice. */
static comet_shape shape_of(const comet_graph *g, comet_value x) {
    return x >= 0 && x < g->value_count ? g->values[x].shape : (comet_shape){1, 1, 1};
}

static comet_value output_of(const comet_node *node) {
    return node ? node->output : -1;
}

/* ---- convolution and linear ---- */

static comet_conv2d filled(comet_conv2d c) {
    c.kernel_width = c.kernel_width ? c.kernel_width : c.kernel;
    c.padding_width = c.padding_width ? c.padding_width : c.padding;
    c.stride = c.stride ? c.stride : 1;
    c.groups = c.groups ? c.groups : 1;
    return c;
}

static int conv_is_sane(const comet_conv2d *c, int channels) {
    return c->out > 0 && c->kernel > 0 && c->kernel_width > 0 && c->stride > 0 && c->padding >= 0 &&
           c->padding_width >= 0 && c->padding < c->kernel && c->padding_width < c->kernel_width && c->groups > 0 &&
           channels % c->groups == 0 && c->out % c->groups == 0 && c->kernel <= 1024 && c->kernel_width <= 1024;
}

comet_value comet_graph_conv2d(comet_graph *g, const char *name, comet_value x, const comet_conv2d *conv) {
    comet_shape in = shape_of(g, x);
    comet_conv2d c = filled(*conv);
    if (g->status != COMET_OK)
        return -1;
    if (!conv_is_sane(&c, in.channels))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT,
                                "%s: %d channels into %d in %d groups, kernel %d x %d, stride %d, padding %d", name,
                                in.channels, c.out, c.groups, c.kernel, c.kernel_width, c.stride, c.padding);
    int height = in.height + 2 * c.padding - c.kernel, width = in.width + 2 * c.padding_width - c.kernel_width;
    if (height < 0 || width < 0)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: an image of %d x %d is too small here for this network",
                                name, in.height, in.width);
    comet_shape out = {height / c.stride + 1, width / c.stride + 1, c.out};
    comet_node *node = comet_graph_add_node(g, COMET_OP_CONV, name, 1, x, -1, out);
    if (!node)
        return -1;
    node->as.conv = c;
    int taps = c.kernel * c.kernel_width;
    comet_graph_add_parameter(g, COMET_PARAMETER_WEIGHT, ".weight", COMET_CONV_WEIGHT, 4,
                              (int64_t[]){c.out, in.channels / c.groups, c.kernel, c.kernel_width},
                              in.channels / c.groups * taps, c.out * taps);
    if (c.bias)
        comet_graph_add_parameter(g, COMET_PARAMETER_BIAS, ".bias", COMET_BIAS, 1, (int64_t[]){c.out},
                                  in.channels / c.groups * taps, c.out * taps);
    return output_of(node);
}

comet_value comet_graph_linear(comet_graph *g, const char *name, comet_value x, int out, int bias) {
    comet_shape in = shape_of(g, x);
    if (g->status == COMET_OK && (in.height != 1 || in.width != 1 || out < 1))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT,
                                "%s: a linear layer of %d outputs on %d x %d x %d: flatten first", name, out, in.height,
                                in.width, in.channels);
    comet_node *node = comet_graph_add_node(g, COMET_OP_LINEAR, name, 1, x, -1, (comet_shape){1, 1, out});
    comet_value y = output_of(node);
    comet_graph_add_parameter(g, COMET_PARAMETER_WEIGHT, ".weight", COMET_LINEAR_WEIGHT, 2,
                              (int64_t[]){out, in.channels}, in.channels, out);
    if (bias)
        comet_graph_add_parameter(g, COMET_PARAMETER_BIAS, ".bias", COMET_BIAS, 1, (int64_t[]){out}, in.channels, out);
    return y;
}

/* ---- batch norm ---- */

comet_value comet_graph_batch_norm_with(comet_graph *g, const char *name, comet_value x, float epsilon,
                                        float momentum) {
    comet_shape in = shape_of(g, x);
    if (g->status == COMET_OK && !(epsilon > 0 && momentum >= 0 && momentum <= 1))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: epsilon %g, momentum %g", name, (double)epsilon,
                                (double)momentum);
    comet_node *node = comet_graph_add_node(g, COMET_OP_BATCH_NORM, name, 1, x, -1, in);
    if (!node)
        return -1;
    node->as.norm.epsilon = epsilon;
    node->as.norm.momentum = momentum;
    comet_value y = node->output;
    const int64_t channels[] = {in.channels};
    comet_graph_add_parameter(g, COMET_PARAMETER_WEIGHT, ".weight", COMET_NORM_WEIGHT, 1, channels, in.channels,
                              in.channels);
    comet_graph_add_parameter(g, COMET_PARAMETER_BIAS, ".bias", COMET_NORM_BIAS, 1, channels, in.channels, in.channels);
    comet_graph_add_parameter(g, COMET_PARAMETER_MEAN, ".running_mean", COMET_RUNNING_MEAN, 1, channels, 0, 0);
    comet_graph_add_parameter(g, COMET_PARAMETER_VAR, ".running_var", COMET_RUNNING_VAR, 1, channels, 0, 0);
    return y;
}

comet_value comet_graph_batch_norm(comet_graph *g, const char *name, comet_value x) {
    return comet_graph_batch_norm_with(g, name, x, 1e-5f, 0.1f);
}

/* ---- element-wise ---- */

static comet_value unary(comet_graph *g, comet_op_kind kind, comet_value x) {
    return output_of(comet_graph_add_node(g, kind, NULL, 1, x, -1, shape_of(g, x)));
}

comet_value comet_graph_relu(comet_graph *g, comet_value x) {
    return unary(g, COMET_OP_RELU, x);
}

comet_value comet_graph_silu(comet_graph *g, comet_value x) {
    return unary(g, COMET_OP_SILU, x);
}

comet_value comet_graph_sigmoid(comet_graph *g, comet_value x) {
    return unary(g, COMET_OP_SIGMOID, x);
}

static int same_shape(comet_shape a, comet_shape b) {
    return a.height == b.height && a.width == b.width && a.channels == b.channels;
}

comet_value comet_graph_add(comet_graph *g, comet_value a, comet_value b) {
    comet_shape x = shape_of(g, a), y = shape_of(g, b);
    if (g->status == COMET_OK && !same_shape(x, y))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "add: %d x %d x %d and %d x %d x %d", x.height, x.width,
                                x.channels, y.height, y.width, y.channels);
    return output_of(comet_graph_add_node(g, COMET_OP_ADD, NULL, 2, a, b, x));
}

comet_value comet_graph_scale_channels(comet_graph *g, comet_value x, comet_value scale) {
    comet_shape in = shape_of(g, x), s = shape_of(g, scale);
    if (g->status == COMET_OK && !same_shape(s, (comet_shape){1, 1, in.channels}))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "scale_channels: %d channels by %d x %d x %d", in.channels,
                                s.height, s.width, s.channels);
    return output_of(comet_graph_add_node(g, COMET_OP_SCALE, NULL, 2, x, scale, in));
}

static comet_value dropping(comet_graph *g, comet_op_kind kind, comet_value x, float probability) {
    if (g->status == COMET_OK && !(probability >= 0 && probability < 1))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: a probability of %g", comet_op_name(kind),
                                (double)probability);
    comet_node *node = comet_graph_add_node(g, kind, NULL, 1, x, -1, shape_of(g, x));
    if (node)
        node->as.probability = probability;
    return output_of(node);
}

comet_value comet_graph_dropout(comet_graph *g, comet_value x, float probability) {
    return dropping(g, COMET_OP_DROPOUT, x, probability);
}

comet_value comet_graph_stochastic_depth(comet_graph *g, comet_value x, float probability) {
    return dropping(g, COMET_OP_STOCHASTIC_DEPTH, x, probability);
}

/* ---- pooling and shapes ---- */

/* As PyTorch has it: rounded up, the last window must still start inside of the image or its left padding. */
static int pooled(int extent, const comet_pool2d *p) {
    int span = extent + 2 * p->padding - p->kernel;
    if (span < 0)
        return 0;
    if (!p->ceil_mode)
        return span / p->stride + 1;
    int count = (span + p->stride - 1) / p->stride + 1;
    return (count - 1) * p->stride >= extent + p->padding ? count - 1 : count;
}

static comet_value pooling(comet_graph *g, comet_op_kind kind, comet_value x, const comet_pool2d *pool) {
    comet_shape in = shape_of(g, x);
    comet_pool2d p = *pool;
    p.stride = p.stride ? p.stride : p.kernel;
    if (g->status != COMET_OK)
        return -1;
    if (p.kernel < 1 || p.kernel > 64 || p.stride < 1 || p.padding < 0 || 2 * p.padding > p.kernel)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: kernel %d, stride %d, padding %d", comet_op_name(kind),
                                p.kernel, p.stride, p.padding);
    comet_shape out = {pooled(in.height, &p), pooled(in.width, &p), in.channels};
    if (out.height < 1 || out.width < 1)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: an image of %d x %d is too small here for this network",
                                comet_op_name(kind), in.height, in.width);
    comet_node *node = comet_graph_add_node(g, kind, NULL, 1, x, -1, out);
    if (node)
        node->as.pool = p;
    return output_of(node);
}

comet_value comet_graph_max_pool(comet_graph *g, comet_value x, const comet_pool2d *pool) {
    return pooling(g, COMET_OP_MAX_POOL, x, pool);
}

comet_value comet_graph_average_pool(comet_graph *g, comet_value x, const comet_pool2d *pool) {
    return pooling(g, COMET_OP_AVERAGE_POOL, x, pool);
}

comet_value comet_graph_adaptive_average_pool(comet_graph *g, comet_value x, int height, int width) {
    if (g->status == COMET_OK && (height < 1 || width < 1 || height > 65536 || width > 65536))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "adaptive_average_pool: to %d x %d", height, width);
    return output_of(comet_graph_add_node(g, COMET_OP_ADAPTIVE_POOL, NULL, 1, x, -1,
                                          (comet_shape){height, width, shape_of(g, x).channels}));
}

comet_value comet_graph_shortcut(comet_graph *g, comet_value x, int stride, int channels) {
    comet_shape in = shape_of(g, x);
    if (g->status == COMET_OK && (stride < 1 || channels < in.channels))
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "shortcut: stride %d, %d channels to %d", stride, in.channels,
                                channels);
    comet_shape out = {(in.height - 1) / (stride > 0 ? stride : 1) + 1, (in.width - 1) / (stride > 0 ? stride : 1) + 1,
                       channels};
    comet_node *node = comet_graph_add_node(g, COMET_OP_SHORTCUT, NULL, 1, x, -1, out);
    if (node)
        node->as.stride = stride;
    return output_of(node);
}

comet_value comet_graph_flatten(comet_graph *g, comet_value x) {
    comet_shape in = shape_of(g, x);
    if (g->status == COMET_OK && comet_shape_count(in) > INT32_MAX)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "flatten: too many values");
    return output_of(
        comet_graph_add_node(g, COMET_OP_FLATTEN, NULL, 1, x, -1, (comet_shape){1, 1, (int)comet_shape_count(in)}));
}
