/* SPDX-License-Identifier: Apache-2.0 */
/* The store, one thread, no limit: forms, holds, aliases, ownership, accounts, reports, arguments. */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_allocator.h"
#include "support/store_case.h"

static const char *directory(void) {
    return getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
}

static comet_store *store_with(const comet_allocator *allocator) {
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    comet_store *store;
    options.spill_directory = directory();
    options.allocator = allocator;
    assert_ok(comet_store_new(&options, &store));
    return store;
}

static comet_store_stats stats_of(comet_store *store) {
    comet_store_stats stats = {.size = sizeof stats};
    assert_ok(comet_store_get_stats(store, &stats));
    return stats;
}

static comet_store_info info_of(comet_store *store, comet_store_handle handle) {
    comet_store_info info = {.size = sizeof info};
    assert_ok(comet_store_get_info(store, handle, &info));
    return info;
}

static comet_store_account account_of(comet_store *store, const char *name) {
    comet_store_account account = {.size = sizeof account};
    for (size_t i = 0; i < comet_store_accounts(store); i++) {
        assert_ok(comet_store_get_account(store, i, &account));
        if (strcmp(account.name, name) == 0)
            return account;
    }
    fail_msg("no account %s", name);
    return account;
}

static void assert_empty(comet_store *store) {
    comet_store_stats s = stats_of(store);
    assert_int_equal(s.entries, 0);
    assert_int_equal(s.live.raw + s.live.stored + s.live.resident + s.live.spilled, 0);
    assert_int_equal(s.scratch_bytes + s.reserved_bytes + s.file_bytes, 0);
}

/* ---- forms ---- */

static void check_sizes(const store_case *c, const comet_store_info *info) {
    size_t raw = (size_t)c->count * sizeof(float);
    assert_int_equal(info->bytes.raw, raw);
    assert_int_equal(info->holders, 1);
    assert_int_equal(info->form, c->item.form);
    assert_int_equal(info->spilled, c->item.offload);
    size_t stored = c->item.form == COMET_FORM_KEEP ? raw : c->item.form == COMET_FORM_CODEC ? info->result.bytes : 0;
    assert_int_equal(info->bytes.stored, stored);
    assert_int_equal(info->bytes.spilled, c->item.offload ? stored : 0);
    if (c->item.offload || !stored)
        assert_int_equal(info->bytes.resident, 0);
    else
        assert_in_range(info->bytes.resident, stored, stored + 65535);
    if (c->item.form == COMET_FORM_CODEC && c->codec.codec == COMET_CODEC_EB) {
        assert_true(fabs(info->result.bound - c->codec.bound) < 1e-6);
        assert_int_equal(info->result.stats.count, c->count);
    }
}

static void check_form(comet_store *store, int form, int64_t count, rng *r) {
    store_case c;
    comet_store_handle handle = 0;
    comet_store_info info = {.size = sizeof info};
    store_case_new(&c, form, count, r);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, &info));
    assert_true(handle != 0);
    check_sizes(&c, &info);
    for (int i = 0; i < 2; i++)
        assert_true(store_case_loads(store, handle, &c));
    assert_int_equal(info_of(store, handle).loads, 2);
    assert_ok(comet_store_release(store, handle));
    assert_status(comet_store_release(store, handle), COMET_ERROR_ARGUMENT);
    assert_empty(store);
    store_case_free(&c);
}

static void test_every_form(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int with = 0; with < 2; with++) {
        counting_allocator a;
        counting_allocator_init(&a);
        comet_store *store = store_with(with ? &a.allocator : NULL);
        for (int form = 0; form < store_form_count(); form++)
            for (int64_t count = 1; count < STORE_CASE_MOST; count *= 30)
                check_form(store, form, count, &r);
        comet_store_free(store);
        assert_int_equal(a.live_blocks, 0);
        assert_int_equal(a.wrong_sizes, 0);
    }
}

/* Transposed in, every second value out: kept in memory and in the file. */
static void test_strides(void **state) {
    (void)state;
    enum { ROWS = 123, COLUMNS = 457 };
    static float in[ROWS * COLUMNS], out[2 * ROWS * COLUMNS];
    comet_store *store = store_with(NULL);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        in[i] = (float)i;
    comet_tensor from = {.data = in, .ndim = 2, .shape = {COLUMNS, ROWS}, .strides = {1, COLUMNS}};
    comet_tensor to = {.data = out, .ndim = 2, .shape = {COLUMNS, ROWS}, .strides = {2 * ROWS, 2}};
    for (int offload = 0; offload < 2; offload++) {
        comet_store_item item = COMET_STORE_ITEM_INIT;
        comet_store_handle handle;
        item.offload = offload;
        memset(out, 0, sizeof out);
        assert_ok(comet_store_save(store, &from, &item, &handle, NULL));
        assert_ok(comet_store_load(store, handle, &to));
        for (int c = 0; c < COLUMNS; c++)
            for (int row = 0; row < ROWS; row++) {
                assert_true(out[2 * (c * ROWS + row)] == in[row * COLUMNS + c]);
                assert_true(out[2 * (c * ROWS + row) + 1] == 0.0f);
            }
        assert_ok(comet_store_release(store, handle));
    }
    comet_store_free(store);
}

static void test_empty_and_scalar(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    float value = 3.5f, back = 0.0f;
    for (int form = 0; form < 2; form++)
        for (int offload = 0; offload < 2; offload++) {
            comet_store_item item = COMET_STORE_ITEM_INIT;
            comet_codec_params codec = COMET_CODEC_PARAMS_INIT;
            comet_store_handle empty, scalar;
            comet_tensor none = {.ndim = 2, .shape = {0, 7}, .strides = {7, 1}};
            comet_tensor one = {.data = &value};
            item.form = (comet_store_form)form;
            item.offload = offload;
            item.codec = form ? &codec : NULL;
            assert_ok(comet_store_save(store, &none, &item, &empty, NULL));
            assert_ok(comet_store_save(store, &one, &item, &scalar, NULL));
            assert_ok(comet_store_load(store, empty, &none));
            one.data = &back;
            back = 0.0f;
            assert_ok(comet_store_load(store, scalar, &one));
            assert_true(back == value);
            assert_ok(comet_store_release(store, empty));
            assert_ok(comet_store_release(store, scalar));
            assert_empty(store);
        }
    comet_store_free(store);
}

/* The caller's threshold is overwritten after the save; the sides are those of the time of saving. */
static void test_grid_is_copied(void **state) {
    (void)state;
    enum { CHANNELS = 8, COUNT = 64 * CHANNELS };
    float in[COUNT], out[COUNT], threshold[CHANNELS], before[CHANNELS], slope[CHANNELS];
    rng r = rng_seed(7);
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)rng_gauss(&r);
    for (int c = 0; c < CHANNELS; c++) {
        before[c] = threshold[c] = (float)rng_gauss(&r) * 0.5f;
        slope[c] = c % 2 ? -1.0f : 1.0f;
    }
    comet_store *store = store_with(NULL);
    comet_tensor tensor;
    assert_ok(comet_tensor_init(&tensor, in, COMET_F32, COMET_NHWC, 4, (int64_t[]){1, 8, 8, CHANNELS}));
    comet_codec_grid grid = {.channels = CHANNELS, .threshold = threshold, .slope = slope};
    comet_codec_params codec = COMET_CODEC_PARAMS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_handle handle;
    codec.bound = 0.5;
    codec.grid = &grid;
    item.form = COMET_FORM_CODEC;
    item.codec = &codec;
    for (int offload = 0; offload < 2; offload++) {
        memcpy(threshold, before, sizeof before);
        tensor.data = in;
        item.offload = offload;
        assert_ok(comet_store_save(store, &tensor, &item, &handle, NULL));
        memset(threshold, 0, sizeof threshold);
        tensor.data = out;
        assert_ok(comet_store_load(store, handle, &tensor));
        for (int i = 0; i < COUNT; i++) {
            int c = i % CHANNELS;
            assert_true(fabsf(in[i] - out[i]) <= 0.5f);
            assert_int_equal(slope[c] >= 0 ? in[i] > before[c] : in[i] < before[c],
                             slope[c] >= 0 ? out[i] > before[c] : out[i] < before[c]);
        }
        assert_ok(comet_store_release(store, handle));
    }
    comet_store_free(store);
}

/* ---- ownership ---- */

typedef struct owner {
    void *data;
    size_t bytes;
    int calls;
} owner;

static void owner_release(void *context, void *data, size_t bytes) {
    owner *o = context;
    o->data = data;
    o->bytes = bytes;
    o->calls++;
    free(data);
}

static void test_taking_over(void **state) {
    (void)state;
    for (int offload = 0; offload < 3; offload++) {
        comet_store *store = store_with(NULL);
        rng r = rng_seed(3);
        store_case c;
        store_case_new(&c, 0, 5000, &r);
        size_t bytes = (size_t)c.count * sizeof(float);
        float *buffer = malloc(bytes);
        memcpy(buffer, c.values, bytes);
        comet_tensor tensor = c.tensor, view;
        tensor.data = buffer;
        owner o = {0};
        comet_store_handle handle;
        c.item.offload = offload == 1;
        c.item.release = owner_release;
        c.item.context = &o;
        assert_ok(comet_store_save(store, &tensor, &c.item, &handle, NULL));
        assert_int_equal(o.calls, offload == 1);
        if (offload == 1) {
            assert_status(comet_store_view(store, handle, &view), COMET_ERROR_UNSUPPORTED);
        } else if (offload == 0) {
            assert_int_equal(info_of(store, handle).bytes.resident, bytes);
            assert_ok(comet_store_view(store, handle, &view));
            assert_ptr_equal(view.data, buffer);
            assert_status(comet_store_spill(store, handle), COMET_ERROR_UNSUPPORTED);
        } else {
            assert_ok(comet_store_spill(store, handle));
            assert_int_equal(o.calls, 1);
            assert_int_equal(info_of(store, handle).bytes.resident, 0);
        }
        assert_true(store_case_loads(store, handle, &c));
        assert_ok(comet_store_release(store, handle));
        assert_int_equal(o.calls, 1);
        assert_ptr_equal(o.data, buffer);
        assert_int_equal(o.bytes, bytes);
        assert_empty(store);
        comet_store_free(store);
        store_case_free(&c);
    }
}

/* An empty tensor has memory to give back too. */
static void test_taking_over_nothing(void **state) {
    (void)state;
    for (int offload = 0; offload < 2; offload++) {
        comet_store *store = store_with(NULL);
        comet_tensor none = {.data = malloc(1), .ndim = 1, .shape = {0}, .strides = {1}};
        comet_store_item item = COMET_STORE_ITEM_INIT;
        comet_store_handle handle;
        owner o = {0};
        item.offload = offload;
        item.release = owner_release;
        item.context = &o;
        assert_ok(comet_store_save(store, &none, &item, &handle, NULL));
        assert_ok(comet_store_load(store, handle, &none));
        assert_ok(comet_store_release(store, handle));
        assert_int_equal(o.calls, 1);
        assert_int_equal(o.bytes, 0);
        comet_store_free(store);
    }
}

/* What a copy keeps can be viewed too, and a store that is freed gives everything back. */
static void test_views_and_free(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    rng r = rng_seed(4);
    store_case c;
    comet_store_handle kept, other, taken;
    comet_tensor view;
    owner o = {0};
    store_case_new(&c, 0, 3000, &r);
    assert_ok(comet_store_save(store, &c.tensor, NULL, &kept, NULL));
    assert_ok(comet_store_view(store, kept, &view));
    assert_memory_equal(view.data, c.values, (size_t)c.count * sizeof(float));
    assert_true(comet_tensor_is_contiguous(&view));
    c.item.form = COMET_FORM_CODEC;
    c.item.codec = &c.codec;
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &other, NULL));
    assert_status(comet_store_view(store, other, &view), COMET_ERROR_UNSUPPORTED);
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_tensor tensor = c.tensor;
    tensor.data = calloc((size_t)c.count, sizeof(float));
    item.release = owner_release;
    item.context = &o;
    assert_ok(comet_store_save(store, &tensor, &item, &taken, NULL));
    comet_store_free(store);
    assert_int_equal(o.calls, 1);
    store_case_free(&c);
}

/* ---- recomputing ---- */

typedef struct chain {
    comet_store *store;
    comet_store_handle below;
    int released;
} chain;

static comet_status twice(void *context, const comet_tensor *destination) {
    chain *c = context;
    comet_status status = comet_store_load(c->store, c->below, destination);
    for (int64_t i = 0; status == COMET_OK && i < comet_tensor_count(destination); i++)
        ((float *)destination->data)[i] *= 2.0f;
    return status;
}

static void let_go(void *context, void *data, size_t bytes) {
    chain *c = context;
    assert_null(data);
    assert_int_equal(bytes, 0);
    c->released++;
    assert_ok(comet_store_release(c->store, c->below));
}

/* The callback loads another entry, and the hold on that goes with the entry itself. */
static void test_recomputing_from_another_entry(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    float in[300], out[300];
    int64_t count = 300;
    comet_tensor tensor;
    for (int i = 0; i < 300; i++)
        in[i] = (float)i;
    assert_ok(comet_tensor_init(&tensor, in, COMET_F32, COMET_FLAT, 1, &count));
    chain c = {.store = store};
    comet_store_handle first, second;
    assert_ok(comet_store_save(store, &tensor, NULL, &first, NULL));
    assert_ok(comet_store_share(store, first));
    c.below = first;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    item.form = COMET_FORM_RECOMPUTE;
    item.recompute = twice;
    item.release = let_go;
    item.context = &c;
    tensor.data = NULL; /* nothing is read */
    assert_ok(comet_store_save(store, &tensor, &item, &second, NULL));
    assert_ok(comet_store_release(store, first));
    tensor.data = out;
    assert_ok(comet_store_load(store, second, &tensor));
    assert_true(out[299] == 598.0f);
    assert_int_equal(stats_of(store).recomputes, 1);
    assert_ok(comet_store_release(store, second));
    assert_int_equal(c.released, 1);
    assert_empty(store);
    comet_store_free(store);
}

/* ---- holds and aliases ---- */

static void test_shares(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    rng r = rng_seed(5);
    store_case c;
    comet_store_handle handle;
    store_case_new(&c, 2, 2000, &r);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
    uint64_t stored = stats_of(store).live.stored;
    for (int i = 0; i < 3; i++)
        assert_ok(comet_store_share(store, handle));
    assert_int_equal(info_of(store, handle).holders, 4);
    assert_int_equal(stats_of(store).live.stored, stored);
    for (int i = 0; i < 3; i++) {
        assert_ok(comet_store_release(store, handle));
        assert_true(store_case_loads(store, handle, &c));
    }
    assert_ok(comet_store_release(store, handle));
    assert_status(comet_store_share(store, handle), COMET_ERROR_ARGUMENT);
    assert_empty(store);
    comet_store_free(store);
    store_case_free(&c);
}

static comet_store_handle save_case(comet_store *store, const store_case *c, uint32_t holders) {
    comet_store_handle handle;
    comet_store_info info = {.size = sizeof info};
    assert_ok(comet_store_save(store, &c->tensor, &c->item, &handle, &info));
    assert_int_equal(info.holders, holders);
    return handle;
}

static void test_aliases(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    rng r = rng_seed(6);
    for (int form = 0; form < store_form_count(); form++) {
        store_case c;
        store_case_new(&c, form, 3000, &r);
        c.item.generation = 17;
        comet_store_handle first = save_case(store, &c, 1);
        comet_store_stats before = stats_of(store);
        assert_true(save_case(store, &c, 2) == first);
        comet_store_stats after = stats_of(store);
        assert_memory_equal(&before.live, &after.live, sizeof after.live);
        assert_int_equal(after.aliases, before.aliases + 1);
        c.item.generation = 18; /* filled again: another tensor */
        comet_store_handle second = save_case(store, &c, 1);
        assert_true(first != second);
        c.item.generation = 0;
        comet_store_handle third = save_case(store, &c, 1), fourth = save_case(store, &c, 1);
        assert_true(third != fourth);
        c.item.generation = 17;
        if (c.item.form == COMET_FORM_CODEC) { /* another form of the same tensor */
            c.codec.checksum = 1;
            assert_ok(comet_store_release(store, save_case(store, &c, 1)));
            c.codec.checksum = 0;
        }
        c.tensor.layout = COMET_NCHW; /* another view */
        assert_ok(comet_store_release(store, save_case(store, &c, 1)));
        c.tensor.layout = COMET_NHWC;
        assert_ok(comet_store_release(store, second));
        assert_ok(comet_store_release(store, first));
        assert_true(store_case_loads(store, first, &c));
        assert_ok(comet_store_release(store, first));
        assert_ok(comet_store_release(store, third));
        assert_ok(comet_store_release(store, fourth));
        assert_empty(store);
        store_case_free(&c);
    }
    comet_store_free(store);
}

/* ---- accounts ---- */

static comet_store_handle save_bytes(comet_store *store, const char *name, int64_t bytes) {
    static unsigned char data[1 << 20];
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_tensor tensor;
    comet_store_handle handle;
    item.name = name;
    assert_ok(comet_tensor_init(&tensor, data, COMET_U8, COMET_FLAT, 1, &bytes));
    assert_ok(comet_store_save(store, &tensor, &item, &handle, NULL));
    return handle;
}

/* a: 100 KiB, then b: 200 KiB beside it; a goes, b stays, a smaller a comes. The peak was a 100 + b 200. */
static void test_accounts_at_the_peak(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    enum { K = 65536 }; /* a multiple of any page size */
    comet_store_handle a = save_bytes(store, "a", 2 * K), b = save_bytes(store, "b", 4 * K);
    assert_ok(comet_store_release(store, a));
    a = save_bytes(store, "a", K);
    comet_store_account account = account_of(store, "a");
    assert_int_equal(account.live.resident, K);
    assert_int_equal(account.peak.resident, 2 * K);
    assert_int_equal(account.at_peak.resident, 2 * K);
    assert_int_equal(account.last.raw, K);
    assert_int_equal(account.saves, 2);
    assert_int_equal(account_of(store, "b").at_peak.raw, 4 * K);
    assert_int_equal(stats_of(store).at_peak.resident, 6 * K);
    assert_ok(comet_store_release(store, b)); /* now a alone: its peak is still that of before */
    assert_ok(comet_store_release(store, a));
    assert_int_equal(account_of(store, "b").at_peak.raw, 4 * K);
    assert_int_equal(stats_of(store).peak_used_bytes, 6 * K);
    a = save_bytes(store, "a", 7 * K); /* a new peak without b */
    assert_int_equal(account_of(store, "b").at_peak.raw, 0);
    assert_int_equal(account_of(store, "a").at_peak.raw, 7 * K);
    comet_store_reset(store);
    assert_int_equal(comet_store_accounts(store), 1);
    assert_int_equal(account_of(store, "a").saves, 0);
    assert_int_equal(account_of(store, "a").live.raw, 7 * K);
    assert_int_equal(stats_of(store).peak_used_bytes, 7 * K);
    assert_ok(comet_store_release(store, a));
    comet_store_free(store);
}

static void test_reports(void **state) {
    (void)state;
    comet_store *store = store_with(NULL);
    static char text[20000];
    size_t bytes, again;
    comet_store_handle handle = save_bytes(store, "odd \"name\"\\\n\xff", 65536);
    assert_status(comet_store_write_report(store, COMET_REPORT_JSON, NULL, 0, &bytes), COMET_ERROR_CAPACITY);
    assert_in_range(bytes, 100, sizeof text - 1);
    assert_status(comet_store_write_report(store, COMET_REPORT_JSON, text, bytes, &again), COMET_ERROR_CAPACITY);
    assert_ok(comet_store_write_report(store, COMET_REPORT_JSON, text, bytes + 1, &again));
    assert_int_equal(bytes, again);
    assert_int_equal(strlen(text), bytes);
    assert_non_null(strstr(text, "\"name\": \"odd \\\"name\\\"\\\\??\""));
    assert_non_null(strstr(text, "\"live\": {\"raw\": 65536, \"stored\": 65536, \"resident\": 65536, \"spilled\": 0}"));
    assert_ok(comet_store_write_report(store, COMET_REPORT_TABLE, text, sizeof text, &bytes));
    assert_non_null(strstr(text, "65536"));
    assert_non_null(strstr(text, "total"));
    assert_status(comet_store_write_report(store, (comet_store_report)2, text, sizeof text, &bytes),
                  COMET_ERROR_ARGUMENT);
    assert_ok(comet_store_release(store, handle));
    comet_store_free(store);
}

/* ---- arguments ---- */

static void test_options(void **state) {
    (void)state;
    comet_store *store = NULL;
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    assert_status(comet_store_new(NULL, NULL), COMET_ERROR_ARGUMENT);
    options.scratch_bytes = 5; /* of no limit */
    assert_status(comet_store_new(&options, &store), COMET_ERROR_ARGUMENT);
    options.limit_bytes = 5;
    assert_status(comet_store_new(&options, &store), COMET_ERROR_ARGUMENT);
    options.limit_bytes = 6;
    options.spill_directory = "/no/such/directory";
    assert_status(comet_store_new(&options, &store), COMET_ERROR_IO);
    options.size = 3;
    assert_status(comet_store_new(&options, &store), COMET_ERROR_ARGUMENT);
    assert_ok(comet_store_new(NULL, &store));
    comet_store_free(store);
    comet_store_free(NULL);
}

static comet_status save_as(comet_store *store, const comet_tensor *tensor, const comet_store_item *item) {
    comet_store_handle handle = 99;
    comet_status status = comet_store_save(store, tensor, item, &handle, NULL);
    assert_true(status == COMET_OK || handle == 99);
    return status;
}

static void test_arguments(void **state) {
    (void)state;
    comet_store *store = store_with(NULL), *plain;
    rng r = rng_seed(8);
    store_case c;
    comet_store_handle handle;
    assert_ok(comet_store_new(NULL, &plain));
    store_case_new(&c, 2, 100, &r);
    comet_store_item item = c.item;
    comet_tensor tensor = c.tensor;
    assert_status(save_as(NULL, &tensor, &item), COMET_ERROR_ARGUMENT);
    assert_status(save_as(store, NULL, &item), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_save(store, &tensor, &item, NULL, NULL), COMET_ERROR_ARGUMENT);
    item.codec = NULL;
    assert_status(save_as(store, &tensor, &item), COMET_ERROR_ARGUMENT);
    c.codec.bound = -1.0;
    assert_status(save_as(store, &tensor, &c.item), COMET_ERROR_ARGUMENT);
    c.codec.bound = 0.1;
    c.item.release = owner_release; /* a stream takes nothing over */
    assert_status(save_as(store, &tensor, &c.item), COMET_ERROR_ARGUMENT);
    c.item.release = NULL;
    item = (comet_store_item)COMET_STORE_ITEM_INIT;
    item.offload = 1;
    assert_status(save_as(plain, &tensor, &item), COMET_ERROR_UNSUPPORTED);
    item.form = COMET_FORM_RECOMPUTE;
    assert_status(save_as(store, &tensor, &item), COMET_ERROR_ARGUMENT);
    item.form = (comet_store_form)3;
    assert_status(save_as(store, &tensor, &item), COMET_ERROR_ARGUMENT);
    item = (comet_store_item)COMET_STORE_ITEM_INIT;
    item.release = owner_release;
    tensor.strides[3] = 2;
    assert_status(save_as(store, &tensor, &item), COMET_ERROR_ARGUMENT);
    tensor = c.tensor;
    tensor.device.kind = COMET_CUDA;
    assert_status(save_as(store, &tensor, NULL), COMET_ERROR_UNSUPPORTED);
    comet_store_info info = {.size = 1};
    assert_status(comet_store_save(store, &c.tensor, NULL, &handle, &info), COMET_ERROR_ARGUMENT);
    assert_empty(store);
    assert_int_equal(comet_store_accounts(store), 0);

    assert_ok(comet_store_save(store, &c.tensor, NULL, &handle, NULL));
    tensor = c.tensor;
    tensor.shape[1]++;
    assert_status(comet_store_load(store, handle, &tensor), COMET_ERROR_MISMATCH);
    assert_status(comet_store_load(store, handle + 1, &c.tensor), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_load(store, 0, &c.tensor), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_spill(store, 0), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_prefetch(store, 0), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_view(store, 0, &tensor), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_spill(plain, 0), COMET_ERROR_ARGUMENT);
    assert_ok(comet_store_release(store, handle));
    comet_store_handle second;
    assert_ok(comet_store_save(plain, &c.tensor, NULL, &second, NULL));
    assert_status(comet_store_spill(plain, second), COMET_ERROR_UNSUPPORTED);
    comet_store_free(store);
    comet_store_free(plain);
    store_case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_grid_is_copied),
        cmocka_unit_test(test_taking_over),
        cmocka_unit_test(test_taking_over_nothing),
        cmocka_unit_test(test_views_and_free),
        cmocka_unit_test(test_recomputing_from_another_entry),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_accounts_at_the_peak),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
