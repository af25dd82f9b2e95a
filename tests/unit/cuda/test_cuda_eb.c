/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eb and zvc on a device, what the properties (test_cuda_eb_properties) leave out: shapes for every way in which
 * kernels reach values, bounds in device memory, streams one behind the other, the epilogue, one workspace for all, and
 * what is refused.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/codec/samples.h"
#include "support/codec/trip_properties.h"
#include "support/cuda/cuda_jobs.h"
#include "support/effort.h"
#include "support/number.h"

static backend_list backends;

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* Every how many of `count` things there is time for. */
static int64_t stride_for(int count) {
    int done = effort(count);
    return done < count ? count / done : 1;
}

static trip_spec spec_of(comet_dtype dtype, const test_shape *shape, trip_mode mode, value_kind values, double bound) {
    return (trip_spec){.dtype = dtype, .shape = *shape, .values = values, .mode = mode, .scale = 1.0, .bound = bound};
}

/* ---- shapes ---- */

static void verify_shape(rng *r, const test_shape *shape) {
    static const double bounds[] = {0.1, 0.3, 0.01, 1e-4};
    static const value_kind kinds[] = {VALUES_SMOOTH, VALUES_MIXED, VALUES_RELU, VALUES_OUTLIERS};
    trip_spec spec = spec_of((comet_dtype)rng_below(r, 3), shape, (trip_mode)rng_below(r, TRIP_MODES),
                             kinds[rng_below(r, 4)], bounds[rng_below(r, 4)]);
    properties_verify(&backends, r, &spec);
}

/* Rows of every length, so of every residue of 8, short ones and long ones, whole bands and ragged ones. */
static void test_every_row(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int64_t row = 1; row <= 136; row += row < 72 ? stride_for(72) : 3 * stride_for(72))
        for (int64_t rows = 16; rows <= 19; rows += 3) {
            test_shape shape = {COMET_NCHW, 4, {1, 2, rows, row}};
            verify_shape(&r, &shape);
        }
}

/* Channels side by side: of four, of none, more than a tile has lanes, one alone. */
static void test_every_channel_count(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int64_t channels = 1; channels <= 136; channels += channels < 40 ? stride_for(40) : 3 * stride_for(40))
        for (int64_t width = 7; width <= 18; width += 11) {
            test_shape shape = {COMET_NHWC, 4, {1, 5, width, channels}};
            verify_shape(&r, &shape);
        }
}

/* Where the geometry changes its rules, nothing at all, and a shape for every border of a tile and of a group. */
static void test_chosen_shapes(void **state) {
    (void)state;
    static const test_shape shapes[] = {
        {COMET_FLAT, 0, {0}},
        {COMET_FLAT, 1, {0}},
        {COMET_FLAT, 1, {1}},
        {COMET_FLAT, 1, {31}},
        {COMET_FLAT, 1, {32}},
        {COMET_FLAT, 1, {33}},
        {COMET_FLAT, 1, {1023}},
        {COMET_FLAT, 1, {1024}},
        {COMET_FLAT, 1, {1025}},
        {COMET_FLAT, 1, {8191}},
        {COMET_FLAT, 1, {8192}},
        {COMET_FLAT, 1, {8193}},
        {COMET_FLAT, 2, {0, 5}},
        {COMET_FLAT, 2, {257, 130}},
        {COMET_NCHW, 4, {0, 3, 5, 7}},
        {COMET_NCHW, 4, {2, 3, 0, 7}},
        {COMET_NCHW, 1, {100}},
        {COMET_NCHW, 2, {15, 40}},
        {COMET_NCHW, 2, {16, 40}},
        {COMET_NCHW, 2, {16, 7}},
        {COMET_NCHW, 2, {16, 8}},
        {COMET_NCHW, 3, {3, 17, 1000}},
        {COMET_NCHW, 5, {2, 2, 3, 5, 12}},
        {COMET_NCHW, 8, {1, 2, 1, 2, 2, 1, 9, 14}},
        {COMET_NHWC, 4, {2, 0, 5, 9}},
        {COMET_NHWC, 4, {2, 4, 5, 0}},
        {COMET_NHWC, 1, {70}},
        {COMET_NHWC, 2, {31, 70}},
        {COMET_NHWC, 2, {32, 70}},
        {COMET_NHWC, 4, {1, 16, 8, 3}},
        {COMET_NHWC, 4, {1, 15, 9, 512}},
        {COMET_NHWC, 4, {3, 17, 11, 20}},
        {COMET_NHWC, 4, {1, 7, 7, 1001}},
    };
    rng r = rng_seed(3);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < effort(3); n++)
            verify_shape(&r, &shapes[i]);
}

/* Small maps on a grid, whose borders lie anywhere in a tile: of rows that are swept, and of such as are not. */
static const test_shape small_maps[] = {
    {COMET_NCHW, 4, {3, 12, 14, 14}}, {COMET_NCHW, 4, {4, 40, 7, 7}},    {COMET_NCHW, 4, {3, 70, 5, 5}},
    {COMET_NCHW, 4, {2, 5, 28, 28}},  {COMET_NCHW, 4, {2, 65, 5, 7}},    {COMET_NCHW, 4, {2, 9, 13, 17}},
    {COMET_NCHW, 4, {2, 3, 35, 35}},  {COMET_NCHW, 4, {4, 300, 3, 1}},   {COMET_NCHW, 4, {9, 300, 1, 1}},
    {COMET_NCHW, 4, {2, 80, 4, 4}},   {COMET_NCHW, 4, {2, 200, 2, 9}},   {COMET_NCHW, 4, {3, 5, 20, 20}},
    {COMET_NCHW, 4, {3, 1, 20, 14}},  {COMET_NCHW, 4, {1, 4, 30, 44}},   {COMET_NCHW, 4, {1, 4, 30, 43}},
    {COMET_NCHW, 4, {1, 4, 30, 45}},  {COMET_NCHW, 5, {2, 6, 3, 9, 10}}, {COMET_NCHW, 3, {8, 33, 15}},
};
enum { SMALL_MAPS = sizeof small_maps / sizeof *small_maps };

static void test_grids_of_small_maps(void **state) {
    (void)state;
    rng r = rng_seed(18);
    static const double bounds[] = {0.3, 0.1, 0.02, 1e-3};
    static const value_kind kinds[] = {VALUES_GAUSS, VALUES_SMOOTH, VALUES_OUTLIERS, VALUES_SPECIAL};
    for (int i = 0; i < effort(6 * SMALL_MAPS); i++) {
        trip_spec spec = spec_of((comet_dtype)rng_below(&r, 3), &small_maps[i % SMALL_MAPS], TRIP_GRID,
                                 kinds[rng_below(&r, 8) % 5 % 4], bounds[rng_below(&r, 4)]);
        properties_verify(&backends, &r, &spec);
    }
}

/* Groups without padding in which some tiles have narrow codes and some have others, in every mode. */
static void test_mixed_groups(void **state) {
    (void)state;
    rng r = rng_seed(19);
    static const double bounds[] = {0.3, 0.1, 0.02};
    static const value_kind kinds[] = {VALUES_OUTLIERS, VALUES_MIXED, VALUES_SPECIAL};
    static const test_shape shapes[] = {{COMET_NHWC, 4, {2, 16, 16, 64}}, {COMET_NCHW, 4, {2, 8, 32, 32}}};
    for (int i = 0; i < effort(6 * TRIP_MODES); i++) {
        trip_spec spec = spec_of((comet_dtype)(i / TRIP_MODES % 3), &shapes[i / TRIP_MODES / 3 % 2],
                                 (trip_mode)(i % TRIP_MODES), kinds[rng_below(&r, 3)], bounds[rng_below(&r, 3)]);
        properties_verify(&backends, &r, &spec);
    }
}

/* ---- one call beside the CPU's ---- */

static unsigned char *on_cpu(const trip *t, const comet_codec_params *p, comet_codec_result *result) {
    size_t capacity;
    assert_ok(comet_codec_max_bytes(&t->input.view, p, &capacity));
    unsigned char *stream = take(capacity);
    assert_ok(comet_codec_compress(&t->input.view, p, NULL, stream, capacity, result));
    return stream;
}

static cuda_place place_for(const trip *t, const comet_codec_params *p) {
    cuda_place place = {.behind = 0};
    comet_tensor view = cuda_view(&t->spec.shape, t->spec.dtype, NULL);
    assert_ok(comet_cuda_max_bytes(&view, p, &place.capacity));
    return place;
}

/* The device with `p` writes what the CPU writes with `q`. */
static void check_same(const trip *t, const comet_codec_params *p, const comet_codec_params *q) {
    failure f;
    cuda_written w;
    comet_status status;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    cuda_place place = place_for(t, p);
    unsigned char *expected = on_cpu(t, q, &result), *bytes = take(place.capacity);
    size_t size;
    assert_check(cuda_compress_to(t, p, &place, NULL, &status, &w, &f), f);
    assert_ok(status);
    assert_int_equal(w.result.status, COMET_OK);
    assert_ok(comet_codec_serialise(w.memory, w.result.codec.bytes, 0, bytes, place.capacity, &size));
    assert_int_equal(size, result.bytes);
    assert_memory_equal(bytes, expected, size);
    assert_memory_equal(&w.result.codec.stats, &result.stats, sizeof result.stats);
    assert_true(w.result.codec.bound == result.bound);
    free(w.memory);
    free(bytes);
    free(expected);
}

/* ---- golden streams ---- */

static int is_for_device(const sample *s) {
    return (s->codec == COMET_CODEC_EB || s->codec == COMET_CODEC_ZVC) && s->dtype != COMET_U8;
}

/* The files that every other implementation is held to as well. */
static size_t read_golden(const char *name, unsigned char *stream) {
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s.comet", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: cannot be read; tests run in the repository's root", path);
    size_t bytes = fread(stream, 1, SAMPLE_MOST_BYTES, file);
    fclose(file);
    return bytes;
}

static void test_golden_streams(void **state) {
    (void)state;
    static sample_data data;
    static unsigned char golden[SAMPLE_MOST_BYTES], bytes[SAMPLE_MOST_BYTES];
    for (int i = 0; i < sample_count(); i++) {
        if (!is_for_device(&samples[i]))
            continue;
        sample_make(&samples[i], &data);
        trip t = {.patterns = data.patterns, .count = data.count, .params = data.params};
        t.spec = (trip_spec){.dtype = samples[i].dtype, .shape = {samples[i].layout, samples[i].ndim, {0}}};
        memcpy(t.spec.shape.shape, samples[i].shape, sizeof samples[i].shape);
        t.params.checksum = 0;
        failure f;
        cuda_written w;
        comet_status status;
        size_t size, expected = read_golden(samples[i].name, golden);
        cuda_place place = place_for(&t, &t.params);
        assert_check(cuda_compress_to(&t, &t.params, &place, NULL, &status, &w, &f), f);
        assert_ok(status);
        assert_ok(
            comet_codec_serialise(w.memory, w.result.codec.bytes, samples[i].checksum, bytes, sizeof bytes, &size));
        if (size != expected || memcmp(bytes, golden, size) != 0)
            fail_msg("%s: not the golden stream", samples[i].name);
        free(w.memory);
    }
}

/* ---- bounds in device memory ---- */

static const float device_bounds[] = {0.1f,   0.37f,     0.0f,     -0.0f,   -1.0f, -0x1p-149f, 0x1p-149f,
                                      1e-35f, 0x1p-100f, 0x1p100f, 3.4e38f, NAN,   INFINITY,   -INFINITY};
enum { DEVICE_BOUNDS = sizeof device_bounds / sizeof *device_bounds };

static double bound_taken(float bound) {
    return isfinite(bound) && bound > 0.0f ? (double)bound : 0.0;
}

static trip_spec bounded_spec(int i) {
    static const test_shape shapes[] = {
        {COMET_NCHW, 4, {1, 3, 17, 22}}, {COMET_NHWC, 4, {1, 9, 10, 12}}, {COMET_FLAT, 1, {2500}}};
    return spec_of((comet_dtype)(i % 3), &shapes[i / 3 % 3], (trip_mode)(i / 2 % TRIP_ZVC), VALUES_OUTLIERS, 0.1);
}

static void test_bound_on_device(void **state) {
    (void)state;
    rng r = rng_seed(4);
    for (int i = 0; i < DEVICE_BOUNDS * 2; i++) {
        float bound = device_bounds[i % DEVICE_BOUNDS];
        trip_spec spec = bounded_spec((int)rng_below(&r, 1000));
        trip t;
        trip_new(&t, &r, &spec);
        cuda_block device = cuda_block_new(sizeof bound, &bound);
        comet_codec_params p = t.params, q = t.params;
        p.bound = i % 3 ? 5.0 : (double)NAN; /* is not read */
        p.device_bound = device.data;
        q.bound = bound_taken(bound);
        p.bound_kind = q.bound_kind = i / DEVICE_BOUNDS ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE;
        check_same(&t, &p, &q);
        cuda_block_free(&device);
        trip_free(&t);
    }
}

/* A relative bound from statistics that lie on the device: those of another tensor. */
static void test_statistics_on_device(void **state) {
    (void)state;
    rng r = rng_seed(5);
    for (int i = 0; i < DEVICE_BOUNDS; i++) {
        float bound = device_bounds[i];
        int64_t nonzero = i % 5 == 4 ? 0 : rng_between(&r, 1, 1000);
        comet_codec_stats stats = {.count = 1000, .nonzero = nonzero, .sum_squares = 3.0 * rng_unit(&r) + 1e-3};
        double rms = nonzero ? sqrt(stats.sum_squares / (double)nonzero) : 0.0;
        trip_spec spec = bounded_spec((int)rng_below(&r, 1000));
        trip t;
        trip_new(&t, &r, &spec);
        cuda_block device = cuda_block_new(sizeof bound, &bound), device_stats = cuda_block_new(sizeof stats, &stats);
        comet_codec_params p = t.params, q = t.params;
        p.bound_kind = COMET_BOUND_RELATIVE;
        p.device_stats = device_stats.data;
        p.bound = 0.25;
        q.bound = 0.25 * rms;
        check_same(&t, &p, &q);
        p.device_bound = device.data;
        q.bound = bound_taken(bound) * rms;
        check_same(&t, &p, &q);
        p.bound_kind = COMET_BOUND_ABSOLUTE; /* statistics are not read then */
        q.bound = bound_taken(bound);
        check_same(&t, &p, &q);
        cuda_block_free(&device_stats);
        cuda_block_free(&device);
        trip_free(&t);
    }
}

/* The statistics that a call leaves are where the next call may take its bound from. */
static void test_statistics_of_the_last_call(void **state) {
    (void)state;
    rng r = rng_seed(6);
    trip_spec spec = bounded_spec(0);
    cuda_job a, b;
    cuda_job_new(&a, &r, &spec);
    cuda_job_new(&b, &r, &spec);
    cuda_block memory = cuda_block_new(cuda_job_bytes(&a) + cuda_job_bytes(&b), NULL);
    comet_cuda_slot first = cuda_job_slot(&a, &memory, NULL), second = cuda_job_slot(&b, &memory, cuda_job_end(&a));
    b.params.p.bound_kind = COMET_BOUND_RELATIVE;
    b.params.p.device_stats = &((comet_cuda_result *)a.result.data)->codec.stats;
    assert_ok(cuda_job_compress(&a, &first, NULL));
    assert_ok(cuda_job_compress(&b, &second, NULL));
    cuda_must(cudaDeviceSynchronize());
    comet_codec_params q = b.t.params;
    const comet_codec_stats *s = &a.host->codec.stats;
    q.bound = (double)(float)spec.bound * sqrt(s->sum_squares / (double)s->nonzero);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    free(on_cpu(&b.t, &q, &result));
    assert_true(b.host->codec.bound == result.bound);
    assert_true(result.bound > 0.0);
    cuda_block_free(&memory);
    cuda_job_free(&a);
    cuda_job_free(&b);
}

/* ---- streams one behind the other ---- */

enum { CHAIN = 9 };

static trip_spec chain_spec(rng *r, int i) {
    static const test_shape shapes[] = {{COMET_NCHW, 4, {2, 3, 17, 12}},
                                        {COMET_NHWC, 4, {1, 9, 9, 13}},
                                        {COMET_FLAT, 1, {9000}},
                                        {COMET_NCHW, 4, {0, 3, 5, 5}},
                                        {COMET_NHWC, 4, {1, 17, 16, 64}}};
    return spec_of((comet_dtype)rng_below(r, 3), &shapes[i % 5], (trip_mode)rng_below(r, TRIP_MODES),
                   (value_kind)rng_below(r, VALUES_KINDS), 0.1);
}

/* A job that cannot fit in the middle of the others: the one behind it begins where it began. */
static void issue_chain(cuda_job *jobs, const cuda_block *memory, int misfit) {
    for (int i = 0; i < CHAIN; i++) {
        comet_cuda_slot slot = cuda_job_slot(&jobs[i], memory, i ? cuda_job_end(&jobs[i - 1]) : NULL);
        slot.capacity = i == misfit ? 100 : slot.capacity;
        assert_ok(cuda_job_compress(&jobs[i], &slot, NULL));
    }
}

static void read_chain(cuda_job *jobs, const cuda_block *memory, int misfit, int32_t *word, rng *r) {
    int first = (int)rng_below(r, CHAIN), step = rng_below(r, 2) ? 2 : 4; /* both have no divisor with CHAIN */
    for (int n = 0; n < CHAIN; n++) {
        int i = (first + n * step) % CHAIN;
        comet_cuda_slot slot = cuda_job_slot(&jobs[i], memory, NULL);
        if (i != misfit)
            assert_ok(cuda_job_decompress(&jobs[i], &slot, word, NULL));
    }
}

static void check_chain(const cuda_job *jobs, const cuda_block *memory, int misfit) {
    unsigned char *copy = cuda_block_read(memory);
    uint64_t start = 0;
    failure f;
    for (int i = 0; i < CHAIN; i++) {
        assert_int_equal(jobs[i].host->start, start);
        if (i == misfit)
            assert_int_equal(jobs[i].host->status, COMET_ERROR_CAPACITY);
        else
            assert_check(cuda_job_check(&jobs[i], copy, &f), f);
        start = jobs[i].host->end;
        assert_int_equal(start % CUDA_ALIGNMENT, 0);
    }
    free(copy);
}

static void test_chains(void **state) {
    (void)state;
    rng r = rng_seed(7);
    static cuda_job jobs[CHAIN];
    for (int round = 0; round < effort(6); round++) {
        int32_t none = COMET_OK;
        size_t capacity = 0;
        int misfit = (int)rng_below(&r, 2 * CHAIN); /* or none */
        for (int i = 0; i < CHAIN; i++) {
            trip_spec spec = chain_spec(&r, i);
            cuda_job_new(&jobs[i], &r, &spec);
            capacity += cuda_job_bytes(&jobs[i]);
        }
        cuda_block memory = cuda_block_new(capacity, NULL), word = cuda_block_new(sizeof none, &none);
        issue_chain(jobs, &memory, misfit);
        read_chain(jobs, &memory, misfit, word.data, &r);
        check_chain(jobs, &memory, misfit);
        int32_t *status = cuda_block_read(&word);
        assert_int_equal(*status, COMET_OK);
        free(status);
        cuda_block_free(&word);
        cuda_block_free(&memory);
        for (int i = 0; i < CHAIN; i++)
            cuda_job_free(&jobs[i]);
    }
}

/* ---- capacity ---- */

static void misfit_new(trip *t) {
    static const test_shape shape = {COMET_NCHW, 4, {1, 2, 17, 22}};
    rng r = rng_seed(8);
    trip_spec spec = spec_of(COMET_F32, &shape, TRIP_NEAREST, VALUES_GAUSS, 0.01);
    trip_new(t, &r, &spec);
}

static comet_cuda_result compress_at(const trip *t, const cuda_place *place) {
    failure f;
    cuda_written w;
    comet_status status;
    assert_check(cuda_compress_to(t, &t->params, place, NULL, &status, &w, &f), f);
    assert_ok(status);
    free(w.memory);
    return w.result;
}

static void test_starts_that_are_none(void **state) {
    (void)state;
    static const uint64_t starts[] = {1, 128, 255, 1u << 20, UINT64_MAX - 255, UINT64_MAX, (uint64_t)1 << 63};
    trip t;
    misfit_new(&t);
    cuda_place place = place_for(&t, &t.params);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        place.start = starts[i];
        comet_cuda_result result = compress_at(&t, &place);
        assert_int_equal(result.status, COMET_ERROR_CAPACITY);
        assert_true(result.end == starts[i]);
    }
    trip_free(&t);
}

/* Where it does not fit the result says how much it takes. */
static void test_every_capacity(void **state) {
    (void)state;
    trip t;
    misfit_new(&t);
    cuda_place place = place_for(&t, &t.params);
    size_t most = place.capacity, needed = compress_at(&t, &place).codec.bytes;
    for (size_t less = 0; less <= most; less += 13 * (size_t)stride_for(200)) {
        place = (cuda_place){.capacity = most - less, .behind = less % 2 ? 4096 : 0};
        comet_cuda_result result = compress_at(&t, &place);
        assert_int_equal(result.status, place.capacity >= needed ? COMET_OK : COMET_ERROR_CAPACITY);
        assert_int_equal(result.codec.bytes, needed);
    }
    trip_free(&t);
}

/* ---- the epilogue ---- */

typedef struct epilogue_case {
    int has_scale, has_shift, has_add, relu;
    comet_dtype out;
} epilogue_case;

typedef struct epilogue_data {
    float *scale, *shift;
    void *add;
} epilogue_data;

static epilogue_data epilogue_values(rng *r, const test_shape *shape, comet_dtype out) {
    int64_t channels = shape_channels(shape);
    epilogue_data d = {take((size_t)channels * 4), take((size_t)channels * 4), take(cuda_view_bytes(shape, out))};
    for (int64_t c = 0; c < channels; c++) {
        d.scale[c] = (float)rng_gauss(r);
        d.shift[c] = rng_below(r, 4) ? (float)rng_gauss(r) : 0.0f;
    }
    values_fill(r, VALUES_GAUSS, out, 1.0, 0.1, d.add, shape_count(shape));
    return d;
}

/* Step by step in fp32, as comet/cuda.h says it. */
static uint32_t finished(const epilogue_case *e, const epilogue_data *d, int64_t channel, comet_dtype dtype,
                         uint32_t bits, int64_t i) {
    if (!e->has_scale && !e->has_shift && !e->has_add && !e->relu && dtype == e->out)
        return bits;
    float x = (float)number_of_bits(dtype, bits);
    if (e->has_scale || e->has_shift)
        x = fmaf(e->has_scale ? d->scale[channel] : 1.0f, x, e->has_shift ? d->shift[channel] : 0.0f);
    if (e->has_add)
        x = x + (float)number_of_bits(e->out, bits_at(e->out, d->add, i));
    if (e->relu && x < 0.0f)
        x = 0.0f;
    return bits_of_number(e->out, (double)x);
}

/* NaNs need not have the same bits, nor zeros behind a ReLU the same sign. */
static int is_same_number(const epilogue_case *e, uint32_t a, uint32_t b) {
    if (a == b)
        return 1;
    double x = number_of_bits(e->out, a), y = number_of_bits(e->out, b);
    return (isnan(x) && isnan(y)) || (e->relu && x == 0.0 && y == 0.0);
}

static void check_epilogue(const trip *t, const epilogue_case *e, const epilogue_data *d, const unsigned char *stream,
                           size_t bytes, const void *decoded) {
    const test_shape *shape = &t->spec.shape;
    size_t channels = (size_t)shape_channels(shape);
    cuda_block scale = cuda_block_new(channels * 4, d->scale), shift = cuda_block_new(channels * 4, d->shift),
               add = cuda_block_new(cuda_view_bytes(shape, e->out), d->add);
    comet_cuda_epilogue epilogue = COMET_CUDA_EPILOGUE_INIT;
    epilogue.channels = (int64_t)channels;
    epilogue.scale = e->has_scale ? scale.data : NULL;
    epilogue.shift = e->has_shift ? shift.data : NULL;
    epilogue.add = e->has_add ? add.data : NULL;
    epilogue.relu = e->relu;
    cuda_reading reading = {.shape = *shape, .dtype = e->out, .params = &t->params, .epilogue = &epilogue};
    void *got;
    comet_dtype dtype = trip_output_dtype(t);
    assert_ok(cuda_decompress_from(&reading, stream, bytes, &got));
    if (reading.word != COMET_OK)
        fail_msg("epilogue from %s to %s: %s", comet_dtype_name(dtype), comet_dtype_name(e->out),
                 comet_status_string((comet_status)reading.word));
    for (int64_t i = 0; i < t->count; i++) {
        int64_t channel = i / shape_channel_stride(shape) % (int64_t)channels;
        uint32_t expected = finished(e, d, channel, dtype, bits_at(dtype, decoded, i), i);
        uint32_t found = bits_at(e->out, got, i);
        if (!is_same_number(e, expected, found))
            fail_msg("value %lld is %08x, expected %08x (scale %d shift %d add %d relu %d, %s to %s, %s)", (long long)i,
                     (unsigned)found, (unsigned)expected, e->has_scale, e->has_shift, e->has_add, e->relu,
                     comet_dtype_name(dtype), comet_dtype_name(e->out), layout_name(shape->layout));
    }
    free(got);
    cuda_block_free(&scale);
    cuda_block_free(&shift);
    cuda_block_free(&add);
}

static void run_epilogue(rng *r, const trip_spec *spec, const epilogue_case *e) {
    trip t;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    trip_new(&t, r, spec);
    unsigned char *stream = on_cpu(&t, &t.params, &result);
    void *decoded = take(trip_output_bytes(&t));
    comet_tensor out = t.input.view;
    assert_ok(comet_tensor_init(&out, decoded, trip_output_dtype(&t), spec->shape.layout, spec->shape.ndim,
                                spec->shape.shape));
    assert_ok(comet_codec_decompress(stream, result.bytes, trip_grid(&t), NULL, &out));
    epilogue_data d = epilogue_values(r, &spec->shape, e->out);
    check_epilogue(&t, e, &d, stream, result.bytes, decoded);
    free(d.scale);
    free(d.shift);
    free(d.add);
    free(decoded);
    free(stream);
    trip_free(&t);
}

static trip_spec epilogue_spec(rng *r, int i) {
    static const test_shape shapes[] = {{COMET_NCHW, 4, {2, 5, 9, 11}},  {COMET_NCHW, 4, {1, 3, 16, 40}},
                                        {COMET_NCHW, 4, {1, 3, 17, 70}}, {COMET_NCHW, 4, {1, 2, 17, 69}},
                                        {COMET_NHWC, 4, {1, 9, 10, 12}}, {COMET_NHWC, 4, {1, 17, 9, 7}},
                                        {COMET_FLAT, 1, {3000}},         {COMET_NCHW, 4, {2, 3, 8, 7}}};
    static const value_kind kinds[] = {VALUES_GAUSS, VALUES_SPECIAL, VALUES_OUTLIERS, VALUES_RELU, VALUES_SMOOTH};
    static const double bounds[] = {0.1, 0.3, 1e-3, 0.0};
    const test_shape *shape = i % 2 ? &small_maps[i / 2 % SMALL_MAPS] : &shapes[i / 2 % 8];
    return spec_of((comet_dtype)rng_below(r, 3), shape, (trip_mode)rng_below(r, TRIP_MODES), kinds[rng_below(r, 5)],
                   bounds[rng_below(r, 4)]);
}

static void test_epilogue(void **state) {
    (void)state;
    rng r = rng_seed(9);
    for (int i = 0; i < effort(400); i++) {
        trip_spec spec = epilogue_spec(&r, i);
        comet_dtype stored = spec.mode == TRIP_GRID ? COMET_F32 : spec.dtype;
        epilogue_case e = {(int)rng_below(&r, 2), (int)rng_below(&r, 2), (int)rng_below(&r, 2), (int)rng_below(&r, 2),
                           stored};
        run_epilogue(&r, &spec, &e);
    }
}

/* Written as another dtype than the stream's, with and without anything else to do. */
static void change_dtypes(uint64_t seed, int with_grid) {
    rng r = rng_seed(seed);
    for (int i = 0; i < effort(150); i++) {
        trip_spec spec = epilogue_spec(&r, i);
        int plain = i % 4 == 0;
        spec.mode = with_grid ? TRIP_GRID : spec.mode == TRIP_GRID ? TRIP_NEAREST : spec.mode;
        epilogue_case e = {!plain && rng_below(&r, 2), !plain && rng_below(&r, 2), !plain && rng_below(&r, 2),
                           !plain && rng_below(&r, 2), (comet_dtype)rng_below(&r, 3)};
        run_epilogue(&r, &spec, &e);
    }
}

static void test_epilogue_changes_dtype(void **state) {
    (void)state;
    change_dtypes(10, 0);
}

static void test_epilogue_changes_dtype_of_a_grid(void **state) {
    (void)state;
    change_dtypes(17, 1);
}

static void test_epilogue_arguments(void **state) {
    (void)state;
    static const test_shape shape = {COMET_NCHW, 4, {1, 3, 4, 5}};
    rng r = rng_seed(11);
    trip_spec spec = spec_of(COMET_F32, &shape, TRIP_NEAREST, VALUES_GAUSS, 0.1);
    trip t;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    trip_new(&t, &r, &spec);
    unsigned char *stream = on_cpu(&t, &t.params, &result);
    cuda_block tables = cuda_block_new(64, NULL);
    comet_cuda_epilogue e = COMET_CUDA_EPILOGUE_INIT;
    cuda_reading d = {.shape = shape, .dtype = COMET_F32, .params = &t.params, .epilogue = &e};
    void *got;
    e.scale = tables.data;
    e.channels = 2;
    assert_status(cuda_decompress_from(&d, stream, result.bytes, &got), COMET_ERROR_ARGUMENT);
    free(got);
    e = (comet_cuda_epilogue)COMET_CUDA_EPILOGUE_INIT;
    e.add = (char *)tables.data + 4; /* not aligned */
    assert_status(cuda_decompress_from(&d, stream, result.bytes, &got), COMET_ERROR_ARGUMENT);
    free(got);
    assert_int_equal(d.word, COMET_OK);
    cuda_block_free(&tables);
    free(stream);
    trip_free(&t);
}

/* ---- what is refused ---- */

/* What a stream is read with that is not what it was written with. */
typedef struct mismatch {
    const char *what;
    comet_dtype dtype;
    comet_layout layout;
    trip_mode mode;
    int64_t extent; /* the last */
} mismatch;

static void set_mode(comet_codec_params *p, trip_mode mode, const comet_codec_grid *grid) {
    p->codec = mode == TRIP_ZVC ? COMET_CODEC_ZVC : COMET_CODEC_EB;
    p->keep_mask = mode == TRIP_KEEP_MASK;
    p->rounding = mode == TRIP_STOCHASTIC ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    p->grid = mode == TRIP_GRID ? grid : NULL;
}

static void test_mismatches(void **state) {
    (void)state;
    static const mismatch cases[] = {
        {"dtype", COMET_F16, COMET_NCHW, TRIP_NEAREST, 12},
        {"dtype", COMET_BF16, COMET_NCHW, TRIP_NEAREST, 12},
        {"layout", COMET_F32, COMET_FLAT, TRIP_NEAREST, 12},
        {"layout", COMET_F32, COMET_NHWC, TRIP_NEAREST, 12},
        {"codec", COMET_F32, COMET_NCHW, TRIP_ZVC, 12},
        {"keep-mask", COMET_F32, COMET_NCHW, TRIP_KEEP_MASK, 12},
        {"rounding", COMET_F32, COMET_NCHW, TRIP_STOCHASTIC, 12},
        {"grid", COMET_F32, COMET_NCHW, TRIP_GRID, 12},
        {"shape", COMET_F32, COMET_NCHW, TRIP_NEAREST, 11},
        {"shape", COMET_F32, COMET_NCHW, TRIP_NEAREST, 13},
        {"nothing", COMET_F32, COMET_NCHW, TRIP_NEAREST, 12},
    };
    static const float thresholds[64];
    static const test_shape shape = {COMET_NCHW, 4, {1, 3, 16, 12}};
    rng r = rng_seed(13);
    trip_spec spec = spec_of(COMET_F32, &shape, TRIP_NEAREST, VALUES_GAUSS, 0.1);
    trip t;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    trip_new(&t, &r, &spec);
    unsigned char *stream = on_cpu(&t, &t.params, &result);
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < CASES; i++) {
        const mismatch *m = &cases[i];
        comet_codec_params p = COMET_CODEC_PARAMS_INIT;
        test_shape other = {m->layout, 4, {1, 3, 16, m->extent}};
        comet_codec_grid grid = {.channels = shape_channels(&other), .threshold = thresholds};
        set_mode(&p, m->mode, &grid);
        cuda_reading d = {.shape = other, .dtype = m->dtype, .params = &p};
        void *got;
        int right = i == CASES - 1;
        assert_ok(cuda_decompress_from(&d, stream, result.bytes, &got));
        if (d.word != (right ? COMET_OK : COMET_ERROR_MISMATCH))
            fail_msg("another %s: %s", m->what, comet_status_string((comet_status)d.word));
        assert_true(right || cuda_is_poison(got, cuda_view_bytes(&other, m->dtype)));
        free(got);
    }
    free(stream);
    trip_free(&t);
}

/* A word that says something already keeps saying that something is wrong. */
static void test_status_word_is_not_set_back(void **state) {
    (void)state;
    static const test_shape shape = {COMET_FLAT, 1, {3000}};
    rng r = rng_seed(14);
    trip_spec spec = spec_of(COMET_F32, &shape, TRIP_NEAREST, VALUES_GAUSS, 0.1);
    trip t;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    trip_new(&t, &r, &spec);
    unsigned char *stream = on_cpu(&t, &t.params, &result);
    cuda_reading d = {.shape = shape, .dtype = COMET_F32, .params = &t.params, .word = COMET_ERROR_CHECKSUM};
    void *got;
    assert_ok(cuda_decompress_from(&d, stream, result.bytes, &got));
    assert_int_equal(d.word, COMET_ERROR_CHECKSUM);
    free(got);
    stream[0] ^= 1;
    assert_ok(cuda_decompress_from(&d, stream, result.bytes, &got));
    assert_int_not_equal(d.word, COMET_OK);
    free(got);
    free(stream);
    trip_free(&t);
}

/* Good arguments, each of which a test then spoils. */
typedef struct arguments {
    cuda_block data, memory, result, workspace;
    comet_tensor tensor;
    comet_codec_params params;
    comet_codec_exec exec;
    comet_cuda_slot slot;
} arguments;

static void arguments_new(arguments *a) {
    static const test_shape shape = {COMET_FLAT, 1, {3000}};
    a->params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    a->params.bound = 0.1;
    a->data = cuda_block_new(3000 * 4, NULL);
    a->memory = cuda_block_new(20000, NULL);
    a->result = cuda_block_new(sizeof(comet_cuda_result), NULL);
    a->tensor = cuda_view(&shape, COMET_F32, a->data.data);
    a->workspace = cuda_workspace_new(&a->tensor, &a->params, NULL);
    a->exec = cuda_exec(&a->workspace, NULL);
    a->slot = (comet_cuda_slot){a->memory.data, a->memory.bytes, NULL, a->result.data};
}

/* Nothing was written: what is refused is not begun. */
static void arguments_free(arguments *a) {
    unsigned char *content = cuda_block_read(&a->memory);
    assert_true(cuda_is_poison(content, a->memory.bytes));
    free(content);
    cuda_workspace_free(&a->workspace);
    cuda_block_free(&a->result);
    cuda_block_free(&a->memory);
    cuda_block_free(&a->data);
}

static comet_status try_compress(const arguments *a) {
    return comet_cuda_compress(&a->tensor, &a->params, &a->exec, &a->slot, NULL);
}

static void test_bad_slots(void **state) {
    (void)state;
    arguments a;
    arguments_new(&a);
    const arguments good = a;
    int32_t *word = a.result.data;
    assert_status(comet_cuda_compress(NULL, &a.params, &a.exec, &a.slot, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_compress(&a.tensor, &a.params, &a.exec, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_decompress(&a.slot, &a.params, NULL, &a.exec, &a.tensor, NULL), COMET_ERROR_ARGUMENT);
    a.slot.result = NULL;
    assert_status(try_compress(&a), COMET_ERROR_ARGUMENT);
    a = good;
    a.slot.base = (char *)good.slot.base + 16;
    assert_status(try_compress(&a), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_decompress(&a.slot, &a.params, NULL, &a.exec, &a.tensor, word), COMET_ERROR_ARGUMENT);
    a = good;
    a.exec.workspace_bytes--;
    assert_status(try_compress(&a), COMET_ERROR_CAPACITY);
    a.exec.workspace = NULL;
    assert_status(try_compress(&a), COMET_ERROR_ARGUMENT);
    a = good;
    arguments_free(&a);
}

static void test_bad_tensors_and_parameters(void **state) {
    (void)state;
    arguments a;
    arguments_new(&a);
    const arguments good = a;
    a.params.bound = -1.0;
    assert_status(try_compress(&a), COMET_ERROR_ARGUMENT);
    a = good;
    a.params.keep_mask = 1;
    a.params.rounding = COMET_ROUND_STOCHASTIC;
    assert_true(try_compress(&a) != COMET_OK);
    a = good;
    a.params.checksum = 1; /* only the CPU makes one */
    assert_status(try_compress(&a), COMET_ERROR_UNSUPPORTED);
    a = good;
    a.tensor.device.kind = COMET_CPU;
    assert_status(try_compress(&a), COMET_ERROR_UNSUPPORTED);
    a = good;
    a.tensor.data = (char *)good.tensor.data + 4;
    assert_status(try_compress(&a), COMET_ERROR_ARGUMENT);
    a = good;
    a.tensor.strides[0] = 2;
    assert_status(try_compress(&a), COMET_ERROR_UNSUPPORTED);
    a = good;
    a.tensor.dtype = COMET_U8;
    assert_status(try_compress(&a), COMET_ERROR_UNSUPPORTED);
    a = good;
    arguments_free(&a);
}

/* ---- one workspace, any order ---- */

/* Calls of any kind in one workspace, none of which waits for the one before: large, small, empty, too large. */
static void test_workspace_is_used_again(void **state) {
    (void)state;
    rng r = rng_seed(15);
    static cuda_job jobs[CHAIN];
    size_t largest = 0;
    int32_t none = COMET_OK;
    for (int i = 0; i < CHAIN; i++) {
        trip_spec spec = chain_spec(&r, i);
        spec.bound_kind = i % 2 ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE;
        cuda_job_new(&jobs[i], &r, &spec);
        largest = largest > jobs[i].workspace.bytes ? largest : jobs[i].workspace.bytes;
    }
    test_shape shape = {COMET_FLAT, 1, {100000}};
    comet_tensor view = cuda_view(&shape, COMET_F32, NULL);
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    cuda_block shared = cuda_workspace_new(&view, &p, NULL), word = cuda_block_new(sizeof none, &none);
    assert_true(shared.bytes >= largest);
    for (int n = 0; n < effort(40); n++) {
        cuda_job *j = &jobs[rng_below(&r, CHAIN)];
        cuda_block memory = cuda_block_new(cuda_job_bytes(j), NULL), own = j->workspace;
        comet_cuda_slot slot = cuda_job_slot(j, &memory, NULL), small = slot;
        small.capacity = rng_below(&r, 150);
        j->workspace = shared;
        assert_ok(cuda_job_compress(j, &small, NULL)); /* does not fit, and must leave nothing behind */
        assert_ok(cuda_job_compress(j, &slot, NULL));
        assert_ok(cuda_job_decompress(j, &slot, word.data, NULL));
        j->workspace = own;
        unsigned char *copy = cuda_block_read(&memory);
        failure f;
        assert_check(cuda_job_check(j, copy, &f), f);
        free(copy);
        cuda_block_free(&memory);
    }
    for (int i = 0; i < CHAIN; i++)
        cuda_job_free(&jobs[i]);
    cuda_block_free(&word);
    cuda_workspace_free(&shared);
}

/* Whichever block comes first: the groups lie elsewhere, the serialised form and the statistics are the same. */
static void test_order_of_blocks(void **state) {
    (void)state;
#ifdef COMET_CUDA_EMULATION
    static const test_shape shapes[] = {{COMET_NCHW, 4, {3, 5, 24, 40}}, {COMET_NHWC, 4, {2, 13, 10, 66}}};
    rng r = rng_seed(16);
    int moved = 0;
    for (int i = 0; i < effort(30); i++) {
        failure f;
        comet_status status;
        cuda_written a, b;
        trip_spec spec =
            spec_of((comet_dtype)(i % 3), &shapes[i % 2], (trip_mode)(i / 2 % TRIP_MODES), VALUES_MIXED, 0.1);
        trip t;
        trip_new(&t, &r, &spec);
        cuda_place place = place_for(&t, &t.params);
        assert_check(cuda_compress_to(&t, &t.params, &place, NULL, &status, &a, &f), f);
        cuda_shuffle(rng_next(&r) | 1);
        assert_check(cuda_compress_to(&t, &t.params, &place, NULL, &status, &b, &f), f);
        check_same(&t, &t.params, &t.params);
        cuda_shuffle(0);
        assert_memory_equal(&a.result, &b.result, sizeof a.result);
        moved += memcmp(a.memory, b.memory, a.result.codec.bytes) != 0;
        free(a.memory);
        free(b.memory);
        trip_free(&t);
    }
    assert_true(moved > 0);
#else
    skip_because("a device has no order to ask for");
#endif
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
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_every_channel_count),
        cmocka_unit_test(test_chosen_shapes),
        cmocka_unit_test(test_grids_of_small_maps),
        cmocka_unit_test(test_mixed_groups),
        cmocka_unit_test(test_golden_streams),
        cmocka_unit_test(test_bound_on_device),
        cmocka_unit_test(test_statistics_on_device),
        cmocka_unit_test(test_statistics_of_the_last_call),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_starts_that_are_none),
        cmocka_unit_test(test_every_capacity),
        cmocka_unit_test(test_epilogue),
        cmocka_unit_test(test_epilogue_changes_dtype),
        cmocka_unit_test(test_epilogue_changes_dtype_of_a_grid),
        cmocka_unit_test(test_epilogue_arguments),
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_status_word_is_not_set_back),
        cmocka_unit_test(test_bad_slots),
        cmocka_unit_test(test_bad_tensors_and_parameters),
        cmocka_unit_test(test_workspace_is_used_again),
        cmocka_unit_test(test_order_of_blocks),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, group_setup, group_teardown);
}
