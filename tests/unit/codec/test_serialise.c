/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serialised form: whatever order and gaps the pieces of a stream have, comet_codec_serialise writes the bytes that
 * comet_codec_compress writes, and what is no stream is an error.
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "support/codec/samples.h"
#include "support/codec/trips.h"
#include "support/effort.h"
#include "support/guarded.h"

enum { HEADER = 128, AT_BYTES = 16, GROUP = 24, GROUP_TILES = 8, SIZE_MASK = 8191, MOST_GAP = 40 };

static sample_data data;
static guarded in, out;

/* A stream and what it is made of. */
typedef struct pieces {
    unsigned char *stream; /* as compress wrote it */
    size_t bytes;
    int64_t groups;
    size_t payload_at;
} pieces;

static unsigned char *allocate(size_t bytes) {
    unsigned char *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void compress_trip(const trip *t, int checksum, pieces *p) {
    comet_codec_params params = t->params;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    size_t capacity;
    params.checksum = checksum;
    assert_ok(comet_codec_max_bytes(&t->input.view, &params, &capacity));
    p->stream = allocate(capacity);
    assert_ok(comet_codec_compress(&t->input.view, &params, NULL, p->stream, capacity, &result));
    p->bytes = result.bytes;
    p->groups = (result.tiles + GROUP_TILES - 1) / GROUP_TILES;
    p->payload_at = HEADER + (size_t)p->groups * GROUP;
}

static size_t group_bytes(const unsigned char *group) {
    size_t bytes = 0;
    for (int i = 0; i < GROUP_TILES; i++)
        bytes += comet_read_u16(group + 8 + 2 * i) & SIZE_MASK;
    return bytes;
}

static int64_t *random_order(rng *r, int64_t count) {
    int64_t *order = malloc((size_t)(count + 1) * sizeof *order);
    assert_non_null(order);
    for (int64_t i = 0; i < count; i++) {
        int64_t j = rng_between(r, 0, i);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

/* The same stream with its groups in another order and junk between them: as a device may leave it. */
static unsigned char *scatter(const pieces *p, rng *r, size_t *bytes) {
    size_t at = p->payload_at, most = p->bytes + (size_t)(p->groups + 1) * MOST_GAP;
    unsigned char *stream = allocate(most);
    int64_t *order = random_order(r, p->groups);
    memset(stream, 0xa5, most);
    memcpy(stream, p->stream, p->payload_at);
    for (int64_t i = 0; i < p->groups; i++) {
        unsigned char *group = stream + HEADER + order[i] * GROUP;
        size_t size = group_bytes(group);
        at += (size_t)rng_below(r, MOST_GAP);
        memcpy(stream + at, p->stream + p->payload_at + comet_read_u64(group), size);
        comet_write_u64(group, at - p->payload_at);
        at += size;
    }
    at += (size_t)rng_below(r, MOST_GAP);
    comet_write_u64(stream + AT_BYTES, at);
    *bytes = at;
    free(order);
    return stream;
}

static void make_trip(trip *t, rng *r, int round) {
    static const comet_dtype dtypes[] = {COMET_F32, COMET_F16, COMET_BF16};
    trip_spec spec = {.dtype = dtypes[round % 3],
                      .shape = shape_random(r, (comet_layout)(round / 3 % 3), 60000),
                      .strides = STRIDES_CONTIGUOUS,
                      .values = (value_kind)rng_below(r, VALUES_KINDS),
                      .mode = (trip_mode)rng_below(r, TRIP_MODES),
                      .scale = 1.0,
                      .bound = round % 4 ? 0.1 : 0.0};
    trip_new(t, r, &spec);
}

/* `stream` serialises to exactly `expected`, in memory that ends where it does. */
static void check_serialises(const unsigned char *stream, size_t bytes, int checksum, const pieces *expected) {
    size_t used = 0;
    unsigned char *memory = guarded_place(&out, NULL, expected->bytes);
    assert_ok(comet_codec_serialise(stream, bytes, checksum, memory, expected->bytes, &used));
    assert_int_equal(used, expected->bytes);
    assert_memory_equal(memory, expected->stream, used);
    memory = guarded_place(&out, NULL, expected->bytes - 1);
    assert_status(comet_codec_serialise(stream, bytes, checksum, memory, expected->bytes - 1, &used),
                  COMET_ERROR_CAPACITY);
}

static void test_scattered(void **state) {
    (void)state;
    for (int round = 0; round < effort(200); round++) {
        rng r = rng_seed((uint64_t)round);
        trip t;
        pieces plain, checked;
        make_trip(&t, &r, round);
        compress_trip(&t, 0, &plain);
        compress_trip(&t, 1, &checked);
        size_t bytes;
        unsigned char *scattered = scatter(&plain, &r, &bytes);
        const unsigned char *stream = guarded_place(&in, scattered, bytes);
        check_serialises(stream, bytes, 0, &plain);
        check_serialises(stream, bytes, 1, &checked);
        check_serialises(checked.stream, checked.bytes, 0, &plain);
        free(scattered);
        free(plain.stream);
        free(checked.stream);
        trip_free(&t);
    }
}

static void test_every_codec(void **state) {
    (void)state;
    static unsigned char streams[2][SAMPLE_MOST_BYTES + 8];
    for (int i = 0; i < sample_count(); i++) {
        pieces expected[2];
        sample_make(&samples[i], &data);
        for (int checksum = 0; checksum < 2; checksum++) {
            data.params.checksum = checksum;
            expected[checksum] = (pieces){.stream = streams[checksum]};
            expected[checksum].bytes = sample_compress(&data, NULL, streams[checksum]);
            memset(streams[checksum] + expected[checksum].bytes, 0x5a, 8); /* what lies behind is dropped */
        }
        for (int from = 0; from < 2; from++)
            for (int to = 0; to < 2; to++)
                check_serialises(streams[from], expected[from].bytes + 8, to, &expected[to]);
    }
}

/* ---- what is no stream ---- */

static void test_truncated(void **state) {
    (void)state;
    static unsigned char stream[SAMPLE_MOST_BYTES], memory[SAMPLE_MOST_BYTES];
    for (int i = 0; i < sample_count(); i += 1 + 3 * EFFORT_SLOW) {
        size_t used;
        sample_make(&samples[i], &data);
        size_t whole = sample_compress(&data, NULL, stream);
        for (size_t bytes = 0; bytes < whole; bytes++)
            assert_status(
                comet_codec_serialise(guarded_place(&in, stream, bytes), bytes, 0, memory, sizeof memory, &used),
                COMET_ERROR_CORRUPT);
    }
}

static void test_checksum(void **state) {
    (void)state;
    static unsigned char stream[SAMPLE_MOST_BYTES], memory[SAMPLE_MOST_BYTES];
    size_t used;
    sample_make(&samples[0], &data);
    data.params.checksum = 1;
    size_t bytes = sample_compress(&data, NULL, stream);
    stream[bytes - 1] ^= 1;
    assert_status(comet_codec_serialise(stream, bytes, 0, memory, sizeof memory, &used), COMET_ERROR_CHECKSUM);
}

/* A bit, a byte or a word of the header and the table is not what it was. */
static void damage(rng *r, unsigned char *stream, size_t reach) {
    size_t at = (size_t)rng_below(r, reach - 8);
    switch (rng_below(r, 3)) {
    case 0:
        stream[at] ^= (unsigned char)(1u << rng_below(r, 8));
        break;
    case 1:
        stream[at] = (unsigned char)rng_next(r);
        break;
    default:
        comet_write_u64(stream + at, rng_below(r, 2) ? rng_below(r, 4096) : rng_next(r));
        break;
    }
}

/* Whatever comes of it, nothing outside is touched, and what is written can be read. */
static void test_damaged(void **state) {
    (void)state;
    for (int round = 0; round < effort(60); round++) {
        rng r = rng_seed(1000u + (uint64_t)round);
        trip t;
        pieces plain;
        size_t bytes, used;
        make_trip(&t, &r, round);
        compress_trip(&t, 0, &plain);
        unsigned char *scattered = scatter(&plain, &r, &bytes);
        for (int i = 0; i < 200; i++) {
            unsigned char *stream = guarded_place(&in, scattered, bytes);
            damage(&r, stream, plain.payload_at + 8 <= bytes ? plain.payload_at + 8 : bytes);
            size_t capacity = rng_below(&r, 2) ? bytes : (size_t)rng_below(&r, bytes + 1);
            unsigned char *memory = guarded_place(&out, NULL, capacity);
            if (comet_codec_serialise(stream, bytes, (int32_t)rng_below(&r, 2), memory, capacity, &used) == COMET_OK) {
                comet_codec_info info = COMET_CODEC_INFO_INIT;
                assert_true(used <= capacity);
                assert_ok(comet_codec_inspect(memory, used, &info));
                assert_int_equal(info.bytes, used);
            }
        }
        free(scattered);
        free(plain.stream);
        trip_free(&t);
    }
}

static void test_arguments(void **state) {
    (void)state;
    static unsigned char stream[SAMPLE_MOST_BYTES], memory[SAMPLE_MOST_BYTES];
    size_t used;
    sample_make(&samples[0], &data);
    size_t bytes = sample_compress(&data, NULL, stream);
    assert_status(comet_codec_serialise(NULL, bytes, 0, memory, sizeof memory, &used), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_serialise(stream, bytes, 0, NULL, sizeof memory, &used), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_serialise(stream, bytes, 0, memory, sizeof memory, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_serialise(stream, bytes, 0, memory, HEADER - 1, &used), COMET_ERROR_CAPACITY);
}

static int set_up(void **state) {
    (void)state;
    guarded_new(&in, 1 << 20);
    guarded_new(&out, 1 << 20);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    guarded_free(&in);
    guarded_free(&out);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scattered), cmocka_unit_test(test_every_codec), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_checksum),  cmocka_unit_test(test_damaged),     cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
