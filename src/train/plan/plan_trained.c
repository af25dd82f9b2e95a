/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is trained, and what follows from it: a value has a gradient if a trained parameter is before it, a node has a
 * backward if its output has a gradient, and that needs only what the gradients are made of that somebody wants.
 */
#include "train/plan/plan_impl.h"

static int is_trained(const comet_plan *p, int node, int place) {
    const comet_parameter *parameter = comet_node_parameter(p->graph, &p->graph->nodes[node], place);
    return parameter && comet_parameter_is_trained(parameter);
}

void comet_plan_find_trained(comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        const comet_node *node = &p->graph->nodes[i];
        int trained = is_trained(p, i, COMET_PARAMETER_WEIGHT) || is_trained(p, i, COMET_PARAMETER_BIAS);
        for (int k = 0; k < node->inputs; k++)
            trained |= p->value_trained[node->input[k]];
        p->value_trained[node->output] = trained;
    }
}

int comet_plan_has_backward(const comet_plan *p, int node) {
    return !p->nodes[node].skip && p->value_trained[p->nodes[node].output];
}

unsigned comet_plan_unwanted(const comet_plan *p, int node) {
    const comet_node *n = &p->graph->nodes[node];
    int input = 0;
    for (int k = 0; k < n->inputs; k++)
        input |= p->value_trained[n->input[k]];
    return (is_trained(p, node, COMET_PARAMETER_WEIGHT) ? 0 : (unsigned)COMET_BY_WEIGHT) |
           (is_trained(p, node, COMET_PARAMETER_BIAS) ? 0 : (unsigned)COMET_BY_BIAS) |
           (input ? 0 : (unsigned)COMET_BY_INPUT);
}

/* What a convolution or linear layer reads, it needs for its weights alone. */
unsigned comet_plan_needs(const comet_plan *p, int node) {
    const comet_node *n = &p->graph->nodes[node];
    const int is_layer = n->kind == COMET_OP_CONV || n->kind == COMET_OP_LINEAR;
    unsigned needs =
        comet_op_traits(p->graph, n) & (COMET_NEEDS_X0 | COMET_NEEDS_X1 | COMET_NEEDS_Y | COMET_NEEDS_SIGN);
    if (is_layer && !is_trained(p, node, COMET_PARAMETER_WEIGHT))
        needs &= ~(unsigned)COMET_NEEDS_X0;
    return comet_plan_has_backward(p, node) ? needs : 0;
}
