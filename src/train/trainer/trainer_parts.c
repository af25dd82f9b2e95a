/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer's parts that need no large memory: the network, the backend, the plans. */
#include <string.h>

#include "base/memory.h"
#include "base/pages.h"
#include "comet/control_methods.h"
#include "train/models/model.h"
#include "train/plan/plan_impl.h"
#include "train/trainer/control_text.h"
#include "train/trainer/trainer_impl.h"

static comet_status check(const comet_trainer_options *o, comet_message *message) {
    if (!o || !o->model)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a trainer needs a model");
    if (o->channels != 1 && o->channels != 3)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "images have 1 or 3 channels, not %d", o->channels);
    if (o->batch < 1)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a batch of %d is not possible: at least 1", o->batch);
    if (o->accumulate < 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%d batches for an update are not possible",
                                 o->accumulate);
    if (!(o->smoothing >= 0 && o->smoothing < 1))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "labels can be smoothed by 0 to below 1, not by %g",
                                 (double)o->smoothing);
    return comet_optimiser_check(&o->optimiser, message);
}

static comet_status make_graph(const comet_trainer_options *o, const comet_allocator *allocator,
                               comet_trainer_parts *parts, comet_message *message) {
    comet_status status = comet_graph_new(allocator, &parts->graph);
    if (status != COMET_OK)
        return comet_message_memory(message);
    status = comet_model_build(parts->graph, o->model, o->classes, o->height, o->width, o->channels, message);
    return status == COMET_OK && o->freeze ? comet_graph_freeze(parts->graph, o->freeze, message) : status;
}

static comet_status make_backend(const comet_trainer_options *o, const comet_allocator *allocator,
                                 comet_trainer_parts *parts, comet_message *message) {
    if (!o->backend)
        return comet_backend_new(&o->place, o->threads, allocator, &parts->backend, message);
    comet_status status = o->backend(o->threads, allocator, &parts->backend);
    return status == COMET_OK ? COMET_OK
                              : comet_message_set(message, status, "the backend: %s", comet_status_string(status));
}

/* Without them it trains as well: kernels are measured again. */
static comet_status set_choices(const comet_trainer_options *o, comet_trainer_parts *parts) {
    comet_backend *backend = parts->backend;
    if (!o->choices || !backend->set_choices)
        return COMET_OK;
    const comet_status status = backend->set_choices(backend, o->choices);
    if (status == COMET_ERROR_MISMATCH)
        comet_message_set(&parts->note, COMET_OK,
                          "%.300s: they are chosen anew, and the run is not the same to the last bit",
                          comet_last_error());
    return status == COMET_ERROR_MISMATCH || status == COMET_ERROR_CORRUPT ? COMET_OK : status;
}

/* A step with statistics takes up to 15 % longer: every 20th, that is less than 1 %. */
enum { STATISTICS_EVERY = 20 };

static comet_status read_control(const comet_trainer_options *o, comet_trainer_parts *parts, comet_message *message) {
    parts->control_options = (comet_control_options)COMET_CONTROL_OPTIONS_INIT;
    parts->control_options.every = STATISTICS_EVERY;
    if (o->calibration > 0)
        parts->control_options.calibration = o->calibration;
    return comet_control_read(o->control, &parts->methods, &parts->control_options, message);
}

/* With which sizes are guessed: a controller's until its first decision. */
static double first_bound(const comet_trainer_options *o, const comet_trainer_parts *parts) {
    const comet_control_options *c = &parts->control_options;
    if (!parts->methods)
        return o->error_rel;
    const int is_fixed = (parts->methods->flags & COMET_CONTROL_AT_ONCE) && c->fixed_kind == COMET_BOUND_RELATIVE;
    return is_fixed ? c->fixed_bound : c->warmup_bound;
}

static comet_status make_forms(const comet_trainer_options *o, const comet_allocator *allocator,
                               comet_trainer_parts *parts, comet_message *message) {
    comet_status status = comet_forms_new(o->codec, first_bound(o, parts), o->forms, allocator, &parts->forms, message);
    if (status == COMET_OK)
        status = comet_forms_check(parts->forms, parts->graph, message);
    if (status == COMET_OK && comet_forms_offloads(parts->forms) && !comet_trainer_offloads(parts, o))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "what is offloaded needs a directory for its file: give one to spill to");
    return status;
}

/* Everything kept, and evaluation. The plan that is run depends on the budget. */
static comet_status make_plans(const comet_trainer_options *o, const comet_allocator *allocator,
                               comet_trainer_parts *parts, comet_message *message) {
    const comet_plan_options training = {
        .batch = o->batch, .training = 1, .accumulate = o->accumulate > 1, .input_bytes = 1};
    const comet_plan_options evaluation = {.batch = o->batch, .input_bytes = 1};
    comet_status status = comet_plan_new(parts->graph, parts->backend, &training, allocator, &parts->base, message);
    if (status == COMET_OK)
        status = comet_plan_new(parts->graph, parts->backend, &evaluation, allocator, &parts->evaluation, message);
    return status;
}

static comet_status take_marks(comet_trainer_parts *parts, comet_message *message) {
    const size_t bytes = (size_t)parts->graph->value_count;
    parts->again = comet_memory_take(parts->allocator, bytes);
    parts->cut = comet_memory_take(parts->allocator, bytes);
    if (!parts->again || !parts->cut)
        return comet_message_memory(message);
    comet_trainer_find_cuts(parts);
    return COMET_OK;
}

comet_status comet_trainer_parts_new(const comet_trainer_options *options, const comet_allocator *allocator,
                                     comet_trainer_parts *parts, comet_message *message) {
    memset(parts, 0, sizeof *parts);
    parts->allocator = comet_memory_hold(&parts->allocator_copy, allocator);
    comet_status status = check(options, message);
    if (status == COMET_OK && options->control)
        status = read_control(options, parts, message);
    if (status == COMET_OK)
        status = make_graph(options, allocator, parts, message);
    if (status == COMET_OK)
        status = make_backend(options, allocator, parts, message);
    if (status == COMET_OK && set_choices(options, parts) != COMET_OK)
        status = comet_message_memory(message);
    if (status == COMET_OK)
        status = make_forms(options, allocator, parts, message);
    if (status == COMET_OK)
        status = make_plans(options, allocator, parts, message);
    if (status == COMET_OK)
        status = comet_trainer_seen_new(parts, message);
    if (status == COMET_OK)
        status = take_marks(parts, message);
    if (status == COMET_OK && parts->methods)
        status = comet_trainer_control_parts(parts, options, message);
    if (status != COMET_OK) {
        comet_trainer_parts_free(parts);
        return status;
    }
    parts->library_bytes = parts->backend->library_bytes(parts->backend, parts->graph, options->batch);
    parts->static_bytes += comet_graph_static_bytes(parts->graph, 1) + comet_graph_running_bytes(parts->graph) +
                           comet_optimiser_bytes(&options->optimiser, comet_graph_parameter(parts->graph, 0),
                                                 comet_graph_parameters(parts->graph));
    return COMET_OK;
}

void comet_trainer_parts_strip(comet_trainer_parts *parts) {
    comet_collect_free(parts->collect);
    comet_learned_free(parts->learned);
    comet_trainer_seen_free(parts);
    const size_t marks = parts->graph ? (size_t)parts->graph->value_count : 0;
    comet_memory_give(parts->allocator, parts->again, marks);
    comet_memory_give(parts->allocator, parts->cut, marks);
    comet_plan_free(parts->evaluation);
    comet_plan_free(parts->base);
    comet_forms_free(parts->forms);
}

void comet_trainer_parts_free(comet_trainer_parts *parts) {
    comet_plan_free(parts->plan); /* it uses the base's ops */
    comet_trainer_parts_strip(parts);
    comet_graph_free(parts->graph); /* its memory is the backend's */
    comet_backend_free(parts->backend);
    memset(parts, 0, sizeof *parts);
}

size_t comet_trainer_parts_buffers(const comet_trainer_parts *parts) {
    const size_t training = comet_plan_get_bytes(parts->plan, NULL).buffer_bytes;
    const size_t evaluation = comet_plan_get_bytes(parts->evaluation, NULL).buffer_bytes;
    return comet_pages_round(training > evaluation ? training : evaluation);
}

comet_trainer_bytes comet_trainer_parts_bytes(const comet_trainer_parts *parts, size_t store_limit) {
    const comet_plan_bytes plan = comet_plan_get_bytes(parts->plan, parts->learned);
    const size_t store = store_limit && store_limit < plan.store_bytes ? store_limit : plan.store_bytes;
    const size_t buffers = comet_trainer_parts_buffers(parts);
    return (comet_trainer_bytes){.static_bytes = parts->static_bytes,
                                 .buffer_bytes = buffers,
                                 .library_bytes = parts->library_bytes,
                                 .planned_peak_bytes = parts->static_bytes + buffers + store,
                                 .saved_raw_bytes = plan.saved_raw_bytes,
                                 .saved_stored_bytes = plan.saved_stored_bytes};
}
