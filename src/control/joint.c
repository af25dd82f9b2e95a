/* SPDX-License-Identifier: Apache-2.0 */
/* What all tensors cause together: measured seldom, of whole gradients, and turned into a factor of each use. */
#include <math.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "control/control.h"

/* 1: its error is in dX, and goes on from layer to layer. */
static int travels(comet_use_kind kind) {
    return kind == COMET_USE_NORM_INPUT || kind == COMET_USE_CURVE_INPUT || kind == COMET_USE_CHANNEL_SCALE;
}

static int is_right(const comet_control_joint *seen) {
    return comet_control_is_amount(seen->measured) && comet_control_is_amount(seen->predicted) && seen->predicted > 0.0;
}

/* 0: nothing was seen that says something of the use. */
static double joint_of(const comet_control_use_view *use, const comet_control_joint *seen, int32_t count) {
    double squares = 0.0;
    int64_t found = 0;
    for (int32_t i = 0; i < count; i++) {
        const int reaches = travels(use->kind) ? seen[i].gradient <= use->gradient : seen[i].gradient == use->gradient;
        if (!reaches || !is_right(&seen[i]))
            continue;
        const double joint = comet_error_joint(seen[i].measured, seen[i].predicted);
        squares += joint * joint;
        found++;
    }
    return found ? sqrt(squares / (double)found) : 0.0;
}

comet_status comet_control_see_joint(comet_control *control, const comet_control_joint *seen, int32_t count) {
    fenv_t callers;
    comet_begin();
    COMET_REQUIRE_POINTER(control);
    COMET_REQUIRE(count >= 0, "count is %d: it must not be negative", (int)count);
    COMET_REQUIRE(count == 0 || seen, "seen is NULL");
    comet_fp_enter(&callers);
    for (int32_t i = 0; i < control->use_count && control->options.joint; i++) {
        comet_control_use_view *use = &control->uses[i];
        const double joint = use->gradient >= 0 ? joint_of(use, seen, count) : 0.0;
        if (joint > 0.0)
            use->stats.joint = comet_error_joint_mean(use->stats.joint, use->jointed++, joint);
    }
    comet_fp_leave(&callers);
    return COMET_OK;
}

double comet_control_joint_factor(const comet_control *control, int32_t tensor, int32_t use, int64_t *times) {
    const comet_control_use_view *view = comet_control_find_use(control, tensor, use);
    if (times)
        *times = view ? view->jointed : 0;
    return view && view->stats.joint > 0.0 ? view->stats.joint : 1.0;
}
