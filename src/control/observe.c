/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics in: smoothed, and turned into a decision when one is due. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "control/control.h"

/* Observations before a window ends, where there is no need for others. */
enum { OBSERVED_BEFORE_WINDOW = 5 };

int comet_control_wants(const comet_control *control, int64_t iteration) {
    const comet_control_options *o = &control->options;
    if ((control->methods->flags & COMET_CONTROL_AT_ONCE) || iteration < 0 || iteration % o->every != 0)
        return 0;
    if (o->adaptive || control->decisions == 0 || control->loosening || control->asked)
        return 1;
    return iteration - control->decided_at > o->window - OBSERVED_BEFORE_WINDOW * o->every;
}

static int are_uses_right(const comet_use_stats *uses, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const comet_use_stats *u = &uses[i];
        const double all[] = {u->derivative_squares,
                              u->gradient_squares,
                              u->gradient_mean,
                              u->positions,
                              u->error_gain,
                              u->input_squares,
                              u->samples,
                              u->buffer,
                              u->momentum,
                              u->acgc,
                              u->correction,
                              u->factor};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (!comet_control_is_amount(all[k]))
                return 0;
    }
    return 1;
}

static int is_right(const comet_control_observation *o, int32_t use_count) {
    for (int32_t i = 0; i < o->size_count; i++)
        if (!comet_control_is_amount(o->sizes[i].bound) || !comet_control_is_amount(o->sizes[i].bytes))
            return 0;
    return comet_control_is_amount(o->rms) && (!o->uses || are_uses_right(o->uses, use_count));
}

static void blend(double *value, double seen, double weight) {
    *value += weight * (seen - *value);
}

/* What was measured once stands until it is measured again: the correction is not blended. */
static void blend_use(comet_use_stats *use, const comet_use_stats *seen, double weight) {
    blend(&use->derivative_squares, seen->derivative_squares, weight);
    blend(&use->gradient_squares, seen->gradient_squares, weight);
    blend(&use->gradient_mean, seen->gradient_mean, weight);
    blend(&use->positions, seen->positions, weight);
    blend(&use->samples, seen->samples, weight);
    blend(&use->buffer, seen->buffer, weight);
    blend(&use->error_gain, seen->error_gain, weight);
    blend(&use->input_squares, seen->input_squares, weight);
    blend(&use->momentum, seen->momentum, weight);
    blend(&use->acgc, seen->acgc, weight);
    if (seen->correction > 0.0)
        use->correction = seen->correction;
}

/* Measured of some tensors in turn only: each time counts as one, whatever options.smoothing says. */
static void take_factor(const comet_control *control, comet_control_use_view *use, double seen) {
    if (!control->options.measured || !(seen > 0.0))
        return;
    use->stats.factor = comet_error_factor_mean(use->stats.factor, use->measured, seen);
    use->measured++;
}

static void take_in(comet_control *control, const comet_control_observation *o) {
    comet_control_tensor_view *tensor = &control->tensors[o->tensor];
    comet_control_use_view *uses = control->uses + (tensor->uses - control->uses);
    double weight = control->options.smoothing;
    blend(&tensor->rms, o->rms, tensor->rms > 0.0 ? weight : 1.0);
    for (int32_t i = 0; o->uses && i < tensor->use_count; i++) {
        blend_use(&uses[i].stats, &o->uses[i], tensor->observed ? weight : 1.0);
        take_factor(control, &uses[i], o->uses[i].factor);
    }
    tensor->observed += o->uses || tensor->use_count == 0;
    for (int32_t i = 0; i < o->size_count; i++)
        if (o->sizes[i].bound > 0.0 && o->sizes[i].bytes > 0.0 && o->rms > 0.0)
            comet_control_curve_add(&tensor->curve, o->sizes[i].bound / o->rms,
                                    8.0 * o->sizes[i].bytes / (double)tensor->count, weight);
}

static int is_any_observed(const comet_control *control) {
    for (int32_t i = 0; i < control->count; i++)
        if (control->tensors[i].observed)
            return 1;
    return 0;
}

/* The choices are made before anyone knows whether they are needed: whether statistics moved shows in them. */
static comet_status decide_if_due(comet_control *control) {
    const comet_control_options *o = &control->options;
    if ((control->methods->flags & COMET_CONTROL_AT_ONCE) || control->iteration < o->warmup ||
        !is_any_observed(control))
        return COMET_OK;
    COMET_TRY(comet_control_assess(control));
    if (control->decisions == 0)
        comet_control_commit(control, COMET_CAUSE_FIRST);
    else if (control->iteration - control->decided_at >= o->window)
        comet_control_commit(control, COMET_CAUSE_WINDOW);
    else if (control->asked)
        comet_control_commit(control, COMET_CAUSE_ASKED);
    else if (control->loosening)
        comet_control_commit(control, COMET_CAUSE_LOOSENING);
    else if (o->adaptive && comet_control_has_moved(control))
        comet_control_commit(control, COMET_CAUSE_MOVED);
    return COMET_OK;
}

static comet_status check_call(const comet_control *control, int64_t iteration,
                               const comet_control_observation *observations, int32_t count) {
    COMET_REQUIRE_POINTER(control);
    COMET_REQUIRE(iteration >= control->iteration, "iteration is %lld: it was %lld before", (long long)iteration,
                  (long long)control->iteration);
    COMET_REQUIRE(count >= 0, "count is %d: it must not be negative", (int)count);
    COMET_REQUIRE(count == 0 || observations, "observations is NULL");
    for (int32_t i = 0; i < count; i++) {
        const comet_control_observation *o = &observations[i];
        COMET_REQUIRE(o->tensor >= 0 && o->tensor < control->count, "observations[%d].tensor is %d: there are %d",
                      (int)i, (int)o->tensor, (int)control->count);
        COMET_REQUIRE(o->size_count >= 0, "observations[%d].size_count is %d: it must not be negative", (int)i,
                      (int)o->size_count);
        COMET_REQUIRE(o->size_count == 0 || o->sizes, "observations[%d].sizes is NULL", (int)i);
    }
    return COMET_OK;
}

comet_status comet_control_observe(comet_control *control, int64_t iteration,
                                   const comet_control_observation *observations, int32_t count) {
    comet_begin();
    COMET_TRY(check_call(control, iteration, observations, count));
    fenv_t callers;
    comet_fp_enter(&callers);
    control->iteration = iteration;
    for (int32_t i = 0; i < count; i++) {
        const comet_control_observation *o = &observations[i];
        if (is_right(o, control->tensors[o->tensor].use_count)) {
            take_in(control, o);
        } else {
            comet_control_event event = comet_control_event_of(control, o->tensor, COMET_CAUSE_IGNORED);
            comet_control_send(control, &event);
        }
    }
    comet_status status = decide_if_due(control);
    comet_fp_leave(&callers);
    return status;
}
