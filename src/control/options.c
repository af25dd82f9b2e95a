/* SPDX-License-Identifier: Apache-2.0 */
/* What options may be. */
#include <math.h>

#include "base/sized.h"
#include "control/control.h"

static int is_positive(double x) {
    return x > 0.0 && isfinite(x);
}

static const char *check_shape(const comet_error_shape *shape) {
    if (shape->count < 0 || shape->count > COMET_ERROR_SHAPE_POINTS)
        return "shape: give 0 to 8 points";
    for (int32_t i = 0; i < shape->count; i++)
        if (!is_positive(shape->factor[i]) || !comet_control_is_amount(shape->at[i]) ||
            (i > 0 && !(shape->at[i] > shape->at[i - 1])))
            return "shape: factors must be above 0, and places must ascend from 0 or more";
    return NULL;
}

static const char *check_bounds(const comet_control_options *o) {
    if (!is_positive(o->calibration))
        return "calibration must be above 0 (1 is usual)";
    if (!is_positive(o->warmup_bound))
        return "warmup_bound must be above 0 (0.3 is usual)";
    if (!is_positive(o->floor) || !is_positive(o->ceiling) || o->floor > o->ceiling)
        return "floor and ceiling must be above 0, and the floor not above the ceiling";
    if (!comet_control_is_amount(o->fixed_bound) || (unsigned)o->fixed_kind > COMET_BOUND_RELATIVE)
        return "fixed_bound must be 0 or more, absolute or relative";
    if (!comet_control_is_amount(o->budget_bytes) || !comet_control_is_amount(o->budget_error) ||
        (o->budget_bytes > 0.0 && o->budget_error > 0.0))
        return "give a budget of bytes or of error, not both";
    return is_positive(o->acgc_e) ? NULL : "acgc_e must be above 0 (1 is usual)";
}

static const char *check_times(const comet_control_options *o) {
    if (o->warmup < 0 || o->window < 1 || o->every < 1 || o->recover < 1 || o->most_skips < 1)
        return "warmup must be 0 or more; window, every, recover and most_skips 1 or more";
    if (!is_positive(o->smoothing) || o->smoothing > 1.0)
        return "smoothing must be above 0 and at most 1";
    if (!comet_control_is_amount(o->moved))
        return "moved must be 0 or more";
    if (!(o->loosen >= 1.25) || !isfinite(o->loosen))
        return "loosen must be 1.25 or more: bounds have steps of an eighth";
    if ((o->measured != 0 && o->measured != 1) || (o->joint != 0 && o->joint != 1))
        return "measured and joint must be 0 or 1";
    if (!comet_control_is_amount(o->spike))
        return "spike must be 0 or more";
    return is_positive(o->tighten) && o->tighten <= 1.0 ? NULL : "tighten must be above 0 and at most 1";
}

const char *comet_control_check(const comet_control_options *options) {
    static const comet_control_options defaults = COMET_CONTROL_OPTIONS_INIT;
    comet_control_options o;
    if (comet_sized_read(&o, sizeof o, options, &defaults, "options") != COMET_OK)
        return "the options are of a newer version: start from COMET_CONTROL_OPTIONS_INIT";
    const char *problem = check_bounds(&o);
    problem = problem ? problem : check_times(&o);
    return problem ? problem : check_shape(&o.shape);
}
