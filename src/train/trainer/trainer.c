/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's memory, and what it is made of. Batches are in trainer_train.c. */
#include "train/trainer/trainer.h"

#include <string.h>

#include "base/memory.h"
#include "train/models/model.h"
#include "train/trainer/trainer_impl.h"

/* ---- making one ---- */

static comet_status first_values(comet_trainer *t, comet_message *message) {
    comet_graph *g = t->parts.graph;
    const comet_model *model;
    comet_status status = comet_model_find(t->options.model, &model, message);
    if (status != COMET_OK)
        return status;
    status = comet_graph_allocate(g, t->parts.backend->space, 1);
    if (status != COMET_OK)
        return comet_message_set(message, status, "no memory for the weights: %zu bytes are needed",
                                 comet_graph_static_bytes(g, 1));
    status = comet_initialise(model->initialisation, t->options.seed, comet_graph_parameter(g, 0),
                              comet_graph_parameters(g), t->parts.backend->threads);
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "the first weights: %s", comet_status_string(status));
}

/* Each of the optimiser's arrays has its parameters' values in their order in the space. */
static comet_status arrange_state(comet_trainer *t) {
    comet_graph *g = t->parts.graph;
    comet_space *space = t->parts.backend->space;
    float *next = t->state;
    comet_status status = COMET_OK;
    for (int a = 0; space->arrange && a < comet_optimiser_arrays(&t->options.optimiser); a++)
        for (int i = 0; i < comet_graph_parameters(g) && status == COMET_OK; i++) {
            const comet_parameter *p = comet_graph_parameter(g, i);
            if (!comet_parameter_is_trained(p))
                continue;
            if (p->kind == COMET_CONV_WEIGHT)
                status = space->arrange(space, next, p->shape);
            next += p->count;
        }
    return status;
}

static comet_status take_state(comet_trainer *t, comet_message *message) {
    comet_graph *g = t->parts.graph;
    const int count = comet_graph_parameters(g);
    t->state_bytes = comet_optimiser_bytes(&t->options.optimiser, comet_graph_parameter(g, 0), count);
    comet_space *space = t->parts.backend->space;
    t->means = comet_memory_take(t->allocator, (size_t)count * sizeof *t->means);
    comet_status status = t->means ? space->take(space, t->state_bytes, (void **)&t->state) : COMET_ERROR_MEMORY;
    if (status == COMET_OK)
        status = arrange_state(t);
    if (status == COMET_OK)
        status = space->fill(space, t->state, (int64_t)(t->state_bytes / sizeof *t->state), 0);
    if (status != COMET_OK)
        return comet_message_set(message, status, "no memory for the optimiser: %zu bytes are needed", t->state_bytes);
    memset(t->means, 0, (size_t)count * sizeof *t->means);
    return COMET_OK;
}

static comet_status copy_directory(comet_trainer *t, comet_message *message) {
    if (!t->options.spill_directory)
        return COMET_OK;
    const size_t bytes = strlen(t->options.spill_directory) + 1;
    t->spill_directory = comet_memory_take(t->allocator, bytes);
    if (!t->spill_directory)
        return comet_message_memory(message);
    memcpy(t->spill_directory, t->options.spill_directory, bytes);
    t->options.spill_directory = t->spill_directory;
    return COMET_OK;
}

static comet_status make(comet_trainer *t, comet_message *message) {
    comet_status status = copy_directory(t, message);
    if (status == COMET_OK)
        status = comet_trainer_parts_new(&t->options, t->allocator, &t->parts, message);
    if (status == COMET_OK)
        status = comet_trainer_plan_within(&t->parts, &t->options, NULL, message);
    if (status == COMET_OK)
        status = first_values(t, message);
    if (status == COMET_OK)
        status = take_state(t, message);
    if (status == COMET_OK)
        status = comet_trainer_judge_new(t, message);
    if (status == COMET_OK)
        status = comet_trainer_control_new(t, message);
    const comet_trainer_hooks *hooks = &t->options.hooks;
    if (status == COMET_OK && hooks->begin)
        status = hooks->begin(hooks->text, t->options.seed, t->parts.plan, t->allocator, &t->hook, message);
    return status == COMET_OK ? comet_trainer_take(t, message) : status;
}

comet_status comet_trainer_new(const comet_trainer_options *options, const comet_allocator *allocator,
                               comet_trainer **trainer, comet_message *message) {
    if (!options || !trainer)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a trainer needs options");
    comet_trainer *t = comet_memory_take(allocator, sizeof *t);
    if (!t)
        return comet_message_memory(message);
    memset(t, 0, sizeof *t);
    t->allocator = comet_memory_hold(&t->allocator_copy, allocator);
    t->options = *options;
    t->joint.iteration = -1;
    if (t->options.accumulate == 0)
        t->options.accumulate = 1;
    comet_status status = make(t, message);
    if (status != COMET_OK) {
        comet_trainer_free(t);
        return status;
    }
    *trainer = t;
    return COMET_OK;
}

const char *comet_trainer_note(const comet_trainer *t) {
    return t->parts.note.text;
}

int comet_trainer_is_recorded(const comet_trainer *t) {
    return t->step && comet_step_is_recorded(t->step);
}

const char *comet_trainer_refusal(const comet_trainer *t) {
    return t->step ? comet_step_refusal(t->step) : "";
}

size_t comet_trainer_get_choices(const comet_trainer *t, char *text, size_t room) {
    const comet_backend *backend = t->parts.backend;
    return backend->choices ? backend->choices(backend, text, room) : 0;
}

void comet_trainer_free(comet_trainer *t) {
    if (!t)
        return;
    const comet_allocator *allocator = t->allocator;
    comet_trainer_give(t);
    comet_trainer_joint_free(t);
    comet_trainer_control_free(t);
    comet_trainer_judge_free(t);
    if (t->hook && t->options.hooks.end)
        t->options.hooks.end(t->hook);
    if (t->means)
        comet_memory_give(allocator, t->means, (size_t)comet_graph_parameters(t->parts.graph) * sizeof *t->means);
    if (t->state)
        t->parts.backend->space->give(t->parts.backend->space, t->state, t->state_bytes);
    comet_trainer_parts_free(&t->parts);
    if (t->spill_directory)
        comet_memory_give(allocator, t->spill_directory, strlen(t->spill_directory) + 1);
    comet_memory_give(allocator, t, sizeof *t);
}

/* ---- what it is made of ---- */

comet_backend *comet_trainer_backend(comet_trainer *t) {
    return t->parts.backend;
}

comet_graph *comet_trainer_graph(comet_trainer *t) {
    return t->parts.graph;
}

const comet_plan *comet_trainer_plan(const comet_trainer *t) {
    return t->parts.plan;
}

const comet_learned *comet_trainer_learned(const comet_trainer *t) {
    return t->parts.learned;
}

float *comet_trainer_optimiser_state(comet_trainer *t) {
    return t->state;
}

int64_t *comet_trainer_updates(comet_trainer *t) {
    return &t->updates;
}

int64_t *comet_trainer_batches(comet_trainer *t) {
    return &t->batches;
}

comet_trainer_bytes comet_trainer_get_bytes(const comet_trainer *t) {
    comet_trainer_bytes b = comet_trainer_parts_bytes(&t->parts, t->store_limit);
    b.planned_peak_bytes = b.planned_peak_bytes > t->past_planned ? b.planned_peak_bytes : t->past_planned;
    b.allocated_peak_bytes = comet_trainer_allocated(t);
    return b;
}

int comet_trainer_times(const comet_trainer *t) {
    return comet_plan_times(t->parts.plan);
}

size_t comet_trainer_bytes_at(const comet_trainer *t, int time) {
    return comet_plan_bytes_at(t->parts.plan, t->parts.learned, time);
}
