/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor views: making them, asking them, taking them from DLPack; and names of types and statuses. */
#include "support/assert_ok.h"

#include <dlpack/dlpack.h>
#include <string.h>

#include "base/access.h"
#include "comet/comet.h"
#include "support/codec/tensors.h"
#include "support/number.h"

static void test_init(void **state) {
    (void)state;
    float data[24];
    comet_tensor t;
    assert_ok(comet_tensor_init(&t, data, COMET_F32, COMET_NCHW, 3, (int64_t[]){2, 3, 4}));
    assert_ptr_equal(t.data, data);
    assert_true(t.device.kind == COMET_CPU && t.dtype == COMET_F32 && t.layout == COMET_NCHW && t.ndim == 3);
    assert_true(t.shape[0] == 2 && t.shape[1] == 3 && t.shape[2] == 4);
    assert_true(t.strides[0] == 12 && t.strides[1] == 4 && t.strides[2] == 1);
    assert_int_equal(comet_tensor_count(&t), 24);
    assert_true(comet_tensor_is_contiguous(&t));
    assert_ok(comet_tensor_init(&t, data, COMET_U8, COMET_FLAT, 0, NULL));
    assert_int_equal(comet_tensor_count(&t), 1);
    assert_true(comet_tensor_is_contiguous(&t));
    assert_ok(comet_tensor_init(&t, NULL, COMET_F16, COMET_NHWC, 2, (int64_t[]){5, 0}));
    assert_int_equal(comet_tensor_count(&t), 0);
}

static void test_init_refuses(void **state) {
    (void)state;
    float data;
    comet_tensor t;
    int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, huge = (int64_t)1 << 48;
    assert_status(comet_tensor_init(NULL, &data, COMET_F32, COMET_FLAT, 1, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, (comet_dtype)4, COMET_FLAT, 1, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, (comet_dtype)-1, COMET_FLAT, 1, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, (comet_layout)3, 1, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, -1, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 9, nine), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 1, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 1, (int64_t[]){-1}), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 2, (int64_t[]){0, -1}), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 1, (int64_t[]){huge + 1}), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 2, (int64_t[]){huge, 2}), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 2, (int64_t[]){INT64_MAX, INT64_MAX}),
                  COMET_ERROR_ARGUMENT);
    assert_ok(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 1, &huge));
    assert_ok(comet_tensor_init(&t, &data, COMET_F32, COMET_FLAT, 3, (int64_t[]){INT64_MAX, 0, INT64_MAX}));
    assert_int_equal(comet_tensor_count(&t), 0);
}

static void test_init_on(void **state) {
    (void)state;
    float data[6];
    comet_tensor t;
    assert_ok(
        comet_tensor_init_on(&t, (comet_device){COMET_CUDA, 3}, data, COMET_F16, COMET_NHWC, 2, (int64_t[]){2, 3}));
    assert_true(t.device.kind == COMET_CUDA && t.device.index == 3 && t.data == (void *)data);
    assert_true(t.dtype == COMET_F16 && t.layout == COMET_NHWC && t.strides[0] == 3 && t.strides[1] == 1);
    assert_ok(comet_tensor_init(&t, data, COMET_F32, COMET_FLAT, 0, NULL));
    assert_true(t.device.kind == COMET_CPU && t.device.index == 0);
    assert_status(
        comet_tensor_init_on(&t, (comet_device){(comet_device_kind)2, 0}, data, COMET_F32, COMET_FLAT, 0, NULL),
        COMET_ERROR_ARGUMENT);
    assert_reason("device.kind is 2");
    assert_status(comet_tensor_init_on(&t, (comet_device){COMET_CUDA, -1}, data, COMET_F32, COMET_FLAT, 0, NULL),
                  COMET_ERROR_ARGUMENT);
    assert_reason("device.index is -1");
}

static void test_contiguous(void **state) {
    (void)state;
    float data[24];
    comet_tensor t;
    assert_ok(comet_tensor_init(&t, data, COMET_F32, COMET_FLAT, 3, (int64_t[]){2, 1, 12}));
    t.strides[1] = -77; /* of an extent of 1, no stride matters */
    assert_true(comet_tensor_is_contiguous(&t));
    t.strides[2] = 2;
    assert_false(comet_tensor_is_contiguous(&t));
    t.strides[2] = -1;
    assert_false(comet_tensor_is_contiguous(&t));
    t.strides[2] = 1;
    t.strides[0] = 13;
    assert_false(comet_tensor_is_contiguous(&t));
    t.shape[2] = 0;
    assert_true(comet_tensor_is_contiguous(&t));
}

/* Runs of any start and length, through any strides, against single values. */
static void test_access(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = 0; round < 600; round++) {
        comet_dtype dtype = (comet_dtype)rng_below(&r, 4);
        test_shape shape = shape_random(&r, COMET_FLAT, 700);
        int64_t count = shape_count(&shape);
        if (count == 0)
            continue;
        uint32_t patterns[700], got[700];
        float values[700];
        for (int i = 0; i < 700; i++)
            patterns[i] = (uint32_t)rng_next(&r);
        test_tensor t;
        test_tensor_new(&t, &r, dtype, &shape, (stride_kind)rng_below(&r, STRIDES_OUTPUTS));
        test_tensor_write(&t, patterns);
        int64_t first = (int64_t)rng_below(&r, (uint64_t)count), n = rng_between(&r, 0, count - first);
        size_t size = comet_dtype_size(dtype);
        comet_access_load_bits(&t.view, first, n, got);
        assert_memory_equal(got, (char *)patterns + (size_t)first * size, (size_t)n * size);
        comet_access_load(&t.view, first, n, values);
        for (int64_t i = 0; i < n; i++) {
            double expected = number_of_bits(dtype, bits_at(dtype, patterns, first + i));
            assert_true((double)values[i] == expected || (expected != expected && values[i] != values[i]));
        }
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)(i % 100);
        comet_access_store(&t.view, first, n, values);
        assert_true(test_tensor_gaps_intact(&t));
        test_tensor_read(&t, got);
        for (int64_t i = 0; i < count; i++)
            if (i < first || i >= first + n)
                assert_int_equal(bits_at(dtype, got, i), bits_at(dtype, patterns, i));
            else
                assert_true(number_of_bits(dtype, bits_at(dtype, got, i)) == (double)((i - first) % 100));
        test_tensor_free(&t);
    }
}

/* ---- DLPack ---- */

static DLTensor dl_of(void *data, int ndim, int64_t *shape, int64_t *strides) {
    DLTensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = ndim;
    t.dtype.code = kDLFloat;
    t.dtype.bits = 32;
    t.dtype.lanes = 1;
    t.shape = shape;
    t.strides = strides;
    return t;
}

static void test_dlpack_plain(void **state) {
    (void)state;
    float data[64];
    int64_t shape[] = {2, 3, 4}, strides[] = {24, -8, 2};
    DLTensor d = dl_of(data, 3, shape, NULL);
    comet_tensor t;
    d.byte_offset = 16;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_NCHW, &t));
    assert_ptr_equal(t.data, (char *)data + 16);
    assert_true(t.ndim == 3 && t.layout == COMET_NCHW && t.strides[0] == 12 && t.strides[1] == 4 && t.strides[2] == 1);
    d.strides = strides;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_FLAT, &t));
    assert_true(t.layout == COMET_FLAT && t.strides[0] == 24 && t.strides[1] == -8 && t.strides[2] == 2);
    d.ndim = 0;
    d.shape = d.strides = NULL;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_FLAT, &t));
    assert_int_equal(comet_tensor_count(&t), 1);
}

static void test_dlpack_types(void **state) {
    (void)state;
    static const struct {
        uint8_t code, bits;
        uint16_t lanes;
        comet_status status;
        comet_dtype dtype;
    } cases[] = {{kDLFloat, 32, 1, COMET_OK, COMET_F32},
                 {kDLFloat, 16, 1, COMET_OK, COMET_F16},
                 {kDLBfloat, 16, 1, COMET_OK, COMET_BF16},
                 {kDLUInt, 8, 1, COMET_OK, COMET_U8},
                 {6, 8, 1, COMET_OK, COMET_U8},
                 {kDLFloat, 64, 1, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {kDLInt, 8, 1, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {kDLInt, 32, 1, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {kDLUInt, 16, 1, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {kDLFloat, 32, 4, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {kDLBfloat, 32, 1, COMET_ERROR_UNSUPPORTED, COMET_F32},
                 {99, 32, 1, COMET_ERROR_UNSUPPORTED, COMET_F32}};
    float data[4];
    int64_t shape[] = {4};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        DLTensor d = dl_of(data, 1, shape, NULL);
        comet_tensor t;
        d.dtype.code = cases[i].code;
        d.dtype.bits = cases[i].bits;
        d.dtype.lanes = cases[i].lanes;
        assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), cases[i].status);
        if (cases[i].status == COMET_OK)
            assert_int_equal(t.dtype, cases[i].dtype);
    }
}

static void test_dlpack_devices(void **state) {
    (void)state;
    static const struct {
        int type;
        comet_status status;
        comet_device_kind kind;
    } cases[] = {{1, COMET_OK, COMET_CPU},
                 {2, COMET_OK, COMET_CUDA},
                 {3, COMET_OK, COMET_CPU},
                 {13, COMET_OK, COMET_CUDA},
                 {4, COMET_ERROR_UNSUPPORTED, COMET_CPU},
                 {10, COMET_ERROR_UNSUPPORTED, COMET_CPU}};
    float data[4];
    int64_t shape[] = {4};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        DLTensor d = dl_of(data, 1, shape, NULL);
        comet_tensor t;
        d.device.device_type = (DLDeviceType)cases[i].type;
        d.device.device_id = 2;
        assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), cases[i].status);
        if (cases[i].status != COMET_OK)
            continue;
        assert_int_equal(t.device.kind, cases[i].kind);
        assert_int_equal(t.device.index, cases[i].kind == COMET_CUDA ? 2 : 0);
    }
}

/* What PyTorch calls channels_last: strides of N, H, W, C under a shape of N, C, H, W. */
static void test_dlpack_channels_last(void **state) {
    (void)state;
    float data[2 * 3 * 4 * 5];
    int64_t shape[] = {2, 3, 4, 5}, strides[] = {60, 1, 15, 3};
    DLTensor d = dl_of(data, 4, shape, strides);
    comet_tensor t;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_NCHW, &t));
    assert_int_equal(t.layout, COMET_NHWC);
    assert_true(t.shape[0] == 2 && t.shape[1] == 4 && t.shape[2] == 5 && t.shape[3] == 3);
    assert_true(comet_tensor_is_contiguous(&t));
    assert_ok(comet_tensor_from_dlpack(&d, COMET_FLAT, &t)); /* only where the layout says what dimensions mean */
    assert_true(t.layout == COMET_FLAT && t.shape[1] == 3 && t.strides[1] == 1);
    int64_t padded[] = {64, 1, 16, 3}; /* gaps: stays what it was called */
    d.strides = padded;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_NCHW, &t));
    assert_true(t.layout == COMET_NCHW && t.shape[1] == 3 && t.strides[3] == 3);
    int64_t one[] = {2, 1, 4, 5}, both[] = {20, 1, 5, 1}; /* one channel: contiguous either way */
    d.shape = one;
    d.strides = both;
    assert_ok(comet_tensor_from_dlpack(&d, COMET_NCHW, &t));
    assert_true(t.layout == COMET_NCHW && t.shape[1] == 1);
}

static void test_dlpack_refuses(void **state) {
    (void)state;
    float data[4];
    int64_t shape[] = {4, -1, 1, 1, 1, 1, 1, 1, 1};
    comet_tensor t;
    DLTensor d = dl_of(data, 1, shape, NULL);
    assert_status(comet_tensor_from_dlpack(NULL, COMET_FLAT, &t), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_tensor_from_dlpack(&d, (comet_layout)7, &t), COMET_ERROR_ARGUMENT);
    d.shape = NULL;
    assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), COMET_ERROR_ARGUMENT);
    d = dl_of(data, 2, shape, NULL);
    assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), COMET_ERROR_ARGUMENT);
    shape[1] = 1;
    d = dl_of(data, 9, shape, NULL);
    assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), COMET_ERROR_ARGUMENT);
    d = dl_of(data, -1, shape, NULL);
    assert_status(comet_tensor_from_dlpack(&d, COMET_FLAT, &t), COMET_ERROR_ARGUMENT);
}

/* ---- names ---- */

static void test_names(void **state) {
    (void)state;
    assert_true(comet_dtype_size(COMET_F32) == 4 && comet_dtype_size(COMET_F16) == 2 &&
                comet_dtype_size(COMET_BF16) == 2 && comet_dtype_size(COMET_U8) == 1 &&
                comet_dtype_size((comet_dtype)9) == 0);
    assert_string_equal(comet_dtype_name(COMET_F32), "fp32");
    assert_string_equal(comet_dtype_name(COMET_F16), "fp16");
    assert_string_equal(comet_dtype_name(COMET_BF16), "bf16");
    assert_string_equal(comet_dtype_name(COMET_U8), "u8");
    assert_string_equal(comet_dtype_name((comet_dtype)9), "?");
    for (int i = 0; i <= COMET_ERROR_DIVERGED; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(comet_status_string((comet_status)i), comet_status_string((comet_status)j));
    assert_non_null(comet_status_string((comet_status)99));
    assert_non_null(comet_status_string((comet_status)-1));
    assert_string_equal(comet_version_string(), COMET_VERSION_STRING);
}

static void test_codec_names(void **state) {
    (void)state;
    static const char *const names[] = {"raw", "eb", "zvc", "mask", "pool", "group", "dct"};
    comet_codec codec;
    for (int i = 0; i < 7; i++) {
        assert_string_equal(comet_codec_name((comet_codec)i), names[i]);
        assert_ok(comet_codec_from_name(names[i], &codec));
        assert_int_equal(codec, i);
    }
    assert_string_equal(comet_codec_name((comet_codec)7), "?");
    assert_string_equal(comet_codec_name((comet_codec)-1), "?");
    assert_status(comet_codec_from_name("zip", &codec), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_from_name("", &codec), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_from_name(NULL, &codec), COMET_ERROR_ARGUMENT);
    assert_status(comet_codec_from_name("eb", NULL), COMET_ERROR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),           cmocka_unit_test(test_init_refuses),
        cmocka_unit_test(test_init_on),        cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_access),         cmocka_unit_test(test_dlpack_plain),
        cmocka_unit_test(test_dlpack_types),   cmocka_unit_test(test_dlpack_devices),
        cmocka_unit_test(test_dlpack_refuses), cmocka_unit_test(test_dlpack_channels_last),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_codec_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
