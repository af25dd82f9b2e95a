/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of each instruction set against the reference, tile by tile, bit by bit: all that works on values. */
#include "test_tile_case.h"

#include <math.h>

#include "codec/eb/eb_stats.h"
#include "codec/stream_header.h"
#include "support/codec/values.h"
#include "support/number.h"

typedef struct tile_case {
    _Alignas(64) float values[TILE_VALUES];
    float edge[TILE_VALUES], base[TILE_VALUES];
    int32_t code[TILE_VALUES];
    tile_channels channels;
    tile_grid grid;
    tile_order order;
    survey_order sums;
    tile_padding padding;
    quantiser_class c;
    tile_quantise how;
    int chained;
} tile_case;

static int linear_of(tile_order order, int place) {
    int k = place / 256, rest = place % 256;
    return order == TILE_LINEAR ? place : 256 * k + 8 * (rest % 32) + rest / 32;
}

/* None, a tail of columns or rows, or anything. */
static void random_padding(rng *r, tile_padding *p) {
    memset(p, 0, sizeof *p);
    uint64_t kind = rng_below(r, 4);
    p->all_valid = kind < 2;
    int columns = (int)rng_between(r, 1, 256), rows = (int)rng_between(r, 1, 4);
    for (int i = 0; i < TILE_VALUES && !p->all_valid; i++) {
        int keep = kind == 2 ? i % 256 < columns && i / 256 < rows : (int)rng_below(r, 2);
        p->valid[i / 8] |= (uint8_t)(keep << i % 8);
    }
}

static void clear_padding(tile_case *t) {
    for (int place = 0; place < TILE_VALUES; place++)
        if (!is_valid(&t->padding, linear_of(t->order, place)))
            t->values[place] = 0.0f;
}

static void random_values(rng *r, double scale, double bound, tile_case *t) {
    t->order = (tile_order)rng_below(r, 2);
    t->chained = t->order == TILE_LINEAR;
    t->sums = t->chained && rng_below(r, 2) ? SURVEY_RUN : SURVEY_ROWS;
    random_padding(r, &t->padding);
    values_fill(r, (value_kind)rng_below(r, VALUES_KINDS), COMET_F32, scale, bound, t->values, TILE_VALUES);
    clear_padding(t);
}

/* Behind a test that only compares: where there is but the reference, it has shown nothing but that it runs. */
static void skip_if_alone(void) {
    if (isas.count < 2)
        skip_because("only the reference is there, and nothing to compare it with");
}

/* ---- survey ---- */

static void test_survey(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static tile_case t;
    static const double scales[] = {1.0, 1e-12, 1e-13, 1e12, 1e13, 1e-30, 1e30, 1e-44, 0x1p-40, 0x1p40};
    int rounds = effort(6000);
    for (int round = 0; round < rounds; round++) {
        random_values(&r, scales[rng_below(&r, sizeof scales / sizeof *scales)], 0.1, &t);
        tile_survey expected, got;
        memset(&expected, 0, sizeof expected);
        comet_tile_reference.survey(t.values, t.order, t.sums, &t.padding, &expected);
        for (int i = 1; i < isas.count; i++) {
            memset(&got, 0, sizeof got);
            comet_tile_kernels(isas.isa[i])->survey(t.values, t.order, t.sums, &t.padding, &got);
            assert_int_equal(got.magnitude, expected.magnitude);
            assert_int_equal(got.nonzero, expected.nonzero);
            assert_int_equal(got.positive, expected.positive);
            assert_int_equal(got.nonfinite, expected.nonfinite);
            /* -0 and +0 may both be the least or the greatest; what is made of them adds +0 */
            assert_int_equal(bits_of_float(got.min + 0.0f), bits_of_float(expected.min + 0.0f));
            assert_int_equal(bits_of_float(got.max + 0.0f), bits_of_float(expected.max + 0.0f));
            assert_memory_equal(&got.sum_abs, &expected.sum_abs, sizeof got.sum_abs);
            assert_memory_equal(&got.sum_squares, &expected.sum_squares, sizeof got.sum_squares);
        }
    }
    skip_if_alone();
}

/* The reference itself, against sums in double. */
static void test_survey_reference(void **state) {
    (void)state;
    rng r = rng_seed(2);
    static tile_case t;
    for (int round = 0; round < 500; round++) {
        random_values(&r, round % 2 ? 1.0 : 1e-20, 0.1, &t);
        tile_survey s;
        comet_tile_reference.survey(t.values, t.order, t.sums, &t.padding, &s);
        int32_t nonzero = 0, positive = 0, nonfinite = 0;
        double sum = 0.0, squares = 0.0;
        uint32_t magnitude = 0;
        for (int i = 0; i < TILE_VALUES; i++) {
            uint32_t bits = bits_of_float(t.values[i]) & 0x7fffffffu;
            magnitude = bits > magnitude ? bits : magnitude;
            if (!isfinite(t.values[i])) {
                nonfinite++;
                continue;
            }
            nonzero += t.values[i] != 0.0f;
            positive += t.values[i] > 0.0f;
            sum += fabs((double)t.values[i]);
            squares += (double)t.values[i] * (double)t.values[i];
        }
        assert_int_equal(s.magnitude, magnitude);
        assert_true(s.nonzero == nonzero && s.positive == positive && s.nonfinite == nonfinite);
        assert_true(fabs(s.sum_abs - sum) <= 1e-5 * sum && fabs(s.sum_squares - squares) <= 1e-5 * squares);
    }
}

/* docs/format.md, section 5, for numbers of tiles that leave the last group or the last round of accumulators open. */
static double sum_over_tiles(const double *tile, int tiles) {
    double accumulator[512] = {0.0}; /* 256, then 128 sums of pairs, then 64 of those, ... */
    for (int g = 0; 8 * g < tiles; g++) {
        double t[8];
        for (int i = 0; i < 8; i++)
            t[i] = 8 * g + i < tiles ? tile[8 * g + i] : 0.0;
        double sum = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
        int exponent;
        double m = frexp(sum, &exponent);
        accumulator[g % 256] += ldexp(floor(ldexp(m, 21) + 0.5), exponent - 21); /* 21 bits, half up */
    }
    double *from = accumulator;
    for (int half = 128; half >= 1; from += 2 * half, half /= 2)
        for (int i = 0; i < half; i++)
            from[2 * half + i] = from[i] + from[half + i];
    return *from;
}

static void test_sums_over_tiles(void **state) {
    (void)state;
    enum { MOST = 5000 };
    static const int fixed[] = {0, 1, 4, 7, 8, 9, 2047, 2048, 2049, 2056, MOST};
    static tile_sums sums[MOST];
    static double abs_sums[MOST], squares[MOST];
    rng r = rng_seed(10);
    for (int i = 0; i < MOST; i++) {
        sums[i] = (tile_sums){.abs = rng_unit(&r), .squares = rng_unit(&r) * 1e3};
        abs_sums[i] = sums[i].abs;
        squares[i] = sums[i].squares;
    }
    for (int round = 0; round < 50; round++) {
        int tiles = round < (int)(sizeof fixed / sizeof *fixed) ? fixed[round] : (int)rng_below(&r, MOST);
        stats_part part;
        comet_codec_stats stats;
        comet_stats_part_init(&part);
        comet_stats_finish(&part, sums, tiles, 0, &stats);
        double expected_abs = sum_over_tiles(abs_sums, tiles), expected_squares = sum_over_tiles(squares, tiles);
        assert_memory_equal(&stats.sum_abs, &expected_abs, sizeof expected_abs);
        assert_memory_equal(&stats.sum_squares, &expected_squares, sizeof expected_squares);
    }
}

/* ---- quantise and dequantise ---- */

/* A class that exists, of any dtype and mode. */
static quantiser_class random_class(rng *r, double *bound) {
    static const unsigned flags[] = {0, STREAM_STOCHASTIC, STREAM_KEEP_MASK, STREAM_GRID};
    static const double bounds[] = {0.1, 0.3, 1e-3, 7.0, 1e-20, 1e20, 0x1p-100, 0x1p100, 200.0};
    for (;;) {
        unsigned flag = flags[rng_below(r, 4)];
        comet_dtype dtype = flag == STREAM_GRID ? COMET_F32 : (comet_dtype)rng_below(r, 4);
        quantiser q;
        *bound = bounds[rng_below(r, sizeof bounds / sizeof *bounds)] * (0.5 + rng_unit(r));
        comet_quantiser_init(&q, comet_quantiser_bound(*bound, dtype), dtype, flag);
        quantiser_class c = q.classes[rng_below(r, QUANTISER_CLASSES)];
        if (c.reach)
            return c;
    }
}

/* As many channels as values: pieces of random lengths, of one channel each or counting up. */
static void random_grid(rng *r, const quantiser_class *c, tile_case *t) {
    float step = c->step;
    for (int i = 0; i < TILE_VALUES; i++) {
        float h = (float)(rng_gauss(r) * (double)step * (rng_below(r, 2) ? 3.0 : 5000.0));
        if (rng_below(r, 20) == 0)
            h = rng_below(r, 2) ? NAN : INFINITY;
        grid_channel g = comet_quantiser_grid(c, h, rng_below(r, 2) ? 1.0f : -1.0f);
        t->edge[i] = g.edge;
        t->code[i] = g.code;
        t->base[i] = g.base;
    }
    t->channels.consecutive = (int)rng_below(r, 2);
    t->channels.count = 0;
    for (int at = 0; at < TILE_VALUES;) {
        int count = 1 + (int)rng_below(r, 100);
        count = count < TILE_VALUES - at ? count : TILE_VALUES - at;
        t->channels.pieces[t->channels.count++] = (channel_piece){
            .at = (int16_t)at, .count = (int16_t)count, .channel = (int32_t)rng_below(r, TILE_VALUES - count + 1)};
        at += count;
    }
    t->grid = (tile_grid){.channels = &t->channels, .edge = t->edge, .code = t->code, .base = t->base};
}

static int channel_at(const tile_channels *channels, int place) {
    for (int p = 0; p < channels->count; p++) {
        const channel_piece *piece = &channels->pieces[p];
        if (place >= piece->at && place < piece->at + piece->count)
            return piece->channel + (channels->consecutive ? place - piece->at : 0);
    }
    return -1;
}

/* Values inside the reach of a class, many on edges, some on the threshold. */
static void random_quantise(rng *r, tile_case *t) {
    double bound, reach;
    t->c = random_class(r, &bound);
    reach = (double)float_of_bits(t->c.reach);
    random_values(r, bound * (rng_below(r, 2) ? 3.0 : 300.0), bound, t);
    random_grid(r, &t->c, t);
    for (int i = 0; i < TILE_VALUES; i++) {
        if (rng_below(r, 50) == 0)
            t->values[i] = float_of_bits(t->c.reach) * (rng_below(r, 2) ? 1.0f : -1.0f);
        if (t->c.mode == QUANTISE_GRID && rng_below(r, 10) == 0)
            t->values[i] = t->edge[channel_at(&t->channels, i)];
        if (!(fabs((double)t->values[i]) <= reach))
            t->values[i] = (float)(rng_gauss(r) * reach / 8.0);
    }
    clear_padding(t);
    t->how = (tile_quantise){.c = &t->c, .seed = rng_next(r), .tile = rng_next(r) >> rng_below(r, 60)};
    t->how.grid = t->c.mode == QUANTISE_GRID ? &t->grid : NULL;
}

/* ---- conversion, scale and side ---- */

/* Every pattern of the small types, NaN included, and any fp32, at any address and in any number. */
static void test_conversion(void **state) {
    (void)state;
    rng r = rng_seed(8);
    static unsigned char patterns[TILE_VALUES * 4 + 8], expected_patterns[TILE_VALUES * 4 + 8],
        got_patterns[TILE_VALUES * 4 + 8];
    static _Alignas(64) float expected[TILE_VALUES], got[TILE_VALUES];
    uint32_t next = 0;
    for (int round = 0; round < 2000; round++) {
        comet_dtype dtype = (comet_dtype)rng_below(&r, 4);
        int count = (int)rng_between(&r, 0, TILE_VALUES), off = (int)rng_below(&r, 8);
        for (int i = 0; i < count; i++)
            bits_put(dtype, patterns + off, i, dtype == COMET_F32 ? (uint32_t)rng_next(&r) : next++);
        comet_tile_reference.to_f32(dtype, patterns + off, count, expected);
        for (int i = 1; i < isas.count; i++) {
            const tile_kernels *kernels = comet_tile_kernels(isas.isa[i]);
            memset(got, 0xEE, sizeof got);
            kernels->to_f32(dtype, patterns + off, count, got);
            for (int v = 0; v < count; v++)
                if (bits_of_float(got[v]) != bits_of_float(expected[v]))
                    fail_msg("%s: %s %04x becomes %08x, reference %08x", isa_name(isas.isa[i]), comet_dtype_name(dtype),
                             (unsigned)bits_at(dtype, patterns + off, v), (unsigned)bits_of_float(got[v]),
                             (unsigned)bits_of_float(expected[v]));
            assert_true(count == TILE_VALUES || bits_of_float(got[count]) == 0xEEEEEEEEu);
        }
        values_fill(&r, rng_below(&r, 2) ? VALUES_BITS : VALUES_BINADES, COMET_F32, 1.0, 0.1, got, TILE_VALUES);
        memset(expected_patterns, 0x11, sizeof expected_patterns);
        comet_tile_reference.of_f32(dtype, got, count, expected_patterns + off);
        for (int i = 1; i < isas.count; i++) {
            memset(got_patterns, 0x11, sizeof got_patterns);
            comet_tile_kernels(isas.isa[i])->of_f32(dtype, got, count, got_patterns + off);
            assert_memory_equal(got_patterns, expected_patterns, sizeof got_patterns);
        }
    }
    skip_if_alone();
}

static void test_scale_and_count_upper(void **state) {
    (void)state;
    rng r = rng_seed(9);
    static tile_case t;
    static _Alignas(64) float got[TILE_VALUES];
    static float scale[TILE_VALUES], shift[TILE_VALUES];
    static uint32_t flip[TILE_VALUES];
    int rounds = effort(1500);
    for (int round = 0; round < rounds; round++) {
        random_quantise(&r, &t);
        if (round % 2)
            random_values(&r, 1.0, 0.1, &t);
        for (int c = 0; c < TILE_VALUES; c++) {
            scale[c] = rng_below(&r, 8) ? (float)rng_gauss(&r) : 0.0f;
            shift[c] = (float)rng_gauss(&r);
            flip[c] = (uint32_t)rng_below(&r, 2);
        }
        int upper = 0, given = 1 + round / 2 % 3; /* scale, shift or both */
        for (int i = 0; i < TILE_VALUES; i++) {
            int c = channel_at(&t.channels, i);
            upper += (t.values[i] >= t.edge[c]) ^ (int)flip[c];
        }
        for (int k = 0; k < isas.count; k++) {
            const tile_kernels *kernels = comet_tile_kernels(isas.isa[k]);
            assert_int_equal(kernels->count_upper(&t.channels, t.edge, flip, t.values), upper);
            memcpy(got, t.values, sizeof got);
            kernels->scale(&t.channels, given & 1 ? scale : NULL, given & 2 ? shift : NULL, got);
            for (int i = 0; i < TILE_VALUES; i++) {
                int c = channel_at(&t.channels, i);
                float y = fmaf(given & 1 ? scale[c] : 1.0f, t.values[i], given & 2 ? shift[c] : 0.0f);
                int is_made = isnan(y) && !isnan(t.values[i]); /* 0 * Inf: a fixed NaN */
                assert_int_equal(bits_of_float(got[i]), is_made ? 0x7fc00000u : bits_of_float(y));
            }
        }
    }
}

static void test_quantise_and_dequantise(void **state) {
    (void)state;
    rng r = rng_seed(3);
    static tile_case t;
    static _Alignas(64) tile_codes expected, got;
    static _Alignas(64) float expected_values[TILE_VALUES], got_values[TILE_VALUES];
    int rounds = effort(6000);
    for (int round = 0; round < rounds; round++) {
        random_quantise(&r, &t);
        comet_tile_reference.quantise(t.values, t.order, &t.how, &expected);
        comet_tile_reference.dequantise(&expected, t.order, &t.how, expected_values);
        for (int i = 1; i < isas.count; i++) {
            const tile_kernels *kernels = comet_tile_kernels(isas.isa[i]);
            kernels->quantise(t.values, t.order, &t.how, &got);
            if (memcmp(&got, &expected, code_bytes(t.c.wide)) != 0)
                fail_msg("quantise %s mode %d wide %d order %d", isa_name(isas.isa[i]), (int)t.c.mode, t.c.wide,
                         (int)t.order);
            kernels->dequantise(&got, t.order, &t.how, got_values);
            if (memcmp(got_values, expected_values, sizeof got_values) != 0)
                fail_msg("dequantise %s mode %d wide %d order %d", isa_name(isas.isa[i]), (int)t.c.mode, t.c.wide,
                         (int)t.order);
        }
    }
    skip_if_alone();
}

/* A hostile stream holds any code. */
static void test_dequantise_any_code(void **state) {
    (void)state;
    rng r = rng_seed(4);
    static tile_case t;
    static _Alignas(64) tile_codes codes;
    static _Alignas(64) float expected[TILE_VALUES], got[TILE_VALUES];
    int rounds = effort(1500);
    for (int round = 0; round < rounds; round++) {
        random_quantise(&r, &t);
        for (int i = 0; i < TILE_VALUES; i++)
            codes.wide[i] = (int16_t)rng_next(&r);
        comet_tile_reference.dequantise(&codes, t.order, &t.how, expected);
        for (int i = 1; i < isas.count; i++) {
            comet_tile_kernels(isas.isa[i])->dequantise(&codes, t.order, &t.how, got);
            assert_memory_equal(got, expected, sizeof got);
        }
    }
    skip_if_alone();
}

/* ---- gather and scatter ---- */

static void test_gather_and_scatter(void **state) {
    (void)state;
    rng r = rng_seed(7);
    enum { MOST = 40000 };
    static float tensor[MOST], back[MOST];
    static _Alignas(64) float expected[TILE_VALUES], got[TILE_VALUES];
    int rounds = effort(300), full = 0;
    for (int i = 0; i < MOST; i++)
        tensor[i] = (float)i;
    for (int round = 0; round < rounds; round++) {
        int64_t shape[4] = {rng_between(&r, 1, 3), rng_between(&r, 1, 30), rng_between(&r, 1, 30),
                            rng_between(&r, 1, 14)};
        tile_geometry geometry = comet_geometry_of((comet_layout)rng_below(&r, 3), 4, shape);
        int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
        for (int64_t t = 0; t < geometry.tiles; t++) {
            tile_map map;
            comet_geometry_map(&geometry, t, &map);
            if (map.valid != TILE_VALUES)
                continue;
            full++;
            comet_tile_reference.gather(&map, tensor, 4, expected);
            for (int i = 0; i < isas.count; i++) {
                const tile_kernels *kernels = comet_tile_kernels(isas.isa[i]);
                memset(got, 0xEE, sizeof got);
                kernels->gather(&map, tensor, 4, got);
                assert_memory_equal(got, expected, sizeof got);
                memset(back, 0, sizeof back);
                kernels->scatter(&map, got, 4, back);
                int written = 0;
                for (int64_t v = 0; v < count; v++)
                    if (back[v] != 0.0f) {
                        assert_true(back[v] == tensor[v]);
                        written++;
                    }
                assert_in_range(written, TILE_VALUES - 1, TILE_VALUES); /* value 0 is 0 */
                for (int64_t v = count; v < MOST; v++)
                    assert_true(back[v] == 0.0f);
            }
        }
    }
    assert_true(full > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_survey),
                                       cmocka_unit_test(test_survey_reference),
                                       cmocka_unit_test(test_sums_over_tiles),
                                       cmocka_unit_test(test_quantise_and_dequantise),
                                       cmocka_unit_test(test_dequantise_any_code),
                                       cmocka_unit_test(test_gather_and_scatter),
                                       cmocka_unit_test(test_conversion),
                                       cmocka_unit_test(test_scale_and_count_upper)};
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
