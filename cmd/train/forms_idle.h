/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of --forms that are about nothing, or change nothing: said, since the user meant something by them. */
#ifndef COMET_CMD_FORMS_IDLE_H
#define COMET_CMD_FORMS_IDLE_H

#include <stdint.h>

#include "train/trainer/trainer.h"

/* Rules without which the plan would be the same, a bit for each of the first 64. Options are those of a trainer. */
uint64_t forms_find_idle(const comet_trainer_options *options);

/* A line on standard error for each of them. */
void forms_tell_idle(const comet_trainer_options *options, uint64_t idle);

#endif
