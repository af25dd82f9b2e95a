/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network being trained inside a memory budget: graph, plans, holder, buffers and optimiser in one. Bytes of images
 * in, updates of weights out; where batches come from and what is done with the figures is the caller's
 * (train/run/run.h).
 */
#ifndef COMET_TRAIN_TRAINER_H
#define COMET_TRAIN_TRAINER_H

#include "comet/control.h"
#include "train/backend/backend.h"
#include "train/optimiser/optimiser.h"
#include "train/plan/forms.h"
#include "train/step/step.h"
#include "train/trainer/metrics.h"

typedef struct comet_trainer comet_trainer;

/* Someone who changes a training on purpose (study/inject.h). All NULL: nobody. */
typedef struct comet_trainer_hooks {
    const char *text; /* what he is told: runs with other texts are other runs */
    comet_status (*begin)(const char *text, uint64_t seed, const comet_plan *plan, const comet_allocator *allocator,
                          void **context, comet_message *message);
    /* Values were loaded for a backward; gradients are complete, after so many batches, before they are judged. */
    comet_status (*loaded)(void *context, const comet_step_loaded *loaded);
    comet_status (*gradients)(void *context, comet_graph *graph, int64_t batches);
    void (*end)(void *context);
} comet_trainer_hooks;

typedef struct comet_trainer_options {
    comet_place place; /* where it is computed */
    /* NULL, or what makes the backend in its place. It becomes the trainer's. */
    comet_status (*backend)(unsigned threads, const comet_allocator *allocator, comet_backend **backend);
    /*
     * NULL, or what comet_trainer_get_choices said of a trainer before: this one's kernels are the same ones. Where the
     * text is of no use here, comet_trainer_note says why.
     */
    const char *choices;
    const char *model; /* train/models/model.h */
    int classes, height, width, channels;
    int batch;
    const char *codec; /* train/plan/forms.h; NULL: none */
    double error_rel;
    const char *forms;  /* overrides, or NULL */
    const char *freeze; /* weights that stay as they are (comet_graph_freeze), or NULL */
    /*
     * Who sets the bounds of tensors that are stored by `eb` without a bound of their own
     * (train/trainer/control_text.h); NULL: nobody, they are at error_rel. With one, an update that is not finite is
     * skipped whole, up to so many in a row; without, it is COMET_ERROR_DIVERGED.
     */
    const char *control;
    double calibration;                                                   /* of controllers that have one; 0: its own */
    void (*control_log)(void *context, const comet_control_event *event); /* each decision; may be NULL */
    void *control_context;
    comet_trainer_hooks hooks;
    /*
     * The most that weights, gradients, optimiser, activations and workspaces take together, with what the backend's
     * library takes for itself and reserved_bytes for what the caller holds there (data set, prefetch). 0: no limit.
     * What does not fit is spilled (if there is a directory), then recomputed; what is stored by a codec may be held as
     * it is where that needs less. If that is not enough, COMET_ERROR_CAPACITY with a line that says the least that
     * would do.
     */
    size_t memory_bytes, reserved_bytes;
    const char *spill_directory; /* NULL: none */
    uint64_t spill_limit_bytes;  /* the most that its file may grow to; 0: no limit */
    comet_optimiser optimiser;
    int accumulate; /* batches for one update; 0 is 1 */
    float smoothing;
    uint64_t seed;                     /* first values, dropout */
    int rank;                          /* among trainers of one network that reduce their gradients; 0 if alone */
    unsigned threads;                  /* 0: one per core */
    comet_normalisation normalisation; /* of the bytes given */
} comet_trainer_options;

comet_status comet_trainer_new(const comet_trainer_options *options, const comet_allocator *allocator,
                               comet_trainer **trainer, comet_message *message);
void comet_trainer_free(comet_trainer *trainer);

/* By what gradients in fp16 are multiplied, as text for checkpoints, as snprintf; 0: they are not. */
size_t comet_trainer_get_scale(const comet_trainer *trainer, char *text, size_t room);
void comet_trainer_set_scale(comet_trainer *trainer, const char *text); /* any other text: nothing changes */

/* What whoever made it should know; empty: nothing. */
const char *comet_trainer_note(const comet_trainer *trainer);

/* Whether steps of training are recorded (backend.h), and why not, if that failed: empty if it did not. */
int comet_trainer_is_recorded(const comet_trainer *trainer);
const char *comet_trainer_refusal(const comet_trainer *trainer);

/* Which kernels were chosen by measuring, as text (comet_backend.choices); 0: there is no such text. */
size_t comet_trainer_get_choices(const comet_trainer *trainer, char *text, size_t room);

typedef struct comet_trainer_result {
    double loss; /* mean of the batch */
    int top1, top5;
    int complete;             /* 1: gradients are complete */
    int updated;              /* 1: this batch completed an update */
    int skipped;              /* 1: it would have, but the update was not finite: all is as it was before */
    int too_large;            /* 1: since its gradients were too large for fp16; the next ones are multiplied by less */
    uint64_t saved_raw_bytes; /* of this step: what was saved, as it is and as it was held, kept tensors included */
    uint64_t saved_stored_bytes;
    uint64_t spilled_bytes; /* of these, in the file */
    double mean_momentum;   /* over all weights; 0 if there was no update */
} comet_trainer_result;

/*
 * One batch of options.batch images, NHWC: forward and backward. The first layer's input is not kept but made from
 * `pixels` again. result->complete: it is the last of `accumulate`, and comet_trainer_update comes next. After an error
 * nothing has changed: COMET_ERROR_CAPACITY: the budget is too small after all, as sizes were estimates;
 * COMET_ERROR_DISK_FULL: the spill file.
 */
comet_status comet_trainer_gradients(comet_trainer *trainer, const uint8_t *pixels, const int32_t *labels,
                                     comet_trainer_result *result, comet_message *message);

/*
 * What trainers that train one network together reduce between the two calls, so that all judge alike and make the same
 * update. Running statistics stay each one's own.
 */
typedef struct comet_trainer_pending {
    float *gradients; /* to their mean: of all parameters, with gaps of zeros, in the backend's space */
    int64_t gradient_count;
    double *loss; /* to its mean */
    int *flawed;  /* to the greatest: 1: a batch could not be run, or running statistics are not finite */
} comet_trainer_pending;

comet_trainer_pending comet_trainer_get_pending(comet_trainer *trainer);

/*
 * The update, when gradients are complete. COMET_ERROR_DIVERGED: loss, gradients or running statistics of the update
 * are not finite; all is as it was before its first batch. Or they were, and what the update made of weights or
 * optimiser state is not: then these are lost (neither checkpoints nor weight files take them).
 */
comet_status comet_trainer_update(comet_trainer *trainer, double learning_rate, double momentum,
                                  comet_trainer_result *result, comet_message *message);

/* Both: a batch, and an update if it completes one. */
comet_status comet_trainer_train(comet_trainer *trainer, const uint8_t *pixels, const int32_t *labels,
                                 double learning_rate, double momentum, comet_trainer_result *result,
                                 comet_message *message);

/* The first `count` of a batch (at most options.batch): added to `accuracy` and `loss`. */
comet_status comet_trainer_evaluate(comet_trainer *trainer, const uint8_t *pixels, const int32_t *labels, int count,
                                    comet_accuracy *accuracy, comet_mean *loss, comet_message *message);

/*
 * Who knows the next batch's pixels (train/step/step.h), so that they come over while this one is trained on; and who
 * measures. Both until they are set anew; NULL: nobody.
 */
void comet_trainer_set_ahead(comet_trainer *trainer, const comet_step_ahead *ahead);
void comet_trainer_set_clock(comet_trainer *trainer, const comet_step_clock *clock);

/* ---- what it is made of: for checkpoints, weights, tables ---- */

comet_backend *comet_trainer_backend(comet_trainer *trainer);
comet_graph *comet_trainer_graph(comet_trainer *trainer);
const comet_plan *comet_trainer_plan(const comet_trainer *trainer);
const comet_learned *comet_trainer_learned(const comet_trainer *trainer); /* both until the next batch, or estimates */
float *comet_trainer_optimiser_state(comet_trainer *trainer);             /* in the space of the graph's parameters */
int64_t *comet_trainer_updates(comet_trainer *trainer);                   /* done so far: set it when resuming */
int64_t *comet_trainer_batches(comet_trainer *trainer);                   /* trained so far: set it when resuming */

/* What a resumed run must know of sizes: bytes of no more than comet_trainer_estimates_bytes, for a checkpoint. */
size_t comet_trainer_estimates_bytes(const comet_trainer *trainer);
void comet_trainer_get_estimates(const comet_trainer *trainer, void *bytes);
comet_status comet_trainer_set_estimates(comet_trainer *trainer, const void *data, size_t bytes,
                                         comet_message *message);

/* What the controller remembers, for a checkpoint: 0 bytes if there is none. */
size_t comet_trainer_control_bytes(const comet_trainer *trainer);
comet_status comet_trainer_get_control(const comet_trainer *trainer, void *data, size_t bytes, comet_message *message);
comet_status comet_trainer_set_control(comet_trainer *trainer, const void *data, size_t bytes, comet_message *message);

/* What a use of a controlled tensor is for ("conv_weights", ...); "" for one that there is not. */
const char *comet_trainer_use_name(const comet_trainer *trainer, int32_t tensor, int32_t use);

/* NULL if there is none. */
const comet_control *comet_trainer_control(const comet_trainer *trainer);

/*
 * The errors that all tensors under the controller cause together in gradients of weights, as measured last on a part
 * of a batch (docs/measured.md): in parts of a gradient's rms.
 */
typedef struct comet_trainer_joint_layer {
    const char *gradient; /* the parameter */
    double error, predicted;
} comet_trainer_joint_layer;

typedef struct comet_trainer_joint {
    int64_t iteration; /* when; -1 and count 0: it was not measured yet */
    int images;
    int count;               /* of layers: convolutions and linear layers whose gradient is not 0 */
    double error, predicted; /* root mean square over these */
    comet_trainer_joint_layer *layers;
} comet_trainer_joint;

const comet_trainer_joint *comet_trainer_get_joint(const comet_trainer *trainer);

typedef struct comet_trainer_bytes {
    size_t static_bytes; /* weights, gradients, optimiser */
    size_t buffer_bytes; /* buffers of a step or of evaluation, whichever needs more */
    /* static + buffers + streams, with the reserve for sizes that are estimates; the most so far */
    size_t planned_peak_bytes;
    size_t library_bytes;        /* what the backend's library takes for itself, beside that; a budget counts it */
    size_t allocated_peak_bytes; /* what was held at the worst moment so far */
    size_t saved_raw_bytes, saved_stored_bytes; /* planned, of a step */
} comet_trainer_bytes;

comet_trainer_bytes comet_trainer_get_bytes(const comet_trainer *trainer);

/*
 * What the buffers and the store hold, at each of the 2 n + 1 times of a step (train/plan/plan.h), as planned: for a
 * picture.
 */
int comet_trainer_times(const comet_trainer *trainer);
size_t comet_trainer_bytes_at(const comet_trainer *trainer, int time);

/* ---- without training ---- */

typedef struct comet_fit {
    comet_trainer_bytes bytes;
    size_t least_bytes; /* the smallest budget that would do for this batch, all ways of saving memory used */
} comet_fit;

/*
 * What options would take, without weights or any large memory. `plan` (NULL: not wanted) is the caller's to free, with
 * the graph in *graph and the backend in *backend. COMET_ERROR_CAPACITY, and least_bytes set, if it does not fit the
 * budget.
 */
comet_status comet_trainer_fit(const comet_trainer_options *options, const comet_allocator *allocator, comet_fit *fit,
                               comet_plan **plan, comet_graph **graph, comet_backend **backend, comet_message *message);

/*
 * Whether there is a plan within options->memory_bytes, and what it takes (NULL: not wanted); if not, the message says
 * the least that would do. Quicker than comet_trainer_fit, which looks for the least in any case.
 */
comet_status comet_trainer_fits(const comet_trainer_options *options, const comet_allocator *allocator, int *fits,
                                comet_trainer_bytes *bytes, comet_message *message);

/*
 * Whether a batch of so many images fits. Called with growing and shrinking ones; if one fits, so do all smaller ones.
 */
typedef struct comet_batch_question {
    comet_status (*fits)(void *context, int batch, int *fits, comet_message *message);
    void *context;
} comet_batch_question;

/* The largest batch up to `most` that fits; 0: none does. */
comet_status comet_largest_batch(const comet_batch_question *ask, int most, int *batch, comet_message *message);

/*
 * The largest batch up to `most` that fits options->memory_bytes; 0: none does, and the message says the least that
 * would do.
 */
comet_status comet_trainer_largest_batch(const comet_trainer_options *options, int most,
                                         const comet_allocator *allocator, int *batch, comet_message *message);

#endif
