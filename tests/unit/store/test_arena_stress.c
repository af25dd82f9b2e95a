/* SPDX-License-Identifier: Apache-2.0 */
/* The arena in random orders, with every call failing once, and from several threads. */
#define _DEFAULT_SOURCE
#include "test_arena_case.h"

/* ---- random orders against the device's time line ---- */

enum { MOST_HELD = 40 };

typedef struct walk {
    device *d;
    comet_arena *a;
    rng r;
    saved held[MOST_HELD];
    int count, refused;
} walk;

static void walk_save(walk *w) {
    saved s;
    size_t worst = 1 + rng_below(&w->r, 3 * PAGE);
    size_t expected = rng_below(&w->r, 3) ? 0 : 1 + rng_below(&w->r, worst);
    size_t bytes = rng_below(&w->r, 3) ? 1 + rng_below(&w->r, 1 + worst / 8) : 1 + rng_below(&w->r, worst);
    if (rng_below(&w->r, 20) == 0) { /* a launch that fails */
        comet_arena_entry entry;
        comet_cuda_slot slot;
        if (comet_arena_open(w->a, worst, expected, &entry, &slot) == COMET_OK)
            assert_ok(comet_arena_release(w->a, entry));
        return;
    }
    comet_status status = save(w->d, w->a, worst, expected, bytes, &s);
    if (status == COMET_OK)
        w->held[w->count++] = s;
    else
        assert_status(status, COMET_ERROR_CAPACITY);
    w->refused += status != COMET_OK;
}

static void walk_load(walk *w, int i) {
    comet_status status = load(w->d, w->a, &w->held[i]);
    if (status != COMET_OK) {
        assert_status(status, COMET_ERROR_CAPACITY);
        assert_true(w->held[i].optimistic);
    }
}

/* Mostly the last one, else any; each is loaded before. */
static void walk_release(walk *w) {
    int i = rng_below(&w->r, 3) ? w->count - 1 : (int)rng_below(&w->r, (uint64_t)w->count);
    walk_load(w, i);
    release(w->d, w->a, &w->held[i]);
    memmove(&w->held[i], &w->held[i + 1], (size_t)(--w->count - i) * sizeof *w->held);
}

static void walk_check(walk *w) {
    comet_arena_stats t = stats_of(w->a);
    assert_int_equal(t.entries, w->count);
    assert_int_equal(t.mapped_bytes, w->d->mapped);
    assert_true(t.end_bytes <= t.mapped_bytes);
    assert_true(t.mapped_bytes <= t.limit_bytes);
    device_check(w->d);
}

static void walk_step(walk *w) {
    uint64_t what = rng_below(&w->r, 100);
    if (what < 45 && w->count < MOST_HELD)
        walk_save(w);
    else if (what < 75 && w->count)
        walk_release(w);
    else if (what < 85 && w->count)
        walk_load(w, (int)rng_below(&w->r, (uint64_t)w->count));
    else if (what < 95)
        run_some(w->d, (int)rng_below(&w->r, 20));
    else if (what < 97)
        assert_ok(comet_arena_poll(w->a));
    else if (what < 98)
        assert_ok(comet_arena_trim(w->a));
    else if (w->count) {
        comet_status status = comet_arena_await(w->a, w->held[w->count / 2].entry, NULL);
        assert_true(status == COMET_OK || status == COMET_ERROR_CAPACITY);
    }
}

static void test_random_orders(void **state) {
    (void)state;
    uint64_t in_holes = 0, overflows = 0, waits = 0, refused = 0;
    int rounds = effort(300);
    for (int round = 0; round < rounds; round++) {
        walk w = {.d = device_new(), .r = rng_seed((uint64_t)round)};
        w.a = arena_new(w.d, (8 + rng_below(&w.r, 40)) * PAGE, 8 + (uint32_t)rng_below(&w.r, 64));
        for (int i = 0; i < 1500; i++) {
            walk_step(&w);
            walk_check(&w);
        }
        for (int i = 0; i < w.count; i++)
            walk_load(&w, i);
        run_some(w.d, MOST_OPS);
        for (int i = 0; i < w.count; i++) /* only what may not fit did not */
            assert_true(w.d->streams[w.held[i].stream].stored || w.held[i].optimistic);
        comet_arena_stats t = stats_of(w.a);
        in_holes += t.saves_in_holes, overflows += t.overflows, waits += t.waits, refused += t.refused;
        finish(w.d, w.a);
    }
    assert_true(in_holes > 0 && overflows > 0 && waits > 0 && refused > 0);
}

/* ---- failures ---- */

/* Everything the arena does, going on after whatever fails. Returns 1 if a call of the library failed. */
static int run_scenario(device *d, const comet_allocator *allocator) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    saved s[40];
    int count = 0, failed = 0;
    o.limit_bytes = 12 * PAGE;
    o.initial_bytes = 2 * PAGE;
    o.max_entries = 64;
    o.allocator = allocator;
    if (comet_arena_create_with(&d->driver, &o, &a) != COMET_OK)
        return 1;
    for (int i = 0; i < 36; i++) {
        comet_cuda_slot slot;
        saved *t = &s[count];
        *t = (saved){.bytes = 256};
        if (comet_arena_open(a, PAGE, 0, &t->entry, &slot) != COMET_OK) {
            failed = 1;
            continue;
        }
        compress(d, &slot, t);
        failed |= comet_arena_close(a, t->entry) != COMET_OK; /* it is closed all the same */
        count++;
        if (i == 20)
            failed |= comet_arena_trim(a) != COMET_OK;
    }
    failed |= comet_arena_poll(a) != COMET_OK;
    failed |= comet_arena_await(a, s[count - 1].entry, NULL) != COMET_OK;
    assert_int_equal(stats_of(a).entries, count);
    assert_int_equal(stats_of(a).mapped_bytes, d->mapped);
    while (count > 0) {
        failed |= load(d, a, &s[--count]) != COMET_OK;
        release(d, a, &s[count]);
    }
    failed |= comet_arena_trim(a) != COMET_OK;
    assert_int_equal(stats_of(a).entries, 0);
    run_some(d, MOST_OPS);
    failed |= comet_arena_free(a) != COMET_OK;
    return failed;
}

static void fail_each_call(comet_status with) {
    for (long n = 1;; n++) {
        counting_allocator memory;
        counting_allocator_init(&memory);
        device *d = device_new();
        d->fail_at = n;
        d->fail_with = with;
        int failed = run_scenario(d, &memory.allocator);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.wrong_sizes, 0);
        int done = d->calls < n;
        if (done)
            assert_false(failed);
        else if (with == COMET_ERROR_DEVICE)
            assert_true(failed); /* nothing is swallowed */
        device_free(d);
        if (done) {
            assert_true(n > 100);
            return;
        }
    }
}

static void test_every_call_fails_once(void **state) {
    (void)state;
    fail_each_call(COMET_ERROR_DEVICE);
    fail_each_call(COMET_ERROR_MEMORY); /* where mapping fails so, sizes are waited for instead */
}

static void test_host_memory(void **state) {
    (void)state;
    counting_allocator memory;
    counting_allocator_init(&memory);
    memory.fail_at = 1;
    device *d = device_new();
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    o.limit_bytes = PAGE;
    o.allocator = &memory.allocator;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_MEMORY);
    assert_int_equal(d->calls, 0);
    assert_int_equal(run_scenario(d, &memory.allocator), 0);
    assert_int_equal(memory.calls, 2); /* one block, when it is created */
    assert_int_equal(memory.live_blocks, 0);
    device_free(d);
}

static void test_destroy_with_entries(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 64);
    saved s[10];
    for (int i = 0; i < 10; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s[i]));
    assert_ok(load(d, a, &s[5]));
    assert_ok(comet_arena_free(a)); /* waits */
    assert_int_equal(d->loads_done, 1);
    device_free(d);
}

/* ---- threads ---- */

typedef struct user {
    device *d;
    comet_arena *a;
    int rounds, wrong;
} user;

/* The order of opens is the order of launches, whoever opens: between an open and its close there is no other. */
static void *use_arena(void *argument) {
    user *u = argument;
    for (int i = 0; i < u->rounds; i++) {
        comet_cuda_slot slot;
        saved s = {.bytes = 256};
        u->wrong += comet_arena_open(u->a, 256, 0, &s.entry, &slot) != COMET_OK;
        compress(u->d, &slot, &s);
        u->wrong += comet_arena_close(u->a, s.entry) != COMET_OK;
        u->wrong += comet_arena_slot(u->a, s.entry, &slot) != COMET_OK;
        if (i % 2 == 0)
            continue;
        enqueue(u->d, (op){.kind = OP_RELEASE, .stream = s.stream, .to = slot.base});
        u->wrong += comet_arena_release(u->a, s.entry) != COMET_OK;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4, ROUNDS = 12 };
    device *d = device_new();
    comet_arena *a = arena_new(d, 1024 * PAGE, 128);
    pthread_t threads[THREADS];
    user users[THREADS];
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){d, a, ROUNDS, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use_arena, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    assert_int_equal(stats_of(a).entries, THREADS * ROUNDS / 2);
    assert_int_equal(stats_of(a).saves, THREADS * ROUNDS);
    finish(d, a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_orders), cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_host_memory),   cmocka_unit_test(test_destroy_with_entries),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
