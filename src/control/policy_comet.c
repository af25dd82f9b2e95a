/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `comet`: the bound at which the error of each gradient that a tensor reaches is a set part of its momentum; the
 * tightest use wins.
 */
#include <math.h>

#include "control/control.h"

typedef double (*sensitivity_of)(comet_use_kind kind, const comet_use_stats *stats);

static double use_bound(const comet_control_options *o, const comet_control_tensor_view *tensor,
                        const comet_control_use_view *use, sensitivity_of sensitivity) {
    double sigma = o->calibration * use->stats.momentum * use->share;
    return comet_error_bound(sensitivity(use->kind, &use->stats), &o->shape, sigma, tensor->rms);
}

static comet_status assess(const comet_control_view *view, comet_control_choice *choices, sensitivity_of sensitivity) {
    for (int32_t i = 0; i < view->count; i++) {
        const comet_control_tensor_view *tensor = &view->tensors[i];
        if (!tensor->observed)
            continue;
        comet_control_choice choice = {{COMET_BOUND_ABSOLUTE, INFINITY}, COMET_LIMIT_USE, -1};
        for (int32_t u = 0; u < tensor->use_count; u++) {
            double bound = use_bound(view->options, tensor, &tensor->uses[u], sensitivity);
            if (bound < choice.bound.value) {
                choice.bound.value = bound;
                choice.use = u;
            }
        }
        choices[i] = choice;
    }
    return COMET_OK;
}

static comet_status assess_exact(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance;
    return assess(view, choices, comet_error_sensitivity);
}

static comet_status assess_mean(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance;
    return assess(view, choices, comet_error_sensitivity_mean);
}

const comet_control_methods comet_control_comet = {
    .version = COMET_CONTROL_VERSION,
    .size = sizeof(comet_control_methods),
    .name = "comet",
    .needs = COMET_NEEDS_SQUARES | COMET_NEEDS_MOMENTUM | COMET_NEEDS_MEASURED | COMET_NEEDS_JOINT,
    .assess = assess_exact,
};

/* Measured factors are of the exact form. */
const comet_control_methods comet_control_mean = {
    .version = COMET_CONTROL_VERSION,
    .size = sizeof(comet_control_methods),
    .name = "comet:mean",
    .needs = COMET_NEEDS_SQUARES | COMET_NEEDS_MEAN | COMET_NEEDS_MOMENTUM,
    .assess = assess_mean,
};
