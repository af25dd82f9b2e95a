/* SPDX-License-Identifier: Apache-2.0 */
/* eb and zvc on a device: what is refused. */
#include "test_cuda_eb_case.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_status_word_is_not_set_back),
        cmocka_unit_test(test_bad_slots),
        cmocka_unit_test(test_bad_tensors_and_parameters),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
