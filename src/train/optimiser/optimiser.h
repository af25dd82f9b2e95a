/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGD and AdamW: what they are told, the state they need, and the numbers of an update. The update itself is the
 * backend's (comet_update_call in train/backend/backend.h).
 */
#ifndef COMET_TRAIN_OPTIMISER_H
#define COMET_TRAIN_OPTIMISER_H

#include "train/graph/graph.h"

typedef enum comet_optimiser_kind { COMET_SGD, COMET_ADAMW } comet_optimiser_kind;

enum { COMET_OPTIMISER_MOST_ARRAYS = 2 };

typedef struct comet_optimiser {
    comet_optimiser_kind kind;
    double weight_decay;
    int decay_weights_only; /* not biases and batch norms, which PyTorch decays unless told otherwise */
    int nesterov;           /* SGD */
    double momentum;        /* SGD; 0: none, and no state */
    double beta1, beta2;    /* AdamW */
    double epsilon;         /* AdamW */
} comet_optimiser;

/* What changes from step to step. */
typedef struct comet_optimiser_step {
    int64_t number; /* from 1 */
    double learning_rate;
    double momentum; /* SGD: in place of the optimiser's, which is not 0, if this is not (one-cycle); AdamW: beta1 */
    double gradient_scale; /* gradients are multiplied by it: 1 / batches accumulated */
} comet_optimiser_step;

/* PyTorch's defaults, but for a momentum of 0.9. */
comet_optimiser comet_optimiser_default(comet_optimiser_kind kind);

/* COMET_ERROR_ARGUMENT, with a line, for rates and betas outside their range and Nesterov without momentum. */
comet_status comet_optimiser_check(const comet_optimiser *optimiser, comet_message *message);

/* Arrays of state: 0, 1 (momentum) or 2 (AdamW's first and second moments), and what they are called in files. */
int comet_optimiser_arrays(const comet_optimiser *optimiser);
const char *comet_optimiser_array_name(const comet_optimiser *optimiser, int array);

/*
 * Values of each array: those of all trained parameters, frozen ones not among them, one behind the other. The state is
 * `arrays` of them, zeroed at first.
 */
int64_t comet_optimiser_count(const comet_parameter *parameters, int count);
size_t comet_optimiser_bytes(const comet_optimiser *optimiser, const comet_parameter *parameters, int count);

/* ---- for backends ---- */

/* An optimiser and a step as the numbers that the loops of a parameter need, in fp32 as PyTorch has them there. */
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

comet_optimiser_rule comet_optimiser_rule_of(const comet_optimiser *optimiser, const comet_optimiser_step *step,
                                             const comet_parameter *parameter);

#endif
