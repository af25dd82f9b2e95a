/* SPDX-License-Identifier: Apache-2.0 */
/* An assessment's passes, and its figures. */
#include <math.h>
#include <stdio.h>

#include "study/assess_impl.h"

/* ---- passes ---- */

int64_t comet_assess_passes(const comet_assess *a) {
    return 1 + (int64_t)a->options.bounds * (1 + a->chosen_count);
}

int64_t comet_assess_learn_passes(const comet_assess *a) {
    return 1 + (int64_t)a->options.bounds;
}

/* All tensors without loss but for those that are to be compressed: one, all of the chosen (-1), or none (-2). */
enum { ALL = -1, NONE = -2 };

static void set_bounds(comet_assess *a, int32_t which) {
    for (int32_t i = 0; i < a->tensor_count; i++) {
        const int32_t chosen = a->place[i];
        const int compressed = chosen >= 0 && (which == ALL || which == chosen);
        a->bounds[i] =
            (comet_control_bound_value){COMET_BOUND_ABSOLUTE, compressed ? comet_assess_bound(a, chosen) : 0};
    }
}

static comet_status compute(comet_assess *a, comet_probe *probe, int32_t which, comet_message *message) {
    if (a->options.stop && *a->options.stop)
        return comet_message_set(message, COMET_ERROR_IO, "stopped");
    set_bounds(a, which);
    probe->bounds = a->bounds;
    probe->collect = which < 0;
    return comet_trainer_probe(a->trainer, probe, message);
}

static void report(const comet_assess *a, comet_status status, const char *what) {
    if (status == COMET_OK && a->options.progress)
        a->options.progress(a->options.context, what);
}

static comet_status pass(comet_assess *a, comet_probe *probe, int32_t which, const char *what, comet_message *message) {
    const comet_step_watch watch = {.saved = comet_assess_saved, .context = a};
    probe->watch = which == ALL ? &watch : NULL;
    comet_status status = compute(a, probe, which, message);
    if (status == COMET_OK && which == NONE)
        status = comet_assess_keep(a, message);
    if (status == COMET_OK && which == ALL)
        status = comet_assess_predict(a, message);
    if (status == COMET_OK && which != NONE)
        comet_assess_compare(a, which);
    report(a, status, what);
    return status;
}

/* Bounds are in units of the batch's own rms, which a pass without loss shows. */
comet_status comet_assess_learn(comet_assess *a, const uint8_t *pixels, const int32_t *labels, comet_message *message) {
    comet_probe probe = {.pixels = pixels, .labels = labels, .turn = a->turns++};
    a->bound = 0;
    comet_status status = compute(a, &probe, NONE, message);
    if (status == COMET_OK)
        status = comet_assess_see_rms(a, message);
    comet_assess_hold(a);
    report(a, status, "measured factors");
    for (; a->bound < a->options.bounds && status == COMET_OK; a->bound++) {
        status = compute(a, &probe, ALL, message);
        if (status == COMET_OK)
            status = comet_assess_factors(a, message);
        if (status == COMET_OK)
            status = comet_assess_joint_factors(a, message);
        report(a, status, "measured factors");
    }
    return status;
}

static void note_bounds(comet_assess *a) {
    for (int32_t i = 0; i < a->chosen_count; i++) {
        comet_assess_own *own = comet_assess_own_of(a, a->bound, i);
        own->rms += a->rms[i];
        own->error_rel += a->rms[i] > 0 ? comet_assess_bound(a, i) / a->rms[i] : 0;
    }
}

comet_status comet_assess_batch(comet_assess *a, const uint8_t *pixels, const int32_t *labels, comet_message *message) {
    comet_probe probe = {.pixels = pixels, .labels = labels};
    a->bound = 0;
    comet_status status = pass(a, &probe, NONE, "without loss", message);
    for (a->bound = 0; a->bound < a->options.bounds && status == COMET_OK; a->bound++) {
        note_bounds(a);
        status = pass(a, &probe, ALL, "all together", message);
        for (int32_t i = 0; i < a->chosen_count && status == COMET_OK; i++)
            status = pass(a, &probe, i, a->tensors[a->chosen[i]].name, message);
    }
    a->batches++;
    return status;
}

/* ---- figures ---- */

static double ratio(double predicted, double measured) {
    return measured > 0 && predicted > 0 ? predicted / measured : (double)NAN;
}

static void name_uses(const comet_assess *a, const comet_assess_pair *pair, char *text, size_t capacity) {
    const comet_control_tensor *tensor = &a->tensors[a->chosen[pair->chosen]];
    size_t used = 0;
    text[0] = 0;
    for (int32_t u = 0; u < tensor->use_count && used < capacity; u++)
        if (pair->uses >> u & 1)
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? "+" : "",
                                     comet_use_name(tensor->uses[u].kind));
}

int comet_assess_rows(const comet_assess *a) {
    return a->pair_count;
}

void comet_assess_get_row(const comet_assess *a, int bound, int row, comet_assess_row *f) {
    const comet_assess_pair *pair = &a->pairs[row];
    const comet_assess_sums *s = comet_assess_sums_of(a, bound, row);
    const comet_parameter *p = comet_graph_parameter(a->graph, pair->parameter);
    const double n = a->batches;
    *f = (comet_assess_row){.tensor = a->tensors[a->chosen[pair->chosen]].name,
                            .gradient = p->name,
                            .error_rel = comet_assess_own_of(a, bound, pair->chosen)->error_rel / n,
                            .predicted = sqrt(s->predicted / n),
                            .measured = sqrt(s->measured / n),
                            .joint_predicted = sqrt(s->joint_predicted / n),
                            .joint_measured = sqrt(s->joint_measured / n),
                            .factor = comet_assess_factor_of(a, bound, row)->factor,
                            .measured_times = comet_assess_factor_of(a, bound, row)->measured,
                            .joint_factor = comet_assess_joint_of(a, bound, pair->parameter)->factor,
                            .gradient_rms = sqrt(a->gradient_squares[pair->parameter] / n),
                            .values = p->count,
                            .errors = &s->errors};
    f->ratio = ratio(f->predicted, f->measured);
    f->joint_ratio = ratio(f->joint_predicted, f->joint_measured);
    f->ratio_with_factor = ratio(sqrt(s->with_factor / n), f->measured);
    f->joint_ratio_with_factor = ratio(sqrt(s->joint_with_factor / n), f->joint_measured);
    name_uses(a, pair, f->use, sizeof f->use);
}

/* 1: the first row of a layer's weights, all of whose rows say the same of all tensors together. */
static int stands_for_layer(const comet_assess *a, int32_t row) {
    const comet_assess_pair *pair = &a->pairs[row];
    for (int32_t i = 0; i < row; i++)
        if (a->pairs[i].parameter == pair->parameter)
            return 0;
    return comet_graph_parameter(a->graph, pair->parameter)->kind <= COMET_LINEAR_WEIGHT &&
           a->gradient_squares[pair->parameter] > 0;
}

void comet_assess_get_joint(const comet_assess *a, int bound, comet_assess_joint *j) {
    double measured = 0, predicted = 0, with = 0;
    *j = (comet_assess_joint){.largest = (double)NAN, .largest_of = ""};
    for (int32_t i = 0; i < a->pair_count; i++) {
        const comet_assess_sums *s = comet_assess_sums_of(a, bound, i);
        if (!stands_for_layer(a, i))
            continue;
        const double squares = a->gradient_squares[a->pairs[i].parameter], part = s->joint_measured / squares;
        measured += part;
        predicted += s->joint_predicted / squares;
        with += s->joint_with_factor / squares;
        j->layers++;
        if (!(part <= j->largest * j->largest)) {
            j->largest = sqrt(part);
            j->largest_of = comet_graph_parameter(a->graph, a->pairs[i].parameter)->name;
        }
    }
    j->measured = sqrt(measured / j->layers);
    j->predicted = sqrt(predicted / j->layers);
    j->with_factor = sqrt(with / j->layers);
}

int comet_assess_tensors(const comet_assess *a) {
    return a->chosen_count;
}

void comet_assess_get_tensor(const comet_assess *a, int bound, int tensor, comet_assess_tensor *f) {
    const comet_assess_own *own = comet_assess_own_of(a, bound, tensor);
    const double n = a->batches;
    *f = (comet_assess_tensor){.name = a->tensors[a->chosen[tensor]].name,
                               .error_rel = own->error_rel / n,
                               .rms = own->rms / n,
                               .values = own->values / n,
                               .zeros = own->zeros / n,
                               .exact = own->exact / n,
                               .largest = own->largest,
                               .errors = &own->errors};
}
