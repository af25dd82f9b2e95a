/* SPDX-License-Identifier: Apache-2.0 */
/* What a collector is made of: for its parts. */
#ifndef COMET_TRAIN_COLLECT_IMPL_H
#define COMET_TRAIN_COLLECT_IMPL_H

#include "train/backend/cpu/statistics.h"
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

/* Correlations of inputs and outputs, for each block of outputs: inputs at some positions, their means, weights and two sums of each output. */
enum {
    COMET_COLLECT_OUTPUTS = 16,
    COMET_COLLECT_BLOCK = 4,
    COMET_COLLECT_TOGETHER = 4,
    COMET_COLLECT_ARRAYS = COMET_COLLECT_TOGETHER + 1 + 3 * COMET_COLLECT_BLOCK,
    COMET_COLLECT_COMMON = COMET_COLLECT_OUTPUTS / COMET_COLLECT_BLOCK * COMET_COLLECT_ARRAYS
};

/*
 * How alike two values of a map are at offsets of up to so many pixels, down and to both sides: the mean of their product over that of their
 * squares, a part that is outside counted as 0 (gradients) or left out (errors).
 */
enum {
    COMET_ALIKE_REACH = 6,
    COMET_ALIKE_BLOCKS = 8, /* of offsets, for threads */
    COMET_ALIKE_OFFSETS = COMET_ALIKE_REACH + 1 + COMET_ALIKE_REACH * (2 * COMET_ALIKE_REACH + 1)
};
typedef struct comet_collect_alike {
    double part[COMET_ALIKE_OFFSETS];
} comet_collect_alike;

/* What the codec said of a batch, and of all batches of the update. */
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
    comet_collect_stored now, all;
    int has_alike; /* 1: the two below are there, of the last batch */
    comet_collect_alike plain,
        masked; /* errors: of all values; of those that pass the ReLU, as the layer behind it sees them */
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

/* What was seen at a node; sums over batches of what each batch had. */
typedef struct comet_collect_node {
    int wants;
    double batches;
    double output_squares, output_sizes, positions; /* a layer's: sums over dY; N H' W' */
    double input_squares, input_variances;          /* a layer's: mean over inputs of the sum of x^2, of (x - mean)^2 */
    double
        common_squares; /* a layer's: mean over inputs of (sum of u x)^2 / positions, u an output without mean, of deviation 1 */
    double inside;                       /* a layer's: part of the taps that are not in the padding */
    double derivative;                   /* norm, SiLU: mean of (d output / d stored)^2 */
    double scale_squares;                /* norm, SiLU: sum of (d(dy u)/du)^2 / channels, for one of variance 1 in u */
    double own_gain, common_gain;        /* norm: of dX, each position's own, and what a channel has in common */
    double curve_gain;                   /* SiLU */
    double channel_gain, factor_squares; /* channel scale: without the derivative; mean of s^2 */
    double acgc;                         /* norm: without the sum of dX^2 */
    comet_collect_alike gradient;        /* a layer's dY, a norm's dy behind its ReLU; of the last batch */
} comet_collect_node;

/* Maps of gradients: `read` gives all channels at a place, counted from the first image's. */
typedef struct comet_collect_gradient comet_collect_gradient;
struct comet_collect_gradient {
    int64_t images, channels;
    int height, width;
    void (*read)(const comet_collect_gradient *gradient, int64_t place, float *values);
    const void *context;
};

struct comet_collect {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    const comet_graph *graph;
    comet_threads *threads;
    int batch, acgc;
    int too_many; /* uses of one tensor */
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
    double *scratch, *channels;  /* of comet_statistics_bytes; as many arrays of the most channels */
    float *inverse;              /* and one of floats */
    float *inputs;               /* COMET_COLLECT_COMMON arrays, as long as a layer has inputs at most */
    float *places;               /* four times the channels for each of COMET_ALIKE_BLOCKS */
    int64_t most_channels, most_inputs;
    uint64_t read_bytes;
};

/* Sums by channel. */
static inline int comet_collect_arrays(const comet_collect *c) {
    return c->acgc ? COMET_STATISTICS_MOST_ARRAYS : COMET_STATISTICS_ARRAYS;
}

/* collect_inputs.c: of the input of a convolution or linear layer. */
void comet_collect_see_input(comet_collect *c, const comet_op_call *call, comet_collect_node *node);

/* collect_common.c: common_squares and inside; `sums`: of each channel of the input. */
double comet_collect_common(comet_collect *c, const comet_op_call *call, const double *sums);
double comet_collect_inside(const comet_op_call *call);

/* collect_alike.c: `bound` is absolute. */
void comet_collect_see_errors(comet_collect *c, comet_collect_tensor *t, const comet_plan_entry *e,
                              const comet_tensor *values, const comet_codec_grid *grid, double bound);
void comet_collect_see_gradient(comet_collect *c, const comet_collect_gradient *gradient, comet_collect_alike *found);

/* What the variance of a sum of errors times gradients is multiplied with; a gradient's place is `stride` of the error's. */
double comet_collect_together(const comet_collect_alike *errors, const comet_collect_alike *gradients, int stride);

/* collect_uses.c: a tensor's uses, from the plan. */
void comet_collect_find_uses(comet_collect *c, const comet_plan *plan);

#endif
