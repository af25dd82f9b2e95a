/* SPDX-License-Identifier: Apache-2.0 */
/* mask: one bit a value, and every output type. */
#include "unit/codec/test_codec_common.h"

#include <math.h>

/* docs/codecs.md, section 2, one value at a time. */
static void spec_body(comet_dtype dtype, const void *patterns, int64_t count, unsigned char *body) {
    memset(body, 0, (size_t)(count + 7) / 8);
    for (int64_t i = 0; i < count; i++)
        if (number_of_bits(dtype, bits_at(dtype, patterns, i)) > 0.0)
            body[i / 8] |= (unsigned char)(1u << i % 8);
}

static void random_tensors_match_the_specification(void **state) {
    (void)state;
    rng r = rng_seed(1);
    comet_codec_params p = params_for(COMET_CODEC_MASK);
    for (int round = effort(150); round > 0; round--) {
        random_input in;
        random_input_new(&in, &r, (comet_layout)rng_below(&r, 3), 6000);
        comet_dtype out = all_dtypes[rng_below(&r, 4)];
        outcome o = round_trip(&r, in.dtype, out, &in.shape, in.strides, &p, in.patterns);
        size_t bytes = (size_t)(in.count + 7) / 8;
        unsigned char *body = take(bytes);
        spec_body(in.dtype, in.patterns, in.count, body);
        assert_int_equal(body_bytes(&o), bytes);
        assert_memory_equal(body_of(&o), body, bytes);
        for (int64_t i = 0; i < in.count; i++)
            assert_true(number_of_bits(out, bits_at(out, o.decoded, i)) == (double)(body[i / 8] >> i % 8 & 1));
        free(body);
        outcome_free(&o);
        random_input_free(&in);
    }
}

static void tiny_example(void **state) {
    (void)state;
    float values[11] = {1.0f, -1.0f, 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 0x1p-149f, -0x1p-149f, 2.0f, -NAN};
    const unsigned char expected[2] = {0xA1, 0x02};
    const float decoded[11] = {1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0};
    comet_codec_params p = params_for(COMET_CODEC_MASK);
    test_shape shape = shape_of_1(11);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    assert_int_equal(body_bytes(&o), 2);
    assert_memory_equal(body_of(&o), expected, 2);
    assert_memory_equal(o.decoded, decoded, sizeof decoded);
    outcome_free(&o);
}

/* All 65,536 patterns of the 16-bit types, and all of u8. */
static void every_small_pattern(void **state) {
    (void)state;
    comet_codec_params p = params_for(COMET_CODEC_MASK);
    uint16_t *patterns = take(65536 * sizeof *patterns);
    unsigned char *body = take(8192);
    for (int d = 1; d < 4; d++) {
        comet_dtype dtype = all_dtypes[d];
        int64_t count = dtype == COMET_U8 ? 256 : 65536;
        for (int64_t i = 0; i < count; i++)
            bits_put(dtype, patterns, i, (uint32_t)i);
        test_shape shape = shape_of_1(count);
        outcome o = plain_trip(dtype, dtype, &shape, &p, patterns);
        spec_body(dtype, patterns, count, body);
        assert_memory_equal(body_of(&o), body, (size_t)count / 8);
        outcome_free(&o);
    }
    free(body);
    free(patterns);
}

static void hostile_streams_are_refused(void **state) {
    (void)state;
    rng r = rng_seed(3);
    float values[45];
    comet_codec_params p = params_for(COMET_CODEC_MASK);
    test_shape shape = shape_of_1(45);
    values_fill(&r, VALUES_GAUSS, COMET_F32, 1.0, 0.1, values, 45);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    attack(&o, &r, COMET_F32, &shape, effort(500));
    check_header_is_guarded(&o, COMET_F32, &shape, 0, 0);
    /* 45 values use 5 bits of the last byte. */
    for (unsigned bit = 0; bit < 8; bit++) {
        unsigned char last = (unsigned char)(o.stream[o.bytes - 1] | 1u << bit);
        comet_status expected = bit < 5 ? COMET_OK : COMET_ERROR_CORRUPT;
        assert_int_equal(decode_with(&o, o.bytes - 1, last, COMET_F32, &shape), expected);
    }
    outcome_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_match_the_specification),
        cmocka_unit_test(tiny_example),
        cmocka_unit_test(every_small_pattern),
        cmocka_unit_test(hostile_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
