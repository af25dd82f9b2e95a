/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates as functions of the step: nothing to store, nothing to resume. */
#ifndef COMET_TRAIN_SCHEDULE_H
#define COMET_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "base/message.h"

typedef enum comet_schedule_kind {
    COMET_SCHEDULE_CONSTANT,
    COMET_SCHEDULE_STEP,     /* times gamma every `every` steps: torch's StepLR */
    COMET_SCHEDULE_COSINE,   /* half a cosine from rate to least: CosineAnnealingLR */
    COMET_SCHEDULE_ONE_CYCLE /* up and down by cosines, rate being the top: OneCycleLR */
} comet_schedule_kind;

typedef struct comet_schedule {
    comet_schedule_kind kind;
    double rate;
    int64_t steps; /* in all, warm-up included */

    int64_t warmup;      /* steps at the beginning in which the rate grows linearly; the schedule begins behind them */
    double warmup_start; /* the first step's part of the rate */

    int64_t every; /* STEP */
    double gamma;  /* STEP */
    double least;  /* COSINE */

    double rising;                      /* ONE_CYCLE: part of the steps in which the rate rises */
    double divide;                      /* ONE_CYCLE: rate / divide is the first one, ... */
    double divide_end;                  /* ... that over divide_end the last */
    double momentum_low, momentum_high; /* ONE_CYCLE: momentum goes against the rate; 0: it does not */
} comet_schedule;

/* Defaults: STEP three times by 0.1, evenly; ONE_CYCLE as PyTorch has it, without momentum; no warm-up. */
comet_schedule comet_schedule_default(comet_schedule_kind kind, double rate, int64_t steps);

/* COMET_ERROR_ARGUMENT, with a line. */
comet_status comet_schedule_check(const comet_schedule *schedule, comet_message *message);

/* "constant", "step", "cosine", "one-cycle"; COMET_ERROR_ARGUMENT, with a line that lists them. */
comet_status comet_schedule_find(const char *name, comet_schedule_kind *kind, comet_message *message);

/* That name; NULL for what is no kind. */
const char *comet_schedule_name(comet_schedule_kind kind);

/* For `step` from 0; behind the last step, what the last one has. */
double comet_schedule_rate(const comet_schedule *schedule, int64_t step);

/* 0: the optimiser's own. */
double comet_schedule_momentum(const comet_schedule *schedule, int64_t step);

#endif
