/* SPDX-License-Identifier: Apache-2.0 */
/* The arena, call by call. */
#define _DEFAULT_SOURCE
#include "test_arena_case.h"

static void test_arguments(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = NULL;
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena_stats s = {.size = 1};
    comet_arena_entry entry;
    comet_cuda_slot slot;
    int32_t known;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT); /* no limit */
    assert_reason("options->limit_bytes is 0");
    o.limit_bytes = 64 * PAGE;
    assert_status(comet_arena_create_with(&d->driver, NULL, &a), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_create_with(&d->driver, &o, NULL), COMET_ERROR_ARGUMENT);
    o.initial_bytes = o.limit_bytes + 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    assert_reason("options->initial_bytes is");
    o.initial_bytes = 0;
    o.max_entries = 0;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    assert_reason("options->max_entries is 0");
    o.max_entries = ARENA_MOST_ENTRIES + 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.max_entries = 4;
    o.size = 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.size = sizeof o;
    d->capturing = 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_UNSUPPORTED);
    assert_reason("the arena's queue is being captured");
    d->capturing = 0;
    assert_null(a);
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));

    assert_status(comet_arena_open(NULL, 1, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 0, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_reason("worst_bytes is 0");
    assert_status(comet_arena_open(a, SIZE_MAX, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 1, 0, NULL, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 1, 0, &entry, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_get_stats(a, &s), COMET_ERROR_ARGUMENT);
    assert_reason("stats->size is 1");
    assert_status(comet_arena_get_stats(a, NULL), COMET_ERROR_ARGUMENT);
    for (comet_arena_entry e = 0; e < 4; e++) {
        assert_status(comet_arena_close(a, e), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_release(a, e), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_slot(a, e, &slot), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_result(a, e, &known, NULL), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_await(a, e, NULL), COMET_ERROR_ARGUMENT);
    }
    assert_status(comet_arena_poll(NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_trim(NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_free(NULL));
    finish(d, a);
}

/* What an entry can do in which state; its handle dies with it. */
static void test_states(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 4);
    comet_arena_entry first, second;
    comet_cuda_slot slot;
    saved s = {.bytes = 10};
    assert_ok(comet_arena_open(a, 100, 0, &first, &slot));
    assert_status(comet_arena_open(a, 100, 0, &second, &slot), COMET_ERROR_ARGUMENT); /* the same thread */
    assert_status(comet_arena_trim(a), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, first, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_await(a, first, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_release(a, first)); /* it could not be issued */
    assert_status(comet_arena_close(a, first), COMET_ERROR_ARGUMENT);
    assert_int_equal(stats_of(a).entries, 0);

    assert_ok(comet_arena_open(a, 100, 0, &second, &slot));
    assert_true(second != first);
    compress(d, &slot, &s);
    assert_ok(comet_arena_close(a, second));
    assert_status(comet_arena_close(a, second), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, first, &slot), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_slot(a, second, &slot));
    assert_ok(comet_arena_release(a, second));
    assert_status(comet_arena_release(a, second), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, second, &slot), COMET_ERROR_ARGUMENT);
    finish(d, a);
}

/* Sizes arrive when the device comes to them, and replace the worst case; nobody waits. */
static void test_sizes_arrive(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 16);
    saved s[3];
    int32_t known;
    comet_cuda_result r;
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, 1000, 0, 300, &s[i]));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.end_bytes, 3 * 1024);
    assert_int_equal(t.unknown_entries, 3);
    assert_int_equal(t.unknown_bytes, 3 * 1024);
    assert_ok(comet_arena_poll(a)); /* asks */
    assert_ok(comet_arena_result(a, s[1].entry, &known, &r));
    assert_int_equal(known, 0);
    run_some(d, MOST_OPS);
    assert_ok(comet_arena_result(a, s[1].entry, &known, &r));
    assert_int_equal(known, 1);
    assert_int_equal(r.codec.bytes, 300);
    assert_int_equal(r.start, 512);
    t = stats_of(a);
    assert_int_equal(t.end_bytes, 3 * 512);
    assert_int_equal(t.known_bytes, 900);
    assert_int_equal(t.unknown_entries, 0);
    assert_int_equal(t.peak_end_bytes, 3 * 1024);
    assert_int_equal(t.peak_known_bytes, 3 * 512);
    assert_int_equal(t.waits, 0);
    assert_int_equal(t.readbacks, 1);
    finish(d, a);
}

/* A record that no kernel wrote is recognised if it cannot be one. */
static void test_nothing_compressed(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 16);
    comet_arena_entry entry;
    comet_cuda_slot slot;
    saved s;
    assert_ok(save(d, a, 1000, 0, 300, &s));
    assert_ok(comet_arena_await(a, s.entry, NULL));
    assert_ok(comet_arena_open(a, 1000, 0, &entry, &slot));
    assert_ok(comet_arena_close(a, entry));
    assert_status(comet_arena_await(a, entry, NULL), COMET_ERROR_CORRUPT);
    assert_status(comet_arena_slot(a, entry, &slot), COMET_ERROR_CORRUPT);
    assert_int_equal(stats_of(a).end_bytes, 512 + 1024);
    finish(d, a);
}

/*
 * Memory grows piece by piece; at the limit the host waits for as many sizes as it must; then it is full, and says
 * so.
 */
static void test_limit(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 10 * PAGE, 64);
    saved s[64];
    int n = 0;
    for (; n < 10; n++)
        assert_ok(save(d, a, PAGE, 0, PAGE / 4, &s[n]));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_int_equal(d->mapped, t.mapped_bytes);
    assert_int_equal(t.waits, 0);
    comet_status status;
    while ((status = save(d, a, PAGE, 0, PAGE / 4, &s[n])) == COMET_OK)
        n++;
    assert_status(status, COMET_ERROR_CAPACITY);
    t = stats_of(a);
    assert_int_equal(n, 37); /* 36 * PAGE / 4 and a whole PAGE */
    assert_int_equal(t.missing_bytes, PAGE / 4);
    assert_int_equal(t.refused, 1);
    assert_int_equal(t.entries, n);
    assert_true(t.waits > 0);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    for (int i = 0; i < n; i++)
        assert_ok(load(d, a, &s[i]));
    release(d, a, &s[--n]);
    assert_ok(save(d, a, PAGE, 0, PAGE, &s[n]));
    assert_status(save(d, a, 11 * PAGE, 0, PAGE, &s[63]), COMET_ERROR_CAPACITY); /* never */
    assert_int_equal(stats_of(a).missing_bytes, 11 * PAGE);
    finish(d, a);
}

/* At the limit the oldest sizes are waited for, not all: the device keeps work. */
static void test_wait_is_partial(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 256);
    saved s;
    for (int i = 0; i < 64; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_int_equal(stats_of(a).waits, 0);
    assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_int_equal(stats_of(a).waits, 1);
    assert_true(d->end - d->begin > 50);
    finish(d, a);
}

static void test_growth(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a;
    o.limit_bytes = 1000 * PAGE + 5;
    o.initial_bytes = 10 * PAGE;
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.limit_bytes, 1000 * PAGE);
    assert_in_range(t.mapped_bytes, 10 * PAGE, 14 * PAGE);
    saved s[2];
    assert_ok(save(d, a, 999 * PAGE, 0, 20 * PAGE, &s[0]));
    assert_int_equal(stats_of(a).mapped_bytes, 1000 * PAGE); /* the last piece is shorter */
    assert_ok(comet_arena_trim(a));
    t = stats_of(a);
    assert_in_range(t.mapped_bytes, 20 * PAGE, 24 * PAGE);
    assert_int_equal(t.peak_mapped_bytes, 1000 * PAGE);
    assert_int_equal(d->mapped, t.mapped_bytes);
    assert_ok(save(d, a, 30 * PAGE, 0, 30 * PAGE, &s[1]));
    assert_ok(load(d, a, &s[0]));
    assert_ok(load(d, a, &s[1]));
    release(d, a, &s[1]);
    release(d, a, &s[0]);
    assert_ok(comet_arena_trim(a)); /* waits for the loads */
    assert_int_equal(d->loads_done, 2);
    assert_int_equal(d->mapped, 0);
    finish(d, a);
}

/* A device that has less than the limit: sizes are waited for, then the status says what is wrong. */
static void test_device_memory(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 100 * PAGE, 64);
    saved s;
    d->memory = 10 * PAGE;
    assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_status(save(d, a, 20 * PAGE, 0, 256, &s), COMET_ERROR_MEMORY);
    assert_int_equal(d->mapped, PAGE); /* what was mapped in vain went back */
    assert_int_equal(stats_of(a).mapped_bytes, PAGE);
    for (int i = 1; i < 12; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_true(t.waits > 0);
    assert_status(save(d, a, 20 * PAGE, 0, 256, &s), COMET_ERROR_MEMORY);
    t = stats_of(a);
    assert_int_equal(t.missing_bytes, 10 * PAGE + 12 * 256);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_int_equal(t.entries, 12);
    finish(d, a);
}

static void test_plain_range(void **state) {
    (void)state;
    device *d = device_new();
    d->plain = 1;
    comet_arena *a = arena_new(d, 3 * PAGE + 100, 64);
    saved s[3];
    assert_int_equal(stats_of(a).mapped_bytes, 3 * PAGE);
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, PAGE, 0, PAGE, &s[i]));
    assert_status(save(d, a, 1, 0, 1, &s[0]), COMET_ERROR_CAPACITY);
    assert_ok(comet_arena_trim(a));
    assert_int_equal(stats_of(a).mapped_bytes, 3 * PAGE);
    finish(d, a);
}

static void test_entries_exhausted(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 3);
    saved s[4];
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, 100, 0, 100, &s[i]));
    assert_status(save(d, a, 100, 0, 100, &s[3]), COMET_ERROR_CAPACITY);
    assert_int_equal(stats_of(a).missing_bytes, 0);
    release(d, a, &s[1]);
    assert_ok(save(d, a, 100, 0, 100, &s[1])); /* in its place: the sizes are known by now */
    assert_int_equal(stats_of(a).saves_in_holes, 1);
    release(d, a, &s[2]);
    assert_ok(save(d, a, 100, 0, 100, &s[2]));
    for (int i = 0; i < 3; i++)
        assert_ok(load(d, a, &s[i]));
    finish(d, a);
}

/* First in, first out, as between micro-batches of a pipeline: a stack alone would never shrink. */
static void test_holes_are_reused(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 16 * PAGE, 64);
    saved s[8];
    for (int i = 0; i < 8; i++)
        assert_ok(save(d, a, PAGE, 0, PAGE / 2 + 256, &s[i]));
    for (int i = 0; i < 400; i++) {
        assert_ok(load(d, a, &s[i % 8]));
        release(d, a, &s[i % 8]);
        assert_ok(save(d, a, PAGE, 0, PAGE / 2 + 256, &s[i % 8]));
        run_some(d, 3);
        device_check(d);
    }
    comet_arena_stats t = stats_of(a);
    assert_true(t.saves_in_holes > 200);
    assert_int_equal(t.refused, 0);
    finish(d, a);
}

/* Less room than the worst case: what does not fit is not stored, harms nobody, and is known before it is used. */
static void test_optimistic(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 4 * PAGE, 64);
    saved s[4];
    comet_cuda_slot slot;
    comet_cuda_result r;
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 1 * PAGE, &s[0]));
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 3 * PAGE + 1, &s[1])); /* does not */
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 2 * PAGE, &s[2]));     /* more than expected, but fits */
    assert_ok(load(d, a, &s[1]));                                   /* not known yet: the device refuses it */
    assert_status(comet_arena_await(a, s[1].entry, &r), COMET_ERROR_CAPACITY);
    assert_int_equal(r.codec.bytes, 3 * PAGE + 1);
    assert_status(comet_arena_slot(a, s[1].entry, &slot), COMET_ERROR_CAPACITY);
    assert_int_equal(d->loads_refused, 0); /* it has not come so far */
    assert_ok(load(d, a, &s[0]));
    assert_ok(load(d, a, &s[2]));
    run_some(d, MOST_OPS);
    assert_int_equal(d->loads_refused, 1);
    assert_int_equal(d->loads_done, 2);
    assert_int_equal(stats_of(a).overflows, 1);
    /* Who must be certain counts with the worst case of all, and waits. */
    release(d, a, &s[2]);
    assert_ok(save(d, a, 4 * PAGE, 256, 256, &s[2]));
    uint64_t waits = stats_of(a).waits;
    assert_ok(save(d, a, 2 * PAGE, 0, PAGE, &s[3]));
    assert_int_equal(stats_of(a).waits, waits + 1);
    assert_ok(load(d, a, &s[3]));
    finish(d, a);
}

/* A step captured once and replayed with other data. */
static void capture_step(device *d, comet_arena *a, saved *s, int count, size_t worst, size_t expected) {
    d->capturing = 1;
    d->graph_ops = 0;
    for (int i = 0; i < count; i++)
        assert_ok(save(d, a, worst, expected, 256, &s[i]));
    for (int i = count; i-- > 0;) {
        assert_ok(load(d, a, &s[i]));
        release(d, a, &s[i]);
    }
    d->capturing = 0;
}

static void replay(device *d) {
    for (int i = 0; i < d->graph_ops; i++)
        enqueue(d, d->graph[i]);
    run_some(d, MOST_OPS);
    device_check(d);
}

static void test_capture(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 16 * PAGE, 64);
    saved base, s[8], t;
    comet_arena_entry entry;
    comet_cuda_slot slot;
    assert_ok(save(d, a, PAGE, 0, PAGE, &base)); /* lives through all replays */
    capture_step(d, a, s, 8, PAGE, 0);
    assert_int_equal(d->mapped, 9 * PAGE);
    assert_int_equal(stats_of(a).entries, 1);
    assert_status(comet_arena_open(a, 1, 0, &entry, &slot), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_trim(a), COMET_ERROR_UNSUPPORTED);
    rng r = rng_seed(3);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 8; i++)
            d->streams[s[i].stream].bytes = 1 + rng_below(&r, PAGE);
        replay(d);
        assert_ok(load(d, a, &base));
    }
    run_some(d, MOST_OPS);
    assert_int_equal(d->loads_done, 50 * 9);
    assert_int_equal(d->loads_refused, 0);
    assert_ok(comet_arena_forget_graphs(a));
    assert_ok(save(d, a, PAGE, 0, PAGE, &t));
    assert_ok(comet_arena_trim(a));
    assert_int_equal(d->mapped, 2 * PAGE);
    finish(d, a);
}

/*
 * While capturing nothing is waited for; what was expected and does not come true in a replay is refused on the
 * device.
 */
static void test_capture_limits(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 4 * PAGE, 64);
    saved s[6], base;
    comet_cuda_result r;
    int32_t known;
    assert_ok(save(d, a, 2 * PAGE, 0, 256, &base));
    d->capturing = 1;
    assert_status(save(d, a, 3 * PAGE, 0, 256, &s[0]), COMET_ERROR_CAPACITY);
    assert_int_equal(stats_of(a).missing_bytes, PAGE);
    assert_status(comet_arena_await(a, base.entry, NULL), COMET_ERROR_UNSUPPORTED);
    assert_ok(comet_arena_poll(a));
    assert_status(comet_arena_free(a), COMET_ERROR_UNSUPPORTED);
    d->capturing = 0;
    assert_ok(comet_arena_await(a, base.entry, &r));
    capture_step(d, a, s, 6, PAGE, PAGE / 2);
    for (int i = 0; i < 6; i++)
        d->streams[s[i].stream].bytes = PAGE; /* six pages in less than four */
    replay(d);
    assert_int_equal(d->loads_done, 3);
    assert_int_equal(d->loads_refused, 3);
    /* An entry that outlives its capture has no size that the host could know. */
    d->capturing = 1;
    d->graph_ops = 0;
    assert_ok(save(d, a, PAGE, 0, 256, &s[0]));
    d->capturing = 0;
    assert_status(comet_arena_result(a, s[0].entry, &known, &r), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_await(a, s[0].entry, &r), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_forget_graphs(a), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_poll(a));
    assert_int_equal(stats_of(a).unknown_entries, 1);
    replay(d);
    assert_ok(load(d, a, &s[0]));
    release(d, a, &s[0]);
    assert_ok(comet_arena_forget_graphs(a));
    finish(d, a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_sizes_arrive),
        cmocka_unit_test(test_nothing_compressed),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_wait_is_partial),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_plain_range),
        cmocka_unit_test(test_entries_exhausted),
        cmocka_unit_test(test_holes_are_reused),
        cmocka_unit_test(test_optimistic),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_capture_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
