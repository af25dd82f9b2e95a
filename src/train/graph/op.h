/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an op is to the planner: what its backward needs, and where buffers may be shared. How an op is computed is the
 * backend's (backend.h). A need is not yet a saved tensor: needs of the same value are one entry, and the planner
 * chooses its form.
 */
#ifndef COMET_TRAIN_OP_H
#define COMET_TRAIN_OP_H

#include "train/graph/graph_impl.h"

enum {
    COMET_NEEDS_X0 = 1, /* the first input's values */
    COMET_NEEDS_X1 = 2, /* the second's */
    COMET_NEEDS_Y = 4,  /* the output's values */
    /* where the output is greater than 0: its values if they are there exactly, else a bit each */
    COMET_NEEDS_SIGN = 8,

    COMET_Y_OVER_X = 16,       /* forward may write its output over its first input */
    COMET_DX_OVER_DY = 32,     /* backward may write the first input's gradient over the output's */
    COMET_DX_IS_DY = 64,       /* the gradient of every input is the output's: nothing is computed */
    COMET_RANDOM = 128,        /* drawn from a counter; backward draws it again */
    COMET_TRAINING_ONLY = 256, /* evaluation: the output is the input */
    COMET_DX_OVER_NEED = 512   /* backward may write the first input's gradient over the first value that it needs */
};

/* Gradients that a node's backward makes; a batch norm's weight and bias are gamma and beta. */
enum { COMET_BY_WEIGHT = 1, COMET_BY_BIAS = 2, COMET_BY_INPUT = 4 };

/* Flags of COMET_NEEDS_X0 and so on, for this node. */
unsigned comet_op_traits(const comet_graph *g, const comet_node *node);

/*
 * Bytes of side data that forward leaves for backward: a batch norm's mean and 1 / sigma, a max-pool's argmax (in as
 * few bits as its window needs).
 */
size_t comet_op_side_bytes(const comet_graph *g, const comet_node *node, int batch);

/* Bits that name a position in a window of k x k. */
int comet_op_argmax_bits(int kernel);

/*
 * The ReLU behind a batch norm, if it is the only one to use its output: the two are computed as one, backward knows
 * the ReLU's mask from the norm's input, and the norm's own output never exists. -1: none.
 */
int comet_op_fused_relu(const comet_graph *g, int batch_norm);

/*
 * The sum that alone uses a batch norm's output, if its other addend is made before the norm: the two can be computed
 * as one. -1: none.
 */
int comet_op_fused_sum(const comet_graph *g, int batch_norm);

/* The ReLU that alone uses a node's output, -1. */
int comet_op_relu_behind(const comet_graph *g, int node);

#endif
