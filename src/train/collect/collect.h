/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a controller (comet/control.h) must know of a network being trained: which saved tensors it sets the bound of,
 * what each is used for in backward, and, on iterations for which it asks, the statistics of these uses.
 * docs/theory.md, section 8, is the list.
 *
 *     comet_collect_new(plan, ...);                      the tensors: for comet_control_new
 *     comet_collect_begin(c);                            before the first batch of an update
 *     comet_step_options.collect = c                     the step calls what is below "during a step"
 *     comet_collect_observe(c, control, ...);            after the update
 */
#ifndef COMET_TRAIN_COLLECT_H
#define COMET_TRAIN_COLLECT_H

#include "comet/control.h"
#include "train/optimiser/optimiser.h"
#include "train/plan/plan.h"

typedef struct comet_collect comet_collect;

/*
 * The tensors are the plan's that are stored by `eb` and whose bound is not given (comet_form.fixed). Other plans of
 * the same graph and batch may be run afterwards: what they have not is not observed. `needs`: what the controller
 * says of itself (COMET_NEEDS_ACGC and COMET_NEEDS_MEASURED cost more, the rest is always collected). The graph must
 * outlive it.
 */
comet_status comet_collect_new(const comet_plan *plan, uint32_t needs, const comet_allocator *allocator,
                               comet_collect **collect, comet_message *message);
void comet_collect_free(comet_collect *collect);
size_t comet_collect_bytes(const comet_collect *collect); /* all that it holds */

const comet_control_tensor *comet_collect_tensors(const comet_collect *collect, int32_t *count);

/* The tensor of an entry of any plan; -1: its bound is not the controller's. */
int32_t comet_collect_find(const comet_collect *collect, const comet_plan_entry *entry);

/*
 * Whose errors are measured on the updates that begin after this, if anyone's (docs/measured.md): the n-th of those
 * that statistics are wanted of. Not called: the same ones each time.
 */
void comet_collect_set_turn(comet_collect *collect, int64_t turn);

/* A new update: nothing has been seen. */
void comet_collect_begin(comet_collect *collect);

/* What the optimiser did last. */
typedef struct comet_collect_update {
    const comet_optimiser *optimiser;
    double momentum;     /* of the step: SGD's, or AdamW's beta1; 0: the optimiser's own */
    const double *means; /* comet_update_call.means */
    int64_t updates;     /* made so far, with this one */
    double scale;        /* by which the gradients that were seen were multiplied; 0 is 1 */
} comet_collect_update;

/*
 * The gradients of parameters are complete: what must be known of them comes with the batch, if this is called before
 * it has ended. Else comet_collect_observe finds it out, and waits for it.
 */
void comet_collect_squares(comet_collect *collect);

/*
 * Hands over what was seen since comet_collect_begin. A tensor of which something is missing (it is computed again,
 * or its layer's backward did not run) is left out.
 */
comet_status comet_collect_observe(comet_collect *collect, const comet_collect_update *update, comet_control *control,
                                   int64_t iteration);

/*
 * What comet_collect_observe would say of a tensor: for tests and studies. NULL: something is missing. Until the next
 * call.
 */
const comet_control_observation *comet_collect_observation(comet_collect *collect, const comet_collect_update *update,
                                                           int32_t tensor);

/* ---- during a step ---- */

/* A batch begins; it has ended, and counts. One that fails in between does not. */
void comet_collect_batch_begin(comet_collect *collect);
void comet_collect_batch_end(comet_collect *collect);

/*
 * `values` before compressing, of a part of the batch where the entry has parts, and the grid that they are on; NULL:
 * result alone.
 */
void comet_collect_saved(comet_collect *collect, const comet_plan_entry *entry, const comet_tensor *values,
                         const comet_codec_grid *grid, const comet_codec_record *result);

/*
 * Before the backward of call->node: inputs and output gradient are there. `norm_side`: of a SiLU, the side data of
 * the batch norm before it; NULL if there is none. A batch norm whose input comes in parts is told of each part
 * instead, when it is in call->x[0] for the first time; and `again`, before that part's gradient is made.
 */
void comet_collect_backward(comet_collect *collect, const comet_op_call *call, const float *norm_side);
void comet_collect_part(comet_collect *collect, const comet_op_call *call, int part, int parts, int again);

/* In forward, before a node is computed. */
void comet_collect_forward(comet_collect *collect, const comet_op_call *call);

/*
 * ---- steps whose work is recorded (comet_backend.record) ----
 *
 * What kind of work a step has with this collector, at this update: recorded work of the same kind, under the same
 * plan, can be replayed in its place. 0: it cannot be recorded. So it is where a backend has its statistics at once,
 * and on updates on which errors are measured, of other channels each time.
 */
uint64_t comet_collect_kind(const comet_collect *collect);

/*
 * Around work that is recorded: the collector is as before, as nothing was carried out. What did not work is returned;
 * *read_bytes: what replaying it reads.
 */
void comet_collect_record(comet_collect *collect);
comet_status comet_collect_end_record(comet_collect *collect, uint64_t *read_bytes);
/* It was replayed. */
void comet_collect_replayed(comet_collect *collect, uint64_t read_bytes);

/* How many bytes were read for statistics since comet_collect_new: what collecting costs. */
uint64_t comet_collect_read_bytes(const comet_collect *collect);

#endif
