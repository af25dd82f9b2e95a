/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the plan's order, carried out. */
#include <string.h>

#include "train/step/step_impl.h"

static comet_op_call call_of(const comet_step *s, int i) {
    comet_op_call call = comet_plan_call(s->plan, i);
    const comet_plan_node *n = &s->plan->nodes[i];
    call.seed = s->options->seed;
    call.step = s->options->step;
    call.first_sample = (int64_t)s->options->rank * s->plan->options.batch;
    call.side = comet_step_at(s, n->side);
    call.mask = comet_step_at(s, n->mask);
    call.accumulate = s->options->accumulate;
    return call;
}

static comet_status forward_node(comet_step *s, int i) {
    const comet_plan_node *n = &s->plan->nodes[i];
    if (n->skip || n->identity)
        return COMET_OK;
    comet_op_call call = call_of(s, i);
    call.x[0] = comet_step_at(s, n->x[0]);
    call.x[1] = comet_step_at(s, n->x[1]);
    call.y = comet_step_at(s, n->y);
    call.add = comet_step_at(s, n->add);
    call.scratch = comet_step_at(s, n->scratch_forward);
    if (s->options->collect)
        comet_collect_forward(s->options->collect, &call);
    if (n->save_norm >= 0) /* its output is not held, it is rebuilt; but for that of a sum */
        return comet_step_hold_norm(s, n->save_norm, n->save, &call);
    return n->save >= 0 ? comet_step_hold_output(s, n->save, &call)
                        : s->plan->backend->kernels[call.node->kind]->forward(&call);
}

static comet_status forward_again(comet_step *s, const comet_plan_load *l) {
    comet_op_call call = call_of(s, l->node);
    const comet_op_kernel *kernel = s->plan->backend->kernels[call.node->kind];
    call.mask = NULL; /* it was written when forward ran first */
    call.x[0] = comet_step_at(s, l->x[0]);
    if (s->plan->nodes[l->node].addend >= 0)
        call.add = comet_step_at(s, l->x[1]);
    else
        call.x[1] = comet_step_at(s, l->x[1]);
    call.y = comet_step_at(s, l->buffer);
    call.scratch = comet_step_at(s, l->scratch);
    return kernel->forward_again ? kernel->forward_again(&call) : kernel->forward(&call);
}

/* The side data of the batch norm before an activation, NULL if there is none. */
static const float *norm_side(const comet_step *s, const comet_node *node) {
    const int before = s->plan->graph->values[node->input[0]].producer;
    return before >= 0 && s->plan->graph->nodes[before].kind == COMET_OP_BATCH_NORM
               ? comet_step_at(s, s->plan->nodes[before].side)
               : NULL;
}

/* What comes during the backward of a batch norm, from the holder; NULL where all that is needed is there. */
typedef struct norm_loads {
    const comet_plan_load *input, *sign;
} norm_loads;

static comet_status run_backward(comet_step *s, int i, const norm_loads *loads) {
    const comet_plan_node *n = &s->plan->nodes[i];
    comet_op_call call = call_of(s, i);
    for (int k = 0; k < 2; k++) {
        call.x[k] = comet_step_at(s, n->needs_x[k]);
        call.dx[k] = comet_step_at(s, n->dx[k]);
    }
    call.y = comet_step_at(s, n->needs_y);
    call.dy = comet_step_at(s, n->dy);
    call.dadd = comet_step_at(s, n->dadd);
    call.normalised = n->normalised;
    call.adds_dx = n->adds_dx;
    call.scratch = comet_step_at(s, n->scratch_backward);
    if (loads->input && s->plan->backend->fused_streams) /* where those who look at it find what was held */
        call.x[0] = call.dx[0];
    if (loads->input || loads->sign)
        return comet_step_norm_backward(s, loads->input, loads->sign, &call);
    const comet_op_kernel *kernel = s->plan->backend->kernels[call.node->kind];
    if (s->options->collect)
        comet_collect_backward(s->options->collect, &call, norm_side(s, call.node));
    return kernel->backward ? kernel->backward(&call) : COMET_OK;
}

/* What comes into buffers before the backward of a node; *held comes during it. */
static comet_status load_operands(comet_step *s, const comet_plan_node *n, norm_loads *held) {
    comet_status status = COMET_OK;
    *held = (norm_loads){0};
    for (int k = 0; k < n->loads && status == COMET_OK; k++) {
        const comet_plan_load *l = &s->plan->load_list[n->first_load + k];
        if (l->use == COMET_LOAD_SIGN)
            held->sign = l;
        else if (l->use != COMET_LOAD_OPERAND)
            held->input = l;
        else
            status = l->entry >= 0 ? comet_step_load(s, l) : forward_again(s, l);
    }
    return status;
}

static comet_status show_gradient(const comet_step *s, int node) {
    const comet_plan_node *n = &s->plan->nodes[node];
    const comet_step_sight *sight = s->options->sight;
    return sight && sight->came && !n->identity ? sight->came(sight->context, n->output, comet_step_at(s, n->dy))
                                                : COMET_OK;
}

static comet_status backward_node(comet_step *s, int i) {
    const comet_plan *p = s->plan;
    const comet_plan_node *n = &p->nodes[i];
    norm_loads held;
    if (n->dy < 0)
        return COMET_OK;
    comet_status status = show_gradient(s, i);
    if (status == COMET_OK)
        status = load_operands(s, n, &held);
    if (status == COMET_OK && !n->identity)
        status = run_backward(s, i, &held);
    for (int k = 0; k < n->sums && status == COMET_OK; k++) {
        const comet_plan_sum *sum = &p->sum_list[n->first_sum + k];
        status = p->backend->add(p->backend, comet_step_at(s, sum->sum), comet_step_at(s, sum->a),
                                 comet_step_at(s, sum->b), sum->count);
    }
    return status;
}

/* Running statistics into their buffer, or back from it. */
static comet_status copy_running(comet_step *s, int back) {
    return comet_graph_copy_running(s->plan->graph, comet_step_at(s, s->plan->running), back);
}

/* What leaves for the host, or comes back from it, at a time. */
static comet_status move(comet_step *s, int time) {
    const comet_plan *p = s->plan;
    comet_status status = COMET_OK;
    for (; s->next_move < p->move_count && p->move_list[s->next_move].time <= time && status == COMET_OK;
         s->next_move++)
        status = comet_step_move(s, &p->move_list[s->next_move]);
    return status;
}

static void pass(const comet_step *s, int node, int is_backward) {
    if (s->options->clock)
        s->options->clock->passed(s->options->clock->context, node, is_backward);
}

static comet_status show(const comet_step *s, int node) {
    const comet_plan_node *n = &s->plan->nodes[node];
    const comet_step_sight *sight = s->options->sight;
    return sight && sight->made && !n->skip ? sight->made(sight->context, n->output, comet_step_at(s, n->y)) : COMET_OK;
}

static comet_status forward(comet_step *s) {
    comet_status status = s->plan->options.input_bytes ? comet_step_normalise(s, comet_step_input(s), 0) : COMET_OK;
    if (status == COMET_OK && s->plan->input_save >= 0)
        status = comet_step_hold(s, s->plan->input_save, comet_step_input(s));
    pass(s, -1, 0);
    for (int i = 0; i < s->plan->n && status == COMET_OK; i++) {
        s->failed = i;
        status = forward_node(s, i);
        if (status == COMET_OK)
            status = show(s, i);
        if (status == COMET_OK)
            status = move(s, i);
        pass(s, i, 0);
    }
    return status == COMET_OK ? move(s, s->plan->n) : status;
}

static comet_status backward(comet_step *s) {
    comet_status status = COMET_OK;
    for (int i = s->plan->n - 1; i >= 0 && status == COMET_OK; i--) {
        s->failed = i;
        status = move(s, comet_plan_backward_time(s->plan, i));
        if (status == COMET_OK)
            status = backward_node(s, i);
        pass(s, i, 1);
    }
    return status;
}

static comet_loss_call loss_call(const comet_step *s) {
    const comet_plan *p = s->plan;
    const comet_step_options *o = s->options;
    const int some = !p->options.training && o->count > 0 && o->count < p->options.batch;
    return (comet_loss_call){.backend = p->backend,
                             .batch = some ? o->count : p->options.batch,
                             .classes = p->graph->values[p->graph->output].shape.channels,
                             .logits = comet_step_logits(s),
                             .labels = o->labels,
                             .smoothing = o->smoothing,
                             .gradient_scale = o->gradient_scale != 0 ? o->gradient_scale : 1,
                             .dlogits = comet_step_at(s, p->dlogits)};
}

/* What the loss was, when it is known. */
static comet_status await_loss(comet_step *s, comet_step_result *result) {
    const comet_backend *backend = s->plan->backend;
    comet_status status = backend->await_loss ? backend->await_loss(&s->loss) : COMET_OK;
    result->loss = s->loss.loss;
    result->top1 = s->loss.top1;
    result->top5 = s->loss.top5;
    return status;
}

static void begin(comet_step *s, const comet_step_options *options) {
    s->options = options;
    s->loss = loss_call(s);
    s->failed = s->refused = -1;
    s->next_move = 0;
    s->held_count = 0;
    s->spilled_bytes = 0;
    memset(s->held, 0, (size_t)s->plan->entry_count);
    if (options->collect)
        comet_collect_batch_begin(options->collect);
    if (s->holder)
        s->holder->watch = options->collect || options->watch ? &s->watch : NULL;
}

/* Waits for what the holder's device does; what did not work there is as if it had failed when it was asked for. */
static comet_status settle(comet_step *s) {
    int slot = -1;
    comet_status status = s->holder && s->holder->settle ? s->holder->settle(s->holder, &slot) : COMET_OK;
    if (slot >= 0)
        s->failed = s->plan->entries[slot].node;
    s->refused = status == COMET_ERROR_CAPACITY ? slot : s->refused;
    return status;
}

/*
 * Whether all is held is asked before backward where backward adds to what is there, be it in gradients or in what the
 * collector has on the host. Else at the end: a device is not waited for in the middle, what a step that is run again
 * has made of gradients is written over, and records that are under way are dropped.
 */
static int settles_early(const comet_step *s) {
    const comet_step_options *o = s->options;
    return o->accumulate || (o->collect && !comet_collect_kind(o->collect));
}

/* ---- the parts of a run, as they are issued ---- */

static comet_status forward_part(comet_step *s) {
    comet_status status = copy_running(s, 0);
    pass(s, -1, 0);
    if (status == COMET_OK)
        status = forward(s);
    if (status == COMET_OK && s->holder) /* all is saved, none loaded */
        s->spilled_bytes = s->holder->stats(s->holder).spilled_bytes;
    return status;
}

static comet_status backward_part(comet_step *s) {
    s->failed = -1;
    comet_status status = s->plan->backend->loss(&s->loss);
    pass(s, -1, 1);
    if (status == COMET_OK && s->plan->options.training)
        status = backward(s);
    pass(s, -1, 1);
    return status;
}

static comet_status whole(comet_step *s) {
    comet_status status = forward_part(s);
    return status == COMET_OK ? backward_part(s) : status;
}

static comet_status issue(comet_step *s) {
    if (!settles_early(s))
        return comet_step_issue(s, 0, whole);
    comet_status status = comet_step_issue(s, 0, forward_part);
    if (status == COMET_OK)
        status = settle(s);
    return status == COMET_OK ? comet_step_issue(s, 1, backward_part) : status;
}

static comet_status prepare(comet_step *s) {
    const comet_backend *backend = s->plan->backend;
    comet_status status = backend->begin ? backend->begin(s->plan->backend, s->plan->graph) : COMET_OK;
    if (status == COMET_OK)
        status = comet_step_set_bounds(s);
    return status == COMET_OK ? comet_step_choose_kind(s) : status;
}

static comet_status run(comet_step *s, comet_step_result *result) {
    comet_status status = prepare(s);
    if (status != COMET_OK)
        return status;
    status = issue(s);
    if (status == COMET_OK && s->options->tail)
        status = s->options->tail->issue(s->options->tail->context);
    if (status == COMET_OK)
        status = comet_step_look_ahead(s);
    if (status == COMET_OK && !settles_early(s))
        status = settle(s);
    result->spilled_bytes = s->spilled_bytes;
    if (status != COMET_OK) {
        (void)copy_running(s, 1);
        return status;
    }
    return await_loss(s, result);
}

static void end(comet_step *s, comet_step_result *result, comet_status status) {
    result->stored_bytes = s->holder ? comet_step_learn(s, status) : 0;
    result->refused_entry = s->refused;
    if (s->options->collect && status == COMET_OK)
        comet_collect_batch_end(s->options->collect);
    if (status == COMET_OK)
        comet_step_count_kind(s);
    for (int i = 0; s->holder && i < s->plan->entry_count; i++)
        comet_step_release(s, i);
}

comet_status comet_step_run(comet_step *s, const comet_step_options *options, comet_step_result *result,
                            comet_message *message) {
    if (!options || !options->labels || !result || (options->accumulate && !s->plan->options.accumulate) ||
        (s->plan->options.input_bytes && (!options->bytes || !options->normalisation)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "a step needs a batch with labels, and a plan that allows what it is asked for");
    begin(s, options);
    comet_status status = run(s, result);
    end(s, result, status);
    if (status == COMET_ERROR_DIVERGED)
        return comet_message_set(message, status, "the input of %s is not finite",
                                 s->plan->graph->nodes[s->failed].name);
    if (status != COMET_OK)
        return comet_message_set(message, status, "%s: %s",
                                 s->failed < 0 ? "loss" : s->plan->graph->nodes[s->failed].name,
                                 comet_status_string(status));
    return COMET_OK;
}
