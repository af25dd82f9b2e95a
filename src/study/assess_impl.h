/* SPDX-License-Identifier: Apache-2.0 */
/* What an assessment is made of: for its parts. */
#ifndef COMET_TRAIN_ASSESS_IMPL_H
#define COMET_TRAIN_ASSESS_IMPL_H

#include "study/assess.h"
#include "study/blocks.h"

/* A tensor, and a gradient that it reaches by the uses in the mask. */
typedef struct comet_assess_pair {
    int32_t chosen; /* which of the chosen tensors */
    int32_t parameter;
    uint32_t uses;
    double slope_squares; /* of the batch at the bound of the pass: (sigma / bound)^2 as predicted */
} comet_assess_pair;

/* Sums over batches, of one pair at one bound. */
typedef struct comet_assess_sums {
    double predicted, measured, joint_predicted, joint_measured; /* variances */
    double with_factor, joint_with_factor;                       /* as predicted, times the factors */
    comet_histogram errors;
} comet_assess_sums;

/* Measured, of one pair at one bound. */
typedef struct comet_assess_factor {
    double factor;
    int64_t measured; /* how often; 0: it is 1 */
} comet_assess_factor;

/* The same of a tensor's own error. */
typedef struct comet_assess_own {
    double error_rel, rms; /* sums over batches */
    double values, zeros, exact, largest;
    comet_histogram errors;
} comet_assess_own;

struct comet_assess {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_assess_options options;
    comet_trainer *trainer;
    comet_graph *graph;
    const comet_control_tensor *tensors; /* all of the controller's */
    int32_t tensor_count;
    int batches;

    int32_t chosen_count, pair_count, parameter_count;
    int32_t *chosen;                   /* their places in `tensors` */
    int32_t *place;                    /* by tensor: in `chosen`, -1 */
    comet_assess_pair *pairs;          /* those of a tensor together */
    comet_assess_sums *sums;           /* bounds x pairs */
    comet_assess_factor *factors;      /* bounds x pairs */
    comet_assess_factor *joint;        /* bounds x parameters: of all tensors together */
    comet_assess_own *own;             /* bounds x chosen */
    double *gradient_squares;          /* by parameter: sum over batches of the mean square */
    int64_t *offsets;                  /* by parameter: of its gradient in `lossless`; -1: no tensor reaches it */
    comet_control_bound_value *bounds; /* by tensor: of the pass, by chosen tensor behind them: of the controller */
    double *rms;                       /* by chosen tensor: of the batch */
    float *lossless;                   /* gradients of the batch */
    float *loaded;                     /* room for what a stream gives back */
    size_t lossless_values, loaded_values;

    int bound;     /* of the pass */
    int64_t turns; /* batches from which factors were measured */
    comet_blocks blocks;
};

/* assess_errors.c: what a pass shows. `chosen` -1: all tensors were compressed. */
comet_status comet_assess_keep(comet_assess *a, comet_message *message); /* nothing lossy: gradients, rms of tensors */
comet_status comet_assess_predict(comet_assess *a, comet_message *message); /* all compressed: as in training */
void comet_assess_compare(comet_assess *a, int32_t chosen);
comet_status comet_assess_see_rms(comet_assess *a, comet_message *message); /* of tensors alone */
comet_status comet_assess_factors(comet_assess *a, comet_message *message); /* all compressed: measured factors */
/* Of a batch that is not assessed: its gradients without loss; behind comet_assess_factors: joint factors. */
void comet_assess_hold(comet_assess *a);
comet_status comet_assess_joint_factors(comet_assess *a, comet_message *message);
comet_status comet_assess_saved(void *assess, const comet_step_saved *saved); /* comet_step_watch */

/* The bound of a chosen tensor at a->bound, absolute. */
double comet_assess_bound(const comet_assess *a, int32_t chosen);

static inline comet_assess_sums *comet_assess_sums_of(const comet_assess *a, int bound, int32_t pair) {
    return &a->sums[(int64_t)bound * a->pair_count + pair];
}

static inline comet_assess_factor *comet_assess_factor_of(const comet_assess *a, int bound, int32_t pair) {
    return &a->factors[(int64_t)bound * a->pair_count + pair];
}

static inline comet_assess_factor *comet_assess_joint_of(const comet_assess *a, int bound, int32_t parameter) {
    return &a->joint[(int64_t)bound * a->parameter_count + parameter];
}

static inline comet_assess_own *comet_assess_own_of(const comet_assess *a, int bound, int32_t chosen) {
    return &a->own[(int64_t)bound * a->chosen_count + chosen];
}

#endif
