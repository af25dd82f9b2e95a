/* SPDX-License-Identifier: Apache-2.0 */
/* Images on a device against the CPU's, bit by bit. */
#include "cuda_train_bench.h"

static const comet_normalisation normalisation = {.mean = {0.485f, 0.456f, 0.406f},
                                                  .deviation = {0.229f, 0.224f, 0.225f}};

static comet_images_call call_of(int64_t count, int64_t batch, int64_t pixels, int channels) {
    return (comet_images_call){
        .normalisation = &normalisation, .count = count, .batch = batch, .pixels = pixels, .channels = channels};
}

static uint8_t *random_bytes(train_bench *b, const comet_images_call *call) {
    const int64_t count = call->count * call->pixels * call->channels;
    uint8_t *bytes = take((size_t)count);
    for (int64_t i = 0; i < count; i++)
        bytes[i] = i < 256 ? (uint8_t)i : (uint8_t)rng_below(&b->r, 256);
    return bytes;
}

static void expect(train_bench *b, const comet_images_call *given, const cuda_block *found) {
    const comet_dtype dtype = b->cuda.base.dtype;
    const int64_t count = given->batch * given->pixels * given->channels;
    comet_images_call call = *given;
    float *expected = take((size_t)count * sizeof(float));
    void *values = train_read(b, found);
    call.backend = &b->cpu;
    call.values = expected;
    assert_ok(comet_cpu_images(&call));
    for (int64_t i = 0; i < count; i++) {
        set_value(dtype, &expected[i], 0, expected[i]);
        if (!same_bits(value_at(dtype, values, i), value_at(dtype, &expected[i], 0)))
            fail_msg("value %lld of %lld is %g", (long long)i, (long long)count, (double)value_at(dtype, values, i));
    }
    assert_true(cuda_block_is_intact(found));
    free(expected);
    free(values);
}

/* Several calls in a row, nobody waiting in between: each has its own bytes. */
static void test_calls(void **state) {
    static const struct {
        int64_t count, batch, pixels;
        int channels;
    } cases[] = {{2, 2, 49, 3}, {1, 3, 35, 3},   {3, 3, 1, 1}, {0, 2, 9, 3},
                 {4, 5, 61, 1}, {5, 5, 1001, 3}, {1, 1, 7, 3}};
    enum { CASES = sizeof cases / sizeof *cases };
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        train_bench *b = train_bench_new(dtypes[d], 21);
        comet_images_call calls[CASES];
        cuda_block outputs[CASES];
        uint8_t *bytes[CASES];
        for (int i = 0; i < CASES; i++) {
            calls[i] = call_of(cases[i].count, cases[i].batch, cases[i].pixels, cases[i].channels);
            bytes[i] = random_bytes(b, &calls[i]);
            outputs[i] = cuda_block_new(
                (size_t)(cases[i].batch * cases[i].pixels * cases[i].channels) * comet_dtype_size(dtypes[d]), NULL);
            calls[i].backend = &b->cuda.base;
            calls[i].bytes = bytes[i];
            calls[i].values = outputs[i].data;
            uint8_t *passing = take((size_t)(calls[i].count * calls[i].pixels * calls[i].channels));
            memcpy(passing, bytes[i], (size_t)(calls[i].count * calls[i].pixels * calls[i].channels));
            calls[i].bytes = passing;
            assert_ok(comet_cuda_images(&calls[i]));
            memset(passing, 0x77, (size_t)(calls[i].count * calls[i].pixels * calls[i].channels)); /* read by then */
            free(passing);
            calls[i].bytes = bytes[i];
        }
        for (int i = 0; i < CASES; i++) {
            expect(b, &calls[i], &outputs[i]);
            cuda_block_free(&outputs[i]);
            free(bytes[i]);
        }
        train_bench_free(b);
    }
}

#ifdef COMET_CUDA_EMULATION
/* After the largest batch nothing is allocated any more. */
static void test_memory(void **state) {
    (void)state;
    train_bench *b = train_bench_new(COMET_BF16, 1);
    comet_images_call call = call_of(6, 6, 900, 3);
    uint8_t *bytes = random_bytes(b, &call);
    cuda_block output = cuda_block_new(6 * 900 * 3 * 2, NULL);
    call.backend = &b->cuda.base;
    call.bytes = bytes;
    call.values = output.data;
    assert_ok(comet_cuda_images(&call));
    const uint64_t before = emulation_live_allocations();
    for (call.count = 6; call.count >= 0; call.count--)
        assert_ok(comet_cuda_images(&call));
    assert_int_equal(emulation_live_allocations(), before);
    cuda_must(cudaStreamSynchronize(b->cuda.queue));
    cuda_block_free(&output);
    free(bytes);
    train_bench_free(b);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_memory),
#endif
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
