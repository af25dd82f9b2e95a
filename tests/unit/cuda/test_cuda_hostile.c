/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of eb and zvc in device memory that nobody compressed: bits flipped, tables, heads and lengths made up, cut
 * short, noise. Whatever they hold, nothing outside the slot is read (the memory ends there, which the emulator under a
 * sanitizer and compute-sanitizer see) and nothing outside the tensor is written; and the device either says that
 * something is wrong or decodes what the CPU decodes from the same bytes.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cuda/cuda_backend.h"
#include "support/effort.h"
#include "support/number.h"
#include "support/spec/spec_format.h"

enum { HEADER = 128, ROW = 24, ROW_ENTRIES = 8, AT_BYTES = 16, AT_BOUND = 12 };

/* A good stream, as the device left it, and everything that reading one like it takes. */
typedef struct target {
    trip t;
    cuda_params params;
    unsigned char *good, *bad;
    size_t bytes;
    int64_t tiles;
    cuda_block memory, out, word, workspace;
    void *poison, *on_cpu;
} target;

/* How many streams went which way: a test in which all are refused would show little. */
typedef struct outcomes {
    int64_t refused, same, odd;
} outcomes;

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void compress_target(target *g, const backend_list *backends, rng *r) {
    failure f;
    trip_stream s = {.bytes = NULL};
    const backend *b = &backends->all[0];
    assert_check(b->compress(b, &g->t, r, &s, &f), f);
    g->bytes = s.stored_bytes;
    g->tiles = s.result.tiles;
    g->good = take(g->bytes);
    g->bad = take(g->bytes);
    memcpy(g->good, s.stored, g->bytes);
    trip_stream_free(&s);
}

static void target_new(target *g, rng *r, const backend_list *backends, const trip_spec *spec) {
    int32_t none = COMET_OK;
    memset(g, 0, sizeof *g);
    trip_new(&g->t, r, spec);
    cuda_params_new(&g->params, &g->t.params);
    compress_target(g, backends, r);
    size_t bytes = trip_output_bytes(&g->t);
    g->memory = cuda_block_new(g->bytes, g->good);
    g->out = cuda_block_new(bytes, NULL);
    g->word = cuda_block_new(sizeof none, &none);
    comet_tensor out = cuda_view(&spec->shape, trip_output_dtype(&g->t), g->out.data);
    g->workspace = cuda_workspace_new(&out, &g->params.p, NULL);
    g->on_cpu = take(bytes);
    g->poison = take(bytes);
    memset(g->poison, CUDA_POISON, bytes);
}

static void target_free(target *g) {
    cuda_workspace_free(&g->workspace);
    cuda_block_free(&g->word);
    cuda_block_free(&g->out);
    cuda_block_free(&g->memory);
    cuda_params_free(&g->params);
    free(g->poison);
    free(g->on_cpu);
    free(g->good);
    free(g->bad);
    trip_free(&g->t);
}

/* ---- both decoders ---- */

static comet_status decode_on_cpu(target *g, const void *stream, size_t bytes) {
    comet_tensor out;
    const test_shape *s = &g->t.spec.shape;
    assert_ok(comet_tensor_init(&out, g->on_cpu, trip_output_dtype(&g->t), s->layout, s->ndim, s->shape));
    return comet_codec_decompress(stream, bytes, trip_grid(&g->t), NULL, &out);
}

/* Reads `memory`, which holds the stream; returns the status word. */
static int32_t decode_on_device(target *g, const cuda_block *memory, const uint64_t *start) {
    int32_t word = COMET_OK;
    cuda_block_write(&g->word, &word);
    cuda_block_write(&g->out, g->poison);
    comet_tensor out = cuda_view(&g->t.spec.shape, trip_output_dtype(&g->t), g->out.data);
    comet_codec_exec exec = cuda_exec(&g->workspace, NULL);
    comet_cuda_slot slot = {memory->data, memory->bytes, start, NULL};
    assert_ok(comet_cuda_decompress(&slot, &g->params.p, NULL, &exec, &out, g->word.data));
    cuda_must(cudaMemcpy(&word, g->word.data, sizeof word, cudaMemcpyDeviceToHost));
    assert_true(cuda_block_is_intact(&g->out));
    return word;
}

/*
 * Whether a value may come from the code -128 (or -32768), of which a decoder may make what it likes, so also refuse it
 * (docs/format.md, 'Residuals'). With a grid or keep-mask it stands for up to half a step less or more.
 */
static int is_of_last_code(const unsigned char *stream, double value) {
    spec_stream s = {.codec = stream[6], .dtype = stream[7], .flags = stream[10]};
    memcpy(&s.bound, stream + AT_BOUND, sizeof s.bound);
    for (int c = 0; c < SPEC_CLASSES; c++) {
        spec_class k = spec_class_of(&s, c);
        double least = k.wide ? 32767.0 : 126.9, most = k.wide ? 32769.0 : 128.6, step = (double)k.s;
        if (k.exists && ((value <= -least * step && value >= -most * step) || (k.wide && value <= -65504.0)))
            return 1;
    }
    return 0;
}

static int has_last_code(const target *g, const unsigned char *stream) {
    comet_dtype dtype = trip_output_dtype(&g->t);
    for (int64_t i = 0; i < g->t.count; i++)
        if (is_of_last_code(stream, number_of_bits(dtype, bits_at(dtype, g->on_cpu, i))))
            return 1;
    return 0;
}

static void compare_values(target *g, const unsigned char *stream, outcomes *n) {
    void *got = cuda_block_read(&g->out);
    comet_dtype dtype = trip_output_dtype(&g->t);
    int odd = 0;
    for (int64_t i = 0; i < g->t.count; i++) {
        uint32_t a = bits_at(dtype, g->on_cpu, i), b = bits_at(dtype, got, i);
        if (a == b)
            continue;
        odd = 1;
        if (!is_of_last_code(stream, number_of_bits(dtype, a)))
            fail_msg("%s %s %s: value %lld is %08x, on the CPU %08x", comet_dtype_name(g->t.spec.dtype),
                     layout_name(g->t.spec.shape.layout), trip_mode_name(g->t.spec.mode), (long long)i, (unsigned)b,
                     (unsigned)a);
    }
    n->same += !odd;
    n->odd += odd;
    free(got);
}

/*
 * Whether the device has a reason of its own to refuse the header: the parameters it was given say something else, or
 * the bound is -0, which no encoder writes and the CPU takes for 0.
 */
static int is_mismatch(const target *g, const unsigned char *stream) {
    enum { BEHIND = AT_BYTES + 8 };
    uint32_t bound;
    memcpy(&bound, stream + AT_BOUND, sizeof bound);
    return bound == 0x80000000u || memcmp(stream, g->good, AT_BOUND) != 0 ||
           memcmp(stream + BEHIND, g->good + BEHIND, HEADER - BEHIND) != 0;
}

/* The bytes as they are in `memory`, through both decoders. */
static void compare(target *g, const cuda_block *memory, const unsigned char *stream, outcomes *n) {
    comet_status expected = decode_on_cpu(g, stream, memory->bytes);
    int32_t word = decode_on_device(g, memory, NULL);
    if (word == COMET_OK && expected != COMET_OK)
        fail_msg("%s %s %s: the device decodes what is to the CPU: %s", comet_dtype_name(g->t.spec.dtype),
                 layout_name(g->t.spec.shape.layout), trip_mode_name(g->t.spec.mode), comet_status_string(expected));
    if (word == COMET_OK) {
        compare_values(g, stream, n);
    } else if (expected != COMET_OK || is_mismatch(g, stream)) {
        n->refused++;
    } else {
        if (!has_last_code(g, stream))
            fail_msg("%s %s %s: the device refuses what the CPU decodes: %s", comet_dtype_name(g->t.spec.dtype),
                     layout_name(g->t.spec.shape.layout), trip_mode_name(g->t.spec.mode),
                     comet_status_string((comet_status)word));
        n->odd++;
    }
}

static void compare_bad(target *g, outcomes *n) {
    cuda_block_write(&g->memory, g->bad);
    compare(g, &g->memory, g->bad, n);
}

/* ---- targets ---- */

static const test_shape shapes[] = {{COMET_FLAT, 1, {1500}},         {COMET_FLAT, 1, {9000}},
                                    {COMET_NCHW, 4, {1, 2, 16, 16}}, {COMET_NCHW, 4, {1, 3, 17, 22}},
                                    {COMET_NCHW, 4, {1, 2, 18, 13}}, {COMET_NCHW, 4, {1, 1, 17, 70}},
                                    {COMET_NCHW, 4, {1, 1, 16, 67}}, {COMET_NHWC, 4, {1, 9, 10, 12}},
                                    {COMET_NHWC, 4, {1, 9, 9, 7}},   {COMET_NHWC, 4, {2, 17, 16, 20}}};
enum { SHAPES = sizeof shapes / sizeof *shapes, TARGETS = 3 * SHAPES };

/* All shapes, dtypes and modes; kinds of values and bounds for every kind of tile. */
static trip_spec target_spec(int i) {
    static const value_kind kinds[] = {VALUES_SMOOTH, VALUES_MIXED, VALUES_RELU, VALUES_GAUSS, VALUES_SPECIAL};
    static const double bounds[] = {0.1, 0.3, 0.01, 1e-4};
    return (trip_spec){.dtype = (comet_dtype)(i / SHAPES % 3),
                       .shape = shapes[i % SHAPES],
                       .values = kinds[i % 5],
                       .mode = (trip_mode)((i + i / SHAPES) % TRIP_MODES),
                       .scale = 1.0,
                       .bound = bounds[i / 2 % 4]};
}

static backend_list backends;

static void say(const char *what, const outcomes *n) {
    printf("%s: %lld refused, %lld decoded as on the CPU, %lld with a code that never occurs\n", what,
           (long long)n->refused, (long long)n->same, (long long)n->odd);
}

/* Calls `attack` for every target, which it may do what it likes to but for what `good` holds. */
static outcomes for_targets(uint64_t seed, void (*attack)(target *g, rng *r, outcomes *n)) {
    rng r = rng_seed(seed);
    outcomes n = {0, 0, 0};
    for (int i = 0; i < TARGETS; i++) {
        target g;
        trip_spec spec = target_spec(i);
        target_new(&g, &r, &backends, &spec);
        compare(&g, &g.memory, g.good, &n); /* the good one first */
        attack(&g, &r, &n);
        target_free(&g);
    }
    return n;
}

static void restore(target *g) {
    memcpy(g->bad, g->good, g->bytes);
}

/* ---- attacks ---- */

static size_t table_bytes(const target *g) {
    return (size_t)(g->tiles + 7) / 8 * ROW;
}

/* Where tile t lies, and its entry. */
static size_t tile_at(const target *g, int64_t t, uint16_t *entry) {
    const unsigned char *row = g->good + HEADER + t / 8 * ROW;
    uint64_t offset;
    memcpy(&offset, row, sizeof offset);
    size_t at = HEADER + table_bytes(g) + (size_t)offset;
    for (int64_t i = 0; i <= t % 8; i++) {
        at += i ? *entry & 0x1fff : 0;
        memcpy(entry, row + ROW_ENTRIES + 2 * i, sizeof *entry);
    }
    return at;
}

static uint64_t extreme(rng *r) {
    static const uint64_t values[] = {0,
                                      1,
                                      8,
                                      16,
                                      127,
                                      0x1fff,
                                      0x2000,
                                      0xffff,
                                      (uint64_t)1 << 31,
                                      UINT32_MAX,
                                      (uint64_t)1 << 32,
                                      (uint64_t)1 << 48,
                                      INT64_MAX,
                                      (uint64_t)1 << 63,
                                      UINT64_MAX - 8191,
                                      UINT64_MAX - 255,
                                      UINT64_MAX - 15,
                                      UINT64_MAX - 1,
                                      UINT64_MAX};
    return values[rng_below(r, sizeof values / sizeof *values)];
}

static void flip(target *g, rng *r, size_t from, size_t to) {
    if (to > from)
        g->bad[from + rng_below(r, to - from)] ^= (unsigned char)(1u << rng_below(r, 8));
}

static void attack_bits(target *g, rng *r, outcomes *n) {
    size_t table = HEADER + table_bytes(g);
    for (int i = 0; i < effort(150); i++) {
        restore(g);
        switch (rng_below(r, 5)) {
        case 0:
            flip(g, r, 0, HEADER);
            break;
        case 1:
            flip(g, r, HEADER, table);
            break;
        default:
            for (int64_t k = rng_between(r, 1, 3); k > 0; k--)
                flip(g, r, table, g->bytes);
            break;
        }
        compare_bad(g, n);
    }
}

/* Heads, flags, firsts and ballots are at a tile's start. */
static void attack_tiles(target *g, rng *r, outcomes *n) {
    for (int i = 0; i < effort(150) && g->tiles; i++) {
        uint16_t entry = 0;
        restore(g);
        size_t at = tile_at(g, (int64_t)rng_below(r, (uint64_t)g->tiles), &entry), size = entry & 0x1fff;
        size = size < 24 ? size : 24;
        if (size == 0)
            continue;
        switch (rng_below(r, 5)) {
        case 0: /* another class, or other planes */
            g->bad[at] = (unsigned char)rng_next(r);
            break;
        case 1:
            g->bad[at] ^= (unsigned char)(1u << (5 + rng_below(r, 3)));
            break;
        case 2:
            g->bad[at + rng_below(r, size)] = (unsigned char)rng_next(r);
            break;
        case 3: { /* a first code of -128, where there is one */
            size_t first = 1 + (g->bad[at] & 15) + (g->bad[at] >> 4 & 1);
            g->bad[at + (first < size ? first : 0)] = 0x80;
            break;
        }
        default: /* a piece of the stream elsewhere */
            memmove(g->bad + at, g->bad + HEADER + rng_below(r, g->bytes - HEADER - size), size);
            break;
        }
        compare_bad(g, n);
    }
}

static void put_entry(target *g, rng *r, unsigned char *row) {
    uint16_t entry;
    unsigned char *to = row + ROW_ENTRIES + 2 * rng_below(r, 8);
    memcpy(&entry, to, sizeof entry);
    switch (rng_below(r, 4)) {
    case 0: /* another kind */
        entry = (uint16_t)((entry & 0x1fff) | rng_below(r, 8) << 13);
        break;
    case 1: /* another size */
        entry = (uint16_t)((entry & 0xe000) | rng_below(r, 8192));
        break;
    case 2:
        entry = (uint16_t)(entry + 1 - 2 * (int)rng_below(r, 2));
        break;
    default:
        entry = (uint16_t)extreme(r);
        break;
    }
    memcpy(to, &entry, sizeof entry);
    (void)g;
}

static void attack_table(target *g, rng *r, outcomes *n) {
    for (int i = 0; i < effort(150) && g->tiles; i++) {
        restore(g);
        size_t group = rng_below(r, (uint64_t)(g->tiles + 7) / 8);
        unsigned char *row = g->bad + HEADER + ROW * group;
        uint64_t offset;
        memcpy(&offset, row, sizeof offset);
        switch (rng_below(r, 4)) {
        case 0:
            offset = extreme(r);
            break;
        case 1: /* wraps around to where it was, or nearly */
            offset += extreme(r);
            break;
        case 2:
            offset = rng_below(r, g->bytes);
            break;
        default:
            break;
        }
        memcpy(row, &offset, sizeof offset);
        if (rng_below(r, 2))
            put_entry(g, r, row);
        compare_bad(g, n);
    }
}

static void attack_lengths(target *g, rng *r, outcomes *n) {
    for (int i = 0; i < effort(40); i++) {
        uint64_t claim = rng_below(r, 2) ? extreme(r) : g->bytes - rng_below(r, 400);
        restore(g);
        memcpy(g->bad + AT_BYTES, &claim, sizeof claim);
        compare_bad(g, n);
    }
    for (int i = 0; i < effort(40); i++) { /* the slot is cut short; the header says so, or not */
        uint64_t bytes = rng_below(r, 2) ? rng_below(r, g->bytes) : g->bytes - 1 - rng_below(r, g->bytes < 40 ? 1 : 40);
        restore(g);
        if (rng_below(r, 2) && bytes >= HEADER)
            memcpy(g->bad + AT_BYTES, &bytes, sizeof bytes);
        cuda_block memory = cuda_block_new((size_t)bytes, g->bad);
        compare(g, &memory, g->bad, n);
        cuda_block_free(&memory);
    }
}

/* Noise behind a good header, behind a good table, or instead of everything. */
static void attack_with_noise(target *g, rng *r, outcomes *n) {
    size_t from[] = {0, HEADER, HEADER + table_bytes(g)};
    for (int i = 0; i < effort(30); i++) {
        restore(g);
        for (size_t at = from[i % 3]; at < g->bytes; at++)
            g->bad[at] = (unsigned char)rng_next(r);
        compare_bad(g, n);
    }
}

/* Another bound: one that no encoder writes, or one that gives other steps. */
static void attack_bound(target *g, rng *r, outcomes *n) {
    static const float values[] = {0.0f,   -0.0f,  1.0f,      -1.0f,     NAN,      INFINITY, 0.25f,
                                   1e-45f, 1e-20f, 0x1p-100f, 0x1p-101f, 0x1p100f, 0x1p101f, 3e38f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        restore(g);
        memcpy(g->bad + AT_BOUND, &values[i], sizeof values[i]);
        compare_bad(g, n);
    }
    (void)r;
}

/* ---- tests ---- */

static void run(const char *what, uint64_t seed, void (*attack)(target *g, rng *r, outcomes *n), int both) {
    outcomes n = for_targets(seed, attack);
    say(what, &n);
    assert_true(n.same >= TARGETS / 2); /* good ones among them */
    assert_true(!both || n.refused > 0);
}

static void test_bits(void **state) {
    (void)state;
    run("bits", 1, attack_bits, 1);
}

static void test_tiles(void **state) {
    (void)state;
    run("tiles", 2, attack_tiles, 1);
}

static void test_table(void **state) {
    (void)state;
    run("table", 3, attack_table, 1);
}

static void test_lengths(void **state) {
    (void)state;
    run("lengths", 4, attack_lengths, 1);
}

static void test_noise(void **state) {
    (void)state;
    run("noise", 5, attack_with_noise, 1);
}

static void test_bound(void **state) {
    (void)state;
    run("bound", 6, attack_bound, 1);
}

/* Every bit of a header matters, and what has a wrong one is not written. */
static void test_headers(void **state) {
    (void)state;
    rng r = rng_seed(7);
    outcomes n = {0, 0, 0};
    int bits = effort(8 * HEADER), stride = bits < 8 * HEADER ? 8 * HEADER / bits : 1;
    for (int i = 0; i < TARGETS; i += 4) {
        target g;
        trip_spec spec = target_spec(i);
        target_new(&g, &r, &backends, &spec);
        for (int bit = i % stride; bit < 8 * HEADER; bit += stride) {
            int at = bit / 8;
            restore(&g);
            g.bad[at] ^= (unsigned char)(1u << bit % 8);
            compare_bad(&g, &n);
            if (at >= AT_BOUND && at < AT_BYTES + 8)
                continue; /* bound and length may still be possible */
            void *got = cuda_block_read(&g.out);
            int32_t *word = cuda_block_read(&g.word);
            assert_int_not_equal(*word, COMET_OK);
            assert_true(cuda_is_poison(got, g.out.bytes));
            free(word);
            free(got);
        }
        target_free(&g);
    }
    say("headers", &n);
}

/* Starts that lead out of the slot, in the slot's own word or in a result. */
static void test_starts(void **state) {
    (void)state;
    rng r = rng_seed(8);
    for (int i = 0; i < TARGETS; i += 7) {
        target g;
        trip_spec spec = target_spec(i);
        target_new(&g, &r, &backends, &spec);
        for (int k = 0; k < effort(30); k++) {
            uint64_t start = rng_below(&r, 2) ? extreme(&r) : CUDA_ALIGNMENT * (1 + rng_below(&r, 200));
            if (start == 0)
                continue;
            cuda_block word = cuda_block_new(sizeof start, &start);
            assert_int_not_equal(decode_on_device(&g, &g.memory, word.data), COMET_OK);
            cuda_block_free(&word);
            comet_cuda_result result = {.start = start};
            cuda_reading d = {
                .shape = spec.shape, .dtype = trip_output_dtype(&g.t), .params = &g.t.params, .result = &result};
            void *got;
            assert_ok(cuda_decompress_from(&d, g.good, g.bytes, &got));
            assert_int_not_equal(d.word, COMET_OK);
            free(got);
        }
        target_free(&g);
    }
}

static int group_setup(void **state) {
    (void)state;
    backends = cuda_backend_new(1 << 17);
    return 0;
}

static int group_teardown(void **state) {
    (void)state;
    cuda_backend_free(&backends);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),    cmocka_unit_test(test_tiles),  cmocka_unit_test(test_table),
        cmocka_unit_test(test_noise),   cmocka_unit_test(test_bound),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_headers), cmocka_unit_test(test_starts),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, group_setup, group_teardown);
}
