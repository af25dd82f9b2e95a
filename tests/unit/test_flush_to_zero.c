/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training code sets its threads to flush subnormals to zero. The calling thread then computes otherwise than the workers of
 * a pool made before: bytes, statistics and decoded values must not depend on it (docs/format.md, section 4).
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/isas.h"
#include "support/trip_run.h"

#if defined(__SSE__)
#include <xmmintrin.h>
enum { FLUSH_BITS = 0x8040, AVAILABLE = 1 }; /* results to zero, operands as zero */

static unsigned flush_begin(void) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_BITS);
    return before;
}

static void flush_end(unsigned before) {
    _mm_setcsr(before);
}
#else
enum { AVAILABLE = 0 };

static unsigned flush_begin(void) {
    return 0;
}

static void flush_end(unsigned before) {
    (void)before;
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

/* Compress and decompress while flushing; all that comes out is as it is without. */
static void compare(const trip *t, rng *r, comet_isa isa) {
    failure f;
    trip_stream s;
    void *expected = NULL;
    comet_codec_exec exec = trip_exec(isa, NULL);
    size_t bytes = (size_t)t->count * comet_dtype_size(trip_output_dtype(t)), capacity;
    assert_check(trip_compress(t, &exec, &s, &f), f);
    assert_check(trip_decompress(t, &s, &exec, r, STRIDES_CONTIGUOUS, &expected, &f), f);
    assert_ok(comet_codec_bound(&t->input.view, &t->params, &capacity));
    unsigned char *again = malloc(capacity), *values = malloc(bytes + 1);
    assert_true(again && values);
    comet_codec_result result;
    comet_tensor out;
    assert_ok(comet_tensor_init(&out, values, trip_output_dtype(t), t->spec.shape.layout, t->spec.shape.ndim,
                                t->spec.shape.shape));
    unsigned before = flush_begin();
    comet_status compressed = comet_codec_compress(&t->input.view, &t->params, &exec, again, capacity, &result);
    comet_status decompressed = comet_codec_decompress(s.bytes, s.result.bytes, trip_grid(t), &exec, &out);
    flush_end(before);
    assert_true(compressed == COMET_OK && decompressed == COMET_OK);
    int same = result.bytes == s.result.bytes && memcmp(again, s.bytes, result.bytes) == 0;
    int same_stats = memcmp(&result.stats, &s.result.stats, sizeof result.stats) == 0;
    int same_values = bytes == 0 || memcmp(values, expected, bytes) == 0;
    free(again);
    free(values);
    free(expected);
    trip_stream_free(&s);
    if (!same || !same_stats || !same_values) {
        failure_set(&f, "flushing changes%s%s%s", same ? "" : " bytes", same_stats ? "" : " statistics",
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
        skip();
    for (int i = 0; i < rounds; i++) {
        trip t;
        trip_spec spec = some_spec(&r, mode);
        trip_new(&t, &r, &spec);
        compare(&t, &r, isas.isa[i % isas.count]);
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
