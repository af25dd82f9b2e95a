/* SPDX-License-Identifier: Apache-2.0 */
/* `fixed`: what the user says, for every tensor, from the first step on. Only safety changes it. */
#include "control/control.h"

static comet_status assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance;
    for (int32_t i = 0; i < view->count; i++)
        choices[i] =
            (comet_control_choice){{view->options->fixed_kind, view->options->fixed_bound}, COMET_LIMIT_FIXED, -1};
    return COMET_OK;
}

const comet_control_methods comet_control_fixed = {
    .version = COMET_CONTROL_VERSION,
    .flags = COMET_CONTROL_AT_ONCE | COMET_CONTROL_AS_IS,
    .size = sizeof(comet_control_methods),
    .name = "fixed",
    .assess = assess,
};
