/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's memory and the order of its parts. */
#include "train/plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "train/plan/plan_impl.h"

int comet_plan_grow(comet_plan *p, void **array, int count, int *room, size_t size) {
    size_t now = (size_t)*room;
    void *larger = comet_array_reserve(p->allocator, *array, (size_t)count, (size_t)count + 1, &now, size);
    if (!larger) {
        p->status = COMET_ERROR_MEMORY;
        return 0;
    }
    *array = larger;
    *room = (int)now;
    return 1;
}

static size_t aligned(const comet_plan *p, size_t bytes) {
    const size_t unit = p->backend->alignment ? p->backend->alignment : COMET_ALIGNMENT;
    return (bytes + unit - 1) / unit * unit;
}

int comet_plan_buffer(comet_plan *p, size_t bytes, int first, int last) {
    if (!comet_plan_grow(p, (void **)&p->buffers, p->buffer_count, &p->buffer_room, sizeof *p->buffers) ||
        !comet_plan_grow(p, (void **)&p->buffer_holds, p->buffer_count, &p->holds_room, sizeof *p->buffer_holds))
        return -1;
    p->buffers[p->buffer_count] = (comet_buffer){aligned(p, bytes), 0, first, last};
    p->buffer_holds[p->buffer_count] = 0;
    return p->buffer_count++;
}

void comet_plan_touch(comet_plan *p, int buffer, int time) {
    if (buffer >= 0 && p->buffers[buffer].last < time)
        p->buffers[buffer].last = time;
}

size_t comet_plan_value_count(const comet_plan *p, comet_value v) {
    return (size_t)comet_shape_count(p->graph->values[v].shape) * (size_t)p->options.batch;
}

size_t comet_plan_value_bytes(const comet_plan *p, comet_value v) {
    return comet_plan_value_count(p, v) * comet_dtype_size(p->backend->dtype);
}

int comet_plan_scratch(comet_plan *p, int time, size_t bytes) {
    if (!bytes)
        return -1;
    if (p->last_scratch < 0 || p->buffers[p->last_scratch].first != time)
        return p->last_scratch = comet_plan_buffer(p, bytes, time, time);
    comet_buffer *b = &p->buffers[p->last_scratch];
    bytes = aligned(p, bytes);
    b->bytes = b->bytes < bytes ? bytes : b->bytes;
    return p->last_scratch;
}

int comet_plan_maker(const comet_plan *p, comet_value v) {
    const int node = p->graph->values[v].producer;
    return node >= 0 && p->nodes[node].skip ? p->nodes[node].made_by : node;
}

int comet_form_is_kept(const comet_form *form) {
    return form->form == COMET_FORM_KEEP && !form->offload && !form->bytes;
}

int comet_form_is_exact(const comet_form *form) {
    if (form->form != COMET_FORM_CODEC)
        return form->form == COMET_FORM_KEEP;
    return form->codec.codec == COMET_CODEC_RAW || form->codec.codec == COMET_CODEC_ZVC ||
           (form->codec.codec == COMET_CODEC_EB && form->codec.bound == 0);
}

int comet_form_shows_sign(const comet_form *form) {
    return form->form == COMET_FORM_CODEC && form->codec.codec == COMET_CODEC_EB && form->codec.keep_mask &&
           !form->codec.checksum && form->codec.rounding == COMET_ROUND_NEAREST;
}

int comet_form_keeps_sign(const comet_plan_entry *entry) {
    const comet_form *f = &entry->form;
    return comet_form_is_exact(f) ||
           (f->form == COMET_FORM_CODEC && f->codec.codec == COMET_CODEC_EB && f->codec.keep_mask);
}

int comet_plan_is_identity(const comet_plan *p, int node) {
    const comet_node *n = &p->graph->nodes[node];
    const unsigned traits = comet_op_traits(p->graph, n);
    return n->inputs == 1 && ((traits & COMET_DX_IS_DY) || ((traits & COMET_TRAINING_ONLY) && !p->options.training));
}

comet_value comet_plan_root(const comet_plan *p, comet_value v) {
    while (p->graph->values[v].producer >= 0 && comet_plan_is_identity(p, p->graph->values[v].producer))
        v = p->graph->nodes[p->graph->values[v].producer].input[0];
    return v;
}

comet_op_call comet_plan_call(const comet_plan *p, int node) {
    return (comet_op_call){.backend = p->backend,
                           .graph = p->graph,
                           .node = &p->graph->nodes[node],
                           .batch = p->options.batch,
                           .training = p->options.training,
                           .relu = p->nodes[node].relu_node >= 0,
                           .accumulate = p->options.accumulate,
                           .unwanted = comet_plan_unwanted(p, node),
                           .state = p->nodes[node].state};
}

/* ---- memory ---- */

enum { VALUE_ARRAYS = 11 };

static void arrays_of(comet_plan *p, int **arrays[VALUE_ARRAYS]) {
    int **all[VALUE_ARRAYS] = {&p->value_buffer,   &p->value_entry,  &p->value_norm,     &p->value_rebuild,
                               &p->value_last_use, &p->value_loaded, &p->value_gradient, &p->value_trained,
                               &p->value_exact,    &p->norm_entry,   &p->value_again};
    memcpy(arrays, all, sizeof all);
}

static int is_zero_at_first(const comet_plan *p, int *const *array) {
    return array == &p->value_rebuild || array == &p->value_trained || array == &p->value_again;
}

static int take_arrays(comet_plan *p) {
    const size_t bytes = (size_t)p->graph->value_count * sizeof(int); /* there are more values than nodes */
    int **arrays[VALUE_ARRAYS];
    arrays_of(p, arrays);
    for (int i = 0; i < VALUE_ARRAYS; i++) {
        *arrays[i] = comet_memory_take(p->allocator, bytes);
        if (!*arrays[i])
            return 0;
        memset(*arrays[i], is_zero_at_first(p, arrays[i]) ? 0 : -1, bytes);
    }
    p->nodes = comet_memory_take(p->allocator, (size_t)p->n * sizeof *p->nodes);
    return p->nodes != NULL;
}

static void fuse(comet_plan *p, int norm, int node) {
    p->nodes[norm].output = p->graph->nodes[node].output;
    p->nodes[node].skip = 1;
    p->nodes[node].made_by = norm;
}

static void fuse_relu(comet_plan *p, int norm, int relu) {
    p->nodes[norm].relu_node = relu;
    fuse(p, norm, relu);
}

static void fuse_sum(comet_plan *p, int norm, int sum) {
    const comet_node *n = &p->graph->nodes[sum];
    const int relu = comet_op_relu_behind(p->graph, sum);
    p->nodes[norm].addend = n->input[n->input[0] == p->graph->nodes[norm].output];
    fuse(p, norm, sum);
    if (relu >= 0)
        fuse_relu(p, norm, relu);
}

/* A norm that has no backward is no part of the backward of a sum. */
static int fused_sum(const comet_plan *p, int norm) {
    const comet_graph *g = p->graph;
    const int sum = comet_op_fused_sum(g, norm);
    const int both = sum >= 0 && p->value_trained[g->nodes[norm].output] == p->value_trained[g->nodes[sum].output];
    return both ? sum : -1;
}

static void init_nodes(comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        comet_plan_node *n = &p->nodes[i];
        memset(n, 0, sizeof *n);
        n->relu_node = n->y = n->side = n->mask = n->scratch_forward = n->scratch_backward = n->needs_y = n->dy =
            n->save = n->save_norm = n->made_by = n->addend = n->add = n->dadd = -1;
        for (int k = 0; k < 2; k++)
            n->x[k] = n->needs_x[k] = n->dx[k] = -1;
        n->output = p->graph->nodes[i].output;
        n->identity = comet_plan_is_identity(p, i);
    }
    for (int i = 0; i < p->n; i++) {
        const int relu = comet_op_fused_relu(p->graph, i);
        const int sum = p->backend->fuses_sums ? fused_sum(p, i) : -1;
        if (relu >= 0)
            fuse_relu(p, i, relu);
        if (sum >= 0)
            fuse_sum(p, i, sum);
    }
}

void comet_plan_free(comet_plan *p) {
    if (!p)
        return;
    const comet_allocator *allocator = p->allocator;
    for (int i = 0; p->nodes && !p->options.like && i < p->n; i++)
        if (p->nodes[i].state)
            p->backend->kernels[p->graph->nodes[i].kind]->forget(p->nodes[i].state);
    int **arrays[VALUE_ARRAYS];
    arrays_of(p, arrays);
    for (int i = 0; i < VALUE_ARRAYS; i++)
        comet_memory_give(allocator, *arrays[i], (size_t)p->graph->value_count * sizeof(int));
    comet_memory_give(allocator, p->nodes, (size_t)p->n * sizeof *p->nodes);
    comet_memory_give(allocator, p->buffer_holds, (size_t)p->holds_room * sizeof *p->buffer_holds);
    comet_memory_give(allocator, p->buffers, (size_t)p->buffer_room * sizeof *p->buffers);
    comet_memory_give(allocator, p->entries, (size_t)p->entry_room * sizeof *p->entries);
    comet_memory_give(allocator, p->load_list, (size_t)p->load_room * sizeof *p->load_list);
    comet_memory_give(allocator, p->move_list, (size_t)p->move_room * sizeof *p->move_list);
    comet_memory_give(allocator, p->sum_list, (size_t)p->sum_room * sizeof *p->sum_list);
    comet_memory_give(allocator, p, sizeof *p);
}

/* ---- making one ---- */

static void borrow_states(comet_plan *p) {
    for (int i = 0; i < p->n; i++)
        p->nodes[i].state = p->options.like->nodes[i].state;
}

void comet_plan_adopt(comet_plan *p) {
    for (int i = 0; p->options.like && i < p->n; i++)
        p->options.like->nodes[i].state = NULL;
    p->options.like = NULL;
}

comet_status comet_plan_prepare(comet_plan *p, comet_message *message) {
    for (int i = 0; i < p->n; i++) {
        const comet_node *node = &p->graph->nodes[i];
        const comet_op_kernel *kernel = p->backend->kernels[node->kind];
        if (!p->backend->supports(p->backend, p->graph, node, p->options.batch, p->options.training))
            return comet_message_set(message, COMET_ERROR_UNSUPPORTED,
                                     "%s (%s) at batch %d: the backend %s cannot compute it", node->name,
                                     comet_op_name(node->kind), p->options.batch, p->backend->name);
        comet_op_call call = comet_plan_call(p, i);
        comet_status status = kernel->prepare ? kernel->prepare(&call, &p->nodes[i].state) : COMET_OK;
        if (status != COMET_OK)
            return comet_message_set(message, status, "%s: it could not be prepared: %s", node->name,
                                     comet_status_string(status));
    }
    return COMET_OK;
}

static comet_status check_used(const comet_plan *p, comet_message *message) {
    for (int v = 0; v < p->graph->value_count; v++) {
        int used = v == p->graph->output;
        for (int i = 0; i < p->n && !used; i++)
            used = p->graph->nodes[i].input[0] == v || p->graph->nodes[i].input[1] == v;
        if (!used)
            return comet_message_set(
                message, COMET_ERROR_ARGUMENT, "%s: nothing uses its output",
                p->graph->values[v].producer < 0 ? "input" : p->graph->nodes[p->graph->values[v].producer].name);
    }
    return COMET_OK;
}

static comet_status make(comet_plan *p, comet_message *message) {
    if (!take_arrays(p))
        return comet_message_memory(message);
    comet_plan_find_trained(p);
    init_nodes(p);
    comet_status status = check_used(p, message);
    if (status == COMET_OK && p->options.like)
        borrow_states(p);
    else if (status == COMET_OK)
        status = comet_plan_prepare(p, message);
    if (status != COMET_OK)
        return status;
    p->input_save = p->dlogits = p->last_scratch = p->running = -1;
    if (p->options.training)
        comet_plan_saved(p);
    if (p->status == COMET_OK)
        comet_plan_forward(p);
    if (p->status == COMET_OK && p->options.training)
        comet_plan_backward(p);
    if (p->status == COMET_OK && p->backend->fused_streams)
        comet_plan_streams(p);
    if (p->status == COMET_OK)
        p->status = comet_plan_layout(p);
    return p->status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, p->status, "the plan: %s", comet_status_string(p->status));
}

comet_status comet_plan_new(comet_graph *graph, comet_backend *backend, const comet_plan_options *options,
                            const comet_allocator *allocator, comet_plan **plan, comet_message *message) {
    if (!graph || !backend || !options || !plan || options->batch < 1)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "a plan needs a network, a backend and a batch of at least 1");
    comet_status status = comet_graph_check(graph, message);
    if (status != COMET_OK)
        return status;
    comet_plan *p = comet_memory_take(allocator, sizeof *p);
    if (!p)
        return comet_message_memory(message);
    memset(p, 0, sizeof *p);
    p->allocator = comet_memory_hold(&p->allocator_copy, allocator);
    p->graph = graph;
    p->backend = backend;
    p->options = *options;
    p->n = graph->node_count;
    status = make(p, message);
    if (status != COMET_OK) {
        comet_plan_free(p);
        return status;
    }
    *plan = p;
    return COMET_OK;
}

void comet_plan_choose_eb(void *context, comet_plan_entry *entry) {
    if (entry->form.bytes) /* a quarter already, and exact */
        return;
    entry->form.form = COMET_FORM_CODEC;
    entry->form.codec = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    entry->form.codec.bound_kind = COMET_BOUND_RELATIVE;
    entry->form.codec.bound = *(const double *)context;
    /* A value of which a ReLU needs the sign keeps it, so that no mask is kept beside it. */
    entry->form.codec.keep_mask = entry->kind == COMET_SAVED_VALUE && entry->has_relu;
}
