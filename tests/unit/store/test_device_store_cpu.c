/* SPDX-License-Identifier: Apache-2.0 */
/* The device store on a CPU: the real codecs, all at once, but owners are told by a poll, as on a GPU. */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comet/device_store.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/rng.h"

enum { MOST_VALUES = 40000, MOST_HELD = 20 };

typedef struct owner {
    int told;
    comet_device_settled how;
} owner;

static void settled(void *context, void *told, comet_device_entry *entry, const comet_device_settled *how) {
    owner *o = told;
    (void)entry;
    ++*(int *)context;
    o->told++;
    o->how = *how;
}

/* Memory of the caller, counted. */
typedef struct memory {
    size_t bytes, limit;
    long blocks, calls, fail_at;
} memory;

static void *take(void *context, size_t bytes, void *queue) {
    memory *m = context;
    (void)queue;
    if (++m->calls == m->fail_at || (m->limit && m->bytes + bytes > m->limit))
        return NULL;
    void *taken = malloc(bytes); /* of just the size: what is read behind it is seen */
    assert_non_null(taken);
    m->bytes += bytes;
    m->blocks++;
    return taken;
}

static void give(void *context, void *taken, size_t bytes, void *queue) {
    memory *m = context;
    (void)queue;
    m->bytes -= bytes;
    m->blocks--;
    free(taken);
}

static comet_device_store *store_new(memory *m, const comet_allocator *allocator, int *count) {
    comet_device_store_options o = COMET_DEVICE_STORE_OPTIONS_INIT;
    comet_device_store *s = NULL;
    o.settled = settled;
    o.settled_context = count;
    o.allocator = allocator;
    if (m)
        o.memory = (comet_device_memory){take, give, m};
    assert_ok(comet_device_store_new(&o, &s));
    return s;
}

static comet_device_store_stats stats_of(const comet_device_store *s) {
    comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
    comet_device_store_get_stats(s, &stats);
    return stats;
}

/* ---- round trips ---- */

typedef struct held {
    comet_device_entry *entry;
    comet_tensor tensor;
    comet_codec_params params;
    float *values;
    owner o;
} held;

static void held_new(held *h, rng *r) {
    static const comet_codec codecs[] = {COMET_CODEC_EB, COMET_CODEC_EB, COMET_CODEC_ZVC, COMET_CODEC_RAW};
    int64_t shape[3] = {rng_between(r, 1, 8), rng_between(r, 1, 50), rng_between(r, 1, 100)};
    int64_t count = shape[0] * shape[1] * shape[2];
    *h = (held){.params = COMET_CODEC_PARAMS_INIT, .values = malloc((size_t)count * 4)};
    assert_non_null(h->values);
    h->params.codec = codecs[rng_below(r, 4)];
    h->params.bound = 0.05;
    for (int64_t i = 0; i < count; i++)
        h->values[i] = rng_below(r, 3) ? (float)rng_gauss(r) : 0.0f;
    assert_ok(comet_tensor_init(&h->tensor, h->values, COMET_F32, COMET_NCHW, 3, shape));
}

static comet_status save(comet_device_store *s, held *h) {
    comet_device_save one = COMET_DEVICE_SAVE_INIT;
    one.tensor = &h->tensor;
    one.params = &h->params;
    one.owner = &h->o;
    return comet_device_store_save(s, &one, &h->entry);
}

static void check(comet_device_store *s, held *h, float *out) {
    comet_tensor to = h->tensor;
    int64_t count = comet_tensor_count(&h->tensor);
    to.data = out;
    memset(out, 0x7f, (size_t)count * 4);
    assert_ok(comet_device_store_load(s, h->entry, NULL, NULL, &to));
    if (h->params.codec != COMET_CODEC_EB)
        assert_memory_equal(out, h->values, (size_t)count * 4);
    for (int64_t i = 0; i < count; i++)
        assert_true(fabs((double)out[i] - (double)h->values[i]) <= 0.05);
}

static void release(comet_device_store *s, held *h) {
    comet_device_store_release(s, h->entry);
    assert_int_equal(h->o.told, 1);
    free(h->values);
}

typedef struct walk {
    comet_device_store *s;
    memory *m;
    rng r;
    held *all[MOST_HELD]; /* owners stay where they are */
    float *out;
    int count, saved, told;
} walk;

static void walk_save(walk *w) {
    held *h = w->all[w->count++] = malloc(sizeof *h);
    assert_non_null(h);
    held_new(h, &w->r);
    assert_ok(save(w->s, h));
    assert_int_equal(comet_device_entry_state(h->entry), 0);
    assert_ok(comet_device_store_await(w->s, h->entry));
    w->saved++;
}

static void walk_poll(walk *w) {
    assert_ok(comet_device_store_poll(w->s));
    assert_int_equal(w->told, w->saved);
    assert_int_equal(stats_of(w->s).unsettled, 0);
    for (int i = 0; i < w->count; i++)
        assert_int_equal(comet_device_entry_state(w->all[i]->entry), 1);
}

/* Loads one, if it is settled, and perhaps releases it. */
static void walk_use(walk *w, int and_release) {
    int i = (int)rng_below(&w->r, (uint64_t)w->count);
    held *h = w->all[i];
    if (comet_device_entry_state(h->entry) == 1)
        check(w->s, h, w->out);
    assert_ptr_equal(comet_device_store_share(h->entry), h->entry);
    comet_device_store_release(w->s, h->entry);
    if (!and_release)
        return;
    release(w->s, h);
    free(h);
    memmove(&w->all[i], &w->all[i + 1], (size_t)(--w->count - i) * sizeof *w->all);
}

/* In any order, shared, with polls now and then. */
static void round_trips(memory *m, uint64_t seed) {
    walk w = {.m = m, .r = rng_seed(seed), .out = malloc(MOST_VALUES * sizeof(float))};
    counting_allocator records;
    assert_non_null(w.out);
    counting_allocator_init(&records);
    w.s = store_new(m, &records.allocator, &w.told);
    for (int step = 0; step < 300; step++) {
        uint64_t what = rng_below(&w.r, 10);
        if (what < 4 && w.count < MOST_HELD)
            walk_save(&w);
        else if (what < 6)
            walk_poll(&w);
        else if (w.count > 0)
            walk_use(&w, what >= 8);
        comet_device_store_stats t = stats_of(w.s);
        assert_int_equal(t.entries, w.count);
        assert_int_equal(t.saves, w.saved);
        if (m)
            assert_int_equal(t.room_bytes, m->bytes);
    }
    comet_device_store_free(w.s);
    assert_int_equal(w.told, w.saved);
    assert_int_equal(records.live_blocks, 0);
    assert_int_equal(records.wrong_sizes, 0);
    for (int i = 0; i < w.count; i++) {
        free(w.all[i]->values);
        free(w.all[i]);
    }
    free(w.out);
}

static void test_round_trips(void **state) {
    (void)state;
    int rounds = effort(12);
    for (int round = 0; round < rounds; round++) {
        memory m = {0};
        round_trips(round % 3 ? &m : NULL, (uint64_t)round);
        assert_int_equal(m.blocks, 0);
        assert_int_equal(m.bytes, 0);
    }
}

/* Everything is done when a call returns, and known when it is polled for. */
static void test_life(void **state) {
    (void)state;
    memory m = {0};
    int told = 0;
    comet_device_store *s = store_new(&m, NULL, &told);
    rng r = rng_seed(1);
    held h;
    held_new(&h, &r);
    h.params.codec = COMET_CODEC_EB;
    assert_ok(save(s, &h));
    size_t raw = (size_t)comet_tensor_count(&h.tensor) * 4;
    assert_int_equal(comet_device_store_unsettled_bytes(s), raw);
    assert_ptr_equal(comet_device_store_oldest(s), h.entry);
    assert_int_equal(stats_of(s).stored_bytes, 0);
    assert_status(comet_device_store_load(s, h.entry, NULL, NULL, &h.tensor), COMET_ERROR_ARGUMENT);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(h.o.told, 1);
    assert_int_equal(h.o.how.status, COMET_OK);
    assert_int_equal(h.o.how.result.bytes, m.bytes); /* memory of just the size */
    assert_int_equal(h.o.how.result.stats.count, comet_tensor_count(&h.tensor));
    assert_int_equal(stats_of(s).stored_bytes, m.bytes);
    assert_int_equal(stats_of(s).segments, 0);
    assert_ok(comet_device_store_spill(s, h.entry));
    assert_ok(comet_device_store_fetch(s, h.entry, NULL));
    assert_ok(comet_device_store_health(s));
    comet_device_entry_info info = COMET_DEVICE_ENTRY_INFO_INIT;
    comet_device_entry_get_info(h.entry, &info);
    assert_true(info.state == 1 && info.room_bytes == m.bytes && info.raw_bytes == raw && !info.on_host);

    comet_cuda_epilogue epilogue = COMET_CUDA_EPILOGUE_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_device_save one = COMET_DEVICE_SAVE_INIT;
    comet_device_entry *e;
    comet_cuda_slot slot;
    int32_t *word;
    one.tensor = &h.tensor;
    one.params = &h.params;
    assert_status(comet_device_store_load(s, h.entry, NULL, &epilogue, &h.tensor), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_device_store_exec(s, NULL, 10, &exec), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_device_store_open(s, &one, &e, &slot), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_device_store_slot(s, h.entry, NULL, &slot, &word), COMET_ERROR_UNSUPPORTED);
    release(s, &h);
    assert_int_equal(m.blocks, 0);
    comet_device_store_free(s);
}

/* 1 if a call failed. */
static int live(const comet_allocator *allocator, memory *m) {
    comet_device_store_options o = COMET_DEVICE_STORE_OPTIONS_INIT;
    comet_device_store *s = NULL;
    rng r = rng_seed(4);
    float *out = malloc(MOST_VALUES * sizeof *out);
    int told = 0, saved = 0, failed = 0;
    held all[6];
    assert_non_null(out);
    o.settled = settled;
    o.settled_context = &told;
    o.allocator = allocator;
    o.memory = (comet_device_memory){take, give, m};
    if (comet_device_store_new(&o, &s) != COMET_OK) {
        free(out);
        return 1;
    }
    for (int i = 0; i < 6; i++) {
        held_new(&all[i], &r);
        if (save(s, &all[i]) != COMET_OK)
            all[i].entry = NULL, failed = 1;
        saved += all[i].entry != NULL;
        if (i == 3)
            assert_ok(comet_device_store_poll(s));
    }
    assert_ok(comet_device_store_poll(s));
    for (int i = 0; i < 6; i++)
        if (all[i].entry) {
            comet_tensor to = all[i].tensor;
            to.data = out;
            failed |= comet_device_store_load(s, all[i].entry, NULL, NULL, &to) != COMET_OK;
            if (i % 2)
                comet_device_store_release(s, all[i].entry);
        }
    comet_device_store_free(s);
    assert_int_equal(told, saved);
    for (int i = 0; i < 6; i++)
        free(all[i].values);
    free(out);
    return failed;
}

static void test_no_memory(void **state) {
    (void)state;
    for (int callers = 0; callers < 2; callers++)
        for (long n = 1;; n++) {
            counting_allocator records;
            counting_allocator_init(&records);
            memory m = {.fail_at = callers ? n : 0};
            records.fail_at = callers ? 0 : n;
            int failed = live(&records.allocator, &m);
            assert_int_equal(records.live_blocks, 0);
            assert_int_equal(records.wrong_sizes, 0);
            assert_int_equal(m.blocks, 0);
            if ((callers ? m.calls : records.calls) < n) {
                assert_int_equal(failed, 0);
                assert_true(n > 5);
                break;
            }
            assert_int_equal(failed, 1);
        }
}

static void test_grid(void **state) {
    (void)state;
    enum { CHANNELS = 3, COUNT = 2 * CHANNELS * 64 };
    int told = 0;
    comet_device_store *s = store_new(NULL, NULL, &told);
    float scale[CHANNELS] = {1, 2, 3}, threshold[CHANNELS] = {0, 0.5f, -0.5f}, x[COUNT], y[COUNT];
    comet_codec_grid grid = {CHANNELS, scale, NULL, threshold, NULL};
    held h = {.params = COMET_CODEC_PARAMS_INIT};
    int64_t shape[3] = {2, CHANNELS, 64};
    rng r = rng_seed(9);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)rng_gauss(&r);
    assert_ok(comet_tensor_init(&h.tensor, x, COMET_F32, COMET_NCHW, 3, shape));
    h.params.bound = 0.1;
    h.params.grid = &grid;
    assert_ok(save(s, &h));
    assert_ok(comet_device_store_poll(s));
    h.tensor.data = y;
    grid.channels = 0; /* its tables live on, the struct was copied */
    assert_ok(comet_device_store_load(s, h.entry, NULL, NULL, &h.tensor));
    for (int i = 0; i < COUNT; i++) {
        int c = i / 64 % CHANNELS;
        float exact = x[i] * scale[c];
        assert_true(fabs((double)y[i] - (double)exact) <= 0.1);
        assert_int_equal(y[i] > threshold[c], exact > threshold[c]);
    }
    comet_device_store_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
