/* SPDX-License-Identifier: Apache-2.0 */
/* eb and zvc on the CPU: the shared properties over every instruction set and number of threads. */
#include "support/assert_ok.h"

#include "support/codec/isas.h"
#include "support/codec/trip_properties.h"
#include "support/effort.h"

static trip_pools pools;
static backend_list backends;

static void test_small_f32(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_F32, effort(8 * PROPERTIES_COMBINATIONS), 6000);
}

static void test_small_f16(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_F16, effort(5 * PROPERTIES_COMBINATIONS), 6000);
}

static void test_small_bf16(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_BF16, effort(5 * PROPERTIES_COMBINATIONS), 6000);
}

static void test_small_u8(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_U8, effort(3 * PROPERTIES_COMBINATIONS), 6000);
}

static void test_large(void **state) {
    (void)state;
    properties_large(&backends, effort(40));
}

static void test_every_small_shape(void **state) {
    (void)state;
    properties_every_small_shape(&backends, EFFORT_SLOW ? 5 : 1);
}

static void test_every_kind(void **state) {
    (void)state;
    properties_every_kind(&backends, effort(6 * PROPERTIES_KINDS));
}

static void test_order_of_sums(void **state) {
    (void)state;
    properties_order_of_sums(&backends, 128);
    properties_order_of_sums(&backends, 2048);
}

/* Data need not be aligned, not even to its own type: files are mapped as they are. */
static void test_unaligned_data(void **state) {
    (void)state;
    rng r = rng_seed(10);
    enum { COUNT = 3000 };
    static unsigned char in[COUNT * 4 + 8], out[COUNT * 4 + 8], stream[COUNT * 5];
    isa_list isas = isa_list_get();
    for (int i = 0; i < 4 * 3 * isas.count; i++) {
        comet_dtype dtype = (comet_dtype)(i % 4);
        comet_codec_params params = COMET_CODEC_PARAMS_INIT;
        comet_codec_exec exec = trip_exec(isas.isa[i / 12], NULL);
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        comet_tensor t;
        failure f;
        params.bound = i / 4 % 3 * 0.1;
        values_fill(&r, VALUES_SPECIAL, dtype, 1.0, 0.1, in + 1, COUNT);
        assert_ok(comet_tensor_init(&t, in + 1, dtype, COMET_NHWC, 3, (int64_t[]){10, 10, 30}));
        assert_ok(comet_codec_compress(&t, &params, &exec, stream, sizeof stream, &result));
        t.data = out + 3;
        assert_ok(comet_codec_decompress(stream, result.bytes, NULL, &exec, &t));
        check_rules rules = {.dtype = dtype, .bound = result.bound, .channel_stride = 1};
        assert_check(check_round_trip(&rules, in + 1, out + 3, COUNT, &f), f);
    }
}

static int group_setup(void **state) {
    (void)state;
    isa_list_print();
    trip_pools_new(&pools);
    backends = backend_list_cpu(&pools);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    trip_pools_free(&pools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_f32),     cmocka_unit_test(test_small_f16),
        cmocka_unit_test(test_small_bf16),    cmocka_unit_test(test_small_u8),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_every_small_shape),
        cmocka_unit_test(test_every_kind),    cmocka_unit_test(test_unaligned_data),
        cmocka_unit_test(test_order_of_sums),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
