/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `acgc`: AC-GC's bounds. It has formulas for convolutions and batch norms; other uses limit nothing but through the
 * ceiling.
 */
#include <math.h>

#include "control/control.h"

static comet_status assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance;
    for (int32_t i = 0; i < view->count; i++) {
        const comet_control_tensor_view *tensor = &view->tensors[i];
        if (!tensor->observed)
            continue;
        comet_control_choice choice = {{COMET_BOUND_ABSOLUTE, INFINITY}, COMET_LIMIT_USE, -1};
        for (int32_t u = 0; u < tensor->use_count; u++) {
            double bound = sqrt(view->options->acgc_e * tensor->uses[u].stats.acgc);
            if (bound > 0.0 && bound < choice.bound.value) {
                choice.bound.value = bound;
                choice.use = u;
            }
        }
        choices[i] = choice;
    }
    return COMET_OK;
}

const comet_control_methods comet_control_acgc = {
    .version = COMET_CONTROL_VERSION,
    .size = sizeof(comet_control_methods),
    .name = "acgc",
    .needs = COMET_NEEDS_ACGC,
    .assess = assess,
};
