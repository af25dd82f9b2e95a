/* SPDX-License-Identifier: Apache-2.0 */
/* The grid on a threshold: the side kept for every value, hard thresholds, and arguments that do not fit. */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"
#include "support/codec/trip_run.h"
#include "support/effort.h"
#include "support/number.h"

static trip_pools pools;

enum { MOST_CHANNELS = 64 };

typedef struct grid_arrays {
    float scale[MOST_CHANNELS], shift[MOST_CHANNELS], threshold[MOST_CHANNELS], slope[MOST_CHANNELS];
} grid_arrays;

/* fp32 values as they are, with the grid given. */
static void verify_values(const test_shape *shape, const float *values, double bound, const comet_codec_grid *grid) {
    rng r = rng_seed(3);
    failure f;
    trip t;
    trip_spec spec = {
        .dtype = COMET_F32, .shape = *shape, .values = VALUES_MIXED, .mode = TRIP_GRID, .scale = 1.0, .bound = bound};
    trip_of_values(&t, &r, &spec, values);
    t.grid = *grid;
    t.params.grid = &t.grid;
    int good = trip_verify(&t, &r, &pools, &f);
    trip_free(&t);
    assert_check(good, f);
}

/* Three neighbours on either side of the threshold, the threshold itself, and the same around h +- k * step. */
static void fill_around(rng *r, float h, double bound, float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double center = isfinite(h) ? (double)h : 0.0;
        if (rng_below(r, 2))
            center += (double)rng_between(r, -100, 100) * bound * (rng_below(r, 2) ? 1.0 : 2.0 * (1.0 - 0x1p-12));
        float v = isfinite((float)center) ? (float)center : 0.0f;
        for (int64_t steps = rng_between(r, -3, 3); steps; steps += steps < 0 ? 1 : -1)
            v = nextafterf(v, steps < 0 ? -INFINITY : INFINITY);
        values[i] = isfinite(v) ? v : 0.0f;
    }
}

static void around_threshold(rng *r, float h, float slope, double bound) {
    enum { COUNT = 2100 };
    static float values[COUNT];
    test_shape shape = {COMET_FLAT, 1, {COUNT}};
    fill_around(r, h, bound, values, COUNT);
    verify_values(&shape, values, bound, &(comet_codec_grid){1, NULL, NULL, &h, &slope});
}

static void test_neighbours_of_the_threshold(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const float hard[] = {0.0f,    -0.0f, 1.0f,      -1.0f,   0.1f,     -0.3f,    1e-3f,     -1e-40f, 1e-45f,
                                 1638.3f, 3e4f,  -65536.0f, 3.4e38f, -3.4e38f, INFINITY, -INFINITY, NAN,     0x1p-126f};
    static const double bounds[] = {0.1, 1e-3, 0.37, 5.0, 1e-7, 1e6, 0.0};
    for (unsigned h = 0; h < sizeof hard / sizeof *hard; h++)
        for (unsigned b = 0; b < sizeof bounds / sizeof *bounds; b++)
            for (int s = 0; s < 2; s++)
                around_threshold(&r, hard[h], s ? -1.0f : 1.0f, bounds[b]);
}

/* All that a class has codes for, its greatest and least values too, wherever the threshold is. */
static void up_to_reach(rng *r, float h, float slope, double bound, double reach) {
    enum { COUNT = 2100 };
    static float values[COUNT];
    test_shape shape = {COMET_FLAT, 1, {COUNT}};
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(reach * (rng_below(r, 4) ? 2.0 * rng_unit(r) - 1.0 : rng_below(r, 2) ? 1.0 : -1.0));
    verify_values(&shape, values, bound, &(comet_codec_grid){1, NULL, NULL, &h, &slope});
}

/* Thresholds across the place from where on they count as far (128 steps, 8192 wide ones) and the codes' limits. */
static void test_far_thresholds(void **state) {
    (void)state;
    rng r = rng_seed(2);
    static const double steps[] = {123,  124,    125,  126,  127,  127.9, 128,     128.1, 129,  200,
                                   7990, 7997.5, 7998, 8000, 8002, 8191,  8191.99, 8192,  8193, 40000};
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int k = 0; k < 8; k++) {
            double bound = 0.1, narrow = 2 * bound * (1.0 - 0x1p-12), wide = 2 * bound * (1.0 - 0x1p-6);
            float h = (float)(steps[i] * (k & 1 ? narrow : wide) * (k & 2 ? -1.0 : 1.0)), slope = k & 4 ? -1.0f : 1.0f;
            around_threshold(&r, h, slope, bound);
            up_to_reach(&r, h, slope, bound, 125 * narrow * (1.0 - 0x1p-14));
            up_to_reach(&r, h, slope, bound, 7998 * wide * (1.0 - 0x1p-15));
        }
    static const float infinite[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 6; i++) {
        up_to_reach(&r, infinite[i / 2], i % 2 ? -1.0f : 1.0f, 0.1, 125 * 0.2 * (1.0 - 0x1p-11));
        up_to_reach(&r, infinite[i / 2], i % 2 ? -1.0f : 1.0f, 0.1, 7998 * 0.2 * (1.0 - 0x1p-5));
    }
}

static void random_arrays(rng *r, grid_arrays *a) {
    for (int c = 0; c < MOST_CHANNELS; c++) {
        a->scale[c] = rng_below(r, 4) ? (float)rng_gauss(r) : 0.0f;
        a->shift[c] = (float)rng_gauss(r);
        a->threshold[c] = rng_below(r, 6) ? (float)rng_gauss(r) : rng_below(r, 2) ? NAN : a->shift[c];
        a->slope[c] = (float)rng_gauss(r);
    }
}

/* A scale of 0 makes y the shift, here often the threshold itself. All layouts, each array present or not. */
static void test_layouts_and_scales(void **state) {
    (void)state;
    rng r = rng_seed(4);
    enum { COUNT = 2 * 20 * 17 * 13 };
    static float values[COUNT];
    static grid_arrays a;
    static const test_shape shapes[] = {{COMET_NCHW, 4, {2, 20, 17, 13}}, {COMET_NHWC, 4, {2, 17, 13, 20}},
                                        {COMET_FLAT, 1, {COUNT}},         {COMET_NCHW, 3, {34, 20, 13}},
                                        {COMET_NHWC, 2, {442, 20}},       {COMET_NHWC, 3, {5, 4, 40}},
                                        {COMET_NCHW, 2, {340, 26}},       {COMET_NHWC, 1, {60}}};
    int rounds = effort(16);
    for (int round = 0; round < rounds; round++)
        for (unsigned s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            random_arrays(&r, &a);
            values_fill(&r, rng_below(&r, 2) ? VALUES_GAUSS : VALUES_RELU, COMET_F32, 1.0, 0.1, values, COUNT);
            comet_codec_grid g = {shape_channels(&shapes[s]), round & 1 ? a.scale : NULL, round & 2 ? a.shift : NULL,
                                  a.threshold, round & 4 ? a.slope : NULL};
            verify_values(&shapes[s], values, round & 8 ? 0.3 : 0.01, &g);
        }
}

/* What is not finite: NaN and infinities in, and values that the scale sends there. */
static void test_values_that_are_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(5);
    enum { COUNT = 4096 };
    static float values[COUNT];
    test_shape shape = {COMET_FLAT, 1, {COUNT}};
    float scale[] = {0.0f, 1e20f, -1.0f}, shift = 0.5f, threshold = 0.25f;
    for (int i = 0; i < 3; i++) {
        values_fill(&r, VALUES_SPECIAL, COMET_F32, 1e19, 0.1, values, COUNT);
        verify_values(&shape, values, 0.1, &(comet_codec_grid){1, &scale[i], &shift, &threshold, NULL});
    }
}

static void test_random_grids(void **state) {
    (void)state;
    rng r = rng_seed(6);
    int rounds = effort(300);
    for (int i = 0; i < rounds; i++) {
        failure f;
        trip t;
        static const double bounds[] = {1e-6, 1e-4, 0.01, 0.1, 0.5, 3.0};
        trip_spec spec = {.dtype = (comet_dtype)rng_below(&r, 4),
                          .shape = shape_random(&r, (comet_layout)rng_below(&r, 3), 8000),
                          .strides = (stride_kind)rng_below(&r, STRIDES_KINDS),
                          .values = (value_kind)rng_below(&r, VALUES_KINDS),
                          .mode = TRIP_GRID,
                          .scale = 1.0,
                          .bound = bounds[rng_below(&r, 6)],
                          .bound_kind = (comet_bound_kind)rng_below(&r, 2)};
        trip_new(&t, &r, &spec);
        int good = trip_verify(&t, &r, &pools, &f);
        trip_free(&t);
        assert_check(good, f);
    }
}

/* ---- arguments ---- */

typedef struct small_grid {
    float values[60], arrays[3];
    comet_tensor tensor;
    comet_codec_grid grid;
    comet_codec_params params;
    unsigned char stream[2048];
} small_grid;

static void small_grid_init(small_grid *s) {
    *s = (small_grid){.arrays = {0.5f, -0.5f, 0.0f}};
    for (int i = 0; i < 60; i++)
        s->values[i] = (float)(i % 7) - 3.0f;
    assert_ok(comet_tensor_init(&s->tensor, s->values, COMET_F32, COMET_NCHW, 4, (int64_t[]){1, 3, 4, 5}));
    s->grid = (comet_codec_grid){3, NULL, NULL, s->arrays, NULL};
    s->params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    s->params.bound = 0.1;
    s->params.grid = &s->grid;
}

static comet_status compress_small(small_grid *s, comet_codec_result *result) {
    return comet_codec_compress(&s->tensor, &s->params, NULL, s->stream, sizeof s->stream, result);
}

static void test_bad_grids(void **state) {
    (void)state;
    small_grid s;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    small_grid_init(&s);
    assert_ok(compress_small(&s, &result));
    static const int64_t wrong[] = {0, 1, 2, 4, -1, -3, INT64_MAX, INT64_MIN};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.grid.channels = wrong[i];
        assert_status(compress_small(&s, NULL), COMET_ERROR_ARGUMENT);
    }
    small_grid_init(&s);
    s.grid.threshold = NULL;
    assert_status(compress_small(&s, NULL), COMET_ERROR_ARGUMENT);
    small_grid_init(&s);
    s.params.keep_mask = 1;
    assert_status(compress_small(&s, NULL), COMET_ERROR_ARGUMENT);
    small_grid_init(&s);
    s.params.rounding = COMET_ROUND_STOCHASTIC;
    assert_status(compress_small(&s, NULL), COMET_ERROR_ARGUMENT);
    float bad[] = {1.0f, 1.0f, NAN};
    for (int i = 0; i < 4; i++) {
        small_grid_init(&s);
        bad[2] = i & 1 ? NAN : -INFINITY;
        *(i & 2 ? &s.grid.scale : &s.grid.shift) = bad;
        assert_status(compress_small(&s, NULL), COMET_ERROR_ARGUMENT);
    }
}

static comet_status decompress_small(const small_grid *s, size_t bytes, const comet_codec_grid *grid) {
    float out[60];
    comet_tensor tensor = s->tensor;
    tensor.data = out;
    return comet_codec_decompress(s->stream, bytes, grid, NULL, &tensor);
}

static void test_grids_that_do_not_fit_the_stream(void **state) {
    (void)state;
    small_grid s;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    small_grid_init(&s);
    assert_ok(compress_small(&s, &result));
    comet_codec_grid grid = s.grid;
    assert_ok(decompress_small(&s, result.bytes, &grid));
    assert_status(decompress_small(&s, result.bytes, NULL), COMET_ERROR_MISMATCH);
    grid.threshold = NULL;
    assert_status(decompress_small(&s, result.bytes, &grid), COMET_ERROR_ARGUMENT);
    static const int64_t wrong[] = {0, 1, 2, 4, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 59, (int64_t)1 << 40};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        grid = s.grid;
        grid.channels = wrong[i];
        comet_status status = decompress_small(&s, result.bytes, &grid);
        assert_true(status == COMET_ERROR_MISMATCH || status == COMET_ERROR_ARGUMENT);
    }
    s.params.grid = NULL;
    assert_ok(compress_small(&s, &result));
    assert_status(decompress_small(&s, result.bytes, &s.grid), COMET_ERROR_MISMATCH);
}

/* scale and shift are not read when decoding. */
static void test_decoding_needs_no_scale(void **state) {
    (void)state;
    small_grid s;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    float scale[] = {2.0f, -1.0f, 0.5f}, first[60], second[60];
    small_grid_init(&s);
    s.grid.scale = scale;
    assert_ok(compress_small(&s, &result));
    comet_codec_grid bare = {3, NULL, NULL, s.arrays, NULL};
    comet_tensor tensor = s.tensor;
    tensor.data = first;
    assert_ok(comet_codec_decompress(s.stream, result.bytes, &s.grid, NULL, &tensor));
    tensor.data = second;
    assert_ok(comet_codec_decompress(s.stream, result.bytes, &bare, NULL, &tensor));
    assert_memory_equal(first, second, sizeof first);
}

static int group_setup(void **state) {
    (void)state;
    isa_list_print();
    trip_pools_new(&pools);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    trip_pools_free(&pools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_of_the_threshold),
        cmocka_unit_test(test_far_thresholds),
        cmocka_unit_test(test_layouts_and_scales),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_random_grids),
        cmocka_unit_test(test_bad_grids),
        cmocka_unit_test(test_grids_that_do_not_fit_the_stream),
        cmocka_unit_test(test_decoding_needs_no_scale),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
