/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda.h where it cannot work (no GPU, or built without CUDA): every call says so and touches nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "comet/comet.h"
#include "support/assert_ok.h"

static comet_status absence(void) {
    comet_status status = comet_cuda_check(0);
    if (status == COMET_OK || status == COMET_ERROR_UNSUPPORTED) {
        skip_because("there is a GPU here");
    }
    assert_true(status == COMET_ERROR_NO_DEVICE || status == COMET_ERROR_DRIVER);
    return status;
}

static void test_calls(void **state) {
    (void)state;
    comet_status expected = absence();
    float data[4] = {0};
    comet_tensor t;
    assert_ok(comet_tensor_init(&t, data, COMET_F32, COMET_FLAT, 1, (int64_t[]){4}));
    t.device.kind = COMET_CUDA;
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    comet_cuda_slot slot = {.base = data, .capacity = sizeof data};
    size_t bytes = 7;
    int32_t status = 7;
    assert_int_equal(comet_cuda_max_bytes(&t, &p, &bytes), expected);
    assert_true(comet_last_error()[0]);
    assert_int_equal(comet_cuda_workspace(&t, &p, &bytes), expected);
    assert_int_equal(comet_cuda_workspace_init(data, sizeof data, NULL), expected);
    assert_int_equal(comet_cuda_compress(&t, &p, NULL, &slot, NULL), expected);
    assert_int_equal(comet_cuda_decompress(&slot, &p, NULL, NULL, &t, &status), expected);
    assert_int_equal(bytes, 7);
    assert_int_equal(status, 7);
}

static void test_nulls(void **state) {
    (void)state;
    comet_status expected = absence();
    assert_int_equal(comet_cuda_max_bytes(NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_workspace(NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_workspace_init(NULL, 0, NULL), expected);
    assert_int_equal(comet_cuda_compress(NULL, NULL, NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_decompress(NULL, NULL, NULL, NULL, NULL, NULL), expected);
}

static void test_no_such_device(void **state) {
    (void)state;
    comet_status status = comet_cuda_check(-1);
    assert_true(status == COMET_ERROR_NO_DEVICE || status == COMET_ERROR_DRIVER);
    status = comet_cuda_check(1 << 20);
    assert_true(status == COMET_ERROR_NO_DEVICE || status == COMET_ERROR_DRIVER);
}

static void test_statistics(void **state) {
    (void)state;
    comet_status expected = absence();
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    comet_cuda_stats_slot slot = {0};
    assert_int_equal(comet_cuda_stats_tensor_needs(NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_layer_needs(&pass, &needs), expected);
    assert_int_equal(comet_cuda_stats_norm_needs(NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_silu_needs(NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_scale_needs(NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_see_tensor(NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_see_layer(&pass, NULL, &slot), expected);
    assert_int_equal(comet_cuda_stats_see_norm(NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_see_silu(NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_stats_see_scale(NULL, NULL, NULL), expected);
    assert_true(needs.record_bytes == 0 && needs.workspace_bytes == 0);
}

static void test_indices(void **state) {
    (void)state;
    comet_status expected = absence();
    comet_pool_window window = COMET_POOL_WINDOW_INIT;
    int64_t index = 7;
    int32_t status = 7;
    unsigned char packed[16] = {7};
    assert_int_equal(comet_cuda_indices_pack(&window, &index, packed, &status, NULL), expected);
    assert_int_equal(comet_cuda_indices_unpack(&window, packed, &index, NULL), expected);
    assert_int_equal(comet_cuda_indices_pack(NULL, NULL, NULL, NULL, NULL), expected);
    assert_int_equal(comet_cuda_indices_unpack(NULL, NULL, NULL, NULL), expected);
    assert_true(index == 7 && status == 7 && packed[0] == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),   cmocka_unit_test(test_nulls),          cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_indices), cmocka_unit_test(test_no_such_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
