/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer's controller: bounds before each step, statistics after it. Iterations are updates, skipped ones included.
 */
#include <string.h>

#include "comet/control_methods.h"
#include "train/trainer/trainer_impl.h"

/* ---- making one ---- */

static uint32_t needs_of(const comet_trainer_parts *parts) {
    const uint32_t without = parts->control_options.measured ? 0 : COMET_NEEDS_MEASURED;
    return parts->methods->needs & ~without;
}

/* The tensors are those of the plan without any budget: they stay the same whatever plan is run. */
comet_status comet_trainer_control_parts(comet_trainer_parts *parts, const comet_trainer_options *options,
                                         comet_message *message) {
    const comet_saving none = {0};
    comet_status status = comet_trainer_plan_with(parts, options, &none, message);
    if (status == COMET_OK)
        status = comet_collect_new(parts->plan, needs_of(parts), parts->allocator, &parts->collect, message);
    if (status != COMET_OK)
        return status;
    parts->static_bytes = comet_collect_bytes(parts->collect);
    return COMET_OK;
}

comet_status comet_trainer_control_new(comet_trainer *t, comet_message *message) {
    comet_control_options o = t->parts.control_options;
    int32_t count;
    if (!t->parts.methods)
        return COMET_OK;
    const comet_control_tensor *tensors = comet_collect_tensors(t->parts.collect, &count);
    o.log = t->options.control_log;
    o.log_context = t->options.control_context;
    o.allocator = t->allocator;
    comet_status status = comet_control_new(t->parts.methods, &o, tensors, count, &t->control);
    return status == COMET_OK ? COMET_OK
                              : comet_message_set(message, status, "the controller: %s", comet_status_string(status));
}

void comet_trainer_control_free(comet_trainer *t) {
    comet_control_free(t->control);
}

const comet_control *comet_trainer_control(const comet_trainer *t) {
    return t->control;
}

const char *comet_trainer_use_name(const comet_trainer *t, int32_t tensor, int32_t use) {
    int32_t count = 0;
    const comet_control_tensor *tensors = t->control ? comet_collect_tensors(t->parts.collect, &count) : NULL;
    if (tensor < 0 || tensor >= count || use < 0 || use >= tensors[tensor].use_count)
        return "";
    return comet_use_name(tensors[tensor].uses[use].kind);
}

/* ---- before a step ---- */

void comet_trainer_control_begin(comet_trainer *t) {
    t->collects = comet_control_wants(t->control, comet_trainer_iteration(t, t->batches));
    if (!t->collects)
        return;
    comet_collect_set_turn(t->parts.collect, comet_trainer_iteration(t, t->batches) / t->parts.control_options.every);
    comet_collect_begin(t->parts.collect);
}

void comet_trainer_control_bounds(comet_trainer *t) {
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const int32_t tensor = comet_collect_find(t->parts.collect, comet_plan_get_entry(t->parts.plan, i));
        if (tensor < 0)
            continue;
        const comet_control_bound_value bound = comet_control_bound(t->control, tensor);
        comet_learned_set_bound(t->parts.learned, i, bound.kind, bound.value);
    }
}

/* ---- after it ---- */

void comet_trainer_control_batch(comet_trainer *t) {
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(t->parts.plan, i);
        const int32_t tensor = comet_collect_find(t->parts.collect, e);
        if (tensor >= 0)
            comet_control_see_rms(t->control, tensor, comet_learned_at(t->parts.learned, i)->rms);
    }
}

comet_status comet_trainer_control_observe(comet_trainer *t, double momentum, comet_message *message) {
    const comet_collect_update update = {&t->options.optimiser, momentum, t->means, t->updates,
                                         comet_trainer_scale_now(t)};
    if (!t->collects)
        return COMET_OK;
    comet_status status =
        comet_collect_observe(t->parts.collect, &update, t->control, comet_trainer_iteration(t, t->batches - 1));
    return status == COMET_OK ? COMET_OK
                              : comet_message_set(message, status, "the controller: %s", comet_status_string(status));
}

/* ---- checkpoints ---- */

enum { CONTROL_MAGIC = 0x4c544343, CONTROL_VERSION = 1 }; /* "CCTL" */

/* Updates made: fewer than the run's steps where some were skipped. */
typedef struct header {
    uint32_t magic, version;
    int64_t updates;
} header;

size_t comet_trainer_control_bytes(const comet_trainer *t) {
    return t->control ? sizeof(header) + comet_control_state_bytes(t->control) : 0;
}

comet_status comet_trainer_get_control(const comet_trainer *t, void *data, size_t bytes, comet_message *message) {
    const header h = {CONTROL_MAGIC, CONTROL_VERSION, t->updates};
    comet_status status = bytes < sizeof h ? COMET_ERROR_CAPACITY : COMET_OK;
    if (status == COMET_OK) {
        memcpy(data, &h, sizeof h);
        status = comet_control_save(t->control, (char *)data + sizeof h, bytes - sizeof h);
    }
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "the controller's state: %s", comet_status_string(status));
}

comet_status comet_trainer_set_control(comet_trainer *t, const void *data, size_t bytes, comet_message *message) {
    header h = {0};
    if (bytes >= sizeof h)
        memcpy(&h, data, sizeof h);
    comet_status status = !t->control || h.magic != CONTROL_MAGIC || h.version != CONTROL_VERSION || h.updates < 0
                              ? COMET_ERROR_MISMATCH
                              : comet_control_load(t->control, (const char *)data + sizeof h, bytes - sizeof h);
    if (status != COMET_OK)
        return comet_message_set(message, status, "the controller's state is not of this run: %s",
                                 comet_status_string(status));
    t->updates = h.updates;
    return COMET_OK;
}
