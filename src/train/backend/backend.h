/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ops are computed: a table of kernels, one for each kind of op, and the loss. A backend is asked what it supports, for the node
 * and batch in question; the plan fails with a message if it does not. Activations are NHWC, fp32; parameters as in graph.h.
 */
#ifndef COMET_TRAIN_BACKEND_H
#define COMET_TRAIN_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"
#include "comet/threads.h"
#include "train/graph/graph_impl.h"

typedef struct comet_backend comet_backend;

/* One call of an op. All memory is the caller's. */
typedef struct comet_op_call {
    comet_backend *backend;
    const comet_graph *graph;
    const comet_node *node;
    int batch;
    int training;   /* 0: evaluation (running statistics, nothing dropped, nothing left for a backward) */
    int relu;       /* a batch norm: the ReLU behind it is part of it */
    int normalised; /* a batch norm's backward: x[0] is not its input but that normalised */
    int accumulate; /* backward: gradients of parameters are added to what is there */
    int again;      /* a forward run once more: a batch norm takes its statistics from `side`, and moves none */
    void *state;    /* what `prepare` made */

    const float *x[2]; /* forward: the inputs; backward: those that it needs */
    float *y; /* forward: the output, NULL: a batch norm's statistics alone; backward: the output if it needs it */
    const float *dy;
    float *dx[2]; /* NULL: not wanted */
    void *side;   /* comet_op_side_bytes; NULL if nothing is kept */
    uint8_t *
        mask; /* a bit for each value: was the ReLU on? Forward writes it, backward reads it; NULL: from y, or a norm's x */
    void *scratch;
    uint64_t seed, step; /* of what is random */
    /* Forward: where an op that can tell at hardly any cost puts the rms of its output's non-zeros; may be NULL. */
    double *rms;
    /*
     * A batch norm's backward from its normalised input: 0, or in how many parts of samples that input comes, so that it need not be there as a
     * whole. fetch puts one of them into x[0], which has room for one; it may be asked for any, any number of times.
     */
    int parts;
    comet_status (*fetch)(void *context, int part);
    void *fetch_context;
} comet_op_call;

typedef struct comet_op_kernel {
    /* Once for each node and batch; may be NULL. Of the call only what does not change from step to step is set. */
    comet_status (*prepare)(const comet_op_call *call, void **state);
    void (*forget)(void *state);
    size_t (*scratch)(const comet_op_call *call, int backward); /* bytes; NULL: none */
    comet_status (*forward)(const comet_op_call *call);
    comet_status (*backward)(const comet_op_call *call); /* dx and gradients of parameters */
} comet_op_kernel;

/* Softmax cross-entropy over a batch of logits: the mean over samples, labels smoothed. */
typedef struct comet_loss_call {
    comet_backend *backend;
    int batch, classes;
    const float *logits;
    const int32_t *labels;
    float smoothing;
    float gradient_scale; /* of dlogits, beside 1 / batch: 1, or 1 / (number of accumulated batches) */
    float *dlogits;       /* NULL: not wanted */
    double loss;          /* out: the mean */
    int top1, top5;       /* out: samples whose label is the greatest logit, is among the five greatest */
} comet_loss_call;

/* What a batch norm's normalised input is turned into. */
typedef enum comet_rebuild {
    COMET_REBUILD_NOTHING,
    COMET_REBUILD_NORM,
    COMET_REBUILD_RELU,
    COMET_REBUILD_SILU
} comet_rebuild;

struct comet_backend {
    const char *name;
    comet_threads *threads;
    /* 1: it can compute this node at this batch, forward and, if training, backward. */
    int (*supports)(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch, int training);
    const comet_op_kernel *kernels[COMET_OP_KINDS]; /* NULL: unknown kind */
    comet_status (*loss)(comet_loss_call *call);
    void (*add)(comet_backend *backend, float *sum, const float *a, const float *b,
                int64_t count); /* sum may be a or b */
    /* call->node is a batch norm. In y is its normalised input; it becomes its output, that of its ReLU, or of the SiLU behind it. */
    void (*rebuild)(const comet_op_call *call, comet_rebuild what);
    /* After a batch norm's forward: the codec's grid for its input (comet/codec.h). Arrays are in call->side and call->scratch. */
    void (*norm_grid)(const comet_op_call *call, comet_codec_grid *grid);
    /* What the library takes for itself, in code, descriptions and packed matrices, to train and evaluate at this batch: not less. */
    size_t (*library_bytes)(const comet_backend *backend, const comet_graph *g, int batch);
    void (*free)(comet_backend *backend);
};

/*
 * oneDNN for convolutions and matrix products, our own code for the rest. `threads` is how many threads work (0: one per core);
 * backend->threads is a pool of the same ones, for the store too. COMET_ERROR_UNSUPPORTED: the oneDNN found at run time is another
 * major version than that compiled with.
 */
comet_status comet_backend_onednn_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend);

/* NULL is allowed. */
void comet_backend_free(comet_backend *backend);

#endif
