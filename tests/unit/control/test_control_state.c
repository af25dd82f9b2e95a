/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace replayed: the same decisions, also when the state went through bytes at any point; bytes that are not a state
 * are refused.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "comet/control.h"
#include "test_control_case.h"

enum { TENSORS = 3, EVENTS = 400 };

/* What a run may show: momentum falls, a jump of the loss, a step that is not finite, calm, gradients that grow. */
typedef struct trace_row {
    int64_t iteration;
    double loss;
    int finite;
    double momentum, gradient, rms; /* of all tensors, times a factor for each */
    double bounds[TENSORS];         /* of `comet`, after this row */
} trace_row;

static const trace_row trace[] = {
    {0, 2.30, 1, 1.00, 1.00, 1.00, {0.1, 0.1, 0.1}},
    {10, 2.25, 1, 0.90, 1.10, 1.02, {0.1, 0.1, 0.1}},
    {20, 2.21, 1, 0.82, 1.05, 1.01, {0.1875, 0.375, 0.40625}},
    {30, 2.12, 1, 0.80, 1.20, 1.05, {0.375, 0.46875, 0.375}},
    {40, 2.08, 1, 0.75, 1.00, 1.10, {0.5625, 0.4375, 0.375}},
    {50, 2.01, 1, 0.30, 1.10, 1.12, {0.5625, 0.4375, 0.375}},
    {60, 1.95, 1, 0.20, 1.20, 1.15, {0.40625, 0.28125, 0.234375}},
    {70, 1.90, 1, 0.15, 1.15, 1.20, {0.40625, 0.28125, 0.234375}},
    {80, 1.88, 1, 0.12, 1.00, 1.21, {0.28125, 0.203125, 0.15625}},
    {90, 1.85, 1, 0.10, 0.90, 1.25, {0.28125, 0.203125, 0.15625}},
    {100, 9.00, 1, 0.10, 5.00, 1.25, {0.01953125, 0.0234375, 0.03515625}},
    {110, 1.90, 1, 0.10, 1.00, 1.25, {0.01953125, 0.0234375, 0.03515625}},
    {120, NAN, 0, NAN, NAN, 1.25, {0.01171875, 0.0234375, 0.03515625}},
    {130, 1.85, 1, 0.10, 1.00, 1.30, {0.01171875, 0.0234375, 0.03515625}},
    {150, 1.80, 1, 0.10, 1.00, 1.30, {0.01171875, 0.0234375, 0.03515625}},
    {200, 1.75, 1, 0.09, 1.00, 1.30, {0.01171875, 0.0234375, 0.03515625}},
    {300, 1.70, 1, 0.08, 1.00, 1.40, {0.0126953125, 0.025390625, 0.03515625}},
    {400, 1.65, 1, 0.07, 0.50, 1.40, {0.01953125, 0.025390625, 0.0390625}},
    {500, 1.60, 1, 0.40, 0.50, 1.40, {0.05859375, 0.04296875, 0.0390625}},
    {1200, 1.00, 1, 0.40, 0.50, 1.40, {0.171875, 0.125, 0.1015625}},
    {2600, 0.90, 1, 0.30, 0.50, 1.40, {0.203125, 0.140625, 0.1171875}},
};
enum { ROWS = sizeof trace / sizeof *trace };

static const comet_control_use uses_of[TENSORS][2] = {{{COMET_USE_CONV_WEIGHTS, 0}, {COMET_USE_NORM_INPUT, 1}},
                                                      {{COMET_USE_NORM_SCALE, -1}, {COMET_USE_CONV_WEIGHTS, 1}},
                                                      {{COMET_USE_LINEAR_WEIGHTS, 2}}};

static const comet_control_tensor tensors[TENSORS] = {
    {"stem", 40000, 2, uses_of[0]}, {"layer1.0.bn1", 20000, 2, uses_of[1]}, {"fc", 512, 1, uses_of[2]}};

typedef struct event_list {
    int count;
    comet_control_event all[EVENTS];
} event_list;

static void collect(void *context, const comet_control_event *event) {
    event_list *list = context;
    assert_true(list->count < EVENTS);
    list->all[list->count] = *event;
    list->all[list->count++].name = NULL; /* of the control that is gone when events are compared */
}

static comet_control *make(const char *name, event_list *list) {
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    comet_control *control;
    o.calibration = 0.1, o.warmup_bound = 0.1, o.ceiling = 0.6, o.warmup = 20, o.log = collect, o.log_context = list;
    assert_ok(comet_control_new(comet_control_find(name), &o, tensors, TENSORS, &control));
    list->count = 0;
    return control;
}

static void observe_row(comet_control *control, const trace_row *row) {
    comet_use_stats stats[TENSORS][2];
    comet_control_size sizes[TENSORS];
    comet_control_observation seen[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        double scale = 1.0 + i, rms = row->rms * scale;
        comet_control_bound_value bound = comet_control_bound(control, i);
        for (int u = 0; u < 2; u++)
            stats[i][u] = (comet_use_stats){.derivative_squares = 0.4,
                                            .gradient_squares = 30.0 * row->gradient * row->gradient * scale,
                                            .gradient_mean = 0.02 * row->gradient,
                                            .positions = 32768.0,
                                            .error_gain = 1e-5 * row->gradient * row->gradient,
                                            .input_squares = 2e5 * scale,
                                            .momentum = 16.0 * row->momentum * (1.0 + u),
                                            .acgc = 0.01 * row->momentum * scale};
        sizes[i].bound = bound.kind == COMET_BOUND_ABSOLUTE ? bound.value : bound.value * rms;
        sizes[i].bytes = (double)tensors[i].count * 0.2 * (1.0 + 0.1 * i);
        seen[i] = (comet_control_observation){i, 1, rms, stats[i], &sizes[i]};
    }
    assert_ok(comet_control_observe(control, row->iteration, seen, TENSORS));
}

/* Rows `from` .. `to` - 1, with the losses between two rows as at the first. */
static void replay(comet_control *control, int from, int to, double bounds[ROWS][TENSORS]) {
    for (int i = from; i < to; i++) {
        const trace_row *row = &trace[i];
        int64_t next = i + 1 < ROWS ? trace[i + 1].iteration : row->iteration + 1;
        assert_int_equal(comet_control_step(control, row->iteration, row->loss, row->finite),
                         row->finite ? COMET_CONTROL_GO_ON : COMET_CONTROL_SKIP);
        observe_row(control, row);
        for (int t = 0; t < TENSORS; t++)
            bounds[i][t] = comet_control_bound(control, t).value;
        for (int64_t k = row->iteration + 1; k < next && row->finite; k++)
            (void)comet_control_step(control, k, row->loss > 3.0 ? 1.9 : row->loss, 1);
    }
}

static void test_decisions_are_those_recorded(void **state) {
    (void)state;
    static event_list list;
    double bounds[ROWS][TENSORS];
    comet_control *control = make("comet", &list);
    replay(control, 0, ROWS, bounds);
    comet_control_free(control);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        for (int t = 0; t < TENSORS; t++)
            wrong += bounds[i][t] != trace[i].bounds[t];
    for (int i = 0; i < ROWS && wrong; i++)
        print_message("{%.9g, %.9g, %.9g}\n", bounds[i][0], bounds[i][1], bounds[i][2]);
    assert_int_equal(wrong, 0);
    int causes[COMET_CAUSE_IGNORED + 1] = {0};
    for (int i = 0; i < list.count; i++)
        causes[list.all[i].cause]++;
    for (int i = COMET_CAUSE_FIRST; i <= COMET_CAUSE_IGNORED; i++)
        assert_true(causes[i] > 0 || i == COMET_CAUSE_ASKED);
}

static void *saved(const comet_control *control, size_t *bytes) {
    *bytes = comet_control_state_bytes(control);
    void *state = malloc(*bytes);
    assert_non_null(state);
    assert_status(comet_control_save(control, state, *bytes - 1), COMET_ERROR_CAPACITY);
    assert_ok(comet_control_save(control, state, *bytes));
    return state;
}

static void test_a_resumed_run_decides_the_same(void **state) {
    (void)state;
    static event_list whole, first, second;
    double expected[ROWS][TENSORS], found[ROWS][TENSORS];
    for (int kind = 0; comet_control_name(kind); kind++) {
        comet_control *control = make(comet_control_name(kind), &whole);
        replay(control, 0, ROWS, expected);
        comet_control_free(control);
        for (int at = 0; at <= ROWS; at++) {
            size_t bytes;
            comet_control *before = make(comet_control_name(kind), &first);
            replay(before, 0, at, found);
            void *image = saved(before, &bytes);
            comet_control_free(before);
            comet_control *after = make(comet_control_name(kind), &second);
            assert_ok(comet_control_load(after, image, bytes));
            size_t again_bytes;
            void *again = saved(after, &again_bytes);
            assert_int_equal(again_bytes, bytes);
            assert_memory_equal(again, image, bytes);
            replay(after, at, ROWS, found);
            comet_control_free(after);
            free(image);
            free(again);
            assert_memory_equal(found, expected, sizeof found);
            assert_int_equal(first.count + second.count, whole.count);
            for (int i = 0; i < second.count; i++) {
                const comet_control_event *a = &second.all[i], *b = &whole.all[first.count + i];
                assert_true(a->iteration == b->iteration && a->tensor == b->tensor && a->cause == b->cause &&
                            a->limit == b->limit && a->use == b->use && a->after.value == b->after.value &&
                            a->before.value == b->before.value && a->momentum == b->momentum);
            }
        }
    }
}

/* The rms of the last step is part of the state. */
static void test_a_resumed_run_has_its_ceiling(void **state) {
    (void)state;
    static event_list list;
    double unused[ROWS][TENSORS];
    size_t bytes;
    comet_control *before = make("comet", &list), *after = make("comet", &list);
    replay(before, 0, 6, unused);
    const double decided = comet_control_bound(before, 0).value;
    comet_control_see_rms(before, 0, decided);
    assert_true(comet_control_bound(before, 0).value < decided);
    void *image = saved(before, &bytes);
    assert_ok(comet_control_load(after, image, bytes));
    assert_true(comet_control_bound(after, 0).value == comet_control_bound(before, 0).value);
    free(image);
    comet_control_free(after);
    comet_control_free(before);
}

static void refuse(comet_control *control, const void *image, size_t bytes) {
    size_t before_bytes, after_bytes;
    void *before = saved(control, &before_bytes);
    assert_int_not_equal(comet_control_load(control, image, bytes), COMET_OK);
    void *after = saved(control, &after_bytes);
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, before_bytes);
    free(before);
    free(after);
}

static void test_damaged_states_are_refused(void **state) {
    (void)state;
    static event_list list;
    double bounds[ROWS][TENSORS];
    size_t bytes;
    comet_control *control = make("comet", &list), *fresh = make("comet", &list);
    replay(control, 0, ROWS / 2, bounds);
    unsigned char *image = saved(control, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        image[i] ^= (unsigned char)(1u << i % 8);
        refuse(fresh, image, bytes);
        image[i] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t length = 0; length < bytes; length++) {
        unsigned char *cut = malloc(length + 1); /* so that reading behind it is seen */
        assert_non_null(cut);
        memcpy(cut, image, length);
        refuse(fresh, cut, length);
        free(cut);
    }
    assert_status(comet_control_load(fresh, NULL, bytes), COMET_ERROR_ARGUMENT);
    assert_ok(comet_control_load(fresh, image, bytes));
    image[4]++;
    assert_status(comet_control_load(fresh, image, bytes), COMET_ERROR_VERSION);
    free(image);
    comet_control_free(control);
    comet_control_free(fresh);
}

/* The CRC-32 of the header's comment, plain, to forge states that are damaged and still have the right one. */
static uint32_t plain_crc(const unsigned char *data, size_t bytes) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= i >= 16 && i < 20 ? 0u : data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1u ? 0xedb88320u ^ crc >> 1 : crc >> 1;
    }
    return ~crc;
}

/*
 * Every field in turn NaN, and out of all range, under a right checksum: refused, or nothing that cannot be saved and
 * used.
 */
static void test_forged_states_are_refused(void **state) {
    (void)state;
    static event_list list;
    static const uint64_t forged[] = {0x7ff8000000000000u, 0xffffffffffffff00u, 0x7ff0000000000000u};
    double bounds[ROWS][TENSORS];
    size_t bytes;
    comet_control *control = make("comet", &list);
    replay(control, 0, ROWS / 2, bounds);
    unsigned char *image = saved(control, &bytes);
    int refused = 0, fields = 0;
    for (size_t at = 24; at + 8 <= bytes; at += 8)
        for (size_t k = 0; k < sizeof forged / sizeof *forged; k++) {
            uint64_t kept = comet_read_u64(image + at);
            comet_write_u64(image + at, forged[k]);
            comet_write_u32(image + 16, plain_crc(image, bytes));
            refused += comet_control_load(control, image, bytes) == COMET_ERROR_CORRUPT;
            fields++;
            comet_write_u64(image + at, kept);
        }
    /* What passes: positive patterns in the four iterations, which may be any. Counters have room to count on. */
    assert_int_equal(fields - refused, 2 * 4);
    comet_write_u32(image + 16, plain_crc(image, bytes));
    assert_ok(comet_control_load(control, image, bytes));
    free(image);
    comet_control_free(control);
}

static void test_states_of_others_are_refused(void **state) {
    (void)state;
    static event_list list;
    size_t bytes;
    comet_control *control = make("comet", &list), *acgc = make("acgc", &list), *other;
    comet_control_tensor changed[TENSORS];
    memcpy(changed, tensors, sizeof changed);
    changed[1].count++;
    assert_ok(comet_control_new(comet_control_find("comet"), NULL, changed, TENSORS, &other));
    void *image = saved(control, &bytes);
    assert_status(comet_control_load(acgc, image, bytes), COMET_ERROR_MISMATCH);
    assert_status(comet_control_load(other, image, bytes), COMET_ERROR_MISMATCH);
    free(image);
    comet_control_free(control);
    comet_control_free(acgc);
    comet_control_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions_are_those_recorded),  cmocka_unit_test(test_a_resumed_run_decides_the_same),
        cmocka_unit_test(test_a_resumed_run_has_its_ceiling), cmocka_unit_test(test_damaged_states_are_refused),
        cmocka_unit_test(test_forged_states_are_refused),     cmocka_unit_test(test_states_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
