/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says on standard output: what it is going to do, each evaluation, what came of it. */
#ifndef COMET_CMD_TRAIN_PRINT_H
#define COMET_CMD_TRAIN_PRINT_H

#include "cmd/train/record.h"

/* With the first event. */
void train_print_start(const comet_run_options *run, const comet_run_event *event);

void train_print_evaluation(const comet_run_event *event);
void train_print_summary(const comet_run_options *run, const record *kept);

#endif
