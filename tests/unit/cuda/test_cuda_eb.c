/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eb and zvc on a device, what the properties (test_cuda_eb_properties) leave out: golden streams, bounds in device
 * memory, streams one behind the other, every capacity, and one workspace for all. Shapes, the epilogue and arguments
 * have files of their own.
 */
#include "test_cuda_eb_case.h"

#include <math.h>
#include <stdio.h>

#include "support/codec/samples.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_streams),
        cmocka_unit_test(test_bound_on_device),
        cmocka_unit_test(test_statistics_on_device),
        cmocka_unit_test(test_statistics_of_the_last_call),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_starts_that_are_none),
        cmocka_unit_test(test_every_capacity),
        cmocka_unit_test(test_workspace_is_used_again),
        cmocka_unit_test(test_order_of_blocks),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
