/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch under a plan: forward, loss, backward, gradients into the graph's parameters; or an evaluation. All memory but the store's is
 * taken when the step is made.
 */
#ifndef COMET_TRAIN_STEP_H
#define COMET_TRAIN_STEP_H

#include "data/image/normalise.h"
#include "train/collect/collect.h"
#include "train/plan/plan.h"
#include "train/step/inject.h"

typedef struct comet_step comet_step;

/*
 * `memory`: at least the plan's arena_bytes, aligned to 64, so that plans that take turns (training and evaluation) share it; NULL: taken from
 * the system. `store` may be NULL if everything is kept. The graph must have its memory, with gradients for training.
 */
comet_status comet_step_new(comet_plan *plan, comet_store *store, void *memory, size_t memory_bytes,
                            const comet_allocator *allocator, comet_step **step, comet_message *message);
void comet_step_free(comet_step *step);

/* Where the batch goes, NHWC, before each run: its content is used up. Not if the plan's input comes as bytes. */
float *comet_step_input(comet_step *step);

/* A stream that was just saved, while the values that it was made of are still there. */
typedef struct comet_step_saved {
    const comet_plan_entry *entry;
    const comet_tensor *values;   /* before compressing; a part of the batch where the entry has parts */
    const comet_codec_grid *grid; /* of a batch norm's input, of which u is stored; else NULL */
    comet_store *store;
    comet_store_handle handle;
    const comet_codec_result *result;
} comet_step_saved;

/* For studies: is told of each stream. A failure ends the step. */
typedef struct comet_step_watch {
    comet_status (*saved)(void *context, const comet_step_saved *saved);
    void *context;
} comet_step_watch;

typedef struct comet_step_options {
    const uint8_t *bytes; /* of the batch, if the plan's input comes as bytes: `count` of them, or all */
    const comet_normalisation *normalisation; /* of these */
    const int32_t *labels;                    /* of the batch */
    int count;                                /* evaluation: how many samples count, of the batch; 0: all */
    float smoothing;                          /* of labels */
    float gradient_scale;                     /* 0 is 1; 1 / n when n batches are added up */
    int accumulate;                           /* gradients are added to what is there; the plan must allow it */
    uint64_t seed, step;                      /* of dropout and stochastic depth */
    const comet_inject *inject;               /* errors for what is loaded; NULL: none */
    comet_collect *collect;                   /* statistics go there; NULL: none are gathered */
    const comet_step_watch *watch;            /* NULL: nobody looks at streams */
} comet_step_options;

typedef struct comet_step_result {
    double loss;
    int top1, top5;         /* samples */
    uint64_t stored_bytes;  /* by the store in this step, in all */
    uint64_t spilled_bytes; /* of these, in the file when all was saved */
    int refused_entry;      /* of the plan: the one that the store had no room for; -1: none */
} comet_step_result;

/*
 * Training: parameters' gradients and running statistics. Evaluation: the loss alone. COMET_ERROR_CAPACITY, COMET_ERROR_DISK_FULL: the store had no
 * room; gradients and running statistics are as they were, and the step can be run again under another plan.
 * COMET_ERROR_DIVERGED: a batch norm's input that is to be stored on its grid is not finite; these are as they were.
 * Elsewhere such values go their way, to loss and gradients.
 */
comet_status comet_step_run(comet_step *step, const comet_step_options *options, comet_step_result *result,
                            comet_message *message);

/* The logits of the last evaluation, until the next run. */
const float *comet_step_logits(const comet_step *step);

#endif
