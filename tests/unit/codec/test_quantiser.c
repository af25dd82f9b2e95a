/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quantiser: its tables against those of docs/format.md, computed here another way, and the promise itself for
 * every one of the 65,536 values of fp16 and bf16, through the public calls, for many bounds and all modes.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/eb/quantiser.h"
#include "codec/stream_header.h"
#include "support/codec/checker.h"
#include "support/codec/isas.h"
#include "support/effort.h"
#include "support/number.h"
#include "support/rng.h"

/* ---- the tables, in double ---- */

typedef struct row {
    int exists, wide;
    double step, limit, margin;
    quantiser_mode mode;
} row;

static double cut(double v, int n) {
    int exponent;
    double m = frexp(v, &exponent);
    return ldexp(floor(ldexp(m, n)), exponent - n);
}

static double rounded(double v) {
    return (double)(float)v;
}

static double step_of(double target, double factor, int bits) {
    return cut(rounded(target * factor), bits);
}

static double margin_of(quantiser_mode mode) {
    return mode == QUANTISE_GRID ? 2.0 : mode == QUANTISE_STOCHASTIC || mode == QUANTISE_KEEP_RISE ? 1.0 : 0.0;
}

static quantiser_mode mode_of(unsigned flags) {
    return flags & STREAM_GRID         ? QUANTISE_GRID
           : flags & STREAM_KEEP_MASK  ? QUANTISE_KEEP_RISE
           : flags & STREAM_STOCHASTIC ? QUANTISE_STOCHASTIC
                                       : QUANTISE_NEAREST;
}

static row row_f32(int index, double target, quantiser_mode mode) {
    int wide = index == QUANTISER_WIDE, is_grid = mode == QUANTISE_GRID;
    double limit = wide ? (is_grid ? 8000.0 : 32000.0) : is_grid && index == 0 ? 64.0 : 127.0;
    double step = step_of(target, wide ? 1.0 - 0x1p-6 : 1.0 - 0x1p-12, wide ? 16 : 15);
    return (row){index <= is_grid || wide, wide, step, limit, margin_of(mode), mode};
}

static row row_half(comet_dtype dtype, int index, double bound, double target, quantiser_mode mode) {
    static const struct {
        int bits, limit, keep_limit; /* limit 0: not in this mode */
    } narrow[2][4] = {{{6, 32, 16}, {5, 64, 32}, {4, 127, 64}, {3, 0, 127}},
                      {{4, 16, 8}, {3, 32, 16}, {2, 64, 32}, {1, 127, 127}}};
    int keep = mode == QUANTISE_KEEP_RISE, is_f16 = dtype == COMET_F16;
    if (index == QUANTISER_WIDE) {
        double step = cut(keep ? bound : target, 1);
        quantiser_mode wide_mode = keep ? QUANTISE_KEEP_TREAD : mode;
        return (row){1, 1, is_f16 && step < 0x1p-24 ? 0x1p-24 : step, 32000.0, margin_of(wide_mode), wide_mode};
    }
    int bits = narrow[!is_f16][index].bits;
    double step = step_of(target, 1.0 - 0x1p-12, bits),
           limit = keep ? narrow[!is_f16][index].keep_limit : narrow[!is_f16][index].limit;
    int exists = limit > 0.0 && (!is_f16 || step >= ldexp(1.0, bits - 24));
    return (row){exists, 0, step, limit, margin_of(mode), mode};
}

static row row_u8(int index, double bound, quantiser_mode mode) {
    double whole = floor(bound), step = 2.0 * whole + 1.0;
    if (mode == QUANTISE_STOCHASTIC)
        step = whole > 1.0 ? whole : 1.0;
    if (mode == QUANTISE_KEEP_RISE) {
        step = whole + 1.0;
        mode = QUANTISE_KEEP_TREAD;
    }
    int wide = index == QUANTISER_WIDE;
    double margin = margin_of(mode), limit = wide ? 255.0 + margin : 127.0;
    return (row){index == 0 || wide, wide, step, limit, margin, mode};
}

static row row_of(comet_dtype dtype, int index, double bound, unsigned flags) {
    quantiser_mode mode = mode_of(flags);
    double target = mode == QUANTISE_STOCHASTIC ? bound : 2.0 * bound;
    if (dtype == COMET_U8)
        return row_u8(index, bound, mode);
    if (bound == 0.0)
        return (row){0};
    return dtype == COMET_F32 ? row_f32(index, target, mode) : row_half(dtype, index, bound, target, mode);
}

static void check_class(const quantiser_class *c, const row *expected) {
    if (!expected->exists) {
        assert_true(c->reach == 0 && c->step == 0.0f);
        return;
    }
    assert_true((double)c->step == expected->step);
    assert_true((double)c->inverse == rounded(1.0 / expected->step));
    assert_true((double)float_of_bits(c->reach) == rounded((expected->limit - expected->margin) * expected->step));
    assert_int_equal(c->mode, expected->mode);
    assert_int_equal(c->wide, expected->wide);
}

static double random_bound(rng *r, int least, int most) {
    double bound = ldexp(1.0 + rng_unit(r), (int)rng_between(r, least, most));
    if (rng_below(r, 3) == 0)
        bound = cut(bound, (int)rng_between(r, 1, 8));
    if (rng_below(r, 4) == 0)
        bound = (double)nextafterf((float)bound, rng_below(r, 2) ? 0.0f : INFINITY);
    return bound;
}

static void test_tables(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const unsigned flags[] = {0, STREAM_KEEP_MASK, STREAM_STOCHASTIC, STREAM_GRID};
    for (int round = 0; round < 20000; round++) {
        comet_dtype dtype = (comet_dtype)rng_below(&r, 4);
        unsigned flag = flags[rng_below(&r, dtype == COMET_F32 ? 4 : 3)];
        double bound =
            rng_below(&r, 50) ? random_bound(&r, dtype == COMET_U8 ? -3 : -110, dtype == COMET_U8 ? 9 : 110) : 0.0;
        float used = comet_quantiser_bound(bound, dtype);
        quantiser q;
        comet_quantiser_init(&q, used, dtype, flag);
        for (int i = 0; i < QUANTISER_CLASSES; i++) {
            row expected = row_of(dtype, i, (double)used, flag);
            check_class(&q.classes[i], &expected);
        }
    }
}

/* The bound is cut down to fp32 and to the range of the format. */
static void test_bound(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int i = 0; i < 20000; i++) {
        double bound = ldexp(1.0 + rng_unit(&r), (int)rng_between(&r, -99, 99));
        double used = (double)comet_quantiser_bound(bound, (comet_dtype)rng_below(&r, 3));
        assert_true(used <= bound && (double)nextafterf((float)used, INFINITY) > bound);
    }
    assert_true(comet_quantiser_bound(0x1p-100, COMET_F32) == 0x1p-100f);
    assert_true(comet_quantiser_bound(nextafter(0x1p-100, 0.0), COMET_F32) == 0.0f);
    assert_true(comet_quantiser_bound(0x1p100, COMET_BF16) == 0x1p100f);
    assert_true(comet_quantiser_bound(1e308, COMET_F16) == 0x1p100f);
    assert_true(comet_quantiser_bound(0.0, COMET_F32) == 0.0f);
    assert_true(comet_quantiser_bound(5e-324, COMET_F32) == 0.0f);
    assert_true(comet_quantiser_bound(1e308, COMET_U8) == 255.0f);
    assert_true(comet_quantiser_bound(0.75, COMET_U8) == 0.75f);
}

/* ---- every 16-bit value ---- */

enum { ALL = 0x10000, MOST = ALL + ALL / 8, TILE = 1024 };

typedef struct exhaustive {
    uint16_t in[MOST], out[MOST];
    unsigned char stream[MOST * 2 + MOST / 10 + 2048];
    int64_t count;
    int64_t tiles[3][QUANTISER_CLASSES]; /* of each mode and class */
} exhaustive;

static const char *const mode_names[] = {"nearest", "stochastic", "keep-mask"};

/* Counts the classes of the stream's code tiles: their heads, found by the table. */
static void count_classes(exhaustive *e, int64_t tiles, int mode) {
    uint64_t groups = ((uint64_t)tiles + 7) / 8, at = 0;
    for (int64_t t = 0; t < tiles; t++) {
        const unsigned char *group = e->stream + 128 + 24 * (t / 8);
        uint16_t entry;
        memcpy(&entry, group + 8 + 2 * (t % 8), sizeof entry);
        if (t % 8 == 0)
            memcpy(&at, group, sizeof at);
        unsigned head = e->stream[128 + 24 * groups + at];
        if (entry >> 13 == 0 && (entry & 0x1fff) > 0)
            e->tiles[mode][(head & 15) >= 8 ? QUANTISER_WIDE : head >> 5 & 3]++;
        at += entry & 0x1fff;
    }
}

static void run(exhaustive *e, comet_dtype dtype, double bound, int mode, comet_isa isa, uint64_t seed) {
    comet_tensor tensor;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    failure f;
    params.bound = bound;
    params.rounding = mode == 1 ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    params.keep_mask = mode == 2;
    params.seed = seed;
    exec.isa = isa;
    assert_ok(comet_tensor_init(&tensor, e->in, dtype, COMET_FLAT, 1, &e->count));
    assert_ok(comet_codec_compress(&tensor, &params, &exec, e->stream, sizeof e->stream, &result));
    count_classes(e, result.tiles, mode);
    tensor.data = e->out;
    assert_ok(comet_codec_decompress(e->stream, result.bytes, NULL, &exec, &tensor));
    check_rules rules = {.dtype = dtype, .bound = result.bound, .keep_mask = mode == 2, .channel_stride = 1};
    if (!check_round_trip(&rules, e->in, e->out, e->count, &f))
        fail_msg("%s %s bound %a: %s", comet_dtype_name(dtype), mode_names[mode], bound, f.text);
}

/* In the order of their patterns: each tile spans few binades, and its class is the finest that holds them. */
static void fill_in_order(exhaustive *e) {
    for (e->count = 0; e->count < ALL; e->count++)
        e->in[e->count] = (uint16_t)e->count;
}

/*
 * All values up to `most` in any order, one near `most` in each tile, so that each value meets the class of `most`
 * rather than its own.
 */
static void fill_up_to(exhaustive *e, comet_dtype dtype, double most, rng *r) {
    uint32_t top = bits_of_number(dtype, most), largest = bits_of_number(dtype, number_largest(dtype));
    top = top > largest ? largest : top;
    while (top > 0 && number_of_bits(dtype, top) > most)
        top--;
    e->count = 0;
    for (uint32_t h = 0; h <= top; h++)
        for (uint32_t sign = 0; sign <= 0x8000u; sign += 0x8000u) {
            if (e->count % TILE == 0)
                e->in[e->count++] = (uint16_t)top;
            e->in[e->count++] = (uint16_t)(h | sign);
        }
    for (int64_t i = e->count - 1; i > 0; i--) { /* shuffled, but the first of each tile stays */
        int64_t j = (int64_t)rng_below(r, (uint64_t)i + 1);
        uint16_t kept = e->in[i];
        if (i % TILE == 0 || j % TILE == 0)
            continue;
        e->in[i] = e->in[j];
        e->in[j] = kept;
    }
}

/* What the classes' limits are multiples of: so all of them are met. */
enum { MULTIPLES = 10 };
static const double multiples[MULTIPLES] = {8, 16, 32, 64, 127, 128, 256, 2048, 30000, 64000};

/* Every class that the type has was there. */
static void check_classes(const exhaustive *e, comet_dtype dtype) {
    static const unsigned flags[] = {0, STREAM_STOCHASTIC, STREAM_KEEP_MASK};
    for (int mode = 0; mode < 3; mode++)
        for (int i = 0; i < QUANTISER_CLASSES; i++)
            if (row_of(dtype, i, 1.0, flags[mode]).exists && e->tiles[mode][i] == 0)
                fail_msg("%s %s: no tile of class %d", comet_dtype_name(dtype), mode_names[mode], i);
}

static void exhaust(comet_dtype dtype, int least, int most, int rounds) {
    rng r = rng_seed(30 + (uint64_t)dtype);
    isa_list isas = isa_list_get();
    exhaustive *e = calloc(1, sizeof *e);
    assert_non_null(e);
    for (int round = 0; round < rounds; round++) {
        double bound = random_bound(&r, least, most);
        comet_isa isa = isas.isa[round % isas.count];
        fill_in_order(e);
        for (int mode = 0; mode < 3; mode++)
            run(e, dtype, bound, mode, isa, rng_next(&r));
        fill_up_to(e, dtype, bound * multiples[round % MULTIPLES] * (1.0 - rng_unit(&r) / 8), &r);
        for (int mode = 0; mode < 3; mode++)
            run(e, dtype, bound, mode, isa, rng_next(&r));
    }
    if (rounds >= 3 * MULTIPLES)
        check_classes(e, dtype);
    free(e);
}

static void test_every_f16(void **state) {
    (void)state;
    exhaust(COMET_F16, -27, 18, effort(120));
}

static void test_every_bf16(void **state) {
    (void)state;
    exhaust(COMET_BF16, -20, 20, effort(90));
    exhaust(COMET_BF16, -101, 101, effort(30));
}

/* Bounds near the spacing of fp16's subnormals, where classes are left out one after the other. */
static void test_every_f16_at_tiny_bounds(void **state) {
    (void)state;
    rng r = rng_seed(40);
    exhaustive *e = calloc(1, sizeof *e);
    assert_non_null(e);
    int parts = EFFORT_SLOW ? 2 : 8;
    for (int k = -26; k <= -17; k++)
        for (int part = 0; part < parts; part++) {
            double bound = ldexp(1.0 + part / (double)parts, k);
            fill_up_to(e, COMET_F16, bound * multiples[rng_below(&r, MULTIPLES)], &r);
            for (int mode = 0; mode < 3; mode++)
                run(e, COMET_F16, bound, mode, COMET_ISA_AUTO, rng_next(&r));
        }
    free(e);
}

/* u8 has few values and few bounds: all of both. */
static void test_every_u8(void **state) {
    (void)state;
    enum { COUNT = 2048 };
    uint8_t in[COUNT], out[COUNT], stream[4096];
    for (int i = 0; i < COUNT; i++)
        in[i] = (uint8_t)(i < 1024 ? i : i % 127); /* one tile reaches 255, the other only 126 */
    for (int bound = 0; bound <= 512; bound++)
        for (int mode = 0; mode < 3; mode++) {
            comet_codec_params params = COMET_CODEC_PARAMS_INIT;
            comet_codec_result result = COMET_CODEC_RESULT_INIT;
            comet_tensor tensor;
            int64_t count = COUNT;
            failure f;
            params.bound = bound / 2.0;
            params.rounding = mode == 1 ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
            params.keep_mask = mode == 2;
            params.seed = (uint64_t)bound;
            assert_ok(comet_tensor_init(&tensor, in, COMET_U8, COMET_FLAT, 1, &count));
            assert_ok(comet_codec_compress(&tensor, &params, NULL, stream, sizeof stream, &result));
            tensor.data = out;
            assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &tensor));
            check_rules rules = {.dtype = COMET_U8, .bound = result.bound, .keep_mask = mode == 2, .channel_stride = 1};
            assert_check(check_round_trip(&rules, in, out, COUNT, &f), f);
        }
}

/* ---- what stochastic rounding promises beside the bound ---- */

/* The mean of many decoded values is near the value, and two seeds differ. */
static void test_stochastic_is_unbiased(void **state) {
    (void)state;
    enum { COUNT = 1 << 17 };
    float *in = malloc(COUNT * sizeof *in), *out = malloc(COUNT * sizeof *out);
    unsigned char *stream = malloc(COUNT * 5), *other = malloc(COUNT * 5);
    assert_true(in && out && stream && other);
    int64_t count = COUNT;
    for (int i = 0; i < COUNT; i++)
        in[i] = 0.2371f;
    comet_tensor tensor;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_result result = COMET_CODEC_RESULT_INIT, again = COMET_CODEC_RESULT_INIT;
    params.bound = 1.0;
    params.rounding = COMET_ROUND_STOCHASTIC;
    params.seed = 5;
    assert_ok(comet_tensor_init(&tensor, in, COMET_F32, COMET_FLAT, 1, &count));
    assert_ok(comet_codec_compress(&tensor, &params, NULL, stream, COUNT * 5, &result));
    params.seed = 6;
    assert_ok(comet_codec_compress(&tensor, &params, NULL, other, COUNT * 5, &again));
    assert_true(result.bytes != again.bytes || memcmp(stream, other, result.bytes) != 0);
    tensor.data = out;
    assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &tensor));
    double mean = 0.0;
    for (int i = 0; i < COUNT; i++)
        mean += (double)out[i] / COUNT;
    assert_true(fabs(mean - 0.2371) < 5.0 * 0.43 / sqrt(COUNT)); /* five standard deviations */
    free(in);
    free(out);
    free(stream);
    free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_every_f16),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_every_u8),
        cmocka_unit_test(test_every_f16_at_tiny_bounds),
        cmocka_unit_test(test_stochastic_is_unbiased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
