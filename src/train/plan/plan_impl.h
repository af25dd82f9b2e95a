/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan is made of: for its parts and for the step. */
#ifndef COMET_TRAIN_PLAN_IMPL_H
#define COMET_TRAIN_PLAN_IMPL_H

#include "train/graph/op.h"
#include "train/plan/plan.h"

typedef struct comet_buffer {
    size_t bytes, offset;
    int first, last; /* times; first negative: never used */
} comet_buffer;

/* What an entry is loaded for. */
typedef enum comet_load_use {
    COMET_LOAD_OPERAND,       /* before the backward */
    COMET_LOAD_NORM_WHOLE,    /* by a batch norm's backward, during it */
    COMET_LOAD_NORM_BY_PARTS, /* the same, a part at a time */
    COMET_LOAD_SIGN /* by the backward of a batch norm with a sum: of its output's stream only the signs are read */
} comet_load_use;

/*
 * Before the backward of a node: an entry into a buffer, and for a NORM what is made of it there; or the forward of a
 * node once more, in the order in which one needs the other.
 */
typedef struct comet_plan_load {
    int entry; /* -1: a forward */
    int buffer;
    comet_rebuild rebuild;
    int is_last; /* then the entry is released */
    comet_load_use use;
    int node, x[2], scratch; /* of a forward */
} comet_plan_load;

enum { COMET_PLAN_PARTS = 4 };

/* After the backward of a node: a sum of gradients. */
typedef struct comet_plan_sum {
    int sum, a, b; /* buffers */
    int64_t count;
} comet_plan_sum;

/*
 * Of a backend with fused streams, what is offloaded: at which time it must have left its buffer, or begins to come
 * back into one. Copies go on beside the nodes in between.
 */
typedef struct comet_plan_move {
    int time, entry;
    int is_back, buffer; /* where it comes back to */
} comet_plan_move;

enum { COMET_PLAN_AHEAD = 4 }; /* nodes that a copy has to go on */

/* Buffers are -1 where there is none. */
typedef struct comet_plan_node {
    int skip;           /* a ReLU or a sum that a batch norm computes: */
    int made_by;        /* that one, -1 */
    int identity;       /* its output is its input: nothing to do */
    int relu_node;      /* a batch norm's: the node of that ReLU, -1 */
    comet_value addend; /* of the sum that it computes, -1 */
    comet_value output; /* the ReLU's output, the sum's, or its own */
    int add, dadd;      /* the addend and its gradient */
    int x[2], y, side, mask, scratch_forward, scratch_backward;
    int needs_x[2], needs_y; /* backward */
    int normalised;          /* needs_x[0] is u */
    int dy, dx[2];
    int adds_dx; /* to what dx[0] has of other uses */
    int save;    /* entry saved after its forward, -1 */
    int save_norm;
    int first_load, loads, first_sum, sums;
    void *state;
} comet_plan_node;

struct comet_plan {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_graph *graph;
    comet_backend *backend;
    comet_plan_options options;
    int n; /* nodes */

    comet_plan_node *nodes;
    comet_buffer *buffers;
    comet_plan_entry *entries;
    comet_plan_load *load_list;
    comet_plan_sum *sum_list;
    comet_plan_move *move_list; /* by time */
    int buffer_count, buffer_room, holds_room, entry_count, entry_room, load_count, load_room, sum_count, sum_room;
    int move_count, move_room;

    /* By value. */
    int *value_buffer;    /* of the forward */
    int *value_entry;     /* VALUE entry, -1 */
    int *value_norm;      /* NORM entry that it can be made from, -1 */
    int *value_rebuild;   /* comet_rebuild */
    int *value_last_use;  /* the last backward that needs it, -1 */
    int *value_loaded;    /* buffer of the backward, -1 */
    int *value_gradient;  /* buffer, -1 */
    int *value_trained;   /* 1: depends on trained parameters: it has a gradient */
    int *value_again;     /* 1: computed again before some backward */
    int *value_exact;     /* 1: what a backward finds is what forward made, bit by bit */
    int *norm_entry;      /* by node: the NORM entry of a batch norm, -1 */
    int *buffer_holds;    /* by buffer: gradients that are in it */
    int input_save;       /* entry of the network's input to save before the first node, -1 */
    int last_scratch;     /* buffer, -1 */
    int running;          /* buffer of running statistics as they were before the step: until all is saved, -1 */
    int dlogits;          /* buffer */
    int computes_again;   /* 1: some entry is */
    size_t largest_bytes; /* of a value */
    size_t buffer_bytes, live_bytes;
    comet_status status; /* of growing */
};

static inline int comet_plan_backward_time(const comet_plan *p, int node) {
    return 2 * p->n - node;
}

/* A new buffer; -1 and p->status after a failure. */
int comet_plan_buffer(comet_plan *p, size_t bytes, int first, int last);
void comet_plan_touch(comet_plan *p, int buffer, int time);

/* The value whose memory it is: through nodes whose output is their input. */
comet_value comet_plan_root(const comet_plan *p, comet_value v);
int comet_plan_is_identity(const comet_plan *p, int node);

int comet_plan_grow(comet_plan *p, void **array, int count, int *room, size_t size);
size_t comet_plan_value_count(const comet_plan *p, comet_value v);
size_t comet_plan_value_bytes(const comet_plan *p, comet_value v);

/* 1: the entry's values come back with their sign: zeros as zeros, others as others. */
int comet_form_keeps_sign(const comet_plan_entry *entry);
int comet_form_is_kept(const comet_form *form); /* in a buffer */
int comet_form_is_exact(const comet_form *form);
int comet_form_shows_sign(const comet_form *form); /* a fused batch norm reads signs off its stream */

/* The node that computes a value: a fused ReLU's is its batch norm. */
int comet_plan_maker(const comet_plan *p, comet_value v);

/* Scratch for one time: what is run then takes turns in it. */
int comet_plan_scratch(comet_plan *p, int time, size_t bytes);

/* stored_bytes and what goes with it, from the form. */
void comet_plan_set_size(comet_plan *p, comet_plan_entry *entry);

/* ---- plan_trained.c: what has a backward, and what that needs ---- */

void comet_plan_find_trained(comet_plan *p);
int comet_plan_has_backward(const comet_plan *p, int node);
unsigned comet_plan_unwanted(const comet_plan *p, int node); /* comet_op_call.unwanted */
unsigned comet_plan_needs(const comet_plan *p, int node);    /* COMET_NEEDS_X0 and so on */

/* The parts, in their order. */
void comet_plan_saved(comet_plan *p);
comet_status comet_plan_prepare(comet_plan *p, comet_message *message);
void comet_plan_forward(comet_plan *p);
void comet_plan_backward(comet_plan *p);
/* Places for streams and moves to the host and back, where they are the plan's. */
void comet_plan_streams(comet_plan *p);

/* When what is offloaded must have left its buffer. */
int comet_plan_gone(const comet_plan *p, int saved_at);
comet_status comet_plan_layout(comet_plan *p);

/* The call of a node, with what does not change from step to step. */
comet_op_call comet_plan_call(const comet_plan *p, int node);

#endif
