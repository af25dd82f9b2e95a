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

/* Sums over the streams of a batch: they count when it has ended. */
typedef struct comet_collect_stored {
    double count, nonzero, squares, bytes, bound, streams;
} comet_collect_stored;

typedef struct comet_collect_tensor {
    char name[COMET_NAME_BYTES];
    comet_saved_kind kind;
    comet_value value;
    int node;
    int64_t values;
    int use_count;
    comet_collect_use uses[COMET_COLLECT_MOST_USES];
    comet_collect_stored now;
    comet_stats_tensor all; /* of the update's batches */
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

struct comet_collect {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    const comet_graph *graph;
    comet_backend *backend;
    int batch, acgc;
    int too_many;        /* uses of one tensor */
    comet_status status; /* of what was seen: the first that is not to be expected */
    size_t bytes;
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
};

/* How statistics are computed. */
comet_stats_exec comet_collect_exec(const comet_collect *c);

/*
 * What is not finite is the controller's to leave out; anything else is a mistake of ours, for comet_collect_observe
 * to say.
 */
void comet_collect_check(comet_collect *c, comet_status status);

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

#endif
