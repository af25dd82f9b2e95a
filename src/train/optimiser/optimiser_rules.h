/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of one update, on a span of values. */
#ifndef COMET_TRAIN_OPTIMISER_RULES_H
#define COMET_TRAIN_OPTIMISER_RULES_H

#include "train/optimiser/optimiser.h"

/* An optimiser and a step as the numbers that the loops need, in fp32 as PyTorch has them there. */
typedef struct comet_optimiser_rule {
    comet_optimiser_kind kind;
    int nesterov;
    float scale;         /* of gradients */
    float decay;         /* SGD: what of a value goes to its gradient; AdamW: what of a value stays */
    float rate;          /* AdamW: over the first moment's bias */
    float momentum;      /* AdamW: beta1 */
    float one_less;      /* AdamW: 1 - beta1 */
    float beta2, other;  /* AdamW: and 1 - beta2 */
    float root, epsilon; /* AdamW: root of the second moment's bias */
} comet_optimiser_rule;

typedef struct comet_optimiser_span {
    float *value;
    const float *gradient;
    float *state[COMET_OPTIMISER_MOST_ARRAYS]; /* NULL: there is none */
    int64_t count;
} comet_optimiser_span;

comet_optimiser_rule comet_optimiser_rule_of(const comet_optimiser *o, const comet_optimiser_step *step, int decayed);

typedef struct comet_optimiser_sum {
    double sum; /* of |momentum| (see comet_optimiser_update) if it is wanted, else 0 */
    int finite; /* 1: all values and all state are, after the update */
} comet_optimiser_sum;

/* Updates a span. */
comet_optimiser_sum comet_optimiser_apply(const comet_optimiser_rule *r, const comet_optimiser_span *span,
                                          int wants_sum);

#endif
