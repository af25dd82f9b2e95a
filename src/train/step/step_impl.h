/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is made of: for its parts. */
#ifndef COMET_TRAIN_STEP_IMPL_H
#define COMET_TRAIN_STEP_IMPL_H

#include "train/plan/learned.h"
#include "train/plan/plan_impl.h"
#include "train/step/step.h"

/* A batch norm whose backward reads what is held. */
typedef struct comet_step_norm {
    const comet_op_call *call; /* as it is seen; NULL: there is none under way */
    int slot, parts, by_parts;
    int seen; /* parts that were there once */
} comet_step_norm;

struct comet_step {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    const comet_plan *plan;
    comet_learned *learned;
    comet_holder *holder;
    char *memory;        /* of the plan's buffers */
    size_t own_bytes;    /* of it, if it is ours */
    unsigned char *held; /* by entry: 1: in this run */
    comet_holder_watch watch;
    const comet_step_options *options; /* of the run */
    comet_step_norm norm;
    comet_loss_call loss; /* of the run */
    int next_move;        /* of the plan's */
    int failed;           /* node whose op failed, -1 */
    int refused;          /* entry for which there was no room, -1 */
};

static inline void *comet_step_at(const comet_step *s, int buffer) {
    return buffer < 0 ? NULL : s->memory + s->plan->buffers[buffer].offset;
}

/* ---- step_saved.c: what is saved, into the holder and back ---- */

/* Holds a value that is there, an op's output, a batch norm's input: these two are computed. */
comet_status comet_step_hold(comet_step *s, int entry, const void *values);
comet_status comet_step_hold_output(comet_step *s, int entry, const comet_op_call *call);
/* `output`: the entry of what it makes of a sum, -1. */
comet_status comet_step_hold_norm(comet_step *s, int entry, int output, const comet_op_call *call);

/* An operand of a backward. */
comet_status comet_step_load(comet_step *s, const comet_plan_load *load);

/* A batch norm's backward from what is held: its input, the signs of its output; one of them may be NULL. */
comet_status comet_step_norm_backward(comet_step *s, const comet_plan_load *input, const comet_plan_load *sign,
                                      const comet_op_call *call);

comet_status comet_step_move(comet_step *s, const comet_plan_move *move);

void comet_step_release(comet_step *s, int entry);

/* Whom the holder tells. */
comet_status comet_step_see_held(void *step, const comet_held_part *part);
comet_status comet_step_see_loaded(void *step, int slot, int part, void *values);

/* What the holder knows by now of this run, into what is learned; all bytes that it took. */
uint64_t comet_step_learn(comet_step *s);

/* The batch from its bytes, which may be there from the last call; samples that do not count are zero. */
comet_status comet_step_normalise(const comet_step *s, void *values, int again);

/* The next batch's bytes begin to come, if somebody knows them. */
comet_status comet_step_look_ahead(const comet_step *s);

#endif
