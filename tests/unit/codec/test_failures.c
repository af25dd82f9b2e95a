/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong on the caller's side: memory, workspaces, capacities, arguments. Every codec, nothing leaks. */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"
#include "support/codec/samples.h"
#include "support/counting_allocator.h"
#include "support/guarded.h"

static sample_data data;
static unsigned char stream[SAMPLE_MOST_BYTES];
static uint32_t output[SAMPLE_MOST_VALUES];

static const sample *sample_named(const char *name) {
    for (int i = 0; i < sample_count(); i++)
        if (strcmp(samples[i].name, name) == 0)
            return &samples[i];
    fail_msg("no sample %s", name);
    return NULL;
}

/* ---- memory ---- */

static void assert_nothing_lost(const counting_allocator *a) {
    assert_int_equal(a->live_blocks, 0);
    assert_int_equal(a->live_bytes, 0);
    assert_int_equal(a->wrong_sizes, 0);
}

static comet_status call_once(const sample_data *d, comet_codec_exec *exec, size_t bytes) {
    comet_tensor out = sample_output(d, output);
    if (bytes)
        return comet_codec_decompress(stream, bytes, sample_grid(d), exec, &out);
    return comet_codec_compress(&d->tensor, &d->params, exec, stream, sizeof stream, NULL);
}

/* Compress (bytes 0) or decompress with each allocation failing once, then with none. Returns how many there were. */
static long fail_each(const sample_data *d, comet_threads *threads, size_t bytes) {
    counting_allocator a;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = threads;
    exec.allocator = &a.allocator;
    for (long n = 1;; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        comet_status status = call_once(d, &exec, bytes);
        assert_nothing_lost(&a);
        if (a.calls < n) {
            assert_ok(status);
            return n - 1;
        }
        assert_status(status, COMET_ERROR_MEMORY);
    }
}

static void test_every_allocation_fails_once(void **state) {
    (void)state;
    comet_threads *threads;
    long failures = 0;
    assert_ok(comet_threads_new(2, NULL, &threads));
    for (int i = 0; i < sample_count(); i++)
        for (int t = 0; t < 2; t++) {
            sample_make(&samples[i], &data);
            failures += fail_each(&data, t ? threads : NULL, 0);
            size_t bytes = sample_compress(&data, NULL, stream);
            assert_true(bytes > 0);
            failures += fail_each(&data, t ? threads : NULL, bytes);
        }
    comet_threads_free(threads);
    assert_true(failures > sample_count());
}

/* ---- workspaces ---- */

/* The last `bytes` bytes, but for what alignment to 64 takes, before memory that faults. */
static unsigned char *aligned_at_end(guarded *g, size_t bytes) {
    return g->end - (bytes + 63) / 64 * 64;
}

static comet_status with_workspace(const sample_data *d, void *workspace, size_t workspace_bytes, counting_allocator *a,
                                   size_t bytes) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    counting_allocator_init(a);
    exec.allocator = &a->allocator;
    exec.workspace = workspace;
    exec.workspace_bytes = workspace_bytes;
    return call_once(d, &exec, bytes);
}

/* As much as was asked for is enough, for both ways, and then nothing is allocated; one byte less is too little. */
static void test_workspaces(void **state) {
    (void)state;
    counting_allocator a;
    guarded g;
    guarded_new(&g, 1 << 20);
    for (int i = 0; i < sample_count(); i++) {
        size_t needed = 12345;
        sample_make(&samples[i], &data);
        assert_ok(comet_codec_compress_workspace(&data.tensor, &data.params, NULL, &needed));
        assert_in_range(needed, 0, 1 << 19);
        unsigned char *workspace = aligned_at_end(&g, needed);
        memset(g.map, 0xA5, (size_t)(g.end - g.map));
        assert_ok(with_workspace(&data, workspace, needed, &a, 0));
        assert_int_equal(a.calls, 0);
        size_t bytes = sample_compress(&data, NULL, stream);
        assert_ok(with_workspace(&data, workspace, needed, &a, bytes));
        assert_int_equal(a.calls, 0);
        for (unsigned char *p = workspace - 64; p < workspace; p++)
            assert_int_equal(*p, 0xA5);
        if (needed == 0)
            continue;
        assert_status(with_workspace(&data, workspace, needed - 1, &a, 0), COMET_ERROR_CAPACITY);
        assert_status(with_workspace(&data, workspace, 0, &a, 0), COMET_ERROR_CAPACITY);
        for (size_t off = 1; off < 64; off = off * 2)
            assert_status(with_workspace(&data, g.map + off, needed, &a, 0), COMET_ERROR_ARGUMENT);
    }
    guarded_free(&g);
}

/* The same for decompressing alone, which needs less: every codec, the tensor and the view it decodes into. */
static void test_decompress_workspaces(void **state) {
    (void)state;
    counting_allocator a;
    guarded g;
    int with_some = 0;
    guarded_new(&g, 1 << 20);
    for (int i = 0; i < sample_count(); i++) {
        size_t needed = 12345, again = 54321, compressing;
        sample_make(&samples[i], &data);
        comet_tensor out = sample_output(&data, output);
        assert_ok(comet_codec_decompress_workspace(&data.tensor, &data.params, NULL, &needed));
        assert_ok(comet_codec_decompress_workspace(&out, &data.params, NULL, &again));
        assert_ok(comet_codec_compress_workspace(&data.tensor, &data.params, NULL, &compressing));
        assert_int_equal(needed, again);
        assert_true(needed <= compressing);
        size_t bytes = sample_compress(&data, NULL, stream);
        unsigned char *workspace = aligned_at_end(&g, needed);
        assert_ok(with_workspace(&data, workspace, needed, &a, bytes));
        assert_int_equal(a.calls, 0);
        assert_int_equal(needed > 0, data.params.grid != NULL && data.count > 0);
        if (needed == 0)
            continue;
        with_some++;
        assert_status(with_workspace(&data, workspace, needed - 1, &a, bytes), COMET_ERROR_CAPACITY);
    }
    assert_true(with_some > 0);
    guarded_free(&g);
}

/* With threads the workspace grows, and is still all that is used. */
static void test_workspace_of_threads(void **state) {
    (void)state;
    enum { VALUES = 200000 };
    float *values = calloc(VALUES, sizeof *values);
    unsigned char *out = malloc(VALUES * 5);
    comet_threads *threads;
    counting_allocator a;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_tensor tensor;
    int64_t count = VALUES;
    size_t needed;
    guarded g;
    assert_true(values && out);
    assert_ok(comet_threads_new(3, NULL, &threads));
    assert_ok(comet_tensor_init(&tensor, values, COMET_F32, COMET_FLAT, 1, &count));
    counting_allocator_init(&a);
    exec.threads = threads;
    exec.allocator = &a.allocator;
    params.bound = 0.1;
    assert_ok(comet_codec_compress_workspace(&tensor, &params, &exec, &needed));
    guarded_new(&g, needed + 64);
    exec.workspace = aligned_at_end(&g, needed);
    exec.workspace_bytes = needed;
    assert_ok(comet_codec_compress(&tensor, &params, &exec, out, VALUES * 5, NULL));
    exec.workspace_bytes = needed - 1;
    assert_status(comet_codec_compress(&tensor, &params, &exec, out, VALUES * 5, NULL), COMET_ERROR_CAPACITY);
    assert_int_equal(a.calls, 0);
    guarded_free(&g);
    comet_threads_free(threads);
    free(values);
    free(out);
}

/* ---- capacity ---- */

/* Every capacity from nothing to enough, the buffer ending before memory that faults. */
static void test_every_capacity(void **state) {
    (void)state;
    guarded g;
    guarded_new(&g, SAMPLE_MOST_BYTES);
    for (int i = 0; i < sample_count(); i++) {
        sample_make(&samples[i], &data);
        size_t needed = sample_compress(&data, NULL, stream), bound = 0;
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        assert_ok(comet_codec_max_bytes(&data.tensor, &data.params, &bound));
        assert_true(needed > 0 && needed <= bound);
        for (size_t capacity = 0; capacity <= needed; capacity++) {
            unsigned char *place = guarded_place(&g, NULL, capacity);
            comet_status status = comet_codec_compress(&data.tensor, &data.params, NULL, place, capacity, &result);
            if (capacity < needed && status != COMET_ERROR_CAPACITY)
                fail_msg("%s: capacity %zu of %zu: %s", samples[i].name, capacity, needed, comet_status_string(status));
            if (capacity == needed) {
                assert_ok(status);
                assert_memory_equal(place, stream, needed);
            }
        }
    }
    guarded_free(&g);
}

/* The same over several chunks of tiles and threads. */
static void test_capacity_of_threads(void **state) {
    (void)state;
    enum { VALUES = 300000 };
    float *values = malloc(VALUES * sizeof *values);
    unsigned char *out = malloc(VALUES * 5);
    comet_threads *threads;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_tensor tensor;
    int64_t count = VALUES;
    assert_true(values && out);
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(i % 1000 * 7919 % 1000);
    assert_ok(comet_threads_new(3, NULL, &threads));
    assert_ok(comet_tensor_init(&tensor, values, COMET_F32, COMET_FLAT, 1, &count));
    params.bound = 0.5;
    assert_ok(comet_codec_compress(&tensor, &params, NULL, out, VALUES * 5, &result));
    exec.threads = threads;
    for (int i = 0; i < 40; i++) {
        size_t capacity = result.bytes - (size_t)(i < 8 ? i : i * i * 40);
        unsigned char *place = malloc(capacity); /* a sanitizer sees what is written behind it */
        assert_non_null(place);
        comet_status status = comet_codec_compress(&tensor, &params, i % 2 ? &exec : NULL, place, capacity, NULL);
        free(place);
        assert_status(status, i == 0 ? COMET_OK : COMET_ERROR_CAPACITY);
    }
    comet_threads_free(threads);
    free(values);
    free(out);
}

/* ---- arguments ---- */

static comet_status compress_with(const comet_codec_params *params, const comet_codec_exec *exec) {
    return comet_codec_compress(&data.tensor, params, exec, stream, sizeof stream, NULL);
}

static void test_null(void **state) {
    (void)state;
    size_t bytes;
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    sample_make(sample_named("eb_f32_flat"), &data);
    comet_tensor no_data = data.tensor, out = sample_output(&data, output);
    no_data.data = NULL;
    assert_status(comet_codec_max_bytes(NULL, &data.params, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_max_bytes(&data.tensor, NULL, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_max_bytes(&data.tensor, &data.params, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_codec_max_bytes(&no_data, &data.params, &bytes));
    assert_status(comet_codec_compress_workspace(NULL, &data.params, NULL, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_compress_workspace(&data.tensor, NULL, NULL, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_compress_workspace(&data.tensor, &data.params, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_codec_compress_workspace(&no_data, &data.params, NULL, &bytes));
    assert_status(comet_codec_decompress_workspace(NULL, &data.params, NULL, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_decompress_workspace(&data.tensor, NULL, NULL, &bytes), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_decompress_workspace(&data.tensor, &data.params, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_codec_decompress_workspace(&no_data, &data.params, NULL, &bytes));
    assert_status(comet_codec_compress(NULL, &data.params, NULL, stream, sizeof stream, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_compress(&data.tensor, NULL, NULL, stream, sizeof stream, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_compress(&data.tensor, &data.params, NULL, NULL, 1000, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_compress(&no_data, &data.params, NULL, stream, sizeof stream, NULL),
                  COMET_ERROR_ARGUMENT);
    bytes = sample_compress(&data, NULL, stream);
    assert_status(comet_codec_decompress(NULL, bytes, NULL, NULL, &out), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_decompress(stream, bytes, NULL, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_decompress(stream, bytes, NULL, NULL, &no_data), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_inspect(NULL, bytes, &info), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_inspect(stream, bytes, NULL), COMET_ERROR_ARGUMENT);
}

/* An empty tensor needs no data. */
static void test_empty_without_data(void **state) {
    (void)state;
    for (int c = COMET_CODEC_RAW; c <= COMET_CODEC_DCT; c++) {
        comet_codec_params params = COMET_CODEC_PARAMS_INIT;
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        comet_tensor t;
        params.codec = (comet_codec)c;
        assert_ok(comet_tensor_init(&t, NULL, COMET_F32, COMET_NCHW, 4, (int64_t[]){2, 3, 0, 5}));
        assert_ok(comet_codec_compress(&t, &params, NULL, stream, sizeof stream, &result));
        assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &t));
    }
}

static void test_bad_params(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_flat"), &data);
    comet_codec_params p = data.params;
    assert_ok(compress_with(&p, NULL));
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -1.0, -5e-324};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int kind = 0; kind < 2; kind++) {
            p = data.params;
            p.bound = bad[i];
            p.bound_kind = (comet_bound_kind)kind;
            assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
        }
    static const int wrong[] = {-1, 2, 100};
    for (int i = 0; i < 3; i++) {
        p = data.params;
        p.codec = (comet_codec)(wrong[i] == 2 ? 7 : wrong[i]);
        assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
        p = data.params;
        p.bound_kind = (comet_bound_kind)wrong[i];
        assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
        p = data.params;
        p.rounding = (comet_rounding)wrong[i];
        assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
    }
    p = data.params;
    p.keep_mask = 1;
    p.rounding = COMET_ROUND_STOCHASTIC;
    assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
    float on_device = 0.1f;
    p = data.params;
    p.device_bound = &on_device;
    assert_status(compress_with(&p, NULL), COMET_ERROR_UNSUPPORTED);
    comet_codec_stats stats = {0};
    p = data.params;
    p.device_stats = &stats;
    assert_status(compress_with(&p, NULL), COMET_ERROR_UNSUPPORTED);
}

static void test_bad_tensors(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_nchw"), &data);
    const comet_tensor good = data.tensor;
    size_t bytes = sample_compress(&data, NULL, stream);
    static unsigned char second[SAMPLE_MOST_BYTES];
    memcpy(second, stream, bytes);
    for (int i = 0; i < 9; i++) {
        comet_tensor t = good;
        comet_status expected = COMET_ERROR_ARGUMENT;
        switch (i) {
        case 0:
            t.dtype = (comet_dtype)4;
            break;
        case 1:
            t.layout = (comet_layout)3;
            break;
        case 2:
            t.layout = (comet_layout)-1;
            break;
        case 3:
            t.ndim = 9;
            break;
        case 4:
            t.ndim = -1;
            break;
        case 5:
            t.shape[1] = -3;
            break;
        case 6:
            t.shape[1] = (int64_t)1 << 47;
            break;
        case 7:
            t.data = NULL;
            break;
        default:
            t.device.kind = COMET_CUDA;
            expected = COMET_ERROR_UNSUPPORTED;
            break;
        }
        data.tensor = t;
        assert_status(compress_with(&data.params, NULL), expected);
        assert_status(comet_codec_decompress(second, bytes, NULL, NULL, &t), expected);
    }
}

/* The stream is fine, but not what the tensor wants. */
static void test_mismatches(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_nchw"), &data);
    size_t bytes = sample_compress(&data, NULL, stream);
    const comet_tensor good = sample_output(&data, output);
    for (int i = 0; i < 7; i++) {
        comet_tensor t = good;
        switch (i) {
        case 0:
            t.dtype = COMET_F16;
            break;
        case 1:
            t.dtype = COMET_U8;
            break;
        case 2:
            t.layout = COMET_NHWC;
            break;
        case 3:
            t.ndim = 3;
            break;
        case 4:
            t.shape[2]--;
            break;
        case 5:
            t.shape[0] = 0;
            break;
        default:
            t.shape[1] = 11;
            t.shape[3] = 3;
            break; /* as many values, another shape */
        }
        assert_status(comet_codec_decompress(stream, bytes, NULL, NULL, &t), COMET_ERROR_MISMATCH);
    }
    assert_ok(comet_codec_decompress(stream, bytes, NULL, NULL, &good));
}

/* ---- structs that start with their size ---- */

typedef struct longer_params {
    comet_codec_params params;
    unsigned char more[32];
} longer_params;

typedef struct longer_exec {
    comet_codec_exec exec;
    unsigned char more[32];
} longer_exec;

static void test_sizes_of_params(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_keep"), &data);
    static const size_t bad[] = {0, 1, sizeof(size_t), 4097, SIZE_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        comet_codec_params p = data.params;
        p.size = bad[i];
        assert_status(compress_with(&p, NULL), COMET_ERROR_ARGUMENT);
    }
    longer_params longer = {.params = data.params};
    longer.params.size = sizeof longer;
    assert_ok(compress_with(&longer.params, NULL));
    longer.more[31] = 1; /* a newer caller asks for what this library does not know */
    assert_status(compress_with(&longer.params, NULL), COMET_ERROR_ARGUMENT);
    /* an older caller's struct ends earlier: what follows is as the initializer sets it */
    comet_codec_params p = data.params;
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    p.size = offsetof(comet_codec_params, keep_mask);
    p.keep_mask = 99;
    p.checksum = -99;
    p.grid = (const comet_codec_grid *)(uintptr_t)1;
    assert_ok(compress_with(&p, NULL));
    assert_ok(comet_codec_inspect(stream, sizeof stream, &info));
    assert_true(!info.keep_mask && !info.has_checksum && !info.has_grid);
}

static void test_sizes_of_exec(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_keep"), &data);
    static const size_t bad[] = {0, 1, sizeof(size_t), 4097, SIZE_MAX};
    comet_tensor out = sample_output(&data, output);
    size_t bytes = sample_compress(&data, NULL, stream), needed;
    static unsigned char copy[SAMPLE_MOST_BYTES];
    memcpy(copy, stream, bytes);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        comet_codec_exec e = COMET_CODEC_EXEC_INIT;
        e.size = bad[i];
        assert_status(compress_with(&data.params, &e), COMET_ERROR_ARGUMENT);
        assert_status(comet_codec_decompress(copy, bytes, NULL, &e, &out), COMET_ERROR_ARGUMENT);
        assert_status(comet_codec_compress_workspace(&data.tensor, &data.params, &e, &needed), COMET_ERROR_ARGUMENT);
    }
    longer_exec longer = {.exec = COMET_CODEC_EXEC_INIT};
    longer.exec.size = sizeof longer;
    assert_ok(compress_with(&data.params, &longer.exec));
    longer.more[0] = 1;
    assert_status(compress_with(&data.params, &longer.exec), COMET_ERROR_ARGUMENT);
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    e.size = offsetof(comet_codec_exec, workspace);
    e.workspace = (void *)(uintptr_t)3;
    assert_ok(compress_with(&data.params, &e));
}

static void test_isas(void **state) {
    (void)state;
    sample_make(sample_named("eb_f32_flat"), &data);
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    static const int unknown[] = {-1, 4, 1000};
    for (int i = 0; i < 3; i++) {
        e.isa = (comet_isa)unknown[i];
        assert_status(compress_with(&data.params, &e), COMET_ERROR_ARGUMENT);
        assert_false(comet_isa_supported((comet_isa)unknown[i]));
    }
    assert_true(comet_isa_supported(COMET_ISA_AUTO) && comet_isa_supported(COMET_ISA_REFERENCE));
    for (int isa = COMET_ISA_AUTO; isa <= COMET_ISA_AVX512; isa++) {
        e.isa = (comet_isa)isa;
        assert_status(compress_with(&data.params, &e),
                      comet_isa_supported((comet_isa)isa) ? COMET_OK : COMET_ERROR_UNSUPPORTED);
    }
}

/* Extents beside a 0 may be anything: nothing may overflow on the way. */
static void test_enormous_empty_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{INT64_MAX, INT64_MAX, INT64_MAX, 0},
                                        {0, INT64_MAX, INT64_MAX, INT64_MAX},
                                        {INT64_MAX, 0, INT64_MAX, INT64_MAX},
                                        {(int64_t)1 << 40, (int64_t)1 << 40, 0, 1}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int layout = 0; layout < 3; layout++)
            for (int c = COMET_CODEC_RAW; c <= COMET_CODEC_DCT; c++) {
                comet_codec_params params = COMET_CODEC_PARAMS_INIT;
                comet_codec_result result = COMET_CODEC_RESULT_INIT;
                comet_tensor t;
                size_t bytes;
                if (layout == COMET_FLAT && (c == COMET_CODEC_POOL || c == COMET_CODEC_DCT))
                    continue; /* they need maps */
                params.codec = (comet_codec)c;
                params.bound = 0.1;
                assert_ok(comet_tensor_init(&t, NULL, COMET_F32, (comet_layout)layout, 4, shapes[i]));
                assert_ok(comet_codec_max_bytes(&t, &params, &bytes));
                assert_ok(comet_codec_compress_workspace(&t, &params, NULL, &bytes));
                assert_ok(comet_codec_compress(&t, &params, NULL, stream, sizeof stream, &result));
                assert_ok(comet_codec_decompress(stream, result.bytes, NULL, NULL, &t));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_decompress_workspaces),
        cmocka_unit_test(test_workspace_of_threads),
        cmocka_unit_test(test_every_capacity),
        cmocka_unit_test(test_capacity_of_threads),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_empty_without_data),
        cmocka_unit_test(test_bad_params),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_sizes_of_params),
        cmocka_unit_test(test_sizes_of_exec),
        cmocka_unit_test(test_isas),
        cmocka_unit_test(test_enormous_empty_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
