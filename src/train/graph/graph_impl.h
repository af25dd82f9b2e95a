/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph is made of: for the builder, the ops, the plan and the step. Models use graph.h alone. */
#ifndef COMET_TRAIN_GRAPH_IMPL_H
#define COMET_TRAIN_GRAPH_IMPL_H

#include "train/graph/graph.h"

typedef enum comet_op_kind {
    COMET_OP_INPUT, /* has no node; a value's producer says so */
    COMET_OP_CONV,
    COMET_OP_BATCH_NORM,
    COMET_OP_RELU,
    COMET_OP_SILU,
    COMET_OP_SIGMOID,
    COMET_OP_ADD,
    COMET_OP_SCALE,
    COMET_OP_MAX_POOL,
    COMET_OP_AVERAGE_POOL,
    COMET_OP_ADAPTIVE_POOL,
    COMET_OP_SHORTCUT,
    COMET_OP_FLATTEN,
    COMET_OP_LINEAR,
    COMET_OP_DROPOUT,
    COMET_OP_STOCHASTIC_DEPTH,
    COMET_OP_KINDS
} comet_op_kind;

enum { COMET_NAME_BYTES = 96 };

/* Places in comet_node.parameter; -1 there: none. */
enum { COMET_PARAMETER_WEIGHT, COMET_PARAMETER_BIAS, COMET_PARAMETER_MEAN, COMET_PARAMETER_VAR, COMET_NODE_PARAMETERS };

typedef struct comet_node {
    comet_op_kind kind;
    char name[COMET_NAME_BYTES]; /* the layer's; for ops without parameters the kind and the node's number */
    int inputs;
    comet_value input[2];
    comet_value output;
    int parameter[COMET_NODE_PARAMETERS];
    union {
        comet_conv2d conv; /* zeros replaced by what they stand for */
        comet_pool2d pool;
        struct {
            float epsilon, momentum;
        } norm;
        float probability; /* of being dropped */
        int stride;        /* of a shortcut */
    } as;
} comet_node;

typedef struct comet_value_info {
    comet_shape shape;
    int producer; /* node; -1: the input */
} comet_value_info;

struct comet_graph {
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    comet_status status;              /* of the first problem */
    comet_message message;
    comet_value_info *values;
    comet_node *nodes;
    comet_parameter *parameters;
    int value_count, node_count, parameter_count;
    size_t value_room, node_room, parameter_room;
    comet_value input, output; /* -1: not set */
    comet_space *space;        /* of the memory; NULL: there is none yet */
    void *memory;
    size_t memory_bytes, gradient_bytes; /* gradients are at its end */
    float *running;                      /* statistics, all together */
};

/* Marks the graph with its first problem. Returns -1. */
comet_value comet_graph_fail(comet_graph *g, comet_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A new node with its output value; NULL after a failure. `name` NULL: made from the kind. */
comet_node *comet_graph_add_node(comet_graph *g, comet_op_kind kind, const char *name, int inputs, comet_value a,
                                 comet_value b, comet_shape shape);

/* A parameter of the graph's last node, at `place`, named after the layer and `suffix`. */
void comet_graph_add_parameter(comet_graph *g, int place, const char *suffix, comet_parameter_kind kind, int ndim,
                               const int64_t *shape, int fan_in, int fan_out);

/* "conv2d", "batch_norm", ...: for names and messages. */
const char *comet_op_name(comet_op_kind kind);

static inline int64_t comet_shape_count(comet_shape s) {
    return (int64_t)s.height * s.width * s.channels;
}

static inline const comet_shape *comet_value_shape(const comet_graph *g, comet_value v) {
    return &g->values[v].shape;
}

/* The graph's parameter at a place of a node, NULL if it has none. */
static inline comet_parameter *comet_node_parameter(const comet_graph *g, const comet_node *node, int place) {
    return node->parameter[place] < 0 ? NULL : &g->parameters[node->parameter[place]];
}

#endif
