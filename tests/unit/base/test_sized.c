/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs that start with their size: callers of an older and of a newer version, and the public calls that take them.
 */
#include "support/assert_ok.h"

#include <string.h>

#include "base/sized.h"
#include "comet/comet.h"

typedef struct known {
    size_t size;
    int64_t first, second, third;
} known;

static void test_sizes(void **state) {
    (void)state;
    static const size_t bad[] = {0, 1, sizeof(size_t), 2 * sizeof(size_t) - 1, 4097, SIZE_MAX};
    static const size_t good[] = {2 * sizeof(size_t), sizeof(known), 4096};
    known k = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        k.size = bad[i];
        assert_status(comet_sized_check(&k, "k"), COMET_ERROR_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        k.size = good[i];
        assert_ok(comet_sized_check(&k, "k"));
    }
}

static void test_options(void **state) {
    (void)state;
    static const known defaults = {sizeof(known), 1, 2, 3};
    known copy, older = {offsetof(known, second), 10, 20, 30};
    struct {
        known k;
        int64_t more;
    } newer = {{sizeof newer, 10, 20, 30}, 0};
    assert_ok(comet_sized_read(&copy, sizeof copy, NULL, &defaults, "k"));
    assert_memory_equal(&copy, &defaults, sizeof copy);
    assert_ok(comet_sized_read(&copy, sizeof copy, &older, &defaults, "k"));
    assert_memory_equal(&copy, (&(known){offsetof(known, second), 10, 2, 3}), sizeof copy);
    assert_ok(comet_sized_read(&copy, sizeof copy, &newer, &defaults, "k"));
    assert_memory_equal(&copy, &newer.k, sizeof copy);
    newer.more = 1; /* asks for what this library does not know */
    assert_status(comet_sized_read(&copy, sizeof copy, &newer, &defaults, "k"), COMET_ERROR_ARGUMENT);
    older.size = 0;
    assert_status(comet_sized_read(&copy, sizeof copy, &older, &defaults, "k"), COMET_ERROR_ARGUMENT);
}

static void test_results(void **state) {
    (void)state;
    static const known full = {0, 1, 2, 3};
    known older = {offsetof(known, third), -1, -1, -1};
    comet_sized_write(&older, &full, sizeof full);
    assert_memory_equal(&older, (&(known){offsetof(known, third), 1, 2, -1}), sizeof older);
    struct {
        known k;
        int64_t more, behind;
    } newer = {{offsetof(__typeof__(newer), behind), -1, -1, -1}, -1, -1};
    comet_sized_write(&newer, &full, sizeof full);
    assert_int_equal(newer.k.size, offsetof(__typeof__(newer), behind));
    assert_int_equal(newer.k.third, 3);
    assert_int_equal(newer.more, 0);
    assert_int_equal(newer.behind, -1);
}

/* ---- the public calls ---- */

static void fill(comet_tensor *t, float values[16]) {
    for (int i = 0; i < 16; i++)
        values[i] = (float)(i - 5);
    assert_ok(comet_tensor_init(t, values, COMET_F32, COMET_FLAT, 1, (int64_t[]){16}));
}

static void test_codec(void **state) {
    (void)state;
    float values[16];
    unsigned char stream[2048];
    comet_tensor t;
    fill(&t, values);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    comet_codec_result all = COMET_CODEC_RESULT_INIT, result;
    assert_ok(comet_codec_compress(&t, &p, NULL, stream, sizeof stream, &all));
    assert_int_equal(all.size, sizeof all);
    assert_int_equal(all.stats.count, 16);
    memset(&result, 0xEE, sizeof result);
    result.size = offsetof(comet_codec_result, bound);
    assert_ok(comet_codec_compress(&t, &p, NULL, stream, sizeof stream, &result));
    assert_int_equal(result.bytes, all.bytes);
    for (size_t i = result.size; i < sizeof result; i++)
        assert_int_equal(((unsigned char *)&result)[i], 0xEE);
    result.size = 0;
    assert_status(comet_codec_compress(&t, &p, NULL, stream, sizeof stream, &result), COMET_ERROR_ARGUMENT);

    comet_codec_info full = COMET_CODEC_INFO_INIT, info;
    assert_ok(comet_codec_inspect(stream, all.bytes, &full));
    assert_int_equal(full.count, 16);
    memset(&info, 0xEE, sizeof info);
    info.size = offsetof(comet_codec_info, ndim);
    assert_ok(comet_codec_inspect(stream, all.bytes, &info));
    assert_int_equal(info.codec, COMET_CODEC_EB);
    for (size_t i = info.size; i < sizeof info; i++)
        assert_int_equal(((unsigned char *)&info)[i], 0xEE);
    info.size = sizeof(size_t);
    assert_status(comet_codec_inspect(stream, all.bytes, &info), COMET_ERROR_ARGUMENT);
}

static void test_store(void **state) {
    (void)state;
    float values[16];
    comet_tensor t;
    comet_store *store;
    comet_store_handle handle;
    comet_store_info info = COMET_STORE_INFO_INIT;
    comet_store_stats stats = COMET_STORE_STATS_INIT;
    comet_store_account account = COMET_STORE_ACCOUNT_INIT;
    fill(&t, values);
    assert_ok(comet_store_new(NULL, &store));
    assert_ok(comet_store_save(store, &t, NULL, &handle, &info));
    assert_ok(comet_store_get_stats(store, &stats));
    assert_ok(comet_store_get_account(store, 0, &account));
    assert_int_equal(info.bytes.raw, 64);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(account.saves, 1);
    info.size = stats.size = account.size = 0;
    assert_status(comet_store_get_info(store, handle, &info), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_get_stats(store, &stats), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_get_account(store, 0, &account), COMET_ERROR_ARGUMENT);
    assert_status(comet_store_save(store, &t, NULL, &handle, &info), COMET_ERROR_ARGUMENT);
    assert_int_equal(comet_store_accounts(store), 1);
    comet_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_options), cmocka_unit_test(test_results),
        cmocka_unit_test(test_codec), cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
