/* SPDX-License-Identifier: Apache-2.0 */
/* Which form, and who sets its bounds. */
#ifndef COMET_CMD_TRAIN_CONTROL_H
#define COMET_CMD_TRAIN_CONTROL_H

#include "cmd/train/train_options.h"

/*
 * `form` as --codec takes it: `eb` without any bound given is under --control, or controller comet. `named` 1: it may be a controller's name, too, which
 * is eb under it, and --control is for those variants alone that have a use for it. MISUSED after a line.
 */
int train_control_read(const train_texts *texts, const char *form, int named, comet_trainer_options *options);

#endif
