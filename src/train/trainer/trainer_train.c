/* SPDX-License-Identifier: Apache-2.0 */
/* Batches through a trainer: training and evaluation. */
#include <math.h>

#include "train/trainer/trainer_impl.h"

/* What is held outside the store, as planned, and what the store had of this step. */
static void count_saved(const comet_trainer *t, const comet_step_result *step, comet_trainer_result *result) {
    const comet_plan *plan = t->parts.plan;
    result->saved_stored_bytes = step->stored_bytes;
    result->spilled_bytes = step->spilled_bytes;
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        result->saved_raw_bytes += e->raw_bytes;
        if (!comet_plan_in_store(e))
            result->saved_stored_bytes += comet_learned_at(t->parts.learned, i)->stored_bytes;
    }
}

static comet_status end_update(comet_trainer *t, double learning_rate, double momentum, comet_trainer_result *result,
                               comet_message *message) {
    int go_on = 1;
    comet_status status = comet_trainer_judge(t, &go_on, message);
    result->skipped = !go_on;
    result->too_large = t->too_large;
    if (status != COMET_OK || !go_on)
        return status;
    status = comet_trainer_make_update(t, learning_rate, momentum, result, message);
    return t->control && status == COMET_OK ? comet_trainer_control_observe(t, momentum, message) : status;
}

/* A step for which there is no room is run again under another plan, as long as there is one. */
static comet_status run(comet_trainer *t, const comet_step_options *options, comet_step_result *step,
                        comet_message *message) {
    if (!t->step) /* after a failure to take memory for another plan */
        return comet_message_memory(message);
    for (;;) {
        if (t->control)
            comet_trainer_control_bounds(t);
        comet_status status = comet_step_run(t->step, options, step, message);
        if (status == COMET_ERROR_DISK_FULL)
            return comet_message_set(message, status, "the disk of %s is full: spill to another directory, or less",
                                     t->options.spill_directory);
        if (status == COMET_ERROR_CAPACITY)
            status = comet_trainer_replan(t, step->refused_entry, message);
        else
            return status;
        if (status != COMET_OK)
            return status;
    }
}

static comet_status see_loaded(void *context, const comet_step_loaded *loaded) {
    const comet_trainer *t = context;
    return t->options.hooks.loaded(t->hook, loaded);
}

static comet_status begin_update(comet_trainer *t, comet_message *message) {
    t->early.is_issued = 0;
    comet_status status = comet_trainer_judge_begin(t);
    if (status != COMET_OK)
        return comet_message_set(message, status, "running statistics: %s", comet_status_string(status));
    if (t->control)
        comet_trainer_control_begin(t);
    return COMET_OK;
}

comet_status comet_trainer_gradients(comet_trainer *t, const uint8_t *pixels, const int32_t *labels,
                                     comet_trainer_result *result, comet_message *message) {
    const int accumulate = t->options.accumulate, place = (int)(t->batches % accumulate);
    comet_status status = place == 0 ? comet_trainer_joint_measure(t, pixels, labels, message) : COMET_OK;
    if (status == COMET_OK && place == 0)
        status = begin_update(t, message);
    if (status != COMET_OK)
        return status;
    const comet_step_watch watch = {.loaded = see_loaded, .context = t};
    const comet_step_options options = {.bytes = pixels,
                                        .normalisation = &t->options.normalisation,
                                        .labels = labels,
                                        .smoothing = t->options.smoothing,
                                        .watch = t->options.hooks.loaded ? &watch : NULL,
                                        .collect = t->collects ? t->parts.collect : NULL,
                                        .gradient_scale = (float)comet_trainer_scale_now(t) / (float)accumulate,
                                        .clock = t->clock,
                                        .ahead = t->ahead,
                                        .tail = comet_trainer_update_tail(t, place == accumulate - 1),
                                        .accumulate = place > 0,
                                        .seed = t->options.seed,
                                        .step = (uint64_t)t->batches,
                                        .rank = t->options.rank};
    comet_step_result step = {.loss = NAN};
    comet_message flaw = {""};
    status = run(t, &options, &step, &flaw);
    if (status != COMET_OK && status != COMET_ERROR_DIVERGED) /* the update as a whole is judged at its end */
        return comet_message_set(message, status, "%s", flaw.text);
    t->batches++;
    comet_trainer_judge_batch(t, step.loss, status == COMET_OK ? NULL : &flaw);
    if (t->control)
        comet_trainer_control_batch(t);
    comet_trainer_learn(&t->parts);
    *result = (comet_trainer_result){
        .loss = step.loss, .top1 = step.top1, .top5 = step.top5, .complete = place == accumulate - 1};
    count_saved(t, &step, result);
    if (!result->complete)
        return comet_trainer_settle(t, message);
    status = comet_trainer_judge_complete(t);
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "running statistics: %s", comet_status_string(status));
}

void comet_trainer_set_ahead(comet_trainer *t, const comet_step_ahead *ahead) {
    t->ahead = ahead;
}

void comet_trainer_set_clock(comet_trainer *t, const comet_step_clock *clock) {
    t->clock = clock;
}

comet_trainer_pending comet_trainer_get_pending(comet_trainer *t) {
    comet_trainer_pending pending = {.loss = &t->mean_loss, .flawed = &t->flawed};
    pending.gradients = comet_graph_gradients(t->parts.graph, &pending.gradient_count);
    return pending;
}

comet_status comet_trainer_update(comet_trainer *t, double learning_rate, double momentum, comet_trainer_result *result,
                                  comet_message *message) {
    if (t->batches == 0 || t->batches % t->options.accumulate != 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "an update needs the gradients of %d batches",
                                 t->options.accumulate);
    comet_status status = end_update(t, learning_rate, momentum, result, message);
    if (status == COMET_ERROR_DIVERGED)
        t->batches -= t->options.accumulate;
    return status == COMET_OK ? comet_trainer_settle(t, message) : status;
}

comet_status comet_trainer_train(comet_trainer *t, const uint8_t *pixels, const int32_t *labels, double learning_rate,
                                 double momentum, comet_trainer_result *result, comet_message *message) {
    comet_trainer_update_early(t, learning_rate, momentum);
    comet_status status = comet_trainer_gradients(t, pixels, labels, result, message);
    t->early.is_wanted = 0;
    if (status != COMET_OK || !result->complete)
        return status;
    if (t->options.hooks.gradients)
        status = t->options.hooks.gradients(t->hook, t->parts.graph, t->batches);
    if (status != COMET_OK)
        return comet_message_set(message, status, "the gradients: %s", comet_status_string(status));
    return comet_trainer_update(t, learning_rate, momentum, result, message);
}

comet_status comet_trainer_evaluate(comet_trainer *t, const uint8_t *pixels, const int32_t *labels, int count,
                                    comet_accuracy *accuracy, comet_mean *loss, comet_message *message) {
    if (!t->evaluation)
        return comet_message_memory(message);
    if (count < 1 || count > t->options.batch)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%d images do not fit a batch of %d", count,
                                 t->options.batch);
    const comet_step_options options = {.bytes = pixels,
                                        .normalisation = &t->options.normalisation,
                                        .labels = labels,
                                        .count = count,
                                        .smoothing = t->options.smoothing};
    comet_step_result step;
    comet_status status = comet_step_run(t->evaluation, &options, &step, message);
    if (status != COMET_OK)
        return status;
    comet_accuracy_add(accuracy, step.top1, step.top5, count);
    comet_mean_add(loss, step.loss, count);
    return COMET_OK;
}
