/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .safetensors: written and read back; a file of the format's own library; a table of headers that must be refused;
 * files that are there whole or not at all, whatever happens while they are written.
 */
#include "test_data_files.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/file/atomic_file.h"
#include "data/files/safetensors.h"
#include "support/counting_allocator.h"
#include "support/effort.h"

static comet_message message;

static comet_safetensors *open_file(const char *path) {
    comet_safetensors *file = NULL;
    message.text[0] = '\0';
    if (comet_safetensors_open(path, NULL, &file, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return file;
}

/* ---- round trip ---- */

static const float floats[6] = {1.0f, -2.5f, 3.25f, 1e-30f, 65504.0f, -0.0f};
static const uint16_t halves[3] = {0x3c00, 0xc100, 0x7bff}; /* 1, -2.5, 65504 */
static const uint16_t brains[3] = {0x3f80, 0xc020, 0x4780}; /* 1, -2.5, 65536 */
static const double doubles[2] = {0.1, -1e10};
static const int64_t integers[1] = {-7};
static const uint8_t bytes_of_text[3] = {1, 2, 3};

enum { SOURCES = 7 };

static const comet_safetensors_source sources[SOURCES] = {
    {.entry = {"layer1.0.conv1.weight", COMET_SAFETENSORS_F32, 4, {1, 3, 2, 1}}, .data = floats},
    {.entry = {"bn1.num_batches_tracked", COMET_SAFETENSORS_I64, 0, {0}}, .data = integers},
    {.entry = {"half", COMET_SAFETENSORS_F16, 1, {3}}, .data = halves},
    {.entry = {"brain", COMET_SAFETENSORS_BF16, 2, {3, 1}}, .data = brains},
    {.entry = {"double", COMET_SAFETENSORS_F64, 1, {2}}, .data = doubles},
    {.entry = {"nothing", COMET_SAFETENSORS_F32, 3, {2, 0, 5}}},
    {.entry = {"quoted \"\\\x01 \xc3\xa9", COMET_SAFETENSORS_U8, 1, {3}}, .data = bytes_of_text},
};
static const comet_safetensors_text metadata[2] = {{"format", "pt"}, {"step \"1\"", "line\nline \xf0\x9f\x98\x80"}};

static comet_status write_all(const char *path, const comet_allocator *allocator) {
    return comet_safetensors_write(path, sources, SOURCES, metadata, 2, allocator, &message);
}

static void check_all(const comet_safetensors *file) {
    assert_int_equal(comet_safetensors_count(file), SOURCES);
    for (int i = 0; i < SOURCES; i++) {
        const comet_safetensors_entry *wrote = &sources[i].entry, *entry = comet_safetensors_find(file, wrote->name);
        uint8_t data[64];
        assert_non_null(entry);
        assert_int_equal(entry->type, wrote->type);
        assert_int_equal(entry->ndim, wrote->ndim);
        assert_memory_equal(entry->shape, wrote->shape, (size_t)wrote->ndim * sizeof *entry->shape);
        assert_int_equal(entry->offset % comet_safetensors_type_bytes(entry->type), 0);
        assert_ok(comet_safetensors_read(file, entry, 0, entry->bytes, data, &message));
        if (entry->bytes)
            assert_memory_equal(data, sources[i].data, entry->bytes);
    }
    assert_string_equal(comet_safetensors_metadata(file, metadata[0].key), metadata[0].value);
    assert_string_equal(comet_safetensors_metadata(file, metadata[1].key), metadata[1].value);
    assert_null(comet_safetensors_metadata(file, "other"));
    assert_null(comet_safetensors_find(file, "other"));
    assert_null(comet_safetensors_find(file, "__metadata__"));
}

static void test_round_trip(void **state) {
    (void)state;
    const char *path = in_folder("all.safetensors");
    for (int i = 0; i < 2; i++) { /* also over a file that is there */
        assert_ok(write_all(path, NULL));
        comet_safetensors *file = open_file(path);
        check_all(file);
        comet_safetensors_close(file);
        assert_int_equal(access(in_folder("all.safetensors.tmp"), F_OK), -1);
    }
    comet_safetensors_close(NULL);
}

static void test_as_floats(void **state) {
    (void)state;
    const char *path = in_folder("floats.safetensors");
    static const float expected[][3] = {{1.0f, -2.5f, 65504.0f}, {1.0f, -2.5f, 65536.0f}, {0.1f, -1e10f, 0}};
    static const char *const names[] = {"half", "brain", "double"};
    float values[6];
    assert_ok(write_all(path, NULL));
    comet_safetensors *file = open_file(path);
    for (int i = 0; i < 3; i++) {
        assert_ok(comet_safetensors_read_f32(file, comet_safetensors_find(file, names[i]), values, &message));
        assert_memory_equal(values, expected[i], i < 2 ? 12 : 8);
    }
    assert_ok(
        comet_safetensors_read_f32(file, comet_safetensors_find(file, "layer1.0.conv1.weight"), values, &message));
    assert_memory_equal(values, floats, sizeof floats);
    const comet_safetensors_entry *counter = comet_safetensors_find(file, "bn1.num_batches_tracked");
    assert_refused(comet_safetensors_read_f32(file, counter, values, &message), COMET_ERROR_UNSUPPORTED, message,
                   "I64");
    uint8_t part[4];
    assert_ok(comet_safetensors_read(file, counter, 4, 4, part, &message));
    assert_int_equal(part[3], 0xff);
    assert_status(comet_safetensors_read(file, counter, 4, 5, part, &message), COMET_ERROR_ARGUMENT);
    assert_status(comet_safetensors_read(file, counter, UINT64_MAX, 2, part, &message), COMET_ERROR_ARGUMENT);
    comet_safetensors_close(file);
}

/* More values than are converted at a time. */
static void test_many_halves(void **state) {
    (void)state;
    enum { COUNT = 20001 };
    static uint16_t patterns[COUNT];
    static float values[COUNT];
    const char *path = in_folder("many.safetensors");
    for (int i = 0; i < COUNT; i++)
        patterns[i] = (uint16_t)(i * 2 + 16);
    comet_safetensors_source s = {.entry = {"x", COMET_SAFETENSORS_BF16, 1, {COUNT}}, .data = patterns};
    assert_ok(comet_safetensors_write(path, &s, 1, NULL, 0, NULL, &message));
    comet_safetensors *file = open_file(path);
    assert_ok(comet_safetensors_read_f32(file, comet_safetensors_at(file, 0), values, &message));
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        assert_int_equal(bits, (uint32_t)patterns[i] << 16);
    }
    comet_safetensors_close(file);
}

/* Order of the arguments does not matter, and what is produced is what was given. */
static comet_status produce(void *context, const comet_safetensors_entry *entry, uint64_t first, uint64_t bytes,
                            void *data) {
    int *calls = context;
    ++*calls;
    for (int i = 0; i < SOURCES; i++)
        if (strcmp(sources[i].entry.name, entry->name) == 0)
            memcpy(data, (const char *)sources[i].data + first, (size_t)bytes);
    return COMET_OK;
}

static comet_status produce_nothing(void *context, const comet_safetensors_entry *entry, uint64_t first, uint64_t bytes,
                                    void *data) {
    (void)context;
    (void)entry;
    (void)first;
    (void)bytes;
    (void)data;
    return COMET_ERROR_DEVICE;
}

static void test_order_and_production(void **state) {
    (void)state;
    static uint8_t one[4096], two[4096];
    comet_safetensors_source turned[SOURCES];
    int calls = 0;
    for (int i = 0; i < SOURCES; i++)
        turned[i] = sources[SOURCES - 1 - i];
    for (int i = 0; i < SOURCES; i++)
        if (comet_safetensors_type_bytes(turned[i].entry.type) == 2)
            turned[i] = (comet_safetensors_source){turned[i].entry, NULL, produce, &calls};
    assert_ok(write_all(in_folder("one"), NULL));
    assert_ok(comet_safetensors_write(in_folder("two"), turned, SOURCES, metadata, 2, NULL, &message));
    assert_int_equal(calls, 2);
    size_t bytes = read_bytes(in_folder("one"), one, sizeof one);
    assert_int_equal(read_bytes(in_folder("two"), two, sizeof two), bytes);
    assert_memory_equal(one, two, bytes);
    turned[0] = (comet_safetensors_source){turned[0].entry, NULL, produce_nothing, NULL};
    assert_refused(comet_safetensors_write(in_folder("two"), turned, SOURCES, metadata, 2, NULL, &message),
                   COMET_ERROR_DEVICE, message, "cannot be had");
    assert_int_equal(read_bytes(in_folder("two"), two, sizeof two), bytes); /* the former one */
}

/* ---- files of others ---- */

/* What safetensors 0.8.0 for Python writes for three arrays, an empty one and metadata. */
static void test_of_python(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\\\"\\n\",\"format\":\"pt\"},\"bn1.num_batches_tracked\":"
                                 "{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"conv1.weight\":{\"dtype\":"
                                 "\"F32\",\"shape\":[2,3,1],\"data_offsets\":[8,32]},\"\xc3"
                                 "\xa9"
                                 "\\\"\\\\\\n\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[32,32]},\"h\":{"
                                 "\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[32,36]}}      ";
    static const float weights[6] = {0, 1, 2, 3, 4, 5};
    const int64_t tracked = 7;
    uint8_t file_bytes[1024];
    uint64_t length = sizeof header - 1;
    memcpy(file_bytes, &length, 8);
    memcpy(file_bytes + 8, header, sizeof header - 1);
    uint8_t *data = file_bytes + 8 + sizeof header - 1;
    memcpy(data, &tracked, 8);
    memcpy(data + 8, weights, 24);
    memcpy(data + 32, halves, 4);
    write_bytes(in_folder("python"), file_bytes, sizeof header - 1 + 8 + 36);
    comet_safetensors *file = open_file(in_folder("python"));
    float values[6];
    int64_t count;
    assert_int_equal(comet_safetensors_count(file), 4);
    assert_ok(comet_safetensors_read_f32(file, comet_safetensors_find(file, "conv1.weight"), values, &message));
    assert_memory_equal(values, weights, sizeof weights);
    const comet_safetensors_entry *entry = comet_safetensors_find(file, "bn1.num_batches_tracked");
    assert_int_equal(entry->ndim, 0);
    assert_ok(comet_safetensors_read(file, entry, 0, 8, &count, &message));
    assert_int_equal(count, 7);
    assert_ok(comet_safetensors_read_f32(file, comet_safetensors_find(file, "h"), values, &message));
    assert_true(values[0] == 1.0f && values[1] == -2.5f);
    assert_int_equal(comet_safetensors_find(file, "\xc3\xa9\"\\\n")->bytes, 0);
    assert_string_equal(comet_safetensors_metadata(file, "k"), "v\"\n");
    comet_safetensors_close(file);
}

/* ---- headers that are wrong ---- */

/* Writes a file with this header and `bytes` of data behind it. */
static void write_raw(const char *path, const char *header, size_t header_bytes, uint64_t claimed, size_t bytes) {
    static uint8_t data[4096];
    uint8_t *file_bytes = calloc(1, 8 + header_bytes + bytes + 1);
    memcpy(file_bytes, &claimed, 8);
    memcpy(file_bytes + 8, header, header_bytes);
    memcpy(file_bytes + 8 + header_bytes, data, bytes);
    write_bytes(path, file_bytes, 8 + header_bytes + bytes);
    free(file_bytes);
}

#define TENSOR(type, shape, offsets) "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define FOUR                         TENSOR("F32", "[1]", "[0,4]")

typedef struct bad_header {
    const char *header;
    size_t bytes; /* of data */
    comet_status status;
    const char *part;
} bad_header;

static const bad_header bad_headers[] = {
    /* not the JSON that the format allows */
    {"", 0, COMET_ERROR_CORRUPT, "too short"},
    {"[]", 0, COMET_ERROR_CORRUPT, "begin with a brace"},
    {" {}", 0, COMET_ERROR_CORRUPT, "begin with a brace"},
    {"{ ", 0, COMET_ERROR_CORRUPT, "string is missing"},
    {"{}x", 0, COMET_ERROR_CORRUPT, "follows it"},
    {"{}{}", 0, COMET_ERROR_CORRUPT, "follows it"},
    {"{\"a\":" FOUR, 4, COMET_ERROR_CORRUPT, "does not end"},
    {"{\"a\":" FOUR ",}", 4, COMET_ERROR_CORRUPT, "string is missing"},
    {"{\"a\" " FOUR "}", 4, COMET_ERROR_CORRUPT, "colon"},
    {"{\"a\":" FOUR " \"b\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "does not end"},
    {"{\"a", 0, COMET_ERROR_CORRUPT, "does not end"},
    {"{\"a\\", 0, COMET_ERROR_CORRUPT, "escape"},
    {"{\"a\\x\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"\\u12\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"\\u0000\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"\\ud800\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"\\udc00\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"\\ud800\\u0041\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "escape"},
    {"{\"a\nb\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"\xff\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"\xc0\x80\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"\xed\xa0\x80\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"\xf4\x90\x80\x80\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"\xe2\x82", 0, COMET_ERROR_CORRUPT, "UTF-8"},
    {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, COMET_ERROR_CORRUPT, "object"},
    {"{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}", 0, COMET_ERROR_CORRUPT, "unknown property"},
    {"{\"a\":null}", 0, COMET_ERROR_CORRUPT, "object"},
    /* tensors not described, or twice */
    {"{\"a\":{}}", 0, COMET_ERROR_CORRUPT, "string is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, COMET_ERROR_CORRUPT, "completely"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, COMET_ERROR_CORRUPT, "completely"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, COMET_ERROR_CORRUPT, "completely"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, COMET_ERROR_CORRUPT,
     "one twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, COMET_ERROR_CORRUPT,
     "unknown property"},
    {"{\"a\":" TENSOR("F33", "[1]", "[0,4]") "}", 4, COMET_ERROR_UNSUPPORTED, "type 'F33'"},
    {"{\"a\":" TENSOR("f32", "[1]", "[0,4]") "}", 4, COMET_ERROR_UNSUPPORTED, "type 'f32'"},
    {"{\"a\":" TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, COMET_ERROR_UNSUPPORTED, "more than 8"},
    {"{\"a\":" FOUR ",\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, COMET_ERROR_CORRUPT, "two tensors 'a'"},
    {"{\"a\":" FOUR ",\"\\u0061\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, COMET_ERROR_CORRUPT, "two tensors 'a'"},
    {"{\"a\":" TENSOR("F32", "[0]", "[0,0]") ",\"a\":" TENSOR("F32", "[0]", "[0,0]") "}", 0, COMET_ERROR_CORRUPT,
     "two tensors"},
    /* numbers */
    {"{\"a\":" TENSOR("F32", "[-1]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "number"},
    {"{\"a\":" TENSOR("F32", "[1.0]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "list"},
    {"{\"a\":" TENSOR("F32", "[1e0]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "list"},
    {"{\"a\":" TENSOR("F32", "[01]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "number"},
    {"{\"a\":" TENSOR("F32", "[\"1\"]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "number"},
    {"{\"a\":" TENSOR("F32", "[1,]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "number"},
    {"{\"a\":" TENSOR("F32", "[9223372036854775808]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "too large"},
    {"{\"a\":" TENSOR("F32", "[99999999999999999999999999]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "too large"},
    {"{\"a\":" TENSOR("F32", "[1]", "[0]") "}", 4, COMET_ERROR_CORRUPT, "offsets"},
    {"{\"a\":" TENSOR("F32", "[1]", "[0,4,8]") "}", 4, COMET_ERROR_CORRUPT, "offsets"},
    {"{\"a\":" TENSOR("F32", "[1]", "[4,0]") "}", 4, COMET_ERROR_CORRUPT, "offsets"},
    {"{\"a\":" TENSOR("F32", "[1]", "[]") "}", 4, COMET_ERROR_CORRUPT, "offsets"},
    /* sizes that wrap round, overlap or leave gaps */
    {"{\"a\":" TENSOR("F32", "[4611686018427387904]", "[0,0]") "}", 0, COMET_ERROR_CORRUPT, "size of its shape"},
    {"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, COMET_ERROR_CORRUPT, "size of its shape"},
    {"{\"a\":" TENSOR("F32", "[2147483648,2147483648,4]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "size of its shape"},
    {"{\"a\":" TENSOR("F32", "[2]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "size of its shape"},
    {"{\"a\":" TENSOR("F32", "[0]", "[0,4]") "}", 4, COMET_ERROR_CORRUPT, "size of its shape"},
    {"{\"a\":" FOUR ",\"b\":" TENSOR("F32", "[1]", "[2,6]") "}", 6, COMET_ERROR_CORRUPT, "overlaps"},
    {"{\"a\":" FOUR ",\"b\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "overlaps"},
    {"{\"a\":" FOUR ",\"b\":" TENSOR("F32", "[1]", "[8,12]") "}", 12, COMET_ERROR_CORRUPT, "does not follow"},
    {"{\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, COMET_ERROR_CORRUPT, "does not follow"},
    {"{\"a\":" FOUR "}", 3, COMET_ERROR_CORRUPT, "cut short"},
    {"{\"a\":" FOUR "}", 0, COMET_ERROR_CORRUPT, "cut short"},
    {"{\"a\":" FOUR "}", 5, COMET_ERROR_CORRUPT, "belong to no tensor"},
    {"{}", 1, COMET_ERROR_CORRUPT, "belong to no tensor"},
    {"{\"a\":" TENSOR("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 4, COMET_ERROR_CORRUPT,
     "cut short"},
    {"{\"a\":" TENSOR("U8", "[9223372036854775807]", "[0,9223372036854775807]") ",\"b\":" TENSOR(
         "U8", "[1]", "[9223372036854775807,9223372036854775808]") "}",
     4, COMET_ERROR_CORRUPT, "too large"},
    /* metadata */
    {"{\"__metadata__\":1}", 0, COMET_ERROR_CORRUPT, "not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, COMET_ERROR_CORRUPT, "string is missing"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, COMET_ERROR_CORRUPT, "string is missing"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, COMET_ERROR_CORRUPT, "'a' twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, COMET_ERROR_CORRUPT, "metadata twice"},
    {"{\"__metadata__\":" FOUR "}", 4, COMET_ERROR_CORRUPT, "string is missing"},
    {"{\"__metadata__\":{\"a\":\"b\"", 0, COMET_ERROR_CORRUPT, "does not end"},
};

static void test_bad_headers(void **state) {
    (void)state;
    const char *path = in_folder("bad");
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++) {
        const bad_header *b = &bad_headers[i];
        comet_safetensors *file = (void *)1;
        write_raw(path, b->header, strlen(b->header), strlen(b->header), b->bytes);
        assert_refused(comet_safetensors_open(path, NULL, &file, &message), b->status, message, b->part);
        assert_null(file);
    }
}

static void test_good_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t bytes, count;
    } good[] = {
        {"{}", 0, 0},
        {"{}   \n", 0, 0},
        {"{ \"__metadata__\" : { } }", 0, 0},
        {"{\"a\":" FOUR "}", 4, 1},
        {"{\n \"\\u00e9\\ud83d\\ude00\" : { \"data_offsets\" : [ 0 , 4 ] , \"shape\" : [ ] , \"dtype\" : \"F32\" } }",
         4, 1},
        {"{\"b\":" TENSOR("F32", "[1]", "[4,8]") ",\"a\":" FOUR "}", 8, 2},
        {"{\"b\":" TENSOR("F32", "[0,9223372036854775807]", "[4,4]") ",\"a\":" FOUR "}", 4, 2}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        write_raw(in_folder("good"), good[i].header, strlen(good[i].header), strlen(good[i].header), good[i].bytes);
        comet_safetensors *file = open_file(in_folder("good"));
        assert_int_equal(comet_safetensors_count(file), good[i].count);
        if (i == 4)
            assert_non_null(comet_safetensors_find(file, "\xc3\xa9\xf0\x9f\x98\x80"));
        comet_safetensors_close(file);
    }
}

static void test_bad_lengths(void **state) {
    (void)state;
    static const struct {
        uint64_t claimed;
        const char *part;
    } bad[] = {
        {0, "brace"},           {1, "damaged"}, {3, "cut short"}, {100000001, "too large"}, {UINT64_MAX, "too large"},
        {1u << 31, "too large"}};
    comet_safetensors *file;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_raw(in_folder("bad"), "{}", 2, bad[i].claimed, 0);
        assert_refused(comet_safetensors_open(in_folder("bad"), NULL, &file, &message), COMET_ERROR_CORRUPT, message,
                       bad[i].part);
    }
    write_bytes(in_folder("bad"), "1234567", 7);
    assert_refused(comet_safetensors_open(in_folder("bad"), NULL, &file, &message), COMET_ERROR_CORRUPT, message,
                   "too short");
    write_raw(in_folder("bad"), "{}\0{}", 5, 5, 0);
    assert_refused(comet_safetensors_open(in_folder("bad"), NULL, &file, &message), COMET_ERROR_CORRUPT, message,
                   "follows");
    assert_refused(comet_safetensors_open(in_folder("absent"), NULL, &file, &message), COMET_ERROR_IO, message,
                   "No such file");
    assert_refused(comet_safetensors_open(in_folder("."), NULL, &file, &message), COMET_ERROR_IO, message,
                   "not a regular file");
}

/* Every prefix of a good file is refused; every changed byte of its header gives an answer. */
static void test_damaged(void **state) {
    (void)state;
    static uint8_t good[4096];
    comet_safetensors *file;
    const char *path = in_folder("damaged");
    rng r = rng_seed(1);
    assert_ok(write_all(path, NULL));
    size_t bytes = read_bytes(path, good, sizeof good);
    for (size_t length = 0; length < bytes; length++) {
        write_bytes(path, good, length);
        assert_status(comet_safetensors_open(path, NULL, &file, &message), COMET_ERROR_CORRUPT);
    }
    for (int i = 0; i < effort(3000); i++) {
        size_t at = (size_t)rng_below(&r, bytes - 60);
        uint8_t before = good[at];
        good[at] = (uint8_t)rng_next(&r);
        write_bytes(path, good, bytes);
        good[at] = before;
        if (comet_safetensors_open(path, NULL, &file, &message) != COMET_OK)
            continue;
        for (size_t t = 0; t < comet_safetensors_count(file); t++) {
            uint8_t data[4096];
            const comet_safetensors_entry *entry = comet_safetensors_at(file, t);
            assert_true(entry->bytes <= sizeof data);
            assert_ok(comet_safetensors_read(file, entry, 0, entry->bytes, data, &message));
        }
        comet_safetensors_close(file);
    }
}

/* A file that is cut while it is open. */
static void test_shrinking(void **state) {
    (void)state;
    float values[6];
    assert_ok(write_all(in_folder("shrinks"), NULL));
    comet_safetensors *file = open_file(in_folder("shrinks"));
    cut_file(in_folder("shrinks"), 0.5);
    assert_refused(comet_safetensors_read_f32(file, comet_safetensors_find(file, "half"), values, &message),
                   COMET_ERROR_CORRUPT, message, "cut short");
    comet_safetensors_close(file);
}

/* ---- what cannot be written ---- */

static void refuse_write(comet_safetensors_source *s, size_t count, const char *part) {
    assert_refused(comet_safetensors_write(in_folder("refused"), s, count, NULL, 0, NULL, &message),
                   COMET_ERROR_ARGUMENT, message, part);
    assert_int_equal(access(in_folder("refused"), F_OK), -1);
}

static void test_refused_tensors(void **state) {
    (void)state;
    comet_safetensors_source good = {.entry = {"a", COMET_SAFETENSORS_F32, 1, {1}}, .data = floats},
                             s[2] = {good, good};
    refuse_write(s, 2, "two of that name");
    s[0].entry.name = "__metadata__";
    refuse_write(s, 1, "not a name");
    s[0].entry.name = "\xff";
    refuse_write(s, 1, "not a name");
    s[0] = good;
    s[0].entry.shape[0] = -1;
    refuse_write(s, 1, "impossible");
    s[0].entry.shape[0] = INT64_MAX;
    refuse_write(s, 1, "impossible");
    s[0] = good;
    s[0].data = NULL;
    refuse_write(s, 1, "no data");
    const comet_safetensors_text texts[] = {{"k", "v"}, {"k", "w"}};
    assert_refused(comet_safetensors_write(in_folder("refused"), &good, 1, texts, 2, NULL, &message),
                   COMET_ERROR_ARGUMENT, message, "two of that name");
    assert_refused(comet_safetensors_write(in_folder("no/such/folder"), &good, 1, NULL, 0, NULL, &message),
                   COMET_ERROR_IO, message, "No such file");
    assert_refused(comet_safetensors_write(temporary_folder, &good, 1, NULL, 0, NULL, &message), COMET_ERROR_IO,
                   message, "not a regular file");
}

static void test_every_allocation_fails_once(void **state) {
    (void)state;
    const char *path = in_folder("memory.safetensors");
    for (int reading = 0; reading < 2; reading++)
        for (long n = 1;; n++) {
            counting_allocator a;
            comet_safetensors *file = NULL;
            counting_allocator_init(&a);
            a.fail_at = n;
            comet_status status =
                reading ? comet_safetensors_open(path, &a.allocator, &file, &message) : write_all(path, &a.allocator);
            comet_safetensors_close(file);
            assert_int_equal(a.live_blocks, 0);
            assert_int_equal(a.wrong_sizes, 0);
            if (a.calls < n) {
                assert_ok(status);
                assert_true(n > 3);
                break;
            }
            assert_int_equal(status, COMET_ERROR_MEMORY);
            assert_non_null(strstr(message.text, "memory"));
            assert_int_equal(access(in_folder("memory.safetensors.tmp"), F_OK), -1);
        }
}

/* ---- whole or not at all ---- */

enum { LARGE = 1 << 18 };

static float large[LARGE];

static comet_status write_large(const char *path, float value) {
    comet_safetensors_source s = {.entry = {"x", COMET_SAFETENSORS_F32, 1, {LARGE}}, .data = large};
    for (int i = 0; i < LARGE; i++)
        large[i] = value;
    return comet_safetensors_write(path, &s, 1, NULL, 0, NULL, &message);
}

/* The value that all of a file has. */
static float value_of(const char *path) {
    comet_safetensors *file = open_file(path);
    assert_ok(comet_safetensors_read_f32(file, comet_safetensors_at(file, 0), large, &message));
    for (int i = 0; i < LARGE; i++)
        assert_true(large[i] == large[0]);
    comet_safetensors_close(file);
    return large[0];
}

/* The disk is full after any number of bytes (a limit of the process stands for it): the former file stays. */
static void test_full_disk(void **state) {
    (void)state;
    static const rlim_t limits[] = {0, 7, 64, 4096, 1 << 19, (1 << 20) + 70};
    const char *path = in_folder("full.safetensors");
    struct rlimit before, now;
    assert_ok(write_large(path, 1.0f));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        now = before;
        now.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        comet_status status = write_large(path, 2.0f);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, COMET_ERROR_IO);
        assert_non_null(strstr(message.text, "full.safetensors': File too large"));
        assert_int_equal(access(in_folder("full.safetensors.tmp"), F_OK), -1);
        assert_true(value_of(path) == 1.0f);
    }
    signal(SIGXFSZ, handler);
    assert_ok(write_large(path, 3.0f));
    assert_true(value_of(path) == 3.0f);
}

/* Killed at any moment: the file is the last one that was complete, or one after it; the next writer does not mind. */
static void test_killed(void **state) {
    (void)state;
    const char *path = in_folder("killed.safetensors");
    rng r = rng_seed(5);
    assert_ok(write_large(path, 0.0f));
    for (int i = 0; i < effort(20); i++) {
        float before = value_of(path);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            for (float v = before + 1.0f;; v += 1.0f)
                if (write_large(path, v) != COMET_OK)
                    _exit(1);
        nanosleep(&(struct timespec){0, (long)rng_between(&r, 1, 30) * 1000000}, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_true(value_of(path) >= before);
    }
    assert_ok(write_large(path, -1.0f));
    assert_true(value_of(path) == -1.0f);
    assert_int_equal(access(in_folder("killed.safetensors.tmp"), F_OK), -1);
}

/* Two at a time: one is told so, and what is there is whole. Links are followed. */
static void test_two_writers(void **state) {
    (void)state;
    comet_atomic_file one, two;
    char content[8] = {0};
    assert_ok(comet_atomic_file_open(&one, in_folder("shared"), &message));
    assert_refused(comet_atomic_file_open(&two, in_folder("shared"), &message), COMET_ERROR_IO, message,
                   "another program");
    assert_ok(comet_atomic_file_write(&one, "first", 5, &message));
    assert_int_equal(access(in_folder("shared"), F_OK), -1);
    assert_ok(comet_atomic_file_commit(&one, &message));
    comet_atomic_file_abandon(&one);
    assert_int_equal(symlink("shared", in_folder("link")), 0);
    assert_ok(comet_atomic_file_open(&two, in_folder("link"), &message));
    assert_ok(comet_atomic_file_write(&two, "second", 6, &message));
    assert_int_equal(read_bytes(in_folder("shared"), content, 8), 5);
    assert_ok(comet_atomic_file_commit(&two, &message));
    assert_int_equal(read_bytes(in_folder("shared"), content, 8), 6);
    assert_string_equal(content, "second");
    struct stat status;
    assert_int_equal(lstat(in_folder("link"), &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    write_bytes(in_folder("shared.tmp"), "what a killed program left behind", 33);
    assert_ok(comet_atomic_file_open(&one, in_folder("shared"), &message));
    assert_ok(comet_atomic_file_write(&one, "third", 5, &message));
    assert_ok(comet_atomic_file_commit(&one, &message));
    assert_int_equal(read_bytes(in_folder("shared"), content, 8), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_as_floats),
        cmocka_unit_test(test_many_halves),     cmocka_unit_test(test_order_and_production),
        cmocka_unit_test(test_of_python),       cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_good_headers),    cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_damaged),         cmocka_unit_test(test_shrinking),
        cmocka_unit_test(test_refused_tensors), cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_full_disk),       cmocka_unit_test(test_killed),
        cmocka_unit_test(test_two_writers),
    };
    return cmocka_run_group_tests(tests, make_temporary_folder, remove_temporary_folder);
}
