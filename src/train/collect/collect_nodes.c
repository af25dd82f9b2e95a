/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a node when its backward comes: its tensors, handed to comet/use_stats.h. */
#include "train/collect/collect_impl.h"

/* A value of a batch, or of a part of it. */
comet_tensor comet_collect_tensor_of(const comet_backend *b, const comet_graph *g, comet_value v, int images) {
    const comet_shape *s = comet_value_shape(g, v);
    comet_tensor t;
    comet_tensor_init_on(&t, b->device, NULL, b->dtype, COMET_NHWC, 4,
                         (int64_t[]){images, s->height, s->width, s->channels});
    return t;
}

static void count_read(comet_collect *c, const comet_tensor *t, int arrays) {
    c->read_bytes += (uint64_t)comet_tensor_count(t) * (uint64_t)arrays * comet_dtype_size(t->dtype);
}

static const float *value_of(const comet_graph *g, const comet_node *node, int place) {
    return comet_node_parameter(g, node, place)->value;
}

/* ---- convolutions and linear layers ---- */

typedef struct layer_tensors {
    comet_tensor x, dy;
    comet_layer_pass pass;
} layer_tensors;

static void layer_pass(const comet_backend *b, const comet_graph *g, const comet_node *node, int batch, int wants,
                       layer_tensors *t) {
    t->pass = (comet_layer_pass)COMET_LAYER_PASS_INIT;
    t->pass.what = (wants & COMET_WANT_OUTPUT ? COMET_STATS_OUTPUT : 0u) |
                   (wants & COMET_WANT_INPUT ? COMET_STATS_INPUT : 0u) |
                   (wants & COMET_WANT_COMMON ? COMET_STATS_COMMON : 0u);
    t->pass.input = &t->x;
    t->pass.gradient = &t->dy;
    t->x = comet_collect_tensor_of(b, g, node->input[0], batch);
    t->dy = comet_collect_tensor_of(b, g, node->output, batch);
    if (node->kind != COMET_OP_CONV)
        return;
    const comet_conv2d *conv = &node->as.conv;
    t->pass.kernel[0] = conv->kernel;
    t->pass.kernel[1] = conv->kernel_width;
    t->pass.padding[0] = conv->padding;
    t->pass.padding[1] = conv->padding_width;
    t->pass.stride[0] = t->pass.stride[1] = conv->stride;
    t->pass.groups = conv->groups;
}

static comet_status see_layer(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const comet_stats_exec exec = comet_collect_exec(c);
    layer_tensors t;
    layer_pass(call->backend, call->graph, call->node, call->batch, n->wants, &t);
    t.x.data = (void *)call->x[0];
    t.dy.data = (void *)call->dy;
    t.pass.weights = value_of(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    count_read(c, &t.dy, (n->wants & COMET_WANT_OUTPUT) != 0);
    count_read(c, &t.x, (n->wants & COMET_WANT_INPUT) != 0);
    return c->backend->statistics->see_layer(c->backend, &t.pass, &exec, &n->seen.layer);
}

/* ---- batch norms ---- */

typedef struct norm_tensors {
    comet_tensor x, dy;
    comet_norm_pass pass;
} norm_tensors;

static void norm_pass(const comet_backend *b, const comet_graph *g, const comet_node *node, int images, int acgc,
                      norm_tensors *t) {
    t->pass = (comet_norm_pass)COMET_NORM_PASS_INIT;
    t->x = comet_collect_tensor_of(b, g, node->input[0], images);
    t->dy = comet_collect_tensor_of(b, g, node->output, images);
    t->pass.values = &t->x;
    t->pass.gradient = &t->dy;
    t->pass.acgc = acgc;
}

/* A part's input is in call->x[0]; the gradient is there as a whole. */
static comet_status see_norm(comet_collect *c, const comet_op_call *call, int part, int parts, comet_collect_node *n) {
    const comet_stats_exec exec = comet_collect_exec(c);
    const comet_node *node = call->node;
    const float *side = call->side;
    norm_tensors t;
    norm_pass(call->backend, call->graph, node, call->batch / parts, c->acgc, &t);
    t.x.data = (void *)call->x[0];
    t.dy.data = (char *)call->dy + (size_t)(part * comet_tensor_count(&t.dy)) * comet_dtype_size(t.dy.dtype);
    t.pass.scale = side;
    t.pass.shift = call->normalised ? NULL : side + comet_value_shape(call->graph, node->output)->channels;
    t.pass.gamma = value_of(call->graph, node, COMET_PARAMETER_WEIGHT);
    t.pass.beta = value_of(call->graph, node, COMET_PARAMETER_BIAS);
    t.pass.relu = call->relu;
    t.pass.mask = call->mask;
    t.pass.part = part;
    t.pass.parts = parts;
    count_read(c, &t.dy, 2);
    return c->backend->statistics->see_norm(c->backend, &t.pass, &exec, &n->seen.norm);
}

/* ---- SiLUs ---- */

typedef struct silu_tensors {
    comet_tensor y, dz;
    comet_silu_pass pass;
} silu_tensors;

static void silu_pass(const comet_backend *b, const comet_graph *g, const comet_node *node, int batch,
                      silu_tensors *t) {
    t->pass = (comet_silu_pass)COMET_SILU_PASS_INIT;
    t->y = comet_collect_tensor_of(b, g, node->input[0], batch);
    t->dz = comet_collect_tensor_of(b, g, node->output, batch);
    t->pass.input = &t->y;
    t->pass.gradient = &t->dz;
}

static comet_status see_silu(comet_collect *c, const comet_op_call *call, const float *side, comet_collect_node *n) {
    const comet_stats_exec exec = comet_collect_exec(c);
    const int before = call->graph->values[call->node->input[0]].producer;
    silu_tensors t;
    silu_pass(call->backend, call->graph, call->node, call->batch, &t);
    t.y.data = (void *)call->x[0];
    t.dz.data = (void *)call->dy;
    if (side) {
        const comet_node *norm = &call->graph->nodes[before];
        t.pass.scale = side;
        t.pass.gamma = value_of(call->graph, norm, COMET_PARAMETER_WEIGHT);
        t.pass.beta = value_of(call->graph, norm, COMET_PARAMETER_BIAS);
        t.pass.normalised = c->of_norm[before] >= 0;
    }
    count_read(c, &t.dz, 2);
    return c->backend->statistics->see_silu(c->backend, &t.pass, &exec, &n->seen.silu);
}

/* ---- channel scales ---- */

typedef struct scale_tensors {
    comet_tensor s, dy;
    comet_scale_pass pass;
} scale_tensors;

static void scale_pass(const comet_backend *b, const comet_graph *g, const comet_node *node, int batch,
                       scale_tensors *t) {
    t->pass = (comet_scale_pass)COMET_SCALE_PASS_INIT;
    t->s = comet_collect_tensor_of(b, g, node->input[1], batch);
    t->dy = comet_collect_tensor_of(b, g, node->output, batch);
    t->pass.factors = &t->s;
    t->pass.gradient = &t->dy;
}

static comet_status see_factors(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const comet_stats_exec exec = comet_collect_exec(c);
    scale_tensors t;
    scale_pass(call->backend, call->graph, call->node, call->batch, &t);
    t.s.data = (void *)call->x[1];
    t.dy.data = (void *)call->dy;
    count_read(c, &t.dy, 1);
    return c->backend->statistics->see_scale(c->backend, &t.pass, &exec, &n->seen.scale);
}

/* ---- during a step ---- */

static comet_collect_node *node_of(comet_collect *c, const comet_op_call *call) {
    return &c->nodes[call->node - call->graph->nodes];
}

void comet_collect_backward(comet_collect *c, const comet_op_call *call, const float *norm_side) {
    comet_collect_node *n = node_of(c, call);
    comet_status status = COMET_OK;
    if (n->wants & (COMET_WANT_OUTPUT | COMET_WANT_INPUT))
        status = see_layer(c, call, n);
    else if (n->wants & COMET_WANT_NORM)
        status = see_norm(c, call, 0, 1, n);
    else if (n->wants & COMET_WANT_SILU)
        status = see_silu(c, call, norm_side, n);
    else if (n->wants & COMET_WANT_FACTORS)
        status = see_factors(c, call, n);
    comet_collect_check(c, status);
    comet_collect_errors(c, call);
}

void comet_collect_part(comet_collect *c, const comet_op_call *call, int part, int parts, int again) {
    comet_collect_node *n = node_of(c, call);
    if (n->wants & COMET_WANT_NORM && !again)
        comet_collect_check(c, see_norm(c, call, part, parts, n));
    comet_collect_part_errors(c, call, part, parts, again);
}

/* ---- by kind ---- */

void comet_collect_node_begin(const comet_graph *g, int node, comet_collect_node *n) {
    switch (g->nodes[node].kind) {
    case COMET_OP_CONV:
    case COMET_OP_LINEAR:
        n->seen.layer = (comet_stats_layer)COMET_STATS_LAYER_INIT;
        break;
    case COMET_OP_BATCH_NORM:
        n->seen.norm = (comet_stats_norm)COMET_STATS_NORM_INIT;
        break;
    case COMET_OP_SILU:
        n->seen.silu = (comet_stats_silu)COMET_STATS_SILU_INIT;
        break;
    case COMET_OP_SCALE:
        n->seen.scale = (comet_stats_scale)COMET_STATS_SCALE_INIT;
        break;
    default:
        break;
    }
}

int comet_collect_node_is_seen(const comet_graph *g, int node, const comet_collect_node *n) {
    switch (g->nodes[node].kind) {
    case COMET_OP_CONV:
    case COMET_OP_LINEAR:
        return n->seen.layer.batches > 0;
    case COMET_OP_BATCH_NORM:
        return n->seen.norm.batches > 0;
    case COMET_OP_SILU:
        return n->seen.silu.batches > 0;
    case COMET_OP_SCALE:
        return n->seen.scale.batches > 0;
    default:
        return 0;
    }
}

/* The shapes are right: no query fails. */
size_t comet_collect_node_workspace(const comet_backend *b, const comet_graph *g, int node, int batch, int wants,
                                    int acgc) {
    const comet_node *of = &g->nodes[node];
    layer_tensors layer;
    norm_tensors norm;
    silu_tensors silu;
    scale_tensors scale;
    size_t bytes = 0;
    if (wants & (COMET_WANT_OUTPUT | COMET_WANT_INPUT)) {
        layer_pass(b, g, of, batch, wants, &layer);
        (void)comet_stats_layer_workspace(&layer.pass, &bytes);
    } else if (wants & COMET_WANT_NORM) {
        norm_pass(b, g, of, batch, acgc, &norm);
        (void)comet_stats_norm_workspace(&norm.pass, &bytes);
    } else if (wants & COMET_WANT_SILU) {
        silu_pass(b, g, of, batch, &silu);
        (void)comet_stats_silu_workspace(&silu.pass, &bytes);
    } else if (wants & COMET_WANT_FACTORS) {
        scale_pass(b, g, of, batch, &scale);
        (void)comet_stats_scale_workspace(&scale.pass, &bytes);
    }
    return bytes;
}
