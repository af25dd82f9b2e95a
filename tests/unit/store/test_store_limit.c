/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's limit: never exceeded, used to the last page, and what was saved can always be loaded. Accounts against
 * the allocator and against what the operating system says.
 */
#define _DEFAULT_SOURCE /* mincore */
#include "support/assert_ok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/pages.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/store_case.h"

static const char *directory(void) {
    return getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
}

static comet_store *store_of(size_t limit, size_t scratch, int spill, const comet_allocator *allocator) {
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    comet_store *store;
    options.limit_bytes = limit;
    options.scratch_bytes = scratch;
    options.spill_directory = spill ? directory() : NULL;
    options.allocator = allocator;
    assert_ok(comet_store_new(&options, &store));
    return store;
}

static comet_store_stats stats_of(comet_store *store) {
    comet_store_stats stats = {.size = sizeof stats};
    assert_ok(comet_store_get_stats(store, &stats));
    return stats;
}

static size_t page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- kept tensors ---- */

static comet_status save_pages(comet_store *store, size_t pages, comet_store_handle *handle) {
    static unsigned char data[1 << 20];
    comet_tensor tensor;
    int64_t bytes = (int64_t)(pages * page());
    assert_in_range(bytes, 0, sizeof data);
    assert_ok(comet_tensor_init(&tensor, data, COMET_U8, COMET_FLAT, 1, &bytes));
    return comet_store_save(store, &tensor, NULL, handle, NULL);
}

/* Ten pages of room are ten pages, in any order of release. */
static void test_exactly_full(void **state) {
    (void)state;
    comet_store *store = store_of(10 * page(), 0, 0, NULL);
    comet_store_handle a, b, c, d = 0;
    assert_ok(save_pages(store, 3, &a));
    assert_ok(save_pages(store, 4, &b));
    assert_ok(save_pages(store, 3, &c));
    comet_store_stats before = stats_of(store);
    assert_int_equal(before.live.resident, 10 * page());
    assert_status(save_pages(store, 1, &d), COMET_ERROR_CAPACITY);
    comet_store_stats after = stats_of(store);
    assert_int_equal(after.missing_bytes, page());
    assert_int_equal(after.refused, 1);
    assert_memory_equal(&before.live, &after.live, sizeof after.live);
    assert_memory_equal(&before.peak, &after.peak, sizeof after.peak);
    assert_ok(comet_store_release(store, a));
    assert_ok(comet_store_release(store, c));
    assert_ok(save_pages(store, 6, &d)); /* 3 + 3, though not neighbours */
    assert_status(save_pages(store, 1, &a), COMET_ERROR_CAPACITY);
    assert_ok(comet_store_release(store, b));
    assert_ok(comet_store_release(store, d));
    assert_int_equal(stats_of(store).live.resident, 0);
    comet_store_free(store);
}

static void test_scratch_is_set_aside(void **state) {
    (void)state;
    comet_store *store = store_of(10 * page(), 4 * page(), 0, NULL);
    comet_store_handle a, b;
    assert_ok(save_pages(store, 6, &a));
    assert_status(save_pages(store, 1, &b), COMET_ERROR_CAPACITY);
    comet_store_free(store);
}

static void test_overflow_goes_to_the_file(void **state) {
    (void)state;
    comet_store *store = store_of(10 * page(), 0, 1, NULL);
    comet_store_handle handles[5];
    for (int i = 0; i < 5; i++)
        assert_ok(save_pages(store, 4, &handles[i]));
    comet_store_stats s = stats_of(store);
    assert_int_equal(s.live.resident, 8 * page());
    assert_int_equal(s.live.spilled, 12 * page());
    assert_int_equal(s.overflows, 3);
    assert_ok(comet_store_spill(store, handles[0])); /* room again for the next */
    comet_store_handle last;
    assert_ok(save_pages(store, 4, &last));
    s = stats_of(store);
    assert_int_equal(s.live.resident, 8 * page());
    assert_int_equal(s.overflows, 3);
    assert_int_equal(s.spills, 4);
    for (int i = 0; i < 5; i++)
        assert_ok(comet_store_release(store, handles[i]));
    assert_ok(comet_store_release(store, last));
    assert_int_equal(stats_of(store).file_bytes, 0);
    comet_store_free(store);
}

static void count_call(void *context, void *data, size_t bytes) {
    (void)data, (void)bytes;
    ++*(int *)context;
}

/* What is refused is not taken over. */
static void test_refused_stays_with_the_caller(void **state) {
    (void)state;
    static unsigned char data[1 << 18];
    comet_store *store = store_of(page(), 0, 0, NULL);
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_handle handle;
    comet_tensor tensor;
    int calls = 0;
    int64_t bytes = sizeof data;
    item.release = count_call;
    item.context = &calls;
    assert_ok(comet_tensor_init(&tensor, data, COMET_U8, COMET_FLAT, 1, &bytes));
    assert_status(comet_store_save(store, &tensor, &item, &handle, NULL), COMET_ERROR_CAPACITY);
    bytes = 100; /* counts as it is, not in pages */
    assert_ok(comet_tensor_init(&tensor, data, COMET_U8, COMET_FLAT, 1, &bytes));
    assert_ok(comet_store_save(store, &tensor, &item, &handle, NULL));
    assert_int_equal(stats_of(store).live.resident, 100);
    assert_int_equal(calls, 0);
    comet_store_free(store);
    assert_int_equal(calls, 1);
}

/* ---- streams ---- */

/* A stream needs room to be made: the oldest entries make way, but not one that is viewed. */
static void test_oldest_make_way(void **state) {
    (void)state;
    rng r = rng_seed(31);
    store_case c;
    store_case_new(&c, 2, 20000, &r);
    comet_store *store = store_of(32 * page(), 0, 1, NULL);
    comet_store_handle kept[4], handle;
    comet_store_info info = {.size = sizeof info};
    comet_tensor view;
    for (int i = 0; i < 4; i++)
        assert_ok(save_pages(store, 8, &kept[i]));
    assert_ok(comet_store_view(store, kept[0], &view));
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, &info));
    assert_int_equal(info.spilled, 0);
    for (int i = 0; i < 4; i++) {
        comet_store_info of = {.size = sizeof of};
        assert_ok(comet_store_get_info(store, kept[i], &of));
        assert_true(i == 0 ? !of.spilled : i == 1 ? of.spilled : 1);
    }
    comet_store_stats s = stats_of(store);
    assert_true(s.overflows >= 1 && s.refused == 0);
    assert_true(s.peak_used_bytes <= 32 * page());
    assert_true(store_case_loads(store, handle, &c));
    comet_store_free(store);
    store_case_free(&c);
}

static void test_scratch_query(void **state) {
    (void)state;
    rng r = rng_seed(32);
    comet_store *store = store_of(0, 0, 1, NULL);
    for (int form = 0; form < store_form_count(); form++) {
        store_case c;
        comet_store_handle handle;
        size_t save = 1, load = 1, bound = 0;
        store_case_new(&c, form, 20000, &r);
        comet_tensor shape = c.tensor;
        shape.data = NULL; /* only the shape is read */
        assert_ok(comet_store_scratch(store, &shape, &c.item, &save, &load));
        comet_store_reset(store);
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
        assert_true(stats_of(store).peak_used_bytes - stats_of(store).at_peak.resident <= save);
        if (c.item.form == COMET_FORM_CODEC)
            assert_ok(comet_codec_max_bytes(&shape, &c.codec, &bound));
        assert_true(save >= bound);
        assert_true(load >= (c.item.offload ? bound : 0));
        comet_store_reset(store);
        assert_true(store_case_loads(store, handle, &c));
        assert_true(stats_of(store).peak_used_bytes - stats_of(store).at_peak.resident <= load);
        assert_ok(comet_store_release(store, handle));
        store_case_free(&c);
    }
    comet_store_free(store);
}

/* Refused: nothing changed. With as much more limit as was missing it fits. */
static void check_missing(const store_case *c, size_t limit, int with_allocator) {
    counting_allocator a;
    comet_store_handle handle;
    counting_allocator_init(&a);
    comet_store *store = store_of(limit, 0, 0, with_allocator ? &a.allocator : NULL);
    comet_status status = comet_store_save(store, &c->tensor, &c->item, &handle, NULL);
    comet_store_stats s = stats_of(store);
    assert_true(s.peak_used_bytes <= limit);
    if (status == COMET_OK) {
        assert_true(store_case_loads(store, handle, c));
        comet_store_free(store);
        return;
    }
    assert_int_equal(status, COMET_ERROR_CAPACITY);
    assert_int_equal(s.live.raw + s.peak.raw + s.entries + s.peak_entries + s.reserved_bytes, 0);
    assert_true(s.missing_bytes > 0);
    comet_store_free(store);
    store = store_of(limit + (size_t)s.missing_bytes, 0, 0, with_allocator ? &a.allocator : NULL);
    assert_ok(comet_store_save(store, &c->tensor, &c->item, &handle, NULL));
    assert_true(store_case_loads(store, handle, c));
    comet_store_free(store);
    assert_int_equal(a.live_blocks, 0);
}

static void test_missing_bytes_are_enough(void **state) {
    (void)state;
    rng r = rng_seed(11);
    for (int form = 2; form < store_form_count(); form++) {
        store_case c;
        store_case_new(&c, form, 20000, &r);
        if (c.item.form == COMET_FORM_CODEC && !c.item.offload)
            for (size_t limit = page(); limit < 300000; limit += 5 * page() + 64)
                for (int with = 0; with < 2; with++)
                    check_missing(&c, limit, with);
        store_case_free(&c);
    }
}

/*
 * A limit of the streams' own size and a little for workspaces holds them, though the worst case of each is many times
 * that; and then, with no room left, each can be loaded, from memory and from the file.
 */
static void test_full_of_streams(void **state) {
    (void)state;
    enum { CASES = 12 };
    static store_case cases[CASES];
    comet_store_handle handles[CASES];
    size_t bytes = 0, workspace = 0;
    rng r = rng_seed(12);
    comet_store *store = store_of(0, 0, 0, NULL);
    for (int i = 0; i < CASES; i++) {
        comet_store_info info = {.size = sizeof info};
        size_t needed;
        store_case_new(&cases[i], 2, 30000, &r);
        assert_ok(comet_store_save(store, &cases[i].tensor, &cases[i].item, &handles[i], &info));
        bytes += (size_t)info.bytes.resident;
        assert_ok(comet_codec_compress_workspace(&cases[i].tensor, &cases[i].codec, NULL, &needed));
        workspace = comet_pages_round(needed) > workspace ? comet_pages_round(needed) : workspace;
    }
    comet_store_free(store);
    store = store_of(bytes + workspace, 0, 1, NULL);
    for (int i = 0; i < CASES; i++)
        assert_ok(comet_store_save(store, &cases[i].tensor, &cases[i].item, &handles[i], NULL));
    comet_store_stats s = stats_of(store);
    assert_int_equal(s.live.resident, bytes);
    assert_int_equal(s.spills, 0);
    assert_true(s.peak_used_bytes <= bytes + workspace);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < CASES; i++) {
            assert_true(store_case_loads(store, handles[i], &cases[i]));
            if (round == 0 && i % 2)
                assert_ok(comet_store_spill(store, handles[i]));
        }
    for (int i = 0; i < CASES; i++) {
        assert_ok(comet_store_release(store, handles[i]));
        store_case_free(&cases[i]);
    }
    comet_store_free(store);
}

/* An entry that could not be loaded within the limit is not taken in: the store fills up, and everything loads. */
static void test_full_of_anything(void **state) {
    (void)state;
    enum { MOST = 400 };
    static store_case cases[MOST];
    comet_store_handle handles[MOST];
    for (int seed = 0; seed < effort(6); seed++) {
        rng r = rng_seed(100 + (uint64_t)seed);
        counting_allocator a;
        counting_allocator_init(&a);
        size_t limit = 300000 + (size_t)rng_below(&r, 300000);
        comet_store *store = store_of(limit, 0, seed % 2, seed % 3 ? NULL : &a.allocator);
        int count = 0;
        for (int i = 0; i < 200 && count < MOST; i++) {
            int form = (int)rng_below(&r, (uint64_t)store_form_count());
            store_case_new(&cases[count], form, 1 + (int64_t)rng_below(&r, 20000), &r);
            comet_status status =
                comet_store_save(store, &cases[count].tensor, &cases[count].item, &handles[count], NULL);
            if (seed % 2) /* with a file there is always room for so small ones */
                assert_ok(status);
            assert_true(status == COMET_OK || status == COMET_ERROR_CAPACITY || status == COMET_ERROR_UNSUPPORTED);
            comet_store_stats s = stats_of(store);
            assert_true(s.peak_used_bytes <= limit);
            assert_int_equal(s.reserved_bytes, 0);
            if (status == COMET_OK)
                count++;
            else
                store_case_free(&cases[count]);
        }
        assert_true(count > 5);
        for (int i = 0; i < count; i++) {
            assert_true(store_case_loads(store, handles[i], &cases[i]));
            assert_true(stats_of(store).peak_used_bytes <= limit);
        }
        for (int i = 0; i < count; i++) {
            assert_ok(comet_store_release(store, handles[i]));
            store_case_free(&cases[i]);
        }
        comet_store_free(store);
        assert_int_equal(a.live_blocks, 0);
    }
}

/* ---- against the system ---- */

/* Pages that are there of the mapped ones in [from, from + bytes). */
static size_t resident_pages(const void *from, size_t bytes) {
    static unsigned char there[4096];
    size_t count = 0;
    assert_true(bytes / page() <= sizeof there);
    assert_int_equal(mincore((void *)(uintptr_t)from, bytes, (void *)there), 0);
    for (size_t i = 0; i < bytes / page(); i++)
        count += there[i] & 1;
    return count;
}

/* Memory that is mapped for the worst case is resident only as far as the codec writes. */
static void test_streams_touch_what_they_fill(void **state) {
    (void)state;
    comet_threads *threads;
    rng r = rng_seed(13);
    assert_ok(comet_threads_new(2, NULL, &threads));
    for (int form = 2; form < store_form_count(); form++) {
        store_case c;
        store_case_new(&c, form, 400000, &r);
        comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        size_t bound;
        exec.threads = form % 2 ? threads : NULL;
        if (c.item.form == COMET_FORM_CODEC) {
            assert_ok(comet_codec_max_bytes(&c.tensor, &c.codec, &bound));
            size_t mapped = comet_pages_round(bound);
            unsigned char *memory = comet_pages_take(mapped, 1);
            assert_non_null(memory);
            assert_int_equal(resident_pages(memory, mapped), 0);
            assert_ok(comet_codec_compress(&c.tensor, &c.codec, &exec, memory, bound, &result));
            size_t used = comet_pages_round(result.bytes);
            assert_in_range(resident_pages(memory, mapped), 1, used / page() + 1);
            comet_pages_trim(memory, mapped, used);
            assert_int_equal(resident_pages(memory, used), used / page());
            comet_pages_give(memory, used);
        }
        store_case_free(&c);
    }
    comet_threads_free(threads);
}

static size_t resident_of_process(void) {
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        skip_because("there is no /proc/self/statm");
    assert_int_equal(fscanf(file, "%lu %lu", &all, &resident), 2);
    fclose(file);
    return resident * page();
}

/* What the store says is resident comes and goes with the process's own figure. */
static void test_process_shrinks(void **state) {
    (void)state;
    enum { CASES = 40 };
    if (EFFORT_SLOW)
        skip_because("a sanitizer keeps freed memory");
    rng r = rng_seed(14);
    store_case c;
    comet_store_handle handles[CASES];
    store_case_new(&c, 4, 1000000, &r);
    comet_store *store = store_of(0, 0, 0, NULL);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handles[0], NULL));
    assert_ok(comet_store_release(store, handles[0]));
    size_t before = resident_of_process(), slack = 1 << 20;
    for (int i = 0; i < CASES; i++)
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &handles[i], NULL));
    size_t full = resident_of_process(), held = (size_t)stats_of(store).live.resident;
    assert_true(held > 50u << 20);
    assert_in_range(full, before + held - slack, before + held + slack);
    for (int i = 0; i < CASES; i += 2) /* every second one: holes are given back too */
        assert_ok(comet_store_release(store, handles[i]));
    held = (size_t)stats_of(store).live.resident;
    assert_in_range(resident_of_process(), before + held - slack, before + held + slack);
    for (int i = 1; i < CASES; i += 2)
        assert_ok(comet_store_release(store, handles[i]));
    assert_in_range(resident_of_process(), before - slack, before + slack);
    comet_store_free(store);
    store_case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactly_full),
        cmocka_unit_test(test_scratch_is_set_aside),
        cmocka_unit_test(test_overflow_goes_to_the_file),
        cmocka_unit_test(test_refused_stays_with_the_caller),
        cmocka_unit_test(test_oldest_make_way),
        cmocka_unit_test(test_scratch_query),
        cmocka_unit_test(test_missing_bytes_are_enough),
        cmocka_unit_test(test_full_of_streams),
        cmocka_unit_test(test_full_of_anything),
        cmocka_unit_test(test_streams_touch_what_they_fill),
        cmocka_unit_test(test_process_shrinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
