/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of gradients and of stored values, as they are; and what theory says of them. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "study/assess_impl.h"

/* ---- bounds ---- */

double comet_assess_bound(const comet_assess *a, int32_t chosen) {
    const double relative = a->options.error_rel[a->bound];
    const comet_control_bound_value *own = &a->bounds[a->tensor_count + chosen];
    if (relative >= 0)
        return relative * a->rms[chosen];
    return own->kind == COMET_BOUND_RELATIVE ? own->value * a->rms[chosen] : own->value;
}

/* ---- a pass without loss ---- */

static double mean_square(const comet_parameter *p) {
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += (double)p->gradient[i] * (double)p->gradient[i];
    return sum / (double)p->count;
}

void comet_assess_hold(comet_assess *a) {
    for (int32_t i = 0; i < a->parameter_count; i++) {
        const comet_parameter *p = comet_graph_parameter(a->graph, i);
        if (a->offsets[i] >= 0)
            memcpy(a->lossless + a->offsets[i], p->gradient, (size_t)p->count * sizeof *p->gradient);
    }
}

static void keep_gradients(comet_assess *a) {
    comet_assess_hold(a);
    for (int32_t i = 0; i < a->parameter_count; i++)
        if (a->offsets[i] >= 0)
            a->gradient_squares[i] += mean_square(comet_graph_parameter(a->graph, i));
}

static void predict(comet_assess *a, comet_assess_pair *pair, const comet_control_observation *o) {
    const comet_control_tensor *tensor = &a->tensors[a->chosen[pair->chosen]];
    pair->slope_squares = 0;
    for (int32_t u = 0; u < tensor->use_count; u++) {
        comet_use_stats model = o->uses[u];
        model.factor = 0;
        const double slope = pair->uses >> u & 1 ? comet_error_sensitivity(tensor->uses[u].kind, &model) : 0;
        pair->slope_squares += slope * slope;
    }
}

static comet_status see(comet_assess *a, int32_t chosen, const comet_control_observation **o, comet_message *message) {
    *o = comet_probe_observation(a->trainer, a->chosen[chosen]);
    return *o ? COMET_OK
              : comet_message_set(message, COMET_ERROR_UNSUPPORTED,
                                  "%s: backward showed no statistics of it; leave it out of the layers",
                                  a->tensors[a->chosen[chosen]].name);
}

comet_status comet_assess_see_rms(comet_assess *a, comet_message *message) {
    const comet_control_observation *o;
    comet_status status = COMET_OK;
    for (int32_t i = 0; i < a->chosen_count && status == COMET_OK; i++) {
        status = see(a, i, &o, message);
        if (status == COMET_OK)
            a->rms[i] = o->rms;
    }
    return status;
}

comet_status comet_assess_keep(comet_assess *a, comet_message *message) {
    keep_gradients(a);
    return comet_assess_see_rms(a, message);
}

/* Of the uses of a pair the first stands for all. */
comet_status comet_assess_factors(comet_assess *a, comet_message *message) {
    const comet_control_observation *o;
    comet_status status = COMET_OK;
    for (int32_t i = 0; i < a->pair_count && status == COMET_OK; i++) {
        comet_assess_factor *f = comet_assess_factor_of(a, a->bound, i);
        int32_t use = 0;
        while (!(a->pairs[i].uses >> use & 1))
            use++;
        status = see(a, a->pairs[i].chosen, &o, message);
        if (status == COMET_OK && o->uses[use].factor > 0)
            f->factor = comet_error_factor_mean(f->factor, f->measured++, o->uses[use].factor);
    }
    return status;
}

comet_status comet_assess_predict(comet_assess *a, comet_message *message) {
    const comet_control_observation *o;
    comet_status status = COMET_OK;
    for (int32_t i = 0; i < a->pair_count && status == COMET_OK; i++) {
        status = see(a, a->pairs[i].chosen, &o, message);
        if (status == COMET_OK)
            predict(a, &a->pairs[i], o);
    }
    return status;
}

/* ---- errors of gradients ---- */

static double predicted_variance(const comet_assess *a, int32_t pair) {
    const double bound = comet_assess_bound(a, a->pairs[pair].chosen);
    return a->pairs[pair].slope_squares * bound * bound;
}

static double with_factor(const comet_assess *a, int32_t pair) {
    const double factor = comet_assess_factor_of(a, a->bound, pair)->factor;
    return factor * factor * predicted_variance(a, pair);
}

static double joint_variance(const comet_assess *a, int32_t parameter,
                             double (*variance)(const comet_assess *a, int32_t pair)) {
    double sum = 0;
    for (int32_t i = 0; i < a->pair_count; i++)
        if (a->pairs[i].parameter == parameter)
            sum += variance(a, i);
    return sum;
}

static double measured_variance(const comet_parameter *p, const float *lossless) {
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double error = (double)p->gradient[i] - (double)lossless[i];
        sum += error * error;
    }
    return sum / (double)p->count;
}

static double joint_with_factor(const comet_assess *a, int32_t parameter) {
    const double joint = comet_assess_joint_of(a, a->bound, parameter)->factor;
    return joint * joint * joint_variance(a, parameter, with_factor);
}

comet_status comet_assess_joint_factors(comet_assess *a, comet_message *message) {
    comet_status status = comet_assess_predict(a, message);
    for (int32_t i = 0; i < a->parameter_count && status == COMET_OK; i++) {
        if (a->offsets[i] < 0)
            continue;
        const double measured = measured_variance(comet_graph_parameter(a->graph, i), a->lossless + a->offsets[i]);
        const double predicted = joint_variance(a, i, with_factor);
        comet_assess_factor *f = comet_assess_joint_of(a, a->bound, i);
        if (predicted > 0 && isfinite(measured))
            f->factor = comet_error_joint_mean(f->factor, f->measured++, comet_error_joint(measured, predicted));
    }
    return status;
}

/* Over the batch's own sigma, so that batches with large gradients do not look like outliers. */
static void add_errors(comet_histogram *h, const comet_parameter *p, const float *lossless, double variance) {
    const double scale = 1 / sqrt(variance);
    if (!(variance > 0) || !isfinite(scale))
        return;
    for (int64_t i = 0; i < p->count; i++)
        comet_histogram_add(h, ((double)p->gradient[i] - (double)lossless[i]) * scale);
}

void comet_assess_compare(comet_assess *a, int32_t chosen) {
    for (int32_t i = 0; i < a->pair_count; i++) {
        const comet_assess_pair *pair = &a->pairs[i];
        const comet_parameter *p = comet_graph_parameter(a->graph, pair->parameter);
        const float *lossless = a->lossless + a->offsets[pair->parameter];
        comet_assess_sums *s = comet_assess_sums_of(a, a->bound, i);
        if (chosen >= 0 && pair->chosen != chosen)
            continue;
        const double variance = measured_variance(p, lossless);
        if (chosen < 0) {
            s->joint_predicted += joint_variance(a, pair->parameter, predicted_variance);
            s->joint_with_factor += joint_with_factor(a, pair->parameter);
            s->joint_measured += variance;
            continue;
        }
        s->predicted += predicted_variance(a, i);
        s->with_factor += with_factor(a, i);
        s->measured += variance;
        add_errors(&s->errors, p, lossless, variance);
    }
}

/* ---- errors of what is stored ---- */

static void add_value(comet_assess_own *own, double before, double after, double inverse_bound) {
    const double error = (after - before) * inverse_bound;
    if (before == 0)
        own->zeros++;
    else if (after == before)
        own->exact++;
    else {
        own->largest = fmax(own->largest, fabs(error));
        comet_histogram_add(&own->errors, error);
    }
}

/* What is stored of value i: itself, or the batch norm's u. */
static double stored_of(const comet_codec_grid *grid, const float *values, int64_t i, int64_t channel) {
    if (!grid)
        return (double)values[i];
    const float scale = grid->scale ? grid->scale[channel] : 1, shift = grid->shift ? grid->shift[channel] : 0;
    return (double)fmaf(scale, values[i], shift);
}

comet_status comet_assess_saved(void *context, const comet_step_saved *saved) {
    comet_assess *a = context;
    const int32_t tensor = comet_probe_find(a->trainer, saved->entry), chosen = tensor < 0 ? -1 : a->place[tensor];
    if (chosen < 0)
        return COMET_OK;
    const comet_held_part *part = saved->part;
    const int64_t *shape = part->values->shape, count = shape[0] * shape[1] * shape[2] * shape[3];
    const double bound = comet_assess_bound(a, chosen);
    const float *values = part->values->data;
    comet_assess_own *own = comet_assess_own_of(a, a->bound, chosen);
    COMET_TRY(part->holder->load_part(part->holder, part->held, part->part, a->loaded));
    own->values += (double)count;
    for (int64_t i = 0; i < count; i++)
        add_value(own, stored_of(part->grid, values, i, i % shape[3]), (double)a->loaded[i], bound > 0 ? 1 / bound : 0);
    return COMET_OK;
}
