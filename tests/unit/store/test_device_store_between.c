/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other threads' calls in the middle of a callback that has let go of the lock, one by one.
 * test_device_store_stress.c has them in random orders.
 */
#include "test_device_store_case.h"

typedef struct meanwhile {
    device *d;
    comet_device_store *s;
    const item *i;
} meanwhile;

/* Once. */
static void fetch_meanwhile(void *context) {
    meanwhile *m = context;
    m->d->interlude = NULL;
    assert_ok(comet_device_store_fetch(m->s, m->i->entry, queue_at(m->d, 2)));
}

static void save_meanwhile(void *context) {
    meanwhile *m = context;
    item small = item_new(m->d, 500, 2);
    m->d->interlude = NULL;
    assert_ok(save(m->s, &small, 1000, NULL));
    comet_device_store_release(m->s, small.entry);
    assert_int_equal(small.told, 1);
    comet_device_store_release(m->s, m->i->entry);
    assert_int_equal(m->i->told, 0); /* it is about to be made anew */
}

/* A stream moves to a larger segment. Meanwhile another thread uses the room that it left, and lets go of both. */
static void test_released_while_it_moves(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3 * MIB, 1);
    meanwhile m = {d, s, &i};
    i.tensor.shape[0] = MIB;
    assert_ok(save(s, &i, 1000, NULL));
    run_all(d);
    d->interlude = save_meanwhile, d->interlude_context = &m;
    assert_ok(comet_device_store_poll(s));
    assert_null(d->interlude);
    assert_int_equal(i.told, 1);
    comet_device_store_stats t = stats_of(s);
    assert_true(t.entries == 0 && t.segments == 0 && t.segment_bytes == 0 && t.misfits == 1);
    comet_device_store_free(s);
    device_free(d);
}

/* By two threads: while one has let go of the lock to take memory, the other one comes. */
static void test_fetched_twice(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), out = item_new(d, 16, 0);
    meanwhile m = {d, s, &i};
    assert_ok(save(s, &i, 0, NULL));
    settle_all(d, s);
    assert_ok(load(s, &i, queue_at(d, 1), &out)); /* takes the queue's workspace */
    assert_ok(comet_device_store_spill(s, i.entry));
    settle_all(d, s);
    assert_int_equal(info_of(i.entry).on_host, 1);
    d->interlude = fetch_meanwhile, d->interlude_context = &m;
    assert_ok(load(s, &i, queue_at(d, 1), &out));
    assert_null(d->interlude);
    comet_device_store_stats t = stats_of(s);
    assert_true(t.fetches == 1 && t.segments == 1 && t.room_bytes == 3072 && t.spilling_bytes == 0);
    settle_all(d, s);
    check_content(&out, &i);
    comet_device_store_free(s);
    device_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released_while_it_moves),
        cmocka_unit_test(test_fetched_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
