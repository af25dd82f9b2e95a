/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/probe.h"
#include "train/trainer/trainer_impl.h"

const comet_control_tensor *comet_probe_tensors(const comet_trainer *t, int32_t *count) {
    *count = 0;
    return t->control ? comet_collect_tensors(t->parts.collect, count) : NULL;
}

int32_t comet_probe_find(const comet_trainer *t, const comet_plan_entry *entry) {
    return comet_collect_find(t->parts.collect, entry);
}

/* Sensitivities do not depend on momentum, which alone an update would add. */
const comet_control_observation *comet_probe_observation(comet_trainer *t, int32_t tensor) {
    const comet_collect_update update = {&t->options.optimiser, 0, t->means, t->updates > 0 ? t->updates : 1,
                                         comet_trainer_scale_now(t)};
    return comet_collect_observation(t->parts.collect, &update, tensor);
}

static void set_bounds(comet_trainer *t, const comet_control_bound_value *bounds) {
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const int32_t tensor = comet_probe_find(t, comet_plan_get_entry(t->parts.plan, i));
        if (tensor >= 0)
            comet_learned_set_bound(t->parts.learned, i, bounds[tensor].kind, bounds[tensor].value);
    }
}

comet_status comet_trainer_probe(comet_trainer *t, const comet_probe *probe, comet_message *message) {
    if (!t->control || t->batches % t->options.accumulate != 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "only a trainer whose bounds a controller sets can be probed, between updates");
    if (!t->step) /* after a failure to take memory for another plan */
        return comet_message_memory(message);
    const comet_step_options options = {.bytes = probe->pixels,
                                        .normalisation = &t->options.normalisation,
                                        .labels = probe->labels,
                                        .smoothing = t->options.smoothing,
                                        .collect = probe->collect ? t->parts.collect : NULL,
                                        .watch = probe->watch,
                                        .sight = probe->sight,
                                        .seed = t->options.seed,
                                        .step = (uint64_t)t->batches};
    comet_step_result result;
    if (probe->collect) {
        comet_collect_set_turn(t->parts.collect, probe->turn);
        comet_collect_begin(t->parts.collect);
    }
    set_bounds(t, probe->bounds);
    comet_status status = comet_graph_copy_running(t->parts.graph, t->running, 0);
    if (status != COMET_OK)
        return comet_message_set(message, status, "running statistics: %s", comet_status_string(status));
    status = comet_step_run(t->step, &options, &result, message);
    comet_status back = comet_graph_copy_running(t->parts.graph, t->running, 1);
    return status != COMET_OK ? status : back;
}
