/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the plan's order, carried out. */
#include "train/step.h"

#include <string.h>

#include "base/memory.h"
#include "base/pages.h"
#include "train/plan_impl.h"

struct comet_step {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_plan *plan;
    comet_store *store;
    char *arena;
    size_t own_bytes;                  /* of the arena, if it is ours */
    comet_store_handle *handles;       /* by entry; 0: none */
    const comet_step_options *options; /* of the run */
    uint64_t stored_bytes;
    int failed;   /* node whose op failed, -1 */
    int diverged; /* statistics are not finite */
    int refused;  /* entry for which there was no room, -1 */
};

/* ---- memory ---- */

static int needs_store(const comet_plan *p) {
    for (int i = 0; i < p->entry_count; i++)
        if (comet_plan_in_store(&p->entries[i]))
            return 1;
    return 0;
}

static comet_status take_arena(comet_step *s, void *memory, size_t bytes, comet_message *message) {
    const size_t wanted = s->plan->arena_bytes;
    if (memory && bytes < wanted)
        return comet_message_set(message, COMET_ERROR_CAPACITY, "the arena has %zu bytes, the plan needs %zu", bytes,
                                 wanted);
    s->arena = memory;
    if (!memory) {
        s->own_bytes = s->allocator ? wanted : comet_pages_round(wanted);
        s->arena = s->allocator ? comet_memory_take(s->allocator, wanted) : comet_pages_take(s->own_bytes, 0);
    }
    return s->arena ? COMET_OK
                    : comet_message_set(message, COMET_ERROR_MEMORY,
                                        "no memory for the activations: %zu bytes are needed", wanted);
}

static void give_arena(comet_step *s) {
    if (!s->own_bytes)
        return;
    if (s->allocator)
        comet_memory_give(s->allocator, s->arena, s->own_bytes);
    else
        comet_pages_give(s->arena, s->own_bytes);
}

static void release_all(comet_step *s) {
    for (int i = 0; i < s->plan->entry_count; i++)
        if (s->handles[i]) {
            comet_store_release(s->store, s->handles[i]);
            s->handles[i] = 0;
        }
}

void comet_step_free(comet_step *s) {
    if (!s)
        return;
    comet_allocator copy = s->allocator_copy;
    const comet_allocator *allocator = s->allocator ? &copy : NULL;
    if (s->handles)
        release_all(s);
    give_arena(s);
    comet_memory_give(allocator, s->handles, ((size_t)s->plan->entry_count + 1) * sizeof *s->handles);
    comet_memory_give(allocator, s, sizeof *s);
}

static comet_status check_parameters(const comet_plan *p, comet_message *message) {
    for (int i = 0; i < p->graph->parameter_count; i++) {
        const comet_parameter *q = &p->graph->parameters[i];
        if (!q->value || (p->options.training && q->kind < COMET_RUNNING_MEAN && !q->gradient))
            return comet_message_set(message, COMET_ERROR_ARGUMENT, "%s has no memory yet", q->name);
    }
    return COMET_OK;
}

comet_status comet_step_new(comet_plan *plan, comet_store *store, void *memory, size_t memory_bytes,
                            const comet_allocator *allocator, comet_step **step, comet_message *message) {
    if (!plan || !step || (needs_store(plan) && !store))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a step needs a plan, and a store if not all is kept");
    comet_status status = check_parameters(plan, message);
    if (status != COMET_OK)
        return status;
    comet_step *s = comet_memory_take(allocator, sizeof *s);
    if (!s)
        return comet_message_memory(message);
    memset(s, 0, sizeof *s);
    s->plan = plan;
    s->store = store;
    if (allocator) {
        s->allocator_copy = *allocator;
        s->allocator = &s->allocator_copy;
    }
    const size_t handles = ((size_t)plan->entry_count + 1) * sizeof *s->handles;
    s->handles = comet_memory_take(allocator, handles);
    if (s->handles)
        memset(s->handles, 0, handles);
    status = s->handles ? take_arena(s, memory, memory_bytes, message) : comet_message_memory(message);
    if (status != COMET_OK) {
        comet_step_free(s);
        return status;
    }
    *step = s;
    return COMET_OK;
}

static void *at(const comet_step *s, int buffer) {
    return buffer < 0 ? NULL : s->arena + s->plan->buffers[buffer].offset;
}

float *comet_step_input(comet_step *s) {
    return at(s, s->plan->value_buffer[s->plan->graph->input]);
}

const float *comet_step_logits(const comet_step *s) {
    return at(s, s->plan->value_buffer[s->plan->graph->output]);
}

/* ---- the store ---- */

static comet_tensor tensor_of(const comet_step *s, comet_value v, void *data) {
    const comet_shape *shape = comet_value_shape(s->plan->graph, v);
    comet_tensor t;
    comet_tensor_init(&t, data, COMET_F32, COMET_NHWC, 4,
                      (int64_t[]){s->plan->options.batch, shape->height, shape->width, shape->channels});
    return t;
}

/* `grid` NULL: the values as they are. */
static comet_status save(comet_step *s, int entry, void *data, const comet_codec_grid *grid) {
    comet_plan_entry *e = &s->plan->entries[entry];
    comet_tensor t = tensor_of(s, e->value, data);
    comet_codec_params codec = e->form.codec;
    codec.grid = grid;
    codec.seed = s->options->seed ^ (s->options->step << 20) ^ (uint64_t)entry;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    item.name = e->name;
    item.form = e->form.form;
    item.offload = e->form.offload;
    item.codec = e->form.form == COMET_FORM_CODEC ? &codec : NULL;
    comet_store_info info = {.size = sizeof info};
    comet_status status = comet_store_save(s->store, &t, &item, &s->handles[entry], &info);
    if (status != COMET_OK) {
        s->refused = status == COMET_ERROR_CAPACITY ? entry : -1;
        return status;
    }
    s->stored_bytes += info.bytes.stored;
    if (e->is_estimate == 1 || e->stored_bytes < info.bytes.stored)
        e->stored_bytes = (size_t)info.bytes.stored;
    e->is_estimate = 2; /* seen */
    return COMET_OK;
}

/* The batch from its bytes; samples that do not count are zero. */
static void normalise(const comet_step *s, float *values) {
    const comet_plan *p = s->plan;
    const comet_shape *shape = comet_value_shape(p->graph, p->graph->input);
    const int64_t batch = p->options.batch, count = s->options->count > 0 ? s->options->count : batch;
    const int64_t pixels = (int64_t)shape->height * shape->width;
    comet_normalise(s->options->normalisation, shape->channels, s->options->bytes, count * pixels, values);
    memset(values + count * pixels * shape->channels, 0,
           (size_t)((batch - count) * pixels * shape->channels) * sizeof *values);
}

static comet_status load(comet_step *s, const comet_plan_load *l) {
    const comet_plan *p = s->plan;
    const comet_plan_entry *e = &p->entries[l->entry];
    if (e->form.bytes) {
        normalise(s, at(s, l->buffer));
        return COMET_OK;
    }
    comet_tensor t = tensor_of(s, e->value, at(s, l->buffer));
    comet_status status = comet_store_load(s->store, s->handles[l->entry], &t);
    if (status == COMET_OK && l->rebuild != COMET_REBUILD_NOTHING) {
        comet_op_call call = comet_plan_call(p, e->node);
        call.y = t.data;
        p->backend->rebuild(&call, l->rebuild);
    }
    if (l->is_last) {
        comet_store_release(s->store, s->handles[l->entry]);
        s->handles[l->entry] = 0;
    }
    return status;
}

/* ---- passes ---- */

static comet_op_call call_of(const comet_step *s, int i) {
    comet_op_call call = comet_plan_call(s->plan, i);
    const comet_plan_node *n = &s->plan->nodes[i];
    call.seed = s->options->seed;
    call.step = s->options->step;
    call.side = at(s, n->side);
    call.mask = at(s, n->mask);
    call.accumulate = s->options->accumulate;
    return call;
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
    call->again = 1;
    status = save(s, entry, (void *)call->x[0], &grid);
    s->diverged = status == COMET_ERROR_ARGUMENT; /* of a grid only scale and shift can be wrong: not finite */
    return status;
}

static comet_status forward_node(comet_step *s, int i) {
    const comet_plan_node *n = &s->plan->nodes[i];
    if (n->skip || n->identity)
        return COMET_OK;
    comet_op_call call = call_of(s, i);
    call.x[0] = at(s, n->x[0]);
    call.x[1] = at(s, n->x[1]);
    call.y = at(s, n->y);
    call.scratch = at(s, n->scratch_forward);
    comet_status status = n->save_norm >= 0 ? save_norm(s, &call, n->save_norm) : COMET_OK;
    if (status == COMET_OK)
        status = s->plan->backend->kernels[call.node->kind]->forward(&call);
    return status == COMET_OK && n->save >= 0 ? save(s, n->save, call.y, NULL) : status;
}

static comet_status forward_again(comet_step *s, const comet_plan_load *l) {
    comet_op_call call = call_of(s, l->node);
    call.again = 1;
    call.mask = NULL; /* it was written when forward ran first */
    call.x[0] = at(s, l->x[0]);
    call.x[1] = at(s, l->x[1]);
    call.y = at(s, l->buffer);
    call.scratch = at(s, l->scratch);
    return s->plan->backend->kernels[call.node->kind]->forward(&call);
}

static comet_status run_backward(comet_step *s, int i) {
    const comet_plan_node *n = &s->plan->nodes[i];
    comet_op_call call = call_of(s, i);
    for (int k = 0; k < 2; k++) {
        call.x[k] = at(s, n->needs_x[k]);
        call.dx[k] = at(s, n->dx[k]);
    }
    call.y = at(s, n->needs_y);
    call.dy = at(s, n->dy);
    call.normalised = n->normalised;
    call.scratch = at(s, n->scratch_backward);
    const comet_op_kernel *kernel = s->plan->backend->kernels[call.node->kind];
    return kernel->backward ? kernel->backward(&call) : COMET_OK;
}

static comet_status backward_node(comet_step *s, int i) {
    const comet_plan *p = s->plan;
    const comet_plan_node *n = &p->nodes[i];
    comet_status status = COMET_OK;
    if (n->dy < 0)
        return COMET_OK;
    for (int k = 0; k < n->loads && status == COMET_OK; k++) {
        const comet_plan_load *l = &p->load_list[n->first_load + k];
        status = l->entry >= 0 ? load(s, l) : forward_again(s, l);
    }
    if (status == COMET_OK && !n->identity)
        status = run_backward(s, i);
    for (int k = 0; k < n->sums && status == COMET_OK; k++) {
        const comet_plan_sum *sum = &p->sum_list[n->first_sum + k];
        p->backend->add(p->backend, at(s, sum->sum), at(s, sum->a), at(s, sum->b), sum->count);
    }
    return status;
}

/* Running statistics into their place in the arena, or back from it. */
static void copy_running(comet_step *s, int back) {
    float *place = at(s, s->plan->running);
    for (int i = 0; place && i < s->plan->graph->parameter_count; i++) {
        const comet_parameter *q = &s->plan->graph->parameters[i];
        if (q->kind < COMET_RUNNING_MEAN)
            continue;
        memcpy(back ? q->value : place, back ? place : q->value, (size_t)q->count * sizeof *place);
        place += q->count;
    }
}

static comet_status forward(comet_step *s) {
    if (s->plan->options.input_bytes)
        normalise(s, comet_step_input(s));
    comet_status status = s->plan->input_save >= 0 ? save(s, s->plan->input_save, comet_step_input(s), NULL) : COMET_OK;
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
                            .dlogits = at(s, p->dlogits)};
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
    s->diverged = 0;
    copy_running(s, 0);
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
    release_all(s);
    if (s->diverged)
        return comet_message_set(message, status,
                                 "%s: values are not finite: training has diverged; a lower rate may help",
                                 s->plan->graph->nodes[s->failed].name);
    if (status != COMET_OK)
        return comet_message_set(message, status, "%s: %s",
                                 s->failed < 0 ? "loss" : s->plan->graph->nodes[s->failed].name,
                                 comet_status_string(status));
    return COMET_OK;
}
