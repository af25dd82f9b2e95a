/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The theory's errors against those there are (docs/theory.md). For every tensor whose bound a controller sets and
 * every gradient that its error reaches: sigma as the error model predicts it, from statistics of a step with all
 * tensors compressed, as in training; and as it is found when backward is run with the tensor as it is and compressed,
 * on the same batch with the same dropout. One tensor at a time, all others without loss; then all together.
 *
 *     comet_assess_new(trainer, &options, NULL, &assess, &message);
 *     comet_assess_batch(assess, pixels, labels, &message);           as often as wanted: variances are averaged
 *     for each bound, for each row:  comet_assess_get_row(assess, bound, row, &figures);
 *
 * A batch takes 1 + bounds * (1 + tensors) forwards and backwards. Held beside the trainer: a copy of the gradients
 * that are reached, room for the largest part of a tensor, and histograms.
 */
#ifndef COMET_TRAIN_ASSESS_H
#define COMET_TRAIN_ASSESS_H

#include <signal.h>

#include "study/histogram.h"
#include "train/trainer/probe.h"

typedef struct comet_assess comet_assess;

enum { COMET_ASSESS_MOST_BOUNDS = 8, COMET_ASSESS_USE_TEXT = 64 };

typedef struct comet_assess_options {
    int bounds;
    double error_rel[COMET_ASSESS_MOST_BOUNDS]; /* times the rms of a tensor's non-zeros; negative: the controller's */
    const char *layers;                         /* only tensors of these (train/graph/pattern.h); NULL: all */
    const volatile sig_atomic_t *stop;          /* not 0: comet_assess_batch ends with COMET_ERROR_IO; NULL: never */
    void (*progress)(void *context, const char *what); /* after each forward and backward; NULL: not wanted */
    void *context;
} comet_assess_options;

/*
 * The trainer, which must outlive it, needs a controller. COMET_ERROR_ARGUMENT, with a line: no tensor is under it, or
 * has that name. Controller's bounds are those of now.
 */
comet_status comet_assess_new(comet_trainer *trainer, const comet_assess_options *options,
                              const comet_allocator *allocator, comet_assess **assess, comet_message *message);
void comet_assess_free(comet_assess *assess);

/* Forwards and backwards of a batch; of one for factors. */
int64_t comet_assess_passes(const comet_assess *assess);
int64_t comet_assess_learn_passes(const comet_assess *assess);

/*
 * Measured factors (docs/measured.md) at each bound, of those tensors whose turn it is, and joint ones of all
 * gradients, from a batch that is not assessed: before the others. Without it there are those of the controller, for
 * its own bounds.
 */
comet_status comet_assess_learn(comet_assess *assess, const uint8_t *pixels, const int32_t *labels,
                                comet_message *message);

/* A batch that fails leaves figures that must not be used. */
comet_status comet_assess_batch(comet_assess *assess, const uint8_t *pixels, const int32_t *labels,
                                comet_message *message);

/* ---- what was found, as means over batches ---- */

/*
 * A tensor's error in one gradient. Where several of its uses reach the same gradient their errors cannot be told
 * apart: they are one row, "norm_input+curve_input", and variances are added up. NaN: unknown, as of a ratio to 0.
 */
typedef struct comet_assess_row {
    const char *tensor, *gradient; /* the layer that made it; the parameter */
    char use[COMET_ASSESS_USE_TEXT];
    double error_rel;                                    /* the bound, in parts of the rms of the tensor's non-zeros */
    double predicted, measured, ratio;                   /* sigmas: this tensor alone */
    double joint_predicted, joint_measured, joint_ratio; /* of this gradient, with all tensors compressed */
    double factor;                                       /* measured; 1 where measured_times is 0 */
    int64_t measured_times;                              /* */
    double joint_factor;                                 /* of the gradient; 1: not measured */
    double ratio_with_factor, joint_ratio_with_factor;   /* what is predicted being multiplied by (both) factors */
    double gradient_rms;
    int64_t values;                /* of the gradient */
    const comet_histogram *errors; /* of this tensor alone, over the batch's measured sigma */
} comet_assess_row;

int comet_assess_rows(const comet_assess *assess);
void comet_assess_get_row(const comet_assess *assess, int bound, int row, comet_assess_row *figures);

/*
 * All tensors together: the error of a layer's weights' gradient in parts of its rms; of that the root mean square over
 * layers, and the largest. Layers whose gradient is 0 are left out; NaN where none is left.
 */
typedef struct comet_assess_joint {
    int layers;
    double measured, predicted, with_factor;
    double largest;         /* measured */
    const char *largest_of; /* the parameter */
} comet_assess_joint;

void comet_assess_get_joint(const comet_assess *assess, int bound, comet_assess_joint *joint);

/* The error of a tensor's own values: of those that are not 0 and did not come back exactly. */
typedef struct comet_assess_tensor {
    const char *name;
    double error_rel, rms;
    double values, zeros, exact;   /* a batch's: all; zeros, which stay zero; others that came back as they were */
    double largest;                /* |error| over the bound */
    const comet_histogram *errors; /* over the bound */
} comet_assess_tensor;

int comet_assess_tensors(const comet_assess *assess);
void comet_assess_get_tensor(const comet_assess *assess, int bound, int tensor, comet_assess_tensor *figures);

#endif
