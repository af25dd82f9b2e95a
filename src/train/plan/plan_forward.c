/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of the forward pass: an output of its own for each node, or over an input that nobody needs any more. */
#include "train/plan/plan_impl.h"

/* 1: somebody reads the buffer after `time`: a later node, a backward that the value is kept for, or the loss. */
static int is_pending(const comet_plan *p, int buffer, int time) {
    for (int v = 0; v < p->graph->value_count; v++) {
        if (p->value_buffer[v] != buffer)
            continue;
        if (v == p->graph->output)
            return 1;
        const int entry = p->value_entry[v];
        if (entry >= 0 && comet_form_is_kept(&p->entries[entry].form))
            return 1;
        for (int i = time + 1; i < p->n; i++)
            if (p->graph->nodes[i].input[0] == v || p->graph->nodes[i].input[1] == v)
                return 1;
    }
    return 0;
}

/* The input that the output may be written over, -1. Any of a sum's; else only the first. */
static int reusable(const comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    const int beside = p->backend->fused_streams && p->nodes[i].save_norm >= 0;
    if (!(comet_op_traits(p->graph, node) & COMET_Y_OVER_X) || beside)
        return -1;
    for (int k = 0; k < (node->kind == COMET_OP_ADD ? 2 : 1); k++)
        if (!is_pending(p, p->nodes[i].x[k], i))
            return p->nodes[i].x[k];
    return -1;
}

static void place_output(comet_plan *p, int i) {
    comet_plan_node *n = &p->nodes[i];
    const comet_value y = n->output;
    const int over = n->identity ? n->x[0] : reusable(p, i);
    n->y = over >= 0 ? over : comet_plan_buffer(p, comet_plan_value_bytes(p, y), i, i);
    p->value_buffer[y] = n->y;
    const int entry = p->value_entry[y];
    if (entry >= 0 && comet_form_is_kept(&p->entries[entry].form))
        comet_plan_touch(p, n->y, p->value_last_use[y]);
    if (y == p->graph->output)
        comet_plan_touch(p, n->y, p->n);
}

static void place_scratch(comet_plan *p, int i) {
    const comet_op_kernel *kernel = p->backend->kernels[p->graph->nodes[i].kind];
    comet_op_call call = comet_plan_call(p, i);
    p->nodes[i].scratch_forward = comet_plan_scratch(p, i, kernel->scratch ? kernel->scratch(&call, 0) : 0);
}

static void place_input(comet_plan *p) {
    const comet_value x = p->graph->input;
    const int entry = p->value_entry[x];
    p->value_buffer[x] = comet_plan_buffer(p, comet_plan_value_bytes(p, x), 0, 0);
    if (entry >= 0 && comet_form_is_kept(&p->entries[entry].form))
        comet_plan_touch(p, p->value_buffer[x], p->value_last_use[x]);
}

static void place_running(comet_plan *p) {
    const size_t bytes = comet_graph_running_bytes(p->graph);
    /* Whether streams found room a device says when the step ends. */
    const int last = p->backend->fused_streams ? 2 * p->n : p->n;
    if (bytes && p->options.training)
        p->running = comet_plan_buffer(p, bytes, 0, last);
}

void comet_plan_forward(comet_plan *p) {
    place_input(p);
    place_running(p);
    for (int i = 0; i < p->n && p->status == COMET_OK; i++) {
        comet_plan_node *n = &p->nodes[i];
        if (n->skip)
            continue;
        for (int k = 0; k < p->graph->nodes[i].inputs; k++) {
            n->x[k] = p->value_buffer[p->graph->nodes[i].input[k]];
            comet_plan_touch(p, n->x[k], i);
        }
        if (n->addend >= 0) {
            n->add = p->value_buffer[n->addend];
            comet_plan_touch(p, n->add, i);
        }
        place_output(p, i);
        if (!n->identity)
            place_scratch(p, i);
    }
}
