/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors and gradients of neighbours that are alike (docs/theory.md, 5): kernels, maps of which the answer is known,
 * and the correction of a use.
 */
#include "support/use_stats_case.h"

#include "control/collect/alike.h"
#include "control/collect/neighbours.h"

/* Rounding to cells of 1, wherever a value lies in its cell. */
static double product_of_errors(double apart) {
    enum { PHASES = 20000 };
    double sum = 0;
    for (int i = 0; i < PHASES; i++) {
        const double a = (i + 0.5) / PHASES, b = a + apart;
        sum += (floor(a + 0.5) - a) * (floor(b + 0.5) - b);
    }
    return sum / PHASES * 12;
}

static void test_alike(void **state) {
    (void)state;
    float a[37], b[37], weight[37], on[37];
    for (int round = 0; round < 8; round++) {
        const double apart = -1.3 + 0.37 * round;
        comet_alike_errors_sums sums = {0};
        for (int i = 0; i < 37; i++) {
            a[i] = (float)i * 0.7f;
            b[i] = a[i] + (float)apart;
            weight[i] = i % 3 ? (float)i : 0;
            on[i] = (float)(i % 2);
        }
        comet_alike_errors(a, b, weight, on, 37, &sums);
        const double expected = product_of_errors(apart);
        double both = 0, weights = 0;
        for (int i = 0; i < 37; i++) {
            both += (double)weight[i] * (double)on[i];
            weights += (double)weight[i];
        }
        assert_int_equal(sums.pairs, 37);
        assert_true(fabs(sums.plain / 37 - expected) < 1e-3);
        assert_true(fabs(sums.masked / both - expected) < 1e-3);
        assert_near(sums.weights, weights, 1e-6);
    }
}

/* Gradients that are the same everywhere, and independent ones, with errors that fall off. */
static void test_together(void **state) {
    (void)state;
    static comet_stats_alike white, flat, falling;
    double all = 0;
    for (int k = 0; k < COMET_STATS_OFFSETS; k++) {
        white.part[k] = k == 0;
        flat.part[k] = 1;
    }
    for (int down = 0, k = 0; down <= COMET_STATS_REACH; down++)
        for (int right = down ? -COMET_STATS_REACH : 0; right <= COMET_STATS_REACH; right++, k++) {
            falling.part[k] = pow(0.5, down + abs(right));
            all += (k ? 2 : 1) * falling.part[k];
        }
    assert_near(comet_alike_together(&falling, &white, (const int32_t[]){1, 1}), 1, 1e-12);
    assert_near(comet_alike_together(&white, &flat, (const int32_t[]){1, 1}), 1, 1e-12);
    assert_near(comet_alike_together(&falling, &flat, (const int32_t[]){1, 1}), all, 1e-12);
    assert_near(comet_alike_together(&flat, &flat, (const int32_t[]){1, 1}), 13 * 13, 1e-12);
    assert_near(comet_alike_together(&flat, &flat, (const int32_t[]){2, 2}), 7 * 7, 1e-12); /* every second pixel */
    assert_near(comet_alike_together(&flat, &flat, (const int32_t[]){1, 3}), 13 * 5, 1e-12);
    assert_near(comet_alike_together(&flat, &flat, (const int32_t[]){9, 1}), 13, 1e-12);
}

/* ---- maps ---- */

/* The offset at an index, in the order that comet/use_stats.h says. */
static void offset_at(int k, int *down, int *right) {
    int index = 0;
    for (*down = 0; *down <= COMET_STATS_REACH; ++*down)
        for (*right = *down ? -COMET_STATS_REACH : 0; *right <= COMET_STATS_REACH; ++*right)
            if (index++ == k)
                return;
}

static double sawtooth(double apart) {
    const double t = apart - floor(apart);
    return 1 - 6 * t * (1 - t);
}

/*
 * On a slope all pairs at an offset are as far apart, wherever they lie: the answer does not depend on which places
 * are looked at.
 */
static void check_slope(int form, int has_grid) {
    const double down_by = 0.07, right_by = 0.11, scale = has_grid ? 1.7 : 1, bound = 0.25;
    rng r = rng_seed(31);
    batch b = batch_new(&r, 3, 20, 30, 5, 0);
    float scales[5], threshold[5], gamma[5];
    for (int64_t i = 0; i < count_of(&b); i++) {
        const int64_t pixel = i / b.channels, w = pixel % b.width, h = pixel / b.width % b.height;
        b.values[i] = (float)(1 + down_by * (double)h + right_by * (double)w); /* never 0 */
    }
    for (int c = 0; c < 5; c++) {
        scales[c] = (float)scale;
        gamma[c] = (float)(c - 2);
        threshold[c] = c < 2 ? 100 : -100; /* all are on: below it where gamma is negative */
    }
    const comet_codec_grid grid = {5, scales, NULL, threshold, gamma};
    const comet_codec_record result = {
        .bytes = 1, .bound = bound, .stats = {.count = 1, .nonzero = 1, .sum_squares = 1}};
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    comet_stats_tensor seen = COMET_STATS_TENSOR_INIT;
    laid l = lay(&b, form);
    pass.values = &l.tensor, pass.result = &result;
    if (has_grid)
        pass.grid = &grid, pass.gamma = gamma, pass.relu = 1;
    SEE(tensor, &pass, NULL, &seen);
    assert_int_equal(seen.has_alike, 1);
    for (int k = 0; k < COMET_STATS_OFFSETS; k++) {
        int down, right;
        offset_at(k, &down, &right);
        const double expected = sawtooth(scale * (down_by * down + right_by * right) / (2 * bound));
        assert_true(fabs(seen.all.part[k] - expected) < 1e-4);
        assert_true(fabs(seen.passed.part[k] - expected) < 1e-4);
    }
    free(l.memory);
    free(b.values);
}

static void test_slope(void **state) {
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        check_slope(form, 0);
        check_slope(form, 1);
    }
}

/* A ReLU that is off passes no error. */
static void test_off(void **state) {
    (void)state;
    rng r = rng_seed(32);
    batch b = batch_new(&r, 2, 9, 9, 4, 0);
    const float threshold[4] = {100, 100, 100, 100};
    const comet_codec_grid grid = {4, NULL, NULL, threshold, NULL};
    const comet_codec_record result = {.bytes = 1, .bound = 1, .stats = {.count = 1, .nonzero = 1, .sum_squares = 1}};
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    comet_stats_tensor seen = COMET_STATS_TENSOR_INIT;
    laid l = lay(&b, PLANES);
    pass.values = &l.tensor, pass.result = &result, pass.grid = &grid, pass.relu = 1;
    SEE(tensor, &pass, NULL, &seen);
    assert_near(seen.all.part[0], 1, 1e-6);
    for (int k = 0; k < COMET_STATS_OFFSETS; k++)
        assert_true(seen.passed.part[k] == 0);
    free(l.memory);
    free(b.values);
}

/*
 * dY like a chessboard: as alike as can be, with a sign. Of places at an offset some lie outside, and count as 0: in
 * a map this large less than a third.
 */
static void test_chessboard(void **state) {
    (void)state;
    rng r = rng_seed(33);
    batch x = batch_new(&r, 4, 40, 40, 2, 0), dy = batch_new(&r, 4, 40, 40, 6, 0);
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    comet_stats_layer seen = COMET_STATS_LAYER_INIT;
    comet_stats_tensor tensor = COMET_STATS_TENSOR_INIT;
    comet_stats_use use = COMET_STATS_USE_INIT;
    comet_use_stats stats;
    for (int64_t i = 0; i < count_of(&dy); i++) {
        const int64_t pixel = i / dy.channels;
        dy.values[i] = (pixel % dy.width + pixel / dy.width) % 2 ? -3.0f : 3.0f;
    }
    laid lx = lay(&x, ROWS), ldy = lay(&dy, PLANES);
    pass.input = &lx.tensor, pass.gradient = &ldy.tensor;
    SEE(layer, &pass, NULL, &seen);
    double all = 0;
    for (int k = 0; k < COMET_STATS_OFFSETS; k++) {
        int down, right;
        offset_at(k, &down, &right);
        const double part = (down + right) % 2 ? -seen.gradient.part[k] : seen.gradient.part[k];
        assert_true(part > 2.0 / 3 && part <= 1 + 1e-6);
        all += (k ? 2 : 1) * seen.gradient.part[k] * (tensor.passed.part[k] = (down + right) % 2 ? -0.5 : 0.5);
    }
    assert_near(seen.gradient.part[0], 1, 1e-12);
    tensor.count = tensor.nonzero = tensor.streams = tensor.has_alike = 1; /* errors with the same sign add up */
    use.tensor = &tensor, use.layer = &seen;
    assert_ok(comet_stats_of_use(&use, &stats));
    assert_near(stats.correction, sqrt(all), 1e-12);
    assert_true(stats.correction > 6);
    free(lx.memory);
    free(ldy.memory);
    free(x.values);
    free(dy.values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike), cmocka_unit_test(test_together),   cmocka_unit_test(test_slope),
        cmocka_unit_test(test_off),   cmocka_unit_test(test_chessboard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
