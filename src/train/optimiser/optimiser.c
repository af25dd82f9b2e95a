/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimiser/optimiser.h"

#include <math.h>

comet_optimiser comet_optimiser_default(comet_optimiser_kind kind) {
    comet_optimiser o = {.kind = kind, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    if (kind == COMET_SGD)
        o.momentum = 0.9;
    else
        o.weight_decay = 0.01;
    return o;
}

static int is_part(double x) { /* false for NaN, too */
    return x >= 0.0 && x < 1.0;
}

comet_status comet_optimiser_check(const comet_optimiser *o, comet_message *message) {
    if (o->kind != COMET_SGD && o->kind != COMET_ADAMW)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no such optimiser; there are sgd and adamw");
    if (!(o->weight_decay >= 0.0) || o->weight_decay > 1e6)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a weight decay of %g is not possible",
                                 o->weight_decay);
    if (o->kind == COMET_SGD && !is_part(o->momentum))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "momentum is %g; it must be at least 0 and below 1",
                                 o->momentum);
    if (o->kind == COMET_SGD && o->nesterov && o->momentum == 0.0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "Nesterov's rule needs a momentum above 0");
    if (o->kind == COMET_ADAMW && (!is_part(o->beta1) || !is_part(o->beta2) || !(o->epsilon > 0.0)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "AdamW's betas %g and %g must be at least 0 and below 1, its epsilon %g above 0",
                                 o->beta1, o->beta2, o->epsilon);
    return COMET_OK;
}

int comet_optimiser_arrays(const comet_optimiser *o) {
    return o->kind == COMET_ADAMW ? 2 : o->momentum > 0.0;
}

const char *comet_optimiser_array_name(const comet_optimiser *o, int array) {
    return o->kind == COMET_SGD ? "momentum" : array == 0 ? "first_moment" : "second_moment";
}

int64_t comet_optimiser_count(const comet_parameter *parameters, int count) {
    int64_t total = 0;
    for (int i = 0; i < count; i++)
        total += comet_parameter_is_trained(&parameters[i]) ? parameters[i].count : 0;
    return total;
}

size_t comet_optimiser_bytes(const comet_optimiser *o, const comet_parameter *parameters, int count) {
    return (size_t)comet_optimiser_arrays(o) * (size_t)comet_optimiser_count(parameters, count) * sizeof(float);
}

/* ---- the numbers of an update ---- */

static int is_decayed(const comet_optimiser *o, const comet_parameter *p) {
    return !o->decay_weights_only || p->kind == COMET_CONV_WEIGHT || p->kind == COMET_LINEAR_WEIGHT;
}

/* beta^n by squaring: the same bits everywhere, which pow does not promise. */
static double power(double base, int64_t n) {
    double result = 1.0;
    for (; n > 0; n >>= 1, base *= base)
        result *= n & 1 ? base : 1.0;
    return result;
}

static comet_optimiser_rule sgd_rule(const comet_optimiser *o, const comet_optimiser_step *step, int decayed) {
    double momentum = o->momentum > 0.0 && step->momentum > 0.0 ? step->momentum : o->momentum;
    return (comet_optimiser_rule){.kind = COMET_SGD,
                                  .nesterov = o->nesterov,
                                  .scale = (float)step->gradient_scale,
                                  .decay = decayed ? (float)o->weight_decay : 0.0f,
                                  .rate = (float)step->learning_rate,
                                  .momentum = (float)momentum};
}

static comet_optimiser_rule adamw_rule(const comet_optimiser *o, const comet_optimiser_step *step, int decayed) {
    double beta1 = step->momentum > 0.0 ? step->momentum : o->beta1;
    double decay = decayed ? step->learning_rate * o->weight_decay : 0.0;
    return (comet_optimiser_rule){.kind = COMET_ADAMW,
                                  .scale = (float)step->gradient_scale,
                                  .decay = (float)(1.0 - decay),
                                  .rate = (float)(step->learning_rate / (1.0 - power(beta1, step->number))),
                                  .momentum = (float)beta1,
                                  .one_less = (float)(1.0 - beta1),
                                  .beta2 = (float)o->beta2,
                                  .other = (float)(1.0 - o->beta2),
                                  .root = (float)sqrt(1.0 - power(o->beta2, step->number)),
                                  .epsilon = (float)o->epsilon};
}

comet_optimiser_rule comet_optimiser_rule_of(const comet_optimiser *o, const comet_optimiser_step *step,
                                             const comet_parameter *p) {
    return o->kind == COMET_SGD ? sgd_rule(o, step, is_decayed(o, p)) : adamw_rule(o, step, is_decayed(o, p));
}
