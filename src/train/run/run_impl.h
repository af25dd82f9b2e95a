/* SPDX-License-Identifier: Apache-2.0 */
/* A run in progress: what its parts share. */
#ifndef COMET_TRAIN_RUN_IMPL_H
#define COMET_TRAIN_RUN_IMPL_H

#include "train/run/run.h"

/* Times of the last updates, for a median. */
typedef struct comet_run_times {
    double *ms;
    size_t capacity, count, next;
} comet_run_times;

typedef struct comet_run_session {
    const comet_run_options *options;
    comet_trainer_options trainer_options; /* options->trainer, completed */
    const comet_allocator *allocator;
    comet_message *message;
    comet_run_result *result;

    comet_trainer *trainer;
    comet_loader *train; /* NULL while the network is evaluated */
    int evaluations;     /* so far */
    int64_t evaluated;   /* images, in all of them */
    int64_t evaluating;  /* of the evaluation under way: images that are left */
    int64_t epoch_batches;
    comet_schedule schedule;
    int accumulate;
    int64_t step, steps;
    int unrecorded_told; /* that steps cannot be recorded */
    int64_t made_step;   /* of the last update that was made, not skipped */
    uint32_t epoch;

    comet_loader_state place; /* in the data, after the last update */
    int begun;                /* batches of the next update that were trained */
    int64_t saved_step;       /* of the newest checkpoint; -1: none */
    int keep_previous;        /* of the next checkpoint */
    int64_t evaluated_step;   /* of the last whole evaluation; -1: none */
    int started;              /* 1: observers know of the run */
    int64_t best_step;        /* of the best evaluation; -1: none yet */
    double best_accuracy;
    comet_mean epoch_loss, raw, stored;
    comet_run_times times, network_times;       /* of updates; without what they waited for batches */
    double spent_ms, waited_ms, loader_idle_ms; /* in all of them */
    int lock;                                   /* descriptor of the folder's; -1: none */
    int made_folder;                            /* 1: it was not there */
} comet_run_session;

/* ---- run.c ---- */

/* `kind` and where the run is; the caller adds what is the kind's own. */
comet_run_event comet_run_event_of(comet_run_session *s, comet_run_event_kind kind);
void comet_run_tell(comet_run_session *s, const comet_run_event *event);
void comet_run_note(comet_run_session *s, const char *text);
int comet_run_stopped(const comet_run_session *s);

/* ---- run_loader.c ---- */

comet_status comet_run_open_loader(comet_run_session *s, comet_split split, comet_loader **loader);

/* ---- run_loop.c ---- */

/* Updates up to the last one, or until stopped. */
comet_status comet_run_loop(comet_run_session *s);

/* ---- run_evaluate.c ---- */

comet_status comet_run_evaluate(comet_run_session *s);

/* Images of all evaluations to come, with what is left of one under way. */
int64_t comet_run_to_evaluate(const comet_run_session *s);

/* ---- run_times.c ---- */

comet_status comet_run_times_init(comet_run_times *t, int64_t most, const comet_allocator *allocator);
void comet_run_times_destroy(comet_run_times *t, const comet_allocator *allocator);
void comet_run_times_add(comet_run_times *t, double ms);
double comet_run_times_median(comet_run_times *t); /* 0 without any; their order is lost */
double comet_run_clock_ms(void);

/* ---- run_identity.c ---- */

typedef struct comet_run_identity {
    char model[160];
    char *options; /* checkpoint_differences.c takes them apart again */
    size_t options_bytes;
} comet_run_identity;

comet_status comet_run_identity_init(comet_run_identity *id, const comet_run_session *s);
void comet_run_identity_destroy(comet_run_identity *id, const comet_run_session *s);

/* ---- run_folder.c ---- */

/*
 * Makes the folder of checkpoints, if one is wanted, and keeps other runs out of it. Refused where there is nothing to
 * resume from.
 */
comet_status comet_run_open_folder(comet_run_session *s);

/* Lets others in. A folder that was made and has nothing in it goes. */
void comet_run_close_folder(comet_run_session *s);

/* The newest checkpoint that is whole becomes earlier.safetensors, or earlier-2, ...; so do newer ones that are not. */
comet_status comet_run_put_aside(comet_run_session *s);

/* ---- run_about.c ---- */

/* The weights as they are now, with what they are of. */
comet_status comet_run_write_weights(comet_run_session *s, const char *path);

/* After an evaluation: the weights go to the folder, if there is one, where none were better. */
comet_status comet_run_keep_best(comet_run_session *s);

/* Evaluations made since that one. */
int64_t comet_run_evaluations_since_best(const comet_run_session *s);

/* Of the folder that the run goes on from; of that of another run, which makes way. */
comet_status comet_run_recall_best(comet_run_session *s);
comet_status comet_run_put_best_aside(comet_run_session *s);

/* ---- run_checkpoint.c ---- */

/* The trainer, with the kernels that the folder's checkpoint names, if there is one to go on from. */
comet_status comet_run_make_trainer(comet_run_session *s);

/* Where a run begins: the folder's checkpoint, given weights, or first values. */
comet_status comet_run_begin(comet_run_session *s);

/*
 * Nothing to do without a folder, or where the last update that was made is in the newest checkpoint: while updates are
 * skipped there is nothing new, and older checkpoints, which may be better ones, stay.
 */
comet_status comet_run_save(comet_run_session *s);

#endif
