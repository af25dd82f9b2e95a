/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: values at the points where they are known, and what holds between. tests/train compares with PyTorch's. */
#include "support/assert_ok.h"

#include <math.h>
#include <string.h>

#include "train/optimiser/schedule.h"

static comet_message message;

static void at(const comet_schedule *s, int64_t step, double expected) {
    double rate = comet_schedule_rate(s, step);
    if (fabs(rate - expected) > 1e-12)
        fail_msg("step %lld: %.15g, expected %.15g", (long long)step, rate, expected);
}

static void test_constant_and_step(void **state) {
    (void)state;
    comet_schedule s = comet_schedule_default(COMET_SCHEDULE_CONSTANT, 0.1, 100);
    at(&s, 0, 0.1);
    at(&s, 99, 0.1);
    at(&s, 1000, 0.1);
    s = comet_schedule_default(COMET_SCHEDULE_STEP, 0.1, 100);
    s.every = 30;
    at(&s, 29, 0.1);
    at(&s, 30, 0.01);
    at(&s, 60, 0.001);
    at(&s, 99, 0.0001);
    s = comet_schedule_default(COMET_SCHEDULE_STEP, 1.0, 100); /* three times by itself */
    at(&s, 99, 0.001);
}

static void test_cosine_and_warm_up(void **state) {
    (void)state;
    comet_schedule s = comet_schedule_default(COMET_SCHEDULE_COSINE, 0.2, 100);
    at(&s, 0, 0.2);
    at(&s, 50, 0.1);
    at(&s, 25, 0.1 + 0.1 * sqrt(0.5));
    s.least = 0.1;
    at(&s, 50, 0.15);
    s.least = 0.0;
    s.warmup = 20;
    s.warmup_start = 0.5;
    at(&s, 0, 0.1);
    at(&s, 10, 0.15);
    at(&s, 20, 0.2);
    at(&s, 60, 0.1);
    assert_true(comet_schedule_rate(&s, 99) > 0.0);
    assert_true(comet_schedule_rate(&s, 100) == comet_schedule_rate(&s, 99));
    assert_true(comet_schedule_momentum(&s, 50) == 0.0);
}

static void test_one_cycle(void **state) {
    (void)state;
    comet_schedule s = comet_schedule_default(COMET_SCHEDULE_ONE_CYCLE, 1.0, 100);
    at(&s, 0, 1.0 / 25);
    at(&s, 29, 1.0);
    at(&s, 99, 1.0 / 25 / 1e4);
    for (int step = 1; step < 100; step++)
        assert_true((comet_schedule_rate(&s, step) > comet_schedule_rate(&s, step - 1)) == (step <= 29));
    s.momentum_low = 0.85;
    s.momentum_high = 0.95;
    assert_true(fabs(comet_schedule_momentum(&s, 0) - 0.95) < 1e-12);
    assert_true(fabs(comet_schedule_momentum(&s, 29) - 0.85) < 1e-12);
    assert_true(fabs(comet_schedule_momentum(&s, 99) - 0.95) < 1e-12);
    for (int64_t steps = 1; steps < 8; steps++) { /* also where there is hardly a cycle */
        s = comet_schedule_default(COMET_SCHEDULE_ONE_CYCLE, 1.0, steps);
        for (int64_t step = 0; step < steps; step++)
            assert_true(comet_schedule_rate(&s, step) > 0.0 && comet_schedule_rate(&s, step) <= 1.0);
    }
}

static void refuse(comet_schedule s, const char *part) {
    assert_status(comet_schedule_check(&s, &message), COMET_ERROR_ARGUMENT);
    if (!strstr(message.text, part))
        fail_msg("no '%s' in: %s", part, message.text);
}

static void test_names_and_refused(void **state) {
    (void)state;
    comet_schedule_kind kind;
    static const char *const names[] = {"constant", "step", "cosine", "one-cycle"};
    for (int i = 0; i < 4; i++) {
        comet_schedule s = comet_schedule_default((comet_schedule_kind)i, 0.1, 10);
        assert_ok(comet_schedule_find(names[i], &kind, &message));
        assert_int_equal(kind, i);
        assert_ok(comet_schedule_check(&s, &message));
        s.rate = 0.0;
        refuse(s, "learning rate of 0");
        s.rate = (double)INFINITY;
        refuse(s, "learning rate of inf");
        s.rate = 0.1;
        s.warmup = 10;
        refuse(s, "10 steps of warm-up do not fit into 10");
    }
    assert_status(comet_schedule_find("cosinus", &kind, &message), COMET_ERROR_ARGUMENT);
    assert_non_null(strstr(message.text, "constant, step, cosine, one-cycle"));
    comet_schedule s = comet_schedule_default(COMET_SCHEDULE_STEP, 0.1, 10);
    s.every = 0;
    refuse(s, "every 0 steps");
    s = comet_schedule_default(COMET_SCHEDULE_ONE_CYCLE, 0.1, 10);
    s.rising = 1.0;
    refuse(s, "one-cycle");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_and_step),
        cmocka_unit_test(test_cosine_and_warm_up),
        cmocka_unit_test(test_one_cycle),
        cmocka_unit_test(test_names_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
