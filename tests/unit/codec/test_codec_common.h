/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of raw, mask, pool, group and dct share: a round trip with every instruction set, several numbers of
 * threads and all kinds of strides, which must not change a byte; and hostile streams. Each test program adds an
 * encoder of its own, written from docs/codecs.md one value at a time, and compares bodies and decoded values.
 */
#ifndef TESTS_UNIT_TEST_CODEC_COMMON_H
#define TESTS_UNIT_TEST_CODEC_COMMON_H

#include "support/assert_ok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/codec.h"
#include "support/codec/isas.h"
#include "support/codec/tensors.h"
#include "support/codec/values.h"
#include "support/effort.h"
#include "support/number.h"
#include "support/rng.h"

enum { HEADER = 128, AT_STREAM_BYTES = 16, POOLS = 3 };

/* What a round trip gave: the stream, and what it decodes to in logical order. */
typedef struct outcome {
    unsigned char *stream;
    size_t bytes;
    void *decoded;
} outcome;

static inline void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static inline const unsigned char *body_of(const outcome *o) {
    return o->stream + HEADER;
}

static inline size_t body_bytes(const outcome *o) {
    return o->bytes - HEADER;
}

static inline void outcome_free(outcome *o) {
    free(o->stream);
    free(o->decoded);
}

static inline comet_codec_params params_for(comet_codec codec) {
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = codec;
    return p;
}

static inline comet_codec_exec exec_for(comet_isa isa, comet_threads *threads) {
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    e.isa = isa;
    e.threads = threads;
    return e;
}

/*
 * Into a buffer of exactly comet_codec_max_bytes's size, so that a sanitizer sees a byte too far; trimmed afterwards.
 */
static inline void compress(const comet_tensor *t, const comet_codec_params *p, const comet_codec_exec *e, outcome *o) {
    size_t capacity = 0;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    assert_ok(comet_codec_max_bytes(t, p, &capacity));
    o->stream = take(capacity);
    memset(o->stream, 0xA5, capacity);
    assert_ok(comet_codec_compress(t, p, e, o->stream, capacity, &result));
    assert_true(result.bytes >= HEADER && result.bytes <= capacity);
    o->bytes = result.bytes;
    o->decoded = NULL;
}

/* Decodes into fresh memory of the given strides; the result in logical order, to be freed. */
static inline void *decompress(const outcome *o, rng *r, comet_dtype dtype, const test_shape *shape,
                               stride_kind strides, const comet_codec_exec *e) {
    test_tensor out;
    test_tensor_new(&out, r, dtype, shape, strides);
    assert_ok(comet_codec_decompress(o->stream, o->bytes, NULL, e, &out.view));
    assert_true(test_tensor_gaps_intact(&out));
    void *patterns = take((size_t)shape_count(shape) * comet_dtype_size(dtype));
    test_tensor_read(&out, patterns);
    test_tensor_free(&out);
    return patterns;
}

/* A buffer of just the stream's size is enough, one byte less is COMET_ERROR_CAPACITY. */
static inline void check_capacity(const comet_tensor *t, const comet_codec_params *p, const comet_codec_exec *e,
                                  const outcome *o) {
    for (size_t less = 0; less < 2; less++) {
        unsigned char *stream = take(o->bytes - less);
        comet_status status = comet_codec_compress(t, p, e, stream, o->bytes - less, NULL);
        assert_int_equal(status, less ? COMET_ERROR_CAPACITY : COMET_OK);
        if (!less)
            assert_memory_equal(stream, o->stream, o->bytes);
        free(stream);
    }
}

static inline void pools_new(comet_threads *pools[POOLS]) {
    pools[0] = NULL;
    assert_ok(comet_threads_new(2, NULL, &pools[1]));
    assert_ok(comet_threads_new(5, NULL, &pools[2]));
}

static inline void pools_free(comet_threads *pools[POOLS]) {
    for (int i = 0; i < POOLS; i++)
        comet_threads_free(pools[i]);
}

/*
 * Round trip of `patterns` (logical order; updated to what an expanded tensor really holds). The reference code on one
 * thread comes first; every other way must give its bytes and its values. The output has dtype `out`.
 */
static inline outcome round_trip(rng *r, comet_dtype dtype, comet_dtype out, const test_shape *shape,
                                 stride_kind strides, const comet_codec_params *p, void *patterns) {
    test_tensor in;
    test_tensor_new(&in, r, dtype, shape, strides);
    test_tensor_write(&in, patterns);
    test_tensor_read(&in, patterns);
    comet_codec_exec reference = exec_for(COMET_ISA_REFERENCE, NULL);
    outcome o;
    compress(&in.view, p, &reference, &o);
    o.decoded = decompress(&o, r, out, shape, STRIDES_CONTIGUOUS, &reference);
    size_t decoded_bytes = (size_t)shape_count(shape) * comet_dtype_size(out);

    comet_threads *pools[POOLS];
    pools_new(pools);
    isa_list isas = isa_list_get();
    for (int i = 0; i < isas.count; i++)
        for (int t = 0; t < POOLS; t++) {
            comet_codec_exec e = exec_for(isas.isa[i], pools[t]);
            outcome other;
            compress(&in.view, p, &e, &other);
            assert_int_equal(other.bytes, o.bytes);
            assert_memory_equal(other.stream, o.stream, o.bytes);
            other.decoded = decompress(&o, r, out, shape, (stride_kind)rng_below(r, STRIDES_OUTPUTS), &e);
            assert_memory_equal(other.decoded, o.decoded, decoded_bytes);
            outcome_free(&other);
            check_capacity(&in.view, p, &e, &o);
        }
    pools_free(pools);
    assert_true(test_tensor_gaps_intact(&in));
    test_tensor_free(&in);
    return o;
}

/* The shortest way to a stream of contiguous values: default execution. */
static inline outcome plain_trip(comet_dtype dtype, comet_dtype out, const test_shape *shape,
                                 const comet_codec_params *p, void *patterns) {
    rng r = rng_seed(7);
    return round_trip(&r, dtype, out, shape, STRIDES_CONTIGUOUS, p, patterns);
}

/* ---- hostile streams ---- */

static inline comet_status decode_quietly(const unsigned char *stream, size_t bytes, comet_dtype dtype,
                                          const test_shape *shape, const comet_codec_exec *e) {
    rng r = rng_seed(1);
    test_tensor out;
    test_tensor_new(&out, &r, dtype, shape, STRIDES_CONTIGUOUS);
    unsigned char *exact = take(bytes); /* so that a sanitizer sees a byte too far */
    memcpy(exact, stream, bytes);
    comet_status status = comet_codec_decompress(exact, bytes, NULL, e, &out.view);
    assert_true(test_tensor_gaps_intact(&out));
    free(exact);
    test_tensor_free(&out);
    return status;
}

/* A stream that claims to be `bytes` long and is. */
static inline comet_status decode_resized(const outcome *o, size_t bytes, comet_dtype dtype, const test_shape *shape) {
    unsigned char *copy = take(bytes);
    memset(copy, 0, bytes);
    memcpy(copy, o->stream, bytes < o->bytes ? bytes : o->bytes);
    uint64_t claim = bytes;
    memcpy(copy + AT_STREAM_BYTES, &claim, sizeof claim);
    comet_status status = decode_quietly(copy, bytes, dtype, shape, NULL);
    free(copy);
    return status;
}

/* Every other length is refused; no flipped bits crash, or write outside the tensor. */
static inline void attack(const outcome *o, rng *r, comet_dtype dtype, const test_shape *shape, int flips) {
    for (size_t bytes = HEADER; bytes <= o->bytes + 9; bytes++)
        if (bytes != o->bytes && (bytes < HEADER + 64 || bytes + 64 > o->bytes || rng_below(r, 16) == 0))
            assert_int_not_equal(decode_resized(o, bytes, dtype, shape), COMET_OK);
    unsigned char *copy = take(o->bytes);
    isa_list isas = isa_list_get();
    for (int i = 0; i < flips; i++) {
        memcpy(copy, o->stream, o->bytes);
        for (int n = (int)rng_between(r, 1, 3); n > 0; n--)
            copy[rng_below(r, o->bytes)] ^= (unsigned char)(1u << rng_below(r, 8));
        comet_codec_exec e = exec_for(isas.isa[rng_below(r, (uint64_t)isas.count)], NULL);
        (void)decode_quietly(copy, o->bytes, dtype, shape, &e);
    }
    free(copy);
}

/* The stream with one byte set: the status of decoding it. */
static inline comet_status decode_with(const outcome *o, size_t at, unsigned char value, comet_dtype dtype,
                                       const test_shape *shape) {
    unsigned char *copy = take(o->bytes);
    memcpy(copy, o->stream, o->bytes);
    copy[at] = value;
    comet_status status = decode_quietly(copy, o->bytes, dtype, shape, NULL);
    free(copy);
    return status;
}

/* Header fields that these codecs leave 0: B, S, flags of others, and (if unused) parameter and wide parameter. */
static inline void check_header_is_guarded(const outcome *o, comet_dtype dtype, const test_shape *shape, int parameter,
                                           int wide_parameter) {
    assert_int_not_equal(decode_with(o, 10, 2, dtype, shape), COMET_OK);
    assert_int_not_equal(decode_with(o, 14, 0x80, dtype, shape), COMET_OK);
    assert_int_not_equal(decode_with(o, 40, 1, dtype, shape), COMET_OK);
    if (!parameter)
        assert_int_equal(decode_with(o, 28, 1, dtype, shape), COMET_ERROR_CORRUPT);
    if (!wide_parameter)
        assert_int_equal(decode_with(o, 32, 1, dtype, shape), COMET_ERROR_CORRUPT);
}

/* ---- random inputs ---- */

static const comet_dtype all_dtypes[] = {COMET_F32, COMET_F16, COMET_BF16, COMET_U8};

typedef struct random_input {
    comet_dtype dtype;
    test_shape shape;
    stride_kind strides;
    int64_t count;
    void *patterns;
} random_input;

static inline void random_input_new(random_input *in, rng *r, comet_layout layout, int64_t most) {
    in->dtype = all_dtypes[rng_below(r, 4)];
    in->shape = shape_random(r, layout, most);
    in->strides = (stride_kind)rng_below(r, STRIDES_KINDS);
    in->count = shape_count(&in->shape);
    in->patterns = take((size_t)in->count * comet_dtype_size(in->dtype));
    values_fill(r, (value_kind)rng_below(r, VALUES_KINDS), in->dtype, 1.0, 0.1, in->patterns, in->count);
}

static inline void random_input_free(random_input *in) {
    free(in->patterns);
}

static inline test_shape shape_of_4(comet_layout layout, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (test_shape){layout, 4, {a, b, c, d}};
}

static inline test_shape shape_of_1(int64_t n) {
    return (test_shape){COMET_FLAT, 1, {n}};
}

/* Value i as fp32, exact. */
static inline float value_at(comet_dtype dtype, const void *patterns, int64_t i) {
    return (float)number_of_bits(dtype, bits_at(dtype, patterns, i));
}

#endif
