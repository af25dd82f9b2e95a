/* SPDX-License-Identifier: Apache-2.0 */
/* The 128 bytes of the header: where each field lies, what is refused, the checksum. */
#include "support/assert_ok.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

#include "codec/stream_header.h"
#include "comet/version.h"
#include "support/number.h"
#include "support/rng.h"

static stream_header example(void) {
    return (stream_header){.codec = COMET_CODEC_EB,
                           .dtype = COMET_BF16,
                           .layout = COMET_NHWC,
                           .flags = STREAM_KEEP_MASK,
                           .ndim = 3,
                           .shape = {5, 6, 7},
                           .count = 210,
                           .bound = 0.25f,
                           .parameter = 0x11223344u,
                           .wide_parameter = 0x1122334455667788u,
                           .row = 0x99aabbccddeeff00u,
                           .body_bytes = 20};
}

typedef struct small_stream {
    uint8_t bytes[160];
} small_stream;

static small_stream written(unsigned flags) {
    small_stream s;
    stream_header h = example();
    h.flags = (uint16_t)(h.flags | flags);
    memset(s.bytes, 0xAB, sizeof s.bytes);
    comet_stream_header_write(&h, s.bytes);
    return s;
}

static comet_status read_back(const small_stream *s, size_t bytes) {
    stream_header h;
    return comet_stream_header_read(s->bytes, bytes, 1, &h);
}

/* Field by field, from the table in docs/format.md. */
static void test_layout(void **state) {
    (void)state;
    small_stream s = written(0);
    static const uint8_t first[64] = {'C',  'M',  'E',  'T',  0,    0,    1,    2,    3,    2,    2,    0,
                                      0,    0,    0x80, 0x3e, 148,  0,    0,    0,    0,    0,    0,    0,
                                      0,    0,    0,    0,    0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55,
                                      0x44, 0x33, 0x22, 0x11, 0,    0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99};
    assert_memory_equal(s.bytes, first, sizeof first);
    for (int i = 64; i < 128; i++)
        assert_int_equal(s.bytes[i], i == 64 ? 5 : i == 72 ? 6 : i == 80 ? 7 : 0);
    assert_int_equal(s.bytes[128], 0xAB);
    assert_int_equal(COMET_FORMAT_VERSION, 0);
}

static void test_back(void **state) {
    (void)state;
    small_stream s = written(0);
    stream_header h, e = example();
    assert_ok(comet_stream_header_read(s.bytes, 148, 1, &h));
    assert_ok(comet_stream_header_read(s.bytes, 160, 1, &h)); /* more may follow */
    assert_true(h.codec == e.codec && h.dtype == e.dtype && h.layout == e.layout && h.flags == e.flags &&
                h.ndim == e.ndim);
    assert_true(h.count == e.count && h.bound == e.bound && h.parameter == e.parameter);
    assert_true(h.wide_parameter == e.wide_parameter && h.row == e.row && h.body_bytes == e.body_bytes);
    assert_memory_equal(h.shape, e.shape, sizeof h.shape);
}

/* A stream cut anywhere, in the header or behind it. */
static void test_too_short(void **state) {
    (void)state;
    small_stream s = written(0);
    for (size_t bytes = 0; bytes < 148; bytes++)
        assert_status(read_back(&s, bytes), COMET_ERROR_CORRUPT);
}

static void test_bytes_that_are_refused(void **state) {
    (void)state;
    static const struct {
        int at;
        uint8_t value;
        comet_status status;
    } cases[] = {{0, 'c', COMET_ERROR_CORRUPT},  {3, 0, COMET_ERROR_CORRUPT},     {4, 1, COMET_ERROR_VERSION},
                 {5, 1, COMET_ERROR_VERSION},    {6, 7, COMET_ERROR_CORRUPT},     {7, 4, COMET_ERROR_CORRUPT},
                 {8, 9, COMET_ERROR_CORRUPT},    {9, 3, COMET_ERROR_CORRUPT},     {10, 16, COMET_ERROR_CORRUPT},
                 {11, 1, COMET_ERROR_CORRUPT},   {15, 0xbe, COMET_ERROR_CORRUPT}, {16, 149, COMET_OK},
                 {16, 127, COMET_ERROR_CORRUPT}, {23, 0x80, COMET_ERROR_CORRUPT}, {24, 1, COMET_ERROR_CORRUPT},
                 {27, 1, COMET_ERROR_CORRUPT},   {48, 1, COMET_ERROR_CORRUPT},    {63, 1, COMET_ERROR_CORRUPT},
                 {88, 1, COMET_ERROR_CORRUPT},   {127, 1, COMET_ERROR_CORRUPT},   {71, 0x80, COMET_ERROR_CORRUPT},
                 {70, 0x40, COMET_ERROR_CORRUPT}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_stream s = written(0);
        s.bytes[cases[i].at] = cases[i].value;
        comet_status status = read_back(&s, sizeof s.bytes);
        if (status != cases[i].status)
            fail_msg("byte %d as %02x: %s", cases[i].at, cases[i].value, comet_status_string(status));
    }
}

static void test_bounds_that_are_refused(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, -1.0f, -1e-40f};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        small_stream s = written(0);
        memcpy(s.bytes + 12, &bad[i], 4);
        assert_status(read_back(&s, sizeof s.bytes), COMET_ERROR_CORRUPT);
    }
}

/* Shapes: the product is at most 2^48; an extent of 0 allows anything beside it. */
static void test_shapes(void **state) {
    (void)state;
    static const struct {
        uint64_t shape[3];
        comet_status status;
    } cases[] = {
        {{(uint64_t)1 << 48, 1, 1}, COMET_OK},
        {{((uint64_t)1 << 48) + 1, 1, 1}, COMET_ERROR_CORRUPT},
        {{(uint64_t)1 << 24, (uint64_t)1 << 24, 2}, COMET_ERROR_CORRUPT},
        {{(uint64_t)1 << 62, 4, 1}, COMET_ERROR_CORRUPT},
        {{(uint64_t)1 << 32, (uint64_t)1 << 32, 1}, COMET_ERROR_CORRUPT},
        {{UINT64_MAX, 1, 1}, COMET_ERROR_CORRUPT},
        {{UINT64_MAX, 0, 1}, COMET_ERROR_CORRUPT},
        {{0, 0, 0}, COMET_OK},
        {{(uint64_t)1 << 40, 0, (uint64_t)1 << 40}, COMET_OK},
        {{(uint64_t)1 << 62, (uint64_t)1 << 62, 0}, COMET_OK},
        {{INT64_MAX, INT64_MAX, 0}, COMET_OK},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_stream s = written(0);
        stream_header h;
        memcpy(s.bytes + 64, cases[i].shape, sizeof cases[i].shape);
        assert_status(comet_stream_header_read(s.bytes, sizeof s.bytes, 1, &h), cases[i].status);
        if (cases[i].status == COMET_OK)
            assert_true(h.count == 0 || h.count == (int64_t)1 << 48);
    }
}

static void test_checksum(void **state) {
    (void)state;
    small_stream s = written(STREAM_CHECKSUM), zeroed = s;
    memset(zeroed.bytes + 24, 0, 4);
    uint32_t expected = (uint32_t)crc32(0, zeroed.bytes, 148), stored;
    memcpy(&stored, s.bytes + 24, 4);
    assert_int_equal(stored, expected);
    assert_ok(read_back(&s, sizeof s.bytes));
    for (int bit = 0; bit < 148 * 8; bit++) {
        small_stream t = s;
        stream_header h;
        t.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_true(read_back(&t, sizeof t.bytes) != COMET_OK);
        if (bit >= 128 * 8) /* not asked for, not checked */
            assert_ok(comet_stream_header_read(t.bytes, sizeof t.bytes, 0, &h));
    }
    s.bytes[150] ^= 1; /* behind the stream */
    assert_ok(read_back(&s, sizeof s.bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),    cmocka_unit_test(test_back),
        cmocka_unit_test(test_too_short), cmocka_unit_test(test_bytes_that_are_refused),
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_bounds_that_are_refused),
        cmocka_unit_test(test_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
