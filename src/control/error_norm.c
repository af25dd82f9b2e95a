/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch norm's sums say of the error that its stored value makes; AC-GC's bounds. docs/theory.md derives the
 * first three.
 */
#include <math.h>

#include "comet/error_model.h"

static double square(double x) {
    return x * x;
}

double comet_norm_derivative(const comet_norm_stats *norm) {
    double sum = 0.0;
    for (int64_t c = 0; c < norm->channels; c++) {
        double slopes = norm->slope_squares ? norm->slope_squares[c] / norm->positions : 1.0;
        sum += square((double)norm->gamma[c]) * slopes;
    }
    return sum / (double)norm->channels;
}

/*
 * dX' - dX = -(gamma / deviation) * (e * mean(dy u) + u * mean(dy e)) up to second order. The first part is an error
 * of its own at each position; the second is one number a channel times u, which reaches a weight as far as u
 * correlates with that weight's input.
 */
double comet_norm_input_gain(const comet_norm_stats *norm) {
    double sum = 0.0;
    for (int64_t c = 0; c < norm->channels; c++) {
        double scale = (double)norm->gamma[c] * (double)norm->inverse_deviation[c];
        double own = square(norm->scale_gradient[c] / norm->positions);
        double common = norm->gradient_squares[c] / norm->positions / norm->fan_in;
        sum += square(scale) * (own + common);
    }
    return sum / (double)norm->channels;
}

double comet_norm_curve_gain(const comet_norm_stats *norm) {
    double sum = 0.0;
    for (int64_t c = 0; c < norm->channels; c++) {
        double scale = square((double)norm->gamma[c]) * (double)norm->inverse_deviation[c];
        sum += square(scale) * (norm->curve_squares[c] / norm->positions);
    }
    return sum / (double)norm->channels;
}

double comet_acgc_conv(double weight_gradient_squares, double output_gradient_squares, double values, double kernel,
                       double stride) {
    double below = 2.0 * values * (kernel / square(stride)) * output_gradient_squares;
    return below > 0.0 ? weight_gradient_squares / below : 0.0;
}

/* The paper's bound is on x; that of u is 1 / deviation times it. */
double comet_acgc_norm(const comet_acgc_norm_stats *stats) {
    const comet_norm_stats *norm = stats->norm;
    double least = 0.0;
    for (int64_t c = 0; c < norm->channels; c++) {
        double s2 = square((double)norm->inverse_deviation[c]);
        double worst = s2 * square(stats->nonzero[c] * (double)stats->greatest_gradient[c]) *
                       square(0.5 * (double)stats->greatest_value[c]);
        double below = (double)norm->channels * square((double)norm->gamma[c]) * square(s2) *
                       (worst + square(norm->scale_gradient[c]));
        double bound = below > 0.0 ? stats->input_gradient_squares * norm->positions / below * s2 : 0.0;
        if (bound > 0.0 && (least == 0.0 || bound < least))
            least = bound;
    }
    return least;
}
