/* SPDX-License-Identifier: Apache-2.0 */
/* The device store on a GPU that is made up, call by call. */
#include "test_device_store_case.h"

static void test_arguments(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = NULL;
    comet_device_store_options o = fake_options(d);
    o.settled = NULL;
    assert_status(comet_device_store_create_with(&d->driver, &o, &s), COMET_ERROR_ARGUMENT);
    assert_reason("options->settled is NULL");
    o = fake_options(d);
    o.memory.take = NULL;
    assert_status(comet_device_store_create_with(&d->driver, &o, &s), COMET_ERROR_ARGUMENT);
    o.memory.give = NULL;
    assert_status(comet_device_store_create_with(&d->driver, &o, &s), COMET_ERROR_ARGUMENT);
    assert_reason("options->memory.take is NULL");
    o = fake_options(d);
    o.segment_bytes = 2 * MIB - 1;
    assert_status(comet_device_store_create_with(&d->driver, &o, &s), COMET_ERROR_ARGUMENT);
    assert_reason("options->segment_bytes is");
    assert_status(comet_device_store_create_with(&d->driver, NULL, &s), COMET_ERROR_ARGUMENT);
    assert_status(comet_device_store_create_with(&d->driver, &o, NULL), COMET_ERROR_ARGUMENT);
    o = fake_options(d);
    o.device.kind = (comet_device_kind)7;
    assert_status(comet_device_store_new(&o, &s), COMET_ERROR_ARGUMENT);
    assert_status(comet_device_store_new(NULL, &s), COMET_ERROR_ARGUMENT);
    assert_null(s);
    comet_device_store_free(NULL);
    device_free(d);
}

/* Without a GPU, or in a library without CUDA, there is no store on one. */
static void test_no_device(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = NULL;
    comet_device_store_options o = fake_options(d);
    assert_int_equal(comet_device_store_new(&o, &s), comet_cuda_check(0));
    comet_device_store_free(s);
    device_free(d);
}

static void test_arguments_of_calls(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    item i = item_new(d, 1000, 1), out = item_new(d, 16, 0);
    comet_device_save save_it = save_of(&i, &params, NULL);
    comet_device_entry *e = NULL;
    assert_status(comet_device_store_save(s, &save_it, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_device_store_save(s, NULL, &e), COMET_ERROR_ARGUMENT);
    assert_status(comet_device_store_save(NULL, &save_it, &e), COMET_ERROR_ARGUMENT);
    save_it.params = NULL;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_ARGUMENT);
    save_it.params = &params;
    params.codec = (comet_codec)99;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_ARGUMENT);
    params.codec = COMET_CODEC_EB;
    params.checksum = 1;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_UNSUPPORTED);
    params.checksum = 0;
    i.tensor.device.index = 1;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_ARGUMENT);
    i.tensor.device.index = 0;
    i.tensor.strides[0] = 2;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_ARGUMENT);
    i.tensor.strides[0] = 1;
    i.tensor.data = (char *)i.tensor.data + 4;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_ARGUMENT);
    i.tensor.data = (char *)i.tensor.data - 4;
    d->capturing = 1;
    assert_status(comet_device_store_save(s, &save_it, &e), COMET_ERROR_UNSUPPORTED);
    d->capturing = 0;
    assert_int_equal(d->taken_bytes, 0);
    assert_int_equal(stats_of(s).saves, 0);

    assert_ok(save(s, &i, 0, NULL));
    assert_status(load(s, &i, NULL, &out), COMET_ERROR_ARGUMENT);
    assert_reason("entry is not settled");
    assert_status(comet_device_store_spill(s, i.entry), COMET_ERROR_ARGUMENT);
    assert_status(comet_device_store_close(s, i.entry), COMET_ERROR_ARGUMENT);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    out.tensor.shape[0]--;
    assert_status(load(s, &i, NULL, &out), COMET_ERROR_ARGUMENT);
    out.tensor.shape[0]++;
    out.tensor.dtype = COMET_F16;
    assert_status(load(s, &i, NULL, &out), COMET_ERROR_ARGUMENT);
    out.tensor.dtype = COMET_F32;
    assert_ok(load(s, &i, NULL, &out));
    assert_int_equal(comet_device_entry_state(NULL), -1);
    comet_device_store_free(s);
    device_free(d);
}

/* From saving to releasing, and what is known in between. */
static void test_life(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), out = item_new(d, 16, 0);
    void *q = queue_at(d, 1);
    assert_ok(save(s, &i, 4000, q));
    assert_int_equal(comet_device_entry_state(i.entry), 0);
    assert_ptr_equal(comet_device_store_oldest(s), i.entry);
    assert_int_equal(comet_device_store_unsettled_bytes(s), 4 * VALUES);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 0);
    comet_device_store_stats t = stats_of(s);
    assert_true(t.entries == 1 && t.unsettled == 1 && t.saves == 1 && t.stored_bytes == 0);
    assert_true(t.room_bytes == 4096 && t.segments == 1 && t.segment_bytes == 2 * MIB);
    assert_true(t.raw_bytes == 4 * VALUES && t.unsettled_bytes == 4 * VALUES);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.status, COMET_OK);
    assert_int_equal(i.how.result.bytes, 3000);
    assert_true(i.how.result.bound == 0.5);
    assert_int_equal(comet_device_entry_state(i.entry), 1);
    assert_null(comet_device_store_oldest(s));
    t = stats_of(s);
    assert_true(t.entries == 1 && t.unsettled == 0 && t.unsettled_bytes == 0 && t.stored_bytes == 3000);
    assert_int_equal(t.room_bytes, 3072); /* the rest is free again */
    comet_device_entry_info info = info_of(i.entry);
    assert_true(info.raw_bytes == 4 * VALUES && info.room_bytes == 3072 && info.state == 1 && !info.on_host);
    assert_int_equal(info.result.bytes, 3000);
    assert_ok(load(s, &i, q, &out));
    assert_ptr_equal(comet_device_store_share(i.entry), i.entry);
    comet_device_store_release(s, i.entry);
    assert_int_equal(stats_of(s).entries, 1);
    comet_device_store_release(s, i.entry);
    run_all(d);
    check_content(&out, &i);
    t = stats_of(s);
    assert_true(t.entries == 0 && t.segments == 0 && t.segment_bytes == 0 && t.room_bytes == 0 && t.raw_bytes == 0);
    assert_true(t.loads == 1 && t.stored_bytes == 0 && t.peak_segment_bytes == 2 * MIB && t.queues_joined == 0);
    comet_device_store_reset_peak(s);
    assert_int_equal(stats_of(s).peak_segment_bytes, 0);
    assert_int_equal(i.told, 1);
    comet_device_store_free(s);
    device_free(d);
}

/* What arrives word by word is there when all words are, however they are ordered. */
static void test_words_arrive_in_any_order(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    rng r = rng_seed(3);
    enum { WORDS = sizeof(comet_cuda_result) / 8 };
    for (int round = 0; round < 50; round++) {
        item i = item_new(d, 3000, 1);
        comet_codec_params params = COMET_CODEC_PARAMS_INIT;
        comet_device_save save_it = save_of(&i, &params, NULL);
        comet_cuda_slot slot;
        comet_cuda_result result = {.codec = {.bytes = 3000, .stats = {.min = -3.0f, .max = -2.87e-16f}}, .end = 3072};
        uint32_t halves[2 * WORDS], order[2 * WORDS];
        memcpy(halves, &result, sizeof result);
        assert_ok(comet_device_store_open(s, &save_it, &i.entry, &slot));
        assert_ok(comet_device_store_close(s, i.entry));
        for (uint32_t k = 0; k < 2 * WORDS; k++)
            order[k] = k;
        for (uint32_t k = 2 * WORDS; k-- > 1;) {
            uint64_t other = rng_below(&r, k + 1);
            uint32_t kept = order[k];
            order[k] = order[other], order[other] = kept;
        }
        /* 8-byte numbers arrive whole: the second half is written with the first */
        int written = 0;
        for (uint32_t k = 0; k < 2 * WORDS; k++) {
            uint32_t word = order[k] / 2, pair = word == 9 || word == 14;
            uint32_t *to = (uint32_t *)(void *)slot.result + 2 * word;
            assert_ok(comet_device_store_poll(s));
            assert_int_equal(i.told, 0);
            if (pair) {
                to[order[k] % 2] = halves[order[k]];
                written++;
            } else if (to[0] == UINT32_MAX && to[1] == UINT32_MAX) {
                memcpy(to, halves + 2 * word, 8);
                written += 2;
            }
            if (written == 2 * WORDS)
                break;
        }
        assert_ok(comet_device_store_poll(s));
        assert_int_equal(i.told, 1);
        assert_memory_equal(&i.how.result, &result.codec, sizeof result.codec);
        comet_device_store_release(s, i.entry);
    }
    comet_device_store_free(s);
    device_free(d);
}

static void test_guesses(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1);
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_device_save one = save_of(&i, &params, NULL);
    size_t worst = 4 * VALUES + 1000, whole = (worst + 255) / 256 * 256;
    struct {
        comet_codec codec;
        comet_dtype dtype;
        size_t expected, room;
    } cases[] = {
        {COMET_CODEC_EB, COMET_F32, 0, (worst / 6 + 255) / 256 * 256},
        {COMET_CODEC_EB, COMET_BF16, 0, (worst / 4 + 255) / 256 * 256},
        {COMET_CODEC_ZVC, COMET_F16, 0, (worst / 4 + 255) / 256 * 256},
        {COMET_CODEC_EB, COMET_F32, 513, 768},
        {COMET_CODEC_EB, COMET_F32, 10 * worst, whole},
        {COMET_CODEC_RAW, COMET_F32, 0, whole},
        {COMET_CODEC_MASK, COMET_F32, 100, whole},
        {COMET_CODEC_GROUP, COMET_F32, 100, whole},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        comet_cuda_slot slot;
        params.codec = cases[k].codec;
        i.tensor.dtype = cases[k].dtype;
        one.expected_bytes = cases[k].expected;
        assert_ok(comet_device_store_open(s, &one, &i.entry, &slot));
        assert_int_equal(slot.capacity, cases[k].room);
        assert_null(slot.start);
        comet_device_store_abandon(s, i.entry);
        assert_int_equal(stats_of(s).segments, 0);
    }
    assert_int_equal(i.told, 0);
    assert_int_equal(stats_of(s).saves, 0);
    i.tensor.shape[0] = 16; /* small */
    params.codec = COMET_CODEC_EB;
    one.expected_bytes = 0;
    comet_cuda_slot slot;
    assert_ok(comet_device_store_open(s, &one, &i.entry, &slot));
    assert_int_equal(slot.capacity, 1280); /* all that it can take */
    comet_device_store_abandon(s, i.entry);
    comet_device_store_free(s);
    device_free(d);
}

static void test_misfit(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 30000, 1), next = item_new(d, 500, 2), out = item_new(d, 16, 0);
    assert_ok(save(s, &i, 1000, NULL));
    assert_ok(save(s, &next, 1000, NULL));
    run_all(d);
    assert_ok(comet_device_store_await(s, i.entry)); /* it can be said that it did not fit */
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 0);
    assert_int_equal(next.told, 1);
    assert_int_equal(comet_device_entry_state(i.entry), 0);
    assert_int_equal(stats_of(s).misfits, 1);
    assert_ptr_equal(comet_device_store_oldest(s), i.entry);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.status, COMET_OK);
    assert_int_equal(i.how.result.bytes, 30000);
    assert_ok(load(s, &i, NULL, &out));
    run_all(d);
    check_content(&out, &i);
    assert_ok(load(s, &next, NULL, &out));
    run_all(d);
    check_content(&out, &next);
    comet_device_store_free(s);
    assert_int_equal(i.told + next.told, 2);
    device_free(d);
}

/* It moves to a larger segment, and the one it was alone in goes back. */
static void test_misfit_moves(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3 * MIB, 1);
    i.tensor.shape[0] = MIB;
    assert_ok(save(s, &i, 1000, NULL));
    assert_int_equal(stats_of(s).segment_bytes, 2 * MIB);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(stats_of(s).segment_bytes, 4 * MIB);
    assert_int_equal(stats_of(s).segments, 1);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.result.bytes, 3 * MIB);
    comet_device_store_free(s);
    device_free(d);
}

/* A tensor that changed, against the rules, ends in the most there can be. */
static void test_misfit_twice(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 30000, 1);
    assert_ok(save(s, &i, 1000, NULL));
    run_all(d);
    content_of(&i.tensor)->bytes = 40000;
    for (int round = 0; round < 3; round++) {
        assert_ok(comet_device_store_poll(s));
        run_all(d);
    }
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.result.bytes, 40000);
    assert_int_equal(stats_of(s).misfits, 2);
    comet_device_store_free(s);
    device_free(d);
}

static void test_misfit_without_memory(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item many[40], i = item_new(d, 66000, 1);
    for (int k = 0; k < 40; k++) { /* the segment is full */
        many[k] = item_new(d, 60000, (uint64_t)k);
        if (k < 34)
            assert_ok(save(s, &many[k], 60000, NULL));
    }
    assert_int_equal(stats_of(s).segments, 1);
    assert_ok(save(s, &i, 1000, NULL));
    assert_int_equal(stats_of(s).segments, 1);
    run_all(d);
    d->memory = d->taken_bytes; /* no more */
    assert_status(save(s, &many[34], 66000, NULL), COMET_ERROR_MEMORY);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.status, COMET_ERROR_MEMORY);
    assert_int_equal(i.how.result.bytes, 0);
    assert_int_equal(comet_device_entry_state(i.entry), -1);
    assert_int_equal(stats_of(s).refused, 2);
    assert_status(load(s, &i, NULL, &many[39]), COMET_ERROR_ARGUMENT);
    assert_reason("entry holds no stream");
    assert_memory_equal(i.tensor.data, &i.is, sizeof i.is); /* the owner has it */
    comet_device_store_release(s, i.entry);
    assert_int_equal(i.told, 1);
    comet_device_store_free(s);
    for (int k = 0; k < 34; k++)
        assert_int_equal(many[k].told, 1);
    device_free(d);
}

/* Larger than a segment; and where a whole segment cannot be had a smaller one will do. */
static void test_segments(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store_options o = fake_options(d);
    comet_device_store *s = NULL;
    o.segment_bytes = 8 * MIB;
    assert_ok(comet_device_store_create_with(&d->driver, &o, &s));
    item i[4];
    for (int k = 0; k < 4; k++)
        i[k] = item_new(d, 9 * MIB, (uint64_t)k);
    for (int k = 0; k < 4; k++) {
        i[k].tensor.shape[0] = (k == 3 ? 3 : 9) * MIB / 4;
        i[k].is.bytes = k == 3 ? 3 * MIB : 9 * MIB; /* nobody reads it: only what is taken counts */
    }
    comet_codec_params raw = COMET_CODEC_PARAMS_INIT;
    raw.codec = COMET_CODEC_RAW;
    comet_device_save one = save_of(&i[0], &raw, NULL);
    assert_ok(comet_device_store_save(s, &one, &i[0].entry));
    assert_int_equal(stats_of(s).segment_bytes, 10 * MIB); /* 9 MiB and a header */
    d->memory = d->taken_bytes + 6 * MIB;
    one = save_of(&i[1], &raw, NULL);
    assert_status(comet_device_store_save(s, &one, &i[1].entry), COMET_ERROR_MEMORY);
    one = save_of(&i[3], &raw, NULL);
    assert_ok(comet_device_store_save(s, &one, &i[3].entry));
    assert_int_equal(stats_of(s).segment_bytes, 14 * MIB);
    comet_device_store_release(s, i[0].entry); /* not settled: its owner is told now */
    assert_int_equal(i[0].told, 1);
    assert_int_equal(i[0].how.status, COMET_OK);
    assert_int_equal(i[0].how.result.bytes, 0);
    assert_int_equal(stats_of(s).segment_bytes, 4 * MIB);
    atomic_store(&d->dead, 1); /* their work would read more than the tensors have */
    comet_device_store_free(s);
    atomic_store(&d->dead, 0);
    for (int n = 0; n < MOST_QUEUES; n++)
        d->queues[n].begin = d->queues[n].end;
    assert_int_equal(i[3].told, 1);
    device_free(d);
}

/* A stream on top gives up what it did not need, and its place. */
static void test_bump(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    item i[3] = {item_new(d, 300, 1), item_new(d, 5000, 2), item_new(d, 100, 3)}, extra = item_new(d, 100, 4);
    for (int k = 0; k < 3; k++)
        assert_ok(save(s, &i[k], 10000, NULL));
    comet_device_save one = save_of(&extra, &params, NULL);
    comet_cuda_slot first, slot;
    assert_ok(comet_device_store_open(s, &one, &extra.entry, &first)); /* behind three rooms of 10240 */
    comet_device_store_abandon(s, extra.entry);
    unsigned char *base = (unsigned char *)first.base - 30720;
    run_all(d);
    assert_ok(comet_device_store_poll(s)); /* the top one becomes 256 bytes */
    assert_ok(comet_device_store_open(s, &one, &extra.entry, &slot));
    comet_device_store_abandon(s, extra.entry);
    assert_ptr_equal(slot.base, base + 20480 + 256);
    comet_device_store_release(s, i[1].entry); /* not on top: nothing changes */
    assert_ok(comet_device_store_open(s, &one, &extra.entry, &slot));
    comet_device_store_abandon(s, extra.entry);
    assert_ptr_equal(slot.base, base + 20480 + 256);
    comet_device_store_release(s, i[2].entry); /* back to the true end of the first */
    assert_ok(comet_device_store_open(s, &one, &extra.entry, &slot));
    comet_device_store_abandon(s, extra.entry);
    assert_ptr_equal(slot.base, base + 512);
    comet_device_store_release(s, i[0].entry);
    assert_int_equal(stats_of(s).segments, 0);
    comet_device_store_free(s);
    device_free(d);
}

/* The record of an entry that is released early is not used again before the device has written to it. */
static void test_late_records(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i[8];
    for (int round = 0; round < 3 * HELD_POOL_RECORDS / 8; round++) {
        for (int k = 0; k < 8; k++) {
            i[k] = item_new(d, 100 + (uint64_t)(8 * round + k) % 900, (uint64_t)round);
            assert_ok(save(s, &i[k], 1024, NULL));
            if (k % 2)
                comet_device_store_release(s, i[k].entry);
        }
        run_all(d);
        assert_ok(comet_device_store_poll(s));
        run_all(d);
        for (int k = 0; k < 8; k++) {
            assert_int_equal(i[k].told, 1);
            if (k % 2 == 0) {
                assert_int_equal(i[k].how.result.bytes, 100 + (uint64_t)(8 * round + k) % 900);
                comet_device_store_release(s, i[k].entry);
            }
        }
    }
    assert_int_equal(d->pages, 1); /* they are all used again */
    comet_device_store_free(s);
    device_free(d);
}

/* More saves in flight than one pool has records for. */
static void test_many_in_flight(void **state) {
    (void)state;
    enum { MANY = HELD_POOL_RECORDS + 100 };
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item *i = calloc(MANY, sizeof *i);
    assert_non_null(i);
    for (int k = 0; k < MANY; k++) {
        i[k] = item_new(d, 200, (uint64_t)k);
        assert_ok(save(s, &i[k], 256, queue_at(d, k % 2)));
    }
    assert_int_equal(d->pages, 2);
    assert_int_equal(stats_of(s).unsettled, MANY);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    run_all(d);
    for (int k = 0; k < MANY; k++) {
        assert_int_equal(i[k].told, 1);
    }
    comet_device_store_free(s);
    free(i);
    device_free(d);
}

/* A callback that releases others, settled or not. */
static void test_release_in_callback(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i[6];
    for (int k = 0; k < 6; k++) {
        i[k] = item_new(d, 300, (uint64_t)k);
        assert_ok(save(s, &i[k], 0, queue_at(d, k % 2)));
        i[k].store = s;
    }
    i[0].also = i[2].entry;
    i[2].also = i[1].entry;
    i[3].also = i[0].entry;
    i[4].also = i[4].entry; /* not allowed, and harmless */
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    for (int k = 0; k < 6; k++)
        assert_int_equal(i[k].told, 1);
    assert_int_equal(stats_of(s).entries, 2);
    comet_device_store_free(s);
    device_free(d);
}

static void test_exec(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT, none = {0};
    assert_status(comet_device_store_exec(s, NULL, 100, &none), COMET_ERROR_ARGUMENT);
    assert_ok(comet_device_store_exec(s, queue_at(d, 2), 1000, &exec));
    assert_ptr_equal(exec.queue, queue_at(d, 2));
    assert_int_equal(exec.workspace_bytes, 1024);
    void *before = exec.workspace;
    assert_ok(comet_device_store_exec(s, queue_at(d, 2), 10, &exec));
    assert_ptr_equal(exec.workspace, before);
    assert_ok(comet_device_store_exec(s, queue_at(d, 1), 10, &exec));
    assert_ptr_not_equal(exec.workspace, before);
    assert_int_equal(stats_of(s).workspace_bytes, 1280);
    assert_ok(comet_device_store_exec(s, queue_at(d, 2), 5000, &exec));
    assert_int_equal(stats_of(s).workspace_bytes, 5120 + 256);
    assert_int_equal(d->taken_bytes, 5120 + 256);
    d->memory = d->taken_bytes;
    assert_status(comet_device_store_exec(s, queue_at(d, 2), 6000, &exec), COMET_ERROR_MEMORY);
    comet_device_store_free(s);
    device_free(d);
}

static void test_other_queue(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), next = item_new(d, 3000, 2), out = item_new(d, 16, 0);
    void *one = queue_at(d, 1), *two = queue_at(d, 2);
    assert_ok(save(s, &i, 0, one));
    while (run_one(d, 1))
        ;
    assert_ok(comet_device_store_poll(s));
    assert_ok(load(s, &i, two, &out));
    assert_int_equal(stats_of(s).queues_joined, 1);
    comet_device_store_release(s, i.entry);
    assert_int_equal(stats_of(s).queues_joined, 2);
    assert_ok(save(s, &next, 0, one)); /* in the same place: it must wait for the load */
    for (int k = 0; k < 100; k++)
        run_one(d, 1);
    assert_int_equal(d->reads, 0);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(next.told, 0);
    run_all(d);
    device_check(d);
    check_content(&out, &i);
    comet_device_store_free(s);
    device_free(d);
}

/* Read on two more queues: whoever gets the place waits for both. */
static void test_two_readers(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), next = item_new(d, 3000, 2), out[2] = {item_new(d, 16, 0), item_new(d, 16, 0)};
    item before = item_new(d, 3000, 3);
    assert_ok(save(s, &before, 0, NULL));
    assert_ok(save(s, &i, 0, NULL));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    for (int k = 0; k < 3; k++) /* that orders them: the status word */
        assert_ok(load(s, &before, queue_at(d, k), &out[0]));
    run_all(d);
    assert_ok(load(s, &i, queue_at(d, 1), &out[0]));
    assert_ok(load(s, &i, queue_at(d, 2), &out[1]));
    comet_device_store_release(s, i.entry);
    assert_ok(save(s, &next, 0, NULL));
    for (int k = 0; k < 100; k++) { /* the first reader is late */
        run_one(d, 0);
        run_one(d, 2);
    }
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(next.told, 0);
    run_all(d);
    check_content(&out[0], &i);
    check_content(&out[1], &i);
    comet_device_store_free(s);
    device_free(d);
}

/* No queue reports into the status word before it is zeroed. */
static void test_word_is_zeroed(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i[2] = {item_new(d, 3000, 1), item_new(d, 3000, 2)}, out = item_new(d, 16, 0);
    for (int k = 0; k < 2; k++)
        assert_ok(save(s, &i[k], 0, queue_at(d, k)));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    for (int k = 0; k < 2; k++)
        assert_ok(load(s, &i[k], queue_at(d, k), &out));
    for (int k = 0; k < 100; k++)
        run_one(d, 1);
    assert_int_equal(d->reads, 0);
    run_all(d);
    assert_int_equal(d->reads, 2);
    comet_device_store_free(s);
    device_free(d);
}

/* What the device says of streams comes with some load. */
static void test_health(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i = item_new(d, 3000, 1), out = item_new(d, 16, 0);
    comet_cuda_slot slot;
    int32_t *word = NULL;
    assert_ok(comet_device_store_health(s));
    assert_ok(save(s, &i, 0, NULL));
    assert_status(comet_device_store_slot(s, i.entry, NULL, &slot, &word), COMET_ERROR_ARGUMENT);
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_ok(comet_device_store_slot(s, i.entry, queue_at(d, 1), &slot, &word));
    assert_int_equal(slot.capacity, 3072);
    assert_null(slot.result);
    run_all(d);
    assert_int_equal(*word, COMET_OK);
    *word = COMET_ERROR_CORRUPT;
    for (int k = 0; k < HELD_HEALTH_LOADS; k++) {
        assert_ok(comet_device_store_health(s));
        assert_ok(load(s, &i, queue_at(d, k % 3), &out));
    }
    run_all(d);
    assert_status(comet_device_store_health(s), COMET_ERROR_CORRUPT);
    assert_int_equal(stats_of(s).loads, HELD_HEALTH_LOADS + 1);
    comet_device_store_free(s);
    device_free(d);
}

static void sleep_ms(long ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static void test_dead_device(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i[3] = {item_new(d, 3000, 1), item_new(d, 3000, 2), item_new(d, 3000, 3)};
    for (int k = 0; k < 2; k++)
        assert_ok(save(s, &i[k], 0, queue_at(d, k)));
    atomic_store(&d->dead, 1);
    assert_status(comet_device_store_await(s, i[0].entry), COMET_ERROR_DEVICE);
    assert_int_equal(stats_of(s).waits, 1);
    assert_status(comet_device_store_poll(s), COMET_ERROR_DEVICE);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(i[k].told, 1);
        assert_int_equal(i[k].how.status, COMET_ERROR_DEVICE);
        assert_int_equal(comet_device_entry_state(i[k].entry), -1);
    }
    assert_status(save(s, &i[2], 0, NULL), COMET_ERROR_DEVICE);
    assert_status(comet_device_store_health(s), COMET_ERROR_DEVICE);
    comet_device_store_free(s);

    s = store_new(d); /* poll finds it out by itself */
    i[2].told = 0;
    assert_ok(save(s, &i[2], 0, NULL));
    for (int k = 0; k < 100 && !i[2].told; k++) {
        (void)comet_device_store_poll(s);
        sleep_ms(1);
    }
    assert_int_equal(i[2].told, 1);
    assert_int_equal(i[2].how.status, COMET_ERROR_DEVICE);
    comet_device_store_free(s);
    atomic_store(&d->dead, 0);
    for (int n = 0; n < MOST_QUEUES; n++)
        d->queues[n].begin = d->queues[n].end;
    device_free(d);
}

/* What is no result at all. */
static void test_nonsense(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    item i = item_new(d, 3000, 1);
    comet_device_save one = save_of(&i, &params, NULL);
    comet_cuda_slot slot;
    assert_ok(comet_device_store_open(s, &one, &i.entry, &slot));
    comet_cuda_result result = {.codec = {.bytes = slot.capacity + 1}};
    write_result(slot.result, &result);
    assert_ok(comet_device_store_close(s, i.entry));
    assert_status(comet_device_store_poll(s), COMET_ERROR_DEVICE);
    assert_int_equal(i.told, 1);
    assert_int_equal(i.how.status, COMET_ERROR_DEVICE);
    comet_device_store_free(s);
    device_free(d);
}

/* ---- freed with everything in it ---- */

static void test_free_with_everything(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    item i[6];
    for (int k = 0; k < 6; k++)
        i[k] = item_new(d, 3000, (uint64_t)k);
    for (int k = 0; k < 4; k++)
        assert_ok(save(s, &i[k], 0, queue_at(d, k % 2)));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_ok(comet_device_store_spill(s, i[0].entry));
    assert_ok(comet_device_store_spill(s, i[1].entry));
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_ok(comet_device_store_fetch(s, i[0].entry, NULL));
    assert_ok(comet_device_store_spill(s, i[2].entry));
    assert_ok(save(s, &i[4], 0, NULL));
    comet_device_save one = save_of(&i[5], &params, NULL);
    comet_cuda_slot slot;
    assert_ok(comet_device_store_open(s, &one, &i[5].entry, &slot));
    comet_device_store_free(s);
    for (int k = 0; k < 5; k++)
        assert_int_equal(i[k].told, 1);
    assert_int_equal(i[5].told, 0);
    device_free(d);
}

/* Callbacks release others then, too. */
static void test_free_with_releases(void **state) {
    (void)state;
    device *d = device_new();
    comet_device_store *s = store_new(d);
    item i[4];
    for (int k = 0; k < 4; k++) {
        i[k] = item_new(d, 3000, (uint64_t)k);
        assert_ok(save(s, &i[k], 0, NULL));
        i[k].store = s;
    }
    i[0].also = i[3].entry;
    i[2].also = i[0].entry;
    i[3].also = i[1].entry;
    comet_device_store_free(s);
    for (int k = 0; k < 4; k++)
        assert_int_equal(i[k].told, 1);
    device_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_arguments_of_calls),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_words_arrive_in_any_order),
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_misfit),
        cmocka_unit_test(test_misfit_moves),
        cmocka_unit_test(test_misfit_twice),
        cmocka_unit_test(test_misfit_without_memory),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_bump),
        cmocka_unit_test(test_late_records),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_release_in_callback),
        cmocka_unit_test(test_exec),
        cmocka_unit_test(test_other_queue),
        cmocka_unit_test(test_two_readers),
        cmocka_unit_test(test_word_is_zeroed),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_dead_device),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_free_with_everything),
        cmocka_unit_test(test_free_with_releases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
