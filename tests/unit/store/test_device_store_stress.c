/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device store in random orders against a model, also with other calls in the middle of its callbacks, with every
 * call failing once, and with threads that wait.
 */
#include "test_device_store_case.h"

/* ---- random orders ---- */

enum { MOST_HELD = 60, STEPS = 1500, MOST_READS = 4 * STEPS };

typedef struct reading {
    item out;
    content is; /* 0 bytes: it failed */
} reading;

typedef struct walk {
    device *d;
    comet_device_store *s;
    rng r;
    item *held[2 * MOST_HELD]; /* owners stay where they are */
    int references[2 * MOST_HELD];
    item *gone[2 * STEPS]; /* released in this step: they are told by its end */
    const item *busy;      /* a call is under way that names it */
    reading read[MOST_READS];
    int count, reads, gone_count;
    int depth; /* of steps in the middle of others */
    long interludes;
    uint64_t seed;
} walk;

static void *any_queue(walk *w) {
    return queue_at(w->d, (int)rng_below(&w->r, QUEUES));
}

static item *any_item(walk *w) {
    item *i = malloc(sizeof *i);
    uint64_t bytes = rng_below(&w->r, 3) ? 16 + rng_below(&w->r, 6000) : 16 + rng_below(&w->r, 60000);
    assert_non_null(i);
    *i = item_new(w->d, bytes, ++w->seed);
    if (bytes < VALUES && rng_below(&w->r, 2)) /* one that needs a smaller workspace */
        i->tensor.shape[0] = VALUES / 4;
    return i;
}

/* As a kernel of the caller's would. */
static comet_status save_open(walk *w, item *i, size_t expected) {
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_device_save one = save_of(i, &params, any_queue(w));
    comet_cuda_slot slot;
    one.expected_bytes = expected;
    comet_status status = comet_device_store_open(w->s, &one, &i->entry, &slot);
    if (status != COMET_OK)
        return status;
    if (rng_below(&w->r, 5) == 0) {
        comet_device_store_abandon(w->s, i->entry);
        return COMET_ERROR_UNSUPPORTED;
    }
    enqueue(w->d, one.queue, (op){.kind = OP_COMPRESS, .slot = slot, .from = i->tensor.data});
    return comet_device_store_close(w->s, i->entry);
}

static void walk_save(walk *w) {
    item *i = any_item(w);
    size_t expected = rng_below(&w->r, 3) == 0 ? 0
                      : rng_below(&w->r, 4)    ? i->is.bytes + rng_below(&w->r, 300)
                                               : 1 + rng_below(&w->r, i->is.bytes);
    comet_status status = rng_below(&w->r, 4) ? save(w->s, i, expected, any_queue(w)) : save_open(w, i, expected);
    if (status == COMET_OK) {
        w->references[w->count] = 1;
        w->held[w->count++] = i;
        return;
    }
    assert_true(status == COMET_ERROR_MEMORY || status == COMET_ERROR_UNSUPPORTED);
    assert_int_equal(i->told, 0);
    free(i);
}

static void walk_release(walk *w, int n) {
    item *i = w->held[n];
    if (--w->references[n] == 0) {
        w->gone[w->gone_count++] = i;
        w->count--;
        memmove(&w->held[n], &w->held[n + 1], (size_t)(w->count - n) * sizeof *w->held);
        memmove(&w->references[n], &w->references[n + 1], (size_t)(w->count - n) * sizeof *w->references);
    }
    comet_device_store_release(w->s, i->entry);
}

/* Who calls has a reference of his own. */
static item *begin_call(walk *w, int n) {
    comet_device_store_share(w->held[n]->entry);
    w->busy = w->held[n];
    return w->held[n];
}

static void end_call(walk *w, const item *i) {
    comet_device_store_release(w->s, i->entry);
}

static void walk_load(walk *w, int n) {
    if (w->reads == MOST_READS)
        return;
    item *i = begin_call(w, n);
    reading *read = &w->read[w->reads++];
    read->out = item_new(w->d, 16, 0);
    read->out.tensor.shape[0] = i->tensor.shape[0];
    const int was_settled = comet_device_entry_state(i->entry) != 0;
    comet_status status = load(w->s, i, any_queue(w), &read->out);
    if (status == COMET_OK)
        read->is = i->is;
    else if (comet_device_entry_state(i->entry) != 1 || !was_settled)
        assert_status(status, COMET_ERROR_ARGUMENT);
    else
        assert_status(status, COMET_ERROR_MEMORY); /* for a fetch, or a workspace */
    end_call(w, i);
}

static void walk_move(walk *w, int n) {
    if (comet_device_entry_state(w->held[n]->entry) != 1)
        return;
    item *i = begin_call(w, n);
    if (rng_below(&w->r, 2)) {
        assert_ok(comet_device_store_spill(w->s, i->entry));
    } else {
        comet_status status = comet_device_store_fetch(w->s, i->entry, any_queue(w));
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
    }
    end_call(w, i);
}

static void walk_check(walk *w) {
    comet_device_store_stats t = stats_of(w->s);
    size_t unsettled = 0, unsettled_bytes = 0, raw = 0, stored = 0, on_host = 0;
    for (int n = 0; n < w->count; n++) {
        comet_device_entry_info info = info_of(w->held[n]->entry);
        raw += info.raw_bytes;
        unsettled += info.state == 0;
        unsettled_bytes += info.state == 0 ? info.raw_bytes : 0;
        assert_int_equal(info.raw_bytes, 4 * w->held[n]->tensor.shape[0]);
        stored += info.result.bytes;
        on_host += info.on_host ? info.result.bytes : 0;
        assert_int_equal(w->held[n]->told, info.state != 0);
        if (info.state == 1)
            assert_int_equal(info.result.bytes, w->held[n]->is.bytes);
    }
    assert_int_equal(t.entries, w->count);
    assert_int_equal(t.unsettled, unsettled);
    assert_int_equal(t.unsettled_bytes, unsettled_bytes);
    assert_int_equal(t.raw_bytes, raw);
    assert_int_equal(t.stored_bytes, stored);
    assert_true(t.host_bytes >= on_host);
    assert_true(t.room_bytes <= t.segment_bytes && t.segment_bytes <= t.peak_segment_bytes);
    size_t others = w->d->taken_bytes - t.segment_bytes - t.workspace_bytes;
    assert_true(others == 0 || others == 256); /* the status word */
    device_check(w->d);
}

/* In the middle of a call often the one that it names. */
static int any_held(walk *w) {
    for (int n = 0; w->depth && n < w->count; n++)
        if (w->held[n] == w->busy && rng_below(&w->r, 2))
            return n;
    return w->count ? (int)rng_below(&w->r, (uint64_t)w->count) : 0;
}

static void walk_step(walk *w) {
    uint64_t what = rng_below(&w->r, 100);
    int n = any_held(w);
    if (what < 25 && w->count < MOST_HELD)
        walk_save(w);
    else if (what < 60)
        for (uint64_t k = rng_below(&w->r, 20), q = rng_below(&w->r, MOST_QUEUES); k > 0; k--)
            run_one(w->d, (int)q);
    else if (what < 68)
        assert_ok(comet_device_store_poll(w->s));
    else if (!w->count)
        return;
    else if (what < 78)
        walk_load(w, n);
    else if (what < 80) {
        comet_device_store_share(w->held[n]->entry);
        w->references[n]++;
    } else if (what < 92)
        walk_release(w, rng_below(&w->r, 2) ? w->count - 1 : n);
    else
        walk_move(w, n);
}

/* What other threads do while a callback has let go of the lock. */
static void walk_interlude(void *context) {
    walk *w = context;
    if (w->depth == 2 || rng_below(&w->r, 3))
        return;
    w->depth++;
    for (uint64_t k = 1 + rng_below(&w->r, 3); k > 0; k--)
        walk_step(w);
    w->depth--;
    w->interludes++;
}

/* A step, whose owners have been told by its end. */
static void walk_on(walk *w) {
    walk_step(w);
    walk_check(w);
    while (w->gone_count) {
        item *i = w->gone[--w->gone_count];
        assert_int_equal(i->told, 1);
        free(i);
    }
}

static void finish(walk *w) {
    run_all(w->d);
    w->d->interlude = NULL;
    for (int k = 0; k < w->reads; k++)
        if (w->read[k].is.bytes)
            check_content(&w->read[k].out, &(item){.is = w->read[k].is});
    comet_device_store_free(w->s);
    for (int n = 0; n < w->count; n++) {
        assert_int_equal(w->held[n]->told, 1);
        free(w->held[n]);
    }
    device_free(w->d);
}

static void walk_rounds(int has_interludes) {
    comet_device_store_stats sum = {0};
    long interludes = 0;
    for (int round = 0; round < effort(50); round++) {
        walk *w = calloc(1, sizeof *w);
        assert_non_null(w);
        w->d = device_new();
        w->r = rng_seed((uint64_t)round);
        w->s = store_new(w->d);
        w->d->memory = round % 3 ? 0 : (size_t)(2 + round % 7) * 2 * MIB;
        w->d->interlude = has_interludes ? walk_interlude : NULL;
        w->d->interlude_context = w;
        for (int step = 0; step < STEPS; step++)
            walk_on(w);
        interludes += w->interludes;
        comet_device_store_stats t = stats_of(w->s);
        sum.misfits += t.misfits, sum.refused += t.refused, sum.spills += t.spills, sum.fetches += t.fetches;
        sum.loads += t.loads, sum.queues_joined += t.queues_joined;
        finish(w);
        free(w);
    }
    assert_true(sum.misfits > 0 && sum.refused > 0 && sum.spills > 0 && sum.fetches > 0);
    assert_true(sum.loads > 0 && sum.queues_joined > 0);
    assert_true(interludes > 0 || !has_interludes);
}

static void test_random_orders(void **state) {
    (void)state;
    walk_rounds(0);
}

static void test_others_come_in_between(void **state) {
    (void)state;
    walk_rounds(1);
}

/* ---- failures ---- */

enum { SAVES = 12 };

/*
 * Everything the store does, going on after whatever fails. Returns 1 if a call of the library failed; *last is how
 * many calls of the driver there were before the store was freed, where nothing can be reported any more.
 */
static int run_scenario(device *d, const comet_allocator *allocator, long *last) {
    comet_device_store_options o = fake_options(d);
    comet_device_store *s = NULL;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    item i[SAVES], out[SAVES];
    int failed = 0, saved[SAVES];
    o.allocator = allocator;
    *last = 0;
    if (comet_device_store_create_with(&d->driver, &o, &s) != COMET_OK) {
        *last = d->calls;
        return 1;
    }
    failed |= comet_device_store_exec(s, queue_at(d, 2), 100, &exec) != COMET_OK;
    for (int k = 0; k < SAVES; k++) {
        i[k] = item_new(d, 500 + 100 * (uint64_t)k, (uint64_t)k);
        out[k] = item_new(d, 16, 0);
        saved[k] = save(s, &i[k], k % 4 ? 1024 : 256, queue_at(d, k % 2)) == COMET_OK;
        failed |= !saved[k];
        if (k == SAVES / 2) {
            run_all(d);
            failed |= comet_device_store_poll(s) != COMET_OK;
        }
    }
    if (saved[SAVES - 1])
        comet_device_store_release(s, i[SAVES - 1].entry); /* before it is settled */
    for (int round = 0; round < 3; round++) {
        run_all(d);
        failed |= comet_device_store_poll(s) != COMET_OK;
    }
    for (int k = 0; k < SAVES - 1; k++) {
        if (!saved[k])
            continue;
        int is_there = comet_device_entry_state(i[k].entry) == 1;
        failed |= !is_there;
        if (is_there && k % 3 == 0)
            failed |= comet_device_store_spill(s, i[k].entry) != COMET_OK;
        if (k % 6 == 0)
            run_all(d);
        failed |= comet_device_store_poll(s) != COMET_OK;
        if (is_there && k % 3 == 0)
            failed |= comet_device_store_fetch(s, i[k].entry, queue_at(d, 1)) != COMET_OK;
        if (is_there && load(s, &i[k], queue_at(d, k % 3), &out[k]) == COMET_OK)
            out[k].is = i[k].is;
        else
            failed = 1;
        if (k % 2)
            comet_device_store_release(s, i[k].entry);
    }
    run_all(d);
    failed |= comet_device_store_poll(s) != COMET_OK;
    *last = d->calls;
    comet_device_store_free(s);
    run_all(d);
    for (int k = 0; k < SAVES; k++) {
        assert_int_equal(i[k].told, saved[k]);
        if (out[k].is.seed || out[k].is.bytes != 16)
            check_content(&out[k], &i[k]);
    }
    return failed;
}

static void fail_each_call(comet_status with) {
    for (long n = 1;; n++) {
        counting_allocator memory;
        counting_allocator_init(&memory);
        device *d = device_new();
        long last;
        d->fail_at = n;
        d->fail_with = with;
        int failed = run_scenario(d, &memory.allocator, &last);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.wrong_sizes, 0);
        int done = d->calls < n;
        if (done)
            assert_false(failed);
        else if (with == COMET_ERROR_DEVICE && n <= last)
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
    fail_each_call(COMET_ERROR_MEMORY);
}

static void test_host_memory(void **state) {
    (void)state;
    for (long n = 1;; n++) {
        counting_allocator memory;
        counting_allocator_init(&memory);
        memory.fail_at = n;
        device *d = device_new();
        long last;
        int failed = run_scenario(d, &memory.allocator, &last);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.wrong_sizes, 0);
        device_free(d);
        if (memory.calls < n) {
            assert_false(failed);
            assert_true(n > 8);
            return;
        }
        assert_true(failed);
    }
}

/* Once a training has found its size nothing is allocated, and the caller's memory is the same every time. */
static void test_steady_state(void **state) {
    (void)state;
    counting_allocator memory;
    counting_allocator_init(&memory);
    device *d = device_new();
    comet_device_store_options o = fake_options(d);
    comet_device_store *s = NULL;
    item i[300], out = item_new(d, 16, 0);
    long calls = 0, pages = 0;
    int blocks = 0;
    o.allocator = &memory.allocator;
    assert_ok(comet_device_store_create_with(&d->driver, &o, &s));
    for (int k = 0; k < 300; k++)
        i[k] = item_new(d, 10000, (uint64_t)k);
    for (int step = 0; step < 5; step++) {
        for (int k = 0; k < 300; k++) {
            i[k].entry = NULL;
            i[k].told = 0;
            memcpy(i[k].tensor.data, &i[k].is, sizeof i[k].is);
            assert_ok(save(s, &i[k], 10000, queue_at(d, k % 2)));
            run_one(d, k % 2);
            assert_ok(comet_device_store_poll(s));
        }
        run_all(d);
        assert_ok(comet_device_store_poll(s));
        for (int k = 300; k-- > 0;) {
            if (k % 10 == 0)
                assert_ok(comet_device_store_spill(s, i[k].entry));
            assert_ok(load(s, &i[k], queue_at(d, 1), &out));
            run_all(d);
            check_content(&out, &i[k]);
            comet_device_store_release(s, i[k].entry);
            assert_ok(comet_device_store_poll(s));
        }
        run_all(d);
        if (step == 1)
            calls = memory.calls, pages = d->pages, blocks = d->block_count;
    }
    assert_int_equal(memory.calls, calls);
    assert_int_equal(d->pages, pages);
    assert_int_equal(d->block_count, blocks);
    comet_device_store_free(s);
    device_free(d);
}

/* ---- threads ---- */

enum { WAITERS = 2, THREADED_SAVES = 2000 };

typedef struct shop {
    device *d;
    comet_device_store *s;
    pthread_mutex_t lock; /* the caller's */
    atomic_int closed;
    atomic_long awaited;
} shop;

static void *device_thread(void *context) {
    shop *p = context;
    rng r = rng_seed(77);
    while (!atomic_load(&p->closed))
        run_one(p->d, (int)rng_below(&r, MOST_QUEUES));
    return NULL;
}

/* What a caller does who bounds the bytes that are not settled. */
static void *waiter_thread(void *context) {
    shop *p = context;
    while (!atomic_load(&p->closed)) {
        pthread_mutex_lock(&p->lock);
        comet_device_entry *oldest = comet_device_store_share(comet_device_store_oldest(p->s));
        pthread_mutex_unlock(&p->lock);
        if (!oldest) {
            sched_yield();
            continue;
        }
        comet_status status = comet_device_store_await(p->s, oldest);
        atomic_fetch_add(&p->awaited, 1);
        pthread_mutex_lock(&p->lock);
        if (status != COMET_OK)
            violate(p->d, "waiting failed", status);
        if (comet_device_store_poll(p->s) != COMET_OK)
            violate(p->d, "polling failed", 0);
        comet_device_store_release(p->s, oldest);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { AT_ONCE = 50 };
    shop p = {.d = device_new()};
    pthread_t threads[WAITERS + 1];
    item *i = calloc(THREADED_SAVES, sizeof *i);
    rng r = rng_seed(5);
    int saves = effort(THREADED_SAVES);
    saves = saves < THREADED_SAVES ? saves : THREADED_SAVES;
    assert_non_null(i);
    p.s = store_new(p.d);
    pthread_mutex_init(&p.lock, NULL);
    assert_int_equal(pthread_create(&threads[0], NULL, device_thread, &p), 0);
    for (int k = 1; k <= WAITERS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, waiter_thread, &p), 0);
    for (int k = 0; k < saves; k++) {
        pthread_mutex_lock(&p.lock);
        i[k] = item_new(p.d, 100 + rng_below(&r, 3000), (uint64_t)k);
        assert_ok(save(p.s, &i[k], rng_below(&r, 3) ? 0 : 256, queue_at(p.d, (int)rng_below(&r, QUEUES))));
        if (k >= AT_ONCE)
            comet_device_store_release(p.s, i[k - AT_ONCE].entry);
        pthread_mutex_unlock(&p.lock);
    }
    pthread_mutex_lock(&p.lock);
    while (comet_device_store_oldest(p.s)) {
        pthread_mutex_unlock(&p.lock);
        sched_yield();
        pthread_mutex_lock(&p.lock);
    }
    pthread_mutex_unlock(&p.lock);
    atomic_store(&p.closed, 1);
    for (int k = 0; k <= WAITERS; k++)
        assert_int_equal(pthread_join(threads[k], NULL), 0);
    run_all(p.d);
    device_check(p.d);
    assert_true(p.awaited > 0);
    comet_device_store_free(p.s);
    for (int k = 0; k < saves; k++)
        assert_int_equal(i[k].told, 1);
    free(i);
    pthread_mutex_destroy(&p.lock);
    device_free(p.d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_orders),         cmocka_unit_test(test_others_come_in_between),
        cmocka_unit_test(test_every_call_fails_once), cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_steady_state),          cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
