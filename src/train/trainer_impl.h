/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer is made of: for its parts. */
#ifndef COMET_TRAIN_TRAINER_IMPL_H
#define COMET_TRAIN_TRAINER_IMPL_H

#include "train/step.h"
#include "train/trainer.h"

/* What can be had without large memory: enough to say what training would take. */
typedef struct comet_trainer_parts {
    comet_graph *graph;
    comet_backend *backend;
    comet_forms *forms;
    comet_plan *plan, *evaluation;
    size_t static_bytes; /* weights, gradients, optimiser */
} comet_trainer_parts;

struct comet_trainer {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_trainer_options options; /* its strings are not to be read after comet_trainer_new */
    comet_trainer_parts parts;
    comet_store *store;
    void *arena; /* of both plans, which take turns */
    size_t arena_bytes;
    float *state; /* of the optimiser */
    size_t state_bytes;
    uint64_t *seen; /* sizes: trainer_estimates.c */
    double *means;  /* by parameter, for the mean momentum */
    comet_step *step, *evaluation;
    int64_t updates, batches;
};

comet_status comet_trainer_parts_new(const comet_trainer_options *options, const comet_allocator *allocator,
                                     comet_trainer_parts *parts, comet_message *message);
void comet_trainer_parts_free(comet_trainer_parts *parts);
size_t comet_trainer_parts_arena(const comet_trainer_parts *parts); /* what both plans need, in whole pages */
comet_trainer_bytes comet_trainer_parts_bytes(const comet_trainer_parts *parts);

/* trainer_estimates.c. To be called while there is a graph. */
comet_status comet_trainer_seen_new(comet_trainer *trainer, comet_message *message);
void comet_trainer_seen_free(comet_trainer *trainer);
void comet_trainer_learn(comet_trainer *trainer);  /* from the plan, after a step */
void comet_trainer_recall(comet_trainer *trainer); /* for the plan */

#endif
