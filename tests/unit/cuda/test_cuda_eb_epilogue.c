/* SPDX-License-Identifier: Apache-2.0 */
/* eb and zvc on a device: what values go through when they come back. */
#include "test_cuda_eb_case.h"

#include <math.h>

#include "support/number.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epilogue),
        cmocka_unit_test(test_epilogue_changes_dtype),
        cmocka_unit_test(test_epilogue_changes_dtype_of_a_grid),
        cmocka_unit_test(test_epilogue_arguments),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
