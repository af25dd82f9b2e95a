/* SPDX-License-Identifier: Apache-2.0 */
/* Joint factors in a controller: which uses a measurement is for, how it is smoothed, what it does to bounds. */
#include <math.h>
#include <stdlib.h>

#include "comet/control_methods.h"
#include "support/assert_ok.h"

/* A tensor for each: it ends in gradient 2; it goes on from gradient 2; it ends where nothing is measured. */
static const comet_control_use ends[] = {{COMET_USE_CONV_WEIGHTS, 2}}, goes_on[] = {{COMET_USE_NORM_INPUT, 2}},
                               elsewhere[] = {{COMET_USE_LINEAR_WEIGHTS, 5}}, nowhere[] = {{COMET_USE_NORM_SCALE, -1}};
static const comet_control_tensor tensors[] = {{"ends", 1000, 1, ends},
                                               {"goes on", 1000, 1, goes_on},
                                               {"elsewhere", 1000, 1, elsewhere},
                                               {"none", 1000, 1, nowhere}};
enum { TENSORS = 4 };

static comet_control_event last;

static void see(void *context, const comet_control_event *event) {
    (void)context;
    if (event->tensor == 0)
        last = *event;
}

static comet_control *make(const char *name, int32_t joint) {
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    comet_control *control = NULL;
    o.warmup = 0, o.smoothing = 1.0, o.loosen = 1e20, o.floor = 1e-9, o.ceiling = 1e9, o.window = 1, o.joint = joint;
    o.log = see;
    assert_ok(comet_control_new(comet_control_find(name), &o, tensors, TENSORS, &control));
    return control;
}

static void observe(comet_control *control, int64_t iteration) {
    comet_use_stats weights = {.derivative_squares = 0.5, .gradient_squares = 6.0, .momentum = 8.0};
    comet_use_stats input = {.error_gain = 3.0, .input_squares = 1.0, .momentum = 8.0};
    comet_control_observation seen[] = {{.tensor = 0, .rms = 1.0, .uses = &weights},
                                        {.tensor = 1, .rms = 1.0, .uses = &input},
                                        {.tensor = 2, .rms = 1.0, .uses = &weights},
                                        {.tensor = 3, .rms = 1.0, .uses = &weights}};
    assert_ok(comet_control_observe(control, iteration, seen, TENSORS));
}

static double joint_of(const comet_control *control, int32_t tensor) {
    int64_t times;
    const double joint = comet_control_joint_factor(control, tensor, 0, &times);
    assert_true(times > 0 || joint == 1.0);
    return joint;
}

static void test_mean(void **state) {
    (void)state;
    assert_true(comet_error_joint(9.0, 1.0) == 3.0 && comet_error_joint(0.25, 1.0) == 1.0);
    assert_true(comet_error_joint(1e9, 1.0) == 8.0);
    double joint = comet_error_joint_mean(0, 0, 3.0);
    assert_true(joint == 3.0);
    joint = comet_error_joint_mean(joint, 1, 1.0); /* the mean of the squares of two */
    assert_true(fabs(joint * joint - 5.0) < 1e-12);
    for (int i = 2; i < 60; i++)
        joint = comet_error_joint_mean(joint, i, 2.0);
    assert_true(fabs(joint - 2.0) < 1e-6);
    const double after = comet_error_joint_mean(joint, 60, 4.0); /* a fourth of what is new */
    assert_true(fabs(after * after - (4.0 + 0.25 * 12.0)) < 1e-5);
}

/* Gradients 1 and 2 are 2 and 4 times what is predicted; 3 is behind them. */
static const comet_control_joint seen[] = {{1, 4.0, 1.0}, {2, 16.0, 1.0}, {3, 49.0, 1.0}};

static void test_who_it_is_for(void **state) {
    (void)state;
    comet_control *control = make("comet", 1);
    assert_true(comet_control_needs(control) & COMET_NEEDS_JOINT);
    for (int32_t i = 0; i < TENSORS; i++)
        assert_true(joint_of(control, i) == 1.0);
    assert_ok(comet_control_see_joint(control, seen, 3));
    assert_true(joint_of(control, 0) == 4.0);
    assert_true(fabs(joint_of(control, 1) - sqrt((4.0 + 16.0) / 2)) < 1e-12);
    assert_true(joint_of(control, 2) == 1.0 && joint_of(control, 3) == 1.0);
    assert_true(comet_control_joint_factor(control, 9, 0, NULL) == 1.0);
    comet_control_free(control);
}

static void test_it_divides_the_bound(void **state) {
    (void)state;
    comet_control *with = make("comet", 1), *without = make("comet", 0);
    observe(without, 0);
    observe(with, 0);
    const double model[] = {comet_control_bound(with, 0).value, comet_control_bound(with, 1).value};
    assert_true(last.joint == 1.0);
    assert_ok(comet_control_see_joint(without, seen, 3));
    assert_ok(comet_control_see_joint(with, seen, 3));
    observe(without, 1);
    assert_true(last.joint == 1.0);
    observe(with, 1);
    assert_true(last.joint == 4.0);
    assert_true(comet_control_bound(with, 0).value == model[0] / 4);
    assert_true(fabs(comet_control_bound(with, 1).value * sqrt(10.0) / model[1] - 1) < 0.13); /* 4 bits */
    assert_true(comet_control_bound(without, 0).value == model[0]);
    assert_false(comet_control_needs(without) & COMET_NEEDS_JOINT);
    comet_control_free(with);
    comet_control_free(without);
}

static void test_what_cannot_be_is_left_out(void **state) {
    (void)state;
    const comet_control_joint wrong[] = {{2, NAN, 1.0},  {2, 1.0, 0.0},  {2, 1.0, INFINITY},
                                         {2, -1.0, 1.0}, {-1, 4.0, 1.0}, {2, 4.0, NAN}};
    comet_control *control = make("comet", 1);
    assert_ok(comet_control_see_joint(control, wrong, sizeof wrong / sizeof *wrong));
    assert_ok(comet_control_see_joint(control, NULL, 0));
    assert_true(joint_of(control, 0) == 1.0 && joint_of(control, 3) == 1.0);
    assert_status(comet_control_see_joint(control, NULL, 1), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_see_joint(control, seen, -1), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_see_joint(NULL, seen, 1), COMET_ERROR_ARGUMENT);
    comet_control_free(control);
}

static void test_a_state_holds_it(void **state) {
    (void)state;
    comet_control *control = make("budget", 1), *after = make("budget", 1);
    observe(control, 0);
    assert_ok(comet_control_see_joint(control, seen, 3));
    const size_t bytes = comet_control_state_bytes(control);
    unsigned char *image = malloc(bytes);
    assert_ok(comet_control_save(control, image, bytes));
    assert_ok(comet_control_load(after, image, bytes));
    const comet_control_joint more[] = {{2, 1.0, 1.0}};
    assert_ok(comet_control_see_joint(control, more, 1));
    assert_ok(comet_control_see_joint(after, more, 1));
    assert_true(joint_of(after, 0) == joint_of(control, 0) && joint_of(after, 0) > 1 && joint_of(after, 0) < 4);
    comet_control_free(control);
    comet_control_free(after);
    free(image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_who_it_is_for),
        cmocka_unit_test(test_it_divides_the_bound),
        cmocka_unit_test(test_what_cannot_be_is_left_out),
        cmocka_unit_test(test_a_state_holds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
