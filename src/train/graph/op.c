/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of op needs and allows. */
#include "train/graph/op.h"

/* Of a map of one pixel NHWC and NCHW are the same. */
static int flatten_is_identity(const comet_graph *g, const comet_node *node) {
    const comet_shape *s = comet_value_shape(g, node->input[0]);
    return (s->height == 1 && s->width == 1) || s->channels == 1;
}

unsigned comet_op_traits(const comet_graph *g, const comet_node *node) {
    static const unsigned traits[COMET_OP_KINDS] = {
        [COMET_OP_CONV] = COMET_NEEDS_X0 | COMET_DX_OVER_NEED,
        [COMET_OP_LINEAR] = COMET_NEEDS_X0 | COMET_DX_OVER_NEED,
        [COMET_OP_BATCH_NORM] = COMET_NEEDS_X0 | COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_DX_OVER_NEED,
        [COMET_OP_RELU] = COMET_NEEDS_SIGN | COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_DX_OVER_NEED,
        [COMET_OP_SILU] = COMET_NEEDS_X0 | COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_DX_OVER_NEED,
        [COMET_OP_SIGMOID] = COMET_NEEDS_Y | COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_DX_OVER_NEED,
        [COMET_OP_ADD] = COMET_Y_OVER_X | COMET_DX_IS_DY,
        [COMET_OP_SCALE] = COMET_NEEDS_X0 | COMET_NEEDS_X1 | COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_DX_OVER_NEED,
        [COMET_OP_DROPOUT] = COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_RANDOM | COMET_TRAINING_ONLY,
        [COMET_OP_STOCHASTIC_DEPTH] = COMET_Y_OVER_X | COMET_DX_OVER_DY | COMET_RANDOM | COMET_TRAINING_ONLY,
    };
    if (node->kind == COMET_OP_FLATTEN && flatten_is_identity(g, node))
        return COMET_Y_OVER_X | COMET_DX_IS_DY;
    return traits[node->kind];
}

int comet_op_argmax_bits(int kernel) {
    int bits = 0;
    while ((1 << bits) < kernel * kernel)
        bits++;
    /* A power of two, so that no value straddles a byte: rows of channels can then be written by different threads. */
    return bits <= 1 ? 1 : bits <= 2 ? 2 : bits <= 4 ? 4 : bits <= 8 ? 8 : 16;
}

static size_t argmax_bytes(const comet_graph *g, const comet_node *node, int batch) {
    const comet_shape *y = comet_value_shape(g, node->output);
    size_t row = ((size_t)y->channels * (size_t)comet_op_argmax_bits(node->as.pool.kernel) + 7) / 8;
    return row * (size_t)y->height * (size_t)y->width * (size_t)batch;
}

size_t comet_op_side_bytes(const comet_graph *g, const comet_node *node, int batch) {
    switch (node->kind) {
    case COMET_OP_BATCH_NORM:
        return 2 * sizeof(float) * (size_t)comet_value_shape(g, node->output)->channels;
    case COMET_OP_MAX_POOL:
        return argmax_bytes(g, node, batch);
    default:
        return 0;
    }
}

/* The node that alone uses a node's output, if it is of that kind; -1. */
static int only_user(const comet_graph *g, int node, comet_op_kind kind) {
    const comet_value y = g->nodes[node].output;
    int found = -1;
    if (y == g->output)
        return -1;
    for (int i = node + 1; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++)
            if (g->nodes[i].input[k] == y) {
                if (found >= 0 || g->nodes[i].kind != kind)
                    return -1;
                found = i;
            }
    return found;
}

int comet_op_relu_behind(const comet_graph *g, int node) {
    return only_user(g, node, COMET_OP_RELU);
}

int comet_op_fused_relu(const comet_graph *g, int batch_norm) {
    return g->nodes[batch_norm].kind == COMET_OP_BATCH_NORM ? comet_op_relu_behind(g, batch_norm) : -1;
}

int comet_op_fused_sum(const comet_graph *g, int batch_norm) {
    if (g->nodes[batch_norm].kind != COMET_OP_BATCH_NORM)
        return -1;
    const int sum = only_user(g, batch_norm, COMET_OP_ADD);
    if (sum < 0)
        return -1;
    const comet_node *n = &g->nodes[sum];
    const comet_value other = n->input[n->input[0] == g->nodes[batch_norm].output];
    return g->values[other].producer < batch_norm ? sum : -1;
}
