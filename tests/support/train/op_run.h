/* SPDX-License-Identifier: Apache-2.0 */
/* One op computed by one backend, from values of the host to results of the host. For op_case.c. */
#ifndef TESTS_SUPPORT_TRAIN_OP_RUN_H
#define TESTS_SUPPORT_TRAIN_OP_RUN_H

#include "support/train/op_case.h"

enum { OP_PARAMETERS = 4 };

/* What goes in: fp32 that the dtype has. */
typedef struct op_values {
    float *x[2], *dy, *y; /* y: for backward; NULL until forward has run */
    uint8_t *mask;        /* the same */
    float *parameters[OP_PARAMETERS], *gradients[OP_PARAMETERS];
} op_values;

/* What comes out. NULL: there is none. */
typedef struct op_results {
    float *y, *again, *dx[2];
    uint8_t *mask, *side;
    size_t side_bytes;
    float *parameters[OP_PARAMETERS], *gradients[OP_PARAMETERS];
} op_results;

typedef struct op_run {
    const op_case *c;
    comet_backend *backend;
    comet_graph *graph;
    const comet_node *node;
    const comet_op_kernel *kernel;
    comet_op_call call;
    void *side, *mask; /* from forward to backward */
    op_results results;
} op_run;

/* The graph of a case, without memory, and the node in question. */
int op_graph_new(const op_case *c, comet_graph **g, const comet_node **node, failure *f);

int64_t op_count(const op_run *run, comet_value v);
unsigned op_traits(const op_run *run);

/* All return 0 after a failure. A run is freed in any case. */
int op_run_new(op_run *run, const op_case *c, comet_backend *backend, failure *f);
int op_run_write_parameters(op_run *run, const op_values *v, failure *f);
int op_run_forward(op_run *run, const op_values *v, failure *f);
int op_run_backward(op_run *run, const op_values *v, failure *f);
void op_run_free(op_run *run);

#endif
