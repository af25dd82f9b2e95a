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

enum { COMET_STEP_RECORDINGS = 4, COMET_STEP_PARTS = 2 };

/* Steps of one kind, whose work can be recorded and replayed. */
typedef struct comet_step_kind {
    uint64_t key;                             /* of all that is passed by value; 0: none */
    int runs;                                 /* so far, that came to their end */
    int is_refused;                           /* recording failed: every step is issued */
    uint64_t last_used;                       /* comet_step.runs then */
    comet_recording *parts[COMET_STEP_PARTS]; /* of its work; NULL: not recorded */
    int next_move[COMET_STEP_PARTS];          /* when such a part ends */
    uint64_t read_bytes[COMET_STEP_PARTS];    /* for statistics */
    int *held, held_count;                    /* entries, in the order they were held */
} comet_step_kind;

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
    comet_loss_call loss;   /* of the run */
    uint64_t spilled_bytes; /* when all was saved */
    int next_move;          /* of the plan's */
    int failed;             /* node whose op failed, -1 */
    int refused;            /* entry for which there was no room, -1 */
    double *bounds;         /* by entry */
    int *order, held_count; /* entries, as they were held in this run */
    comet_step_kind kinds[COMET_STEP_RECORDINGS];
    comet_step_kind *kind;    /* of the run; NULL: it is not recorded */
    comet_step_kind *counted; /* of the run, recorded or not; NULL: it is of no kind */
    char refusal[256];        /* why recording failed; empty: it did not */
    uint64_t runs;
};

static inline void *comet_step_at(const comet_step *s, int buffer) {
    return buffer < 0 ? NULL : s->memory + s->plan->buffers[buffer].offset;
}

static inline void comet_step_note_held(comet_step *s, int entry) {
    if (!s->held[entry])
        s->order[s->held_count++] = entry;
    s->held[entry] = 1;
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

/* How an entry is compressed in this run, whose bounds are what is known by now. */
comet_codec_params comet_step_codec(const comet_step *s, int entry);

/* The bounds of this run's streams, to the holder. */
comet_status comet_step_set_bounds(comet_step *s);

/* Whom the holder tells. */
comet_status comet_step_see_held(void *step, const comet_held_part *part);
comet_status comet_step_see_loaded(void *step, int slot, int part, void *values);

/*
 * What the holder knows by now of this run, into what is learned; all bytes that it took. `status`: of the run; one
 * that failed and is done again must find the rms that it found before.
 */
uint64_t comet_step_learn(comet_step *s, comet_status status);

/* The batch from its bytes, which may be there from the last call; samples that do not count are zero. */
comet_status comet_step_normalise(const comet_step *s, void *values, int again);

/* The next batch's bytes begin to come, if somebody knows them. */
comet_status comet_step_look_ahead(const comet_step *s);

/* ---- step_record.c: work that is issued once and replayed ---- */

/* Which kind the run is, and what recorded work needs of it. s->kind NULL: it is not to be recorded. */
comet_status comet_step_choose_kind(comet_step *s);

/* A part of the run: issued, or recorded and replayed. */
comet_status comet_step_issue(comet_step *s, int part, comet_status (*work)(comet_step *s));

/* The run came to its end. */
void comet_step_count_kind(comet_step *s);

void comet_step_forget_kinds(comet_step *s);

#endif
