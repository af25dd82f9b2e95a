/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training code sets its threads to flush subnormals to zero; others round in another direction. Bytes, statistics and
 * decoded values must not depend on the caller's floating-point environment, and the caller must get it back.
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"
#include "support/codec/trip_run.h"
#include "support/effort.h"

#if defined(__SSE__)
#include <xmmintrin.h>
enum { AVAILABLE = 1, FLAGS = 0x3f };

/* Results to zero and operands as zero; rounding up; rounding towards zero and flushing. */
static const unsigned settings[] = {0x8040, 0x4000, 0xe040};

static unsigned environment_get(void) {
    return _mm_getcsr() & ~(unsigned)FLAGS;
}

static void environment_set(unsigned environment) {
    _mm_setcsr(environment);
}
#else
enum { AVAILABLE = 0 };
static const unsigned settings[] = {0, 0, 0};

static unsigned environment_get(void) {
    return 0;
}

static void environment_set(unsigned environment) {
    (void)environment;
}
#endif

static trip_spec some_spec(rng *r, trip_mode mode) {
    static const value_kind kinds[] = {VALUES_SUBNORMAL, VALUES_MIXED, VALUES_SPECIAL, VALUES_BITS};
    static const double bounds[] = {0.1, 1e-30, 1e-3, 0.0, 1e20};
    return (trip_spec){.dtype = (comet_dtype)rng_below(r, 3),
                       .shape = shape_random(r, (comet_layout)rng_below(r, 3), 3000),
                       .values = kinds[rng_below(r, 4)],
                       .mode = mode,
                       .scale = 1.0,
                       .bound = bounds[rng_below(r, 5)],
                       .bound_kind = rng_below(r, 4) ? COMET_BOUND_ABSOLUTE : COMET_BOUND_RELATIVE};
}

/* Compress and decompress with a setting; all that comes out is as it is without. */
static void compare(const trip *t, rng *r, comet_isa isa, unsigned setting) {
    failure f;
    trip_stream s;
    void *expected = NULL;
    comet_codec_exec exec = trip_exec(isa, NULL);
    size_t bytes = (size_t)t->count * comet_dtype_size(trip_output_dtype(t)), capacity;
    assert_check(trip_compress(t, &exec, &s, &f), f);
    assert_check(trip_decompress(t, &s, &exec, r, STRIDES_CONTIGUOUS, &expected, &f), f);
    assert_ok(comet_codec_max_bytes(&t->input.view, &t->params, &capacity));
    unsigned char *again = malloc(capacity), *values = malloc(bytes + 1);
    assert_true(again && values);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_tensor out;
    assert_ok(comet_tensor_init(&out, values, trip_output_dtype(t), t->spec.shape.layout, t->spec.shape.ndim,
                                t->spec.shape.shape));
    unsigned before = environment_get();
    environment_set(before | setting);
    comet_status compressed = comet_codec_compress(&t->input.view, &t->params, &exec, again, capacity, &result);
    comet_status decompressed = comet_codec_decompress(s.bytes, s.result.bytes, trip_grid(t), &exec, &out);
    unsigned after = environment_get();
    environment_set(before);
    assert_int_equal(after, before | setting);
    assert_true(compressed == COMET_OK && decompressed == COMET_OK);
    int same = result.bytes == s.result.bytes && memcmp(again, s.bytes, result.bytes) == 0;
    int same_stats = memcmp(&result.stats, &s.result.stats, sizeof result.stats) == 0;
    int same_values = bytes == 0 || memcmp(values, expected, bytes) == 0;
    free(again);
    free(values);
    free(expected);
    trip_stream_free(&s);
    if (!same || !same_stats || !same_values) {
        failure_set(&f, "the environment changes%s%s%s", same ? "" : " bytes", same_stats ? "" : " statistics",
                    same_values ? "" : " values");
        trip_describe(t, &f);
        fail_msg("%s: %s", isa_name(isa), f.text);
    }
}

static void compare_mode(trip_mode mode) {
    rng r = rng_seed(50 + (uint64_t)mode);
    isa_list isas = isa_list_get();
    int rounds = effort(300);
    if (!AVAILABLE)
        skip_because("only the environment of x86-64 is known here");
    for (int i = 0; i < rounds; i++) {
        trip t;
        trip_spec spec = some_spec(&r, mode);
        trip_new(&t, &r, &spec);
        compare(&t, &r, isas.isa[i % isas.count], settings[i / 3 % 3]);
        trip_free(&t);
    }
}

static void test_nearest(void **state) {
    (void)state;
    compare_mode(TRIP_NEAREST);
}

static void test_stochastic(void **state) {
    (void)state;
    compare_mode(TRIP_STOCHASTIC);
}

static void test_keep_mask(void **state) {
    (void)state;
    compare_mode(TRIP_KEEP_MASK);
}

static void test_grid(void **state) {
    (void)state;
    compare_mode(TRIP_GRID);
}

static void test_zvc(void **state) {
    (void)state;
    compare_mode(TRIP_ZVC);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_stochastic), cmocka_unit_test(test_keep_mask),
        cmocka_unit_test(test_grid),    cmocka_unit_test(test_zvc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
