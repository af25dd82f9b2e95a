/* SPDX-License-Identifier: Apache-2.0 */
/* One body for every instruction set, dtype, layout, bound and mode of eb and zvc: all that trip_verify checks. */
#include "support/assert_ok.h"

#include <stdlib.h>

#include "support/effort.h"
#include "support/isas.h"
#include "support/trip_run.h"

typedef struct bound_case {
    double bound;
    comet_bound_kind kind;
    int of_scale; /* the bound is in units of the data's scale */
} bound_case;

static const bound_case bounds[] = {
    {0.0, COMET_BOUND_ABSOLUTE, 0},    {1e-30, COMET_BOUND_ABSOLUTE, 0}, {1e-45, COMET_BOUND_ABSOLUTE, 0},
    {1e-5, COMET_BOUND_ABSOLUTE, 1},   {1e-3, COMET_BOUND_ABSOLUTE, 1},  {1e-2, COMET_BOUND_ABSOLUTE, 1},
    {0.1, COMET_BOUND_ABSOLUTE, 1},    {0.3, COMET_BOUND_ABSOLUTE, 1},   {1.0, COMET_BOUND_ABSOLUTE, 1},
    {1000.0, COMET_BOUND_ABSOLUTE, 1}, {1e30, COMET_BOUND_ABSOLUTE, 0},  {1e300, COMET_BOUND_ABSOLUTE, 0},
    {0.0, COMET_BOUND_RELATIVE, 0},    {1e-3, COMET_BOUND_RELATIVE, 0},  {0.1, COMET_BOUND_RELATIVE, 0},
    {3.0, COMET_BOUND_RELATIVE, 0},    {1e300, COMET_BOUND_RELATIVE, 0},
};

enum { BOUNDS = sizeof bounds / sizeof *bounds };

static const double scales[] = {1.0, 0.01, 300.0, 1e-6};

static trip_pools pools;

static trip_spec spec_of(rng *r, comet_dtype dtype, comet_layout layout, const bound_case *b, trip_mode mode,
                         int64_t most) {
    double scale = rng_below(r, 2) ? 1.0 : scales[rng_below(r, 4)];
    return (trip_spec){.dtype = dtype,
                       .shape = shape_random(r, layout, most),
                       .strides = rng_below(r, 2) ? STRIDES_CONTIGUOUS : (stride_kind)rng_below(r, STRIDES_KINDS),
                       .values = rng_below(r, 3) ? (value_kind)rng_below(r, VALUES_KINDS) : VALUES_MIXED,
                       .mode = mode,
                       .scale = scale,
                       .bound = b->of_scale ? b->bound * scale : b->bound,
                       .bound_kind = b->kind,
                       .checksum = rng_below(r, 4) == 0};
}

static void verify(rng *r, const trip_spec *spec) {
    failure f;
    trip t;
    trip_new(&t, r, spec);
    int good = trip_verify(&t, r, &pools, &f);
    trip_free(&t);
    assert_check(good, f);
}

/* All combinations, each with a few small random tensors. */
static void combinations(comet_dtype dtype, int rounds, int64_t most) {
    rng r = rng_seed(100 + (uint64_t)dtype);
    for (int round = 0; round < rounds; round++)
        for (comet_layout layout = COMET_FLAT; layout <= COMET_NHWC; layout++)
            for (trip_mode mode = TRIP_NEAREST; mode < TRIP_MODES; mode++)
                for (int b = 0; b < BOUNDS; b++) {
                    trip_spec spec = spec_of(&r, dtype, layout, &bounds[b], mode, most);
                    verify(&r, &spec);
                }
}

static void test_small_f32(void **state) {
    (void)state;
    combinations(COMET_F32, effort(8), 6000);
}

static void test_small_f16(void **state) {
    (void)state;
    combinations(COMET_F16, effort(5), 6000);
}

static void test_small_bf16(void **state) {
    (void)state;
    combinations(COMET_BF16, effort(5), 6000);
}

static void test_small_u8(void **state) {
    (void)state;
    combinations(COMET_U8, effort(3), 6000);
}

/* Tensors of more than one chunk of 64 tiles, so that threads share the work. */
static void test_large(void **state) {
    (void)state;
    rng r = rng_seed(7);
    int rounds = effort(40);
    for (int i = 0; i < rounds; i++) {
        const bound_case *b = &bounds[rng_below(&r, BOUNDS)];
        trip_mode mode = (trip_mode)rng_below(&r, TRIP_MODES);
        comet_layout layout = (comet_layout)rng_below(&r, 3);
        trip_spec spec = spec_of(&r, (comet_dtype)rng_below(&r, 4), layout, b, mode, 300000);
        spec.shape =
            (test_shape){layout, 4, {2, rng_between(&r, 20, 40), rng_between(&r, 30, 60), rng_between(&r, 50, 80)}};
        verify(&r, &spec);
    }
}

/* Every shape of one to three small extents, so that no remainder is left out. */
static void test_every_small_shape(void **state) {
    (void)state;
    rng r = rng_seed(8);
    static const int64_t extents[] = {0, 1, 2, 7, 8, 9, 16, 31, 33, 65};
    enum { N = sizeof extents / sizeof *extents };
    for (int i = 0; i < N * N * N; i++) {
        comet_layout layout = (comet_layout)(i % 3);
        if (EFFORT_SLOW && i % 5)
            continue;
        trip_spec spec =
            spec_of(&r, (comet_dtype)rng_below(&r, 4), layout, &bounds[6], (trip_mode)rng_below(&r, TRIP_MODES), 1);
        spec.shape = (test_shape){layout, 3, {extents[i % N], extents[i / N % N], extents[i / N / N]}};
        verify(&r, &spec);
    }
}

/* Each kind of values in each mode, at the bounds where they matter most. */
static void test_every_kind(void **state) {
    (void)state;
    rng r = rng_seed(9);
    static const int picked[] = {3, 4, 6, 8};
    int rounds = effort(6);
    for (int round = 0; round < rounds; round++)
        for (int kind = 0; kind < VALUES_KINDS; kind++)
            for (int mode = 0; mode < TRIP_MODES; mode++) {
                trip_spec spec = spec_of(&r, (comet_dtype)rng_below(&r, 3), (comet_layout)rng_below(&r, 3),
                                         &bounds[picked[rng_below(&r, 4)]], (trip_mode)mode, 9000);
                spec.values = (value_kind)kind;
                verify(&r, &spec);
            }
}

/* Tiles 0, 128 and 256 share a place in the tree of sums, and their sum in fp64 depends on which two come first. */
static void test_order_of_sums(void **state) {
    (void)state;
    rng r = rng_seed(11);
    enum { COUNT = 257 * 1024 };
    failure f;
    trip t;
    float *values = calloc(COUNT, sizeof *values);
    assert_non_null(values);
    values[0] = values[128 * 1024] = 1.0f;
    values[256 * 1024] = 0x1p53f;
    trip_spec spec = {.dtype = COMET_F32, .shape = {COMET_FLAT, 1, {COUNT}}, .scale = 1.0, .bound = 0.1};
    trip_of_values(&t, &r, &spec, values);
    int good = trip_verify(&t, &r, &pools, &f);
    trip_free(&t);
    free(values);
    assert_check(good, f);
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
        comet_codec_result result;
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
