/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that nobody compressed: cut short, bits flipped, tables and headers made up. Each lies right before memory
 * that faults, and so does the output: whatever comes back, nothing outside is touched, and every instruction set
 * agrees.
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/codec/isas.h"
#include "support/codec/samples.h"
#include "support/codec/tensors.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/guarded.h"
#include "support/rng.h"
#include "support/spec/spec_format.h"

static isa_list isas;
static sample_data data;
static guarded in, out;
static unsigned char good[SAMPLE_MOST_BYTES];
static size_t good_bytes;
static uint32_t good_values[SAMPLE_MOST_VALUES];

static void prepare(const sample *s, int checksum) {
    sample_make(s, &data);
    data.params.checksum = checksum;
    good_bytes = sample_compress(&data, NULL, good);
    assert_true(good_bytes > 0);
    comet_tensor t = sample_output(&data, good_values);
    assert_ok(comet_codec_decompress(good, good_bytes, sample_grid(&data), NULL, &t));
}

/* Decompresses what lies at the end of `in` into the end of `out`. The content of `out` starts as zeros. */
static comet_status decode(const unsigned char *stream, size_t bytes, comet_isa isa) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    size_t size = sample_output_bytes(&data);
    unsigned char *memory = guarded_place(&out, NULL, size);
    memset(memory, 0, size);
    comet_tensor t = sample_output(&data, memory);
    exec.isa = isa;
    return comet_codec_decompress(stream, bytes, sample_grid(&data), &exec, &t);
}

static int output_is_good(void) {
    size_t size = sample_output_bytes(&data);
    return memcmp(out.end - size, good_values, size) == 0;
}

static void inspect(const unsigned char *stream, size_t bytes) {
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    (void)comet_codec_inspect(stream, bytes, &info);
}

/* ---- cut short ---- */

static void test_truncation(void **state) {
    (void)state;
    for (int i = 0; i < sample_count(); i++)
        for (int checksum = 0; checksum < 2; checksum++) {
            prepare(&samples[i], checksum);
            for (size_t bytes = 0; bytes < good_bytes; bytes += EFFORT_SLOW && bytes > 200 ? 3 : 1) {
                unsigned char *stream = guarded_place(&in, good, bytes);
                comet_codec_info info = COMET_CODEC_INFO_INIT;
                comet_isa isa = isas.isa[bytes % (size_t)isas.count];
                comet_status status = decode(stream, bytes, isa);
                if (status != COMET_ERROR_CORRUPT)
                    fail_msg("%s cut to %zu of %zu: %s", samples[i].name, bytes, good_bytes,
                             comet_status_string(status));
                assert_status(comet_codec_inspect(stream, bytes, &info), COMET_ERROR_CORRUPT);
            }
            assert_ok(decode(guarded_place(&in, good, good_bytes), good_bytes, COMET_ISA_AUTO));
            assert_true(output_is_good());
        }
}

/*
 * Cut short, and the header says so: the length agrees, the rest does not. Only what a codec needs not may be missing.
 */
static void test_truncation_with_an_honest_length(void **state) {
    (void)state;
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        for (size_t bytes = 128; bytes < good_bytes; bytes += EFFORT_SLOW ? 3 : 1) {
            unsigned char *stream = guarded_place(&in, good, bytes);
            uint64_t length = bytes;
            memcpy(stream + 16, &length, sizeof length);
            comet_status status = decode(stream, bytes, isas.isa[bytes % (size_t)isas.count]);
            if (status != COMET_ERROR_CORRUPT)
                fail_msg("%s cut to %zu of %zu: %s", samples[i].name, bytes, good_bytes, comet_status_string(status));
            inspect(stream, bytes);
        }
    }
}

/* ---- bits ---- */

/* With a checksum no flipped bit goes through. */
static void test_bit_flips_with_checksum(void **state) {
    (void)state;
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 1);
        for (size_t bit = EFFORT_SLOW ? (size_t)i % 7 : 0; bit < good_bytes * 8; bit += EFFORT_SLOW ? 7 : 1) {
            unsigned char *stream = guarded_place(&in, good, good_bytes);
            stream[bit / 8] ^= (unsigned char)(1u << bit % 8);
            comet_status status = decode(stream, good_bytes, COMET_ISA_AUTO);
            int refused =
                status == COMET_ERROR_CHECKSUM || status == COMET_ERROR_CORRUPT || status == COMET_ERROR_VERSION;
            if (!refused && !(status == COMET_OK && output_is_good()))
                fail_msg("%s bit %zu: %s", samples[i].name, bit, comet_status_string(status));
            inspect(stream, good_bytes);
        }
    }
}

/* Without one, anything but a crash; and the same for every instruction set. */
static void compare_isas(const unsigned char *stream, size_t bytes) {
    size_t size = sample_output_bytes(&data);
    static uint32_t first[SAMPLE_MOST_VALUES];
    comet_status expected = decode(stream, bytes, isas.isa[0]);
    memcpy(first, out.end - size, size);
    for (int i = 1; i < isas.count; i++) {
        assert_status(decode(stream, bytes, isas.isa[i]), expected);
        if (expected == COMET_OK)
            assert_memory_equal(out.end - size, first, size);
    }
    inspect(stream, bytes);
}

static void test_bit_flips(void **state) {
    (void)state;
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        for (size_t bit = EFFORT_SLOW ? (size_t)i % 7 : 0; bit < good_bytes * 8; bit += EFFORT_SLOW ? 7 : 1) {
            unsigned char *stream = guarded_place(&in, good, good_bytes);
            stream[bit / 8] ^= (unsigned char)(1u << bit % 8);
            compare_isas(stream, good_bytes);
        }
    }
}

/* ---- made up ---- */

static uint64_t extreme(rng *r) {
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      7,
                                      8,
                                      9,
                                      1023,
                                      1024,
                                      0x1fff,
                                      0x2000,
                                      0xffff,
                                      (uint64_t)1 << 31,
                                      (uint64_t)1 << 32,
                                      (uint64_t)1 << 47,
                                      (uint64_t)1 << 48,
                                      ((uint64_t)1 << 48) + 1,
                                      (uint64_t)1 << 62,
                                      INT64_MAX,
                                      (uint64_t)1 << 63,
                                      UINT64_MAX - 7,
                                      UINT64_MAX};
    return values[rng_below(r, sizeof values / sizeof *values)];
}

/* One of: bytes anywhere, the table, the heads of tiles, an offset, a piece of the stream copied elsewhere. */
static void corrupt(rng *r, unsigned char *stream, size_t bytes) {
    size_t body = bytes > 128 ? bytes - 128 : 0;
    if (body == 0)
        return;
    size_t at = 128 + rng_below(r, body);
    switch (rng_below(r, 5)) {
    case 0:
        stream[at] = (unsigned char)rng_next(r);
        break;
    case 1: { /* an entry, or what lies where an entry would */
        uint16_t entry = (uint16_t)(rng_below(r, 2) ? rng_next(r) : extreme(r));
        size_t entry_at = 128 + 8 + 2 * rng_below(r, 8);
        if (entry_at + 2 <= bytes)
            memcpy(stream + entry_at, &entry, sizeof entry);
        break;
    }
    case 2: { /* the first bytes of the payload: head and flags */
        size_t head = 128 + 24 + rng_below(r, 20);
        if (head < bytes)
            stream[head] = (unsigned char)rng_next(r);
        break;
    }
    case 3: {
        uint64_t offset = rng_below(r, 2) ? extreme(r) : rng_below(r, body);
        if (body >= 8)
            memcpy(stream + 128, &offset, sizeof offset);
        break;
    }
    default: {
        size_t from = 128 + rng_below(r, body), length = rng_below(r, 40);
        size_t most = bytes - (from > at ? from : at);
        memmove(stream + at, stream + from, length < most ? length : most);
        break;
    }
    }
}

static void test_random_corruption(void **state) {
    (void)state;
    rng r = rng_seed(1);
    int rounds = effort(1500);
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        for (int round = 0; round < rounds; round++) {
            unsigned char *stream = guarded_place(&in, good, good_bytes);
            for (int64_t n = rng_between(&r, 1, 4); n > 0; n--)
                corrupt(&r, stream, good_bytes);
            compare_isas(stream, good_bytes);
        }
    }
}

static void put_extreme_fields(rng *r, unsigned char *stream) {
    static const int wide[] = {16, 32, 40, 64, 72, 80, 88};
    for (int64_t n = rng_between(r, 1, 4); n > 0; n--) {
        uint64_t v = extreme(r);
        switch (rng_below(r, 4)) {
        case 0:
            stream[6 + rng_below(r, 6)] = (unsigned char)rng_below(r, 12);
            break;
        case 1:
            memcpy(stream + (rng_below(r, 2) ? 12 : 28), &v, 4);
            break;
        default:
            memcpy(stream + wide[rng_below(r, 7)], &v, sizeof v);
            break;
        }
    }
}

/* The header's own shape as a tensor. Its data must not be touched where there is not so much memory. */
static int tensor_of_header(const comet_codec_info *info, comet_tensor *t, void *memory, size_t most) {
    comet_dtype dtype = info->dtype;
    if (comet_tensor_init(t, memory, dtype, info->layout, info->ndim, info->shape) != COMET_OK)
        return 0;
    if ((uint64_t)info->count > most / comet_dtype_size(dtype))
        t->data = (void *)(uintptr_t)64; /* writing there faults */
    return 1;
}

/* Headers with extreme fields in front of small bodies: refused soon, with little memory. */
static void test_extreme_headers(void **state) {
    (void)state;
    rng r = rng_seed(2);
    int rounds = effort(4000);
    static _Alignas(64) unsigned char memory[1 << 20];
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        for (int round = 0; round < rounds; round++) {
            unsigned char *stream = guarded_place(&in, good, good_bytes);
            comet_codec_info info = COMET_CODEC_INFO_INIT;
            put_extreme_fields(&r, stream);
            clock_t before = clock();
            compare_isas(stream, good_bytes);
            if (comet_codec_inspect(stream, good_bytes, &info) == COMET_OK && info.count != data.count) {
                comet_tensor t;
                counting_allocator a;
                comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
                counting_allocator_init(&a);
                exec.allocator = &a.allocator;
                if (tensor_of_header(&info, &t, memory, sizeof memory))
                    (void)comet_codec_decompress(stream, good_bytes, sample_grid(&data), &exec, &t);
                assert_true(a.largest < (size_t)1 << 22 && a.live_blocks == 0);
            }
            assert_true((double)(clock() - before) / CLOCKS_PER_SEC < 2.0);
        }
    }
}

/* Every codec with the largest shape there is, and a body of nothing or a few bytes. */
static void test_huge_shapes(void **state) {
    (void)state;
    static const uint64_t extents[][3] = {{(uint64_t)1 << 48, 1, 1},
                                          {1, (uint64_t)1 << 48, 1},
                                          {(uint64_t)1 << 24, (uint64_t)1 << 24, 1},
                                          {1, 1, (uint64_t)1 << 48},
                                          {3, 5, (uint64_t)1 << 44}};
    for (int i = 0; i < sample_count(); i++)
        for (unsigned e = 0; e < sizeof extents / sizeof *extents; e++)
            for (size_t body = 0; body < 60; body += 12) {
                prepare(&samples[i], 0);
                comet_codec_info info = COMET_CODEC_INFO_INIT;
                size_t bytes = 128 + body;
                unsigned char *stream = guarded_place(&in, good, bytes < good_bytes ? bytes : good_bytes);
                bytes = (size_t)(in.end - stream);
                uint64_t length = bytes;
                stream[8] = 3;
                memset(stream + 64, 0, 64);
                memcpy(stream + 64, extents[e], sizeof extents[e]);
                memcpy(stream + 16, &length, sizeof length);
                comet_tensor t = data.tensor;
                t.data = (void *)(uintptr_t)64;
                t.dtype = sample_grid(&data) ? COMET_F32 : t.dtype;
                t.ndim = 3;
                for (int d = 0; d < 3; d++)
                    t.shape[d] = (int64_t)extents[e][d];
                counting_allocator a;
                comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
                counting_allocator_init(&a);
                a.most = (size_t)1 << 24;
                exec.allocator = &a.allocator;
                comet_codec_grid grid = data.grid;
                grid.channels = t.layout == COMET_NHWC ? t.shape[2] : t.layout == COMET_NCHW ? t.shape[1] : 1;
                const comet_codec_grid *g =
                    sample_grid(&data) && grid.channels < SAMPLE_MOST_CHANNELS ? &grid : sample_grid(&data);
                assert_true(comet_codec_decompress(stream, bytes, g, &exec, &t) != COMET_OK);
                assert_int_equal(a.live_blocks, 0);
                if (data.params.codec == COMET_CODEC_EB || data.params.codec == COMET_CODEC_ZVC)
                    assert_status(comet_codec_inspect(stream, bytes, &info), COMET_ERROR_CORRUPT);
                else
                    inspect(stream, bytes);
            }
}

/* Kinds that there are not, whatever the tile holds. */
static void test_unknown_kinds(void **state) {
    (void)state;
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        comet_codec_info info = COMET_CODEC_INFO_INIT;
        assert_ok(comet_codec_inspect(good, good_bytes, &info));
        for (int64_t t = 0; t < info.tiles; t++)
            for (unsigned kind = 3; kind < 8; kind++) {
                unsigned char *stream = guarded_place(&in, good, good_bytes);
                unsigned char *high = stream + 128 + 8 + 2 * t + 1; /* no sample has more than a group of tiles */
                *high = (unsigned char)((*high & 0x1f) | kind << 5);
                assert_status(decode(stream, good_bytes, COMET_ISA_AUTO), COMET_ERROR_CORRUPT);
                assert_status(comet_codec_inspect(stream, good_bytes, &info), COMET_ERROR_CORRUPT);
            }
    }
}

/* Code tiles larger than any can be, at the end of the payload, where a decoder has to copy them. */
static void test_large_code_tiles(void **state) {
    (void)state;
    static const uint16_t sizes[] = {2000, 2559, 2560, 2561, 2624, 2625, 4096, 8191};
    static unsigned char stream[128 + 24 + 8191];
    prepare(&samples[0], 0);
    assert_int_equal(good[7], COMET_F32);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int head = 0; head < 256; head++) {
            uint64_t bytes = 128 + 24 + sizes[i];
            uint16_t entry = sizes[i];
            memset(stream, 0xAA, sizeof stream); /* flags: all columns full */
            memcpy(stream, good, 128);
            memcpy(stream + 16, &bytes, sizeof bytes);
            memset(stream + 128, 0, 24);
            memcpy(stream + 136, &entry, sizeof entry);
            stream[128 + 24] = (unsigned char)head;
            assert_status(decode(guarded_place(&in, stream, bytes), bytes, isas.isa[head % isas.count]),
                          COMET_ERROR_CORRUPT);
        }
}

/* The classes a stream has, from the text. */
static int class_exists(const unsigned char *stream, int index) {
    spec_stream s = {.codec = stream[6], .dtype = stream[7], .flags = stream[10]};
    memcpy(&s.bound, stream + 12, sizeof s.bound);
    return spec_class_of(&s, index).exists;
}

/*
 * A code tile of a class that the stream does not have (in a lossless stream that is every one with bytes), or of wide
 * codes with a class.
 */
static void test_unknown_classes(void **state) {
    (void)state;
    int tried = 0;
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        comet_codec_info info = COMET_CODEC_INFO_INIT;
        assert_ok(comet_codec_inspect(good, good_bytes, &info));
        uint16_t entry;
        memcpy(&entry, good + 136, sizeof entry);
        if (info.tiles == 0 || (entry & 0x1fff) == 0)
            continue;
        for (int c = 0; c < 4; c++) {
            unsigned char *stream = guarded_place(&in, good, good_bytes), *head = stream + 128 + 24;
            uint16_t codes = entry & 0x1fff; /* kind 0 */
            int wide = (*head & 15) >= 8;
            if (class_exists(stream, wide ? SPEC_WIDE : c) && !(wide && c != 0))
                continue;
            tried++;
            memcpy(stream + 136, &codes, sizeof codes);
            *head = (unsigned char)((*head & 0x9f) | c << 5);
            for (int k = 0; k < isas.count; k++)
                assert_status(decode(stream, good_bytes, isas.isa[k]), COMET_ERROR_CORRUPT);
        }
    }
    assert_true(tried > 30);
}

/* Into strided tensors nothing is written between the values either. */
static void test_corruption_into_strides(void **state) {
    (void)state;
    rng r = rng_seed(3);
    int rounds = effort(60);
    for (int i = 0; i < sample_count(); i++) {
        prepare(&samples[i], 0);
        test_shape shape = {samples[i].layout, samples[i].ndim, {0}};
        memcpy(shape.shape, samples[i].shape, sizeof samples[i].shape);
        for (int round = 0; round < rounds; round++) {
            test_tensor t;
            comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
            exec.isa = isas.isa[rng_below(&r, (uint64_t)isas.count)];
            unsigned char *stream = guarded_place(&in, good, good_bytes);
            corrupt(&r, stream, good_bytes);
            comet_dtype dtype = sample_grid(&data) ? COMET_F32 : samples[i].dtype;
            test_tensor_new(&t, &r, dtype, &shape, (stride_kind)rng_below(&r, STRIDES_OUTPUTS));
            (void)comet_codec_decompress(stream, good_bytes, sample_grid(&data), &exec, &t.view);
            assert_true(test_tensor_gaps_intact(&t));
            test_tensor_free(&t);
        }
    }
}

static void test_noise(void **state) {
    (void)state;
    rng r = rng_seed(4);
    int rounds = effort(20000);
    prepare(&samples[0], 0);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = rng_below(&r, 400);
        unsigned char *stream = guarded_place(&in, NULL, bytes);
        for (size_t i = 0; i < bytes; i++)
            stream[i] = (unsigned char)rng_next(&r);
        if (bytes >= 6 && rng_below(&r, 4))
            memcpy(stream, "CMET\0\0", 6);
        assert_true(decode(stream, bytes, COMET_ISA_AUTO) != COMET_OK);
        inspect(stream, bytes);
    }
}

static int group_setup(void **state) {
    (void)state;
    isas = isa_list_get();
    isa_list_print();
    guarded_new(&in, SAMPLE_MOST_BYTES);
    guarded_new(&out, SAMPLE_MOST_VALUES * 4);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    guarded_free(&in);
    guarded_free(&out);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_truncation_with_an_honest_length),
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_bit_flips_with_checksum),
        cmocka_unit_test(test_random_corruption),
        cmocka_unit_test(test_extreme_headers),
        cmocka_unit_test(test_huge_shapes),
        cmocka_unit_test(test_corruption_into_strides),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_unknown_kinds),
        cmocka_unit_test(test_unknown_classes),
        cmocka_unit_test(test_large_code_tiles),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
