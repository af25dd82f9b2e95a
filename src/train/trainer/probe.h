/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of a batch under bounds of one's own, for studies: forward and backward, and nothing else. Weights, running
 * statistics, the optimiser and the random numbers of dropout are as before, so that probes of one batch differ by
 * their bounds alone, and two with the same bounds by nothing.
 */
#ifndef COMET_TRAIN_PROBE_H
#define COMET_TRAIN_PROBE_H

#include "train/step/step.h"
#include "train/trainer/trainer.h"

typedef struct comet_probe {
    const uint8_t *pixels; /* as for comet_trainer_train */
    const int32_t *labels;
    const comet_control_bound_value *bounds; /* of the controller's tensors, in their order; a value of 0 is lossless */
    int collect;                             /* 1: statistics are gathered anew, for comet_probe_observation */
    int64_t turn;                            /* whose errors are measured then: comet_collect_set_turn */
    const comet_step_watch *watch;           /* NULL: none */
    const comet_step_sight *sight;           /* likewise */
} comet_probe;

/*
 * The gradients are in the graph's parameters. Of a trainer with a controller, between updates; COMET_ERROR_ARGUMENT,
 * with a line, for another. Tensors whose bound is not the controller's are as the forms say. The plan's memory is the
 * trainer's: streams without loss may not fit a budget.
 */
comet_status comet_trainer_probe(comet_trainer *trainer, const comet_probe *probe, comet_message *message);

/* The controller's tensors, in the order of bounds. */
const comet_control_tensor *comet_probe_tensors(const comet_trainer *trainer, int32_t *count);

/* Of the last probe that collected; NULL: something of it was not seen. Until the next one. */
const comet_control_observation *comet_probe_observation(comet_trainer *trainer, int32_t tensor);

/* The controller's tensor that an entry of the plan is; -1: none. */
int32_t comet_probe_find(const comet_trainer *trainer, const comet_plan_entry *entry);

#endif
