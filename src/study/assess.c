/* SPDX-License-Identifier: Apache-2.0 */
/* An assessment's memory, and whom it is about. */
#include "study/assess.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "study/assess_impl.h"
#include "train/graph/pattern.h"

/* ---- memory ---- */

void comet_assess_free(comet_assess *a) {
    if (!a)
        return;
    comet_blocks_give(&a->blocks);
    comet_memory_give(a->allocator, a, sizeof *a);
}

/* ---- who is assessed ---- */

static int is_chosen(const comet_assess *a, int32_t tensor) {
    const comet_control_tensor *t = &a->tensors[tensor];
    return t->use_count > 0 && (!a->options.layers || comet_pattern_fits(a->options.layers, t->name));
}

/* A bit for each use of a tensor that reaches the same gradient as its use `u`; 0: an earlier one does, too. */
static uint32_t uses_like(const comet_control_tensor *t, int32_t u) {
    uint32_t mask = 0;
    for (int32_t i = 0; i < t->use_count; i++)
        mask |= (uint32_t)(t->uses[i].gradient == t->uses[u].gradient) << i;
    return mask & ((1u << u) - 1) ? 0 : mask;
}

static comet_status count_all(comet_assess *a, comet_message *message) {
    for (int32_t i = 0; i < a->tensor_count; i++) {
        if (!is_chosen(a, i))
            continue;
        a->chosen_count++;
        for (int32_t u = 0; u < a->tensors[i].use_count; u++)
            a->pair_count += uses_like(&a->tensors[i], u) != 0;
    }
    if (a->chosen_count > 0)
        return COMET_OK;
    if (a->options.layers)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "no tensor that a controller sets the bound of is called '%.60s'; `comet plan` lists "
                                 "them, those held by eb",
                                 a->options.layers);
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no tensor that a controller sets the bound of");
}

static void list_all(comet_assess *a) {
    int32_t chosen = 0, pair = 0;
    for (int32_t i = 0; i < a->tensor_count; i++) {
        a->place[i] = -1;
        if (!is_chosen(a, i))
            continue;
        for (int32_t u = 0; u < a->tensors[i].use_count; u++) {
            const uint32_t uses = uses_like(&a->tensors[i], u);
            if (uses)
                a->pairs[pair++] = (comet_assess_pair){chosen, a->tensors[i].uses[u].gradient, uses, 0};
        }
        a->bounds[a->tensor_count + chosen] = comet_control_bound(comet_trainer_control(a->trainer), i);
        a->chosen[chosen] = i;
        a->place[i] = chosen++;
    }
}

/* Gradients that are reached, one behind the other; and the largest part of a tensor. */
static void measure_room(comet_assess *a) {
    const comet_plan *plan = comet_trainer_plan(a->trainer);
    for (int32_t i = 0; i < a->parameter_count; i++)
        a->offsets[i] = -1;
    for (int32_t i = 0; i < a->pair_count; i++) {
        int64_t *offset = &a->offsets[a->pairs[i].parameter];
        if (*offset >= 0)
            continue;
        *offset = (int64_t)a->lossless_values;
        a->lossless_values += (size_t)comet_graph_parameter(a->graph, a->pairs[i].parameter)->count;
    }
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        const int32_t tensor = comet_probe_find(a->trainer, e);
        const size_t values = e->raw_bytes / sizeof(float) / (size_t)(e->parts > 1 ? e->parts : 1);
        if (tensor >= 0 && a->place[tensor] >= 0 && values > a->loaded_values)
            a->loaded_values = values;
    }
}

static comet_status take_all(comet_assess *a, comet_message *message) {
    const size_t tensors = (size_t)a->tensor_count, chosen = (size_t)a->chosen_count, pairs = (size_t)a->pair_count,
                 bounds = (size_t)a->options.bounds, parameters = (size_t)a->parameter_count;
    int32_t *places = comet_blocks_take(&a->blocks, tensors + chosen, sizeof *places);
    double *numbers = comet_blocks_take(&a->blocks, parameters + chosen, sizeof *numbers);
    a->pairs = comet_blocks_take(&a->blocks, pairs, sizeof *a->pairs);
    a->sums = comet_blocks_take(&a->blocks, pairs * bounds, sizeof *a->sums);
    a->factors = comet_blocks_take(&a->blocks, pairs * bounds, sizeof *a->factors);
    a->joint = comet_blocks_take(&a->blocks, parameters * bounds, sizeof *a->joint);
    a->own = comet_blocks_take(&a->blocks, chosen * bounds, sizeof *a->own);
    a->offsets = comet_blocks_take(&a->blocks, parameters, sizeof *a->offsets);
    a->bounds = comet_blocks_take(&a->blocks, tensors + chosen, sizeof *a->bounds);
    if (!places || !numbers || !a->pairs || !a->sums || !a->factors || !a->joint || !a->own || !a->offsets ||
        !a->bounds)
        return comet_message_memory(message);
    a->place = places;
    a->chosen = places + tensors;
    a->gradient_squares = numbers;
    a->rms = numbers + parameters;
    list_all(a);
    measure_room(a);
    a->lossless = comet_blocks_take(&a->blocks, a->lossless_values, sizeof *a->lossless);
    a->loaded = comet_blocks_take(&a->blocks, a->loaded_values, sizeof *a->loaded);
    return a->lossless && a->loaded ? COMET_OK : comet_message_memory(message);
}

/* The controller's own factors are for its bounds. */
static void begin_factors(comet_assess *a) {
    for (int b = 0; b < a->options.bounds; b++)
        for (int32_t i = 0; i < a->pair_count; i++) {
            const comet_assess_pair *pair = &a->pairs[i];
            comet_assess_factor *f = comet_assess_factor_of(a, b, i);
            int32_t use = 0;
            while (!(pair->uses >> use & 1))
                use++;
            f->factor = 1;
            if (a->options.error_rel[b] < 0)
                f->factor =
                    comet_control_factor(comet_trainer_control(a->trainer), a->chosen[pair->chosen], use, &f->measured);
        }
}

/* Of a gradient: that of a use which ends in it, if there is one. */
static void begin_joint(comet_assess *a) {
    const comet_control *control = comet_trainer_control(a->trainer);
    for (int b = 0; b < a->options.bounds; b++) {
        for (int32_t p = 0; p < a->parameter_count; p++)
            comet_assess_joint_of(a, b, p)->factor = 1;
        for (int32_t i = 0; i < a->pair_count && a->options.error_rel[b] < 0; i++) {
            const int32_t tensor = a->chosen[a->pairs[i].chosen];
            comet_assess_factor *f = comet_assess_joint_of(a, b, a->pairs[i].parameter);
            for (int32_t u = 0; u < a->tensors[tensor].use_count; u++)
                if ((a->pairs[i].uses >> u & 1) &&
                    (f->measured == 0 || a->tensors[tensor].uses[u].kind <= COMET_USE_NORM_SCALE))
                    f->factor = comet_control_joint_factor(control, tensor, u, &f->measured);
        }
    }
}

static void begin_histograms(comet_assess *a) {
    for (int32_t i = 0; i < a->pair_count * a->options.bounds; i++)
        comet_histogram_init(&a->sums[i].errors, -4, 4);
    for (int32_t i = 0; i < a->chosen_count * a->options.bounds; i++)
        comet_histogram_init(&a->own[i].errors, -1, 1);
}

static comet_status check(const comet_trainer *trainer, const comet_assess_options *o, comet_message *message) {
    if (!comet_trainer_control(trainer))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "only tensors under a controller can be assessed");
    if (o->bounds < 1 || o->bounds > COMET_ASSESS_MOST_BOUNDS)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "from 1 to %d bounds can be assessed",
                                 COMET_ASSESS_MOST_BOUNDS);
    return COMET_OK;
}

comet_status comet_assess_new(comet_trainer *trainer, const comet_assess_options *options,
                              const comet_allocator *allocator, comet_assess **assess, comet_message *message) {
    COMET_TRY(check(trainer, options, message));
    comet_assess *a = comet_memory_take(allocator, sizeof *a);
    if (!a)
        return comet_message_memory(message);
    *a = (comet_assess){.options = *options, .trainer = trainer, .graph = comet_trainer_graph(trainer)};
    a->allocator = a->blocks.allocator = comet_memory_hold(&a->allocator_copy, allocator);
    a->tensors = comet_probe_tensors(trainer, &a->tensor_count);
    a->parameter_count = comet_graph_parameters(a->graph);
    comet_status status = count_all(a, message);
    if (status == COMET_OK)
        status = take_all(a, message);
    if (status != COMET_OK) {
        comet_assess_free(a);
        return status;
    }
    begin_histograms(a);
    begin_factors(a);
    begin_joint(a);
    *assess = a;
    return COMET_OK;
}
