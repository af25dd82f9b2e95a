/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eb and zvc on a device: the properties of test_eb_properties, with the same checker, and each trip byte for byte and
 * sum for sum what the CPU's reference makes of it. The CPU reads the device's stream as it lies there, the device the
 * CPU's. Where the device is emulated, half of the calls run their blocks and threads in another order.
 */
#include "support/assert_ok.h"

#include "support/codec/trip_properties.h"
#include "support/cuda/cuda_backend.h"
#include "support/effort.h"

static backend_list backends;

static void test_small_f32(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_F32, effort(2 * PROPERTIES_COMBINATIONS), 6000);
}

static void test_small_f16(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_F16, effort(PROPERTIES_COMBINATIONS), 6000);
}

static void test_small_bf16(void **state) {
    (void)state;
    properties_combinations(&backends, COMET_BF16, effort(PROPERTIES_COMBINATIONS), 6000);
}

static void test_large(void **state) {
    (void)state;
    properties_large(&backends, effort(6));
}

static void test_every_small_shape(void **state) {
    (void)state;
    int trips = effort(330);
    properties_every_small_shape(&backends, trips < 1000 ? 1000 / trips : 1);
}

static void test_every_kind(void **state) {
    (void)state;
    properties_every_kind(&backends, effort(3 * PROPERTIES_KINDS));
}

static void test_order_of_sums(void **state) {
    (void)state;
    properties_order_of_sums(&backends, 128);
    if (effort(3) >= 3)
        properties_order_of_sums(&backends, 2048);
}

static int group_setup(void **state) {
    (void)state;
    backends = cuda_backend_new(1 << 19);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    cuda_backend_free(&backends);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_f32),     cmocka_unit_test(test_small_f16),
        cmocka_unit_test(test_small_bf16),    cmocka_unit_test(test_large),
        cmocka_unit_test(test_every_kind),    cmocka_unit_test(test_every_small_shape),
        cmocka_unit_test(test_order_of_sums),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, group_setup, group_teardown);
}
