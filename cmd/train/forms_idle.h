/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of --forms that are about nothing, or change nothing: said, since the user meant something by them. */
#ifndef COMET_CMD_FORMS_IDLE_H
#define COMET_CMD_FORMS_IDLE_H

#include "train/trainer/trainer.h"

/* A line on standard error for each rule without which the plan would be the same. Options are those of a trainer. */
void forms_tell_idle(const comet_trainer_options *options);

#endif
