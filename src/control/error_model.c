/* SPDX-License-Identifier: Apache-2.0 */
/* Sensitivities of gradients to the bound, and the unit of momentum. docs/theory.md derives each line. */
#include "comet/error_model.h"

#include <math.h>

/* COMET's coefficient, found by its authors' measurements; and how much of the momentum sigma may be. */
static const double paper_coefficient = 0.32, paper_part = 0.01;

const char *comet_use_name(comet_use_kind kind) {
    static const char *const names[COMET_USE_KINDS] = {"conv_weights", "linear_weights", "norm_scale",
                                                       "norm_input",   "curve_input",    "channel_scale"};
    return (unsigned)kind < COMET_USE_KINDS ? names[kind] : "?";
}

static int is_weights(comet_use_kind kind) {
    return kind == COMET_USE_CONV_WEIGHTS || kind == COMET_USE_LINEAR_WEIGHTS;
}

static double correction_of(const comet_use_stats *stats) {
    const double correction = stats->correction > 0.0 ? stats->correction : 1.0;
    const double joint = stats->joint > 0.0 ? stats->joint : 1.0;
    return (stats->factor > 0.0 ? correction * stats->factor : correction) * joint;
}

/* An error that is uniform in [-1, 1] has the variance 1/3. */
double comet_error_sensitivity(comet_use_kind kind, const comet_use_stats *stats) {
    double squares = is_weights(kind) || kind == COMET_USE_NORM_SCALE
                         ? stats->derivative_squares * stats->gradient_squares
                         : stats->error_gain * stats->input_squares;
    return correction_of(stats) * sqrt(squares / 3.0);
}

double comet_error_sensitivity_mean(comet_use_kind kind, const comet_use_stats *stats) {
    if (!is_weights(kind))
        return comet_error_sensitivity(kind, stats);
    return correction_of(stats) * paper_coefficient * stats->gradient_mean *
           sqrt(stats->positions * stats->derivative_squares);
}

double comet_error_bound_paper(comet_use_kind kind, const comet_use_stats *stats) {
    if (!is_weights(kind))
        return 0.0;
    const double slope = paper_coefficient * stats->gradient_mean * sqrt(stats->samples * stats->derivative_squares);
    return slope > 0.0 ? paper_part * stats->buffer / slope : (double)INFINITY;
}

/* ---- measured factors ---- */

static double held(double x, double least, double most) {
    return x < least ? least : x > most ? most : x;
}

double comet_error_factor(double measured_variance, double predicted_variance) {
    return held(sqrt(measured_variance / predicted_variance), 0.125, 16.0);
}

double comet_error_factor_mean(double factor, int64_t count, double seen) {
    const double before = count > 0 ? factor : 1.0, own = 1.0 / (double)(count + 2), weight = own > 0.05 ? own : 0.05;
    return held(sqrt(before * before + weight * (seen * seen - before * before)), 0.25, 8.0);
}

double comet_error_joint(double measured_variance, double predicted_variance) {
    return held(sqrt(measured_variance / predicted_variance), 1.0, 8.0);
}

double comet_error_joint_mean(double joint, int64_t count, double seen) {
    const double before = count > 0 ? joint : seen, own = 1.0 / (double)(count + 1), weight = own > 0.25 ? own : 0.25;
    return held(sqrt(before * before + weight * (seen * seen - before * before)), 1.0, 8.0);
}

/* ---- the shape of errors ---- */

double comet_error_shape_factor(const comet_error_shape *shape, double ratio) {
    if (!shape || shape->count == 0)
        return 1.0;
    int last = shape->count - 1;
    if (!(ratio > shape->at[0]))
        return shape->factor[0];
    for (int i = 0; i < last; i++) {
        double low = shape->at[i], high = shape->at[i + 1];
        if (ratio < high)
            return shape->factor[i] + (shape->factor[i + 1] - shape->factor[i]) * ((ratio - low) / (high - low));
    }
    return shape->factor[last];
}

static double factor_at(const comet_error_shape *shape, double bound, double rms) {
    return rms > 0.0 ? comet_error_shape_factor(shape, bound / rms) : 1.0;
}

double comet_error_sigma(double sensitivity, const comet_error_shape *shape, double bound, double rms) {
    return sensitivity * bound * factor_at(shape, bound, rms);
}

/*
 * With a shape the bound stands on both sides of the equation. Bisection between what its least and its greatest
 * factor allow; of the two ends the lower is returned, which never errs on the coarse side if sigma grows with the
 * bound.
 */
double comet_error_bound(double sensitivity, const comet_error_shape *shape, double sigma, double rms) {
    if (!(sensitivity > 0.0))
        return INFINITY;
    double plain = sigma / sensitivity;
    if (!shape || shape->count == 0 || !(rms > 0.0))
        return plain;
    double least = shape->factor[0], greatest = shape->factor[0];
    for (int i = 1; i < shape->count; i++) {
        least = shape->factor[i] < least ? shape->factor[i] : least;
        greatest = shape->factor[i] > greatest ? shape->factor[i] : greatest;
    }
    double low = plain / greatest, high = plain / least;
    if (comet_error_sigma(sensitivity, shape, high, rms) <= sigma)
        return high;
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (comet_error_sigma(sensitivity, shape, middle, rms) <= sigma)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* By squaring: the same bits everywhere, which pow does not promise. */
static double power(double base, int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

double comet_momentum_sgd(double mean_buffer, double momentum, int64_t updates) {
    return mean_buffer * (1.0 - momentum) / (1.0 - power(momentum, updates));
}

double comet_momentum_adam(double mean_moment, double beta1, int64_t updates) {
    return mean_moment / (1.0 - power(beta1, updates));
}
