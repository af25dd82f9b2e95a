/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers as a user names them: a name, then settings behind colons.
 *
 *     comet, comet:c=0.3, comet:mean:c=0.1     calibration; floor, ceiling, warmup, warmup-bound, window, every,
 *                                               smoothing, loosen, spike
 *     fixed:0.1                                 relative to the rms; fixed:absolute=0.01
 *     acgc, acgc:e=0.5
 *     budget, budget:bytes=1e6, budget:error=20
 */
#ifndef COMET_TRAIN_CONTROL_TEXT_H
#define COMET_TRAIN_CONTROL_TEXT_H

#include "base/message.h"
#include "comet/control.h"

/*
 * Settings are written over what `options` has; start from COMET_CONTROL_OPTIONS_INIT. COMET_ERROR_ARGUMENT, with a
 * line.
 */
comet_status comet_control_read(const char *text, const comet_control_methods **methods, comet_control_options *options,
                                comet_message *message);

/* 1: a text that begins with the name of a controller. */
int comet_control_is_named(const char *text);

#endif
