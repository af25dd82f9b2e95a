/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is saved. Each op's needs are collected by value, so that aliases are one entry (a ReLU's output is the next
 * convolution's input and the ReLU's own mask); then each entry's form is chosen, and what follows from it: masks where
 * a value comes back without its sign, nothing at all for what can be made from a batch norm's normalised input.
 */
#include <stdio.h>
#include <string.h>

#include "train/plan/plan_impl.h"

/* 1: part of the peak if it is there as a whole. */
static int parts_of(const comet_plan *p, const comet_plan_entry *e) {
    const int is_large = 2 * e->raw_bytes >= p->largest_bytes && !p->backend->fused_streams;
    return is_large && p->options.batch % COMET_PLAN_PARTS == 0 ? COMET_PLAN_PARTS : 1;
}

/* The output of a batch norm with a sum is called as where they are nodes of their own. */
static int named_after(const comet_plan *p, comet_saved_kind kind, int node) {
    const int summed = kind == COMET_SAVED_VALUE && p->nodes[node].addend >= 0;
    return summed && p->nodes[node].relu_node >= 0 ? p->nodes[node].relu_node : node;
}

static comet_plan_entry entry_for(const comet_plan *p, comet_saved_kind kind, int node, comet_value v, size_t bytes) {
    comet_plan_entry e = {
        .kind = kind, .node = node, .value = v, .raw_bytes = bytes, .stored_bytes = bytes, .parts = 1};
    e.is_first = !p->value_trained[v];
    e.op = node < 0 ? COMET_OP_INPUT : p->graph->nodes[node].kind;
    e.shape = *comet_value_shape(p->graph, v);
    e.form.codec = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    snprintf(e.name, sizeof e.name, "%s", node < 0 ? "input" : p->graph->nodes[named_after(p, kind, node)].name);
    e.saved_at = node < 0 ? 0 : node;
    return e;
}

static int add_entry(comet_plan *p, const comet_plan_entry *e) {
    if (!comet_plan_grow(p, (void **)&p->entries, p->entry_count, &p->entry_room, sizeof *p->entries))
        return -1;
    p->entries[p->entry_count] = *e;
    comet_plan_set_size(p, &p->entries[p->entry_count]);
    return p->entry_count++;
}

static void ask(comet_plan *p, comet_plan_entry *e) {
    e->form.form = COMET_FORM_KEEP;
    e->form.offload = e->form.always = e->form.fixed = 0;
    e->form.bytes = e->node < 0 && p->options.input_bytes;
    if (p->options.choose)
        p->options.choose(p->options.context, e);
    if (e->is_first && e->form.form == COMET_FORM_RECOMPUTE)
        e->form.form = COMET_FORM_KEEP;
    if (e->form.form != COMET_FORM_KEEP || e->form.offload)
        e->form.bytes = 0;
}

/* ---- batch norms, stored once ---- */

/* From u come the norm's own output, or that of the ReLU it computes, and that of a SiLU behind it; but not a sum. */
static void mark_rebuildable(comet_plan *p, int node, int entry) {
    if (p->nodes[node].addend >= 0)
        return;
    const comet_value y = p->graph->nodes[node].output;
    if (p->nodes[node].relu_node >= 0) {
        p->value_norm[p->nodes[node].output] = entry;
        p->value_rebuild[p->nodes[node].output] = COMET_REBUILD_RELU;
        return;
    }
    p->value_norm[y] = entry;
    p->value_rebuild[y] = COMET_REBUILD_NORM;
    for (int i = node + 1; i < p->n; i++)
        if (p->graph->nodes[i].kind == COMET_OP_SILU && p->graph->nodes[i].input[0] == y) {
            p->value_norm[p->graph->nodes[i].output] = entry;
            p->value_rebuild[p->graph->nodes[i].output] = COMET_REBUILD_SILU;
        }
}

static void save_norms(comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        const comet_node *node = &p->graph->nodes[i];
        if (node->kind != COMET_OP_BATCH_NORM || !comet_plan_has_backward(p, i))
            continue;
        comet_plan_entry e =
            entry_for(p, COMET_SAVED_NORM, i, node->input[0], comet_plan_value_bytes(p, node->input[0]));
        e.has_relu = p->nodes[i].relu_node >= 0 && p->nodes[i].addend < 0;
        e.uses = 1;
        ask(p, &e);
        if (e.form.form != COMET_FORM_CODEC || e.form.codec.codec != COMET_CODEC_EB)
            continue;
        e.form.codec.keep_mask = 0; /* the grid does that */
        e.parts = parts_of(p, &e);
        e.last_at = comet_plan_backward_time(p, i);
        p->norm_entry[i] = p->nodes[i].save_norm = add_entry(p, &e);
        if (p->norm_entry[i] < 0)
            return;
        p->nodes[i].normalised = 1;
        mark_rebuildable(p, i, p->norm_entry[i]);
    }
}

/* ---- values ---- */

/* A backward that needs a value: its entry comes into being with the first. */
static void need(comet_plan *p, comet_value v, int node) {
    v = comet_plan_root(p, v);
    const int time = comet_plan_backward_time(p, node);
    const int is_conv = p->graph->nodes[node].kind == COMET_OP_CONV || p->graph->nodes[node].kind == COMET_OP_LINEAR;
    if (p->value_last_use[v] < time)
        p->value_last_use[v] = time;
    int entry = p->value_norm[v];
    if (entry < 0)
        entry = p->value_entry[v];
    if (entry < 0) {
        comet_plan_entry e = entry_for(p, COMET_SAVED_VALUE, comet_plan_maker(p, v), v, comet_plan_value_bytes(p, v));
        entry = p->value_entry[v] = add_entry(p, &e);
        if (entry < 0)
            return;
    }
    comet_plan_entry *e = &p->entries[entry];
    e->uses++;
    e->uses_conv += is_conv;
    if (e->last_at < time)
        e->last_at = time;
}

static void need_values(comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        const comet_node *node = &p->graph->nodes[i];
        const unsigned needs = comet_plan_needs(p, i);
        if ((needs & COMET_NEEDS_X0) && p->norm_entry[i] < 0)
            need(p, node->input[0], i);
        if (needs & COMET_NEEDS_X1)
            need(p, node->input[1], i);
        if (needs & COMET_NEEDS_Y)
            need(p, node->output, i);
    }
}

/* A ReLU on its own takes the sign of its output where others need that anyway. */
static int lone_relu(const comet_plan *p, int node) {
    return p->graph->nodes[node].kind == COMET_OP_RELU && !p->nodes[node].skip;
}

/* So does that behind a sum which a batch norm computes. */
static int summed_relu(const comet_plan *p, int node) {
    return p->nodes[node].relu_node >= 0 && p->nodes[node].addend >= 0;
}

static void choose_forms(comet_plan *p) {
    for (int i = 0; i < p->entry_count; i++) {
        comet_plan_entry *e = &p->entries[i];
        if (e->kind != COMET_SAVED_VALUE)
            continue;
        e->has_relu = e->node >= 0 && (lone_relu(p, e->node) || summed_relu(p, e->node));
        ask(p, e);
        comet_plan_set_size(p, e);
    }
}

/* A value that what is computed again is made of: held, computed again as well, or first, and then it must be held. */
static void need_again(comet_plan *p, comet_value v) {
    v = comet_plan_root(p, v);
    if (p->value_norm[v] >= 0 || p->value_entry[v] >= 0)
        return;
    if (p->value_trained[v]) {
        p->value_again[v] = 1;
        return;
    }
    comet_plan_entry e = entry_for(p, COMET_SAVED_VALUE, comet_plan_maker(p, v), v, comet_plan_value_bytes(p, v));
    ask(p, &e);
    p->value_entry[v] = add_entry(p, &e);
}

/* What is computed again ends, at the latest, at what is first. */
static void need_first(comet_plan *p) {
    for (int i = 0; i < p->entry_count; i++)
        if (p->entries[i].form.form == COMET_FORM_RECOMPUTE)
            p->computes_again = p->value_again[p->entries[i].value] = 1;
    for (int i = p->n - 1; i >= 0 && p->status == COMET_OK; i--) {
        const comet_node *node = &p->graph->nodes[i];
        if (p->nodes[i].skip || !p->value_again[p->nodes[i].output])
            continue;
        for (int k = 0; k < node->inputs; k++)
            need_again(p, node->input[k]);
        if (p->nodes[i].addend >= 0)
            need_again(p, p->nodes[i].addend);
    }
}

static int is_exact(const comet_plan *p, comet_value v, int node) {
    if (p->value_norm[v] >= 0)
        return comet_form_is_exact(&p->entries[p->value_norm[v]].form);
    if (p->value_entry[v] >= 0 && p->entries[p->value_entry[v]].form.form != COMET_FORM_RECOMPUTE)
        return comet_form_is_exact(&p->entries[p->value_entry[v]].form);
    for (int k = 0; node >= 0 && k < p->graph->nodes[node].inputs; k++)
        if (!p->value_exact[comet_plan_root(p, p->graph->nodes[node].input[k])])
            return 0;
    const comet_value addend = node >= 0 ? p->nodes[node].addend : -1;
    return addend < 0 || p->value_exact[comet_plan_root(p, addend)];
}

static void find_exact(comet_plan *p) {
    p->value_exact[p->graph->input] = is_exact(p, p->graph->input, -1);
    for (int i = 0; i < p->n; i++)
        if (!p->nodes[i].skip)
            p->value_exact[p->nodes[i].output] = is_exact(p, p->nodes[i].output, i);
}

static void add_side(comet_plan *p, int node, comet_saved_kind kind, size_t bytes, int *buffer) {
    const int last = comet_plan_backward_time(p, node);
    comet_plan_entry e = entry_for(p, kind, node, p->nodes[node].output, bytes);
    e.uses = 1;
    e.last_at = last;
    add_entry(p, &e);
    *buffer = comet_plan_buffer(p, bytes, node, last);
}

/* 1: where the ReLU was on is known exactly without a mask. */
static int knows_sign(const comet_plan *p, int node) {
    const comet_node *op = &p->graph->nodes[node];
    const int fused = p->nodes[node].relu_node >= 0 && !summed_relu(p, node);
    if (fused && p->norm_entry[node] >= 0)
        return 1;
    const comet_value y = p->nodes[node].output;
    const int entry = fused ? p->value_entry[comet_plan_root(p, op->input[0])] : p->value_entry[y];
    if (entry < 0)
        return 0;
    if (fused)
        return p->value_exact[comet_plan_root(p, op->input[0])];
    return p->value_exact[y] || comet_form_keeps_sign(&p->entries[entry]);
}

static size_t side_bytes(const comet_plan *p, int node) {
    const comet_op_kernel *kernel = p->backend->kernels[p->graph->nodes[node].kind];
    const comet_op_call call = comet_plan_call(p, node);
    return kernel->side ? kernel->side(&call) : comet_op_side_bytes(p->graph, &p->graph->nodes[node], p->options.batch);
}

/* Of a stream a batch norm with a sum reads the signs alone: nothing is loaded for it, nor kept for longer. */
static void need_sign(comet_plan *p, int node) {
    const comet_value y = p->nodes[node].output;
    comet_plan_entry *e = &p->entries[p->value_entry[y]];
    if (!comet_form_shows_sign(&e->form)) {
        need(p, y, node);
        return;
    }
    e->uses++;
    e->last_at = comet_plan_backward_time(p, node);
}

/* Where nobody needs it for a backward: forward of a norm may work in it. */
static void pass_side(comet_plan *p, int node, size_t bytes) {
    if (bytes && p->graph->nodes[node].kind == COMET_OP_BATCH_NORM)
        p->nodes[node].side = comet_plan_buffer(p, bytes, node, node);
}

static void save_sides(comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        const size_t bytes = side_bytes(p, i);
        if (!comet_plan_has_backward(p, i)) {
            pass_side(p, i, bytes);
            continue;
        }
        if (bytes)
            add_side(p, i, COMET_SAVED_SIDE, bytes, &p->nodes[i].side);
        if (!lone_relu(p, i) && p->nodes[i].relu_node < 0)
            continue;
        if (!knows_sign(p, i)) {
            add_side(p, i, COMET_SAVED_MASK, (comet_plan_value_count(p, p->nodes[i].output) + 7) / 8,
                     &p->nodes[i].mask);
            continue;
        }
        if (lone_relu(p, i))
            need(p, p->graph->nodes[i].output, i);
        if (summed_relu(p, i))
            need_sign(p, i);
    }
}

static void place_saves(comet_plan *p) {
    for (int i = 0; i < p->entry_count; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (e->kind != COMET_SAVED_VALUE || !comet_plan_in_store(e))
            continue;
        if (e->node < 0)
            p->input_save = i;
        else
            p->nodes[e->node].save = i;
    }
}

static void find_largest(comet_plan *p) {
    for (int v = 0; v < p->graph->value_count; v++)
        if (comet_plan_value_bytes(p, v) > p->largest_bytes)
            p->largest_bytes = comet_plan_value_bytes(p, v);
}

void comet_plan_saved(comet_plan *p) {
    find_largest(p);
    save_norms(p);
    need_values(p);
    choose_forms(p);
    need_first(p);
    if (p->status != COMET_OK)
        return;
    find_exact(p);
    save_sides(p);
    place_saves(p);
}
