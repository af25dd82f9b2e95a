/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CKA: what must not change it does not, what must does; against the estimator's formula as it stands in the paper; and
 * channels matched by their maps.
 */
#include "support/assert_ok.h"
#include "support/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "study/gram.h"
#include "study/match.h"

enum { N = 24, F = 60, BATCHES = 8 };

static void near(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack))
        fail_msg("%.15g, expected %.15g", got, expected);
}

static float draw(rng *r) {
    return (float)rng_gauss(r);
}

static float *draw_features(rng *r, int n, int count) {
    float *x = malloc((size_t)n * (size_t)count * sizeof *x);
    for (int i = 0; i < n * count; i++)
        x[i] = draw(r);
    return x;
}

static double *gram_of(const float *x, int n, int count) {
    double *gram = malloc(comet_gram_pairs(n) * sizeof *gram);
    assert_ok(comet_gram(x, n, count, NULL, NULL, gram));
    return gram;
}

static double cka_of(const float *x, int x_count, const float *y, int y_count, int n) {
    double *a = gram_of(x, n, x_count), *b = gram_of(y, n, y_count);
    comet_cka cka = {0, 0, 0};
    comet_cka_add(&cka, a, b, n);
    free(a);
    free(b);
    return comet_cka_value(&cka);
}

static void test_itself(void **state) {
    (void)state;
    rng r = rng_seed(1);
    float *x = draw_features(&r, N, F);
    near(cka_of(x, F, x, F, N), 1, 1e-14);
    free(x);
}

/* Rotated (two reflections), as large as one likes, moved, and with features in another order. */
static void test_what_changes_nothing(void **state) {
    (void)state;
    rng r = rng_seed(2);
    float *x = draw_features(&r, N, F), *y = draw_features(&r, N, F), *turned = malloc(N * F * sizeof *turned);
    const double before = cka_of(x, F, y, F, N);
    memcpy(turned, x, N * F * sizeof *turned);
    for (int times = 0; times < 2; times++) {
        float *normal = draw_features(&r, 1, F);
        double square = 0;
        for (int f = 0; f < F; f++)
            square += (double)normal[f] * (double)normal[f];
        for (int i = 0; i < N; i++) {
            double along = 0;
            for (int f = 0; f < F; f++)
                along += (double)turned[i * F + f] * (double)normal[f];
            for (int f = 0; f < F; f++)
                turned[i * F + f] -= (float)(2 * along / square * (double)normal[f]);
        }
        free(normal);
    }
    near(cka_of(x, F, turned, F, N), 1, 1e-6);
    near(cka_of(turned, F, y, F, N), before, 1e-6);
    for (int i = 0; i < N; i++)
        for (int f = 0; f < F; f++)
            turned[i * F + f] = 1024 * x[i * F + F - 1 - f] + 64; /* exact but for the sum */
    near(cka_of(x, F, turned, F, N), 1, 1e-6);
    near(cka_of(turned, F, y, F, N), before, 1e-5);
    free(turned);
    free(x);
    free(y);
}

/*
 * Features that have nothing in common, many more than images: HSIC without correction says that they are alike. Of
 * 8 x 252 products of about independent numbers the mean has a deviation of 0.022 of their size.
 */
static void add_batch(comet_cka *cka, const float *x, const float *y, int features) {
    double *a = gram_of(x, N, features), *b = gram_of(y, N, features);
    comet_cka_add(cka, a, b, N);
    free(a);
    free(b);
}

static void test_independent(void **state) {
    (void)state;
    enum { MANY = 2000 };
    rng r = rng_seed(3);
    comet_cka cka = {0, 0, 0};
    for (int batch = 0; batch < BATCHES; batch++) {
        float *x = draw_features(&r, N, MANY), *y = draw_features(&r, N, MANY);
        add_batch(&cka, x, y, MANY);
        free(x);
        free(y);
    }
    near(comet_cka_value(&cka), 0, 4.5 / sqrt(BATCHES * N * (N - 3) / 2.0));
}

/* Half of the features in common, of as large a variance: CKA of the whole is about a half. */
static void test_half(void **state) {
    (void)state;
    enum { MANY = 3000 };
    rng r = rng_seed(4);
    comet_cka cka = {0, 0, 0};
    for (int batch = 0; batch < BATCHES; batch++) {
        float *x = draw_features(&r, N, MANY), *y = draw_features(&r, N, MANY);
        for (int i = 0; i < N; i++)
            memcpy(y + i * MANY, x + i * MANY, MANY / 2 * sizeof *y);
        add_batch(&cka, x, y, MANY);
        free(x);
        free(y);
    }
    near(comet_cka_value(&cka), 0.5, 0.1);
}

/* ---- the formula of Song et al. (2012) ---- */

static double song(const float *x, int x_count, const float *y, int y_count, int n) {
    double *k = calloc((size_t)n * (size_t)n, sizeof *k), *l = calloc((size_t)n * (size_t)n, sizeof *l);
    double trace = 0, all_k = 0, all_l = 0, through = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            for (int f = 0; f < x_count && i != j; f++)
                k[i * n + j] += (double)x[i * x_count + f] * (double)x[j * x_count + f];
            for (int f = 0; f < y_count && i != j; f++)
                l[i * n + j] += (double)y[i * y_count + f] * (double)y[j * y_count + f];
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            trace += k[i * n + j] * l[j * n + i];
            all_k += k[i * n + j];
            all_l += l[i * n + j];
            for (int m = 0; m < n; m++)
                through += k[i * n + j] * l[j * n + m];
        }
    free(k);
    free(l);
    return (trace + all_k * all_l / ((n - 1.0) * (n - 2.0)) - 2 * through / (n - 2.0)) / (n * (n - 3.0));
}

static void test_formula(void **state) {
    (void)state;
    static const int images[] = {4, 5, 15, 16, 17, 33}, counts[] = {1, 7, 129, 1100};
    rng r = rng_seed(5);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++) {
            const int n = images[i], x_count = counts[k], y_count = counts[3 - k];
            float *x = draw_features(&r, n, x_count), *y = draw_features(&r, n, y_count);
            double *a = gram_of(x, n, x_count), *b = gram_of(y, n, y_count);
            const double scale = sqrt(song(x, x_count, x, x_count, n) * song(y, y_count, y, y_count, n));
            near(comet_hsic(a, b, n), song(x, x_count, y, y_count, n), 1e-11 * scale);
            near(cka_of(x, x_count, y, y_count, n), song(x, x_count, y, y_count, n) / scale, 1e-10);
            free(a);
            free(b);
            free(x);
            free(y);
        }
}

static void test_threads(void **state) {
    (void)state;
    rng r = rng_seed(6);
    float *x = draw_features(&r, N, 5000);
    double *one = gram_of(x, N, 5000), *many = malloc(comet_gram_pairs(N) * sizeof *many);
    for (unsigned count = 2; count < 6; count++) {
        comet_threads *threads;
        assert_ok(comet_threads_new(count, NULL, &threads));
        assert_ok(comet_gram(x, N, 5000, threads, NULL, many));
        assert_memory_equal(one, many, comet_gram_pairs(N) * sizeof *many);
        comet_threads_free(threads);
    }
    free(one);
    free(many);
    free(x);
}

static void test_ends(void **state) {
    (void)state;
    static float same[8 * 3];
    double gram[28];
    comet_cka cka = {0, 0, 0};
    assert_status(comet_gram(same, 3, 3, NULL, NULL, gram), COMET_ERROR_ARGUMENT);
    assert_status(comet_gram(same, COMET_GRAM_MOST + 1, 3, NULL, NULL, gram), COMET_ERROR_ARGUMENT);
    assert_status(comet_gram(same, 8, 0, NULL, NULL, gram), COMET_ERROR_ARGUMENT);
    assert_ok(comet_gram(same, 8, 3, NULL, NULL, gram));
    comet_cka_add(&cka, gram, gram, 8);
    assert_true(isnan(comet_cka_value(&cka))); /* all images look the same */
}

/* ---- channels ---- */

static void test_channels(void **state) {
    (void)state;
    enum { PLACES = 200, CHANNELS = 5 };
    static const int where[CHANNELS] = {3, 0, 4, 1, 2};
    static const float sizes[CHANNELS] = {1, 5, 0, 3, 2};
    rng r = rng_seed(7);
    float here[PLACES * CHANNELS], there[PLACES * CHANNELS];
    for (int p = 0; p < PLACES; p++)
        for (int c = 0; c < CHANNELS; c++) {
            here[p * CHANNELS + c] = sizes[c] * draw(&r) + 7;
            there[p * CHANNELS + where[c]] = 10 * here[p * CHANNELS + c] - 3;
        }
    const comet_maps a = {here, PLACES, CHANNELS}, b = {there, PLACES, CHANNELS};
    int strongest[CHANNELS];
    double correlation;
    comet_match_strongest(&a, CHANNELS, strongest);
    assert_memory_equal(strongest, ((int[]){1, 3, 4, 0, 2}), sizeof strongest);
    for (int c = 0; c < CHANNELS; c++) {
        if (sizes[c] == 0)
            continue;
        assert_int_equal(comet_match_channel(&a, c, &b, &correlation), where[c]);
        near(correlation, 1, 1e-5);
    }
    comet_match_channel(&a, 2, &b, &correlation);
    near(correlation, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_itself),      cmocka_unit_test(test_what_changes_nothing),
        cmocka_unit_test(test_independent), cmocka_unit_test(test_half),
        cmocka_unit_test(test_formula),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
