/* SPDX-License-Identifier: Apache-2.0 */
/* dct: JPEG-ACT's steps against docs/codecs.md, its error, its size, and bodies that lie about their parts. */
#include "unit/codec/test_codec_dct_spec.h"

static comet_codec_params dct_params(int32_t table) {
    comet_codec_params p = params_for(COMET_CODEC_DCT);
    p.dct_table = table;
    return p;
}

static void check_one(rng *r, random_input *in, int32_t table) {
    comet_codec_params p = dct_params(table);
    outcome o = round_trip(r, in->dtype, in->dtype, &in->shape, in->strides, &p, in->patterns);
    spec s = {.shape = &in->shape, .dtype = in->dtype, .count = in->count, .table = table, .in = in->patterns};
    spec_encode(&s);
    assert_int_equal(body_bytes(&o), s.bytes);
    if (s.bytes)
        assert_memory_equal(body_of(&o), s.body, s.bytes);
    assert_memory_equal(o.decoded, s.decoded, (size_t)in->count * comet_dtype_size(in->dtype));
    spec_free(&s);
    outcome_free(&o);
}

static void random_tensors_match_the_specification(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = effort(200); round > 0; round--) {
        random_input in;
        random_input_new(&in, &r, (comet_layout)rng_below(&r, 3), 5000);
        check_one(&r, &in, (int32_t)rng_below(&r, 2));
        random_input_free(&in);
    }
}

/* Several chunks, several batches (with one thread, and with five), blocks across maps and samples. */
static void large_maps_match_the_specification(void **state) {
    (void)state;
    rng r = rng_seed(2);
    const test_shape shapes[] = {
        {COMET_NCHW, 4, {2, 5, 81, 83}}, {COMET_NHWC, 4, {3, 10, 11, 130}}, {COMET_NCHW, 2, {513, 260}},
        {COMET_NHWC, 3, {8, 8, 2000}},   {COMET_NCHW, 5, {2, 3, 4, 10, 9}}, {COMET_NCHW, 4, {1, 40, 60, 60}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        random_input in = {.dtype = all_dtypes[i % 3], .shape = shapes[i], .count = shape_count(&shapes[i])};
        in.patterns = take((size_t)in.count * 4);
        in.strides = (stride_kind)rng_below(&r, STRIDES_OUTPUTS);
        values_fill(&r, i % 2 ? VALUES_SMOOTH : VALUES_RELU, in.dtype, 1.0, 0.1, in.patterns, in.count);
        check_one(&r, &in, 1);
        random_input_free(&in);
    }
}

/* 8 x 8 of one value: only the first coefficient, which is the code itself; clipped at 127 as 144 does not fit. */
static void constant_block(void **state) {
    (void)state;
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = 2.0f;
    comet_codec_params p = dct_params(1);
    test_shape shape = shape_of_4(COMET_NCHW, 1, 1, 8, 8);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    const unsigned char body[] = {0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 127};
    assert_int_equal(body_bytes(&o), sizeof body);
    assert_memory_equal(body_of(&o), body, sizeof body);
    for (int i = 0; i < 64; i++)
        assert_true(((float *)o.decoded)[i] == 127.0f * ((2.0f + 1e-5f) / 144.0f));
    outcome_free(&o);
}

/* Too small for a transform: the codes, by channel. 0.5 of the maximum is 72. */
static void small_maps_keep_their_codes(void **state) {
    (void)state;
    float values[12] = {1, 0.5f, -1, 0, 0.25f, -0.5f, 8, 4, -8, 0, NAN, INFINITY};
    comet_codec_params p = dct_params(1);
    test_shape shape = shape_of_4(COMET_NCHW, 1, 2, 2, 3);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    const float maxima[2] = {1.0f, 8.0f};
    const signed char codes[12] = {127, 72, -128, 0, 36, -72, 127, 72, -128, 0, 0, 127};
    assert_int_equal(body_bytes(&o), sizeof maxima + sizeof codes);
    assert_memory_equal(body_of(&o), maxima, sizeof maxima);
    assert_memory_equal(body_of(&o) + sizeof maxima, codes, sizeof codes);
    outcome_free(&o);
}

/* Smooth maps, as early layers have: sums of slow waves. */
static void smooth_maps(rng *r, float *values, int64_t maps, int64_t side) {
    for (int64_t m = 0; m < maps; m++) {
        double a = rng_unit(r) * 6.0, b = rng_unit(r) * 0.2, c = rng_unit(r) * 0.2;
        for (int64_t i = 0; i < side * side; i++)
            values[m * side * side + i] =
                (float)(sin(a + b * (double)(i / side)) + cos(c * (double)(i % side)) + 0.02 * rng_gauss(r));
    }
}

static double relative_error(const float *in, const float *out, int64_t n) {
    double error = 0.0, power = 0.0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)in[i] - (double)out[i]) * ((double)in[i] - (double)out[i]);
        power += (double)in[i] * (double)in[i];
    }
    return sqrt(error / power);
}

static void check_quality(const test_shape *shape, float *values, int32_t table, double ratio, double error) {
    comet_codec_params p = dct_params(table);
    outcome o = plain_trip(COMET_F32, COMET_F32, shape, &p, values);
    int64_t n = shape_count(shape);
    assert_true((double)n * 4.0 / (double)o.bytes >= ratio);
    assert_true(relative_error(values, o.decoded, n) <= error);
    outcome_free(&o);
}

static void ratio_and_error_on_smooth_maps(void **state) {
    (void)state;
    rng r = rng_seed(5);
    enum { SIDE = 40, MAPS = 12 };
    float *values = take(MAPS * SIDE * SIDE * sizeof *values), *turned = take(MAPS * SIDE * SIDE * sizeof *values);
    smooth_maps(&r, values, MAPS, SIDE);
    for (int m = 0; m < MAPS; m++)
        for (int i = 0; i < SIDE * SIDE; i++)
            turned[i * MAPS + m] = values[m * SIDE * SIDE + i];
    test_shape nchw = shape_of_4(COMET_NCHW, 1, MAPS, SIDE, SIDE), nhwc = shape_of_4(COMET_NHWC, 1, SIDE, SIDE, MAPS);
    check_quality(&nchw, values, 0, 18.0, 0.06);
    check_quality(&nchw, values, 1, 20.0, 0.12);
    check_quality(&nhwc, turned, 0, 18.0, 0.06);
    check_quality(&nhwc, turned, 1, 20.0, 0.12);
    free(turned);
    free(values);
}

/*
 * A coefficient loses less than its divisor, so 64 codes differ by at most 64 * 32 * (1/8) * 2; clipping adds its own.
 */
static void error_of_one_value_is_bounded(void **state) {
    (void)state;
    rng r = rng_seed(6);
    enum { N = 16 * 16 * 3 };
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = (float)(rng_unit(&r) - 0.5);
    comet_codec_params p = dct_params(0);
    test_shape shape = shape_of_4(COMET_NCHW, 1, 3, 16, 16);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    double worst = 0.0;
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs((double)values[i] - (double)((float *)o.decoded)[i]));
    assert_true(worst <= 0.5 / 144.0 * (0.5 + 17.0 + 8.0 * 8.0)); /* coding, clipping, 64 coefficients of up to 8 / 8 */
    assert_true(relative_error(values, o.decoded, N) < 0.09);
    outcome_free(&o);
}

/* An all-zero tensor is 1 bit a value and the offsets, and stays zero. */
static void zeros_cost_a_bit(void **state) {
    (void)state;
    enum { N = 4 * 64 * 64 };
    float *values = calloc(N, sizeof *values);
    assert_non_null(values);
    comet_codec_params p = dct_params(1);
    test_shape shape = shape_of_4(COMET_NCHW, 1, 4, 64, 64);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    assert_int_equal(body_bytes(&o), 4 * 4 + N / 64 / 128 * 8 + N / 8);
    assert_memory_equal(o.decoded, values, N * sizeof *values);
    outcome_free(&o);
    free(values);
}

static void parameters_are_checked(void **state) {
    (void)state;
    float values[64] = {0};
    comet_tensor t;
    size_t bytes;
    const int64_t shape[4] = {1, 1, 8, 8};
    assert_ok(comet_tensor_init(&t, values, COMET_F32, COMET_NCHW, 4, shape));
    for (int32_t table = -1; table <= 3; table++) {
        comet_codec_params p = dct_params(table);
        assert_int_equal(comet_codec_max_bytes(&t, &p, &bytes),
                         table == 0 || table == 1 ? COMET_OK : COMET_ERROR_ARGUMENT);
    }
}

/* No values, but more channels than memory: nothing may be sized by them. */
static void empty_with_huge_channels(void **state) {
    (void)state;
    comet_codec_params p = dct_params(1);
    const int64_t shape[4] = {0, (int64_t)1 << 40, 8, 8};
    unsigned char stream[HEADER];
    comet_tensor t;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    size_t bytes;
    assert_ok(comet_tensor_init(&t, NULL, COMET_F32, COMET_NCHW, 4, shape));
    assert_ok(comet_codec_max_bytes(&t, &p, &bytes));
    assert_int_equal(bytes, HEADER);
    assert_ok(comet_codec_compress(&t, &p, NULL, stream, sizeof stream, &result));
    assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &t));
}

/*
 * One block of coefficients that no encoder writes: the decoder clamps between its passes, and sums stay inside int32.
 */
static void extreme_coefficients(void **state) {
    (void)state;
    rng r = rng_seed(8);
    float values[64];
    test_shape shape = shape_of_4(COMET_NHWC, 1, 8, 8, 1);
    comet_codec_params p = dct_params(1);
    spec s = {.shape = &shape, .table = 1};
    for (int i = 0; i < 64; i++)
        values[i] = (float)rng_gauss(&r) + (i == 0 ? 40.0f : 0.0f);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    unsigned char stream[HEADER + 4 + 8 + 8 + 64];
    memset(stream, 0xff, sizeof stream);
    memcpy(stream, o.stream, HEADER + 4 + 8); /* then a mask of ones, and 64 values */
    uint64_t claim = sizeof stream;
    memcpy(stream + AT_STREAM_BYTES, &claim, sizeof claim);
    float a = values[0] + 1e-5f, step = a / 144.0f; /* the first is the largest */
    for (int round = 0; round < 300; round++) {
        int64_t c[8][8];
        int codes[8][8];
        for (int i = 0; i < 64; i++) {
            /* the signs of the first row of M^T and others like it give the largest sums */
            int sign = round < 64 ? spec_m(i % 8, round % 8) * spec_m(i / 8, round / 8) > 0 : (int)rng_below(&r, 2);
            c[i % 8][i / 8] = sign ? 127 : -128;
            stream[HEADER + 20 + i] = (unsigned char)c[i % 8][i / 8];
        }
        comet_tensor out;
        assert_ok(comet_tensor_init(&out, values, COMET_F32, COMET_NHWC, 4, shape.shape));
        assert_ok(comet_codec_decompress(stream, sizeof stream, NULL, NULL, &out));
        spec_inverse(&s, c, codes);
        for (int i = 0; i < 64; i++)
            assert_true(values[i] == (float)codes[i / 8][i % 8] * step);
    }
    outcome_free(&o);
}

/* One worker must not miss a value: a peak anywhere is found. */
static void the_maximum_is_found_anywhere(void **state) {
    (void)state;
    enum { N = 2 * 3 * 5 * 7 };
    comet_threads *threads;
    assert_ok(comet_threads_new(5, NULL, &threads));
    comet_codec_params p = dct_params(1);
    for (int i = 0; i < 2 * N; i++) {
        float values[N] = {0}, maximum;
        test_shape shape = i < N ? shape_of_4(COMET_NCHW, 2, 3, 5, 7) : shape_of_4(COMET_NHWC, 2, 5, 7, 3);
        int64_t channel = i < N ? i / 35 % 3 : i % N % 3;
        comet_codec_exec e = exec_for(COMET_ISA_AUTO, threads);
        comet_tensor t;
        outcome o;
        values[i % N] = -7.0f;
        assert_ok(comet_tensor_init(&t, values, COMET_F32, shape.layout, 4, shape.shape));
        compress(&t, &p, &e, &o);
        memcpy(&maximum, body_of(&o) + 4 * channel, 4);
        assert_true(maximum == 7.0f);
        outcome_free(&o);
    }
    comet_threads_free(threads);
}

/* All offsets one too large and a byte in front of the values: consistent, but not what an encoder writes. */
static void check_shifted_offsets(const outcome *o, const test_shape *shape, size_t offsets_at, size_t values_at) {
    size_t bytes = o->bytes + 1;
    unsigned char *copy = take(bytes);
    memcpy(copy, o->stream, values_at);
    copy[values_at] = 1;
    memcpy(copy + values_at + 1, o->stream + values_at, o->bytes - values_at);
    for (size_t i = 0; i < 2; i++) {
        uint64_t offset;
        memcpy(&offset, copy + offsets_at + 8 * i, 8);
        offset++;
        memcpy(copy + offsets_at + 8 * i, &offset, 8);
    }
    uint64_t claim = bytes;
    memcpy(copy + AT_STREAM_BYTES, &claim, 8);
    assert_int_equal(decode_quietly(copy, bytes, COMET_F32, shape, NULL), COMET_ERROR_CORRUPT);
    free(copy);
}

static void hostile_streams_are_refused(void **state) {
    (void)state;
    rng r = rng_seed(3);
    enum {
        CHANNELS = 2,
        N = CHANNELS * 72 * 72,
        BLOCKS = 18 * 9,
        OFFSETS = HEADER + 4 * CHANNELS,
        MASKS = OFFSETS + 16
    };
    float *values = take(N * sizeof *values);
    for (int i = 0; i < N; i++)
        values[i] = (float)rng_gauss(&r);
    comet_codec_params p = dct_params(0);
    test_shape shape = shape_of_4(COMET_NCHW, 1, CHANNELS, 72, 72);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    attack(&o, &r, COMET_F32, &shape, effort(1000));
    check_header_is_guarded(&o, COMET_F32, &shape, 1, 0);
    assert_int_equal(decode_with(&o, 28, 2, COMET_F32, &shape), COMET_ERROR_CORRUPT);            /* table */
    assert_int_equal(decode_with(&o, HEADER + 7, 0xff, COMET_F32, &shape), COMET_ERROR_CORRUPT); /* a maximum */
    for (size_t at = OFFSETS; at < MASKS; at++)
        assert_int_equal(decode_with(&o, at, o.stream[at] ^ 0x80, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    for (size_t at = MASKS; at < MASKS + 8 * BLOCKS; at += 5) /* one bit more or less than the offsets say */
        assert_int_equal(decode_with(&o, at, o.stream[at] ^ 0x10, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    check_shifted_offsets(&o, &shape, OFFSETS, MASKS + 8 * BLOCKS);
    outcome_free(&o);
    free(values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_match_the_specification),
        cmocka_unit_test(large_maps_match_the_specification),
        cmocka_unit_test(constant_block),
        cmocka_unit_test(small_maps_keep_their_codes),
        cmocka_unit_test(ratio_and_error_on_smooth_maps),
        cmocka_unit_test(error_of_one_value_is_bounded),
        cmocka_unit_test(zeros_cost_a_bit),
        cmocka_unit_test(parameters_are_checked),
        cmocka_unit_test(empty_with_huge_channels),
        cmocka_unit_test(the_maximum_is_found_anywhere),
        cmocka_unit_test(extreme_coefficients),
        cmocka_unit_test(hostile_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
