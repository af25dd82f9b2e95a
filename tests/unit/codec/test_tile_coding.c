/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of each instruction set against the reference, tile by tile, bit by bit: codes to bytes and back. */
#include "test_tile_case.h"

#include "support/rng.h"

/*
 * As tensors make it: in each row, and for lanes of their own in each lane, the columns up to an end that falls with k.
 */
static void real_padding(rng *r, int chained, tile_padding *p) {
    memset(p, 0, sizeof *p);
    p->all_valid = rng_below(r, 2) != 0;
    int length = chained ? TILE_ROW_VALUES : TILE_LANE_COLUMNS;
    for (int start = 0; start < TILE_ROW_VALUES && !p->all_valid; start += length) {
        int end = rng_below(r, 3) ? length : (int)rng_below(r, (uint64_t)length + 1);
        for (int k = 0; k < TILE_ROWS; k++) {
            for (int i = 256 * k + start; i < 256 * k + start + end; i++)
                p->valid[i / 8] |= (uint8_t)(1u << i % 8);
            end = rng_below(r, 3) ? end : (int)rng_below(r, (uint64_t)end + 1);
        }
    }
}

/* ---- encode and decode ---- */

static int random_code(rng *r, uint64_t kind, int most, int *walk) {
    switch (kind) {
    case 0:
        return (int)rng_between(r, -most - 1, most);
    case 1:
        return (int)rng_between(r, -3, 3);
    case 2:
        return rng_below(r, 300) ? 0 : (int)rng_between(r, -most, most);
    case 3:
        return rng_below(r, 1000) ? 0 : 1 << rng_below(r, most > 127 ? 14 : 6);
    case 4: /* smooth: prediction wins */
        *walk += (int)rng_between(r, -2, 2);
        *walk = *walk > most ? most : *walk < -most ? -most : *walk;
        return *walk;
    case 5:
        return most;
    case 6: /* neither empty nor full: 26 to 29 bytes of a column */
        return rng_below(r, 10) < 2;
    default:
        return rng_below(r, 2) ? -most - 1 : most; /* residuals that wrap around */
    }
}

static void random_codes(rng *r, int wide, const tile_padding *padding, tile_codes *codes) {
    uint64_t kind = rng_below(r, 9);
    int most = wide ? 32767 : 127, walk = (int)rng_between(r, -most, most);
    memset(codes, 0, sizeof *codes);
    for (int i = 0; i < TILE_VALUES; i++) {
        int code = kind == 8 ? 0 : random_code(r, kind, most, &walk);
        if (!is_valid(padding, i))
            continue;
        if (wide)
            codes->wide[i] = (int16_t)code;
        else
            codes->narrow[i] = (int8_t)code;
    }
}

enum { OUT_BYTES = TILE_ENCODED_MAX + TILE_ENCODE_SLACK, PATTERN = 0xE7 };

typedef struct encoded {
    _Alignas(64) uint8_t out[OUT_BYTES + 64];
    int bytes, predicted;
} encoded;

static void encode_with(comet_isa isa, const tile_codes *codes, int chained, unsigned class_index,
                        const tile_padding *padding, encoded *e) {
    memset(e->out, PATTERN, sizeof e->out);
    e->predicted = -1;
    e->bytes = comet_tile_kernels(isa)->encode(codes, chained, class_index, padding, e->out, &e->predicted);
    assert_in_range(e->bytes, 0, TILE_ENCODED_MAX);
    for (size_t i = (size_t)e->bytes + TILE_ENCODE_SLACK; i < sizeof e->out; i++)
        if (e->out[i] != PATTERN)
            fail_msg("encode %s wrote %zu bytes behind the tile", isa_name(isa), i - (size_t)e->bytes);
}

static int same_codes(const tile_codes *a, const tile_codes *b, int wide, const tile_padding *padding) {
    for (int i = 0; i < TILE_VALUES; i++)
        if (is_valid(padding, i) && (wide ? a->wide[i] != b->wide[i] : a->narrow[i] != b->narrow[i]))
            return 0;
    return 1;
}

static void check_decode(guarded *g, comet_isa isa, const encoded *e, int chained, unsigned class_index,
                         const tile_padding *padding, const tile_codes *codes) {
    static _Alignas(64) tile_codes got;
    int wide = class_index == QUANTISER_WIDE;
    unsigned got_class = 99;
    uint8_t *tile = guarded_place(g, NULL, (size_t)e->bytes + TILE_DECODE_SLACK);
    memset(tile, 0xFF, (size_t)e->bytes + TILE_DECODE_SLACK);
    memcpy(tile, e->out, (size_t)e->bytes);
    assert_true(comet_tile_kernels(isa)->decode(tile, e->bytes, chained, &got, &got_class));
    assert_int_equal(got_class, class_index);
    if (!same_codes(&got, codes, wide, padding))
        fail_msg("decode %s wide %d chained %d predicted %d", isa_name(isa), wide, chained, e->predicted);
}

/* Whether codes are wide is read off the number of planes: 8 or more, empty ones too, and no class. */
static void check_head(const encoded *e, unsigned class_index) {
    if (e->bytes == 0) {
        assert_int_equal(class_index, 0);
        return;
    }
    unsigned planes = e->out[0] & 15u, head_class = e->out[0] >> 5 & 3u;
    if (class_index == QUANTISER_WIDE)
        assert_true(planes >= 8 && head_class == 0);
    else
        assert_true(planes <= 7 && head_class == class_index);
}

static void test_encode_and_decode(void **state) {
    (void)state;
    rng r = rng_seed(5);
    static _Alignas(64) tile_codes codes;
    static encoded expected, got;
    guarded g;
    guarded_new(&g, OUT_BYTES);
    int rounds = effort(12000), predicted[2][2] = {{0}};
    for (int round = 0; round < rounds; round++) {
        tile_padding padding;
        int wide = (int)rng_below(&r, 2), chained = (int)rng_below(&r, 2);
        real_padding(&r, chained, &padding);
        unsigned class_index = wide ? QUANTISER_WIDE : (unsigned)rng_below(&r, QUANTISER_WIDE);
        random_codes(&r, wide, &padding, &codes);
        encode_with(COMET_ISA_REFERENCE, &codes, chained, class_index, &padding, &expected);
        check_head(&expected, class_index);
        predicted[wide][chained] += expected.predicted;
        for (int i = 0; i < isas.count; i++) {
            encode_with(isas.isa[i], &codes, chained, class_index, &padding, &got);
            if (got.bytes != expected.bytes || memcmp(got.out, expected.out, (size_t)got.bytes) != 0)
                fail_msg("encode %s wide %d chained %d: %d bytes, reference %d", isa_name(isas.isa[i]), wide, chained,
                         got.bytes, expected.bytes);
            assert_int_equal(got.predicted, expected.predicted);
            if (got.bytes)
                check_decode(&g, isas.isa[i], &got, chained, class_index, &padding, &codes);
        }
    }
    for (int i = 0; i < 4; i++)
        assert_true(predicted[i / 2][i % 2] > 0);
    guarded_free(&g);
}

/* ---- residuals that carry ---- */

/* The row-0 place that row 0 of column i is predicted from; -1 at the place of a first. */
static int left_place(int i, int chained) {
    return (chained ? i == 0 : i % TILE_LANE_COLUMNS == 0) ? -1 : i - 1;
}

/* The first row, 0 to 3, in which a difference of predicted codes leaves a byte; 4: none does. */
static int first_carry(const int8_t *q, int chained) {
    for (int i = 0; i < TILE_VALUES; i++) {
        int from = i < TILE_ROW_VALUES ? left_place(i, chained) : i - TILE_ROW_VALUES;
        int difference = from < 0 ? 0 : q[i] - q[from];
        if (difference < -128 || difference > 127)
            return i / TILE_ROW_VALUES;
    }
    return TILE_ROWS;
}

/* Smooth over all rows, so that prediction pays, but for values on the other side here and there. */
static void codes_with_jumps(rng *r, const tile_padding *padding, tile_codes *codes) {
    static const int levels[] = {100, -100, 64, -65, 126};
    int level = levels[rng_below(r, 5)], jumps = (int)rng_below(r, 4);
    memset(codes, 0, sizeof *codes);
    for (int i = 0; i < TILE_VALUES; i++)
        codes->narrow[i] = (int8_t)(level + (int)rng_between(r, -1, 1));
    if (jumps == 3)
        jumps = 40;
    for (int j = 0; j < jumps; j++) {
        uint64_t i = rng_below(r, 3) ? rng_below(r, TILE_VALUES) : TILE_VALUES - 1 - rng_below(r, TILE_ROW_VALUES);
        codes->narrow[i] = (int8_t)(level < 0 ? rng_between(r, 60, 127) : rng_between(r, -128, -60));
    }
    for (int i = 0; i < TILE_VALUES; i++)
        codes->narrow[i] = is_valid(padding, i) ? codes->narrow[i] : 0;
}

static void test_carries(void **state) {
    (void)state;
    rng r = rng_seed(11);
    static _Alignas(64) tile_codes codes;
    static encoded expected, got;
    guarded g;
    guarded_new(&g, OUT_BYTES);
    int rounds = effort(6000), seen[2][TILE_ROWS + 1] = {{0}};
    for (int round = 0; round < rounds; round++) {
        tile_padding padding;
        int chained = (int)rng_below(&r, 2);
        real_padding(&r, chained, &padding);
        codes_with_jumps(&r, &padding, &codes);
        encode_with(COMET_ISA_REFERENCE, &codes, chained, 0, &padding, &expected);
        seen[chained][first_carry(codes.narrow, chained)] += expected.predicted && padding.all_valid;
        for (int i = 0; i < isas.count; i++) {
            encode_with(isas.isa[i], &codes, chained, 0, &padding, &got);
            if (got.bytes != expected.bytes || memcmp(got.out, expected.out, (size_t)got.bytes) != 0)
                fail_msg("encode %s chained %d: %d bytes, reference %d", isa_name(isas.isa[i]), chained, got.bytes,
                         expected.bytes);
            assert_int_equal(got.predicted, expected.predicted);
            if (got.bytes)
                check_decode(&g, isas.isa[i], &got, chained, 0, &padding, &codes);
        }
    }
    for (int row = 0; row <= TILE_ROWS; row++)
        assert_true(seen[0][row] > 0 && seen[1][row] > 0);
    guarded_free(&g);
}

/* The text's formula, for residuals and firsts at the places of the codes. Returns whether a sum leaves a byte. */
static int codes_of_any_residuals(const int8_t *d, const int8_t *firsts, int chained, int8_t *q) {
    int carries = 0;
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        int from = left_place(i, chained), p = (from < 0 ? firsts[i / TILE_LANE_COLUMNS] : q[from]) + 128, sum = p;
        int64_t e = 0, power = 1;
        for (int k = 0; k < TILE_ROWS; k++, power *= 256) {
            int digit = k == 0 && from < 0 ? 128 : d[TILE_ROW_VALUES * k + i] + 128;
            e += digit * power;
            sum += digit - 128;
            carries |= sum < 0 || sum > 255;
        }
        uint64_t u = (uint64_t)(e - 0x80808080 + p) * 0x01010101u;
        for (int k = 0; k < TILE_ROWS; k++)
            q[TILE_ROW_VALUES * k + i] = (int8_t)((int)(u >> 8 * k & 0xff) - 128);
    }
    return carries;
}

static void random_residuals(rng *r, int8_t *d, int8_t *firsts) {
    uint64_t kind = rng_below(r, 4);
    for (int i = 0; i < TILE_VALUES; i++)
        d[i] = (int8_t)(kind == 0 ? rng_between(r, -128, 127) : kind == 1 ? rng_between(r, -1, 1) : 0);
    for (int l = 0; l < TILE_LANES; l++)
        firsts[l] = (int8_t)(kind == 0 ? rng_between(r, -128, 127) : rng_between(r, -64, 63));
    if (kind >= 2) /* a few places, whose sums may or may not leave a byte */
        for (uint64_t j = rng_below(r, 3); j < 3; j++)
            d[rng_below(r, TILE_VALUES)] = (int8_t)rng_between(r, -128, 127);
}

static unsigned folded_bit(int8_t residual, int plane) {
    unsigned bits = (uint8_t)residual;
    return (bits & 0x80u ? bits ^ 0x7fu : bits) >> plane & 1u;
}

/* A predicted tile of eight full planes. */
static int tile_of_residuals(const int8_t *d, const int8_t *firsts, int chained, uint8_t *tile) {
    uint8_t *out = tile;
    *out++ = 0x80 | 0x10 | 7;
    memset(out, 0xAA, 8);
    out += 8;
    if (chained)
        *out++ = (uint8_t)firsts[0];
    else
        *out++ = 0x10 | 7;
    for (int p = 0; p < 8 && !chained; p++, out += 4)
        for (int l = 0; l < TILE_LANES; l++)
            out[l / 8] = (uint8_t)((l % 8 ? out[l / 8] : 0) | (folded_bit(firsts[l], p) << l % 8));
    for (int p = 0; p < 8; p++)
        for (int i = 0; i < TILE_VALUES; i += 8, out++) {
            *out = 0;
            for (int m = 0; m < 8; m++)
                *out |= (uint8_t)(folded_bit(d[i + m], p) << m);
        }
    return (int)(out - tile);
}

static void test_decode_any_residuals(void **state) {
    (void)state;
    rng r = rng_seed(12);
    static int8_t d[TILE_VALUES], firsts[TILE_LANES], expected[TILE_VALUES];
    static uint8_t tile[TILE_ENCODED_MAX + TILE_DECODE_SLACK];
    static _Alignas(64) tile_codes got;
    int rounds = effort(4000), carries[2] = {0};
    for (int round = 0; round < rounds; round++) {
        int chained = (int)rng_below(&r, 2);
        unsigned class_index;
        random_residuals(&r, d, firsts);
        int bytes = tile_of_residuals(d, firsts, chained, tile);
        carries[codes_of_any_residuals(d, firsts, chained, expected)]++;
        for (int i = 0; i < isas.count; i++) {
            assert_true(comet_tile_kernels(isas.isa[i])->decode(tile, bytes, chained, &got, &class_index));
            assert_int_equal(class_index, 0);
            if (memcmp(got.narrow, expected, sizeof expected) != 0)
                fail_msg("%s, chained %d, round %d", isa_name(isas.isa[i]), chained, round);
        }
    }
    assert_true(carries[0] > 0 && carries[1] > 0);
}

/* Bytes that nobody encoded: every instruction set says yes or no alike, and reads no further than it may. */
static void test_decode_hostile(void **state) {
    (void)state;
    rng r = rng_seed(6);
    static _Alignas(64) tile_codes codes, expected, got;
    static encoded e;
    guarded g;
    guarded_new(&g, OUT_BYTES);
    int rounds = effort(20000), accepted = 0;
    for (int round = 0; round < rounds; round++) {
        tile_padding padding = {.all_valid = 1};
        int wide = (int)rng_below(&r, 2), chained = (int)rng_below(&r, 2);
        random_codes(&r, wide, &padding, &codes);
        encode_with(COMET_ISA_REFERENCE, &codes, chained, wide ? QUANTISER_WIDE : 0, &padding, &e);
        int bytes = (int)rng_between(&r, 1, e.bytes < 2 ? 60 : rng_below(&r, 2) ? e.bytes : TILE_ENCODED_MAX);
        for (int i = 0; i < bytes; i++)
            if (i >= e.bytes || rng_below(&r, 40) == 0)
                e.out[i] = (uint8_t)rng_next(&r);
        unsigned expected_class, got_class;
        uint8_t *tile = guarded_place(&g, e.out, (size_t)bytes + TILE_DECODE_SLACK);
        int ok = comet_tile_reference.decode(tile, bytes, chained, &expected, &expected_class);
        accepted += ok;
        for (int i = 1; i < isas.count; i++) {
            int also = comet_tile_kernels(isas.isa[i])->decode(tile, bytes, chained, &got, &got_class);
            assert_int_equal(also, ok);
            if (!ok)
                continue;
            assert_int_equal(got_class, expected_class);
            assert_memory_equal(&got, &expected, code_bytes(got_class == QUANTISER_WIDE));
        }
    }
    assert_true(accepted > rounds / 100);
    guarded_free(&g);
}

/* Wide codes whose residuals need k planes, directly and predicted: eight are stored at least. */
static void test_small_wide_residuals(void **state) {
    (void)state;
    static _Alignas(64) tile_codes codes;
    static encoded e;
    guarded g;
    guarded_new(&g, OUT_BYTES);
    tile_padding padding = {.all_valid = 1};
    for (int i = 0; i < isas.count; i++)
        for (int k = 0; k <= 15; k++)
            for (int smooth = 0; smooth < 2; smooth++) {
                for (int v = 0; v < TILE_VALUES; v++)
                    codes.wide[v] = (int16_t)(smooth ? 30000 : 0);
                codes.wide[777] = (int16_t)(codes.wide[777] + (smooth ? -1 : 1) * ((1 << k) - 1));
                encode_with(isas.isa[i], &codes, 1, QUANTISER_WIDE, &padding, &e);
                assert_int_equal(e.predicted, smooth);
                assert_int_equal(e.out[0] & 15, k < 8 ? 8 : k);
                for (int p = k; p < 8; p++)
                    assert_int_equal(e.out[1 + p], 0);
                check_decode(&g, isas.isa[i], &e, 1, QUANTISER_WIDE, &padding, &codes);
            }
    guarded_free(&g);
}

/* Every head, in front of flags of empty columns. */
static void test_every_head(void **state) {
    (void)state;
    static _Alignas(64) tile_codes codes;
    uint8_t tile[32 + TILE_DECODE_SLACK] = {0};
    for (int i = 0; i < isas.count; i++)
        for (unsigned head = 0; head < 256; head++) {
            unsigned n = head & 15u, sign = head >> 4 & 1u, head_class = head >> 5 & 3u, got_class = 99;
            int firsts = head & 0x80u ? (n >= 8 ? 2 : 1) : 0, bytes = (int)(1 + n + sign) + firsts;
            tile[0] = (uint8_t)head;
            memset(&codes, 0xEE, sizeof codes);
            int ok = comet_tile_kernels(isas.isa[i])->decode(tile, bytes, 1, &codes, &got_class);
            assert_int_equal(ok, n < 8 || head_class == 0);
            if (!ok)
                continue;
            assert_int_equal(got_class, n < 8 ? head_class : QUANTISER_WIDE);
            for (int v = 0; v < TILE_VALUES; v++)
                assert_int_equal(n < 8 ? codes.narrow[v] : codes.wide[v], 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_wide_residuals), cmocka_unit_test(test_every_head),
        cmocka_unit_test(test_encode_and_decode),    cmocka_unit_test(test_carries),
        cmocka_unit_test(test_decode_any_residuals), cmocka_unit_test(test_decode_hostile)};
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
