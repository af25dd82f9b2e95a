/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with the same seeds, compared in pairs. */
#include "support/assert_ok.h"

#include <math.h>

#include "study/paired.h"

static void near(double got, double expected, double slack) {
    if (!(fabs(got - expected) <= slack))
        fail_msg("%.12g, expected %.12g", got, expected);
}

static void test_student(void **state) {
    (void)state;
    near(comet_student_t(4), 2.776445105, 1e-9);
    near(comet_student_t(31), 2.039513446, 2e-6);
    near(comet_student_t(60), 2.000297822, 2e-7);
    near(comet_student_t(1000), 1.962339081, 1e-8);
    for (int n = 2; n < 100; n++)
        assert_true(comet_student_t(n) < comet_student_t(n - 1));
}

static void test_pairs(void **state) {
    (void)state;
    /* differences 1, 2, 3: mean 2, deviation 1 */
    comet_paired p = comet_compare_pairs((const double[]){70, 71, 72}, (const double[]){71, 73, 75}, 3);
    near(p.mean, 2.0, 1e-12);
    near(p.deviation, 1.0, 1e-12);
    near(p.half_width, 4.302652730 / sqrt(3.0), 1e-8);
    p = comet_compare_pairs((const double[]){70, 80}, (const double[]){69.5, 79.5}, 2);
    near(p.mean, -0.5, 1e-12);
    near(p.half_width, 0.0, 1e-12);
    p = comet_compare_pairs((const double[]){70}, (const double[]){72}, 1);
    assert_true(p.mean == 2.0 && isinf(p.half_width));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_student),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
