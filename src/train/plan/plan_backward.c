/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of the backward pass: saved values that are loaded, gradients, and their sums. A gradient's buffer is held by
 * the values whose gradient it is (both inputs of a sum share their output's); it may be written over when one value
 * alone holds it.
 */
#include "train/plan/plan_impl.h"

/* ---- saved values ---- */

static int grow_loads(comet_plan *p, int node) {
    if (!comet_plan_grow(p, (void **)&p->load_list, p->load_count, &p->load_room, sizeof *p->load_list))
        return 0;
    p->nodes[node].loads++;
    return 1;
}

static void add_load(comet_plan *p, int node, int entry, int buffer, comet_rebuild rebuild) {
    const int time = comet_plan_backward_time(p, node);
    if (!grow_loads(p, node))
        return;
    for (int i = 0; i < p->load_count; i++)
        if (p->load_list[i].entry == entry)
            p->load_list[i].is_last = 0;
    if (p->entries[entry].last_at < time)
        p->entries[entry].last_at = time;
    p->load_list[p->load_count++] =
        (comet_plan_load){.entry = entry, .buffer = buffer, .rebuild = rebuild, .is_last = 1, .node = -1};
}

/* ---- values computed again ---- */

static int find_value(comet_plan *p, comet_value v, int node);

static int uses_of(const comet_plan *p, comet_value v) {
    int uses = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->graph->nodes[i].inputs; k++)
            uses += p->graph->nodes[i].input[k] == v;
    return uses;
}

/* 1: the value was made just for `maker`, which may write over it. */
static int is_passing(const comet_plan *p, int maker, int time) {
    const comet_node *node = &p->graph->nodes[maker];
    const comet_value x = node->input[0];
    return (comet_op_traits(p->graph, node) & COMET_Y_OVER_X) && p->value_loaded[x] >= 0 &&
           p->buffers[p->value_loaded[x]].first == time && p->value_last_use[x] < time && uses_of(p, x) == 1;
}

/* Forward once more; what other backwards will need of it stays until then. */
static int make_again(comet_plan *p, comet_value v, int node) {
    const int time = comet_plan_backward_time(p, node), maker = comet_plan_maker(p, v);
    const comet_op_kernel *kernel = p->backend->kernels[p->graph->nodes[maker].kind];
    comet_op_call call = comet_plan_call(p, maker);
    comet_plan_load again = {.entry = -1, .node = maker, .x = {-1, -1}};
    for (int k = 0; k < p->graph->nodes[maker].inputs; k++)
        again.x[k] = find_value(p, p->graph->nodes[maker].input[k], node);
    if (p->nodes[maker].addend >= 0)
        again.x[1] = find_value(p, p->nodes[maker].addend, node);
    if (p->status != COMET_OK)
        return -1;
    const int last = p->value_last_use[v] > time ? p->value_last_use[v] : time;
    if (is_passing(p, maker, time)) {
        again.buffer = again.x[0];
        p->value_loaded[p->graph->nodes[maker].input[0]] = -1;
        comet_plan_touch(p, again.buffer, last);
    } else
        again.buffer = comet_plan_buffer(p, comet_plan_value_bytes(p, v), time, last);
    again.scratch = comet_plan_scratch(p, time, kernel->scratch ? kernel->scratch(&call, 0) : 0);
    if (grow_loads(p, node))
        p->load_list[p->load_count++] = again;
    return p->value_loaded[v] = again.buffer;
}

/*
 * 1: rather decoded again for each backward that needs it than held between them: a large one would be part of the
 * peak.
 */
static int is_reloaded(const comet_plan *p, comet_value v, const comet_plan_entry *e) {
    return e->form.form == COMET_FORM_CODEC && !e->form.offload && 2 * comet_plan_value_bytes(p, v) >= p->largest_bytes;
}

static int load_value(comet_plan *p, comet_value v, int entry, int node) {
    const int time = comet_plan_backward_time(p, node);
    const int stays = p->value_last_use[v] > time && !is_reloaded(p, v, &p->entries[entry]);
    const int last = stays ? p->value_last_use[v] : time;
    p->value_loaded[v] = comet_plan_buffer(p, comet_plan_value_bytes(p, v), time, last);
    add_load(p, node, entry, p->value_loaded[v],
             p->value_norm[v] >= 0 ? (comet_rebuild)p->value_rebuild[v] : COMET_REBUILD_NOTHING);
    return p->value_loaded[v];
}

/*
 * The buffer in which the backward of `node` finds a value: where it was made if it is kept, else one that it is
 * brought into, once.
 */
static int find_value(comet_plan *p, comet_value v, int node) {
    v = comet_plan_root(p, v);
    const int time = comet_plan_backward_time(p, node);
    const int entry = p->value_norm[v] >= 0 ? p->value_norm[v] : p->value_entry[v];
    if (entry >= 0 && comet_form_is_kept(&p->entries[entry].form)) {
        comet_plan_touch(p, p->value_buffer[v], time);
        return p->value_buffer[v];
    }
    if (p->value_loaded[v] >= 0 && p->buffers[p->value_loaded[v]].last >= time)
        return p->value_loaded[v];
    if (entry >= 0 && p->entries[entry].form.form != COMET_FORM_RECOMPUTE)
        return load_value(p, v, entry, node);
    return make_again(p, v, node);
}

/* Of a batch norm with a sum: its output, or the stream of it, in which the signs are. */
static void find_sign(comet_plan *p, int i) {
    comet_plan_node *n = &p->nodes[i];
    const int entry = p->value_entry[n->output];
    if (!comet_form_shows_sign(&p->entries[entry].form)) {
        n->needs_y = find_value(p, n->output, i);
        return;
    }
    add_load(p, i, entry, -1, COMET_REBUILD_NOTHING);
    if (p->status == COMET_OK)
        p->load_list[p->load_count - 1].use = COMET_LOAD_SIGN;
}

static void find_needs(comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    comet_plan_node *n = &p->nodes[i];
    const unsigned needs = comet_plan_needs(p, i);
    n->first_load = p->load_count;
    if (n->normalised && p->backend->fused_streams) {
        add_load(p, i, p->norm_entry[i], -1, COMET_REBUILD_NOTHING);
        if (p->status == COMET_OK)
            p->load_list[p->load_count - 1].use = COMET_LOAD_NORM_WHOLE;
    } else if (n->normalised) {
        const int time = comet_plan_backward_time(p, i);
        /* Part by part only if the gradient has a place: else it goes over the whole of u. */
        const int parts = p->buffer_holds[n->dy] == 1 ? p->entries[p->norm_entry[i]].parts : 1;
        n->needs_x[0] = comet_plan_buffer(p, comet_plan_value_bytes(p, node->input[0]) / (size_t)parts, time, time);
        add_load(p, i, p->norm_entry[i], n->needs_x[0], COMET_REBUILD_NOTHING);
        if (p->status == COMET_OK)
            p->load_list[p->load_count - 1].use = parts > 1 ? COMET_LOAD_NORM_BY_PARTS : COMET_LOAD_NORM_WHOLE;
    } else if (needs & COMET_NEEDS_X0)
        n->needs_x[0] = find_value(p, node->input[0], i);
    if (needs & COMET_NEEDS_X1)
        n->needs_x[1] = find_value(p, node->input[1], i);
    if (n->addend >= 0 && n->relu_node >= 0 && n->mask < 0)
        find_sign(p, i);
    if ((needs & COMET_NEEDS_Y) || ((needs & COMET_NEEDS_SIGN) && n->mask < 0))
        n->needs_y = find_value(p, node->output, i);
}

/* ---- gradients ---- */

static void hold(comet_plan *p, comet_value v, int buffer) {
    p->value_gradient[v] = buffer;
    p->buffer_holds[buffer]++;
}

static void let_go(comet_plan *p, comet_value v) {
    if (p->value_gradient[v] >= 0)
        p->buffer_holds[p->value_gradient[v]]--;
    p->value_gradient[v] = -1;
}

static void add_sum(comet_plan *p, int node, comet_plan_sum sum) {
    if (!comet_plan_grow(p, (void **)&p->sum_list, p->sum_count, &p->sum_room, sizeof *p->sum_list))
        return;
    p->sum_list[p->sum_count++] = sum;
    p->nodes[node].sums++;
}

/* One more part of a value's gradient, in `part`; who else holds that buffer has been counted. */
static void contribute(comet_plan *p, int node, comet_value v, int part) {
    const int time = comet_plan_backward_time(p, node), before = p->value_gradient[v];
    if (before < 0) {
        hold(p, v, part);
        return;
    }
    int sum = part;
    if (p->buffer_holds[part] > 0)
        sum = p->buffer_holds[before] == 1 && before != part ? before
                                                             : comet_plan_buffer(p, p->buffers[part].bytes, time, time);
    if (sum < 0)
        return;
    comet_plan_touch(p, before, time);
    comet_plan_touch(p, part, time);
    add_sum(p, node,
            (comet_plan_sum){sum, before, part, comet_shape_count(p->graph->values[v].shape) * p->options.batch});
    let_go(p, v);
    hold(p, v, sum);
}

/* The output's gradient is each input's: all share it. */
static void pass_on(comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    for (int k = 0; k < node->inputs; k++)
        if (p->value_trained[node->input[k]])
            contribute(p, i, node->input[k], p->nodes[i].dy);
    let_go(p, p->nodes[i].output);
}

/*
 * The buffer of the first value that a backward needs, if nobody needs it any more; -1. What is computed again may need
 * what is kept.
 */
static int spent_need(comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    comet_plan_node *n = &p->nodes[i];
    const int time = comet_plan_backward_time(p, i), buffer = n->needs_x[0] >= 0 ? n->needs_x[0] : n->needs_y;
    const comet_value v = comet_plan_root(p, n->needs_x[0] >= 0 ? node->input[0] : node->output);
    if (buffer < 0 || p->buffers[buffer].last > time)
        return -1;
    if (n->normalised)
        return buffer;
    if (buffer == p->value_buffer[v])
        return p->computes_again ? -1 : buffer;
    p->value_loaded[v] = -1;
    return buffer;
}

/* Where the first input's gradient is written over something else; -1. */
static int place_over(comet_plan *p, int i) {
    const unsigned traits = comet_op_traits(p->graph, &p->graph->nodes[i]);
    /* What a fused norm decodes for those who look at it goes where its gradient will be. */
    if (p->backend->fused_streams && (p->nodes[i].normalised || p->nodes[i].addend >= 0))
        return -1;
    if ((traits & COMET_DX_OVER_DY) && p->buffer_holds[p->nodes[i].dy] == 1)
        return p->nodes[i].dy;
    /* Fused norms read their input while they write. */
    const int beside = p->backend->fused_streams && p->graph->nodes[i].kind == COMET_OP_BATCH_NORM;
    return (traits & COMET_DX_OVER_NEED) && !beside ? spent_need(p, i) : -1;
}

/* The gradient of what a batch norm adds: over the output's, unless others share that. */
static void place_addend(comet_plan *p, int i) {
    comet_plan_node *n = &p->nodes[i];
    const int time = comet_plan_backward_time(p, i);
    n->dadd =
        p->buffer_holds[n->dy] == 1 ? n->dy : comet_plan_buffer(p, comet_plan_value_bytes(p, n->addend), time, time);
}

/* 1: the first input has a gradient of other uses, in a buffer of its own, and the backward can add to it. */
static int adds_to_gradient(const comet_plan *p, int i) {
    const comet_op_call call = comet_plan_call(p, i);
    const comet_op_kernel *kernel = p->backend->kernels[call.node->kind];
    const int before = p->value_gradient[call.node->input[0]];
    return before >= 0 && p->buffer_holds[before] == 1 && before != p->nodes[i].dy && kernel->can_add_dx &&
           kernel->can_add_dx(&call);
}

static int place_gradient(comet_plan *p, int i, int k) {
    const comet_node *node = &p->graph->nodes[i];
    const int time = comet_plan_backward_time(p, i);
    if (k == 0 && adds_to_gradient(p, i)) {
        p->nodes[i].adds_dx = 1;
        comet_plan_touch(p, p->value_gradient[node->input[0]], time);
        return p->value_gradient[node->input[0]];
    }
    const int over = k == 0 ? place_over(p, i) : -1;
    return over >= 0 ? over : comet_plan_buffer(p, comet_plan_value_bytes(p, node->input[k]), time, time);
}

/* Fused norms write the gradient of their input whether anyone wants it or not. */
static int writes_anyway(const comet_plan *p, int i) {
    return p->backend->fused_streams && p->graph->nodes[i].kind == COMET_OP_BATCH_NORM;
}

static void compute(comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    comet_plan_node *n = &p->nodes[i];
    for (int k = 0; k < node->inputs; k++) {
        if (!p->value_trained[node->input[k]] && !writes_anyway(p, i))
            continue;
        n->dx[k] = place_gradient(p, i, k);
        if (n->dx[k] < 0)
            return;
    }
    if (n->addend >= 0)
        place_addend(p, i);
    let_go(p, n->output);
    for (int k = 0; k < node->inputs; k++)
        if (n->dx[k] >= 0 && p->value_trained[node->input[k]] && !(k == 0 && n->adds_dx))
            contribute(p, i, node->input[k], n->dx[k]);
    if (n->dadd >= 0 && p->value_trained[n->addend])
        contribute(p, i, n->addend, n->dadd);
}

static void place_scratch(comet_plan *p, int i) {
    const comet_op_kernel *kernel = p->backend->kernels[p->graph->nodes[i].kind];
    comet_op_call call = comet_plan_call(p, i);
    call.adds_dx = p->nodes[i].adds_dx;
    p->nodes[i].scratch_backward =
        comet_plan_scratch(p, comet_plan_backward_time(p, i), kernel->scratch ? kernel->scratch(&call, 1) : 0);
}

void comet_plan_backward(comet_plan *p) {
    p->dlogits = comet_plan_buffer(p, comet_plan_value_bytes(p, p->graph->output), p->n, p->n);
    if (p->dlogits < 0)
        return;
    hold(p, p->graph->output, p->dlogits);
    for (int i = p->n - 1; i >= 0 && p->status == COMET_OK; i--) {
        comet_plan_node *n = &p->nodes[i];
        n->first_load = p->load_count;
        n->first_sum = p->sum_count;
        if (!comet_plan_has_backward(p, i))
            continue;
        n->dy = p->value_gradient[n->output];
        comet_plan_touch(p, n->dy, comet_plan_backward_time(p, i));
        if (comet_op_traits(p->graph, &p->graph->nodes[i]) & COMET_DX_IS_DY) {
            pass_on(p, i);
            continue;
        }
        find_needs(p, i);
        compute(p, i);
        place_scratch(p, i);
    }
}
