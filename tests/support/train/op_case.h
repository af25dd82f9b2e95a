/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One op on any backend, against the CPU's: a graph is built of which one node is computed, forward and backward, on
 * both, from the same random values as the backend's dtype has them. Calls get their memory as a plan gives it: only
 * what the op's traits say is there, outputs over inputs where the traits allow it, side data, masks and scratch as
 * the kernel asks for them. Outputs hold NaN before, and nothing behind them may be written. The backend's results must
 * come out the same twice; emulated, with blocks and threads in different orders.
 *
 *     op_case c = {.backend = b, .reference = onednn, .build = build_pool, .how = &pool, .batch = 3, .random = 7};
 *     op_case_vary(&c, &r);
 *     assert_check(op_case_agrees(&c, &f), f);
 */
#ifndef TESTS_SUPPORT_TRAIN_OP_CASE_H
#define TESTS_SUPPORT_TRAIN_OP_CASE_H

#include "support/failure.h"
#include "support/rng.h"
#include "train/backend/backend.h"

/* Makes the input and what is before the op, of which only shapes matter; returns the op's output. */
typedef comet_value (*op_builder)(comet_graph *g, const void *how);

/*
 * How far results may be off beside the rounding to the dtype, in 2^-24: of the value itself, and of the tensor's
 * greatest. All 0: the reference's value rounded once, exactly.
 */
typedef struct op_tolerance {
    double of_value, of_greatest;
} op_tolerance;

typedef enum op_over { OP_BESIDE, OP_OVER_DY, OP_OVER_NEED } op_over;

typedef struct op_case {
    comet_backend *backend, *reference;
    op_builder build;
    const void *how;
    int batch;
    int evaluation; /* forward alone, nothing is kept */
    op_tolerance forward, backward, gradients;

    /* What op_case_vary draws. */
    uint64_t random; /* the values */
    int mask;        /* forward writes a mask, backward reads it */
    int accumulate;  /* gradients of parameters are added to what is there */
    int y_over;      /* 1 + the input that the output is written over; 0: beside */
    op_over dx_over; /* where dx[0] is written */
    unsigned no_dx;  /* bit k: dx[k] is not wanted */
    uint64_t seed, step;
    int64_t first_sample;

    /* Of values: normal ones times `spread` (0: 1), and for one in `odd` (0: none) 0, infinity or NaN. */
    double spread;
    int odd;
    int relu, normalised; /* as in comet_op_call */
    int has_mask;         /* op_case_vary may ask for a mask */
} op_case;

/* Draws where outputs lie, within what the op's traits allow, and all else that is not what the case is about. */
void op_case_vary(op_case *c, rng *r);

/* 1 if the backend computes what the reference does. */
int op_case_agrees(const op_case *c, failure *f);

#endif
