/* SPDX-License-Identifier: Apache-2.0 */
/* Controllers: when they decide, what limits a bound, safety, fixed and AC-GC bounds, plug-ins, bad arguments. */
#include <fenv.h>
#include <string.h>

#include "comet/control_methods.h"
#include "control/control.h"
#include "support/counting_allocator.h"
#include "test_control_case.h"

enum { EVENTS = 256 };

typedef struct event_list {
    int count;
    comet_control_event all[EVENTS];
} event_list;

static void collect(void *context, const comet_control_event *event) {
    event_list *list = context;
    if (list->count < EVENTS)
        list->all[list->count++] = *event;
}

/* No smoothing, no waiting, no slow loosening, a wide range: what the theory says is what comes out. */
static comet_control_options plain_options(event_list *list) {
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.calibration = 0.1;
    o.warmup = 0;
    o.smoothing = 1.0;
    o.loosen = 1e20;
    o.floor = 1e-9;
    o.ceiling = 1e9;
    o.log = list ? collect : NULL;
    o.log_context = list;
    return o;
}

static const comet_control_use conv_use = {COMET_USE_CONV_WEIGHTS, -1};

static comet_control *make(const char *name, const comet_control_options *options, const comet_control_use *uses,
                           int use_count) {
    comet_control *control = NULL;
    comet_control_tensor tensor = {"layer1", 1000, use_count, uses};
    assert_ok(comet_control_new(comet_control_find(name), options, &tensor, 1, &control));
    return control;
}

/* A use whose sensitivity is `sensitivity`. */
static comet_use_stats weights_of(double sensitivity, double momentum) {
    return (comet_use_stats){
        .derivative_squares = 0.5, .gradient_squares = 6.0 * sensitivity * sensitivity, .momentum = momentum};
}

static void observe(comet_control *control, int64_t iteration, double rms, double sensitivity, double momentum) {
    comet_use_stats stats = weights_of(sensitivity, momentum);
    comet_control_observation o = {.tensor = 0, .rms = rms, .uses = &stats};
    assert_ok(comet_control_observe(control, iteration, &o, 1));
}

static double bound_of(const comet_control *control) {
    return comet_control_bound(control, 0).value;
}

static void test_bound_is_what_the_theory_says(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.calibration = 0.125;
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 1.0, 4.0, 16.0);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_ABSOLUTE);
    assert_near(bound_of(control), 0.125 * 16.0 / 4.0, 0.0);
    observe(control, 1, 1.0, 4.0, 13.0);      /* 0.40625 is 1.101 * 2^-2 in binary: 13 fits 4 bits */
    assert_near(bound_of(control), 0.5, 0.0); /* it moved by less than a quarter */
    observe(control, 2, 1.0, 4.0, 4.3);
    assert_near(bound_of(control), 0.125, 0.0); /* 0.134375, rounded down to 4 bits */
    comet_control_free(control);
}

static void test_rounding(void **state) {
    (void)state;
    assert_near(comet_control_round(1.0), 1.0, 0.0);
    assert_near(comet_control_round(1.99), 1.875, 0.0);
    assert_near(comet_control_round(0.3), 0.28125, 0.0);
    assert_near(comet_control_round(0.0), 0.0, 0.0);
    assert_near(comet_control_round(0x1.fp-1060), 0x1.ep-1060, 0.0);
    for (double x = 1e-30; x < 1e30; x *= 1.37) {
        double rounded = comet_control_round(x);
        assert_true(rounded <= x && rounded > x * 0.875);
    }
    for (double x = 0.01; x < 100.0; x *= 1.01) {
        double off = log2(x) - comet_control_log2(x);
        assert_true(off > -1e-12 && off < 0.087);
    }
}

static void test_tightest_use_wins_and_gradients_are_shared(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = plain_options(&list);
    o.calibration = 1.0;
    comet_control_use uses[] = {{COMET_USE_CONV_WEIGHTS, 3}, {COMET_USE_NORM_INPUT, 2}};
    comet_control_use other[] = {{COMET_USE_CONV_WEIGHTS, 2}, {COMET_USE_NORM_INPUT, 2}, {COMET_USE_NORM_SCALE, 2}};
    comet_control_tensor tensors[] = {{"a", 10, 2, uses}, {"b", 10, 3, other}, {"free", 10, 0, NULL}};
    comet_control *control;
    assert_ok(comet_control_new(comet_control_find("comet"), &o, tensors, 3, &control));
    /* Four uses reach gradient 2, so each may have half of the sigma. */
    comet_use_stats of_a[] = {weights_of(1.0, 6.0), {.error_gain = 3.0, .input_squares = 1.0, .momentum = 8.0}};
    comet_use_stats of_b[] = {{.momentum = 1.0}, {.momentum = 0.0}, {.momentum = 0.0}};
    comet_control_observation seen[] = {
        {.tensor = 0, .rms = 1.0, .uses = of_a}, {.tensor = 1, .rms = 1.0, .uses = of_b}, {.tensor = 2, .rms = 1e-3}};
    assert_ok(comet_control_observe(control, 0, seen, 3));
    assert_near(bound_of(control), 4.0, 0.0);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.all[0].use, 1);
    assert_int_equal(list.all[0].limit, COMET_LIMIT_USE);
    assert_near(list.all[0].momentum, 8.0, 0.0);
    assert_near(list.all[0].sensitivity, 1.0, 0.0);
    /* No gradient, or no use: nothing but the ceiling. */
    assert_int_equal(list.all[1].limit, COMET_LIMIT_CEILING);
    assert_int_equal(list.all[2].limit, COMET_LIMIT_CEILING);
    assert_near(comet_control_bound(control, 2).value, comet_control_round(1e-3 * 1e9), 0.0);
    of_a[0].momentum = 3.0;
    assert_ok(comet_control_observe(control, 10, seen, 1));
    assert_near(bound_of(control), 3.0, 0.0);
    assert_int_equal(list.all[3].use, 0);
    comet_control_free(control);
}

static void test_floor_ceiling_and_warmup(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.smoothing = 1.0, o.loosen = 1e9, o.warmup = 20, o.log = collect, o.log_context = &list;
    comet_control *control = make("comet", &o, &conv_use, 1);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_RELATIVE);
    assert_near(bound_of(control), o.warmup_bound, 0.0);
    observe(control, 0, 2.0, 1.0, 1e6);
    observe(control, 10, 2.0, 1.0, 1e6);
    assert_near(bound_of(control), o.warmup_bound, 0.0);
    observe(control, 20, 2.0, 1.0, 1e6);
    assert_near(bound_of(control), comet_control_round(0.8), 0.0);
    assert_int_equal(list.all[0].cause, COMET_CAUSE_FIRST);
    assert_int_equal(list.all[0].limit, COMET_LIMIT_CEILING);
    assert_int_equal(list.all[0].before.kind, COMET_BOUND_RELATIVE);
    observe(control, 30, 2.0, 1.0, 1e-6);
    assert_near(bound_of(control), comet_control_round(0.02), 0.0);
    assert_int_equal(list.all[1].cause, COMET_CAUSE_MOVED);
    assert_int_equal(list.all[1].limit, COMET_LIMIT_FLOOR);
    observe(control, 40, 2.0, 1.0, 1e-9); /* at the floor before and after: nothing moved */
    assert_int_equal(list.count, 2);
    observe(control, 50, 4.0, 1.0, 1e-9); /* but the floor has */
    assert_near(bound_of(control), comet_control_round(0.04), 0.0);
    comet_control_free(control);
}

/* Between decisions, too; a bound below it stays as it is, and so does a fixed one. */
static void test_the_ceiling_follows_the_rms(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.loosen = 1e9, o.warmup = 0, o.ceiling = 0.5, o.fixed_bound = 8, o.fixed_kind = COMET_BOUND_ABSOLUTE;
    o.log = collect, o.log_context = &list;
    comet_control *control = make("comet", &o, &conv_use, 1), *fixed = make("fixed", &o, &conv_use, 1);
    comet_control_see_rms(control, 0, 0.5); /* a relative bound needs none */
    assert_near(bound_of(control), o.warmup_bound, 0.0);
    observe(control, 0, 2.0, 1.0, 1e6);
    assert_near(bound_of(control), 0.25, 0.0);
    comet_control_see_rms(control, 0, 4.0);
    assert_near(bound_of(control), 1.0, 0.0);
    const double not_seen[] = {NAN, INFINITY, -1.0};
    comet_control_see_rms(control, 0, 0.3);
    for (int i = 0; i < 3; i++)
        comet_control_see_rms(control, 0, not_seen[i]);
    assert_near(bound_of(control), comet_control_round(0.15), 0.0);
    comet_control_see_rms(control, 0, 0.0); /* not known */
    assert_near(bound_of(control), 1.0, 0.0);
    comet_control_see_rms(control, 1, 0.1); /* no such tensor */
    comet_control_see_rms(control, -1, 0.1);
    comet_control_see_rms(NULL, 0, 0.1);
    assert_near(bound_of(control), 1.0, 0.0);
    comet_control_see_rms(fixed, 0, 0.1);
    assert_near(bound_of(fixed), 8.0, 0.0);
    comet_control_free(fixed);
    comet_control_free(control);
}

/* All zeros: there is no unit for a bound, and none is needed. */
static void test_tensor_of_zeros_stays_in_warmup(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 0.0, 1.0, 1.0);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_RELATIVE);
    observe(control, 10, 1.0, 1.0, 1.0);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_ABSOLUTE);
    comet_control_free(control);
}

static void test_bounds_loosen_step_by_step_and_tighten_at_once(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = plain_options(&list);
    o.loosen = 2.0, o.calibration = 1.0, o.warmup_bound = 0.1, o.adaptive = 0;
    comet_control *control = make("comet", &o, &conv_use, 1);
    static const double expected[] = {0.1875, 0.375, 0.75, 1.0};
    for (int i = 0; i < 4; i++) {
        assert_true(comet_control_wants(control, 10 * i));
        observe(control, 10 * i, 1.0, 1.0, 1.0);
        assert_near(bound_of(control), expected[i], 0.0);
        assert_int_equal(list.all[i].cause, i ? COMET_CAUSE_LOOSENING : COMET_CAUSE_FIRST);
        assert_int_equal(list.all[i].limit, i < 3 ? COMET_LIMIT_LOOSEN : COMET_LIMIT_USE);
    }
    assert_false(comet_control_wants(control, 40));
    observe(control, 1030, 1.0, 1.0, 0.125);
    assert_near(bound_of(control), 0.125, 0.0);
    assert_int_equal(list.all[4].cause, COMET_CAUSE_WINDOW);
    assert_int_equal(list.count, 5);
    comet_control_free(control);
}

static void test_statistics_are_wanted_when_they_are_needed(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.window = 100;
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        int wanted = 0;
        o.adaptive = adaptive;
        comet_control *control = make("comet", &o, &conv_use, 1);
        observe(control, 0, 1.0, 1.0, 1.0);
        for (int64_t i = 1; i <= 100; i++)
            wanted += comet_control_wants(control, i);
        assert_int_equal(wanted, adaptive ? 10 : 5);
        comet_control_free(control);
    }
    comet_control *control = make("fixed", &o, &conv_use, 1);
    assert_false(comet_control_wants(control, 0));
    comet_control_free(control);
}

static void test_statistics_are_smoothed(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.smoothing = 0.25, o.calibration = 1.0, o.moved = 0.0;
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 1.0, 1.0, 8.0);
    assert_near(bound_of(control), 8.0, 0.0);
    observe(control, 10, 1.0, 1.0, 16.0);
    assert_near(bound_of(control), 10.0, 0.0);
    comet_control_free(control);
}

static void test_a_measured_correction_stays(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.calibration = 1.0, o.smoothing = 0.5;
    comet_control *control = make("comet", &o, &conv_use, 1);
    comet_use_stats stats = weights_of(1.0, 8.0);
    comet_control_observation seen = {.tensor = 0, .rms = 1.0, .uses = &stats};
    static const double corrections[] = {0.0, 2.0, 0.0, 4.0}, expected[] = {8.0, 4.0, 4.0, 2.0};
    for (int i = 0; i < 4; i++) {
        stats.correction = corrections[i];
        assert_ok(comet_control_observe(control, i, &seen, 1));
        assert_near(bound_of(control), expected[i], 0.0);
    }
    comet_control_free(control);
}

static void test_impossible_statistics_are_left_out(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = plain_options(&list);
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 1.0, 1.0, 1.0);
    double before = bound_of(control);
    observe(control, 10, 1.0, 1.0, NAN);
    observe(control, 20, INFINITY, 1.0, 1.0);
    observe(control, 30, 1.0, 1.0, -1.0);
    comet_control_size size = {NAN, 1.0};
    comet_control_observation with_size = {.tensor = 0, .rms = 1.0, .size_count = 1, .sizes = &size};
    assert_ok(comet_control_observe(control, 40, &with_size, 1));
    assert_near(bound_of(control), before, 0.0);
    assert_int_equal(list.count, 5);
    for (int i = 1; i < 5; i++)
        assert_int_equal(list.all[i].cause, COMET_CAUSE_IGNORED);
    comet_control_free(control);
}

/* ---- safety ---- */

static int64_t calm(comet_control *control, int64_t from, int count, double loss) {
    for (int i = 0; i < count; i++, from++)
        assert_int_equal(comet_control_step(control, from, loss + 0.01 * (double)(i % 3), 1), COMET_CONTROL_GO_ON);
    return from;
}

static void test_a_jump_of_the_loss_tightens_and_recovers(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.fixed_bound = 0.5, o.log = collect, o.log_context = &list;
    comet_control *control = make("fixed", &o, &conv_use, 1);
    int64_t i = calm(control, 0, 40, 2.0);
    assert_near(bound_of(control), 0.5, 0.0);
    assert_int_equal(comet_control_step(control, i++, 5.0, 1), COMET_CONTROL_GO_ON);
    assert_near(bound_of(control), 0.125, 0.0);
    assert_int_equal(list.all[1].cause, COMET_CAUSE_SPIKE);
    assert_near(list.all[1].loss, 5.0, 0.0);
    assert_near(list.all[1].before.value, 1.0, 0.0);
    assert_near(list.all[1].after.value, 0.25, 0.0);
    (void)comet_control_step(control, i++, 5.0, 1); /* still the same trouble */
    assert_near(bound_of(control), 0.125, 0.0);
    i = calm(control, i, 98, 2.0);
    assert_near(bound_of(control), 0.125, 0.0);
    i = calm(control, i, 1, 2.0);
    assert_near(bound_of(control), 0.25, 0.0);
    (void)calm(control, i, 100, 2.0);
    assert_near(bound_of(control), 0.5, 0.0);
    assert_int_equal(list.count, 4);
    assert_int_equal(list.all[3].cause, COMET_CAUSE_RECOVERY);
    comet_control_free(control);
}

/* However large the first jump was, the mean does not follow it, and the next is seen. */
static void test_a_jump_does_not_blind(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.log = collect, o.log_context = &list;
    comet_control *control = make("fixed", &o, &conv_use, 1);
    int64_t i = calm(control, 0, 40, 2.0);
    (void)comet_control_step(control, i++, 1e6, 1);
    i = calm(control, i, 20, 2.0);
    (void)comet_control_step(control, i, 8.0, 1);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.all[2].cause, COMET_CAUSE_SPIKE);
    comet_control_free(control);
}

/* A falling loss with noise of a fifth, as training has: no false alarm. A level that stays higher is learnt. */
static void test_noise_is_no_jump(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.log = collect, o.log_context = &list;
    comet_control *control = make("fixed", &o, &conv_use, 1);
    uint32_t noise = 1;
    for (int64_t i = 0; i < 5000; i++) {
        noise = noise * 1664525u + 1013904223u;
        double part = (double)(noise >> 8) * 0x1p-24 - 0.5;
        (void)comet_control_step(control, i, (2.3 / (1.0 + 0.002 * (double)i)) * (1.0 + 0.4 * part), 1);
    }
    assert_int_equal(list.count, 1);
    for (int64_t i = 5000; i < 6000; i++)
        (void)comet_control_step(control, i, 3.0, 1);
    assert_true(list.count > 1 && list.all[1].cause == COMET_CAUSE_SPIKE);
    assert_near(bound_of(control), 0.3, 0.0);
    comet_control_free(control);
}

static void test_what_is_not_finite_is_skipped(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = plain_options(&list);
    o.calibration = 1.0, o.most_skips = 4;
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 1.0, 1.0, 1.0);
    assert_int_equal(comet_control_step(control, 1, NAN, 1), COMET_CONTROL_SKIP);
    assert_near(bound_of(control), 0.25, 0.0);
    assert_int_equal(list.all[1].cause, COMET_CAUSE_NONFINITE);
    assert_int_equal(comet_control_step(control, 2, 1.0, 0), COMET_CONTROL_SKIP);
    assert_int_equal(comet_control_step(control, 3, INFINITY, 0), COMET_CONTROL_SKIP);
    assert_near(bound_of(control), 0x1p-6, 0.0);
    assert_int_equal(comet_control_step(control, 4, 1.0, 1), COMET_CONTROL_GO_ON);
    for (int i = 5; i < 8; i++)
        assert_int_equal(comet_control_step(control, i, NAN, 0), COMET_CONTROL_SKIP);
    assert_int_equal(comet_control_step(control, 8, NAN, 0), COMET_CONTROL_STOP);
    assert_near(bound_of(control), 0x1p-6, 0.0); /* no tighter than three times */
    comet_control_free(control);
}

static void test_safety_stops_at_the_floor(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.calibration = 1.0, o.floor = 0.5;
    comet_control *control = make("comet", &o, &conv_use, 1);
    observe(control, 0, 1.0, 1.0, 1.0);
    (void)comet_control_step(control, 1, NAN, 0);
    assert_near(bound_of(control), 0.5, 0.0);
    observe(control, 10, 1.0, 1.0, 1e-3);
    assert_near(bound_of(control), 0.5, 0.0);
    comet_control_free(control);
}

/* ---- kinds ---- */

static void test_fixed(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.fixed_kind = COMET_BOUND_ABSOLUTE, o.fixed_bound = 17.3, o.log = collect, o.log_context = &list;
    comet_control *control = make("fixed", &o, &conv_use, 1);
    observe(control, 1000, 1.0, 1.0, 1.0);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_ABSOLUTE);
    assert_near(bound_of(control), 17.3, 0.0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.all[0].cause, COMET_CAUSE_START);
    assert_int_equal(list.all[0].limit, COMET_LIMIT_FIXED);
    comet_control_free(control);
}

static void test_acgc_takes_the_least(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    o.acgc_e = 4.0;
    comet_control_use uses[] = {{COMET_USE_CONV_WEIGHTS, -1}, {COMET_USE_NORM_INPUT, -1}, {COMET_USE_NORM_SCALE, -1}};
    comet_control *control = make("acgc", &o, uses, 3);
    comet_use_stats stats[] = {{.acgc = 0.25}, {.acgc = 0.0625}, {.acgc = 0.0}};
    comet_control_observation seen = {.tensor = 0, .rms = 1.0, .uses = stats};
    assert_ok(comet_control_observe(control, 0, &seen, 1));
    assert_near(bound_of(control), 0.5, 0.0);
    comet_control_free(control);
}

static void test_mean_form_is_an_option(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    comet_control *control = make("comet:mean", &o, &conv_use, 1);
    comet_use_stats stats = {.derivative_squares = 0.25, .gradient_mean = 0.5, .positions = 64.0, .momentum = 1.0};
    comet_control_observation seen = {.tensor = 0, .rms = 1.0, .uses = &stats};
    assert_ok(comet_control_observe(control, 0, &seen, 1));
    assert_near(bound_of(control), comet_control_round(0.1 / (0.32 * 0.5 * sqrt(64.0 * 0.25))), 0.0);
    comet_control_free(control);
}

/* sigma = 0.01 M; eb = sigma / (0.32 L sqrt(N R)): beyond any ceiling, not rounded, no correction, no factor. */
static void test_paper_as_it_is_written(void **state) {
    (void)state;
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.warmup = 0, o.smoothing = 1.0, o.adaptive = 0;
    const comet_control_use uses[] = {{COMET_USE_NORM_SCALE, -1}, {COMET_USE_CONV_WEIGHTS, -1}};
    comet_control_tensor tensors[] = {{"read", 1000, 2, uses}, {"norm", 1000, 1, uses}, {"still", 1000, 1, &uses[1]}};
    comet_use_stats read[] = {{.derivative_squares = 1.0, .gradient_squares = 1e9, .momentum = 1.0},
                              {.derivative_squares = 0.25,
                               .gradient_squares = 1e9,
                               .gradient_mean = 0.001,
                               .positions = 1e6,
                               .samples = 64.0,
                               .momentum = 0.3,
                               .buffer = 3.0,
                               .correction = 2.0,
                               .factor = 3.0}},
                    still[] = {{.buffer = 3.0, .samples = 64.0, .derivative_squares = 0.25}};
    comet_control_observation seen[] = {{.tensor = 0, .rms = 1.0, .uses = read},
                                        {.tensor = 1, .rms = 1.0, .uses = read},
                                        {.tensor = 2, .rms = 1.0, .uses = still}};
    comet_control *control = NULL;
    assert_ok(comet_control_new(comet_control_find("comet:paper"), &o, tensors, 3, &control));
    assert_ok(comet_control_observe(control, 0, seen, 3));
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_ABSOLUTE);
    assert_near(bound_of(control), 0.01 * 3.0 / (0.32 * 0.001 * sqrt(64.0 * 0.25)), 1e-12); /* 23 times the rms */
    for (int i = 1; i < 3; i++) { /* the paper says nothing of it; no gradient limits it */
        assert_int_equal(comet_control_bound(control, i).kind, COMET_BOUND_RELATIVE);
        assert_near(comet_control_bound(control, i).value, o.warmup_bound, 0.0);
    }
    comet_control_see_rms(control, 0, 0.001);
    assert_near(bound_of(control), 0.01 * 3.0 / (0.32 * 0.001 * sqrt(64.0 * 0.25)), 1e-12);
    read[1].buffer = 1.0;
    assert_ok(comet_control_observe(control, o.window - o.every, seen, 3));
    assert_near(bound_of(control), 0.01 * 3.0 / (0.32 * 0.001 * sqrt(64.0 * 0.25)), 1e-12);
    assert_ok(comet_control_observe(control, o.window, seen, 3));
    assert_near(bound_of(control), 0.01 / (0.32 * 0.001 * sqrt(64.0 * 0.25)), 1e-12);
    comet_control_free(control);
}

static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"comet", "comet:mean", "comet:paper", "acgc", "fixed", "budget"};
    for (int i = 0; i < 6; i++) {
        assert_string_equal(comet_control_name(i), names[i]);
        assert_string_equal(comet_control_find(names[i])->name, names[i]);
    }
    assert_null(comet_control_name(6));
    assert_null(comet_control_name(-1));
    assert_null(comet_control_find("comet:"));
    assert_null(comet_control_find(NULL));
    assert_string_equal(comet_control_limit_text(COMET_LIMIT_PLUGIN), "plug-in");
    assert_string_equal(comet_control_limit_text((comet_control_limit)99), "?");
    assert_string_equal(comet_control_cause_text(COMET_CAUSE_WINDOW), "the window has passed");
    assert_string_equal(comet_control_cause_text((comet_control_cause)99), "?");
}

/* The caller's rounding mode changes nothing and is given back. */
static void test_floating_point_environment(void **state) {
    (void)state;
    comet_control_options o = plain_options(NULL);
    comet_use_stats stats[50];
    double smoothed[2];
    o.smoothing = 0.1;
    for (int i = 0; i < 50; i++)
        stats[i] = weights_of(1.0 / 7.0 + i, 0.3 * i);
    for (int mode = 0; mode < 2; mode++) {
        comet_control *control = make("comet", &o, &conv_use, 1);
        assert_int_equal(fesetround(mode ? FE_UPWARD : FE_TONEAREST), 0);
        for (int i = 0; i < 50; i++) {
            comet_control_observation seen = {.tensor = 0, .rms = 0.3, .uses = &stats[i]};
            assert_ok(comet_control_observe(control, i, &seen, 1));
        }
        assert_int_equal(fegetround(), mode ? FE_UPWARD : FE_TONEAREST);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        smoothed[mode] = control->tensors[0].uses[0].stats.gradient_squares;
        comet_control_free(control);
    }
    assert_near(smoothed[0], smoothed[1], 0.0);
}

/* ---- plug-ins ---- */

/* The bound is a number that grows with each observation that it is asked at; kept in its state. */
typedef struct grower {
    double next;
    int alive;
} grower;

static grower the_grower;

static comet_status grower_create(const comet_control_view *view, void **instance) {
    assert_int_equal(view->count, 1);
    the_grower = (grower){0.25, 1};
    *instance = &the_grower;
    return COMET_OK;
}

static void grower_release(void *instance) {
    ((grower *)instance)->alive = 0;
}

static comet_status grower_assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    grower *g = instance;
    assert_string_equal(view->tensors[0].name, "layer1");
    choices[0] = (comet_control_choice){{COMET_BOUND_RELATIVE, g->next}, COMET_LIMIT_PLUGIN, -1};
    g->next += 0.0625;
    return g->next < 0.6 ? COMET_OK : COMET_ERROR_UNSUPPORTED;
}

static int grower_step(void *instance, int64_t iteration, double loss, int finite) {
    (void)instance, (void)loss;
    return finite && iteration == 15;
}

static size_t grower_bytes(const void *instance) {
    (void)instance;
    return sizeof(double);
}

static void grower_save(const void *instance, void *bytes) {
    memcpy(bytes, &((const grower *)instance)->next, sizeof(double));
}

static comet_status grower_load(void *instance, const void *bytes, size_t count) {
    if (count != sizeof(double))
        return COMET_ERROR_CORRUPT;
    memcpy(&((grower *)instance)->next, bytes, sizeof(double));
    return COMET_OK;
}

static comet_control_methods grower_methods(void) {
    return (comet_control_methods){COMET_CONTROL_VERSION,
                                   0,
                                   sizeof(comet_control_methods),
                                   "grower",
                                   COMET_NEEDS_SQUARES,
                                   grower_create,
                                   grower_release,
                                   grower_assess,
                                   grower_step,
                                   grower_bytes,
                                   grower_save,
                                   grower_load};
}

static void test_plugin(void **state) {
    (void)state;
    event_list list = {0};
    comet_control_options o = plain_options(&list);
    o.moved = 1e9;
    comet_control_methods methods = grower_methods();
    comet_control_tensor tensor = {"layer1", 1000, 1, &conv_use};
    comet_control *control;
    assert_ok(comet_control_new(&methods, &o, &tensor, 1, &control));
    observe(control, 0, 1.0, 1.0, 1.0);
    assert_near(bound_of(control), 0.25, 0.0);
    assert_int_equal(comet_control_bound(control, 0).kind, COMET_BOUND_RELATIVE);
    observe(control, 10, 1.0, 1.0, 1.0);
    assert_near(bound_of(control), 0.25, 0.0);
    assert_int_equal(comet_control_step(control, 15, 1.0, 1), COMET_CONTROL_GO_ON);
    observe(control, 20, 1.0, 1.0, 1.0);
    assert_near(bound_of(control), 0.375, 0.0);
    assert_int_equal(list.all[1].cause, COMET_CAUSE_ASKED);
    unsigned char bytes[2048];
    size_t count = comet_control_state_bytes(control);
    assert_true(count <= sizeof bytes);
    assert_ok(comet_control_save(control, bytes, count));
    observe(control, 30, 1.0, 1.0, 1.0);
    assert_ok(comet_control_load(control, bytes, count));
    assert_near(the_grower.next, 0.4375, 0.0);
    for (int i = 0; i < 2; i++)
        observe(control, 40 + i, 1.0, 1.0, 1.0);
    comet_control_observation nothing = {.tensor = 0, .rms = 1.0};
    assert_status(comet_control_observe(control, 50, &nothing, 1), COMET_ERROR_UNSUPPORTED);
    comet_control_free(control);
    assert_int_equal(the_grower.alive, 0);
}

static comet_control_choice wrong_choice;

static comet_status wrong_assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance, (void)view;
    choices[0] = wrong_choice;
    return COMET_OK;
}

static void test_wrong_plugins(void **state) {
    (void)state;
    static const comet_control_choice wrong[] = {{{COMET_BOUND_ABSOLUTE, -1.0}, COMET_LIMIT_PLUGIN, -1},
                                                 {{COMET_BOUND_ABSOLUTE, NAN}, COMET_LIMIT_PLUGIN, -1},
                                                 {{(comet_bound_kind)7, 1.0}, COMET_LIMIT_PLUGIN, -1},
                                                 {{COMET_BOUND_ABSOLUTE, 1.0}, COMET_LIMIT_PLUGIN, 1},
                                                 {{COMET_BOUND_ABSOLUTE, 1.0}, COMET_LIMIT_PLUGIN, -2},
                                                 {{COMET_BOUND_ABSOLUTE, INFINITY}, COMET_LIMIT_PLUGIN, -1}};
    comet_control_options o = plain_options(NULL);
    comet_control_tensor tensor = {"layer1", 1000, 1, &conv_use};
    comet_control *control;
    comet_control_methods methods = {.version = COMET_CONTROL_VERSION,
                                     .size = sizeof methods,
                                     .flags = COMET_CONTROL_AT_ONCE | COMET_CONTROL_AS_IS,
                                     .name = "wrong",
                                     .assess = wrong_assess};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong_choice = wrong[i];
        assert_status(comet_control_new(&methods, &o, &tensor, 1, &control), COMET_ERROR_ARGUMENT);
    }
    methods.version++;
    assert_status(comet_control_new(&methods, &o, &tensor, 1, &control), COMET_ERROR_VERSION);
    methods.version--, methods.size--;
    assert_status(comet_control_new(&methods, &o, &tensor, 1, &control), COMET_ERROR_VERSION);
    methods.size++, methods.load = grower_load;
    assert_status(comet_control_new(&methods, &o, &tensor, 1, &control), COMET_ERROR_ARGUMENT);
    methods.load = NULL, methods.assess = NULL;
    assert_status(comet_control_new(&methods, &o, &tensor, 1, &control), COMET_ERROR_ARGUMENT);
}

/* ---- arguments ---- */

#define assert_refused(field, value)                                                                                   \
    do {                                                                                                               \
        comet_control_options wrong_options = COMET_CONTROL_OPTIONS_INIT;                                              \
        wrong_options.field = (value);                                                                                 \
        assert_non_null(comet_control_check(&wrong_options));                                                          \
        assert_status(comet_control_new(comet_control_find("comet"), &wrong_options, &tensor, 1, &control),            \
                      COMET_ERROR_ARGUMENT);                                                                           \
    } while (0)

static void test_options_are_checked(void **state) {
    (void)state;
    comet_control *control = NULL;
    comet_control_tensor tensor = {"layer1", 1000, 1, &conv_use};
    assert_null(comet_control_check(NULL));
    assert_refused(size, 1);
    assert_refused(calibration, 0.0);
    assert_refused(warmup_bound, NAN);
    assert_refused(floor, 0.0);
    assert_refused(floor, 0.7);
    assert_refused(ceiling, INFINITY);
    assert_refused(fixed_bound, -0.1);
    assert_refused(fixed_kind, (comet_bound_kind)2);
    assert_refused(budget_bytes, -1.0);
    assert_refused(budget_error, NAN);
    assert_refused(acgc_e, 0.0);
    assert_refused(warmup, -1);
    assert_refused(window, 0);
    assert_refused(every, 0);
    assert_refused(recover, 0);
    assert_refused(most_skips, 0);
    assert_refused(smoothing, 0.0);
    assert_refused(smoothing, 1.1);
    assert_refused(moved, -0.1);
    assert_refused(loosen, 1.2);
    assert_refused(spike, -1.0);
    assert_refused(tighten, 0.0);
    assert_refused(tighten, 1.5);
    assert_refused(shape.count, 9);
    assert_refused(shape.count, 1); /* a factor of 0 */
    comet_control_options both = COMET_CONTROL_OPTIONS_INIT;
    both.budget_bytes = both.budget_error = 1.0;
    assert_non_null(comet_control_check(&both));
    assert_null(control);
}

static void test_arguments_are_checked(void **state) {
    (void)state;
    comet_control *control = NULL;
    const comet_control_methods *comet = comet_control_find("comet");
    comet_control_use unknown = {COMET_USE_KINDS, -1};
    comet_control_tensor right = {"a", 1, 1, &conv_use}, wrong[] = {{NULL, 1, 0, NULL},
                                                                    {"a", 0, 0, NULL},
                                                                    {"a", 1, -1, NULL},
                                                                    {"a", 1, 1, NULL},
                                                                    {"a", 1, 1, &unknown}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(comet_control_new(comet, NULL, &wrong[i], 1, &control), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_new(comet, NULL, &right, -1, &control), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_new(comet, NULL, NULL, 1, &control), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_new(NULL, NULL, &right, 1, &control), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_new(comet, NULL, &right, 1, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_control_new(comet, NULL, &right, 1, &control));
    comet_control_observation outside = {.tensor = 1}, negative = {.tensor = -1}, sizes = {.size_count = 1};
    assert_status(comet_control_observe(control, 0, &outside, 1), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_observe(control, 0, &negative, 1), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_observe(control, 0, &sizes, 1), COMET_ERROR_ARGUMENT);
    assert_status(comet_control_observe(control, 0, NULL, 1), COMET_ERROR_ARGUMENT);
    assert_ok(comet_control_observe(control, 5, NULL, 0));
    assert_status(comet_control_observe(control, 4, NULL, 0), COMET_ERROR_ARGUMENT);
    assert_near(comet_control_bound(control, 1).value, 0.0, 0.0);
    assert_near(comet_control_bound(NULL, 0).value, 0.0, 0.0);
    comet_control_free(control);
    comet_control_free(NULL);
}

static void test_allocation_failures(void **state) {
    (void)state;
    for (int kind = 0; comet_control_name(kind); kind++) {
        counting_allocator counted;
        counting_allocator_init(&counted);
        comet_control_options o = plain_options(NULL);
        o.allocator = &counted.allocator;
        comet_control_tensor tensor = {"layer1", 1000, 1, &conv_use};
        comet_status status = COMET_ERROR_MEMORY;
        for (long at = 1; status != COMET_OK; at++) {
            comet_control *control = NULL;
            counted.calls = 0, counted.fail_at = at;
            status = comet_control_new(comet_control_find(comet_control_name(kind)), &o, &tensor, 1, &control);
            assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
            assert_true(at > 1 || status == COMET_ERROR_MEMORY);
            if (control) {
                long calls = counted.calls;
                observe(control, 0, 1.0, 1.0, 1.0);
                assert_int_equal(counted.calls, calls); /* nothing is allocated later */
            }
            comet_control_free(control);
            assert_int_equal(counted.live_blocks, 0);
        }
        assert_int_equal(counted.wrong_sizes, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound_is_what_the_theory_says),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_tightest_use_wins_and_gradients_are_shared),
        cmocka_unit_test(test_floor_ceiling_and_warmup),
        cmocka_unit_test(test_the_ceiling_follows_the_rms),
        cmocka_unit_test(test_tensor_of_zeros_stays_in_warmup),
        cmocka_unit_test(test_bounds_loosen_step_by_step_and_tighten_at_once),
        cmocka_unit_test(test_statistics_are_wanted_when_they_are_needed),
        cmocka_unit_test(test_statistics_are_smoothed),
        cmocka_unit_test(test_a_measured_correction_stays),
        cmocka_unit_test(test_impossible_statistics_are_left_out),
        cmocka_unit_test(test_a_jump_of_the_loss_tightens_and_recovers),
        cmocka_unit_test(test_a_jump_does_not_blind),
        cmocka_unit_test(test_noise_is_no_jump),
        cmocka_unit_test(test_what_is_not_finite_is_skipped),
        cmocka_unit_test(test_safety_stops_at_the_floor),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_acgc_takes_the_least),
        cmocka_unit_test(test_mean_form_is_an_option),
        cmocka_unit_test(test_paper_as_it_is_written),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_floating_point_environment),
        cmocka_unit_test(test_plugin),
        cmocka_unit_test(test_wrong_plugins),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_arguments_are_checked),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
