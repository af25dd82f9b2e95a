/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the error of a stored tensor does to gradients, computed and not modelled (docs/measured.md): for a few channels
 * of a tensor that were kept as they were.
 *
 * Arrays are in the backend's space unless they are said to be the host's. What is kept has `width` channels, from
 * channel `first` of the tensor on, in rows: one for each pixel of each image. Sums are the host's, and are added to:
 * when a call returns, or, of a backend whose statistics are settled (comet_backend_statistics.settle), with them. They
 * must have their place until then.
 *
 * In 16 bits what a layer reads is rebuilt as the trainer does it, rounded where it rounds.
 */
#ifndef COMET_TRAIN_ERRORS_H
#define COMET_TRAIN_ERRORS_H

#include "comet/tensor.h"
#include "train/backend/holder.h"

enum { COMET_ERRORS_WIDTH = 8, COMET_ERRORS_OTHERS = 16, COMET_ERRORS_SUMS = 512 };

typedef struct comet_errors_kept {
    const float *values; /* rows x width */
    int first, width;
} comet_errors_kept;

/* What a layer reads, rebuilt from what was kept. */
typedef struct comet_errors_operand {
    comet_errors_kept kept;
    const float *gamma, *beta; /* by channel of the tensor: gamma v + beta; NULL: v itself */
    comet_rebuild what;        /* of that: its ReLU or SiLU */
    const float *factors;      /* and times these: images x width; NULL: 1 */
} comet_errors_operand;

/*
 * An error in a convolution's (linear layer's) input, or in the gradient of its output, reaches its weights: the sum
 * over positions of their products, for `count` channels of the one and `others` of the other, at each tap:
 * sums[(tap * count + i) * others + j], 0 where i and j are not in the same group.
 */
typedef struct comet_errors_layer {
    const comet_tensor *x, *dy;
    int kernel[2], padding[2], stride, groups;
    const comet_errors_operand *exact; /* the error is that of x, against this; NULL: */
    const comet_errors_kept *error;    /* it is this one, of dy */
    int count;                         /* of the kept channels, the first */
    int other, others;                 /* channels of the other side */
    void *workspace;
} comet_errors_layer;

/*
 * A batch norm's backward with what is stored of its input and as it was: totals[4 i .. 4 i + 3] of kept channel i are
 * the sums of g', g' u', g and g u. Comes in parts of images, each twice: first for the sums, which that of row 0
 * begins, then (all of them added) for the error of dX, which may go over what was kept.
 */
typedef struct comet_errors_norm {
    const comet_tensor *x;      /* of the part: u' if normalised, else the norm's input */
    const comet_tensor *dy;     /* of the part */
    const float *scale, *shift; /* by channel: u = scale x + shift; shift is not read if normalised */
    const float *gamma, *beta;
    int normalised, relu;
    const uint8_t *mask;    /* of the whole batch; NULL: gamma u' + beta > 0 */
    int64_t row, rows;      /* the part's first; of the whole batch */
    comet_errors_kept kept; /* of the whole batch: u if it is normalised, else the input */
    int kept_normalised;
    const float *curve; /* rows x width of the batch: g - g', of a SiLU behind the norm; NULL: 0 */
    float *error;       /* rows x width of the batch; NULL: sums are wanted */
    double *totals;     /* 4 x width, in the backend's space */
    void *workspace;
} comet_errors_norm;

/* What a SiLU's backward gives for its input as it was, less what it gives for x: dz (act'(y) - act'(y')). */
typedef struct comet_errors_silu {
    const comet_tensor *x, *dy;
    comet_errors_operand exact; /* y, without the SiLU */
    float sign;                 /* -1: the other way round */
    float *curve;               /* rows x width; may be what was kept */
} comet_errors_silu;

/* A channel scale's factors: s (1 - s) times the sum over the map of dy (x' - x). */
typedef struct comet_errors_scale {
    const comet_tensor *x, *factors, *dy;
    comet_errors_operand exact;
    float *error; /* images x width */
} comet_errors_scale;

typedef struct comet_backend_errors {
    /* Bytes of workspace for errors of a tensor that has so many pixels an image, in so many channels. */
    size_t (*workspace)(comet_backend *backend, int64_t pixels, int width);
    /* Some channels of a tensor, on a grid (NULL: none) as the codec sees them: from `values` on, in rows. */
    comet_status (*keep)(comet_backend *backend, const comet_tensor *values, const comet_codec_grid *grid, int first,
                         int width, float *kept);
    comet_status (*layer)(comet_backend *backend, const comet_errors_layer *layer, double *sums);
    /* `scale`: of the last part's sums, or NULL: the error of each kept channel's scale gradient is added there. */
    comet_status (*norm)(comet_backend *backend, const comet_errors_norm *norm, double *scale);
    comet_status (*silu)(comet_backend *backend, const comet_errors_silu *silu);
    comet_status (*scale)(comet_backend *backend, const comet_errors_scale *scale);
} comet_backend_errors;

#endif
