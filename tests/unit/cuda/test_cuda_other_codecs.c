/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw, mask, pool, group and dct on a device: the same bytes and the same values as on the CPU, streams that do not
 * fit, hostile streams, and graphs. Device memory is allocated to the byte, so that the emulated run under a sanitizer
 * sees what reads or writes too far.
 */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cuda/cuda_impl.h"
#include "codec/simple/maps.h"
#include "comet/cuda.h"
#include "support/codec/tensors.h"
#include "support/codec/values.h"
#include "support/effort.h"
#include "support/rng.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

enum { HEADER = 128, POISON = 0xA5, ALIGNMENT = 256 };

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static const comet_codec codecs[] = {COMET_CODEC_RAW, COMET_CODEC_MASK, COMET_CODEC_POOL, COMET_CODEC_GROUP,
                                     COMET_CODEC_DCT};
enum { CODECS = sizeof codecs / sizeof *codecs };
static const comet_dtype dtypes[] = {COMET_F32, COMET_F16, COMET_BF16};

/* ---- memory ---- */

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void *device_take(size_t bytes, const void *from) {
    void *memory = NULL;
    if (bytes == 0)
        return NULL;
    assert_cuda(cudaMalloc(&memory, bytes));
    if (from)
        assert_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    else
        assert_cuda(cudaMemset(memory, POISON, bytes));
    assert_cuda(cudaDeviceSynchronize()); /* non-blocking queues do not wait for it */
    return memory;
}

static void *device_read(const void *memory, size_t bytes) {
    void *copy = take(bytes);
    if (bytes)
        assert_cuda(cudaMemcpy(copy, memory, bytes, cudaMemcpyDeviceToHost));
    return copy;
}

static int is_poison(const void *memory, size_t bytes) {
    const unsigned char *p = memory;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != POISON)
            return 0;
    return 1;
}

static comet_tensor view_of(const test_shape *shape, comet_dtype dtype, void *data) {
    comet_tensor t;
    assert_ok(comet_tensor_init(&t, data, dtype, shape->layout, shape->ndim, shape->shape));
    return t;
}

static comet_tensor device_view(const test_shape *shape, comet_dtype dtype, void *data) {
    comet_tensor t = view_of(shape, dtype, data);
    t.device = (comet_device){COMET_CUDA, 0};
    return t;
}

static size_t bytes_of(const test_shape *shape, comet_dtype dtype) {
    return (size_t)shape_count(shape) * comet_dtype_size(dtype);
}

/* ---- one tensor, its stream and what that decodes to, from the CPU ---- */

typedef struct sample_case {
    comet_codec_params p;
    comet_dtype dtype, out;
    test_shape shape;
    void *patterns;
    unsigned char *stream;
    size_t bytes;
    void *decoded;
} sample_case;

static void case_on_cpu(sample_case *c) {
    comet_tensor in = view_of(&c->shape, c->dtype, c->patterns);
    size_t capacity;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    assert_ok(comet_codec_max_bytes(&in, &c->p, &capacity));
    c->stream = take(capacity);
    assert_ok(comet_codec_compress(&in, &c->p, NULL, c->stream, capacity, &result));
    c->bytes = result.bytes;
    c->decoded = take(bytes_of(&c->shape, c->out));
    comet_tensor out = view_of(&c->shape, c->out, c->decoded);
    assert_ok(comet_codec_decompress(c->stream, c->bytes, NULL, NULL, &out));
}

static void case_new(sample_case *c, rng *r, const comet_codec_params *p, comet_dtype dtype, const test_shape *shape,
                     value_kind kind) {
    *c = (sample_case){.p = *p, .dtype = dtype, .out = dtype, .shape = *shape};
    if (p->codec == COMET_CODEC_MASK)
        c->out = dtypes[rng_below(r, 3)];
    c->patterns = take(bytes_of(shape, dtype));
    values_fill(r, kind, dtype, 1.0, 0.1, c->patterns, shape_count(shape));
    case_on_cpu(c);
}

static void case_free(sample_case *c) {
    free(c->patterns);
    free(c->stream);
    free(c->decoded);
}

/* ---- calls ---- */

/* Workspace of just the size asked for, poisoned but for what comet_cuda_workspace_init makes. */
static comet_codec_exec exec_for(const comet_tensor *t, const comet_codec_params *p) {
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    assert_ok(comet_cuda_workspace(t, p, &e.workspace_bytes));
    e.workspace = device_take(e.workspace_bytes, NULL);
    assert_ok(comet_cuda_workspace_init(e.workspace, e.workspace_bytes, NULL));
    return e;
}

/* Every call must leave the start of the workspace as it found it. */
static void exec_free(comet_codec_exec *e) {
    size_t bytes = e->workspace_bytes < CUDA_WORKSPACE_ZEROED ? e->workspace_bytes : CUDA_WORKSPACE_ZEROED;
    unsigned char *start = device_read(e->workspace, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(start[i], 0);
    free(start);
    assert_cuda(cudaFree(e->workspace));
}

/* Compresses into `capacity` bytes of device memory; returns a copy of them. `start`: NULL, or where it is to begin. */
static unsigned char *compress_into(const sample_case *c, size_t capacity, const uint64_t *start,
                                    comet_cuda_result *result) {
    void *data = device_take(bytes_of(&c->shape, c->dtype), c->patterns);
    comet_tensor in = device_view(&c->shape, c->dtype, data);
    comet_codec_exec e = exec_for(&in, &c->p);
    comet_cuda_slot slot = {.base = device_take(capacity, NULL),
                            .capacity = capacity,
                            .start = device_take(start ? sizeof *start : 0, start),
                            .result = device_take(sizeof *slot.result, NULL)};
    assert_ok(comet_cuda_compress(&in, &c->p, &e, &slot, NULL));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaMemcpy(result, slot.result, sizeof *result, cudaMemcpyDeviceToHost));
    unsigned char *memory = device_read(slot.base, capacity);
    assert_cuda(cudaFree(slot.base));
    assert_cuda(cudaFree((void *)slot.start));
    assert_cuda(cudaFree(slot.result));
    assert_cuda(cudaFree(data));
    exec_free(&e);
    return memory;
}

/*
 * Decompresses what lies in `memory`; returns the status word and, through `decoded`, the tensor. `result`: NULL, or
 * what the slot's result says.
 */
static int32_t decompress_from(const sample_case *c, const void *memory, size_t capacity, const uint64_t *start,
                               const comet_cuda_result *result, int32_t status, void **decoded) {
    size_t bytes = bytes_of(&c->shape, c->out);
    void *data = device_take(bytes, NULL);
    comet_tensor out = device_view(&c->shape, c->out, data);
    comet_codec_exec e = exec_for(&out, &c->p);
    comet_cuda_slot slot = {.base = device_take(capacity, memory),
                            .capacity = capacity,
                            .start = device_take(start ? sizeof *start : 0, start),
                            .result = device_take(result ? sizeof *result : 0, result)};
    int32_t *word = device_take(sizeof *word, &status);
    assert_ok(comet_cuda_decompress(&slot, &c->p, NULL, &e, &out, word));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaMemcpy(&status, word, sizeof status, cudaMemcpyDeviceToHost));
    *decoded = device_read(data, bytes);
    assert_cuda(cudaFree(slot.base));
    assert_cuda(cudaFree((void *)slot.start));
    assert_cuda(cudaFree(slot.result));
    assert_cuda(cudaFree(word));
    assert_cuda(cudaFree(data));
    exec_free(&e);
    return status;
}

static void check_result(const comet_cuda_result *r, uint64_t start, size_t bytes) {
    static const comet_codec_stats none;
    assert_int_equal(r->status, COMET_OK);
    assert_int_equal(r->start, start);
    assert_int_equal(r->end, (start + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    assert_int_equal(r->codec.bytes, bytes);
    assert_true(r->codec.bound == 0.0);
    assert_int_equal(r->codec.tiles | r->codec.tiles_exact | r->codec.tiles_wide, 0);
    assert_memory_equal(&r->codec.stats, &none, sizeof none);
    assert_int_equal(r->reserved, 0);
}

/* The device's stream at `start` is the CPU's, and nothing else is written. */
static void check_compress(const sample_case *c, size_t capacity, const uint64_t *start) {
    comet_cuda_result result;
    uint64_t at = start ? *start : 0;
    unsigned char *memory = compress_into(c, capacity, start, &result);
    check_result(&result, at, c->bytes);
    assert_memory_equal(memory + at, c->stream, c->bytes);
    assert_true(is_poison(memory, at));
    assert_true(is_poison(memory + at + c->bytes, capacity - at - c->bytes));
    free(memory);
}

/* The CPU's stream decodes to the CPU's values. */
static void check_decompress(const sample_case *c, uint64_t start, int with_result) {
    size_t capacity = start + c->bytes;
    unsigned char *memory = take(capacity);
    memset(memory, POISON, start);
    memcpy(memory + start, c->stream, c->bytes);
    comet_cuda_result result = {.start = start};
    void *decoded;
    int32_t status = decompress_from(c, memory, capacity, start && !with_result ? &start : NULL,
                                     with_result ? &result : NULL, COMET_OK, &decoded);
    assert_int_equal(status, COMET_OK);
    assert_memory_equal(decoded, c->decoded, bytes_of(&c->shape, c->out));
    free(decoded);
    free(memory);
}

static void check_case(const sample_case *c, rng *r) {
    uint64_t start = ALIGNMENT * rng_between(r, 1, 3);
    check_compress(c, c->bytes, NULL);
    check_compress(c, start + c->bytes + rng_below(r, 300), &start);
    check_decompress(c, 0, 0);
    check_decompress(c, start, (int)rng_below(r, 2));
}

/* ---- parameters and shapes ---- */

static comet_codec_params random_params(rng *r, comet_codec codec) {
    static const int32_t blocks[] = {1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 16, 64};
    static const int32_t bits[] = {2, 4, 8}, groups[] = {32, 64, 96, 128, 160, 256, 256, 288, 512, 1024, 1056, 65536};
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = codec;
    p.pool_block = blocks[rng_below(r, sizeof blocks / sizeof *blocks)];
    p.group_bits = bits[rng_below(r, 3)];
    p.group_values = groups[rng_below(r, sizeof groups / sizeof *groups)];
    p.rounding = codec == COMET_CODEC_GROUP ? (comet_rounding)rng_below(r, 2) : COMET_ROUND_NEAREST;
    p.seed = rng_next(r);
    p.dct_table = (int32_t)rng_below(r, 2);
    return p;
}

/* Maps of 1 x 1 to 40 x 40 in three to five dimensions. */
static test_shape random_maps(rng *r, comet_layout layout) {
    test_shape s = {.layout = layout, .ndim = (int32_t)rng_between(r, layout == COMET_NCHW ? 4 : 3, 5)};
    int32_t height = layout == COMET_NCHW ? s.ndim - 2 : s.ndim - 3, channel = layout == COMET_NCHW ? 1 : s.ndim - 1;
    for (int32_t d = 0; d < s.ndim; d++)
        s.shape[d] = rng_between(r, 1, 3);
    s.shape[height] = rng_between(r, 1, 40);
    s.shape[height + 1] = rng_below(r, 2) ? 8 * rng_between(r, 1, 5) : rng_between(r, 1, 40);
    s.shape[channel] = rng_below(r, 2) ? 8 : rng_between(r, 1, 9);
    return s;
}

static test_shape random_shape(rng *r) {
    comet_layout layout = (comet_layout)rng_below(r, 3);
    if (layout != COMET_FLAT && rng_below(r, 2))
        return random_maps(r, layout);
    return shape_random(r, layout, 6000);
}

static int is_supported(const comet_codec_params *p, const test_shape *s) {
    return p->codec != COMET_CODEC_POOL || comet_maps_exist(s->layout, s->ndim);
}

/* ---- tests ---- */

static void random_tensors_are_as_on_the_cpu(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int i = 0; i < effort(150); i++)
        for (int n = 0; n < CODECS; n++) {
            comet_codec_params p = random_params(&r, codecs[n]);
            test_shape shape = random_shape(&r);
            if (!is_supported(&p, &shape))
                continue;
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shape, (value_kind)rng_below(&r, VALUES_KINDS));
            check_case(&c, &r);
            case_free(&c);
        }
}

/* Shapes for every path: whole tiles and ragged ones, several chunks, rows and channels that vectors fit or do not. */
static void chosen_shapes_are_as_on_the_cpu(void **state) {
    (void)state;
    static const test_shape shapes[] = {
        {COMET_FLAT, 0, {0}},
        {COMET_FLAT, 1, {1}},
        {COMET_FLAT, 1, {7}},
        {COMET_FLAT, 1, {8}},
        {COMET_FLAT, 1, {0}},
        {COMET_FLAT, 1, {1023}},
        {COMET_FLAT, 1, {1024}},
        {COMET_FLAT, 1, {8193}},
        {COMET_FLAT, 1, {70001}},
        {COMET_FLAT, 2, {129, 131}},
        {COMET_NCHW, 2, {17, 23}},
        {COMET_NCHW, 3, {3, 5, 40}},
        {COMET_NCHW, 4, {2, 0, 9, 9}},
        {COMET_NCHW, 4, {3, 5, 24, 40}},
        {COMET_NCHW, 4, {2, 3, 33, 70}},
        {COMET_NCHW, 4, {2, 7, 5, 5}},
        {COMET_NCHW, 5, {2, 3, 2, 10, 12}},
        {COMET_NCHW, 8, {1, 2, 1, 2, 1, 2, 9, 8}},
        {COMET_NHWC, 3, {9, 11, 1}},
        {COMET_NHWC, 4, {2, 16, 16, 40}},
        {COMET_NHWC, 4, {1, 13, 10, 33}},
        {COMET_NHWC, 4, {2, 5, 5, 19}},
        {COMET_NHWC, 5, {2, 2, 8, 9, 3}},
    };
    rng r = rng_seed(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < CODECS; n++)
            for (int d = 0; d < 3; d++) {
                comet_codec_params p = random_params(&r, codecs[n]);
                if (!is_supported(&p, &shapes[i]))
                    continue;
                sample_case c;
                case_new(&c, &r, &p, dtypes[d], &shapes[i], d == 1 ? VALUES_MIXED : VALUES_GAUSS);
                check_case(&c, &r);
                case_free(&c);
            }
}

static void every_block_of_pool(void **state) {
    (void)state;
    static const test_shape shapes[] = {{COMET_NCHW, 4, {1, 2, 13, 24}}, {COMET_NHWC, 4, {1, 11, 13, 8}}};
    rng r = rng_seed(3);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_POOL;
    for (p.pool_block = 1; p.pool_block <= 26; p.pool_block++)
        for (int s = 0; s < 2; s++)
            for (int d = 0; d < 3; d++) {
                sample_case c;
                case_new(&c, &r, &p, dtypes[d], &shapes[s], s ? VALUES_SPECIAL : VALUES_GAUSS);
                check_case(&c, &r);
                case_free(&c);
            }
}

/* Tensors that many blocks of threads share: large maps, and many small ones, with rows that vectors fit or do not. */
static void many_maps_of_pool(void **state) {
    (void)state;
    static const test_shape shapes[] = {{COMET_NCHW, 4, {3, 7, 61, 80}}, {COMET_NCHW, 4, {150, 11, 3, 8}},
                                        {COMET_NCHW, 4, {90, 11, 7, 7}}, {COMET_NCHW, 4, {3, 5, 45, 71}},
                                        {COMET_NHWC, 4, {5, 23, 9, 40}}, {COMET_NHWC, 4, {7, 21, 9, 35}},
                                        {COMET_NHWC, 4, {9, 1, 300, 8}}, {COMET_NHWC, 4, {9, 300, 1, 8}}};
    static const int32_t blocks[] = {1, 2, 3, 8, 64};
    rng r = rng_seed(16);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_POOL;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            p.pool_block = blocks[b];
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shapes[s], VALUES_GAUSS);
            check_compress(&c, c.bytes, NULL);
            check_decompress(&c, 0, 0);
            case_free(&c);
        }
}

static void every_size_of_group(void **state) {
    (void)state;
    rng r = rng_seed(4);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_GROUP;
    static const test_shape shape = {COMET_FLAT, 1, {3001}};
    for (p.group_values = 32; p.group_values <= 1184; p.group_values += 32)
        for (p.group_bits = 2; p.group_bits <= 8; p.group_bits *= 2) {
            p.rounding = (comet_rounding)(p.group_values / 32 % 2);
            p.seed = rng_next(&r);
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shape, (value_kind)rng_below(&r, VALUES_KINDS));
            check_compress(&c, c.bytes, NULL);
            check_decompress(&c, 0, 0);
            case_free(&c);
        }
}

/* Values whose least and greatest are hard to find: one sign, both zeros, a range that overflows or is nearly none. */
static uint32_t hard_pattern(rng *r, uint64_t kind) {
    uint32_t random = (uint32_t)rng_next(r), sign = random & 0x80000000u;
    static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u};
    switch (kind) {
    case 0: /* all of one sign, small and large */
        return 0x80000000u | (0x30000000u + (random & 0x0fffffffu));
    case 1:
        return 0x30000000u + (random & 0x0fffffffu);
    case 2: /* zeros alone */
        return sign;
    case 3: /* from the least to the greatest of all */
        return sign | (0x7f7fffffu - (random & 0xff));
    case 4: /* a range around 2^-100 */
        return sign | (0x0d000000u + (random & 0x00ffffffu));
    case 5: /* one that is not finite among many */
        return random % 40 ? sign | 0x3f800000u : odd[random >> 8 & 3];
    case 6: /* none that is finite */
        return odd[random >> 8 & 3];
    default: /* few steps, so that many lie between two codes */
        return sign | (0x3f800000u + ((random & 0xff) << 15));
    }
}

static void hard_ranges_of_groups(void **state) {
    (void)state;
    static const test_shape shape = {COMET_FLAT, 1, {16 * 1024 + 5}};
    rng r = rng_seed(15);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_GROUP;
    for (p.group_values = 32; p.group_values <= 2048; p.group_values *= 2)
        for (int d = 0; d < 3; d++) {
            p.group_bits = 2 << rng_below(&r, 3);
            p.rounding = (comet_rounding)(rng_below(&r, 4) == 0);
            sample_case c = {.p = p, .dtype = dtypes[d], .out = dtypes[d], .shape = shape};
            c.patterns = take(bytes_of(&shape, dtypes[d]));
            uint64_t kind = 0;
            for (int64_t i = 0; i < shape_count(&shape); i++) {
                kind = i % p.group_values ? kind : rng_below(&r, 8);
                uint32_t pattern = hard_pattern(&r, kind);
                if (d == 0)
                    ((uint32_t *)c.patterns)[i] = pattern;
                else
                    ((uint16_t *)c.patterns)[i] = (uint16_t)(pattern >> 16);
            }
            case_on_cpu(&c);
            check_compress(&c, c.bytes, NULL);
            check_decompress(&c, 0, 0);
            case_free(&c);
        }
}

/* More chunks than a warp looks back at in one step. */
static void many_chunks_of_dct(void **state) {
    (void)state;
    static const test_shape shape = {COMET_NCHW, 4, {1, 70, 64, 64}};
    rng r = rng_seed(12);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_DCT;
    sample_case c;
    case_new(&c, &r, &p, COMET_F16, &shape, VALUES_GAUSS);
    check_compress(&c, c.bytes, NULL);
    check_decompress(&c, 0, 0);
    case_free(&c);
}

/* A mask of any dtype decodes into bytes. */
static void masks_decode_to_bytes(void **state) {
    (void)state;
    rng r = rng_seed(5);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    p.codec = COMET_CODEC_MASK;
    for (int64_t count = 1000; count < 1051; count += 5) {
        test_shape shape = {COMET_FLAT, 1, {count}};
        sample_case c;
        case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shape, VALUES_SPECIAL);
        void *data = device_take((size_t)count, NULL), *stream = device_take(c.bytes, c.stream);
        int32_t none = COMET_OK, *word = device_take(sizeof none, &none);
        comet_tensor out = device_view(&shape, COMET_U8, data);
        cuda_decompress_job job = {.tensor = &out, .params = &p, .slot = {.base = stream, .capacity = c.bytes}};
        memcpy(job.header.words, c.stream, HEADER);
        ((uint8_t *)job.header.words)[7] = COMET_U8;
        job.status = word;
        assert_cuda(comet_cuda_mask.decompress(&job));
        unsigned char *bytes = device_read(data, (size_t)count), *on_cpu = take((size_t)count);
        comet_tensor expected = view_of(&shape, COMET_U8, on_cpu);
        assert_ok(comet_codec_decompress(c.stream, c.bytes, NULL, NULL, &expected));
        assert_memory_equal(bytes, on_cpu, (size_t)count);
        assert_cuda(cudaFree(data));
        assert_cuda(cudaFree(stream));
        assert_cuda(cudaFree(word));
        free(bytes);
        free(on_cpu);
        case_free(&c);
    }
}

static void bounds_and_parameters(void **state) {
    (void)state;
    test_shape shape = {COMET_NCHW, 3, {2, 3, 40}};
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    comet_tensor t = device_view(&shape, COMET_F32, NULL);
    size_t bytes, on_cpu;
    p.codec = COMET_CODEC_POOL;
    assert_status(comet_cuda_max_bytes(&t, &p, &bytes), COMET_ERROR_UNSUPPORTED);
    p.codec = COMET_CODEC_GROUP;
    p.group_bits = 3;
    assert_status(comet_cuda_max_bytes(&t, &p, &bytes), COMET_ERROR_ARGUMENT);
    rng r = rng_seed(6);
    for (int i = 0; i < 200; i++) {
        p = random_params(&r, codecs[i % CODECS]);
        shape = random_shape(&r);
        if (!is_supported(&p, &shape))
            continue;
        t = device_view(&shape, dtypes[rng_below(&r, 3)], NULL);
        assert_ok(comet_cuda_max_bytes(&t, &p, &bytes));
        t.device.kind = COMET_CPU;
        assert_ok(comet_codec_max_bytes(&t, &p, &on_cpu));
        assert_int_equal(bytes, on_cpu);
    }
}

/* ---- what does not fit ---- */

static void check_does_not_fit(const sample_case *c, size_t capacity, const uint64_t *start) {
    comet_cuda_result result;
    unsigned char *memory = compress_into(c, capacity, start, &result);
    uint64_t at = start ? *start : 0;
    assert_int_equal(result.status, COMET_ERROR_CAPACITY);
    assert_int_equal(result.start, at);
    assert_int_equal(result.end, at);
    assert_true(at >= capacity || is_poison(memory, at));
    void *decoded; /* and what is there is refused, with the same status */
    int32_t status = decompress_from(c, memory, capacity, start, &result, COMET_OK, &decoded);
    assert_int_equal(status, COMET_ERROR_CAPACITY);
    assert_true(is_poison(decoded, bytes_of(&c->shape, c->out)));
    free(decoded);
    free(memory);
}

static void streams_that_do_not_fit(void **state) {
    (void)state;
    static const test_shape shapes[] = {{COMET_NCHW, 4, {2, 3, 24, 40}}, {COMET_NHWC, 4, {1, 6, 5, 9}}};
    static const uint64_t starts[] = {ALIGNMENT, 128, 1, 1u << 20, UINT64_MAX - 255, UINT64_MAX};
    rng r = rng_seed(7);
    for (int n = 0; n < CODECS; n++)
        for (int s = 0; s < 2; s++) {
            comet_codec_params p = random_params(&r, codecs[n]);
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shapes[s], VALUES_GAUSS);
            for (size_t less = 1; less < c.bytes; less += 1 + less * 2 / 3)
                check_does_not_fit(&c, c.bytes - less, NULL);
            for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
                check_does_not_fit(&c, c.bytes + ALIGNMENT - 1, &starts[i]);
            case_free(&c);
        }
}

/* ---- hostile streams ---- */

static comet_status decode_on_cpu(const sample_case *c, const void *stream, size_t bytes, void **decoded) {
    *decoded = take(bytes_of(&c->shape, c->out));
    comet_tensor out = view_of(&c->shape, c->out, *decoded);
    return comet_codec_decompress(stream, bytes, NULL, NULL, &out);
}

/* What the CPU refuses the device refuses; what the device takes is what the CPU takes. */
static int32_t compare_decoders(const sample_case *c, const void *stream, size_t bytes) {
    void *on_cpu, *on_device;
    comet_status expected = decode_on_cpu(c, stream, bytes, &on_cpu);
    int32_t status = decompress_from(c, stream, bytes, NULL, NULL, COMET_OK, &on_device);
    if (expected != COMET_OK)
        assert_int_not_equal(status, COMET_OK);
    if (status == COMET_OK)
        assert_memory_equal(on_device, on_cpu, bytes_of(&c->shape, c->out));
    free(on_cpu);
    free(on_device);
    return status;
}

/* Every byte of the header matters, but for the dtype of a mask; a header that is wrong leaves the tensor as it was. */
static void check_header_changes(const sample_case *c, unsigned char *copy) {
    for (int at = 0; at < HEADER; at++)
        for (int bit = at % 3; bit < 8; bit += 3) {
            memcpy(copy, c->stream, c->bytes);
            copy[at] ^= (unsigned char)(1u << bit);
            void *decoded;
            int32_t status = decompress_from(c, copy, c->bytes, NULL, NULL, COMET_OK, &decoded);
            int same_to_a_mask = c->p.codec == COMET_CODEC_MASK && at == 7 && copy[7] <= COMET_U8;
            assert_true((status == COMET_OK) == same_to_a_mask);
            if (status != COMET_OK && !(c->p.codec == COMET_CODEC_DCT && at >= 16 && at < 24))
                assert_true(is_poison(decoded, bytes_of(&c->shape, c->out)));
            free(decoded);
        }
}

static void check_body_changes(const sample_case *c, rng *r, unsigned char *copy) {
    for (int i = 0; i < effort(60); i++) {
        memcpy(copy, c->stream, c->bytes);
        uint64_t reach = rng_below(r, 2) ? c->bytes - HEADER : c->bytes - HEADER < 64 ? c->bytes - HEADER : 64;
        for (int n = (int)rng_between(r, 1, 3); n > 0; n--)
            copy[HEADER + rng_below(r, reach)] ^= (unsigned char)(1u << rng_below(r, 8));
        compare_decoders(c, copy, c->bytes);
    }
    for (size_t at = HEADER; at < c->bytes; at += 1 + (c->bytes - HEADER) / 24) {
        memcpy(copy, c->stream, c->bytes);
        memset(copy + at, 0xff, c->bytes - at < 8 ? c->bytes - at : 8);
        compare_decoders(c, copy, c->bytes);
    }
    memcpy(copy, c->stream, c->bytes);
    copy[c->bytes - 1] |= 0x80; /* bits behind the last value, where there are any */
    compare_decoders(c, copy, c->bytes);
}

/* A stream that is cut short, in a slot that is, or that says so. */
static void check_lengths(const sample_case *c, unsigned char *copy) {
    for (size_t less = 1; less <= c->bytes; less += 1 + less / 2) {
        void *decoded;
        assert_int_equal(
            decompress_from(c, c->stream, c->bytes - less ? c->bytes - less : 1, NULL, NULL, COMET_OK, &decoded),
            COMET_ERROR_CORRUPT);
        free(decoded);
    }
    static const int64_t differences[] = {-9, -1, 1, 64, 1 << 20, INT64_MIN};
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        uint64_t claim = c->bytes + (uint64_t)differences[i];
        memcpy(copy, c->stream, c->bytes);
        memcpy(copy + 16, &claim, sizeof claim);
        assert_int_equal(compare_decoders(c, copy, c->bytes), COMET_ERROR_CORRUPT);
    }
}

static void hostile_streams(void **state) {
    (void)state;
    static const test_shape shapes[] = {
        {COMET_NCHW, 4, {2, 2, 9, 11}}, {COMET_NHWC, 4, {1, 8, 16, 70}}, {COMET_NHWC, 4, {1, 3, 7, 5}}};
    rng r = rng_seed(8);
    for (int n = 0; n < CODECS; n++)
        for (int s = 0; s < 3; s++) {
            comet_codec_params p = random_params(&r, codecs[n]);
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shapes[s], VALUES_GAUSS);
            unsigned char *copy = take(c.bytes);
            if (s != 1)
                check_header_changes(&c, copy);
            check_body_changes(&c, &r, copy);
            check_lengths(&c, copy);
            free(copy);
            case_free(&c);
        }
}

/* A result that says the stream is elsewhere, or that there is none; a status word that has something in it. */
static void results_and_statuses(void **state) {
    (void)state;
    static const uint64_t starts[] = {1, 128, ALIGNMENT, 1u << 30, UINT64_MAX - 255, UINT64_MAX};
    test_shape shape = {COMET_NCHW, 4, {1, 2, 9, 11}};
    rng r = rng_seed(9);
    for (int n = 0; n < CODECS; n++) {
        comet_codec_params p = random_params(&r, codecs[n]);
        sample_case c;
        void *decoded;
        case_new(&c, &r, &p, COMET_F32, &shape, VALUES_GAUSS);
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            comet_cuda_result result = {.start = starts[i]};
            int32_t status = decompress_from(&c, c.stream, c.bytes, NULL, &result, COMET_OK, &decoded);
            assert_int_equal(status, COMET_ERROR_CORRUPT);
            free(decoded);
            status = decompress_from(&c, c.stream, c.bytes, &starts[i], NULL, COMET_OK, &decoded);
            assert_int_equal(status, COMET_ERROR_CORRUPT);
            free(decoded);
        }
        int32_t status = decompress_from(&c, c.stream, c.bytes, NULL, NULL, COMET_ERROR_CHECKSUM, &decoded);
        assert_int_equal(status, COMET_ERROR_CHECKSUM);
        assert_memory_equal(decoded, c.decoded, bytes_of(&c.shape, c.out));
        free(decoded);
        case_free(&c);
    }
}

/* A stream with a checksum is read, if the parameters say that it has one; the checksum is not verified. */
static void streams_with_a_checksum(void **state) {
    (void)state;
    test_shape shape = {COMET_NHWC, 4, {1, 9, 11, 3}};
    rng r = rng_seed(13);
    for (int n = 0; n < CODECS; n++) {
        comet_codec_params p = random_params(&r, codecs[n]);
        sample_case c;
        void *decoded;
        p.checksum = 1;
        case_new(&c, &r, &p, COMET_BF16, &shape, VALUES_GAUSS);
        check_decompress(&c, 0, 0);
        c.p.checksum = 0;
        int32_t status = decompress_from(&c, c.stream, c.bytes, NULL, NULL, COMET_OK, &decoded);
        assert_int_equal(status, COMET_ERROR_MISMATCH);
        free(decoded);
        case_free(&c);
    }
}

/* ---- streams one behind the other, and graphs ---- */

enum { CHAIN = 2 * CODECS };

typedef struct chain_result {
    comet_cuda_result r;
    uint64_t gap; /* results are 16-byte aligned */
} chain_result;

typedef struct chain {
    sample_case c[CHAIN];
    void *in[CHAIN], *out[CHAIN];
    comet_codec_exec exec[CHAIN];
    chain_result *results;
    int32_t *status;
    void *base;
    size_t capacity;
} chain;

static void chain_new(chain *k, rng *r) {
    static const test_shape shapes[] = {{COMET_NCHW, 4, {2, 3, 17, 12}}, {COMET_NHWC, 4, {1, 9, 9, 12}}};
    int32_t none = COMET_OK;
    k->capacity = 0;
    for (int i = 0; i < CHAIN; i++) {
        comet_codec_params p = random_params(r, codecs[i % CODECS]);
        case_new(&k->c[i], r, &p, dtypes[rng_below(r, 3)], &shapes[i % 2], VALUES_GAUSS);
        k->c[i].out = k->c[i].dtype;
        k->in[i] = device_take(bytes_of(&k->c[i].shape, k->c[i].dtype), k->c[i].patterns);
        k->out[i] = device_take(bytes_of(&k->c[i].shape, k->c[i].dtype), NULL);
        comet_tensor t = device_view(&k->c[i].shape, k->c[i].dtype, k->in[i]);
        k->exec[i] = exec_for(&t, &p);
        size_t bound;
        assert_ok(comet_cuda_max_bytes(&t, &p, &bound));
        k->capacity += (bound + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    k->results = device_take(CHAIN * sizeof *k->results, NULL);
    k->status = device_take(sizeof none, &none);
    k->base = device_take(k->capacity, NULL);
}

static void chain_free(chain *k) {
    for (int i = 0; i < CHAIN; i++) {
        case_free(&k->c[i]);
        exec_free(&k->exec[i]);
        assert_cuda(cudaFree(k->in[i]));
        assert_cuda(cudaFree(k->out[i]));
    }
    assert_cuda(cudaFree(k->results));
    assert_cuda(cudaFree(k->status));
    assert_cuda(cudaFree(k->base));
}

/* Compresses all of them, one behind the other, then decompresses all. */
static void chain_issue(chain *k, cudaStream_t queue) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < CHAIN; i++) {
            const sample_case *c = &k->c[i];
            comet_tensor t = device_view(&c->shape, c->dtype, pass ? k->out[i] : k->in[i]);
            comet_cuda_slot slot = {k->base, k->capacity, i ? &k->results[i - 1].r.end : NULL, &k->results[i].r};
            k->exec[i].queue = queue;
            if (pass)
                assert_ok(comet_cuda_decompress(&slot, &c->p, NULL, &k->exec[i], &t, k->status));
            else
                assert_ok(comet_cuda_compress(&t, &c->p, &k->exec[i], &slot, NULL));
        }
}

static void chain_check(chain *k) {
    chain_result *results = device_read(k->results, CHAIN * sizeof *results);
    unsigned char *memory = device_read(k->base, k->capacity);
    int32_t *status = device_read(k->status, sizeof *status);
    uint64_t start = 0;
    for (int i = 0; i < CHAIN; i++) {
        const sample_case *c = &k->c[i];
        check_result(&results[i].r, start, c->bytes);
        assert_memory_equal(memory + start, c->stream, c->bytes);
        start = results[i].r.end;
        void *out = device_read(k->out[i], bytes_of(&c->shape, c->dtype));
        assert_memory_equal(out, c->decoded, bytes_of(&c->shape, c->dtype));
        free(out);
    }
    assert_int_equal(*status, COMET_OK);
    free(results);
    free(memory);
    free(status);
}

/* Other values for every tensor; mask's decoded tensor has the input's dtype here. */
static void chain_refill(chain *k, rng *r) {
    for (int i = 0; i < CHAIN; i++) {
        sample_case *c = &k->c[i];
        size_t bytes = bytes_of(&c->shape, c->dtype);
        values_fill(r, (value_kind)rng_below(r, VALUES_KINDS), c->dtype, 3.0, 0.1, c->patterns, shape_count(&c->shape));
        assert_cuda(cudaMemcpy(k->in[i], c->patterns, bytes, cudaMemcpyHostToDevice));
        free(c->stream);
        free(c->decoded);
        case_on_cpu(c);
    }
    assert_cuda(cudaDeviceSynchronize());
}

static void streams_behind_each_other_in_a_graph(void **state) {
    (void)state;
    rng r = rng_seed(10);
    chain k;
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t graph_exec;
    chain_new(&k, &r);
    chain_refill(&k, &r);
    assert_cuda(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    chain_issue(&k, queue);
    assert_cuda(cudaStreamSynchronize(queue));
    chain_check(&k);
    assert_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
    chain_issue(&k, queue);
    assert_cuda(cudaStreamEndCapture(queue, &graph));
    assert_cuda(cudaGraphInstantiate(&graph_exec, graph, 0));
    for (int i = 0; i < 4; i++) {
        chain_refill(&k, &r);
        assert_cuda(cudaGraphLaunch(graph_exec, queue));
        assert_cuda(cudaStreamSynchronize(queue));
        chain_check(&k);
    }
    assert_cuda(cudaGraphExecDestroy(graph_exec));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaStreamDestroy(queue));
    chain_free(&k);
}

/* Blocks and threads in any order. */
static void orders_do_not_matter(void **state) {
    (void)state;
#ifdef COMET_CUDA_EMULATION
    static const test_shape shapes[] = {{COMET_NCHW, 4, {3, 5, 24, 40}}, {COMET_NHWC, 4, {1, 13, 10, 33}}};
    rng r = rng_seed(11);
    for (int i = 0; i < effort(12); i++)
        for (int n = 0; n < CODECS; n++) {
            comet_codec_params p = random_params(&r, codecs[n]);
            sample_case c;
            case_new(&c, &r, &p, dtypes[rng_below(&r, 3)], &shapes[i % 2], VALUES_GAUSS);
            emulation_set_block_order(rng_next(&r) | 1);
            emulation_set_thread_order(rng_next(&r) | 1);
            check_case(&c, &r);
            emulation_reset();
            case_free(&c);
        }
#else
    skip_because("a device has no order to ask for");
#endif
}

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status != COMET_OK) {
        printf("no device: %s\n", comet_status_string(status));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tensors_are_as_on_the_cpu),
        cmocka_unit_test(chosen_shapes_are_as_on_the_cpu),
        cmocka_unit_test(every_block_of_pool),
        cmocka_unit_test(many_maps_of_pool),
        cmocka_unit_test(every_size_of_group),
        cmocka_unit_test(hard_ranges_of_groups),
        cmocka_unit_test(many_chunks_of_dct),
        cmocka_unit_test(masks_decode_to_bytes),
        cmocka_unit_test(bounds_and_parameters),
        cmocka_unit_test(streams_that_do_not_fit),
        cmocka_unit_test(hostile_streams),
        cmocka_unit_test(results_and_statuses),
        cmocka_unit_test(streams_with_a_checksum),
        cmocka_unit_test(streams_behind_each_other_in_a_graph),
        cmocka_unit_test(orders_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
