/* SPDX-License-Identifier: Apache-2.0 */
/* A step's memory. */
#include "train/step/step.h"

#include "base/memory.h"
#include "train/step/step_impl.h"

static int needs_holder(const comet_plan *p) {
    for (int i = 0; i < p->entry_count; i++)
        if (comet_plan_in_store(&p->entries[i]))
            return 1;
    return 0;
}

static comet_status take_memory(comet_step *s, void *memory, size_t bytes, comet_message *message) {
    const size_t wanted = s->plan->buffer_bytes;
    comet_space *space = s->plan->backend->space;
    if (memory && bytes < wanted)
        return comet_message_set(message, COMET_ERROR_CAPACITY, "the step was given %zu bytes, the plan needs %zu",
                                 bytes, wanted);
    s->memory = memory;
    if (memory)
        return COMET_OK;
    s->own_bytes = wanted;
    comet_status status = space->take(space, wanted, (void **)&s->memory);
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "no memory for the activations: %zu bytes are needed", wanted);
}

/* Arrays by entry, in one block: bounds, the order of this run and that of each kind, whether it is held. */
static size_t entries_bytes(const comet_plan *p) {
    const size_t each = sizeof(double) + (1 + COMET_STEP_RECORDINGS) * sizeof(int) + 1;
    return ((size_t)p->entry_count + 1) * each;
}

static int take_entries(comet_step *s) {
    const size_t count = (size_t)s->plan->entry_count + 1;
    s->bounds = comet_memory_take(s->allocator, entries_bytes(s->plan));
    if (!s->bounds)
        return 0;
    s->order = (int *)(s->bounds + count);
    for (int i = 0; i < COMET_STEP_RECORDINGS; i++)
        s->kinds[i].held = s->order + (size_t)(i + 1) * count;
    s->held = (unsigned char *)(s->order + (1 + COMET_STEP_RECORDINGS) * count);
    return 1;
}

void comet_step_free(comet_step *s) {
    if (!s)
        return;
    const comet_allocator *allocator = s->allocator;
    comet_space *space = s->plan->backend->space;
    if (s->own_bytes)
        space->give(space, s->memory, s->own_bytes);
    comet_step_forget_kinds(s);
    comet_memory_give(allocator, s->bounds, entries_bytes(s->plan));
    comet_memory_give(allocator, s, sizeof *s);
}

static comet_status check_parameters(const comet_plan *p, comet_message *message) {
    for (int i = 0; i < p->graph->parameter_count; i++) {
        const comet_parameter *q = &p->graph->parameters[i];
        if (!q->value || (p->options.training && comet_parameter_is_trained(q) && !q->gradient))
            return comet_message_set(message, COMET_ERROR_ARGUMENT, "%s has no memory yet", q->name);
    }
    return COMET_OK;
}

comet_status comet_step_new(const comet_plan *plan, const comet_step_parts *parts, const comet_allocator *allocator,
                            comet_step **step, comet_message *message) {
    if (!plan || !parts || !step || (needs_holder(plan) && (!parts->holder || !parts->learned)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "a step needs a plan, and if not all is kept a holder and what is learned");
    comet_status status = check_parameters(plan, message);
    if (status != COMET_OK)
        return status;
    comet_step *s = comet_memory_take(allocator, sizeof *s);
    if (!s)
        return comet_message_memory(message);
    *s = (comet_step){.plan = plan,
                      .learned = parts->learned,
                      .holder = parts->holder,
                      .watch = {comet_step_see_held, comet_step_see_loaded, s}};
    s->allocator = comet_memory_hold(&s->allocator_copy, allocator);
    status =
        take_entries(s) ? take_memory(s, parts->memory, parts->memory_bytes, message) : comet_message_memory(message);
    if (status != COMET_OK) {
        s->own_bytes = 0;
        comet_step_free(s);
        return status;
    }
    *step = s;
    return COMET_OK;
}

void *comet_step_input(comet_step *s) {
    return comet_step_at(s, s->plan->value_buffer[s->plan->graph->input]);
}

const void *comet_step_logits(const comet_step *s) {
    return comet_step_at(s, s->plan->value_buffer[s->plan->graph->output]);
}
