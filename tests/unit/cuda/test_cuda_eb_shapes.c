/* SPDX-License-Identifier: Apache-2.0 */
/* eb and zvc on a device: shapes for every way in which kernels reach values, by the properties of all trips. */
#include "test_cuda_eb_case.h"

static backend_list backends;

static void verify_shape(rng *r, const test_shape *shape) {
    static const double bounds[] = {0.1, 0.3, 0.01, 1e-4};
    static const value_kind kinds[] = {VALUES_SMOOTH, VALUES_MIXED, VALUES_RELU, VALUES_OUTLIERS};
    trip_spec spec = spec_of((comet_dtype)rng_below(r, 3), shape, (trip_mode)rng_below(r, TRIP_MODES),
                             kinds[rng_below(r, 4)], bounds[rng_below(r, 4)]);
    properties_verify(&backends, r, &spec);
}

/* Rows of every length, so of every residue of 8, short ones and long ones, whole bands and ragged ones. */
static void test_every_row(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int64_t row = 1; row <= 136; row += row < 72 ? stride_for(72) : 3 * stride_for(72))
        for (int64_t rows = 16; rows <= 19; rows += 3) {
            test_shape shape = {COMET_NCHW, 4, {1, 2, rows, row}};
            verify_shape(&r, &shape);
        }
}

/* Channels side by side: of four, of none, more than a tile has lanes, one alone. */
static void test_every_channel_count(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int64_t channels = 1; channels <= 136; channels += channels < 40 ? stride_for(40) : 3 * stride_for(40))
        for (int64_t width = 7; width <= 18; width += 11) {
            test_shape shape = {COMET_NHWC, 4, {1, 5, width, channels}};
            verify_shape(&r, &shape);
        }
}

/* Where the geometry changes its rules, nothing at all, and a shape for every border of a tile and of a group. */
static void test_chosen_shapes(void **state) {
    (void)state;
    static const test_shape shapes[] = {
        {COMET_FLAT, 0, {0}},
        {COMET_FLAT, 1, {0}},
        {COMET_FLAT, 1, {1}},
        {COMET_FLAT, 1, {31}},
        {COMET_FLAT, 1, {32}},
        {COMET_FLAT, 1, {33}},
        {COMET_FLAT, 1, {1023}},
        {COMET_FLAT, 1, {1024}},
        {COMET_FLAT, 1, {1025}},
        {COMET_FLAT, 1, {8191}},
        {COMET_FLAT, 1, {8192}},
        {COMET_FLAT, 1, {8193}},
        {COMET_FLAT, 2, {0, 5}},
        {COMET_FLAT, 2, {257, 130}},
        {COMET_NCHW, 4, {0, 3, 5, 7}},
        {COMET_NCHW, 4, {2, 3, 0, 7}},
        {COMET_NCHW, 1, {100}},
        {COMET_NCHW, 2, {15, 40}},
        {COMET_NCHW, 2, {16, 40}},
        {COMET_NCHW, 2, {16, 7}},
        {COMET_NCHW, 2, {16, 8}},
        {COMET_NCHW, 3, {3, 17, 1000}},
        {COMET_NCHW, 5, {2, 2, 3, 5, 12}},
        {COMET_NCHW, 8, {1, 2, 1, 2, 2, 1, 9, 14}},
        {COMET_NHWC, 4, {2, 0, 5, 9}},
        {COMET_NHWC, 4, {2, 4, 5, 0}},
        {COMET_NHWC, 1, {70}},
        {COMET_NHWC, 2, {31, 70}},
        {COMET_NHWC, 2, {32, 70}},
        {COMET_NHWC, 4, {1, 16, 8, 3}},
        {COMET_NHWC, 4, {1, 15, 9, 512}},
        {COMET_NHWC, 4, {3, 17, 11, 20}},
        {COMET_NHWC, 4, {1, 7, 7, 1001}},
    };
    rng r = rng_seed(3);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < effort(3); n++)
            verify_shape(&r, &shapes[i]);
}

static void test_grids_of_small_maps(void **state) {
    (void)state;
    rng r = rng_seed(18);
    static const double bounds[] = {0.3, 0.1, 0.02, 1e-3};
    static const value_kind kinds[] = {VALUES_GAUSS, VALUES_SMOOTH, VALUES_OUTLIERS, VALUES_SPECIAL};
    for (int i = 0; i < effort(6 * SMALL_MAPS); i++) {
        trip_spec spec = spec_of((comet_dtype)rng_below(&r, 3), &small_maps[i % SMALL_MAPS], TRIP_GRID,
                                 kinds[rng_below(&r, 8) % 5 % 4], bounds[rng_below(&r, 4)]);
        properties_verify(&backends, &r, &spec);
    }
}

/* Groups without padding in which some tiles have narrow codes and some have others, in every mode. */
static void test_mixed_groups(void **state) {
    (void)state;
    rng r = rng_seed(19);
    static const double bounds[] = {0.3, 0.1, 0.02};
    static const value_kind kinds[] = {VALUES_OUTLIERS, VALUES_MIXED, VALUES_SPECIAL};
    static const test_shape shapes[] = {{COMET_NHWC, 4, {2, 16, 16, 64}}, {COMET_NCHW, 4, {2, 8, 32, 32}}};
    for (int i = 0; i < effort(6 * TRIP_MODES); i++) {
        trip_spec spec = spec_of((comet_dtype)(i / TRIP_MODES % 3), &shapes[i / TRIP_MODES / 3 % 2],
                                 (trip_mode)(i % TRIP_MODES), kinds[rng_below(&r, 3)], bounds[rng_below(&r, 3)]);
        properties_verify(&backends, &r, &spec);
    }
}

static int group_setup(void **state) {
    (void)state;
    backends = cuda_backend_new(1 << 17);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    cuda_backend_free(&backends);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),     cmocka_unit_test(test_every_channel_count),
        cmocka_unit_test(test_chosen_shapes), cmocka_unit_test(test_grids_of_small_maps),
        cmocka_unit_test(test_mixed_groups),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, group_setup, group_teardown);
}
