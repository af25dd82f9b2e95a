/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the bound of a saved tensor to the error of a gradient, and back: the theory of docs/theory.md as functions.
 * Numbers in, numbers out: nothing is kept, nothing allocated, only + - * / and square roots, so that the results are
 * the same bits everywhere.
 *
 * A saved tensor v is stored as v + e with |e| <= bound, e = 0 where v is stored exactly. What its error does to a
 * gradient is a *use*. For each use sigma = sensitivity * bound, the root mean square error of the values of that
 * gradient.
 *
 * All statistics are of one iteration (of all batches that one update accumulates, added up where they are sums),
 * finite and not negative.
 */
#ifndef COMET_ERROR_MODEL_H
#define COMET_ERROR_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "comet/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a saved tensor is needed for in backward, and so which gradient its error reaches. */
typedef enum comet_use_kind {
    COMET_USE_CONV_WEIGHTS = 0,   /* input of a convolution: its weights' gradient */
    COMET_USE_LINEAR_WEIGHTS = 1, /* input of a linear layer: the same */
    COMET_USE_NORM_SCALE = 2,     /* a batch norm: the gradient of gamma */
    COMET_USE_NORM_INPUT = 3,     /* a batch norm: dX, and with it the weights' gradient of the layer before */
    COMET_USE_CURVE_INPUT = 4,    /* a SiLU (any activation that is not piecewise linear): the same way */
    COMET_USE_CHANNEL_SCALE = 5,  /* a channel scale (squeeze-excite): the weights of the layer that makes the scale */
    COMET_USE_KINDS = 6
} comet_use_kind;

/* "conv_weights", ...; "?" for an unknown kind. Static storage. */
COMET_API const char *comet_use_name(comet_use_kind kind);

/*
 * What was seen of a use. CONV_WEIGHTS, LINEAR_WEIGHTS and NORM_SCALE need the first group, NORM_INPUT, CURVE_INPUT
 * and CHANNEL_SCALE the second, all the momentum. Fields that are not needed are 0.
 */
typedef struct comet_use_stats {
    /*
     * Mean over all stored values of (dx/dv)^2, x being what the layer reads, 0 for values stored exactly. x = v: the
     * share of non-zeros; a normalised value: comet_norm_derivative; NORM_SCALE of a normalised value: 1, of x
     * itself: the mean of 1 / variance.
     */
    double derivative_squares;
    /*
     * The mean over output channels of the sum of L^2 over batch and map: the sum over the whole tensor / channels. L
     * is the gradient at the layer's output; for NORM_SCALE d(dy * u)/du: dy, the gradient behind the ReLU's mask, or
     * dy + dz act''(y) gamma u for a SiLU.
     */
    double gradient_squares;
    double gradient_mean; /* mean |L| (comet:mean and comet:paper alone) */
    double positions;     /* batch * H' * W' (comet:mean alone) */
    double samples;       /* the batch (comet:paper alone) */
    double buffer; /* mean |momentum| as the optimiser has it, not in units of the gradient (comet:paper alone) */

    /* Mean over channels of the variance of dX's error, for an error of variance 1 in the stored value. */
    double error_gain;
    /*
     * Of the layer that this dX reaches: mean over its inputs of the sum of x^2 over batch and output map.
     * CURVE_INPUT: of (x - mean)^2, because a batch norm's backward takes the mean of its errors away.
     */
    double input_squares;

    /*
     * Mean |momentum| of the parameter that it reaches, in units of its gradient: comet_momentum_sgd,
     * comet_momentum_adam.
     */
    double momentum;
    double acgc;       /* AC-GC's squared bound for e = 1: comet_acgc_conv, comet_acgc_norm (acgc alone); 0: no limit */
    double correction; /* for errors of neighbours that are alike, where they were looked at; 0: 1 */
    /*
     * Sigma as it was measured over all of the above's (docs/measured.md; comet_error_factor). Of one update; what a
     * control makes of many is smoothed. 0: not measured, which is 1.
     */
    double factor;
    /*
     * Sigma of the gradient that it reaches, or passes on its way, with all tensors compressed, over what the uses that
     * reach it predict (docs/measured.md, "All together"). A control's own (comet_control_see_joint), not an
     * observation's. 0: not measured, which is 1.
     */
    double joint;
} comet_use_stats;

/*
 * How far sigma is from what independent, uniform errors would make, by bound / rms of the non-zeros: linear between
 * points, constant outside. `at` ascends. count 0: 1 everywhere. See "Where the error is not uniform" in
 * docs/theory.md.
 */
enum { COMET_ERROR_SHAPE_POINTS = 8 };

typedef struct comet_error_shape {
    int32_t count;
    double at[COMET_ERROR_SHAPE_POINTS];
    double factor[COMET_ERROR_SHAPE_POINTS]; /* of sigma; > 0 */
} comet_error_shape;

/* shape may be NULL: 1. */
COMET_API double comet_error_shape_factor(const comet_error_shape *shape, double ratio);

/* sigma / bound for errors that are uniform and independent, with the use's correction, factor and joint factor. */
COMET_API double comet_error_sensitivity(comet_use_kind kind, const comet_use_stats *stats);

/*
 * A use's factor on an update: the root of a measured variance over the predicted one (above 0), held between 1/8 and
 * 16. And what is known after `count` such factors when another one is seen: a mean of their squares that begins with
 * the model, 1, and forgets slowly, held between 1/4 and 8.
 */
COMET_API double comet_error_factor(double measured_variance, double predicted_variance);
COMET_API double comet_error_factor_mean(double factor, int64_t count, double seen);

/*
 * The same of a joint factor. Held between 1 and 8: a part of a batch cannot see errors that all images have in common,
 * and must not take back what other factors say of them. The mean forgets sooner, and begins with the first one seen.
 */
COMET_API double comet_error_joint(double measured_variance, double predicted_variance);
COMET_API double comet_error_joint_mean(double joint, int64_t count, double seen);

/*
 * A form near that of COMET's paper: 0.32 * mean |L| * sqrt(positions * derivative_squares), for weights' gradients;
 * other uses as comet_error_sensitivity. N is the number of positions, not that of samples (docs/theory.md).
 */
COMET_API double comet_error_sensitivity_mean(comet_use_kind kind, const comet_use_stats *stats);

/*
 * The bound of COMET's paper, as it writes it: 0.01 * buffer / (0.32 * mean |L| * sqrt(samples * derivative_squares)),
 * for weights' gradients. INFINITY: no gradient; 0: another use, of which the paper says nothing.
 */
COMET_API double comet_error_bound_paper(comet_use_kind kind, const comet_use_stats *stats);

/* sigma at a bound; rms is that of the tensor's non-zeros (0: unknown, no shape). */
COMET_API double comet_error_sigma(double sensitivity, const comet_error_shape *shape, double bound, double rms);

/* The bound at which sigma is reached. INFINITY if sensitivity is 0: the use limits nothing. */
COMET_API double comet_error_bound(double sensitivity, const comet_error_shape *shape, double sigma, double rms);

/* ---- the unit of momentum: a mean of gradients ---- */

/*
 * From the mean of |buffer| after `updates` updates (>= 1) of b = m b + g, as PyTorch's SGD keeps it, Nesterov or
 * not: divided by the sum of the weights m^0 .. m^(updates - 1). m = 0: the mean of |g| itself.
 */
COMET_API double comet_momentum_sgd(double mean_buffer, double momentum, int64_t updates);

/*
 * From the mean of |first moment| after `updates` updates of f = beta1 f + (1 - beta1) g: Adam's own bias correction.
 */
COMET_API double comet_momentum_adam(double mean_moment, double beta1, int64_t updates);

/*
 * ---- batch norm: y = gamma * u + beta, u = (x - mean) / deviation; dy is the gradient at y (behind the activation's
 * mask) ----
 */

/* Sums over batch and map, one a channel. NULL: not needed for what is asked. */
typedef struct comet_norm_stats {
    int64_t channels;
    double positions;               /* batch * H * W */
    const float *gamma;             /* */
    const float *inverse_deviation; /* */
    const double *scale_gradient;   /* sum of dy * u: the gradient of gamma */
    const double *gradient_squares; /* sum of dy^2 */
    const double *slope_squares;    /* sum of act'(y)^2: for a ReLU the number of y > 0; NULL: no activation */
    const double *curve_squares;    /* sum of (dz * act''(y))^2, dz the gradient behind the activation */
    double
        fan_in; /* independent inputs of one output of the layer before: at most C * kernel height * width / groups */
} comet_norm_stats;

/* derivative_squares of a layer that reads act(y), rebuilt from u. Needs gamma, slope_squares. */
COMET_API double comet_norm_derivative(const comet_norm_stats *norm);

/* error_gain of NORM_INPUT. Needs gamma, inverse_deviation, scale_gradient, gradient_squares, fan_in. */
COMET_API double comet_norm_input_gain(const comet_norm_stats *norm);

/* error_gain of CURVE_INPUT. Needs gamma, inverse_deviation, curve_squares. */
COMET_API double comet_norm_curve_gain(const comet_norm_stats *norm);

/* ---- AC-GC's squared bounds for e = 1, as written in its paper ---- */

/*
 * |dW|^2 / (2 * values * u * sum |dY|^2), u = kernel height * width / stride^2; `values` are all those of the input,
 * and squares are sums over whole tensors. 0, which is no limit, where no gradient comes in.
 */
COMET_API double comet_acgc_conv(double weight_gradient_squares, double output_gradient_squares, double values,
                                 double kernel, double stride);

/*
 * The batch norm's, for u: the least over channels. `nonzero` of a channel's gradients, and greatest |dy|, |u|, may
 * differ by channel.
 */
typedef struct comet_acgc_norm_stats {
    const comet_norm_stats *norm;   /* gamma, inverse_deviation, scale_gradient, positions */
    double input_gradient_squares;  /* sum of dX^2 over the whole tensor */
    const double *nonzero;          /* gradients that are not 0, by channel */
    const float *greatest_gradient; /* |dy|, by channel */
    const float *greatest_value;    /* |x - mean|, by channel */
} comet_acgc_norm_stats;

COMET_API double comet_acgc_norm(const comet_acgc_norm_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
