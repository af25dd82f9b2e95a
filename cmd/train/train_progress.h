/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a run is, on standard error: one line on a terminal, which fits 80 columns and has a bar in front where there
 * is room for one; else a line every few seconds. Evaluations are told, too, and their time is in what is left.
 */
#ifndef COMET_CMD_TRAIN_PROGRESS_H
#define COMET_CMD_TRAIN_PROGRESS_H

#include "cmd/memory/memory_mark.h"
#include "train/run/run.h"

typedef struct train_progress {
    int silent, terminal, drawn;
    const char *label;     /* before all else; "" */
    int runs_before, runs; /* of several runs this is one: their time is in what is left */
    double first_start;    /* of the first of them */
    double start, last;
    int64_t first_step;
    comet_run_event_kind told; /* last */
    uint64_t raw, stored;      /* bytes of the last step */
    double train_seconds, evaluate_seconds;
    int64_t trained;                               /* images in that time; evaluated ones are the event's */
    double now;                                    /* when the last event came */
    comet_running_mean loss, accuracy, rate, wait; /* wait: part of a step's time */
    const memory_mark *mark;                       /* where measuring memory began */
} train_progress;

/* `label` and `mark` must stay valid. */
void train_progress_begin(train_progress *p, const char *label, const memory_mark *mark, int quiet);

/* To be called with each event of the run. Notes go to standard error, too. */
void train_progress_event(train_progress *p, const comet_run_event *event);

/* Takes the bar off the screen: before other output, and at the end. */
void train_progress_clear(train_progress *p);

#endif
