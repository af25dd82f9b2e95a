/* SPDX-License-Identifier: Apache-2.0 */
/* raw: the patterns themselves, whatever they are and wherever they lie; the latter for the other simple codecs too. */
#include "unit/codec/test_codec_common.h"

static void body_is_the_values_in_order(void **state) {
    (void)state;
    rng r = rng_seed(1);
    comet_codec_params p = params_for(COMET_CODEC_RAW);
    for (int round = effort(150); round > 0; round--) {
        random_input in;
        random_input_new(&in, &r, (comet_layout)rng_below(&r, 3), 3000);
        outcome o = round_trip(&r, in.dtype, in.dtype, &in.shape, in.strides, &p, in.patterns);
        size_t bytes = (size_t)in.count * comet_dtype_size(in.dtype);
        assert_int_equal(body_bytes(&o), bytes);
        assert_memory_equal(body_of(&o), in.patterns, bytes);
        assert_memory_equal(o.decoded, in.patterns, bytes);
        outcome_free(&o);
        random_input_free(&in);
    }
}

/* Long enough for several workers. */
static void large_tensors_are_shared_out(void **state) {
    (void)state;
    rng r = rng_seed(2);
    comet_codec_params p = params_for(COMET_CODEC_RAW);
    random_input in = {.dtype = COMET_F16, .shape = shape_of_1(100003), .count = 100003};
    in.patterns = take(2 * 100003);
    values_fill(&r, VALUES_BITS, in.dtype, 1.0, 0.1, in.patterns, in.count);
    for (int kind = 0; kind < STRIDES_OUTPUTS; kind++) {
        outcome o = round_trip(&r, in.dtype, in.dtype, &in.shape, (stride_kind)kind, &p, in.patterns);
        assert_memory_equal(body_of(&o), in.patterns, 2 * 100003);
        outcome_free(&o);
    }
    random_input_free(&in);
}

/* All five codecs: values and streams may lie at any address. (UBSan sees a load that is not aligned.) */
static void addresses_need_not_be_aligned(void **state) {
    (void)state;
    static const comet_codec codecs[] = {COMET_CODEC_RAW, COMET_CODEC_MASK, COMET_CODEC_POOL, COMET_CODEC_GROUP,
                                         COMET_CODEC_DCT};
    rng r = rng_seed(4);
    enum { N = 2 * 3 * 9 * 10, BYTES = N * 4 };
    const int64_t shape[4] = {2, 3, 9, 10};
    char *aligned = take(BYTES), *memory = take(2 * BYTES + 2), *odd_in = memory + 1, *odd_out = odd_in + BYTES;
    for (int i = 0; i < 5 * 4; i++) {
        comet_dtype dtype = all_dtypes[i / 5];
        comet_codec_params p = params_for(codecs[i % 5]);
        comet_tensor t;
        outcome o;
        values_fill(&r, VALUES_GAUSS, dtype, 1.0, 0.1, aligned, N);
        assert_ok(comet_tensor_init(&t, aligned, dtype, COMET_NCHW, 4, shape));
        compress(&t, &p, NULL, &o);
        unsigned char *stream = take(o.bytes + 1);
        memcpy(odd_in, aligned, BYTES);
        t.data = odd_in;
        assert_ok(comet_codec_compress(&t, &p, NULL, stream + 1, o.bytes, NULL));
        assert_memory_equal(stream + 1, o.stream, o.bytes);
        t.data = odd_out;
        assert_ok(comet_codec_decompress(stream + 1, o.bytes, NULL, NULL, &t));
        t.data = aligned;
        assert_ok(comet_codec_decompress(o.stream, o.bytes, NULL, NULL, &t));
        assert_memory_equal(odd_out, aligned, N * comet_dtype_size(dtype));
        free(stream);
        outcome_free(&o);
    }
    free(memory);
    free(aligned);
}

static void hostile_streams_are_refused(void **state) {
    (void)state;
    rng r = rng_seed(3);
    float values[37];
    comet_codec_params p = params_for(COMET_CODEC_RAW);
    test_shape shape = shape_of_1(37);
    values_fill(&r, VALUES_BITS, COMET_F32, 1.0, 0.1, values, 37);
    outcome o = plain_trip(COMET_F32, COMET_F32, &shape, &p, values);
    attack(&o, &r, COMET_F32, &shape, effort(500));
    check_header_is_guarded(&o, COMET_F32, &shape, 0, 0);
    outcome_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_is_the_values_in_order),
        cmocka_unit_test(large_tensors_are_shared_out),
        cmocka_unit_test(addresses_need_not_be_aligned),
        cmocka_unit_test(hostile_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
