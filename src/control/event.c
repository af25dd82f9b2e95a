/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of each decision. */
#include "control/control.h"

const char *comet_control_cause_text(comet_control_cause cause) {
    static const char *const texts[] = {"the run starts",
                                        "warm-up has ended",
                                        "the window has passed",
                                        "statistics have moved",
                                        "on the way to a coarser bound",
                                        "the controller asked for it",
                                        "the loss jumped: all bounds tighter",
                                        "not finite: step skipped, all bounds tighter",
                                        "no trouble for a while: bounds recover",
                                        "an observation was negative or not finite and is left out"};
    return (unsigned)cause < sizeof texts / sizeof *texts ? texts[cause] : "?";
}

const char *comet_control_limit_text(comet_control_limit limit) {
    static const char *const texts[] = {"warm-up", "use", "floor", "ceiling", "loosen", "fixed", "budget", "plug-in"};
    return (unsigned)limit < sizeof texts / sizeof *texts ? texts[limit] : "?";
}

comet_control_event comet_control_event_of(const comet_control *control, int32_t tensor, comet_control_cause cause) {
    comet_control_event event = {.iteration = control->iteration,
                                 .tensor = tensor,
                                 .name = tensor < 0 ? "*" : control->own[tensor].name,
                                 .cause = cause,
                                 .use = -1,
                                 .factor = 1.0,
                                 .joint = 1.0,
                                 .tightness = control->safety.tightness,
                                 .text = comet_control_cause_text(cause)};
    if (tensor < 0)
        return event;
    event.limit = (comet_control_limit)control->own[tensor].limit;
    event.use = control->own[tensor].use;
    event.before = event.after = comet_control_bound(control, tensor);
    event.rms = control->tensors[tensor].rms;
    if (event.use >= 0) {
        const comet_control_use_view *use = &control->tensors[tensor].uses[event.use];
        event.sensitivity = comet_error_sensitivity(use->kind, &use->stats);
        event.momentum = use->stats.momentum;
        event.factor = use->stats.factor > 0.0 ? use->stats.factor : 1.0;
        event.joint = use->stats.joint > 0.0 ? use->stats.joint : 1.0;
    }
    return event;
}

void comet_control_send(const comet_control *control, const comet_control_event *event) {
    if (control->options.log)
        control->options.log(control->options.log_context, event);
}
