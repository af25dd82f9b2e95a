/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error model against brute force: uniform errors are put into a stored tensor many times, the gradient is computed
 * in full from each, and its error is compared with what the formula says.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/error_model.h"

#include "support/rng.h"
#include "test_control_case.h"

enum { BATCH = 6, INPUTS = 4, OUTPUTS = 6, KERNEL = 3, SIDE = 10, MAP = SIDE - KERNEL + 1 };
enum { TAPS = KERNEL * KERNEL, FAN_IN = INPUTS * TAPS, POSITIONS = BATCH * MAP * MAP };
enum { X_COUNT = BATCH * INPUTS * SIDE * SIDE, Y_COUNT = BATCH * OUTPUTS * MAP * MAP, W_COUNT = OUTPUTS * FAN_IN };
enum { TRIALS = 400 };

static const double bound = 0.05;

/* Sums of squared differences to the exact gradient. */
typedef struct spread {
    double squares;
    int64_t count;
} spread;

static void add_spread(spread *s, const double *exact, const double *found, int count) {
    for (int i = 0; i < count; i++)
        s->squares += (found[i] - exact[i]) * (found[i] - exact[i]);
    s->count += count;
}

static void assert_sigma(const char *what, spread measured, double predicted, double tolerance) {
    double sigma = sqrt(measured.squares / (double)measured.count);
    print_message("%s: measured %.5g, predicted %.5g, ratio %.3f\n", what, sigma, predicted, predicted / sigma);
    if (!(fabs(predicted / sigma - 1.0) < tolerance))
        fail_msg("%s: off by more than %g", what, tolerance);
}

static double uniform(rng *r) {
    return bound * (2.0 * rng_unit(r) - 1.0);
}

static void fill_gauss(rng *r, double *values, int count, double scale) {
    for (int i = 0; i < count; i++)
        values[i] = scale * rng_gauss(r);
}

static double squares_of(const double *values, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sum;
}

static int x_at(int n, int c, int h, int w) {
    return ((n * INPUTS + c) * SIDE + h) * SIDE + w;
}

static int y_at(int n, int k, int p) {
    return (n * OUTPUTS + k) * MAP * MAP + p;
}

/* dW = sum over batch and map of L * x, without padding. */
static void weight_gradient(const double *x, const double *l, double *dw) {
    memset(dw, 0, W_COUNT * sizeof *dw);
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < OUTPUTS; k++)
            for (int c = 0; c < INPUTS; c++)
                for (int t = 0; t < TAPS; t++) {
                    double sum = 0.0;
                    for (int p = 0; p < MAP * MAP; p++)
                        sum += l[y_at(n, k, p)] * x[x_at(n, c, p / MAP + t / KERNEL, p % MAP + t % KERNEL)];
                    dw[(k * INPUTS + c) * TAPS + t] += sum;
                }
}

static void convolve(const double *x, const double *weights, double *y) {
    memset(y, 0, Y_COUNT * sizeof *y);
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < OUTPUTS; k++)
            for (int i = 0; i < FAN_IN; i++)
                for (int p = 0; p < MAP * MAP; p++)
                    y[y_at(n, k, p)] += weights[k * FAN_IN + i] *
                                        x[x_at(n, i / TAPS, p / MAP + i % TAPS / KERNEL, p % MAP + i % TAPS % KERNEL)];
}

static double x[X_COUNT], x_error[X_COUNT], l[Y_COUNT], dw[W_COUNT], dw_error[W_COUNT];

static void test_convolution_reads_what_is_stored(void **state) {
    (void)state;
    rng r = rng_seed(1);
    int nonzero = 0;
    fill_gauss(&r, x, X_COUNT, 1.0);
    fill_gauss(&r, l, Y_COUNT, 0.01);
    for (int i = 0; i < X_COUNT; i++) {
        x[i] = x[i] > 0.3 ? x[i] : 0.0;
        nonzero += x[i] > 0.0;
    }
    weight_gradient(x, l, dw);
    spread measured = {0};
    for (int trial = 0; trial < TRIALS; trial++) {
        for (int i = 0; i < X_COUNT; i++)
            x_error[i] = x[i] > 0.0 ? x[i] + uniform(&r) : 0.0;
        weight_gradient(x_error, l, dw_error);
        add_spread(&measured, dw, dw_error, W_COUNT);
    }
    comet_use_stats stats = {.derivative_squares = (double)nonzero / X_COUNT,
                             .gradient_squares = squares_of(l, Y_COUNT) / OUTPUTS};
    double sensitivity = comet_error_sensitivity(COMET_USE_CONV_WEIGHTS, &stats);
    assert_sigma("conv dW", measured, bound * sensitivity, 0.03);
    stats.correction = 2.0;
    assert_near(comet_error_sensitivity(COMET_USE_CONV_WEIGHTS, &stats), 2.0 * sensitivity, 1e-15);
}

/* x = relu(gamma u + beta), its mask exact, as the threshold grid keeps it. */
static void test_convolution_reads_what_is_rebuilt(void **state) {
    (void)state;
    static const float gamma[INPUTS] = {0.2f, 1.5f, -0.8f, 0.05f};
    static const double beta[INPUTS] = {0.1, -0.7, 0.2, -0.01};
    double on[INPUTS] = {0.0};
    rng r = rng_seed(2);
    static double u[X_COUNT];
    fill_gauss(&r, u, X_COUNT, 1.0);
    fill_gauss(&r, l, Y_COUNT, 0.01);
    for (int i = 0; i < X_COUNT; i++) {
        int c = i / (SIDE * SIDE) % INPUTS;
        double y = (double)gamma[c] * u[i] + beta[c];
        on[c] += y > 0.0;
        x[i] = y > 0.0 ? y : 0.0;
    }
    weight_gradient(x, l, dw);
    spread measured = {0};
    for (int trial = 0; trial < TRIALS; trial++) {
        for (int i = 0; i < X_COUNT; i++) {
            int c = i / (SIDE * SIDE) % INPUTS;
            x_error[i] = x[i] > 0.0 ? (double)gamma[c] * (u[i] + uniform(&r)) + beta[c] : 0.0;
        }
        weight_gradient(x_error, l, dw_error);
        add_spread(&measured, dw, dw_error, W_COUNT);
    }
    comet_norm_stats norm = {.channels = INPUTS, .positions = BATCH * SIDE * SIDE, .gamma = gamma, .slope_squares = on};
    comet_use_stats stats = {.derivative_squares = comet_norm_derivative(&norm),
                             .gradient_squares = squares_of(l, Y_COUNT) / OUTPUTS};
    assert_sigma("conv dW from u", measured, bound * comet_error_sensitivity(COMET_USE_CONV_WEIGHTS, &stats), 0.04);
}

static void test_linear(void **state) {
    (void)state;
    enum { ROWS = 64, IN = 20, OUT = 12 };
    static double in[ROWS * IN], error[ROWS * IN], dy[ROWS * OUT];
    rng r = rng_seed(3);
    fill_gauss(&r, in, ROWS * IN, 1.0);
    fill_gauss(&r, dy, ROWS * OUT, 0.1);
    spread measured = {0};
    for (int trial = 0; trial < TRIALS; trial++) {
        for (int i = 0; i < ROWS * IN; i++)
            error[i] = in[i] + uniform(&r);
        for (int k = 0; k < OUT; k++)
            for (int c = 0; c < IN; c++) {
                double exact = 0.0, found = 0.0;
                for (int n = 0; n < ROWS; n++) {
                    exact += dy[n * OUT + k] * in[n * IN + c];
                    found += dy[n * OUT + k] * error[n * IN + c];
                }
                add_spread(&measured, &exact, &found, 1);
            }
    }
    comet_use_stats stats = {.derivative_squares = 1.0, .gradient_squares = squares_of(dy, ROWS * OUT) / OUT};
    assert_sigma("linear dW", measured, bound * comet_error_sensitivity(COMET_USE_LINEAR_WEIGHTS, &stats), 0.03);
}

/* ---- conv -> batch norm -> activation, with the gradient dz coming in behind the activation ---- */

typedef struct norm_case {
    double u[Y_COUNT], dz[Y_COUNT], dy[Y_COUNT], dx[Y_COUNT];
    float gamma[OUTPUTS], inverse[OUTPUTS];
    double beta[OUTPUTS];
    int has_silu;
    double scale_gradient[OUTPUTS], gradient_squares[OUTPUTS], curve_squares[OUTPUTS], scale_squares[OUTPUTS];
} norm_case;

static double sigmoid(double y) {
    return 1.0 / (1.0 + exp(-y));
}

static double silu_slope(double y) {
    double s = sigmoid(y);
    return s * (1.0 + y * (1.0 - s));
}

static double silu_curve(double y) {
    double s = sigmoid(y);
    return s * (1.0 - s) * (2.0 + y * (1.0 - 2.0 * s));
}

static int channel_of(int i) {
    return i / (MAP * MAP) % OUTPUTS;
}

static void normalise(norm_case *b, const double *conv) {
    double sum[OUTPUTS] = {0.0}, squares[OUTPUTS] = {0.0};
    for (int i = 0; i < Y_COUNT; i++) {
        sum[channel_of(i)] += conv[i];
        squares[channel_of(i)] += conv[i] * conv[i];
    }
    for (int c = 0; c < OUTPUTS; c++) {
        double mean = sum[c] / POSITIONS;
        b->inverse[c] = (float)(1.0 / sqrt(squares[c] / POSITIONS - mean * mean));
    }
    for (int i = 0; i < Y_COUNT; i++) {
        int c = channel_of(i);
        b->u[i] = (conv[i] - sum[c] / POSITIONS) * (double)b->inverse[c];
    }
}

/* Everything that backward takes from u. dx and the gradient of gamma; the mask of the ReLU is the exact one. */
static void norm_backward(const norm_case *b, const double *u, double *dy, double *dx, double *scale_gradient) {
    double mean[OUTPUTS] = {0.0};
    memset(scale_gradient, 0, OUTPUTS * sizeof *scale_gradient);
    for (int i = 0; i < Y_COUNT; i++) {
        int c = channel_of(i);
        double exact_y = (double)b->gamma[c] * b->u[i] + b->beta[c], y = (double)b->gamma[c] * u[i] + b->beta[c];
        dy[i] = b->dz[i] * (b->has_silu ? silu_slope(y) : (double)(exact_y > 0.0));
        mean[c] += dy[i] / POSITIONS;
        scale_gradient[c] += dy[i] * u[i];
    }
    for (int i = 0; i < Y_COUNT; i++) {
        int c = channel_of(i);
        dx[i] = (double)b->gamma[c] * (double)b->inverse[c] * (dy[i] - mean[c] - u[i] * scale_gradient[c] / POSITIONS);
    }
}

static void norm_sums(norm_case *b) {
    for (int i = 0; i < Y_COUNT; i++) {
        int c = channel_of(i);
        double gamma = (double)b->gamma[c], y = gamma * b->u[i] + b->beta[c];
        double curve = b->has_silu ? b->dz[i] * silu_curve(y) : 0.0, scale = b->dy[i] + curve * gamma * b->u[i];
        b->gradient_squares[c] += b->dy[i] * b->dy[i];
        b->curve_squares[c] += curve * curve;
        b->scale_squares[c] += scale * scale;
    }
}

/* `coherence`: how much of the gradient goes along with u. `centre` is taken off the inputs' mean. */
static norm_case *norm_new(rng *r, int has_silu, double coherence, double centre) {
    static double weights[W_COUNT], conv[Y_COUNT];
    norm_case *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->has_silu = has_silu;
    fill_gauss(r, x, X_COUNT, 1.0);
    for (int i = 0; i < X_COUNT; i++)
        x[i] = (x[i] > 0.0 ? x[i] : 0.0) - centre;
    fill_gauss(r, weights, W_COUNT, 0.2);
    convolve(x, weights, conv);
    normalise(b, conv);
    for (int c = 0; c < OUTPUTS; c++) {
        b->gamma[c] = (float)(0.5 + rng_unit(r));
        b->beta[c] = 0.4 * rng_gauss(r);
    }
    for (int i = 0; i < Y_COUNT; i++)
        b->dz[i] = 0.01 * (rng_gauss(r) + coherence * b->u[i]);
    norm_backward(b, b->u, b->dy, b->dx, b->scale_gradient);
    norm_sums(b);
    return b;
}

static void norm_measure(const norm_case *b, rng *r, spread *weights, spread *scale) {
    static double u[Y_COUNT], dy[Y_COUNT], dx[Y_COUNT];
    double gradient[OUTPUTS];
    weight_gradient(x, b->dx, dw);
    for (int trial = 0; trial < TRIALS; trial++) {
        for (int i = 0; i < Y_COUNT; i++)
            u[i] = b->u[i] + uniform(r);
        norm_backward(b, u, dy, dx, gradient);
        weight_gradient(x, dx, dw_error);
        add_spread(weights, dw, dw_error, W_COUNT);
        add_spread(scale, b->scale_gradient, gradient, OUTPUTS);
    }
}

static comet_norm_stats norm_stats(const norm_case *b) {
    return (comet_norm_stats){.channels = OUTPUTS,
                              .positions = POSITIONS,
                              .gamma = b->gamma,
                              .inverse_deviation = b->inverse,
                              .scale_gradient = b->scale_gradient,
                              .gradient_squares = b->gradient_squares,
                              .curve_squares = b->curve_squares,
                              .fan_in = FAN_IN};
}

static double input_squares(void) {
    return squares_of(x, X_COUNT) / X_COUNT * POSITIONS;
}

/* The same without the inputs' mean. */
static double input_variances(void) {
    double sum = 0.0;
    for (int i = 0; i < X_COUNT; i++)
        sum += x[i] / X_COUNT;
    return input_squares() - sum * sum * POSITIONS;
}

static void check_norm(const char *what, int has_silu, double coherence, double centre, double tolerance) {
    char text[64];
    rng r = rng_seed(4);
    norm_case *b = norm_new(&r, has_silu, coherence, centre);
    spread weights = {0}, scale = {0};
    norm_measure(b, &r, &weights, &scale);
    comet_norm_stats norm = norm_stats(b);
    comet_use_stats gamma = {.derivative_squares = 1.0};
    for (int c = 0; c < OUTPUTS; c++)
        gamma.gradient_squares += b->scale_squares[c] / OUTPUTS;
    comet_use_stats input = {.error_gain = comet_norm_input_gain(&norm), .input_squares = input_squares()};
    comet_use_stats curve = {.error_gain = comet_norm_curve_gain(&norm), .input_squares = input_variances()};
    double of_input = comet_error_sensitivity(COMET_USE_NORM_INPUT, &input);
    double of_curve = comet_error_sensitivity(COMET_USE_CURVE_INPUT, &curve);
    snprintf(text, sizeof text, "%s dgamma", what);
    assert_sigma(text, scale, bound * comet_error_sensitivity(COMET_USE_NORM_SCALE, &gamma), 0.05);
    snprintf(text, sizeof text, "%s dX, seen in dW", what);
    assert_sigma(text, weights, bound * sqrt(of_input * of_input + of_curve * of_curve), tolerance);
    free(b);
}

static void test_batch_norm_with_a_coherent_gradient(void **state) {
    (void)state;
    check_norm("norm, coherent", 0, 1.0, 0.0, 0.06);
}

/* Then mean(dy u) is next to nothing, and what is left is the error common to a channel. */
static void test_batch_norm_with_a_random_gradient(void **state) {
    (void)state;
    check_norm("norm, random", 0, 0.0, 0.4, 0.08);
}

static void test_silu(void **state) {
    (void)state;
    check_norm("SiLU", 1, 0.3, 0.0, 0.06);
}

/* y = x * s, s = sigmoid(W h): ds = sum over the map of dy * x, dW = sum over the batch of ds s (1 - s) h. */
static void test_channel_scale(void **state) {
    (void)state;
    enum { ROWS = 32, CHANNELS = 8, AREA = 25, HIDDEN = 6, COUNT = ROWS * CHANNELS * AREA };
    static double v[COUNT], dy[COUNT], s[ROWS * CHANNELS], h[ROWS * HIDDEN];
    rng r = rng_seed(5);
    double gain = 0.0;
    fill_gauss(&r, v, COUNT, 1.0);
    fill_gauss(&r, dy, COUNT, 0.1);
    fill_gauss(&r, h, ROWS * HIDDEN, 1.0);
    for (int i = 0; i < ROWS * CHANNELS; i++) {
        s[i] = sigmoid(rng_gauss(&r));
        double slope = s[i] * (1.0 - s[i]);
        gain += slope * slope * squares_of(dy + i * AREA, AREA) / (ROWS * CHANNELS);
    }
    spread measured = {0};
    double zero[CHANNELS * HIDDEN] = {0.0};
    for (int trial = 0; trial < TRIALS; trial++) {
        double off[CHANNELS * HIDDEN] = {0.0};
        for (int i = 0; i < ROWS * CHANNELS; i++) {
            double ds = 0.0;
            for (int p = 0; p < AREA; p++)
                ds += dy[i * AREA + p] * uniform(&r);
            for (int j = 0; j < HIDDEN; j++)
                off[i % CHANNELS * HIDDEN + j] += ds * s[i] * (1.0 - s[i]) * h[i / CHANNELS * HIDDEN + j];
        }
        add_spread(&measured, zero, off, CHANNELS * HIDDEN);
    }
    comet_use_stats stats = {.error_gain = gain, .input_squares = squares_of(h, ROWS * HIDDEN) / HIDDEN};
    assert_sigma("channel scale", measured, bound * comet_error_sensitivity(COMET_USE_CHANNEL_SCALE, &stats), 0.05);
}

/* For a normal L the two forms differ by sqrt(3) * 0.32 * sqrt(2 / pi); other uses have one form only. */
static void test_paper_form(void **state) {
    (void)state;
    comet_use_stats stats = {.derivative_squares = 0.5,
                             .gradient_squares = 4.0 * 1000.0,
                             .gradient_mean = 2.0 * sqrt(2.0 / acos(-1.0)),
                             .positions = 1000.0,
                             .error_gain = 2.0,
                             .input_squares = 6.0};
    double ratio = comet_error_sensitivity_mean(COMET_USE_CONV_WEIGHTS, &stats) /
                   comet_error_sensitivity(COMET_USE_CONV_WEIGHTS, &stats);
    assert_near(ratio, sqrt(3.0) * 0.32 * sqrt(2.0 / acos(-1.0)), 1e-12);
    assert_near(comet_error_sensitivity_mean(COMET_USE_NORM_INPUT, &stats), 2.0, 1e-15);
}

static void test_bound_and_sigma_are_inverse(void **state) {
    (void)state;
    comet_error_shape shape = {3, {0.1, 0.3, 0.6}, {1.0, 1.5, 2.0}};
    assert_near(comet_error_shape_factor(NULL, 0.2), 1.0, 0.0);
    assert_near(comet_error_shape_factor(&shape, 0.05), 1.0, 0.0);
    assert_near(comet_error_shape_factor(&shape, 0.2), 1.25, 1e-15);
    assert_near(comet_error_shape_factor(&shape, 0.45), 1.75, 1e-15);
    assert_near(comet_error_shape_factor(&shape, 9.0), 2.0, 0.0);
    for (double at = 0.01; at < 2.0; at *= 1.3) {
        double sigma = comet_error_sigma(3.0, &shape, at, 1.0), plain = comet_error_sigma(3.0, NULL, at, 1.0);
        assert_near(comet_error_bound(3.0, &shape, sigma, 1.0), at, 1e-12 * at);
        assert_near(comet_error_bound(3.0, NULL, plain, 1.0), at, 1e-12 * at);
        assert_near(comet_error_sigma(3.0, &shape, at, 0.0), plain, 0.0);
    }
    assert_true(isinf(comet_error_bound(0.0, &shape, 1.0, 1.0)));
    assert_near(comet_error_bound(1.0, &shape, 0.0, 1.0), 0.0, 0.0);
}

/* A constant gradient: whatever the optimiser and the update, its momentum in gradient units is the gradient. */
static void test_momentum_is_in_units_of_the_gradient(void **state) {
    (void)state;
    double buffer = 0.0, moment = 0.0, gradient = 0.7;
    for (int64_t t = 1; t <= 1000; t++) {
        buffer = 0.9 * buffer + gradient;
        moment = 0.9 * moment + 0.1 * gradient;
        assert_near(comet_momentum_sgd(buffer, 0.9, t), gradient, 1e-12);
        assert_near(comet_momentum_adam(moment, 0.9, t), gradient, 1e-12);
    }
    assert_near(comet_momentum_sgd(gradient, 0.0, 5), gradient, 0.0);
}

static void test_acgc(void **state) {
    (void)state;
    assert_near(comet_acgc_conv(8.0, 2.0, 100.0, 9.0, 3.0), 8.0 / (2.0 * 100.0 * 2.0), 1e-15);
    assert_near(comet_acgc_conv(8.0, 0.0, 100.0, 9.0, 1.0), 0.0, 0.0);
    /*
     * The second channel is 100 times as sensitive; the third (gamma 0) has no limit. s = 2: the bound of u is twice
     * that of x.
     */
    comet_norm_stats norm = {.channels = 3,
                             .positions = 50.0,
                             .gamma = (float[]){1.0f, 10.0f, 0.0f},
                             .inverse_deviation = (float[]){2.0f, 2.0f, 2.0f},
                             .scale_gradient = (double[]){3.0, 3.0, 3.0}};
    comet_acgc_norm_stats stats = {&norm, 6.0, (double[]){5.0, 5.0, 5.0}, (float[]){0.5f, 0.5f, 0.5f},
                                   (float[]){4.0f, 4.0f, 4.0f}};
    double worst = 4.0 * (5.0 * 5.0) * 0.25 * 4.0, x_bound = 6.0 * 50.0 / (3.0 * 100.0 * 16.0 * (worst + 9.0));
    assert_near(comet_acgc_norm(&stats), 4.0 * x_bound, 1e-15);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(comet_use_name(COMET_USE_CONV_WEIGHTS), "conv_weights");
    assert_string_equal(comet_use_name(COMET_USE_CHANNEL_SCALE), "channel_scale");
    assert_string_equal(comet_use_name(COMET_USE_KINDS), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution_reads_what_is_stored),
        cmocka_unit_test(test_convolution_reads_what_is_rebuilt),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_batch_norm_with_a_coherent_gradient),
        cmocka_unit_test(test_batch_norm_with_a_random_gradient),
        cmocka_unit_test(test_silu),
        cmocka_unit_test(test_channel_scale),
        cmocka_unit_test(test_paper_form),
        cmocka_unit_test(test_bound_and_sigma_are_inverse),
        cmocka_unit_test(test_momentum_is_in_units_of_the_gradient),
        cmocka_unit_test(test_acgc),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
