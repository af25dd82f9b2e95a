/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an update may be made: loss, gradients and running statistics must be finite. One that may not is taken back
 * whole. A controller then skips it, up to a point; without one, or past that point, training has diverged.
 */
#include <math.h>

#include "base/memory.h"
#include "train/trainer/trainer_impl.h"

comet_status comet_trainer_judge_new(comet_trainer *t, comet_message *message) {
    comet_space *space = t->parts.backend->space;
    const int count = comet_graph_parameters(t->parts.graph);
    t->running_bytes = comet_graph_running_bytes(t->parts.graph);
    t->spans = comet_memory_take(t->allocator, 2 * (size_t)count * sizeof *t->spans);
    if (!t->spans || space->take(space, t->running_bytes, (void **)&t->running) != COMET_OK)
        return comet_message_memory(message);
    for (int i = 0; i < count; i++) {
        const comet_parameter *p = comet_graph_parameter(t->parts.graph, i);
        t->spans[i] = (comet_span){p->kind < COMET_RUNNING_MEAN ? p->gradient : p->value, p->frozen ? 0 : p->count};
        if (p->kind >= COMET_RUNNING_MEAN)
            t->spans[count + t->running_arrays++] = t->spans[i];
    }
    return COMET_OK;
}

void comet_trainer_judge_free(comet_trainer *t) {
    comet_space *space = t->running ? t->parts.backend->space : NULL;
    if (space)
        space->give(space, t->running, t->running_bytes);
    if (t->spans)
        comet_memory_give(t->allocator, t->spans,
                          2 * (size_t)comet_graph_parameters(t->parts.graph) * sizeof *t->spans);
}

comet_status comet_trainer_judge_begin(comet_trainer *t) {
    t->loss = (comet_mean){0};
    t->flaw.text[0] = '\0';
    return comet_graph_copy_running(t->parts.graph, t->running, 0);
}

void comet_trainer_judge_batch(comet_trainer *t, double loss, const comet_message *flaw) {
    comet_mean_add(&t->loss, loss, 1);
    t->mean_loss = comet_mean_value(&t->loss);
    if (flaw && !t->flaw.text[0])
        t->flaw = *flaw;
}

comet_status comet_trainer_judge_complete(comet_trainer *t) {
    comet_space *space = t->parts.backend->space;
    const comet_span *running = t->spans + comet_graph_parameters(t->parts.graph);
    int first = -1;
    t->flawed = t->flaw.text[0] != 0;
    if (t->flawed)
        return COMET_OK;
    if (t->early.is_issued) /* which has looked at these, too */
        return comet_trainer_update_await_guard(t);
    comet_status status = space->find_nonfinite(space, running, t->running_arrays, &first);
    t->flawed = first >= 0;
    return status;
}

static comet_status find_nonfinite(comet_trainer *t, int *first) {
    comet_space *space = t->parts.backend->space;
    *first = t->early.guard.first;
    return t->early.is_issued ? COMET_OK
                              : space->find_nonfinite(space, t->spans, comet_graph_parameters(t->parts.graph), first);
}

/* The first that is found; an empty text: there is none. *is_gradient: it is one, all else is fine. */
static comet_status find_flaw(comet_trainer *t, double loss, comet_message *flaw, int *is_gradient) {
    int first = -1;
    *is_gradient = 0;
    *flaw = t->flaw;
    if (!flaw->text[0] && !isfinite(loss))
        comet_message_set(flaw, COMET_OK, "the loss is not finite");
    if (flaw->text[0])
        return COMET_OK;
    comet_status status = find_nonfinite(t, &first);
    const comet_parameter *p = comet_graph_parameter(t->parts.graph, first);
    if (!p && t->flawed)
        comet_message_set(flaw, COMET_OK, "another trainer of the network has values that are not finite");
    *is_gradient = p && p->kind < COMET_RUNNING_MEAN;
    if (p)
        comet_message_set(flaw, COMET_OK, "%s%s is not finite", p->kind < COMET_RUNNING_MEAN ? "the gradient of " : "",
                          p->name);
    return status;
}

int64_t comet_trainer_iteration(const comet_trainer *t, int64_t batches) {
    return batches / t->options.accumulate;
}

static int64_t step_of(const comet_trainer *t) {
    return comet_trainer_iteration(t, t->batches - 1) + 1;
}

/* Without a controller the first is the last. */
static comet_status stop(const comet_trainer *t, const comet_message *flaw, comet_message *message) {
    const int64_t step = step_of(t), skips = t->control ? t->parts.control_options.most_skips : 1;
    if (skips == 1)
        return comet_message_set(message, COMET_ERROR_DIVERGED, "training has diverged since step %lld: %.240s",
                                 (long long)step, flaw->text);
    return comet_message_set(message, COMET_ERROR_DIVERGED,
                             "training has diverged since step %lld: %lld steps in a row were not finite and were "
                             "skipped; of the last one, %.240s",
                             (long long)(step > skips ? step - skips + 1 : 1), (long long)skips, flaw->text);
}

comet_status comet_trainer_judge(comet_trainer *t, int *go_on, comet_message *message) {
    const double loss = t->mean_loss;
    comet_message flaw;
    int is_gradient;
    comet_status status = find_flaw(t, loss, &flaw, &is_gradient);
    if (status != COMET_OK)
        return comet_message_set(message, status, "the gradients: %s", comet_status_string(status));
    comet_control_action action = flaw.text[0] ? COMET_CONTROL_STOP : COMET_CONTROL_GO_ON;
    t->too_large = is_gradient && comet_trainer_scale_less(t);
    if (t->too_large) /* no fault of the training's */
        action = COMET_CONTROL_SKIP;
    else if (t->control)
        action = comet_control_step(t->control, step_of(t) - 1, loss, !flaw.text[0]);
    *go_on = action == COMET_CONTROL_GO_ON;
    if (!*go_on)
        status = comet_graph_copy_running(t->parts.graph, t->running, 1);
    if (status != COMET_OK)
        return comet_message_set(message, status, "running statistics: %s", comet_status_string(status));
    return action == COMET_CONTROL_STOP ? stop(t, &flaw, message) : COMET_OK;
}

comet_status comet_trainer_ruined(comet_trainer *t, int parameter, comet_message *message) {
    return comet_message_set(
        message, COMET_ERROR_DIVERGED,
        "training has diverged since step %lld: after its update %s, or the optimiser's state of it, "
        "is not finite",
        (long long)step_of(t), comet_graph_parameter(t->parts.graph, parameter)->name);
}
