/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles stored exactly on a device (zvc, and eb with a bound of 0): every density up to the border of sparse and raw,
 * every way to reach values, patterns of any bits; and streams whose tiles lie, or are stored, as no encoder does it.
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/trip_run.h"
#include "support/cuda/cuda_backend.h"

enum { HEADER = 128, ROW = 24, AT_BYTES = 16, BITMAP = 128, TILE = 1024, KIND_SPARSE = 1 << 13 };

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* ---- values ---- */

/* Any bits but 0: NaN, -0 and subnormals among them. Every other tile is of ordinary numbers alone. */
static uint32_t pattern_of(rng *r, comet_dtype dtype, int64_t tile) {
    static const uint32_t odd[3][4] = {{0x80000000u, 0x7fc00001u, 0xff800000u, 1}, /* of each dtype */
                                       {0x8000u, 0x7e01u, 0xfc00u, 1},
                                       {0x8000u, 0x7fc1u, 0xff80u, 1}};
    static const uint32_t one[3] = {0x3f800000u, 0x3c00u, 0x3f80u}, sign[3] = {0x80000000u, 0x8000u, 0x8000u};
    if (tile % 2 && rng_below(r, 8) == 0)
        return odd[dtype][rng_below(r, 4)];
    return (one[dtype] + (uint32_t)rng_below(r, 100)) | (rng_below(r, 3) ? 0 : sign[dtype]);
}

/* How many values of a tile are not 0: from none to all, and around the border where raw becomes the smaller. */
static int64_t marked_of(rng *r, int64_t tile, int64_t value_bytes) {
    const int64_t border = TILE - BITMAP / value_bytes;
    const int64_t marked[] = {0, 1, 100, 512, border - 1, border, border + 1, TILE - 1, TILE};
    enum { COUNT = sizeof marked / sizeof *marked };
    return tile < COUNT ? marked[tile] : marked[rng_below(r, COUNT)];
}

/* Exactly so many of each 1,024 values side by side: a tile, where the tensor is flat. */
static void fill(rng *r, comet_dtype dtype, void *patterns, int64_t count) {
    const int64_t value_bytes = (int64_t)comet_dtype_size(dtype);
    for (int64_t first = 0; first < count; first += TILE) {
        int64_t left = marked_of(r, first / TILE, value_bytes);
        for (int64_t i = first; i < count && i < first + TILE; i++) {
            int is_marked = (int64_t)rng_below(r, (uint64_t)(first + TILE - i)) < left;
            uint32_t p = is_marked ? pattern_of(r, dtype, first / TILE) : 0;
            left -= is_marked;
            memcpy((char *)patterns + i * value_bytes, &p, (size_t)value_bytes);
        }
    }
}

/* ---- both sides ---- */

typedef struct exact_case {
    trip t; /* what cuda_compress_to needs of one */
    unsigned char *stream;
    comet_codec_result result;
    size_t tensor_bytes;
} exact_case;

static void case_new(exact_case *c, rng *r, comet_dtype dtype, const test_shape *shape, comet_codec codec) {
    comet_tensor view;
    size_t capacity;
    memset(c, 0, sizeof *c);
    c->t.spec = (trip_spec){.dtype = dtype, .shape = *shape};
    c->t.params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    c->t.params.codec = codec;
    c->t.params.keep_mask = codec == COMET_CODEC_EB && rng_below(r, 2);
    c->t.params.bound = 0.0;
    c->t.count = shape_count(shape);
    c->tensor_bytes = cuda_view_bytes(shape, dtype);
    c->t.patterns = take(c->tensor_bytes);
    fill(r, dtype, c->t.patterns, c->t.count);
    assert_ok(comet_tensor_init(&view, c->t.patterns, dtype, shape->layout, shape->ndim, shape->shape));
    assert_ok(comet_codec_max_bytes(&view, &c->t.params, &capacity));
    c->stream = take(capacity);
    c->result = (comet_codec_result)COMET_CODEC_RESULT_INIT;
    assert_ok(comet_codec_compress(&view, &c->t.params, NULL, c->stream, capacity, &c->result));
}

static void case_free(exact_case *c) {
    free(c->t.patterns);
    free(c->stream);
}

/* What the device decodes from `bytes` of `stream` is what was compressed. */
static void check_decoded(const exact_case *c, const void *stream, size_t bytes) {
    cuda_reading d = {.shape = c->t.spec.shape, .dtype = c->t.spec.dtype, .params = &c->t.params};
    void *got;
    assert_ok(cuda_decompress_from(&d, stream, bytes, &got));
    assert_int_equal(d.word, COMET_OK);
    assert_memory_equal(got, c->t.patterns, c->tensor_bytes);
    free(got);
}

static void check_compressed(const exact_case *c) {
    failure f;
    cuda_written w;
    comet_status status;
    cuda_place place = {.behind = 0};
    comet_tensor view = cuda_view(&c->t.spec.shape, c->t.spec.dtype, NULL);
    assert_ok(comet_cuda_max_bytes(&view, &c->t.params, &place.capacity));
    unsigned char *bytes = take(place.capacity);
    size_t size;
    assert_check(cuda_compress_to(&c->t, &c->t.params, &place, NULL, &status, &w, &f), f);
    assert_ok(status);
    assert_int_equal(w.result.status, COMET_OK);
    assert_ok(comet_codec_serialise(w.memory, w.result.codec.bytes, 0, bytes, place.capacity, &size));
    assert_int_equal(size, c->result.bytes);
    assert_memory_equal(bytes, c->stream, size);
    assert_memory_equal(&w.result.codec.stats, &c->result.stats, sizeof c->result.stats);
    assert_int_equal(w.result.codec.tiles_exact, c->result.tiles_exact);
    check_decoded(c, w.memory, w.result.codec.bytes);
    free(w.memory);
    comet_codec_params without = c->t.params; /* without statistics, the same stream */
    without.stats_kind = COMET_STATS_NONE;
    assert_check(cuda_compress_to(&c->t, &without, &place, NULL, &status, &w, &f), f);
    assert_ok(status);
    assert_int_equal(w.result.codec.tiles_exact, c->result.tiles_exact);
    assert_int_equal(w.result.codec.stats.nonzero, 0);
    assert_ok(comet_codec_serialise(w.memory, w.result.codec.bytes, 0, bytes, place.capacity, &size));
    assert_int_equal(size, c->result.bytes);
    assert_memory_equal(bytes, c->stream, size);
    free(bytes);
    free(w.memory);
}

/* ---- tests ---- */

/* Two groups of tiles without padding and a part of one, in every reach. */
static void test_every_density(void **state) {
    (void)state;
    static const test_shape shapes[] = {{COMET_FLAT, 1, {20000}},         {COMET_FLAT, 1, {9 * TILE}},
                                        {COMET_NCHW, 4, {2, 3, 33, 100}}, {COMET_NCHW, 4, {2, 3, 33, 98}},
                                        {COMET_NCHW, 4, {2, 3, 33, 101}}, {COMET_NHWC, 4, {2, 16, 16, 40}},
                                        {COMET_NHWC, 4, {2, 16, 18, 33}}};
    rng r = rng_seed(1);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = COMET_F32; dtype <= COMET_BF16; dtype++)
            for (int codec = COMET_CODEC_EB; codec <= COMET_CODEC_ZVC; codec++) {
                exact_case c;
                case_new(&c, &r, (comet_dtype)dtype, &shapes[s], (comet_codec)codec);
                check_compressed(&c);
                check_decoded(&c, c.stream, c.result.bytes);
                case_free(&c);
            }
}

static uint64_t get_u64(const unsigned char *from) {
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

static void put_u64(unsigned char *to, uint64_t v) {
    memcpy(to, &v, sizeof v);
}

/* Groups that start anywhere, so that values are not aligned, and that end where the slot does. */
static void test_tiles_lie_anywhere(void **state) {
    (void)state;
    static const test_shape shape = {COMET_FLAT, 1, {12 * TILE + 77}};
    rng r = rng_seed(2);
    for (int dtype = COMET_F32; dtype <= COMET_BF16; dtype++) {
        exact_case c;
        case_new(&c, &r, (comet_dtype)dtype, &shape, COMET_CODEC_ZVC);
        const size_t table_end = HEADER + 2 * ROW;
        for (size_t by = 1; by <= 17; by++) {
            unsigned char *moved = take(c.result.bytes + by);
            memcpy(moved, c.stream, table_end);
            memset(moved + table_end, 0xff, by);
            memcpy(moved + table_end + by, c.stream + table_end, c.result.bytes - table_end);
            for (size_t row = HEADER; row < table_end; row += ROW)
                put_u64(moved + row, get_u64(moved + row) + by);
            put_u64(moved + AT_BYTES, c.result.bytes + by);
            check_decoded(&c, moved, c.result.bytes + by);
            free(moved);
        }
        case_free(&c);
    }
}

/* A sparse tile of which every value is marked is larger than a raw one, and still one. */
static void test_all_are_marked(void **state) {
    (void)state;
    static const test_shape shape = {COMET_FLAT, 1, {TILE}};
    rng r = rng_seed(3);
    for (int dtype = COMET_F32; dtype <= COMET_BF16; dtype++) {
        exact_case c;
        case_new(&c, &r, (comet_dtype)dtype, &shape, COMET_CODEC_ZVC);
        size_t bytes = HEADER + ROW + BITMAP + c.tensor_bytes;
        uint16_t entry = (uint16_t)((BITMAP + c.tensor_bytes) | KIND_SPARSE);
        unsigned char *stream = take(bytes), *values = stream + HEADER + ROW + BITMAP;
        for (size_t i = 0; i < c.tensor_bytes; i++)
            ((unsigned char *)c.t.patterns)[i] = (unsigned char)(1 + rng_below(&r, 255));
        memcpy(stream, c.stream, HEADER);
        memset(stream + HEADER, 0, ROW);
        put_u64(stream + AT_BYTES, bytes);
        memcpy(stream + HEADER + 8, &entry, sizeof entry);
        memset(stream + HEADER + ROW, 0xff, BITMAP);
        const size_t size = c.tensor_bytes / TILE;
        for (size_t i = 0; i < TILE; i++) /* row k, lane l, column m: 256 k + 8 l + m is 32 l + 8 k + m of the tensor */
            memcpy(values + size * i, (const char *)c.t.patterns + size * ((i >> 3 & 31) * 32 + (i >> 8) * 8 + (i & 7)),
                   size);
        check_decoded(&c, stream, bytes);
        free(stream);
        case_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_density),
        cmocka_unit_test(test_tiles_lie_anywhere),
        cmocka_unit_test(test_all_are_marked),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
