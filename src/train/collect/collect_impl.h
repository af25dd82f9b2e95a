/* SPDX-License-Identifier: Apache-2.0 */
/* What a collector is made of: for its parts. */
#ifndef COMET_TRAIN_COLLECT_IMPL_H
#define COMET_TRAIN_COLLECT_IMPL_H

#include "comet/use_stats.h"
#include "train/collect/collect.h"
#include "train/graph/graph_impl.h"

/* A use, and where what must be known of it is seen. Nodes are -1 where there is none. */
typedef struct comet_collect_use {
    comet_use_kind kind;
    int node;      /* whose backward reads the tensor */
    int source;    /* what is read is rebuilt: the norm or SiLU that says how it changes with what is stored */
    int factor;    /* and multiplied: by this channel scale */
    int reached;   /* layer whose weights' gradient the error reaches */
    int parameter; /* that gradient */
} comet_collect_use;

enum { COMET_COLLECT_MOST_USES = 16 };

typedef struct comet_collect_tensor {
    char name[COMET_NAME_BYTES];
    comet_saved_kind kind;
    comet_value value;
    int node;
    int64_t values;
    int use_count;
    comet_collect_use uses[COMET_COLLECT_MOST_USES];
    /* Of the batch under way: it counts when it has ended. Of the update's batches. */
    comet_stats_tensor now, all;
} comet_collect_tensor;

/* What is wanted of a node. */
enum {
    COMET_WANT_OUTPUT = 1,
    COMET_WANT_INPUT = 2,
    COMET_WANT_NORM = 4,
    COMET_WANT_SILU = 8,
    COMET_WANT_FACTORS = 16,
    COMET_WANT_COMMON = 32
};

/* What was seen at a node: of its kind. */
typedef struct comet_collect_node {
    int wants;
    union {
        comet_stats_layer layer;
        comet_stats_norm norm;
        comet_stats_silu silu;
        comet_stats_scale scale;
    } seen;
} comet_collect_node;

/*
 * ---- measured errors (docs/measured.md) ----
 *
 * Sums over the update of what one use's error adds to some values of the gradient that it reaches. Where two uses of
 * a tensor reach the same gradient the first of them has both.
 */
typedef struct comet_collect_measured {
    int seen;   /* batches of the update */
    int values; /* of the gradient */
    /* Of a layer's weights: comet_errors_layer's. */
    int count, other, others;
    double sums[COMET_ERRORS_SUMS];
} comet_collect_measured;

enum { COMET_COLLECT_MOST_KEPT = 10 };

/* A tensor of which some channels are kept as they were, on an update. */
typedef struct comet_collect_kept {
    int32_t tensor;
    int first, width;
    int64_t rows, filled; /* in all, and of the batch so far */
    /*
     * In the backend's space: the channels; what a SiLU's backward or the error of dX needs beside them (NULL: nothing
     * does); and of each image, for squeeze-excites.
     */
    float *exact, *second, *small;
    const float *error;           /* of dX, when its backward has been: one of the above; NULL: not yet */
    int has_factors, has_own;     /* 1: in `small`, a channel scale's factors; the error of their gradient */
    int has_curve;                /* 1: in `second`, what a SiLU's backward gives less */
    double *totals;               /* of a batch norm's backward, in the backend's space */
    comet_collect_measured *uses; /* by use of the tensor */
} comet_collect_kept;

/* Where a tensor stands in the turns, and how much room its channels take. */
typedef struct comet_collect_turn {
    int pack, width, needs_second, needs_small; /* pack -1: it is not measured */
    int has_relu;                               /* a norm's input that is stored once: behind the norm */
} comet_collect_turn;

typedef struct comet_collect_keeping {
    int packs, most_uses; /* packs 0: nothing is kept */
    int64_t turn;
    comet_collect_turn *turns; /* by tensor */
    comet_collect_measured *measured;
    comet_collect_kept kept[COMET_COLLECT_MOST_KEPT];
    int count, batches; /* kept on this update, which has so many so far */
    /* In the backend's space: room for a pack, totals of each tensor of it, then the workspace. */
    char *memory;
    double *totals;
    void *workspace;
    size_t room, bytes;
} comet_collect_keeping;

struct comet_collect {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    const comet_graph *graph;
    comet_backend *backend;
    int batch, acgc;
    int too_many;        /* uses of one tensor */
    comet_status status; /* of what was seen: the first that is not to be expected */
    size_t bytes, bytes_of_turns;
    int32_t count;
    comet_collect_tensor *tensors;
    comet_control_tensor *list;
    comet_control_use *list_uses;
    comet_control_observation *observations; /* of as many tensors */
    comet_use_stats *stats;                  /* COMET_COLLECT_MOST_USES of each tensor */
    comet_control_size *sizes;
    int32_t *of_value, *of_norm; /* by value, and by node for norms: the tensor, -1 */
    comet_collect_node *nodes;   /* by node */
    /* In the backend's space: the most that any node or tensor needs (next to nothing where kernels have their own). */
    void *workspace;
    size_t workspace_bytes;
    uint64_t read_bytes;
    comet_status status_before; /* the work that is recorded */
    uint64_t read_before;
    /* acgc: of each parameter's gradient, as far as a use asks for it. */
    comet_span *spans;
    double *squares;
    int has_squares; /* of the gradients that are there now; on a backend that settles later, when it has */
    comet_collect_keeping keeping;
};

/* How statistics are computed. */
comet_stats_exec comet_collect_exec(const comet_collect *c);

/*
 * What is not finite is the controller's to leave out; anything else is a mistake of ours, for comet_collect_observe
 * to say.
 */
void comet_collect_check(comet_collect *c, comet_status status);

/* collect_saved.c: what is under way of a backend that settles later; `keep` 0: it is not wanted. */
void comet_collect_settle(comet_collect *c, int keep);

/* collect_nodes.c: nothing has been seen of a node; 1: it has a whole batch; the workspace it needs. */
void comet_collect_node_begin(const comet_graph *g, int node, comet_collect_node *n);
int comet_collect_node_is_seen(const comet_graph *g, int node, const comet_collect_node *n);
size_t comet_collect_node_workspace(const comet_backend *b, const comet_graph *g, int node, int batch, int wants,
                                    int acgc);

/* collect_saved.c: the workspace that looking at a tensor needs. */
size_t comet_collect_tensor_workspace(const comet_backend *b, const comet_graph *g, const comet_plan_entry *e,
                                      int batch);

/* collect_uses.c: a tensor's uses, from the plan. */
void comet_collect_find_uses(comet_collect *c, const comet_plan *plan);

/* ---- collect_kept.c: which channels of which tensors are kept as they were ---- */

/* The turns, and memory for them; 0: there was none. */
int comet_collect_take_turns(comet_collect *c, const comet_plan *plan);
void comet_collect_give_turns(comet_collect *c);

/* Whose turn it is, and that nothing was seen: of an update, of a batch. */
void comet_collect_turns_begin(comet_collect *c);
void comet_collect_turns_batch(comet_collect *c);
void comet_collect_turns_end(comet_collect *c);

/* Values of a tensor before compressing, images in order. */
void comet_collect_keep(comet_collect *c, int32_t tensor, const comet_tensor *values, const comet_codec_grid *grid);

/* 1: all of the batch is there. */
int comet_collect_is_whole(const comet_collect_kept *k);

/* ---- collect_errors.c: what their errors do to gradients ---- */

/* At a node's backward, after statistics. `part` of a batch norm's input is there, for the first time or `again`. */
void comet_collect_errors(comet_collect *c, const comet_op_call *call);
void comet_collect_part_errors(comet_collect *c, const comet_op_call *call, int part, int parts, int again);

/* Of a tensor's uses, whose model is in `stats`: measured over predicted sigma, into stats->factor; 0 where not. */
void comet_collect_factors(comet_collect *c, int32_t tensor, double bound, comet_use_stats *stats);

/* A value of a batch, or of a part of it. */
comet_tensor comet_collect_tensor_of(const comet_backend *b, const comet_graph *g, comet_value v, int images);

#endif
