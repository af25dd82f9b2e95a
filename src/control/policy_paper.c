/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `comet:paper`: the rule of COMET's paper as it is written there, for what a convolution or linear layer reads. No
 * correction, no factor, neither floor nor ceiling; what no such layer reads stays at the bound of the warm-up.
 */
#include <math.h>

#include "control/control.h"

/* The tightest of its uses in weights' gradients; what has none, or no gradient, is left as it was. */
static comet_control_choice choose(const comet_control_tensor_view *tensor, const comet_control_options *o,
                                   comet_control_choice choice) {
    double least = INFINITY;
    for (int32_t u = 0; u < tensor->use_count; u++) {
        const double bound = o->calibration * comet_error_bound_paper(tensor->uses[u].kind, &tensor->uses[u].stats);
        if (bound > 0.0 && bound < least) {
            least = bound;
            choice = (comet_control_choice){{COMET_BOUND_ABSOLUTE, bound}, COMET_LIMIT_USE, u};
        }
    }
    return choice;
}

static comet_status assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance;
    for (int32_t i = 0; i < view->count; i++)
        if (view->tensors[i].observed)
            choices[i] = choose(&view->tensors[i], view->options, choices[i]);
    return COMET_OK;
}

const comet_control_methods comet_control_paper = {
    .version = COMET_CONTROL_VERSION,
    .flags = COMET_CONTROL_AS_IS,
    .size = sizeof(comet_control_methods),
    .name = "comet:paper",
    .needs = COMET_NEEDS_SQUARES | COMET_NEEDS_MEAN | COMET_NEEDS_MOMENTUM,
    .assess = assess,
};
