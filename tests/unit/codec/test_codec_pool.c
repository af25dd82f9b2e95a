/* SPDX-License-Identifier: Apache-2.0 */
/* pool: averages of what each block covers, repeated; no map is shifted. */
#include "unit/codec/test_codec_common.h"

#include <math.h>

typedef struct maps {
    int64_t outer, height, width, inner;
} maps;

/* docs/codecs.md, section 0; 0 if there are none. */
static int maps_of(const test_shape *s, maps *m) {
    int32_t at = s->ndim - (s->layout == COMET_NHWC ? 3 : 2);
    if (s->layout == COMET_FLAT || at < 0 || (s->layout == COMET_NCHW && s->ndim == 3))
        return 0;
    m->outer = 1;
    for (int32_t d = 0; d < at; d++)
        m->outer *= s->shape[d];
    m->height = s->shape[at];
    m->width = s->shape[at + 1];
    m->inner = s->layout == COMET_NHWC ? s->shape[at + 2] : 1;
    return 1;
}

static int64_t index_of(const maps *m, int64_t o, int64_t y, int64_t x, int64_t c) {
    return ((o * m->height + y) * m->width + x) * m->inner + c;
}

/* Section 3: one block. */
static uint32_t spec_average(const maps *m, int64_t k, comet_dtype dtype, const void *in, int64_t o, int64_t by,
                             int64_t bx, int64_t c) {
    float sum = 0.0f;
    int n = 0;
    for (int64_t y = by * k; y < by * k + k && y < m->height; y++)
        for (int64_t x = bx * k; x < bx * k + k && x < m->width; x++) {
            float v = value_at(dtype, in, index_of(m, o, y, x, c));
            sum = n++ == 0 ? v : sum + v;
        }
    float mean = sum / (float)n;
    return bits_of_number(dtype, isnan(mean) ? (double)NAN : (double)mean);
}

/* The pooled body; returns its values. */
static int64_t spec_body(const maps *m, int64_t k, comet_dtype dtype, const void *in, void *body) {
    int64_t height = (m->height + k - 1) / k, width = (m->width + k - 1) / k, n = 0;
    for (int64_t o = 0; o < m->outer; o++)
        for (int64_t by = 0; by < height; by++)
            for (int64_t bx = 0; bx < width; bx++)
                for (int64_t c = 0; c < m->inner; c++)
                    bits_put(dtype, body, n++, spec_average(m, k, dtype, in, o, by, bx, c));
    return n;
}

static void check_upsampled(const maps *m, int64_t k, comet_dtype dtype, const void *body, const void *decoded) {
    maps p = {m->outer, (m->height + k - 1) / k, (m->width + k - 1) / k, m->inner};
    for (int64_t o = 0; o < m->outer; o++)
        for (int64_t y = 0; y < m->height; y++)
            for (int64_t x = 0; x < m->width; x++)
                for (int64_t c = 0; c < m->inner; c++)
                    assert_int_equal(bits_at(dtype, decoded, index_of(m, o, y, x, c)),
                                     bits_at(dtype, body, index_of(&p, o, y / k, x / k, c)));
}

static void check_one(rng *r, random_input *in, int32_t k) {
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    p.pool_block = k;
    maps m;
    if (!maps_of(&in->shape, &m)) {
        size_t bytes;
        comet_tensor t;
        assert_ok(comet_tensor_init(&t, in->patterns, in->dtype, in->shape.layout, in->shape.ndim, in->shape.shape));
        assert_int_equal(comet_codec_max_bytes(&t, &p, &bytes), COMET_ERROR_UNSUPPORTED);
        return;
    }
    outcome o = round_trip(r, in->dtype, in->dtype, &in->shape, in->strides, &p, in->patterns);
    size_t size = comet_dtype_size(in->dtype);
    void *body = take((size_t)in->count * size);
    int64_t n = in->count ? spec_body(&m, k, in->dtype, in->patterns, body) : 0;
    assert_int_equal(body_bytes(&o), (size_t)n * size);
    assert_memory_equal(body_of(&o), body, (size_t)n * size);
    if (in->count)
        check_upsampled(&m, k, in->dtype, body, o.decoded);
    free(body);
    outcome_free(&o);
}

static void random_tensors_match_the_specification(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const int32_t blocks[] = {1, 2, 3, 4, 5, 7, 8, 16, 63, 64};
    for (int round = effort(250); round > 0; round--) {
        random_input in;
        random_input_new(&in, &r, (comet_layout)rng_below(&r, 3), 4000);
        check_one(&r, &in, blocks[rng_below(&r, 10)]);
        random_input_free(&in);
    }
}

/* Rows and pixels too long for one part: the segments must join without a seam. */
static void long_rows_and_wide_pixels(void **state) {
    (void)state;
    rng r = rng_seed(2);
    const test_shape shapes[] = {
        {COMET_NCHW, 2, {5, 9001}},    {COMET_NHWC, 3, {3, 2500, 3}},    {COMET_NHWC, 3, {3, 5, 3000}},
        {COMET_NHWC, 3, {2, 3, 4100}}, {COMET_NCHW, 5, {2, 3, 2, 9, 8}}, {COMET_NHWC, 5, {2, 2, 7, 9, 5}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int32_t k = 2; k <= 64; k *= k < 8 ? 2 : 8) {
            random_input in = {.dtype = k == 4 ? COMET_BF16 : COMET_F32, .shape = shapes[i]};
            in.strides = (stride_kind)rng_below(&r, STRIDES_OUTPUTS);
            in.count = shape_count(&in.shape);
            in.patterns = take((size_t)in.count * 4);
            values_fill(&r, VALUES_GAUSS, in.dtype, 1.0, 0.1, in.patterns, in.count);
            check_one(&r, &in, k);
            random_input_free(&in);
        }
}

/* 3 x 3 with k = 2: the hand-computed averages of 4, 2, 2 and 1 values. */
static void tiny_example(void **state) {
    (void)state;
    float values[9] = {1, 2, 10, 3, 6, 20, -5, -7, 4};
    const float body[4] = {3, 15, -6, 4};
    const float decoded[9] = {3, 3, 15, 3, 3, 15, -6, -6, 4};
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    test_shape shape = shape_of_4(COMET_NCHW, 1, 1, 3, 3);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    assert_int_equal(body_bytes(&o), sizeof body);
    assert_memory_equal(body_of(&o), body, sizeof body);
    assert_memory_equal(o.decoded, decoded, sizeof decoded);
    outcome_free(&o);
}

/*
 * 7 x 7, the map on which the published code shifts (k = 2, 4) or fails (k = 8). A map that is constant on the blocks
 * comes back exactly, which it would not if it were shifted by a pixel.
 */
static void no_shift_on_7_by_7(void **state) {
    (void)state;
    for (int32_t k = 2; k <= 8; k *= 2) {
        float values[2 * 49];
        for (int i = 0; i < 98; i++)
            values[i] = (float)(1 + i / 49 * 100 + i % 49 / 7 / k * 10 + i % 7 / k);
        comet_codec_params p = params_for(COMET_CODEC_POOL);
        p.pool_block = k;
        test_shape shape = shape_of_4(COMET_NCHW, 1, 2, 7, 7);
        outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
        size_t side = (size_t)(7 + k - 1) / (size_t)k;
        assert_int_equal(body_bytes(&o), 2 * side * side * sizeof(float));
        assert_memory_equal(o.decoded, values, sizeof values);
        outcome_free(&o);
    }
}

static void nan_and_infinity_spread_inside_their_block_only(void **state) {
    (void)state;
    float values[8] = {1, 2, NAN, -INFINITY, INFINITY, 3, -INFINITY, 5};
    uint32_t odd_nan = 0xffa12345u;
    memcpy(&values[2], &odd_nan, 4);
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    test_shape shape = {COMET_NCHW, 2, {2, 4}};
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    const uint32_t body[2] = {0x7f800000u, 0x7fc00000u}; /* +Inf, and the one NaN */
    assert_memory_equal(body_of(&o), body, sizeof body);
    outcome_free(&o);
}

/* The sum starts as the first value, not as +0. */
static void minus_zero_stays(void **state) {
    (void)state;
    float values[6] = {-0.0f, -0.0f, -0.0f, 0.0f, -0.0f, -0.0f};
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    test_shape shape = {COMET_NCHW, 2, {1, 6}};
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    const uint32_t body[3] = {0x80000000u, 0, 0x80000000u};
    assert_memory_equal(body_of(&o), body, sizeof body);
    outcome_free(&o);
}

static void parameters_are_checked(void **state) {
    (void)state;
    float values[64] = {0};
    comet_tensor t;
    size_t bytes;
    const int64_t shape[4] = {1, 1, 8, 8};
    assert_ok(comet_tensor_init(&t, values, COMET_F32, COMET_NCHW, 4, shape));
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    for (int32_t k = -1; k <= 66; k++) {
        p.pool_block = k;
        assert_int_equal(comet_codec_max_bytes(&t, &p, &bytes), k >= 1 && k <= 64 ? COMET_OK : COMET_ERROR_ARGUMENT);
    }
}

static void hostile_streams_are_refused(void **state) {
    (void)state;
    rng r = rng_seed(3);
    float values[2 * 7 * 9];
    comet_codec_params p = params_for(COMET_CODEC_POOL);
    test_shape shape = shape_of_4(COMET_NHWC, 1, 7, 9, 2);
    values_fill(&r, VALUES_GAUSS, COMET_F32, 1.0, 0.1, values, 2 * 7 * 9);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    attack(&o, &r, COMET_F32, &shape, effort(1000));
    check_header_is_guarded(&o, COMET_F32, &shape, 1, 0);
    assert_int_equal(decode_with(&o, 28, 0, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    assert_int_equal(decode_with(&o, 28, 65, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    assert_int_equal(decode_with(&o, 31, 0x80, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    test_shape flat = shape;
    flat.layout = COMET_FLAT; /* a flat tensor has no maps, whatever the header says */
    assert_int_equal(decode_with(&o, 9, COMET_FLAT, COMET_F32, &flat), COMET_ERROR_CORRUPT);
    outcome_free(&o);
    p.pool_block = 16; /* one block a map: larger ones would fit the body, but are out of range */
    o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    for (int k = 14; k < 256; k++)
        assert_int_equal(decode_with(&o, 28, (unsigned char)k, COMET_F32, &shape),
                         k <= 64 ? COMET_OK : COMET_ERROR_CORRUPT);
    outcome_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_match_the_specification),
        cmocka_unit_test(long_rows_and_wide_pixels),
        cmocka_unit_test(tiny_example),
        cmocka_unit_test(no_shift_on_7_by_7),
        cmocka_unit_test(nan_and_infinity_spread_inside_their_block_only),
        cmocka_unit_test(minus_zero_stays),
        cmocka_unit_test(parameters_are_checked),
        cmocka_unit_test(hostile_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
