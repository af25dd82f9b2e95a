/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the plan's order, carried out. */
#include <math.h>
#include <string.h>

#include "train/backend/cpu/statistics.h"
#include "train/step/step_impl.h"

/* For a backward that takes an entry part by part. */
typedef struct part_source {
    const comet_step *step;
    int entry;
    float *data;
    const comet_op_call *call;
    int seen; /* parts that were there once */
} part_source;

static comet_status fetch(void *context, int part) {
    part_source *f = context;
    comet_collect *collect = f->step->options->collect;
    comet_status status = comet_step_load_part(f->step, f->entry, part, f->data);
    if (collect && status == COMET_OK && part == f->seen) {
        comet_collect_part(collect, f->call, part);
        f->seen++;
    }
    return status;
}

static comet_op_call call_of(const comet_step *s, int i) {
    comet_op_call call = comet_plan_call(s->plan, i);
    const comet_plan_node *n = &s->plan->nodes[i];
    call.seed = s->options->seed;
    call.step = s->options->step;
    call.side = comet_step_at(s, n->side);
    call.mask = comet_step_at(s, n->mask);
    call.accumulate = s->options->accumulate;
    return call;
}

/*
 * The rms of a batch norm's normalised input, of its non-zeros: in a channel u has the variance v / (v + epsilon) = 1 - epsilon scale^2. Channels
 * without any variance are all zeros. 0: there are no others.
 */
static double normalised_rms(const comet_op_call *call) {
    const int64_t channels = comet_value_shape(call->graph, call->node->output)->channels;
    const float *scale = call->side;
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < channels; c++) {
        const double variance = 1 - (double)call->node->as.norm.epsilon * (double)scale[c] * (double)scale[c];
        if (variance <= 1e-6)
            continue;
        sum += variance;
        count++;
    }
    return count ? sqrt(sum / (double)count) : 0;
}

/* A batch norm whose input is saved: between its statistics, which the grid needs, and its output, which may be written over the input. */
static comet_status save_norm(comet_step *s, comet_op_call *call, int entry) {
    const comet_op_kernel *kernel = s->plan->backend->kernels[call->node->kind];
    comet_codec_grid grid;
    comet_op_call statistics = *call;
    statistics.y = NULL;
    comet_status status = kernel->forward(&statistics);
    if (status != COMET_OK)
        return status;
    s->plan->backend->norm_grid(call, &grid);
    if (!comet_statistics_finite(NULL, grid.scale, grid.channels) ||
        !comet_statistics_finite(NULL, grid.shift, grid.channels))
        return COMET_ERROR_DIVERGED;
    call->again = 1;
    const comet_step_content content = {(void *)call->x[0], &grid, normalised_rms(call)};
    return comet_step_save(s, entry, &content);
}

static comet_status forward_node(comet_step *s, int i) {
    const comet_plan_node *n = &s->plan->nodes[i];
    if (n->skip || n->identity)
        return COMET_OK;
    comet_op_call call = call_of(s, i);
    call.x[0] = comet_step_at(s, n->x[0]);
    call.x[1] = comet_step_at(s, n->x[1]);
    call.y = comet_step_at(s, n->y);
    call.scratch = comet_step_at(s, n->scratch_forward);
    comet_step_content content = {.data = call.y};
    call.rms =
        n->save >= 0 && s->plan->entries[n->save].form.codec.bound_kind == COMET_BOUND_RELATIVE ? &content.rms : NULL;
    comet_status status = n->save_norm >= 0 ? save_norm(s, &call, n->save_norm) : COMET_OK;
    if (status == COMET_OK)
        status = s->plan->backend->kernels[call.node->kind]->forward(&call);
    return status == COMET_OK && n->save >= 0 ? comet_step_save(s, n->save, &content) : status;
}

static comet_status forward_again(comet_step *s, const comet_plan_load *l) {
    comet_op_call call = call_of(s, l->node);
    call.again = 1;
    call.mask = NULL; /* it was written when forward ran first */
    call.x[0] = comet_step_at(s, l->x[0]);
    call.x[1] = comet_step_at(s, l->x[1]);
    call.y = comet_step_at(s, l->buffer);
    call.scratch = comet_step_at(s, l->scratch);
    return s->plan->backend->kernels[call.node->kind]->forward(&call);
}

/* The side data of the batch norm before an activation, NULL if there is none. */
static const float *norm_side(const comet_step *s, const comet_node *node) {
    const int before = s->plan->graph->values[node->input[0]].producer;
    return before >= 0 && s->plan->graph->nodes[before].kind == COMET_OP_BATCH_NORM
               ? comet_step_at(s, s->plan->nodes[before].side)
               : NULL;
}

static comet_status run_backward(comet_step *s, int i, const comet_plan_load *by_parts) {
    const comet_plan_node *n = &s->plan->nodes[i];
    comet_op_call call = call_of(s, i);
    part_source source;
    if (by_parts) {
        source = (part_source){s, by_parts->entry, comet_step_at(s, by_parts->buffer), &call, 0};
        call.parts = s->plan->entries[by_parts->entry].parts;
        call.fetch = fetch;
        call.fetch_context = &source;
    }
    for (int k = 0; k < 2; k++) {
        call.x[k] = comet_step_at(s, n->needs_x[k]);
        call.dx[k] = comet_step_at(s, n->dx[k]);
    }
    call.y = comet_step_at(s, n->needs_y);
    call.dy = comet_step_at(s, n->dy);
    call.normalised = n->normalised;
    call.scratch = comet_step_at(s, n->scratch_backward);
    const comet_op_kernel *kernel = s->plan->backend->kernels[call.node->kind];
    if (s->options->collect)
        comet_collect_backward(s->options->collect, &call, norm_side(s, call.node));
    return kernel->backward ? kernel->backward(&call) : COMET_OK;
}

static comet_status backward_node(comet_step *s, int i) {
    const comet_plan *p = s->plan;
    const comet_plan_node *n = &p->nodes[i];
    const comet_plan_load *by_parts = NULL;
    comet_status status = COMET_OK;
    if (n->dy < 0)
        return COMET_OK;
    for (int k = 0; k < n->loads && status == COMET_OK; k++) {
        const comet_plan_load *l = &p->load_list[n->first_load + k];
        if (l->by_parts)
            by_parts = l;
        else
            status = l->entry >= 0 ? comet_step_load(s, l) : forward_again(s, l);
    }
    if (status == COMET_OK && !n->identity)
        status = run_backward(s, i, by_parts);
    if (by_parts && by_parts->is_last)
        comet_step_release(s, by_parts->entry);
    for (int k = 0; k < n->sums && status == COMET_OK; k++) {
        const comet_plan_sum *sum = &p->sum_list[n->first_sum + k];
        p->backend->add(p->backend, comet_step_at(s, sum->sum), comet_step_at(s, sum->a), comet_step_at(s, sum->b),
                        sum->count);
    }
    return status;
}

/* Running statistics into their place in the arena, or back from it. */
static void copy_running(comet_step *s, int back) {
    comet_graph_copy_running(s->plan->graph, comet_step_at(s, s->plan->running), back);
}

static comet_status forward(comet_step *s) {
    if (s->plan->options.input_bytes)
        comet_step_normalise(s, comet_step_input(s));
    comet_status status = s->plan->input_save >= 0 ? comet_step_save(s, s->plan->input_save,
                                                                     &(comet_step_content){.data = comet_step_input(s)})
                                                   : COMET_OK;
    for (int i = 0; i < s->plan->n && status == COMET_OK; i++) {
        s->failed = i;
        status = forward_node(s, i);
    }
    return status;
}

static comet_status backward(comet_step *s) {
    comet_status status = COMET_OK;
    for (int i = s->plan->n - 1; i >= 0 && status == COMET_OK; i--) {
        s->failed = i;
        status = backward_node(s, i);
    }
    return status;
}

static comet_status loss(comet_step *s, comet_step_result *result) {
    const comet_plan *p = s->plan;
    const comet_step_options *o = s->options;
    const int some = !p->options.training && o->count > 0 && o->count < p->options.batch;
    comet_loss_call call = {.backend = p->backend,
                            .batch = some ? o->count : p->options.batch,
                            .classes = p->graph->values[p->graph->output].shape.channels,
                            .logits = comet_step_logits(s),
                            .labels = o->labels,
                            .smoothing = o->smoothing,
                            .gradient_scale = o->gradient_scale > 0 ? o->gradient_scale : 1,
                            .dlogits = comet_step_at(s, p->dlogits)};
    comet_status status = p->backend->loss(&call);
    result->loss = call.loss;
    result->top1 = call.top1;
    result->top5 = call.top5;
    return status;
}

/* When all is saved and nothing loaded. */
static uint64_t spilled(const comet_step *s) {
    comet_store_stats stats = {.size = sizeof stats};
    return s->store && comet_store_get_stats(s->store, &stats) == COMET_OK ? stats.live.spilled : 0;
}

comet_status comet_step_run(comet_step *s, const comet_step_options *options, comet_step_result *result,
                            comet_message *message) {
    if (!options || !options->labels || !result || (options->accumulate && !s->plan->options.accumulate) ||
        (s->plan->options.input_bytes && (!options->bytes || !options->normalisation)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "a step needs a batch with labels, and a plan that allows what it is asked for");
    s->options = options;
    s->stored_bytes = 0;
    s->failed = s->refused = -1;
    copy_running(s, 0);
    if (options->collect)
        comet_collect_batch_begin(options->collect);
    comet_status status = forward(s);
    if (status != COMET_OK)
        copy_running(s, 1);
    else {
        s->failed = -1;
        result->spilled_bytes = spilled(s);
        status = loss(s, result);
    }
    if (status == COMET_OK && s->plan->options.training)
        status = backward(s);
    result->stored_bytes = s->stored_bytes;
    result->refused_entry = s->refused;
    if (options->collect && status == COMET_OK)
        comet_collect_batch_end(options->collect);
    comet_step_release_all(s);
    if (status == COMET_ERROR_DIVERGED)
        return comet_message_set(message, status, "the input of %s is not finite",
                                 s->plan->graph->nodes[s->failed].name);
    if (status != COMET_OK)
        return comet_message_set(message, status, "%s: %s",
                                 s->failed < 0 ? "loss" : s->plan->graph->nodes[s->failed].name,
                                 comet_status_string(status));
    return COMET_OK;
}
