/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the device store on their way to the host and back. */
#include "test_device_store_case.h"

static void test_spill(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 100000, 1), out = item_new(d, 16, 0);
    i.tensor.shape[0] = out.tensor.shape[0] = 100000;
    void *one = queue_at(d, 1), *two = queue_at(d, 2);
    assert_ok(save(s, &i, 100000, one));
    settle_all(d, s);
    assert_ok(comet_device_store_spill(s, i.entry));
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(info_of(i.entry).on_host, 0); /* not yet */
    assert_ok(comet_device_store_spill(s, i.entry));
    assert_int_equal(stats_of(s).spills, 1);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    comet_device_store_stats t = stats_of(s);
    assert_true(t.segments == 0 && t.room_bytes == 0 && t.stored_bytes == 100000 && t.host_bytes == 2 * 65536);
    assert_int_equal(info_of(i.entry).on_host, 1);
    assert_int_equal(info_of(i.entry).room_bytes, 0);
    assert_ok(comet_device_store_spill(s, i.entry)); /* it is there */
    assert_ok(comet_device_store_fetch(s, i.entry, two));
    assert_ok(comet_device_store_fetch(s, i.entry, two));
    assert_int_equal(stats_of(s).fetches, 1);
    assert_int_equal(stats_of(s).segments, 1);
    assert_ok(load(s, &i, two, &out)); /* before the copy has ended */
    assert_ok(load(s, &i, one, &out));
    run_all(d);
    check_content(&out, &i);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(stats_of(s).host_bytes, 0);
    assert_int_equal(stats_of(s).peak_host_bytes, 2 * 65536);
    assert_int_equal(d->pages, 2); /* the slab is kept */
    assert_ok(comet_device_store_spill(s, i.entry));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(d->pages, 2);
    memset(out.tensor.data, 0, 16);
    assert_ok(load(s, &i, one, &out)); /* fetches by itself */
    run_all(d);
    check_content(&out, &i);
    assert_int_equal(stats_of(s).fetches, 2);
    comet_device_store_release(s, i.entry);
    assert_int_equal(stats_of(s).segments, 0);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(stats_of(s).host_bytes, 0);
    comet_device_store_free(s);
    device_free(d);
}

/* Who changes their mind copies nothing. */
static void test_spill_undone(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), out = item_new(d, 16, 0);
    assert_ok(save(s, &i, 0, NULL));
    settle_all(d, s);
    assert_ok(comet_device_store_spill(s, i.entry));
    assert_ok(comet_device_store_fetch(s, i.entry, NULL));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    comet_device_store_stats t = stats_of(s);
    assert_true(t.segments == 1 && t.host_bytes == 0 && t.spills == 1 && t.fetches == 0);
    assert_ok(comet_device_store_spill(s, i.entry));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_ok(comet_device_store_fetch(s, i.entry, NULL));
    assert_ok(comet_device_store_spill(s, i.entry));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(info_of(i.entry).on_host, 1);
    assert_int_equal(stats_of(s).segments, 0);
    assert_ok(load(s, &i, NULL, &out));
    run_all(d);
    check_content(&out, &i);
    comet_device_store_free(s);
    device_free(d);
}

/* A slot is read later than it was asked for: until then the stream stays, though it was on its way to the host. */
static void test_slot_stays(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), next = item_new(d, 5000, 2), out = item_new(d, 16, 0);
    comet_cuda_slot slot;
    int32_t *word;
    assert_ok(save(s, &i, 0, NULL));
    settle_all(d, s);
    assert_ok(comet_device_store_spill(s, i.entry));
    assert_ok(comet_device_store_slot(s, i.entry, NULL, &slot, &word));
    settle_all(d, s); /* the copy has ended */
    assert_int_equal(info_of(i.entry).on_host, 0);
    assert_ok(save(s, &next, 0, NULL));
    enqueue(d, NULL, (op){.kind = OP_DECOMPRESS, .slot = slot, .to = out.tensor.data, .status = word});
    run_all(d);
    check_content(&out, &i);
    assert_int_equal(stats_of(s).host_bytes, 0);
    comet_device_store_free(s);
    device_free(d);
}

/* Released while it is copied, either way: nobody gets the memory before the copy has ended. */
static void test_release_during_copy(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), next = item_new(d, 3000, 2), out = item_new(d, 16, 0);
    for (int back = 0; back < 2; back++) {
        assert_ok(save(s, &i, 0, NULL));
        settle_all(d, s);
        assert_ok(comet_device_store_spill(s, i.entry));
        if (back) {
            run_all(d);
            assert_ok(comet_device_store_poll(s));
            assert_ok(comet_device_store_fetch(s, i.entry, NULL));
        }
        comet_device_store_release(s, i.entry);
        i.entry = NULL;
        assert_true(stats_of(s).host_bytes > 0);
        assert_ok(save(s, &next, 0, NULL)); /* in its place */
        for (int k = 0; k < 100; k++)
            run_one(d, 0);
        assert_ok(comet_device_store_poll(s));
        assert_int_equal(next.told, 0); /* it waits for the copy */
        settle_all(d, s);
        assert_int_equal(stats_of(s).host_bytes, 0);
        assert_ok(load(s, &next, NULL, &out));
        run_all(d);
        check_content(&out, &next);
        comet_device_store_release(s, next.entry);
        next.told = 0;
        next.entry = NULL;
        memcpy(next.tensor.data, &next.is, sizeof next.is);
        memcpy(i.tensor.data, &i.is, sizeof i.is);
    }
    comet_device_store_free(s);
    device_free(d);
}

static void test_spill_without_memory(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), out = item_new(d, 16, 0);
    assert_ok(save(s, &i, 0, NULL));
    settle_all(d, s);
    d->page_limit = 1000;
    assert_status(comet_device_store_spill(s, i.entry), COMET_ERROR_MEMORY);
    d->page_limit = 0;
    assert_ok(comet_device_store_spill(s, i.entry));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    d->memory = d->taken_bytes + 1;
    assert_status(comet_device_store_fetch(s, i.entry, NULL), COMET_ERROR_MEMORY);
    assert_status(load(s, &i, NULL, &out), COMET_ERROR_MEMORY);
    assert_int_equal(info_of(i.entry).on_host, 1);
    d->memory = 0;
    assert_ok(load(s, &i, NULL, &out));
    run_all(d);
    check_content(&out, &i);
    comet_device_store_free(s);
    device_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_spill_undone),
        cmocka_unit_test(test_slot_stays),
        cmocka_unit_test(test_release_during_copy),
        cmocka_unit_test(test_spill_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
