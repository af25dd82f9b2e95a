/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update. Where the backend can, it is issued right behind the gradients of the last batch, guarded: the device
 * finds out whether it may be made, and the host waits once for all of it.
 */
#include <math.h>

#include "train/trainer/trainer_impl.h"

static comet_update_call call_of(comet_trainer *t, const comet_optimiser_step *step) {
    comet_graph *g = t->parts.graph;
    return (comet_update_call){.backend = t->parts.backend,
                               .optimiser = &t->options.optimiser,
                               .step = step,
                               .parameters = comet_graph_parameter(g, 0),
                               .count = comet_graph_parameters(g),
                               .state = t->state,
                               .means = t->means};
}

static comet_optimiser_step step_of(const comet_trainer *t, double learning_rate, double momentum) {
    return (comet_optimiser_step){.number = t->updates + 1,
                                  .learning_rate = learning_rate,
                                  .momentum = momentum,
                                  .gradient_scale = 1 / comet_trainer_scale_now(t)};
}

/* ---- behind the gradients ---- */

static comet_status issue(void *context) {
    comet_trainer *t = context;
    const comet_backend *backend = t->parts.backend;
    comet_trainer_early *e = &t->early;
    const comet_optimiser_step step = step_of(t, e->learning_rate, e->momentum);
    e->guard = (comet_guard_call){.backend = t->parts.backend,
                                  .holder = t->holder,
                                  .spans = t->spans,
                                  .count = comet_graph_parameters(t->parts.graph)};
    e->update = call_of(t, &step);
    e->update.guarded = 1;
    comet_status status = backend->guard(&e->guard);
    if (status == COMET_OK)
        status = backend->update(&e->update);
    e->update.step = NULL;
    e->is_issued = status == COMET_OK;
    if (t->collects)
        comet_collect_squares(t->parts.collect);
    return status;
}

void comet_trainer_update_early(comet_trainer *t, double learning_rate, double momentum) {
    t->early = (comet_trainer_early){.is_wanted = t->parts.backend->guard && !t->options.hooks.gradients,
                                     .learning_rate = learning_rate,
                                     .momentum = momentum,
                                     .tail = {issue, t}};
}

const comet_step_tail *comet_trainer_update_tail(const comet_trainer *t, int is_last) {
    const int is_fine = !t->flaw.text[0] && isfinite(comet_mean_value(&t->loss));
    return t->early.is_wanted && is_last && is_fine ? &t->early.tail : NULL;
}

comet_status comet_trainer_update_await_guard(comet_trainer *t) {
    return t->parts.backend->await_guard(&t->early.guard);
}

/* ---- what became of it ---- */

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

/* The one that was issued early, or one from here on. */
static comet_status make(comet_trainer *t, double learning_rate, double momentum, int *broken) {
    const comet_backend *backend = t->parts.backend;
    const comet_optimiser_step step = step_of(t, learning_rate, momentum);
    comet_update_call call = call_of(t, &step);
    comet_status status;
    if (t->early.is_issued) {
        call = t->early.update;
        status = backend->await_update(&call);
    } else
        status = backend->update(&call);
    *broken = call.broken;
    return status;
}

comet_status comet_trainer_make_update(comet_trainer *t, double learning_rate, double momentum,
                                       comet_trainer_result *result, comet_message *message) {
    int broken = -1;
    comet_status status = make(t, learning_rate, momentum, &broken);
    t->early.is_issued = 0;
    if (status != COMET_OK)
        return comet_message_set(message, status, "the update: %s", comet_status_string(status));
    t->updates++;
    comet_trainer_scale_made(t);
    result->updated = 1;
    result->mean_momentum = mean_momentum(t);
    return broken < 0 ? COMET_OK : comet_trainer_ruined(t, broken, message);
}
