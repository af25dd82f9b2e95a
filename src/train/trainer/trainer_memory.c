/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a trainer's plan asks for: holder, buffers, steps. It is taken anew when the plan changes. */
#include "train/trainer/trainer_impl.h"

static comet_status make_holder(comet_trainer *t, comet_message *message) {
    comet_backend *backend = t->parts.backend;
    t->store_limit = comet_trainer_store_limit(&t->parts, &t->options);
    const comet_holder_options o = {.slots = comet_plan_entries(t->parts.plan),
                                    .limit_bytes = t->store_limit,
                                    .spill_directory = t->options.spill_directory,
                                    .spill_limit_bytes = t->options.spill_limit_bytes,
                                    .allocator = t->allocator};
    comet_status status = backend->holder_new(backend, &o, &t->holder);
    if (status == COMET_ERROR_IO)
        return comet_message_set(message, status, "no file can be made in %s: give another directory to spill to",
                                 o.spill_directory);
    return status == COMET_OK ? COMET_OK
                              : comet_message_set(message, status, "the store: %s", comet_status_string(status));
}

static comet_status take_buffers(comet_trainer *t, comet_message *message) {
    comet_space *space = t->parts.backend->space;
    t->buffer_bytes = comet_trainer_parts_buffers(&t->parts);
    comet_status status = space->take(space, t->buffer_bytes, &t->buffers);
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "no memory for the activations: %zu bytes are needed",
                                   t->buffer_bytes);
}

static void give_buffers(comet_trainer *t) {
    comet_space *space = t->buffers ? t->parts.backend->space : NULL;
    if (space)
        space->give(space, t->buffers, t->buffer_bytes);
    t->buffers = NULL;
}

static comet_status make_steps(comet_trainer *t, comet_message *message) {
    comet_step_parts parts = {t->parts.learned, t->holder, t->buffers, t->buffer_bytes};
    comet_status status = comet_step_new(t->parts.plan, &parts, t->allocator, &t->step, message);
    parts.learned = NULL;
    parts.holder = NULL;
    if (status == COMET_OK)
        status = comet_step_new(t->parts.evaluation, &parts, t->allocator, &t->evaluation, message);
    return status;
}

comet_status comet_trainer_take(comet_trainer *t, comet_message *message) {
    comet_status status = make_holder(t, message);
    if (status == COMET_OK)
        status = take_buffers(t, message);
    return status == COMET_OK ? make_steps(t, message) : status;
}

size_t comet_trainer_allocated(const comet_trainer *t) {
    size_t now = t->past_peak;
    if (t->holder)
        now = t->parts.static_bytes + t->buffer_bytes + t->holder->stats(t->holder).peak_bytes;
    return now > t->past_peak ? now : t->past_peak;
}

void comet_trainer_give(comet_trainer *t) {
    t->past_peak = comet_trainer_allocated(t);
    comet_step_free(t->evaluation);
    comet_step_free(t->step);
    t->step = t->evaluation = NULL;
    give_buffers(t);
    comet_holder_free(t->holder);
    t->holder = NULL;
}

comet_status comet_trainer_go_on(comet_trainer *t, const comet_saving *saving, comet_message *message) {
    comet_trainer_give(t);
    t->settled = 1; /* it was when the plan was made */
    comet_status status = comet_trainer_plan_with(&t->parts, &t->options, saving, message);
    return status == COMET_OK ? comet_trainer_take(t, message) : status;
}

/* What is planned will be less, but what is resident was not. */
static void remember_planned(comet_trainer *t) {
    const size_t now = comet_trainer_parts_bytes(&t->parts, t->store_limit).planned_peak_bytes;
    t->past_planned = now > t->past_planned ? now : t->past_planned;
}

/* Under the plan that the sizes known now ask for; if none fits, under the one there was, and *status says so. */
static comet_status plan_anew(comet_trainer *t, comet_status *fits, comet_message *message) {
    const comet_saving before = t->parts.saving;
    comet_message unused;
    remember_planned(t);
    comet_trainer_give(t);
    t->parts.planned_streams = comet_trainer_streams(&t->parts);
    *fits = comet_trainer_plan_within(&t->parts, &t->options, NULL, message);
    comet_status status =
        *fits == COMET_OK ? COMET_OK : comet_trainer_plan_with(&t->parts, &t->options, &before, &unused);
    return status == COMET_OK ? comet_trainer_take(t, *fits == COMET_OK ? message : &unused) : status;
}

comet_status comet_trainer_replan(comet_trainer *t, int refused_entry, comet_message *message) {
    comet_status fits;
    t->settled = 1;
    comet_trainer_learn(&t->parts);
    if (refused_entry < 0 || !comet_trainer_expect_more(&t->parts, refused_entry))
        return COMET_ERROR_CAPACITY; /* the step's message says where */
    comet_status status = plan_anew(t, &fits, message);
    return fits != COMET_OK ? fits : status;
}

static int saves_memory(const comet_saving *s) {
    return s->segments || s->forced || s->offload || s->plain;
}

/*
 * An eighth: a plan takes seconds to find for a large network, and sizes differ from batch to batch by some per cent.
 */
static int have_streams_shrunk(const comet_trainer *t) {
    const uint64_t planned = t->parts.planned_streams;
    return comet_trainer_streams(&t->parts) < planned - planned / 8;
}

/* Less memory is to be saved by other means, or room for streams becomes smaller. */
static int follows_sizes(const comet_trainer *t) {
    return saves_memory(&t->parts.saving) || t->parts.backend->fused_streams;
}

static void turn_window(comet_trainer *t) {
    remember_planned(t);
    comet_trainer_forget(&t->parts);
    if (follows_sizes(t) && have_streams_shrunk(t))
        t->settled = 0;
}

comet_status comet_trainer_settle(comet_trainer *t, comet_message *message) {
    comet_status fits;
    if (t->batches % COMET_TRAINER_WINDOW == 0)
        turn_window(t);
    if (t->settled || !(t->options.memory_bytes || t->parts.backend->fused_streams))
        return COMET_OK;
    t->settled = 1;
    return plan_anew(t, &fits, message); /* where sizes are larger than was thought, the plan there was goes on */
}
