/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses (comet_use_stats), computed from tensors: for training loops of one's own, in any framework.
 *
 *     comet_stats_layer conv = COMET_STATS_LAYER_INIT;             before the first batch of an update
 *     comet_stats_tensor saved = COMET_STATS_TENSOR_INIT;
 *     comet_stats_see_tensor(&tensor_pass, &exec, &saved);         in forward, when the tensor is stored
 *     comet_stats_see_layer(&layer_pass, &exec, &conv);            in backward, where x and dY are at hand
 *     comet_stats_use use = COMET_STATS_USE_INIT;                  after the update
 *     use.kind = COMET_USE_CONV_WEIGHTS, use.tensor = &saved, use.layer = &conv, use.momentum = ...;
 *     comet_stats_of_use(&use, &stats);                            for comet_control_observe
 *
 * What was seen is kept in structs that the caller owns: plain data, which may be copied, kept and put back. Several
 * batches of one update are added up by calling again. docs/statistics.md says which use needs what; docs/theory.md,
 * why.
 *
 * Tensors: fp32, in CPU memory, any strides. NHWC and NCHW with 4 dimensions, or 3, the height being left out; any
 * layout with 2: rows and channels. The results are the same bits whatever the layout, the strides and the number of
 * threads: sums run over batch, rows, columns, channels in this order, in fixed blocks. Nothing is allocated and
 * nothing kept but the structs.
 *
 * All calls: COMET_ERROR_ARGUMENT: a NULL, an empty tensor, shapes that do not fit each other, a struct without its
 * size; COMET_ERROR_UNSUPPORTED: a tensor that is not fp32 or not in CPU memory; COMET_ERROR_CAPACITY: the workspace
 * is too small. Nothing has changed then. COMET_ERROR_DIVERGED: something seen is infinite or NaN, or its square is (in
 * fp32: from 1e18 on); it was added, and comet_stats_of_use says the same of what follows from it, until the struct is
 * initialised again.
 */
#ifndef COMET_USE_STATS_H
#define COMET_USE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"
#include "comet/control.h"
#include "comet/error_model.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"
#include "comet/threads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How to run. None of this changes a bit of the result. */
typedef struct comet_stats_exec {
    size_t size;            /* sizeof(comet_stats_exec) */
    comet_threads *threads; /* NULL: the calling thread alone */
    void *workspace;        /* aligned to 64 bytes; what the call's own query says, or more */
    size_t workspace_bytes;
    void *queue; /* of a device; not read for tensors in CPU memory */
} comet_stats_exec;

#define COMET_STATS_EXEC_INIT COMET_INIT_ZERO(comet_stats_exec)

/*
 * How alike two values of a map are at offsets of up to so many pixels down and to both sides: docs/theory.md, 5.
 * Offsets in the order (0, 0) .. (0, REACH), (1, -REACH) .. (1, REACH), (2, -REACH), ...
 */
enum { COMET_STATS_REACH = 6, COMET_STATS_OFFSETS = 85 };

typedef struct comet_stats_alike {
    double part[COMET_STATS_OFFSETS];
} comet_stats_alike;

/* ---- a saved tensor, when it is stored ---- */

typedef struct comet_stats_tensor {
    size_t size;                  /* sizeof(comet_stats_tensor) */
    double count, nonzero;        /* values */
    double squares;               /* the sum of their squares */
    double streams, bytes, bound; /* how many streams; sums over them */
    int32_t has_alike;            /* 1: both below are there, of the last call that had values */
    comet_stats_alike all,
        passed; /* errors: of all values; of those that pass the ReLU, as the layer behind sees them */
} comet_stats_tensor;

#define COMET_STATS_TENSOR_INIT COMET_INIT_ZERO(comet_stats_tensor)

typedef struct comet_tensor_pass {
    size_t size;                      /* sizeof(comet_tensor_pass) */
    const comet_codec_record *result; /* what the codec said of the stream: comet_store_info has it */
    /*
     * What was compressed, as it was before: for how alike the errors of neighbours are. NULL: not looked at. Where a
     * batch is stored in several streams, the first one's values are enough.
     */
    const comet_tensor *values;
    const comet_codec_grid *grid; /* that was given to the codec; NULL: none, and what is 0 has no error */
    const float *gamma;           /* by channel: the layer behind reads gamma times what is stored; NULL: 1 */
    int32_t relu;                 /* 1: and only what is on the grid's side where the ReLU is on */
} comet_tensor_pass;

#define COMET_TENSOR_PASS_INIT COMET_INIT_ZERO(comet_tensor_pass)

/* Values that are not finite are in no sum, as the codec counts them; they are still COMET_ERROR_DIVERGED. */
COMET_API comet_status comet_stats_tensor_workspace(const comet_tensor_pass *pass, size_t *bytes);
COMET_API comet_status comet_stats_see_tensor(const comet_tensor_pass *pass, const comet_stats_exec *exec,
                                              comet_stats_tensor *tensor);

/*
 * For an observation: the rms of the non-zeros; the mean bound, and the bytes of one batch, of which the tensor has
 * `values`.
 */
COMET_API double comet_stats_tensor_rms(const comet_stats_tensor *tensor);
COMET_API comet_control_size comet_stats_tensor_size(const comet_stats_tensor *tensor, int64_t values);

/* ---- a convolution or linear layer ---- */

/* What is to be seen of a layer. */
enum {
    COMET_STATS_OUTPUT = 1, /* dY: for uses of its input, and acgc's of a norm behind it */
    COMET_STATS_INPUT = 2,  /* x: for uses whose error reaches its weights through dY */
    COMET_STATS_COMMON = 4  /* with INPUT: how far outputs correlate with x; of a layer before a batch norm */
};

typedef struct comet_stats_layer {
    size_t size;                             /* sizeof(comet_stats_layer) */
    double batches, positions, samples;      /* how many; sums of batch * H' * W', of batch */
    double inside;                           /* part of the taps that are not in the padding; summed over batches */
    double gradient_squares, gradient_sizes; /* OUTPUT: sums of dY^2 and |dY| */
    double input_squares, input_variances;   /* INPUT: mean over inputs of the sum of x^2, of (x - mean)^2 */
    double common_squares;                   /* COMMON: Y of docs/theory.md, 2.4 */
    double outputs, kernel;                  /* channels of dY; taps of the kernel */
    int32_t stride[2];                       /* */
    comet_stats_alike gradient;              /* OUTPUT: dY, of the last batch */
} comet_stats_layer;

#define COMET_STATS_LAYER_INIT COMET_INIT_ZERO(comet_stats_layer)

/* Its backward has x and dY. Of a tensor that is not to be seen only the shape is read. Both have the same batch. */
typedef struct comet_layer_pass {
    size_t size;                  /* sizeof(comet_layer_pass) */
    uint32_t what;                /* COMET_STATS_OUTPUT | ... */
    const comet_tensor *input;    /* x */
    const comet_tensor *gradient; /* dY */
    const float *weights;         /* COMMON: outputs, inputs / groups, kernel height, width, as PyTorch has them */
    int32_t kernel[2], stride[2], padding[2], dilation[2]; /* down, right; a linear layer: as they are initialised */
    int32_t groups;
} comet_layer_pass;

#define COMET_LAYER_PASS_INIT                                                                                          \
    COMET_INIT(comet_layer_pass, COMET_FIELD(what) = COMET_STATS_OUTPUT, COMET_FIELD(kernel[0]) = 1,                   \
               COMET_FIELD(kernel[1]) = 1, COMET_FIELD(stride[0]) = 1, COMET_FIELD(stride[1]) = 1,                     \
               COMET_FIELD(dilation[0]) = 1, COMET_FIELD(dilation[1]) = 1, COMET_FIELD(groups) = 1)

COMET_API comet_status comet_stats_layer_workspace(const comet_layer_pass *pass, size_t *bytes);
COMET_API comet_status comet_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                             comet_stats_layer *layer);

/* ---- a batch norm: y = gamma * u + beta, u = scale * x + shift, of which u or x is stored; a ReLU may follow ---- */

/* Means over channels, summed over batches; for an error of variance 1 in what is stored. */
typedef struct comet_stats_norm {
    size_t size;                  /* sizeof(comet_stats_norm) */
    double batches;               /* complete ones */
    double pixels;                /* seen of the batch that is not complete */
    double derivative;            /* mean of (d output / d stored)^2 */
    double scale_squares;         /* sum of (d(dy u) / d stored)^2 */
    double own_gain, common_gain; /* of dX: each position's own error, and what a channel has in common */
    double acgc;                  /* without the sum of dX^2 */
    comet_stats_alike gradient;   /* dy behind the ReLU, of the last batch's first part */
} comet_stats_norm;

#define COMET_STATS_NORM_INIT COMET_INIT_ZERO(comet_stats_norm)

typedef struct comet_norm_pass {
    size_t size;                  /* sizeof(comet_norm_pass) */
    const comet_tensor *values;   /* u, or x */
    const comet_tensor *gradient; /* at the norm's output, or at the ReLU's */
    const float *scale;           /* by channel: 1 / deviation */
    const float *shift;           /* by channel: -mean / deviation; NULL: `values` are u */
    const float *gamma, *beta;    /* by channel */
    int32_t relu;                 /* 1: a ReLU is behind the norm, and `gradient` behind that */
    int32_t acgc;                 /* 1: what acgc alone needs, too */
    const uint8_t *mask;          /* where the ReLU is on: bit i % 8 of byte i / 8 for value i of the batch, in the
                                     order N, H, W, C; NULL: where gamma * u + beta > 0 */
    /*
     * A batch that comes in parts: whole images, in order, one call for each part, the workspace untouched in
     * between. The norm counts the batch with the last part.
     */
    int32_t part, parts;
    int32_t
        normalised; /* 1: `values` are x, with a shift, but the error that is stored is one of u: x on a grid that is
                           scaled by 1 / deviation, say */
} comet_norm_pass;

#define COMET_NORM_PASS_INIT COMET_INIT(comet_norm_pass, COMET_FIELD(parts) = 1)

COMET_API comet_status comet_stats_norm_workspace(const comet_norm_pass *pass, size_t *bytes);
COMET_API comet_status comet_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec,
                                            comet_stats_norm *norm);

/* ---- a SiLU ---- */

/* Means over channels, summed over batches; for an error of variance 1 in what is stored. */
typedef struct comet_stats_silu {
    size_t size; /* sizeof(comet_stats_silu) */
    double batches;
    double derivative;    /* mean of (d output / d stored)^2 */
    double curve_gain;    /* of dX */
    double scale_squares; /* sum of (d(dy u) / du)^2: of the norm before it */
} comet_stats_silu;

#define COMET_STATS_SILU_INIT COMET_INIT_ZERO(comet_stats_silu)

typedef struct comet_silu_pass {
    size_t size;                       /* sizeof(comet_silu_pass) */
    const comet_tensor *input;         /* y, what the SiLU reads */
    const comet_tensor *gradient;      /* dz, at its output */
    const float *scale, *gamma, *beta; /* of the batch norm that makes y, by channel as above; NULL, all three: none */
    int32_t normalised;                /* 1: what is stored is that norm's u; 0: y */
} comet_silu_pass;

#define COMET_SILU_PASS_INIT COMET_INIT_ZERO(comet_silu_pass)

COMET_API comet_status comet_stats_silu_workspace(const comet_silu_pass *pass, size_t *bytes);
COMET_API comet_status comet_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec,
                                            comet_stats_silu *silu);

/* ---- a channel scale (squeeze-excite): y = x * s, s = sigmoid(z) ---- */

typedef struct comet_stats_scale {
    size_t size; /* sizeof(comet_stats_scale) */
    double batches;
    double gain; /* mean over batch and channels of (s (1 - s))^2 * (sum of dy^2 over the map); summed over batches */
    double squares; /* mean of s^2; summed over batches */
} comet_stats_scale;

#define COMET_STATS_SCALE_INIT COMET_INIT_ZERO(comet_stats_scale)

typedef struct comet_scale_pass {
    size_t size;                  /* sizeof(comet_scale_pass) */
    const comet_tensor *factors;  /* s: one of each channel and image */
    const comet_tensor *gradient; /* dy */
} comet_scale_pass;

#define COMET_SCALE_PASS_INIT COMET_INIT_ZERO(comet_scale_pass)

COMET_API comet_status comet_stats_scale_workspace(const comet_scale_pass *pass, size_t *bytes);
COMET_API comet_status comet_stats_see_scale(const comet_scale_pass *pass, const comet_stats_exec *exec,
                                             comet_stats_scale *scale);

/* ---- a use ---- */

/*
 * What a use is made of. NULL where there is nothing of the kind.
 *   CONV_WEIGHTS,   tensor; layer: that reads it (OUTPUT). If what it reads is rebuilt from what is stored: norm, whose
 *   LINEAR_WEIGHTS  output (behind its ReLU) it is, or silu, whose output it is; and scale, by which it is multiplied
 *   NORM_SCALE      tensor, norm; silu: behind the norm
 *   NORM_INPUT      tensor, norm; layer: before the norm (INPUT, COMMON; acgc: OUTPUT)
 *   CURVE_INPUT     tensor, silu; norm: between the layer and the SiLU, if its u is stored; layer: before it (INPUT)
 *   CHANNEL_SCALE   tensor, scale; layer: that makes the factors (INPUT); norm or silu as for the first two
 */
typedef struct comet_stats_use {
    size_t size; /* sizeof(comet_stats_use) */
    comet_use_kind kind;
    const comet_stats_tensor *tensor;
    const comet_stats_layer *layer;
    const comet_stats_norm *norm;
    const comet_stats_silu *silu;
    const comet_stats_scale *scale;
    double momentum;                /* comet_momentum_sgd, comet_momentum_adam */
    double buffer;                  /* what these are made of (comet:paper alone) */
    double weight_gradient_squares; /* acgc's, of the first two kinds: the sum of dW^2 */
} comet_stats_use;

#define COMET_STATS_USE_INIT COMET_INIT_ZERO(comet_stats_use)

/* COMET_ERROR_ARGUMENT: something that the kind needs is not there, or has not seen a batch. */
COMET_API comet_status comet_stats_of_use(const comet_stats_use *use, comet_use_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
