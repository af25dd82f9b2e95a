/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch under a plan: forward, loss, backward, gradients into the graph's parameters; or an evaluation. All memory
 * but the holder's is taken when the step is made.
 */
#ifndef COMET_TRAIN_STEP_H
#define COMET_TRAIN_STEP_H

#include "train/collect/collect.h"
#include "train/plan/learned.h"

typedef struct comet_step comet_step;

/* What a step works with, beside its plan. All must outlive it. */
typedef struct comet_step_parts {
    comet_learned *learned; /* of the plan; NULL if everything is kept */
    comet_holder *holder;   /* with a slot for each of the plan's entries; NULL likewise */
    /*
     * Of the backend's space, at least the plan's buffer_bytes: plans that take turns (training and evaluation) can
     * share it. NULL: it takes its own.
     */
    void *memory;
    size_t memory_bytes;
} comet_step_parts;

/* The graph must have its memory, with gradients for training. */
comet_status comet_step_new(const comet_plan *plan, const comet_step_parts *parts, const comet_allocator *allocator,
                            comet_step **step, comet_message *message);
void comet_step_free(comet_step *step);

/* 1: some of its work is recorded (comet_backend.record), so that it is not issued again. */
int comet_step_is_recorded(const comet_step *step);
/* Why some could not be; empty: nothing failed. */
const char *comet_step_refusal(const comet_step *step);

/*
 * Where the batch goes, NHWC, before each run, in the backend's space: its content is used up. Not if it comes as
 * bytes.
 */
void *comet_step_input(comet_step *step);

/* A stream that was just saved, while the values that it was made of are still there. */
typedef struct comet_step_saved {
    const comet_plan_entry *entry;
    const comet_held_part *part;
} comet_step_saved;

/* Values that were just loaded, and may be changed. */
typedef struct comet_step_loaded {
    const comet_plan_entry *entry;
    const comet_graph *graph;
    uint64_t step;
    int64_t first, count; /* which of the entry's values */
    void *values;         /* in the backend's space, of its dtype */
} comet_step_loaded;

/* For studies: is told of each stream. A failure ends the step. Either may be NULL. */
typedef struct comet_step_watch {
    comet_status (*saved)(void *context, const comet_step_saved *saved);
    comet_status (*loaded)(void *context, const comet_step_loaded *loaded);
    void *context;
} comet_step_watch;

/*
 * For measurements: is told when forward (backward) of a node was issued; of -1: when the step begins, and when its
 * images were (its loss, and all of it).
 */
typedef struct comet_step_clock {
    void (*passed)(void *context, int node, int is_backward);
    void *context;
} comet_step_clock;

/*
 * Who knows the next batch: asked once all of a step is issued, while a device works on it, where bytes can come over
 * ahead. What is given stays as it is until the next step begins. NULL: not known yet.
 */
typedef struct comet_step_ahead {
    const uint8_t *(*next)(void *context);
    void *context;
} comet_step_ahead;

/*
 * For studies: is told of each value that forward makes, before it is written over, and of each value's gradient, when
 * it is whole, before backward of what made the value; gradients may be changed. In the backend's space, of its dtype.
 * What a batch norm computes along with itself (plan_impl.h) is told of once, as the last of it. Either may be NULL. A
 * failure ends the step.
 */
typedef struct comet_step_sight {
    comet_status (*made)(void *context, comet_value value, const void *values);
    comet_status (*came)(void *context, comet_value value, void *gradient);
    void *context;
} comet_step_sight;

/* Who issues more behind all of a step's work, before any of it is awaited. */
typedef struct comet_step_tail {
    comet_status (*issue)(void *context);
    void *context;
} comet_step_tail;

typedef struct comet_step_options {
    const uint8_t *bytes; /* of the batch, if the plan's input comes as bytes: `count` of them, or all */
    const comet_normalisation *normalisation; /* of these */
    const int32_t *labels;                    /* of the batch */
    int count;                                /* evaluation: how many samples count, of the batch; 0: all */
    float smoothing;                          /* of labels */
    float gradient_scale;                     /* 0 is 1; 1 / n when n batches are added up; negative: taken away */
    int accumulate;                           /* gradients are added to what is there; the plan must allow it */
    uint64_t seed, step;                      /* of dropout and stochastic depth */
    int rank;                                 /* among those that train together: random numbers differ */
    comet_collect *collect;                   /* statistics go there; NULL: none are gathered */
    const comet_step_watch *watch;            /* NULL: nobody looks at streams */
    const comet_step_clock *clock;            /* NULL: nobody measures */
    const comet_step_sight *sight;            /* NULL: nobody looks at values */
    const comet_step_ahead *ahead;            /* NULL: nobody knows */
    const comet_step_tail *tail;              /* NULL: nobody does */
} comet_step_options;

typedef struct comet_step_result {
    double loss;
    int top1, top5;         /* samples */
    uint64_t stored_bytes;  /* by the holder in this step, in all, as far as it is known */
    uint64_t spilled_bytes; /* of these, in the file when all was saved */
    int refused_entry;      /* of the plan: the one that there was no room for; -1: none */
} comet_step_result;

/*
 * Training: parameters' gradients and running statistics. Evaluation: the loss alone. COMET_ERROR_CAPACITY,
 * COMET_ERROR_DISK_FULL: the holder had no room; gradients and running statistics are as they were, and the step can be
 * run again under another plan (of a backend with fused streams gradients are lost then, but for such that were to be
 * added to). COMET_ERROR_DIVERGED: a batch norm's input that is to be stored on its grid is not
 * finite; these are as they were. Elsewhere such values go their way, to loss and gradients.
 */
comet_status comet_step_run(comet_step *step, const comet_step_options *options, comet_step_result *result,
                            comet_message *message);

/* The logits of the last evaluation, until the next run, in the backend's space. */
const void *comet_step_logits(const comet_step *step);

#endif
