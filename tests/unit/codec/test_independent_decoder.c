/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of eb and zvc against the decoder and the encoder that were written from docs/format.md alone: values and
 * bytes of the library and of the text are the same. (test_eb_properties and test_eb_grid send their streams through
 * both too.)
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"
#include "support/codec/samples.h"
#include "support/codec/trip_run.h"
#include "support/effort.h"
#include "support/spec/spec_decoder.h"

static void test_samples(void **state) {
    (void)state;
    static sample_data d;
    static unsigned char stream[SAMPLE_MOST_BYTES];
    static uint32_t ours[SAMPLE_MOST_VALUES], theirs[SAMPLE_MOST_VALUES];
    for (int i = 0; i < sample_count(); i++) {
        failure f;
        if (samples[i].codec != COMET_CODEC_EB && samples[i].codec != COMET_CODEC_ZVC)
            continue;
        sample_make(&samples[i], &d);
        size_t bytes = sample_compress(&d, NULL, stream);
        comet_tensor out = sample_output(&d, theirs);
        assert_true(bytes > 0);
        assert_ok(comet_codec_decompress(stream, bytes, sample_grid(&d), NULL, &out));
        assert_check(spec_decode(stream, bytes, sample_grid(&d), ours, sample_output_bytes(&d), &f), f);
        if (memcmp(ours, theirs, sample_output_bytes(&d)) != 0)
            fail_msg("%s decodes differently", samples[i].name);
    }
}

/* Moves the groups of tiles behind the table into another order, with gaps: the text allows it. */
static size_t scatter_groups(rng *r, const unsigned char *stream, size_t bytes, int64_t tiles, unsigned char *moved) {
    size_t groups = (size_t)(tiles + 7) / 8, table = 128 + 24 * groups, end = table;
    memcpy(moved, stream, table);
    memset(moved + table, 0xEE, 3 * bytes);
    for (size_t done = 0, g = rng_below(r, groups); done < groups; done++, g = (g + 1) % groups) {
        uint64_t from, to, size = 0;
        end += rng_below(r, 50);
        for (int t = 0; t < 8; t++) {
            uint16_t entry;
            memcpy(&entry, stream + 128 + 24 * g + 8 + 2 * (size_t)t, 2);
            size += entry & 0x1fffu;
        }
        memcpy(&from, stream + 128 + 24 * g, 8);
        to = end - table;
        memcpy(moved + 128 + 24 * g, &to, 8);
        memcpy(moved + end, stream + table + from, size);
        end += size;
    }
    uint64_t whole = end;
    memcpy(moved + 16, &whole, 8);
    return end;
}

static void test_groups_in_any_order(void **state) {
    (void)state;
    rng r = rng_seed(1);
    int rounds = effort(60);
    for (int i = 0; i < rounds; i++) {
        failure f;
        trip t;
        trip_stream s, moved;
        void *before = NULL, *after = NULL;
        trip_spec spec = {.dtype = (comet_dtype)rng_below(&r, 4),
                          .shape = {(comet_layout)rng_below(&r, 3), 4, {2, 13, 40, 37}},
                          .values = VALUES_MIXED,
                          .mode = (trip_mode)rng_below(&r, TRIP_MODES),
                          .scale = 1.0,
                          .bound = 0.1};
        comet_codec_exec exec = trip_exec(COMET_ISA_AUTO, NULL);
        trip_new(&t, &r, &spec);
        size_t raw = (size_t)t.count * comet_dtype_size(trip_output_dtype(&t));
        assert_check(trip_compress(&t, &exec, &s, &f), f);
        moved = s;
        moved.bytes = malloc(4 * s.result.bytes + 8192);
        void *spec_values = malloc(raw);
        assert_true(moved.bytes && spec_values);
        moved.result.bytes = scatter_groups(&r, s.bytes, s.result.bytes, s.result.tiles, moved.bytes);
        assert_check(trip_decompress(&t, &s, &exec, &r, STRIDES_CONTIGUOUS, &before, &f), f);
        assert_check(trip_decompress(&t, &moved, &exec, &r, STRIDES_CONTIGUOUS, &after, &f), f);
        assert_memory_equal(before, after, raw);
        assert_check(spec_decode(moved.bytes, moved.result.bytes, trip_grid(&t), spec_values, raw, &f), f);
        assert_memory_equal(spec_values, after, raw);
        free(before);
        free(after);
        free(spec_values);
        trip_stream_free(&s);
        trip_stream_free(&moved);
        trip_free(&t);
    }
}

/* ---- where the encoder's choices turn ---- */

static trip_pools pools;

static void verify_values(const test_shape *shape, trip_mode mode, const float *values) {
    rng r = rng_seed(2);
    failure f;
    trip t;
    trip_spec spec = {.dtype = COMET_F32, .shape = *shape, .mode = mode, .scale = 1.0, .bound = 0.5};
    trip_of_values(&t, &r, &spec, values);
    int good = trip_verify(&t, &r, &pools, &f);
    trip_free(&t);
    assert_check(good, f);
}

/*
 * A flat tile of these codes, in the order of the format: a bound of 1/2 makes the codes of small integers themselves.
 */
static void verify_codes(const int codes[1024]) {
    float values[1024];
    test_shape shape = {COMET_FLAT, 1, {1024}};
    for (int i = 0; i < 1024; i++) {
        int k = i / 256, l = i / 8 % 32, m = i % 8;
        values[32 * l + 8 * k + m] = (float)codes[i];
    }
    verify_values(&shape, TRIP_NEAREST, values);
}

/* Columns with every number of bytes that are not 0, and every number of bits in a single byte. */
static void test_full_and_some_columns(void **state) {
    (void)state;
    for (int bytes = 0; bytes <= 32; bytes++)
        for (int shift = 0; shift < 3; shift++) {
            int codes[1024] = {0};
            for (int l = 0; l < bytes; l++)
                codes[256 * (l % 2 ? 1 : 0) + 8 * l + l % 8] = codes[512 + 8 * l] = codes[768 + 8 * l + 5] =
                    (l % 3 ? 1 : -1) * (1 << shift);
            verify_codes(codes);
        }
    for (int bits = 0; bits <= 8; bits++)
        for (int l = 0; l < 32; l += 31) {
            int codes[1024] = {0};
            for (int m = 0; m < bits; m++)
                codes[256 + 8 * l + m] = 3;
            verify_codes(codes);
        }
}

/*
 * Narrow codes, counted in columns 1 and 6: the first eight lanes are all 1, which prediction saves 64 bits of; each
 * lonely 1 in row 2 of such a column costs it one. At 32 of these the two counts differ by 32, four times which is 128,
 * exactly. What is in the other columns does not matter.
 */
static void test_prediction_that_just_pays(void **state) {
    (void)state;
    for (int lonely = 26; lonely <= 38; lonely++)
        for (int others = 0; others <= 40; others += 20) {
            int codes[1024] = {0};
            for (int i = 0; i < 1024; i++)
                codes[i] = i / 8 % 32 < 8;
            for (int j = 0; j < lonely; j++)
                codes[512 + 8 * (8 + j % 24) + (j < 24 ? 1 : 6)] = 1;
            for (int j = 0; j < others; j++)
                codes[512 + 8 * (8 + j % 24) + (j < 24 ? 3 : 4)] = 1;
            verify_codes(codes);
        }
}

/*
 * Wide codes (one of 200 makes them so), all counted: the first five lanes are all 1, which prediction saves 159 bits
 * of; each lonely 1 in row 2 costs it one. At 31 of these the two counts differ by 128 exactly.
 */
static void test_wide_prediction_that_just_pays(void **state) {
    (void)state;
    for (int lonely = 25; lonely <= 36; lonely++) {
        int codes[1024] = {0};
        for (int i = 0; i < 1024; i++)
            codes[i] = i / 8 % 32 < 5;
        for (int j = 0; j < lonely; j++)
            codes[512 + 8 * (6 + j % 26) + 2 * (j / 26)] = 1;
        codes[1023] = 200;
        verify_codes(codes);
    }
}

/* ---- differences and sums of narrow codes that leave a byte ---- */

enum { MOST_VALUES = 9000 };

/* All on one side of 0, so that prediction pays, but for one in `rarity`. */
static void values_with_jumps(rng *r, uint64_t rarity, float values[MOST_VALUES]) {
    double level = rng_below(r, 2) ? 100.0 : -100.0;
    for (int i = 0; i < MOST_VALUES; i++)
        values[i] = (float)((rng_below(r, rarity) ? level : -level) + (double)rng_between(r, -1, 1));
}

static const test_shape shapes_with_jumps[] = {
    {COMET_FLAT, 1, {3000}},          {COMET_NCHW, 4, {2, 3, 40, 37}}, {COMET_NHWC, 4, {2, 9, 11, 40}},
    {COMET_NHWC, 4, {1, 16, 16, 32}}, {COMET_NCHW, 4, {4, 16, 16, 8}}, {COMET_NHWC, 4, {1, 5, 7, 33}},
};

static void test_values_with_jumps(void **state) {
    (void)state;
    static const uint64_t rarities[] = {40, 300, 3000};
    static float values[MOST_VALUES];
    rng r = rng_seed(4);
    for (size_t s = 0; s < sizeof shapes_with_jumps / sizeof *shapes_with_jumps; s++)
        for (int rarity = 0; rarity < 3; rarity++)
            for (trip_mode mode = TRIP_NEAREST; mode <= TRIP_KEEP_MASK; mode++) {
                values_with_jumps(&r, rarities[rarity], values);
                verify_values(&shapes_with_jumps[s], mode, values);
            }
}

/* Streams with bytes in the second halves of their tiles changed: what is still valid has the text's values. */
static void change_tiles(rng *r, unsigned char *stream, int64_t tiles) {
    size_t start = 128 + 24 * (size_t)((tiles + 7) / 8);
    for (int64_t t = 0; t < tiles; t++) {
        uint16_t entry;
        memcpy(&entry, stream + 128 + 24 * (t / 8) + 8 + 2 * (t % 8), 2);
        size_t bytes = entry & 0x1fffu;
        for (size_t i = bytes / 2; i < bytes; i++)
            if (rng_below(r, 8) == 0)
                stream[start + i] = (unsigned char)rng_next(r);
        start += bytes;
    }
}

static int decodes_alike(const trip *t, const trip_stream *s, rng *r) {
    size_t bytes = (size_t)t->count * 4;
    isa_list isas = isa_list_get();
    failure f;
    void *told = malloc(bytes);
    assert_non_null(told);
    int valid = spec_decode(s->bytes, s->result.bytes, NULL, told, bytes, &f);
    for (int i = 0; i < isas.count && valid; i++) {
        comet_codec_exec exec = trip_exec(isas.isa[i], NULL);
        void *got = NULL;
        if (!trip_decompress(t, s, &exec, r, STRIDES_CONTIGUOUS, &got, &f) || memcmp(got, told, bytes) != 0)
            fail_msg("%s decodes a changed stream to other values", isa_name(isas.isa[i]));
        free(got);
    }
    free(told);
    return valid;
}

static void test_changed_residuals(void **state) {
    (void)state;
    static float values[MOST_VALUES];
    rng r = rng_seed(5);
    int rounds = effort(200), valid = 0;
    for (int i = 0; i < rounds; i++) {
        failure f;
        trip t;
        trip_stream s;
        trip_spec spec = {.dtype = COMET_F32, .mode = TRIP_NEAREST, .scale = 1.0, .bound = 0.5};
        spec.shape = shapes_with_jumps[i % (int)(sizeof shapes_with_jumps / sizeof *shapes_with_jumps)];
        comet_codec_exec exec = trip_exec(COMET_ISA_AUTO, NULL);
        values_with_jumps(&r, 50, values);
        trip_of_values(&t, &r, &spec, values);
        assert_check(trip_compress(&t, &exec, &s, &f), f);
        change_tiles(&r, s.bytes, s.result.tiles);
        valid += decodes_alike(&t, &s, &r);
        trip_stream_free(&s);
        trip_free(&t);
    }
    assert_true(valid > rounds / 4);
}

/* Zeros in a tile of exact values: the bitmap is worth it from 33 on. */
static void test_sparse_that_just_pays(void **state) {
    (void)state;
    for (int zeros = 30; zeros <= 35; zeros++) {
        float values[1024];
        test_shape shape = {COMET_FLAT, 1, {1024}};
        for (int i = 0; i < 1024; i++)
            values[i] = i * 7 % 1024 < zeros ? 0.0f : (float)i + 0.5f;
        verify_values(&shape, TRIP_ZVC, values);
    }
}

/* Tensors of few values, where a code tile is about as large as a raw one. */
static void test_codes_that_just_pay(void **state) {
    (void)state;
    rng r = rng_seed(3);
    for (int count = 1; count <= 40; count++)
        for (int round = 0; round < 10; round++) {
            float values[40];
            test_shape shape = {COMET_FLAT, 1, {count}};
            for (int i = 0; i < count; i++)
                values[i] = (float)rng_between(&r, -(1 << round), 1 << round);
            verify_values(&shape, TRIP_NEAREST, values);
        }
}

static int group_setup(void **state) {
    (void)state;
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
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_groups_in_any_order),
        cmocka_unit_test(test_full_and_some_columns),
        cmocka_unit_test(test_prediction_that_just_pays),
        cmocka_unit_test(test_wide_prediction_that_just_pays),
        cmocka_unit_test(test_values_with_jumps),
        cmocka_unit_test(test_changed_residuals),
        cmocka_unit_test(test_sparse_that_just_pays),
        cmocka_unit_test(test_codes_that_just_pay),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
