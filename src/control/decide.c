/* SPDX-License-Identifier: Apache-2.0 */
/* From what the methods choose to the bounds in force. */
#include <math.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "control/control.h"

comet_control_view comet_control_view_of(const comet_control *control) {
    return (comet_control_view){sizeof(comet_control_view), control->iteration, &control->options, control->tensors,
                                control->count};
}

static comet_control_choice warmup_choice(const comet_control *control) {
    return (comet_control_choice){{COMET_BOUND_RELATIVE, control->options.warmup_bound}, COMET_LIMIT_WARMUP, -1};
}

/* What 1 of a relative bound is in the units of `kind`. */
static double unit_of(const comet_control_tensor_view *tensor, comet_bound_kind kind) {
    return kind == COMET_BOUND_ABSOLUTE ? tensor->rms : 1.0;
}

static void hold(const comet_control *control, const comet_control_tensor_view *tensor, comet_control_choice *choice) {
    double unit = unit_of(tensor, choice->bound.kind);
    double least = control->options.floor * unit, most = control->options.ceiling * unit;
    if (!(unit > 0.0)) { /* nothing was seen but zeros */
        *choice = warmup_choice(control);
        return;
    }
    if (choice->bound.value > most) {
        choice->bound.value = most;
        choice->limit = COMET_LIMIT_CEILING;
    } else if (choice->bound.value < least) {
        choice->bound.value = least;
        choice->limit = COMET_LIMIT_FLOOR;
    }
    choice->bound.value = comet_control_round(choice->bound.value);
}

static int is_choice(const comet_control_tensor_view *tensor, const comet_control_choice *choice, int as_is) {
    return choice->use >= -1 && choice->use < tensor->use_count && choice->bound.value >= 0.0 &&
           (!as_is || isfinite(choice->bound.value)) &&
           (choice->bound.kind == COMET_BOUND_ABSOLUTE || choice->bound.kind == COMET_BOUND_RELATIVE);
}

comet_status comet_control_assess(comet_control *control) {
    comet_control_view view = comet_control_view_of(control);
    int as_is = (control->methods->flags & COMET_CONTROL_AS_IS) != 0;
    for (int32_t i = 0; i < control->count; i++)
        control->choices[i] = warmup_choice(control);
    COMET_TRY(control->methods->assess(control->instance, &view, control->choices));
    for (int32_t i = 0; i < control->count; i++) {
        comet_control_choice *choice = &control->choices[i];
        COMET_REQUIRE(is_choice(&control->tensors[i], choice, as_is),
                      "methods->assess made no valid choice for tensor %d", (int)i);
        if (!as_is && choice->limit != COMET_LIMIT_WARMUP)
            hold(control, &control->tensors[i], choice);
    }
    return COMET_OK;
}

/* A bound in the units of `kind`. */
static double in_units(const comet_control_tensor_view *tensor, comet_control_bound_value bound,
                       comet_bound_kind kind) {
    if (bound.kind == kind)
        return bound.value;
    return kind == COMET_BOUND_ABSOLUTE ? bound.value * tensor->rms : bound.value / tensor->rms;
}

/* Coarser at most by options.loosen; 1 if that was less than wanted. */
static int loosen_slowly(const comet_control *control, const comet_control_tensor_view *tensor,
                         comet_control_choice *choice) {
    if ((control->methods->flags & COMET_CONTROL_AS_IS) || choice->limit == COMET_LIMIT_WARMUP)
        return 0;
    double most = control->options.loosen * in_units(tensor, tensor->bound, choice->bound.kind);
    if (choice->bound.value <= most)
        return 0;
    choice->bound.value = comet_control_round(most);
    choice->limit = COMET_LIMIT_LOOSEN;
    return 1;
}

void comet_control_commit(comet_control *control, comet_control_cause cause) {
    control->loosening = control->asked = 0;
    control->decided_at = control->iteration;
    control->decisions++;
    for (int32_t i = 0; i < control->count; i++) {
        comet_control_choice choice = control->choices[i];
        comet_control_bound_value before = comet_control_bound(control, i);
        control->own[i].target = choice.bound;
        control->loosening |= loosen_slowly(control, &control->tensors[i], &choice);
        control->tensors[i].bound = choice.bound;
        control->own[i].limit = choice.limit;
        control->own[i].use = choice.use;
        comet_control_event event = comet_control_event_of(control, i, cause);
        event.before = before;
        comet_control_send(control, &event);
    }
}

int comet_control_has_moved(const comet_control *control) {
    double far = 1.0 + control->options.moved;
    for (int32_t i = 0; i < control->count; i++) {
        comet_control_bound_value was = control->own[i].target, is = control->choices[i].bound;
        if (was.kind != is.kind || is.value > far * was.value || was.value > far * is.value)
            return 1;
    }
    return 0;
}

/* Safety's factor takes a bound down to the floor, and no further. */
static double tightened(const comet_control *control, const comet_control_tensor_view *tensor) {
    double least = control->options.floor * unit_of(tensor, tensor->bound.kind);
    double wanted = tensor->bound.value * control->safety.tightness;
    if (wanted >= least)
        return comet_control_round(wanted);
    return least < tensor->bound.value ? comet_control_round(least) : tensor->bound.value;
}

/* What was decided may be above the ceiling by now: the rms has fallen since, or falls faster than it is smoothed. */
static double below_ceiling(const comet_control *control, int32_t tensor, double value) {
    const double most = control->options.ceiling * control->own[tensor].rms;
    const int is_held = control->tensors[tensor].bound.kind == COMET_BOUND_ABSOLUTE &&
                        !(control->methods->flags & COMET_CONTROL_AS_IS) && most > 0.0;
    return is_held && value > most ? comet_control_round(most) : value;
}

comet_control_bound_value comet_control_bound(const comet_control *control, int32_t tensor) {
    if (!control || tensor < 0 || tensor >= control->count)
        return (comet_control_bound_value){COMET_BOUND_RELATIVE, 0.0};
    comet_control_bound_value bound = control->tensors[tensor].bound;
    fenv_t callers;
    comet_fp_enter(&callers);
    if (control->safety.tightness < 1.0)
        bound.value = tightened(control, &control->tensors[tensor]);
    bound.value = below_ceiling(control, tensor, bound.value);
    comet_fp_leave(&callers);
    return bound;
}

void comet_control_see_rms(comet_control *control, int32_t tensor, double rms) {
    if (control && tensor >= 0 && tensor < control->count && comet_control_is_amount(rms))
        control->own[tensor].rms = rms;
}
