/* SPDX-License-Identifier: Apache-2.0 */
/* group: codes between the least and the greatest value of a group, nearest and stochastic. */
#include "unit/codec/test_codec_common.h"

#include <float.h>
#include <math.h>

#include "base/philox.h" /* against its authors' vectors in test_philox.c */

/* ---- docs/codecs.md, section 4, one value at a time ---- */

static void spec_pair(comet_dtype dtype, const void *in, int64_t first, int64_t n, float *min, float *range) {
    float lo = 0.0f, hi = 0.0f;
    int any = 0;
    for (int64_t i = first; i < first + n; i++) {
        float x = value_at(dtype, in, i);
        if (!isfinite(x))
            continue;
        if (!any || x < lo || (x == lo && signbit(x)))
            lo = x;
        if (!any || x > hi || (x == hi && !signbit(x)))
            hi = x;
        any = 1;
    }
    *min = lo;
    *range = hi - lo;
    if (*range < 0x1p-100f)
        *range = 0.0f;
    if (isinf(*range))
        *range = FLT_MAX;
}

static float spec_u(uint64_t seed, int64_t group, int64_t j) {
    uint32_t c[4] = {(uint32_t)group, (uint32_t)((uint64_t)group >> 32), (uint32_t)(j / 8), 1};
    comet_philox(c, seed);
    uint32_t m = (uint32_t)(j % 8), word = c[m / 2], r = m % 2 ? word >> 16 : word & 0xffffu;
    return (float)(2 * r + 1) / 131072.0f;
}

static uint32_t spec_code(float x, float min, float range, uint32_t levels, const float *u) {
    float inv = range > 0.0f ? (float)levels / range : 0.0f;
    float difference = x - min;
    float p = difference * inv;
    p = p > 0.0f ? p : 0.0f;
    p = p < (float)levels ? p : (float)levels;
    if (!u)
        return (uint32_t)rintf(p);
    float sum = p + *u;
    return (uint32_t)floorf(sum < (float)levels ? sum : (float)levels);
}

static float spec_value(uint32_t code, float min, float range, uint32_t levels) {
    float step = range / (float)levels, v = fmaf((float)code, step, min);
    return v < FLT_MAX ? v : FLT_MAX;
}

typedef struct group_case {
    comet_dtype dtype;
    int64_t count;
    const void *in;
    comet_codec_params p;
} group_case;

static size_t spec_bytes(const group_case *g) {
    int64_t groups = (g->count + g->p.group_values - 1) / g->p.group_values;
    return (size_t)(groups * 8 + (g->count * g->p.group_bits + 7) / 8);
}

static void spec_group(const group_case *g, int64_t group, unsigned char *pair, unsigned char *codes, void *decoded) {
    int64_t first = group * g->p.group_values, n = g->count - first;
    uint32_t bits = (uint32_t)g->p.group_bits, levels = (1u << bits) - 1;
    float min, range;
    n = n < g->p.group_values ? n : g->p.group_values;
    spec_pair(g->dtype, g->in, first, n, &min, &range);
    memcpy(pair, &min, 4);
    memcpy(pair + 4, &range, 4);
    for (int64_t j = 0; j < n; j++) {
        float u = spec_u(g->p.seed, group, j);
        uint32_t code = spec_code(value_at(g->dtype, g->in, first + j), min, range, levels,
                                  g->p.rounding == COMET_ROUND_STOCHASTIC ? &u : NULL);
        uint64_t at = (uint64_t)(first + j) * bits;
        codes[at / 8] |= (unsigned char)(code << at % 8);
        bits_put(g->dtype, decoded, first + j, bits_of_number(g->dtype, (double)spec_value(code, min, range, levels)));
    }
}

static void spec_encode(const group_case *g, unsigned char *body, void *decoded) {
    int64_t groups = (g->count + g->p.group_values - 1) / g->p.group_values;
    memset(body, 0, spec_bytes(g));
    for (int64_t i = 0; i < groups; i++)
        spec_group(g, i, body + 8 * i, body + 8 * groups, decoded);
}

/* ---- tests ---- */

static comet_codec_params group_params(int32_t bits, int32_t values, comet_rounding rounding) {
    comet_codec_params p = params_for(COMET_CODEC_GROUP);
    p.group_bits = bits;
    p.group_values = values;
    p.rounding = rounding;
    p.seed = 0x123456789abcdef0u;
    return p;
}

static void check_one(rng *r, random_input *in, const comet_codec_params *p) {
    outcome o = round_trip(r, in->dtype, in->dtype, &in->shape, in->strides, p, in->patterns);
    group_case g = {in->dtype, in->count, in->patterns, *p};
    size_t bytes = spec_bytes(&g), decoded_bytes = (size_t)in->count * comet_dtype_size(in->dtype);
    unsigned char *body = take(bytes);
    void *decoded = take(decoded_bytes);
    spec_encode(&g, body, decoded);
    assert_int_equal(body_bytes(&o), bytes);
    assert_memory_equal(body_of(&o), body, bytes);
    assert_memory_equal(o.decoded, decoded, decoded_bytes);
    assert_int_equal(o.stream[10] & 4, p->rounding == COMET_ROUND_STOCHASTIC ? 4 : 0);
    free(decoded);
    free(body);
    outcome_free(&o);
}

static void random_tensors_match_the_specification(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const int32_t values[] = {32, 64, 96, 256, 1024, 1056, 65536};
    for (int round = effort(250); round > 0; round--) {
        random_input in;
        random_input_new(&in, &r, (comet_layout)rng_below(&r, 3), 5000);
        comet_codec_params p =
            group_params(2 << rng_below(&r, 3), values[rng_below(&r, 7)], (comet_rounding)rng_below(&r, 2));
        p.seed = rng_next(&r);
        check_one(&r, &in, &p);
        random_input_free(&in);
    }
}

/* Five values in one group, worked out by hand: min -1, range 3, one level a unit (2 bits). */
static void tiny_example(void **state) {
    (void)state;
    float values[5] = {-1.0f, 0.4f, 2.0f, 0.5f, 1.5f}; /* places 0, 1.4, 3, 1.5, 2.5 */
    const unsigned char body[10] = {0, 0, 0x80, 0xbf, 0, 0, 0x40, 0x40, 0 | 1 << 2 | 3 << 4 | 2 << 6, 2};
    const float decoded[5] = {-1, 0, 2, 1, 1}; /* ties went to even: 1.5 to 2, 2.5 to 2 */
    comet_codec_params p = group_params(2, 32, COMET_ROUND_NEAREST);
    test_shape shape = shape_of_1(5);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    assert_int_equal(body_bytes(&o), sizeof body);
    assert_memory_equal(body_of(&o), body, sizeof body);
    assert_memory_equal(o.decoded, decoded, sizeof decoded);
    outcome_free(&o);
}

/* The error of every finite value against its own group's range. */
static void check_error(comet_dtype dtype, const void *in, const void *out, int64_t count,
                        const comet_codec_params *p) {
    double levels = (double)((1 << p->group_bits) - 1), share = p->rounding == COMET_ROUND_STOCHASTIC ? 1.0 : 0.5;
    double precision = dtype == COMET_F32 ? 0x1p-22 : dtype == COMET_F16 ? 0x1p-10 : 0x1p-7;
    for (int64_t first = 0; first < count; first += p->group_values) {
        int64_t end = first + p->group_values < count ? first + p->group_values : count;
        double lo = INFINITY, hi = -INFINITY;
        for (int64_t i = first; i < end; i++) {
            lo = fmin(lo, (double)value_at(dtype, in, i));
            hi = fmax(hi, (double)value_at(dtype, in, i));
        }
        double most = (hi - lo) / levels * share * 1.0001 + precision * fmax(fabs(lo), fabs(hi));
        for (int64_t i = first; i < end; i++)
            assert_true(fabs((double)value_at(dtype, in, i) - (double)value_at(dtype, out, i)) <= most);
    }
}

static void errors_stay_within_a_step(void **state) {
    (void)state;
    rng r = rng_seed(4);
    enum { N = 3000 };
    float *values = take(N * sizeof *values);
    for (int i = 0; i < 3 * 3 * 2; i++) {
        comet_dtype dtype = all_dtypes[i % 3];
        comet_codec_params p = group_params(2 << i / 3 % 3, 256, i < 9 ? COMET_ROUND_NEAREST : COMET_ROUND_STOCHASTIC);
        test_shape shape = shape_of_1(N);
        values_fill(&r, i % 2 ? VALUES_GAUSS : VALUES_OUTLIERS, dtype, 3.0, 0.1, values, N);
        outcome o = plain_trip(dtype, dtype, &shape, &p, values);
        check_error(dtype, values, o.decoded, N, &p);
        outcome_free(&o);
    }
    free(values);
}

/* The mean over many seeds comes to the value itself; rounding to nearest would miss by up to half a step. */
static void stochastic_rounding_is_unbiased(void **state) {
    (void)state;
    enum { N = 64, SEEDS = 4000 };
    float values[N], decoded[N];
    double sums[N] = {0};
    test_shape shape = shape_of_1(N);
    comet_tensor in, out;
    for (int i = 0; i < N; i++)
        values[i] = i % 32 == 0 ? 0.0f : i % 32 == 31 ? 3.0f : (float)(i % 32) * 0.09f; /* step 1 at 2 bits */
    assert_ok(comet_tensor_init(&in, values, COMET_F32, COMET_FLAT, 1, shape.shape));
    assert_ok(comet_tensor_init(&out, decoded, COMET_F32, COMET_FLAT, 1, shape.shape));
    for (int s = 0; s < SEEDS; s++) {
        unsigned char stream[256];
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        comet_codec_params p = group_params(2, 32, COMET_ROUND_STOCHASTIC);
        p.seed = (uint64_t)s;
        assert_ok(comet_codec_compress(&in, &p, NULL, stream, sizeof stream, &result));
        assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &out));
        for (int i = 0; i < N; i++)
            sums[i] += (double)decoded[i];
    }
    for (int i = 0; i < N; i++) /* a deviation is at most 0.5 / sqrt(4000) = 0.008: five of them */
        assert_true(fabs(sums[i] / SEEDS - (double)values[i]) < 0.04);
}

/* Different seeds, groups and blocks must not share their random bits. */
static void random_bits_differ(void **state) {
    (void)state;
    enum { N = 4096 };
    float *values = take(N * sizeof *values);
    for (int i = 0; i < N; i++)
        values[i] = i % 1024 == 0 ? 0.0f : i % 1024 == 1 ? 1.0f : 0.5f; /* 127.5 of 255: up or down */
    comet_codec_params p = group_params(8, 1024, COMET_ROUND_STOCHASTIC);
    test_shape shape = shape_of_1(N);
    outcome a = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    p.seed++;
    outcome b = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    const unsigned char *x = body_of(&a) + 4 * 8, *y = body_of(&b) + 4 * 8;
    int seeds = 0, groups = 0, pieces = 0, up = 0;
    for (int i = 8; i < 1000; i++) {
        seeds += x[i] != y[i];
        groups += x[i] != x[i + 1024];
        pieces += x[i] != x[i + 8];
        up += x[i] == 128;
    }
    assert_in_range(seeds, 400, 592);
    assert_in_range(groups, 400, 592);
    assert_in_range(pieces, 400, 592);
    assert_in_range(up, 400, 592);
    outcome_free(&a);
    outcome_free(&b);
    free(values);
}

/* 255 + u rounds up to 256 for the largest u: that must not become code 0. */
static void the_top_stays_the_top(void **state) {
    (void)state;
    enum { N = 65536 };
    float *values = take(N * sizeof *values);
    comet_codec_params p = group_params(8, N, COMET_ROUND_STOCHASTIC);
    test_shape shape = shape_of_1(N);
    for (int i = 0; i < N; i++)
        values[i] = i == 0 ? 0.0f : 255.0f;
    int largest = 0;
    for (p.seed = 0; !largest; p.seed += !largest) /* two seeds of three have such a u among 65,536 */
        for (int i = 1; i < N; i++)
            largest |= 255.0f + spec_u(p.seed, 0, i) == 256.0f;
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    for (int i = 1; i < N; i++)
        assert_int_equal(body_of(&o)[8 + i], 255);
    outcome_free(&o);
    free(values);
}

static void decode_group(float *values, int64_t n, float *decoded) {
    comet_codec_params p = group_params(4, 32, COMET_ROUND_NEAREST);
    test_shape shape = shape_of_1(n);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    memcpy(decoded, o.decoded, (size_t)n * sizeof *decoded);
    outcome_free(&o);
}

static void values_that_are_not_finite(void **state) {
    (void)state;
    float values[6] = {NAN, INFINITY, -INFINITY, 0.0f, 15.0f, 7.0f}, decoded[6];
    const float expected[6] = {0, 15, 0, 0, 15, 7};
    decode_group(values, 6, decoded);
    assert_memory_equal(decoded, expected, sizeof expected);
    float none[3] = {NAN, INFINITY, -INFINITY};
    const float zeros[3] = {0, 0, 0};
    decode_group(none, 3, decoded);
    assert_memory_equal(decoded, zeros, sizeof zeros);
}

static void ranges_at_the_ends_of_fp32(void **state) {
    (void)state;
    /* the range overflows: the top clamps, nothing is infinite */
    float decoded[3], wide[3] = {-FLT_MAX, 0.0f, FLT_MAX};
    decode_group(wide, 3, decoded);
    assert_true(decoded[0] == -FLT_MAX && isfinite(decoded[1]) && isfinite(decoded[2]));
    float full[3] = {0.0f, FLT_MAX / 15.0f, FLT_MAX};
    decode_group(full, 3, decoded);
    assert_true(decoded[0] == 0.0f && decoded[2] == FLT_MAX && fabsf(decoded[1] / full[1] - 1.0f) < 1e-6f);
    float rounded[2] = {0x1.5c2028p+110f, FLT_MAX}; /* min + 15 steps, rounded, would be infinite */
    decode_group(rounded, 2, decoded);
    assert_true(decoded[0] == rounded[0] && decoded[1] == FLT_MAX);
    float least[3] = {0.0f, 0x1p-100f, 0x1p-101f};
    decode_group(least, 3, decoded);
    assert_true(decoded[0] == 0.0f && decoded[1] == 0x1p-100f && fabsf(decoded[2] / 0x1p-101f - 1.0f) < 0.1f);
    float below[3] = {1e-35f, 1e-35f + 0x1p-101f, 1e-35f};
    decode_group(below, 3, decoded);
    assert_true(decoded[0] == 1e-35f && decoded[1] == 1e-35f && decoded[2] == 1e-35f);
}

static void parameters_are_checked(void **state) {
    (void)state;
    float values[64] = {0};
    comet_tensor t;
    size_t bytes;
    const int64_t shape[1] = {64};
    assert_ok(comet_tensor_init(&t, values, COMET_F32, COMET_FLAT, 1, shape));
    for (int32_t bits = -2; bits <= 16; bits++) {
        comet_codec_params p = group_params(bits, 256, COMET_ROUND_NEAREST);
        int valid = bits == 2 || bits == 4 || bits == 8;
        assert_int_equal(comet_codec_max_bytes(&t, &p, &bytes), valid ? COMET_OK : COMET_ERROR_ARGUMENT);
    }
    static const int32_t wrong[] = {-32, 0, 1, 16, 31, 33, 48, 65535, 65568, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        comet_codec_params p = group_params(4, wrong[i], COMET_ROUND_NEAREST);
        assert_int_equal(comet_codec_max_bytes(&t, &p, &bytes), COMET_ERROR_ARGUMENT);
    }
}

/* With a minimum or a range (at byte `at`) replaced. */
static comet_status decode_with_u32(const outcome *o, size_t at, uint32_t value, const test_shape *shape) {
    unsigned char *copy = take(o->bytes);
    memcpy(copy, o->stream, o->bytes);
    memcpy(copy + at, &value, sizeof value);
    comet_status status = decode_quietly(copy, o->bytes, COMET_F32, shape, NULL);
    free(copy);
    return status;
}

static void hostile_streams_are_refused(void **state) {
    (void)state;
    rng r = rng_seed(3);
    float values[99];
    test_shape shape = shape_of_1(99);
    values_fill(&r, VALUES_GAUSS, COMET_F32, 1.0, 0.1, values, 99);
    comet_codec_params p = group_params(2, 32, COMET_ROUND_STOCHASTIC);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    attack(&o, &r, COMET_F32, &shape, effort(1000));
    check_header_is_guarded(&o, COMET_F32, &shape, 1, 1);
    static const unsigned char bits[] = {0, 1, 3, 16};
    for (size_t i = 0; i < sizeof bits; i++)
        assert_int_equal(decode_with(&o, 28, bits[i], COMET_F32, &shape), COMET_ERROR_CORRUPT);
    assert_int_equal(decode_with(&o, 32, 0, COMET_F32, &shape), COMET_ERROR_CORRUPT); /* values a group */
    assert_int_equal(decode_with(&o, 32, 33, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    assert_int_equal(decode_with(&o, 39, 0x80, COMET_F32, &shape), COMET_ERROR_CORRUPT);
    static const uint32_t not_finite[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(decode_with_u32(&o, HEADER + 8, not_finite[i], &shape), COMET_ERROR_CORRUPT);
        assert_int_equal(decode_with_u32(&o, HEADER + 8 + 4, not_finite[i], &shape), COMET_ERROR_CORRUPT);
    }
    assert_int_equal(decode_with_u32(&o, HEADER + 8, 0xff7fffffu, &shape), COMET_OK); /* any finite minimum will do */
    assert_int_equal(decode_with_u32(&o, HEADER + 8 + 4, 0x7f7fffffu, &shape), COMET_OK);
    assert_int_equal(decode_with_u32(&o, HEADER + 8 + 4, 0xbf800000u, &shape),
                     COMET_ERROR_CORRUPT); /* negative range */
    assert_int_equal(decode_with(&o, o.bytes - 1, o.stream[o.bytes - 1] | 0x40, COMET_F32, &shape),
                     COMET_ERROR_CORRUPT); /* 99 codes leave two bits */
    outcome_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_match_the_specification),
        cmocka_unit_test(tiny_example),
        cmocka_unit_test(errors_stay_within_a_step),
        cmocka_unit_test(stochastic_rounding_is_unbiased),
        cmocka_unit_test(random_bits_differ),
        cmocka_unit_test(the_top_stays_the_top),
        cmocka_unit_test(values_that_are_not_finite),
        cmocka_unit_test(ranges_at_the_ends_of_fp32),
        cmocka_unit_test(parameters_are_checked),
        cmocka_unit_test(hostile_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
