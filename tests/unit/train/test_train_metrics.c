/* SPDX-License-Identifier: Apache-2.0 */
/* Top-1 and top-5, and means. */
#include "support/assert_ok.h"

#include <math.h>

#include "train/backend/cpu/kernels.h"
#include "train/trainer/metrics.h"

static void near(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack))
        fail_msg("%.12g, expected %.12g", got, expected);
}

/* As the loss counts them. */
static void add_batch(comet_accuracy *a, const float *logits, const int32_t *labels, int samples, int classes) {
    comet_loss_call call = {.batch = samples, .classes = classes, .logits = logits, .labels = labels};
    assert_ok(comet_cpu_loss(&call));
    comet_accuracy_add(a, call.top1, call.top5, samples);
}

static void test_accuracy(void **state) {
    (void)state;
    static const float logits[] = {
        1,
        2,
        3,
        4,
        5,
        6, /* label 5: first */
        1,
        2,
        3,
        4,
        5,
        6, /* label 1: fifth */
        1,
        2,
        3,
        4,
        5,
        6, /* label 0: sixth */
        0,
        0,
        0,
        0,
        0,
        0, /* label 0: ties go to the lower index */
        0,
        0,
        0,
        0,
        0,
        0, /* label 5: the last of the ties */
        (float)NAN,
        0,
        0,
        0,
        9,
        0, /* label 4, beside NaN */
        -(float)INFINITY,
        0,
        0,
        0,
        9,
        -1e30f /* label 4 */
    };
    static const int32_t labels[] = {5, 1, 0, 0, 5, 4, 4};
    comet_accuracy a = {0};
    near(comet_accuracy_top1(&a), 0.0, 0.0);
    add_batch(&a, logits, labels, 3, 6);
    add_batch(&a, logits + 18, labels + 3, 4, 6);
    assert_int_equal(a.samples, 7);
    assert_int_equal(a.top1, 3);
    assert_int_equal(a.top5, 4);
    near(comet_accuracy_top5(&a), 400.0 / 7.0, 1e-12);
    a = (comet_accuracy){0};
    add_batch(&a, (const float[]){1, 2, 2, 1}, (const int32_t[]){1, 1}, 2, 2); /* fewer than five classes */
    assert_int_equal(a.top1, 1);
    assert_int_equal(a.top5, 2);
}

static void test_means(void **state) {
    (void)state;
    comet_mean m = {0};
    comet_running_mean r = {.keep = 0.9};
    near(comet_mean_value(&m), 0.0, 0.0);
    near(comet_running_mean_value(&r), 0.0, 0.0);
    comet_mean_add(&m, 2.0, 3.0);
    comet_mean_add(&m, 5.0, 1.0);
    near(comet_mean_value(&m), 2.75, 1e-15);
    comet_running_mean_add(&r, 4.0);
    near(comet_running_mean_value(&r), 4.0, 1e-12);
    comet_running_mean_add(&r, 2.0);
    near(comet_running_mean_value(&r), (0.36 + 0.2) / 0.19, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
