/* SPDX-License-Identifier: Apache-2.0 */
/* A loss that jumps, and steps that are not finite: all bounds tighten at once and recover slowly. */
#include <math.h>

#include "base/fp_environment.h"
#include "control/control.h"

enum {
    LOSSES_REMEMBERED = 32, /* about so many of the last ones make the mean */
    LOSSES_NEEDED = 20,     /* before a jump can be told from the noise of the first batches */
    CALM = 10,              /* iterations after trouble in which a high loss is no news */
    TIMES_TIGHTER = 3       /* at most: a bound that small is not the cause */
};

/*
 * A steady loss has next to no deviation, and not every rise above it is a jump: at least this much of the mean, and
 * this much.
 */
static const double least_deviation_share = 1.0 / 16.0, least_deviation = 0.01;

static double spike_level(const comet_control *control) {
    const control_safety *s = &control->safety;
    double deviation = sqrt(s->loss_variance), share = least_deviation_share * fabs(s->loss_mean);
    deviation = deviation > share ? deviation : share;
    deviation = deviation > least_deviation ? deviation : least_deviation;
    return s->loss_mean + control->options.spike * deviation;
}

static void change_tightness(comet_control *control, double tightness, comet_control_cause cause, double loss) {
    double before = control->safety.tightness;
    control->safety.tightness = tightness;
    comet_control_event event = comet_control_event_of(control, -1, cause);
    event.before = (comet_control_bound_value){COMET_BOUND_RELATIVE, before};
    event.after = (comet_control_bound_value){COMET_BOUND_RELATIVE, tightness};
    event.loss = loss;
    comet_control_send(control, &event);
}

static void tighten(comet_control *control, comet_control_cause cause, double loss) {
    double factor = control->options.tighten, least = 1.0;
    for (int i = 0; i < TIMES_TIGHTER; i++)
        least *= factor;
    double tightness = control->safety.tightness * factor;
    control->safety.trouble_at = control->iteration;
    change_tightness(control, tightness > least ? tightness : least, cause, loss);
}

static void recover(comet_control *control) {
    control_safety *s = &control->safety;
    int64_t since = s->trouble_at > s->eased_at ? s->trouble_at : s->eased_at;
    if (!(s->tightness < 1.0) || control->iteration - since < control->options.recover)
        return;
    s->eased_at = control->iteration;
    change_tightness(control, s->tightness < 0.5 ? 2.0 * s->tightness : 1.0, COMET_CAUSE_RECOVERY, 0.0);
}

/* A running mean and variance: plain at first, then the older the less it counts. */
static void remember(control_safety *s, double loss) {
    s->losses += s->losses < LOSSES_REMEMBERED;
    double weight = 1.0 / (double)s->losses, off = loss - s->loss_mean;
    s->loss_mean += weight * off;
    s->loss_variance = (1.0 - weight) * (s->loss_variance + weight * off * off);
}

/*
 * A jump counts as far as its level only: one does not blind for the next, and a loss that stays high becomes the new
 * mean.
 */
static void watch(comet_control *control, double loss) {
    control_safety *s = &control->safety;
    double level = spike_level(control);
    int is_settled = s->losses >= LOSSES_NEEDED && control->options.spike > 0.0;
    int is_news = s->trouble_at < 0 || control->iteration - s->trouble_at >= CALM;
    if (is_settled && loss > level && is_news)
        tighten(control, COMET_CAUSE_SPIKE, loss);
    remember(s, is_settled && loss > level ? level : loss);
}

static comet_control_action skip(comet_control *control, double loss) {
    control->safety.skips++;
    tighten(control, COMET_CAUSE_NONFINITE, loss);
    return control->safety.skips >= control->options.most_skips ? COMET_CONTROL_STOP : COMET_CONTROL_SKIP;
}

comet_control_action comet_control_step(comet_control *control, int64_t iteration, double loss, int finite) {
    comet_control_action action = COMET_CONTROL_GO_ON;
    fenv_t callers;
    comet_fp_enter(&callers);
    control->iteration = iteration > control->iteration ? iteration : control->iteration;
    if (!finite || !isfinite(loss)) {
        action = skip(control, loss);
    } else {
        control->safety.skips = 0;
        watch(control, loss);
        recover(control);
    }
    if (control->methods->step && control->methods->step(control->instance, iteration, loss, finite))
        control->asked = 1;
    comet_fp_leave(&callers);
    return action;
}
