/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp16 and bf16 conversions: all patterns, and all places where rounding turns, against the definition in
 * support/number.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <string.h>

#include "base/access.h"
#include "base/half.h"
#include "support/number.h"
#include "support/rng.h"

typedef struct half_type {
    comet_dtype dtype;
    float (*to_f32)(uint16_t);
    uint16_t (*of_f32)(float);
    uint32_t infinity;
} half_type;

static const half_type types[] = {{COMET_F16, comet_f16_to_f32, comet_f16_of_f32, 0x7c00},
                                  {COMET_BF16, comet_bf16_to_f32, comet_bf16_of_f32, 0x7f80}};

static void check_to_f32(const half_type *type, uint32_t h) {
    float f = type->to_f32((uint16_t)h);
    double expected = number_of_bits(type->dtype, h);
    if (isnan(expected)) {
        assert_true(isnan(f));
        assert_int_equal(bits_of_float(f) >> 31, h >> 15);
    } else {
        assert_true((double)f == expected && !signbit(f) == !signbit(expected));
    }
}

/* Every pattern; a NaN keeps its sign and payload, shifted, quiet or not. */
static void test_to_f32(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++)
        for (uint32_t h = 0; h < 0x10000u; h++)
            check_to_f32(&types[t], h);
    assert_int_equal(bits_of_float(comet_f16_to_f32(0x7c01)), 0x7f802000u);
    assert_int_equal(bits_of_float(comet_f16_to_f32(0xfeaa)), 0xffd54000u);
    assert_int_equal(bits_of_float(comet_bf16_to_f32(0xff81)), 0xff810000u);
}

static void check_of_f32(const half_type *type, float f) {
    uint32_t got = type->of_f32(f), expected = bits_of_number(type->dtype, (double)f);
    if (isnan(f)) {
        assert_true((got & 0x7fffu) > type->infinity);
        assert_int_equal(got >> 15, bits_of_float(f) >> 31);
    } else if (got != expected) {
        fail_msg("%a became %04x, expected %04x", (double)f, (unsigned)got, (unsigned)expected);
    }
}

/* Around every value and every midpoint of two values: exactly, and one fp32 step to either side. */
static void test_of_f32_where_it_turns(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++)
        for (uint32_t h = 0; h < 0x10000u; h++) {
            uint32_t next = (h & 0x8000u) | ((h & 0x7fffu) + 1);
            double here = number_of_bits(types[t].dtype, h), there = number_of_bits(types[t].dtype, next);
            if ((h & 0x7fffu) >= types[t].infinity)
                continue;
            if (isinf(there)) /* the midpoint to what would follow the largest value */
                there = 2 * here - number_of_bits(types[t].dtype, h - 1);
            float middle = (float)((here + there) / 2);
            check_of_f32(&types[t], (float)here);
            check_of_f32(&types[t], middle);
            check_of_f32(&types[t], nextafterf(middle, INFINITY));
            check_of_f32(&types[t], nextafterf(middle, -INFINITY));
        }
}

static void test_of_f32_anything(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < 2000000; i++)
            check_of_f32(&types[t], float_of_bits((uint32_t)rng_next(&r)));
        static const uint32_t special[] = {0,           0x80000000u, 0x7f800000u, 0xff800000u,
                                           0x7f800001u, 0xffffffffu, 0x7fc00000u, 1,
                                           0x33000000u, 0x33000001u, 0x477fefffu, 0x477ff000u};
        for (unsigned i = 0; i < sizeof special / sizeof *special; i++)
            check_of_f32(&types[t], float_of_bits(special[i]));
    }
}

static void test_back_and_forth(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++)
        for (uint32_t h = 0; h < 0x10000u; h++)
            if (number_class_of(types[t].dtype, h) != NUMBER_NAN)
                assert_int_equal(types[t].of_f32(types[t].to_f32((uint16_t)h)), h);
}

/* u8: clamped, ties to even, NaN as 0. */
static void test_u8(void **state) {
    (void)state;
    static const struct {
        float value;
        uint8_t expected;
    } cases[] = {{-1.0f, 0},     {-0.4f, 0},    {0.5f, 0},    {1.5f, 2},       {2.5f, 2}, {254.5f, 254},
                 {254.51f, 255}, {256.0f, 255}, {1e30f, 255}, {INFINITY, 255}, {NAN, 0},  {-INFINITY, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t got;
        comet_convert_of_f32(COMET_U8, &cases[i].value, 1, &got);
        assert_int_equal(got, cases[i].expected);
    }
    for (int v = 0; v < 256; v++) {
        uint8_t u = (uint8_t)v, again;
        float f;
        comet_convert_to_f32(COMET_U8, &u, 1, &f);
        assert_true(f == (float)v);
        comet_convert_of_f32(COMET_U8, &f, 1, &again);
        assert_int_equal(again, v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_f32),
        cmocka_unit_test(test_of_f32_where_it_turns),
        cmocka_unit_test(test_of_f32_anything),
        cmocka_unit_test(test_back_and_forth),
        cmocka_unit_test(test_u8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
