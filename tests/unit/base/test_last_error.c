/* SPDX-License-Identifier: Apache-2.0 */
/* comet_last_error: bad calls name the argument, good ones leave nothing, threads do not see each other's. */
#include "support/assert_ok.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "comet/comet.h"

/* The status, and a text that begins with what is wrong. */
#define assert_fails(call, status, begins)                                                                             \
    do {                                                                                                               \
        assert_status(call, status);                                                                                   \
        if (strncmp(comet_last_error(), begins, strlen(begins)) != 0)                                                  \
            fail_msg("%s: \"%s\", expected \"%s...\"", #call, comet_last_error(), begins);                             \
    } while (0)

#define assert_argument(call, begins) assert_fails(call, COMET_ERROR_ARGUMENT, begins)

typedef struct bed {
    float values[16];
    comet_tensor tensor;
    comet_codec_params params;
    unsigned char stream[2048];
    size_t bytes;
} bed;

static int setup(void **state) {
    static bed b;
    for (int i = 0; i < 16; i++)
        b.values[i] = (float)(i - 5);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    b.params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    assert_ok(comet_tensor_init(&b.tensor, b.values, COMET_F32, COMET_FLAT, 1, (int64_t[]){16}));
    assert_ok(comet_codec_compress(&b.tensor, &b.params, NULL, b.stream, sizeof b.stream, &result));
    b.bytes = result.bytes;
    *state = &b;
    return 0;
}

static void test_tensors(void **state) {
    (void)state;
    comet_tensor t;
    float x;
    assert_argument(comet_tensor_init(NULL, &x, COMET_F32, COMET_FLAT, 0, NULL), "tensor is NULL");
    assert_argument(comet_tensor_init(&t, &x, (comet_dtype)9, COMET_FLAT, 0, NULL), "dtype is 9");
    assert_argument(comet_tensor_init(&t, &x, COMET_F32, (comet_layout)7, 0, NULL), "layout is 7");
    assert_argument(comet_tensor_init(&t, &x, COMET_F32, COMET_FLAT, 9, (int64_t[9]){1}), "ndim is 9");
    assert_argument(comet_tensor_init(&t, &x, COMET_F32, COMET_FLAT, 1, NULL), "shape is NULL");
    assert_argument(comet_tensor_init(&t, &x, COMET_F32, COMET_FLAT, 2, (int64_t[]){3, -4}), "shape[1] is -4");
    assert_argument(comet_tensor_init(&t, &x, COMET_F32, COMET_FLAT, 2, (int64_t[]){1 << 30, 1 << 30}),
                    "shape has more");
    assert_argument(comet_tensor_from_dlpack(NULL, COMET_FLAT, &t), "source is NULL");
    comet_threads *threads;
    assert_argument(comet_threads_new(5000, NULL, &threads), "count is 5000");
    assert_argument(comet_threads_new(1, NULL, NULL), "threads is NULL");
}

static comet_status compress(const bed *b, const comet_codec_params *p, const comet_codec_exec *e, size_t capacity) {
    unsigned char stream[2048];
    return comet_codec_compress(&b->tensor, p, e, stream, capacity, NULL);
}

static void test_parameters(void **state) {
    const bed *b = *state;
    comet_codec_params p = b->params;
    comet_codec_grid grid = {1, NULL, NULL, b->values, NULL};
    size_t bytes;
#define with(field, value, status, begins)                                                                             \
    do {                                                                                                               \
        comet_codec_params changed = p;                                                                                \
        changed.field = value;                                                                                         \
        assert_fails(compress(b, &changed, NULL, 2048), status, begins);                                               \
        assert_fails(comet_codec_max_bytes(&b->tensor, &changed, &bytes), status, begins);                             \
    } while (0)
    with(size, 0, COMET_ERROR_ARGUMENT, "params->size is 0");
    with(codec, (comet_codec)77, COMET_ERROR_ARGUMENT, "params->codec is 77");
    with(bound, -1.0, COMET_ERROR_ARGUMENT, "params->bound is -1");
    with(bound, (double)NAN, COMET_ERROR_ARGUMENT, "params->bound is nan");
    with(bound_kind, (comet_bound_kind)5, COMET_ERROR_ARGUMENT, "params->bound_kind is 5");
    with(rounding, (comet_rounding)5, COMET_ERROR_ARGUMENT, "params->rounding is 5");
    with(device_bound, b->values, COMET_ERROR_UNSUPPORTED, "params->device_bound is for");
    p.grid = &grid;
    with(keep_mask, 1, COMET_ERROR_ARGUMENT, "params->keep_mask is set");
    with(rounding, COMET_ROUND_STOCHASTIC, COMET_ERROR_ARGUMENT, "params->rounding is stochastic");
    grid.channels = 3;
    with(bound, 0.1, COMET_ERROR_ARGUMENT, "params->grid->channels is 3");
    grid = (comet_codec_grid){1, NULL, NULL, NULL, NULL};
    with(bound, 0.1, COMET_ERROR_ARGUMENT, "params->grid->threshold is NULL");
    p = b->params;
    p.codec = COMET_CODEC_POOL;
    with(pool_block, 65, COMET_ERROR_ARGUMENT, "params->pool_block is 65");
    with(pool_block, 2, COMET_ERROR_UNSUPPORTED, "tensor has no maps");
    p.codec = COMET_CODEC_GROUP;
    with(group_bits, 3, COMET_ERROR_ARGUMENT, "params->group_bits is 3");
    with(group_values, 33, COMET_ERROR_ARGUMENT, "params->group_values is 33");
    p.codec = COMET_CODEC_DCT;
    with(dct_table, 2, COMET_ERROR_ARGUMENT, "params->dct_table is 2");
#undef with
}

static void test_codec_calls(void **state) {
    bed *b = *state;
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    comet_codec codec;
    comet_codec_result result = {0};
    comet_codec_info info = {0};
    comet_tensor t = b->tensor;
    comet_codec_grid grid = {1, NULL, NULL, b->values, NULL};
    size_t bytes;
    assert_argument(comet_codec_from_name("zip\n", &codec), "name is \"zip?\"");
    assert_argument(comet_codec_max_bytes(&b->tensor, NULL, &bytes), "params is NULL");
    assert_argument(comet_codec_max_bytes(&b->tensor, &b->params, NULL), "bytes is NULL");
    assert_argument(comet_codec_compress(&t, &b->params, NULL, NULL, 2048, NULL), "stream is NULL");
    assert_argument(comet_codec_compress(NULL, &b->params, NULL, b->stream, 2048, NULL), "tensor is NULL");
    assert_argument(comet_codec_compress(&t, &b->params, NULL, b->stream, 2048, &result), "result->size is 0");
    assert_fails(compress(b, &b->params, NULL, 10), COMET_ERROR_CAPACITY, "capacity is 10");
    assert_fails(compress(b, &b->params, NULL, b->bytes - 1), COMET_ERROR_CAPACITY, "capacity is");
    e.isa = (comet_isa)9;
    assert_argument(compress(b, &b->params, &e, 2048), "exec->isa is 9");
    e.isa = COMET_ISA_AUTO, e.workspace = b->values, e.workspace_bytes = 0, e.size = 1;
    assert_argument(compress(b, &b->params, &e, 2048), "exec->size is 1");
    t.data = NULL;
    assert_argument(comet_codec_decompress(b->stream, b->bytes, NULL, NULL, &t), "tensor->data is NULL");
    t = b->tensor, t.device.kind = COMET_CUDA;
    assert_fails(comet_codec_decompress(b->stream, b->bytes, NULL, NULL, &t), COMET_ERROR_UNSUPPORTED, "tensor is not");
    t = b->tensor, t.shape[0] = 15;
    assert_fails(comet_codec_decompress(b->stream, b->bytes, NULL, NULL, &t), COMET_ERROR_MISMATCH, "tensor->shape");
    t = b->tensor, t.dtype = COMET_F16;
    assert_fails(comet_codec_decompress(b->stream, b->bytes, NULL, NULL, &t), COMET_ERROR_MISMATCH, "tensor->dtype");
    assert_fails(comet_codec_decompress(b->stream, b->bytes, &grid, NULL, &b->tensor), COMET_ERROR_MISMATCH,
                 "grid is given");
    assert_argument(comet_codec_inspect(b->stream, b->bytes, &info), "info->size is 0");
    assert_argument(comet_codec_serialise(b->stream, b->bytes, 0, NULL, 0, &bytes), "out is NULL");
    assert_fails(comet_codec_serialise(b->stream, b->bytes, 0, b->values, 3, &bytes), COMET_ERROR_CAPACITY,
                 "capacity is 3");
}

static void test_store_calls(void **state) {
    bed *b = *state;
    comet_store_options o = COMET_STORE_OPTIONS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_stats stats = {0};
    comet_store_account account = COMET_STORE_ACCOUNT_INIT;
    comet_store *store;
    comet_store_handle handle;
    comet_tensor view;
    size_t bytes;
    o.limit_bytes = o.scratch_bytes = 4096;
    assert_argument(comet_store_new(&o, &store), "options->scratch_bytes is 4096");
    o.scratch_bytes = 0;
    o.spill_directory = "/nowhere/at/all";
    assert_fails(comet_store_new(&o, &store), COMET_ERROR_IO, "options->spill_directory: no file");
    o.spill_directory = NULL;
    assert_ok(comet_store_new(&o, &store));
    assert_argument(comet_store_save(store, &b->tensor, NULL, NULL, NULL), "handle is NULL");
    item.form = (comet_store_form)8;
    assert_argument(comet_store_save(store, &b->tensor, &item, &handle, NULL), "item->form is 8");
    item.form = COMET_FORM_CODEC;
    assert_argument(comet_store_save(store, &b->tensor, &item, &handle, NULL), "item->codec is NULL");
    item.form = COMET_FORM_KEEP, item.offload = 1;
    assert_fails(comet_store_save(store, &b->tensor, &item, &handle, NULL), COMET_ERROR_UNSUPPORTED, "item->offload");
    item.offload = 0;
    assert_ok(comet_store_save(store, &b->tensor, &item, &handle, NULL));
    assert_string_equal(comet_last_error(), "");
    comet_store_handle second;
    assert_fails(comet_store_save(store, &b->tensor, &item, &second, NULL), COMET_ERROR_CAPACITY,
                 "the store's limit_bytes is 4096: 4096 more");
    view = b->tensor, view.shape[0] = 8;
    assert_fails(comet_store_load(store, handle, &view), COMET_ERROR_MISMATCH, "tensor must have the shape");
    assert_argument(comet_store_load(store, handle + 1, &b->tensor), "handle is none");
    assert_argument(comet_store_release(store, 0), "handle is none");
    assert_argument(comet_store_share(NULL, 0), "store is NULL");
    assert_fails(comet_store_spill(store, handle), COMET_ERROR_UNSUPPORTED, "the store has no spill_directory");
    assert_argument(comet_store_get_stats(store, &stats), "stats->size is 0");
    assert_argument(comet_store_get_account(store, 1, &account), "index is 1");
    assert_fails(comet_store_write_report(store, COMET_REPORT_TABLE, NULL, 0, &bytes), COMET_ERROR_CAPACITY,
                 "capacity is 0");
    comet_store_free(store);
}

static void test_control_calls(void **state) {
    (void)state;
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    comet_control_use use = {COMET_USE_CONV_WEIGHTS, -1};
    comet_control_tensor tensor = {"conv", 10, 1, &use};
    comet_control_observation seen = {.tensor = 4};
    comet_control *c;
    unsigned char byte;
    assert_argument(comet_control_new(comet_control_find("none"), &o, &tensor, 1, &c), "methods is NULL");
    const comet_control_methods *methods = comet_control_find("comet");
    assert_argument(comet_control_new(methods, &o, &tensor, 1, NULL), "control is NULL");
    o.every = 0;
    assert_argument(comet_control_new(methods, &o, &tensor, 1, &c), "options: warmup must be");
    o.every = 10, tensor.count = 0;
    assert_argument(comet_control_new(methods, &o, &tensor, 1, &c), "tensors[0].count is 0");
    tensor.count = 10, use.kind = COMET_USE_KINDS;
    assert_argument(comet_control_new(methods, &o, &tensor, 1, &c), "tensors[0].uses[0].kind is");
    use.kind = COMET_USE_CONV_WEIGHTS;
    assert_ok(comet_control_new(methods, &o, &tensor, 1, &c));
    assert_argument(comet_control_observe(c, 0, &seen, 1), "observations[0].tensor is 4");
    assert_argument(comet_control_observe(c, -9, NULL, 0), "iteration is -9");
    assert_fails(comet_control_save(c, &byte, 1), COMET_ERROR_CAPACITY, "bytes is 1");
    assert_argument(comet_control_load(c, NULL, 0), "state is NULL");
    comet_control_free(c);
}

/* Of the calls that return a status the last one counts: what succeeded, or has no reason, leaves nothing. */
static void test_what_stays(void **state) {
    bed *b = *state;
    size_t bytes;
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    assert_argument(comet_codec_max_bytes(NULL, &b->params, &bytes), "tensor is NULL");
    assert_int_equal(comet_tensor_count(&b->tensor), 16); /* returns no status */
    assert_string_equal(comet_last_error(), "tensor is NULL");
    assert_ok(comet_codec_max_bytes(&b->tensor, &b->params, &bytes));
    assert_string_equal(comet_last_error(), "");
    assert_argument(comet_codec_max_bytes(NULL, &b->params, &bytes), "tensor is NULL");
    assert_status(comet_codec_inspect(b->values, sizeof b->values, &info), COMET_ERROR_CORRUPT);
    assert_string_equal(comet_last_error(), "");
}

static void *other_thread(void *argument) {
    bed *b = argument;
    size_t bytes;
    int right = comet_last_error()[0] == '\0';
    right = right && comet_codec_max_bytes(&b->tensor, NULL, &bytes) == COMET_ERROR_ARGUMENT;
    right = right && strcmp(comet_last_error(), "params is NULL") == 0;
    return right ? b : NULL;
}

static void test_threads(void **state) {
    bed *b = *state;
    pthread_t thread;
    void *right;
    size_t bytes;
    assert_argument(comet_codec_max_bytes(NULL, &b->params, &bytes), "tensor is NULL");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, b), 0);
    assert_int_equal(pthread_join(thread, &right), 0);
    assert_ptr_equal(right, b);
    assert_string_equal(comet_last_error(), "tensor is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),     cmocka_unit_test(test_parameters),    cmocka_unit_test(test_codec_calls),
        cmocka_unit_test(test_store_calls), cmocka_unit_test(test_control_calls), cmocka_unit_test(test_what_stays),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
