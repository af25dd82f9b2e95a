/* SPDX-License-Identifier: Apache-2.0 */
/* A step's memory. */
#include "train/step/step.h"

#include <string.h>

#include "base/memory.h"
#include "base/pages.h"
#include "train/step/step_impl.h"

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

void comet_step_free(comet_step *s) {
    if (!s)
        return;
    comet_allocator copy = s->allocator_copy;
    const comet_allocator *allocator = s->allocator ? &copy : NULL;
    if (s->handles)
        comet_step_release_all(s);
    give_arena(s);
    comet_memory_give(allocator, s->handles, comet_step_handles_bytes(s->plan));
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
    s->handles = comet_memory_take(allocator, comet_step_handles_bytes(plan));
    if (s->handles)
        memset(s->handles, 0, comet_step_handles_bytes(plan));
    status = s->handles ? take_arena(s, memory, memory_bytes, message) : comet_message_memory(message);
    if (status != COMET_OK) {
        comet_step_free(s);
        return status;
    }
    *step = s;
    return COMET_OK;
}

float *comet_step_input(comet_step *s) {
    return comet_step_at(s, s->plan->value_buffer[s->plan->graph->input]);
}

const float *comet_step_logits(const comet_step *s) {
    return comet_step_at(s, s->plan->value_buffer[s->plan->graph->output]);
}
