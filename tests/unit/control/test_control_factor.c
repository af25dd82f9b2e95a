/* SPDX-License-Identifier: Apache-2.0 */
/* Measured factors in a controller: how they are smoothed, what they do to bounds, and that states hold them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/bits.h"
#include "comet/control_methods.h"
#include "support/assert_ok.h"

static const comet_control_use uses[] = {{COMET_USE_CONV_WEIGHTS, 0}, {COMET_USE_NORM_INPUT, 1}};
static const comet_control_tensor tensors[] = {{"a", 1000, 2, uses}, {"b", 1000, 1, uses}};
enum { TENSORS = 2, USES = 3, STATE_HEADER = 24, USE_BYTES = 15 * 8, OLD_USE_BYTES = 9 * 8 };

typedef struct last {
    comet_control_event event;
    int ignored;
} last;

static void see(void *context, const comet_control_event *event) {
    last *l = context;
    l->ignored += event->cause == COMET_CAUSE_IGNORED;
    if (event->tensor == 0)
        l->event = *event;
}

static comet_control *make(const char *name, int32_t measured, last *l) {
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    comet_control *control = NULL;
    o.warmup = 0, o.smoothing = 1.0, o.loosen = 1e20, o.floor = 1e-9, o.ceiling = 1e9, o.window = 1;
    o.measured = measured, o.log = l ? see : NULL, o.log_context = l;
    assert_ok(comet_control_new(comet_control_find(name), &o, tensors, TENSORS, &control));
    return control;
}

/* The first use of the first tensor is the tightest, with a bound of 8 by the model. */
static void observe(comet_control *control, int64_t iteration, double factor) {
    comet_use_stats a[] = {
        {.derivative_squares = 0.5, .gradient_squares = 6.0, .momentum = 8.0, .factor = factor},
        {.error_gain = 3.0, .input_squares = 1.0, .momentum = 1e6, .factor = 0},
    };
    comet_use_stats b[] = {a[0]};
    comet_control_observation seen[] = {{.tensor = 0, .rms = 1.0, .uses = a}, {.tensor = 1, .rms = 1.0, .uses = b}};
    b[0].factor = 0;
    b[0].momentum = 1e6;
    assert_ok(comet_control_observe(control, iteration, seen, TENSORS));
}

static void test_mean_begins_with_the_model(void **state) {
    (void)state;
    double factor = 0, sum = 1;
    for (int i = 0; i < 19; i++) {
        const double seen = i % 2 ? 3.0 : 0.5;
        factor = comet_error_factor_mean(factor, i, seen);
        sum += seen * seen;
        assert_true(fabs(factor * factor - sum / (i + 2)) < 1e-12);
    }
    for (int i = 19; i < 400; i++)
        factor = comet_error_factor_mean(factor, i, 2.0);
    assert_true(fabs(factor - 2.0) < 1e-6);
    for (int i = 0; i < 400; i++)
        factor = comet_error_factor_mean(factor, 100, 16.0);
    assert_true(factor == 8.0);
    for (int i = 0; i < 400; i++)
        factor = comet_error_factor_mean(factor, 100, 0.125);
    assert_true(factor == 0.25);
    assert_true(comet_error_factor(4.0, 1.0) == 2.0 && comet_error_factor(1e9, 1.0) == 16.0 &&
                comet_error_factor(0.0, 1.0) == 0.125);
}

static void test_it_divides_the_bound(void **state) {
    (void)state;
    last l = {.ignored = 0};
    comet_control *with = make("comet", 1, &l), *without = make("comet", 0, NULL);
    observe(with, 0, 0);
    observe(without, 0, 0);
    const double model = comet_control_bound(with, 0).value;
    assert_true(l.event.factor == 1.0);
    for (int i = 1; i < 60; i++) {
        observe(with, i, i % 3 ? 0 : 4.0); /* not measured each time */
        observe(without, i, 4.0);
    }
    const double factor = l.event.factor;
    assert_true(factor > 3.7 && factor <= 4.0);
    assert_true(fabs(comet_control_bound(with, 0).value * factor / model - 1) < 0.13); /* 4 bits */
    assert_true(comet_control_bound(without, 0).value == model);
    assert_true(comet_control_bound(with, 1).value == comet_control_bound(without, 1).value);
    assert_true(comet_control_needs(with) & COMET_NEEDS_MEASURED);
    assert_false(comet_control_needs(without) & COMET_NEEDS_MEASURED);
    comet_control_free(with);
    comet_control_free(without);
}

static void test_what_cannot_be_is_left_out(void **state) {
    (void)state;
    last l = {.ignored = 0};
    comet_control *control = make("comet", 1, &l);
    observe(control, 0, NAN);
    assert_int_equal(l.ignored, 1);
    comet_control_free(control);
}

static void test_it_is_handed_on(void **state) {
    (void)state;
    last l = {.ignored = 0}, m = l;
    int64_t measured = 0;
    comet_control *control = make("comet", 1, &l), *after = make("comet", 1, &m);
    for (int i = 0; i < 5; i++)
        observe(control, i, 3.0);
    const double factor = comet_control_factor(control, 0, 0, &measured);
    assert_true(factor > 2.0 && measured == 5);
    comet_control_set_factor(after, 0, 0, factor, measured);
    comet_control_set_factor(after, 0, 1, NAN, 3);
    comet_control_set_factor(after, 0, 1, 0.0, 3);
    comet_control_set_factor(after, 0, 2, 2.0, 3);
    comet_control_set_factor(after, 1, 0, 2.0, 0);
    assert_true(comet_control_factor(after, 0, 1, NULL) == 1.0 && comet_control_factor(after, 1, 0, NULL) == 1.0);
    observe(control, 5, 3.0);
    observe(after, 5, 3.0);
    assert_true(comet_control_factor(after, 0, 0, &measured) == comet_control_factor(control, 0, 0, NULL));
    assert_int_equal(measured, 6);
    comet_control_free(control);
    comet_control_free(after);
}

/* ---- states ---- */

static unsigned char *saved(const comet_control *control, size_t *bytes) {
    *bytes = comet_control_state_bytes(control);
    unsigned char *state = malloc(*bytes);
    assert_ok(comet_control_save(control, state, *bytes));
    return state;
}

static void test_a_state_holds_it(void **state) {
    (void)state;
    last l = {.ignored = 0}, m = l;
    size_t bytes, again_bytes;
    comet_control *control = make("comet", 1, &l), *after = make("comet", 1, &m);
    for (int i = 0; i < 5; i++)
        observe(control, i, 3.0);
    unsigned char *image = saved(control, &bytes);
    assert_ok(comet_control_load(after, image, bytes));
    unsigned char *again = saved(after, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, image, bytes);
    observe(control, 5, 3.0);
    observe(after, 5, 3.0);
    assert_true(l.event.factor == m.event.factor && l.event.factor > 1);
    comet_control_free(control);
    comet_control_free(after);
    free(image);
    free(again);
}

static void write_checksum(unsigned char *image, size_t bytes) {
    static const unsigned char zero[4];
    uLong crc = crc32_z(0, image, 16);
    crc = crc32_z(crc, zero, sizeof zero);
    comet_write_u32(image + 16, (uint32_t)crc32_z(crc, image + 20, bytes - 20));
}

/* As it was before there were factors: each use without its last six fields. */
static size_t make_old(unsigned char *image, size_t bytes) {
    unsigned char *at = image + bytes - 8 - (size_t)USES * USE_BYTES, *to = at;
    for (int i = 0; i < USES; i++, at += USE_BYTES, to += OLD_USE_BYTES)
        memmove(to, at, OLD_USE_BYTES);
    memmove(to, at, 8); /* the methods' own state: 0 bytes */
    const size_t old = bytes - (size_t)USES * (USE_BYTES - OLD_USE_BYTES);
    comet_write_u32(image + 4, 2);
    comet_write_u64(image + 8, old);
    write_checksum(image, old);
    return old;
}

static void test_an_older_state_loads(void **state) {
    (void)state;
    last l = {.ignored = 0}, m = l;
    size_t bytes;
    comet_control *control = make("comet", 1, &l), *after = make("comet", 1, &m);
    for (int i = 0; i < 5; i++)
        observe(control, i, 0);
    observe(after, 0, 4.0); /* is forgotten */
    unsigned char *image = saved(control, &bytes);
    const size_t old = make_old(image, bytes);
    assert_ok(comet_control_load(after, image, old));
    assert_true(comet_control_bound(after, 0).value == comet_control_bound(control, 0).value);
    observe(control, 5, 3.0);
    observe(after, 5, 3.0);
    assert_true(m.event.factor == l.event.factor && m.event.after.value == l.event.after.value);
    comet_write_u32(image + 4, 5);
    write_checksum(image, old);
    assert_status(comet_control_load(after, image, old), COMET_ERROR_VERSION);
    comet_control_free(control);
    comet_control_free(after);
    free(image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_begins_with_the_model), cmocka_unit_test(test_it_divides_the_bound),
        cmocka_unit_test(test_what_cannot_be_is_left_out), cmocka_unit_test(test_it_is_handed_on),
        cmocka_unit_test(test_a_state_holds_it),           cmocka_unit_test(test_an_older_state_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
