/* SPDX-License-Identifier: Apache-2.0 */
/* Batches through a trainer: training and evaluation. */
#include <string.h>

#include "train/trainer_impl.h"

static int64_t pixels_of(const comet_trainer *t, int images) {
    return (int64_t)images * t->options.height * t->options.width;
}

static void normalise(const comet_trainer *t, const uint8_t *pixels, int images, float *values) {
    comet_normalise(&t->options.normalisation, t->options.channels, pixels, pixels_of(t, images), values);
}

/* Over all weights. */
static double mean_momentum(comet_trainer *t) {
    comet_graph *g = t->parts.graph;
    double sum = 0, count = 0;
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        if (p->kind >= COMET_RUNNING_MEAN)
            continue;
        sum += t->means[i] * (double)p->count;
        count += (double)p->count;
    }
    return count > 0 ? sum / count : 0;
}

static void update(comet_trainer *t, double learning_rate, double momentum, comet_trainer_result *result) {
    comet_graph *g = t->parts.graph;
    const comet_optimiser_step step = {
        .number = t->updates + 1, .learning_rate = learning_rate, .momentum = momentum, .gradient_scale = 1};
    comet_optimiser_update(&t->options.optimiser, &step, comet_graph_parameter(g, 0), comet_graph_parameters(g),
                           t->state, t->means, t->parts.backend->threads);
    t->updates++;
    result->updated = 1;
    result->mean_momentum = mean_momentum(t);
}

/* What is held outside the store, as planned, and what the store had of this step. */
static void count_saved(const comet_trainer *t, const comet_step_result *step, comet_trainer_result *result) {
    const comet_plan *plan = t->parts.plan;
    result->saved_stored_bytes = step->stored_bytes;
    result->spilled_bytes = step->spilled_bytes;
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        result->saved_raw_bytes += e->raw_bytes;
        if (!comet_plan_in_store(e))
            result->saved_stored_bytes += e->stored_bytes;
    }
}

comet_status comet_trainer_train(comet_trainer *t, const uint8_t *pixels, const int32_t *labels, double learning_rate,
                                 double momentum, comet_trainer_result *result, comet_message *message) {
    const int accumulate = t->options.accumulate, place = (int)(t->batches % accumulate);
    const comet_step_options options = {.labels = labels,
                                        .smoothing = t->options.smoothing,
                                        .gradient_scale = 1 / (float)accumulate,
                                        .accumulate = place > 0,
                                        .seed = t->options.seed,
                                        .step = (uint64_t)t->batches};
    comet_step_result step;
    normalise(t, pixels, t->options.batch, comet_step_input(t->step));
    comet_status status = comet_step_run(t->step, &options, &step, message);
    if (status != COMET_OK)
        return status;
    t->batches++;
    comet_trainer_learn(t);
    *result = (comet_trainer_result){.loss = step.loss, .top1 = step.top1, .top5 = step.top5};
    count_saved(t, &step, result);
    if (place == accumulate - 1)
        update(t, learning_rate, momentum, result);
    return COMET_OK;
}

comet_status comet_trainer_evaluate(comet_trainer *t, const uint8_t *pixels, const int32_t *labels, int count,
                                    comet_accuracy *accuracy, comet_mean *loss, comet_message *message) {
    if (count < 1 || count > t->options.batch)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%d images do not fit a batch of %d", count,
                                 t->options.batch);
    float *input = comet_step_input(t->evaluation);
    const size_t image = (size_t)pixels_of(t, 1) * (size_t)t->options.channels;
    comet_step_result step;
    normalise(t, pixels, count, input);
    memset(input + (size_t)count * image, 0, (size_t)(t->options.batch - count) * image * sizeof *input);
    comet_status status = comet_step_run(
        t->evaluation, &(comet_step_options){.labels = labels, .count = count, .smoothing = t->options.smoothing},
        &step, message);
    if (status != COMET_OK)
        return status;
    comet_accuracy_add(accuracy, comet_step_logits(t->evaluation), labels, count, t->options.classes);
    comet_mean_add(loss, step.loss, count);
    return COMET_OK;
}
