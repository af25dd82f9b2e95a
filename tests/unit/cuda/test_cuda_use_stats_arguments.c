/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda_use_stats.h: what is wrong is said, and nothing is launched or changed then. */
#include "support/cuda/cuda_stats.h"

#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

/* A call of each kind that is right, to be spoilt. */
typedef struct calls {
    batch x, s;
    float *table;
    cuda_laid on_x, on_s;
    cuda_block numbers, result;
    comet_codec_grid grid;
    comet_tensor_pass tensor;
    comet_layer_pass layer;
    comet_norm_pass norm;
    comet_silu_pass silu;
    comet_scale_pass scale;
    cuda_seen seen;
} calls;

static void passes_new(calls *c) {
    const float *numbers = c->numbers.data;
    c->grid = (comet_codec_grid){6, numbers, NULL, numbers, NULL};
    c->tensor = (comet_tensor_pass)COMET_TENSOR_PASS_INIT;
    c->tensor.result = c->result.data, c->tensor.values = &c->on_x.tensor;
    c->tensor.grid = &c->grid, c->tensor.relu = 1;
    c->layer = (comet_layer_pass)COMET_LAYER_PASS_INIT;
    c->layer.input = c->layer.gradient = &c->on_x.tensor, c->layer.weights = numbers;
    c->layer.what = COMET_STATS_OUTPUT | COMET_STATS_INPUT | COMET_STATS_COMMON;
    c->norm = (comet_norm_pass)COMET_NORM_PASS_INIT;
    c->norm.values = c->norm.gradient = &c->on_x.tensor;
    c->norm.scale = c->norm.gamma = c->norm.beta = numbers;
    c->silu = (comet_silu_pass)COMET_SILU_PASS_INIT;
    c->silu.input = c->silu.gradient = &c->on_x.tensor;
    c->scale = (comet_scale_pass)COMET_SCALE_PASS_INIT;
    c->scale.factors = &c->on_s.tensor, c->scale.gradient = &c->on_x.tensor;
}

static comet_cuda_stats_needs greatest(const calls *c) {
    comet_cuda_stats_needs most = COMET_CUDA_STATS_NEEDS_INIT, n = COMET_CUDA_STATS_NEEDS_INIT;
#define GROW(kind)                                                                                                     \
    assert_ok(comet_cuda_stats_##kind##_needs(&c->kind, &n));                                                          \
    most.record_bytes = n.record_bytes > most.record_bytes ? n.record_bytes : most.record_bytes;                       \
    most.workspace_bytes = n.workspace_bytes > most.workspace_bytes ? n.workspace_bytes : most.workspace_bytes;
    GROW(tensor)
    GROW(layer)
    GROW(norm)
    GROW(silu)
    GROW(scale)
#undef GROW
    return most;
}

static void calls_new(calls *c) {
    static const comet_codec_record stored = {.bytes = 10, .bound = 0.5, .stats = {.count = 4, .nonzero = 4}};
    rng r = rng_seed(1);
    c->x = batch_new(&r, 3, 4, 5, 6, 0);
    c->s = batch_new(&r, 3, 1, 1, 6, 0);
    c->table = channels_new(&r, 36, 1, 0.1);
    c->on_x = cuda_lay(&c->x, ROWS, COMET_F32);
    c->on_s = cuda_lay(&c->s, ROWS, COMET_F32);
    c->numbers = cuda_table(c->table, 36);
    c->result = cuda_block_new(sizeof stored, &stored);
    passes_new(c);
    const comet_cuda_stats_needs most = greatest(c);
    c->seen = cuda_seen_new(&most, NULL);
}

static void calls_free(calls *c) {
    cuda_seen_free(&c->seen);
    cuda_block_free(&c->on_x.block);
    cuda_block_free(&c->on_s.block);
    cuda_block_free(&c->numbers);
    cuda_block_free(&c->result);
    free(c->x.values);
    free(c->s.values);
    free(c->table);
}

/* All calls end like this, and write nothing. */
static void assert_all(const calls *c, comet_status expected) {
    assert_status(comet_cuda_stats_see_tensor(&c->tensor, &c->seen.exec, &c->seen.slot), expected);
    assert_status(comet_cuda_stats_see_layer(&c->layer, &c->seen.exec, &c->seen.slot), expected);
    assert_status(comet_cuda_stats_see_norm(&c->norm, &c->seen.exec, &c->seen.slot), expected);
    assert_status(comet_cuda_stats_see_silu(&c->silu, &c->seen.exec, &c->seen.slot), expected);
    assert_status(comet_cuda_stats_see_scale(&c->scale, &c->seen.exec, &c->seen.slot), expected);
    if (expected != COMET_OK) {
        void *copy = cuda_block_read(&c->seen.record);
        assert_true(cuda_is_poison(copy, c->seen.record.bytes));
        free(copy);
    }
}

static void test_tensors(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    comet_tensor *x = &c.on_x.tensor;
    const comet_tensor right = *x;
    x->device.kind = COMET_CPU;
    assert_all(&c, COMET_ERROR_UNSUPPORTED);
    *x = right;
    x->dtype = COMET_U8;
    assert_all(&c, COMET_ERROR_UNSUPPORTED);
    *x = right;
    x->device.index = 1;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    *x = right;
    x->data = NULL;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    *x = right;
    x->data = (char *)right.data + 2;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    *x = right;
    x->shape[1] = 0;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    *x = right;
    x->ndim = 1;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    *x = right;
    assert_all(&c, COMET_OK);
    cuda_must(cudaDeviceSynchronize());
    calls_free(&c);
}

static void test_room(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    const cuda_seen right = c.seen;
    c.seen.slot.bytes = 63;
    assert_all(&c, COMET_ERROR_CAPACITY);
    c.seen = right;
    c.seen.slot.record = NULL;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    c.seen = right;
    c.seen.slot.record = (char *)right.slot.record + 8;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    c.seen = right;
    c.seen.exec.workspace = (char *)right.exec.workspace + 8;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    c.seen = right;
    c.seen.exec.workspace_bytes = 8;
    assert_status(comet_cuda_stats_see_layer(&c.layer, &c.seen.exec, &c.seen.slot), COMET_ERROR_CAPACITY);
    assert_status(comet_cuda_stats_see_norm(&c.norm, &c.seen.exec, &c.seen.slot), COMET_ERROR_CAPACITY);
    assert_status(comet_cuda_stats_see_silu(&c.silu, &c.seen.exec, &c.seen.slot), COMET_ERROR_CAPACITY);
    assert_status(comet_cuda_stats_see_scale(&c.scale, NULL, &c.seen.slot), COMET_ERROR_CAPACITY);
    assert_ok(comet_cuda_stats_see_tensor(&c.tensor, NULL, &c.seen.slot)); /* needs no workspace */
    assert_status(comet_cuda_stats_see_tensor(&c.tensor, NULL, NULL), COMET_ERROR_ARGUMENT);
    cuda_must(cudaDeviceSynchronize());
    c.seen = right;
    calls_free(&c);
}

/* What the passes themselves have wrong: the checks are the CPU's. */
static void test_passes(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    c.tensor.result = NULL;
    c.layer.stride[0] = 2; /* dY does not have that shape */
    c.norm.gamma = NULL;
    c.silu.gamma = c.numbers.data; /* without beta */
    c.scale.factors = &c.on_x.tensor;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    passes_new(&c);
    c.tensor.gamma = (const float *)((const char *)c.numbers.data + 2);
    c.layer.weights = c.norm.scale = c.tensor.gamma;
    c.silu.scale = c.silu.gamma = c.silu.beta = c.tensor.gamma;
    c.scale.gradient = NULL;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    passes_new(&c);
    c.tensor.grid = NULL; /* relu without a grid */
    c.layer.what = COMET_STATS_COMMON;
    c.norm.part = 1;
    c.silu.gradient = &c.on_s.tensor;
    c.scale.size = 0;
    assert_all(&c, COMET_ERROR_ARGUMENT);
    calls_free(&c);
}

static void test_needs(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    comet_cuda_stats_needs n = COMET_CUDA_STATS_NEEDS_INIT, unset = {0};
    assert_status(comet_cuda_stats_layer_needs(NULL, &n), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_layer_needs(&c.layer, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_layer_needs(&c.layer, &unset), COMET_ERROR_ARGUMENT);
    c.on_x.tensor.data = NULL; /* not looked at */
    assert_ok(comet_cuda_stats_layer_needs(&c.layer, &n));
    assert_true(n.record_bytes > 0 && n.workspace_bytes > 0);
    calls_free(&c);
}

/* ---- folding ---- */

/* None of them takes it. */
static void assert_no_record(const void *record, size_t bytes) {
    comet_stats_tensor tensor = COMET_STATS_TENSOR_INIT;
    comet_stats_layer layer = COMET_STATS_LAYER_INIT;
    comet_stats_norm of_norm = COMET_STATS_NORM_INIT;
    comet_stats_silu silu = COMET_STATS_SILU_INIT;
    comet_stats_scale scale = COMET_STATS_SCALE_INIT;
    assert_status(comet_cuda_stats_fold_tensor(record, bytes, &tensor), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_fold_layer(record, bytes, &layer), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_fold_norm(record, bytes, &of_norm), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_fold_silu(record, bytes, &silu), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_stats_fold_scale(record, bytes, &scale), COMET_ERROR_ARGUMENT);
    assert_true(tensor.streams == 0 && layer.batches == 0 && of_norm.batches == 0 && silu.batches == 0);
    assert_true(scale.batches == 0);
}

static void test_no_record(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    assert_no_record(NULL, 1 << 20);
    assert_no_record(c.seen.slot.host, c.seen.slot.bytes); /* poison: nothing was copied yet */
    calls_free(&c);
}

#define FOLDS(kind)                                                                                                    \
    static void folds_##kind(calls *c) {                                                                               \
        comet_cuda_stats_needs n = COMET_CUDA_STATS_NEEDS_INIT;                                                        \
        comet_stats_##kind found, unset;                                                                               \
        memset(&unset, 0, sizeof unset);                                                                               \
        memset(&found, 0, sizeof found);                                                                               \
        found.size = sizeof found;                                                                                     \
        assert_ok(comet_cuda_stats_##kind##_needs(&c->kind, &n));                                                      \
        assert_ok(comet_cuda_stats_see_##kind(&c->kind, &c->seen.exec, &c->seen.slot));                                \
        cuda_must(cudaDeviceSynchronize());                                                                            \
        const char *host = c->seen.slot.host;                                                                          \
        for (size_t bytes = 0; bytes < n.record_bytes; bytes += 8)                                                     \
            assert_status(comet_cuda_stats_fold_##kind(host, bytes, &found), COMET_ERROR_ARGUMENT);                    \
        assert_status(comet_cuda_stats_fold_##kind(host, n.record_bytes, NULL), COMET_ERROR_ARGUMENT);                 \
        assert_status(comet_cuda_stats_fold_##kind(host, n.record_bytes, &unset), COMET_ERROR_ARGUMENT);               \
        assert_status(comet_cuda_stats_fold_##kind(host + 4, n.record_bytes, &found), COMET_ERROR_ARGUMENT);           \
        assert_ok(comet_cuda_stats_fold_##kind(host, n.record_bytes, &found));                                         \
        assert_ok(comet_cuda_stats_fold_##kind(host, n.record_bytes, &found)); /* a second batch, as it were */        \
    }
FOLDS(tensor)
FOLDS(layer)
FOLDS(norm)
FOLDS(silu)
FOLDS(scale)
#undef FOLDS

static void test_folding(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    comet_stats_layer layer = COMET_STATS_LAYER_INIT;
    folds_layer(&c);
    folds_norm(&c);
    folds_silu(&c);
    folds_scale(&c);
    folds_tensor(&c);
    assert_status(comet_cuda_stats_fold_layer(c.seen.slot.host, c.seen.slot.bytes, &layer), COMET_ERROR_ARGUMENT);
    calls_free(&c);
}

/* What the codec's result must not be is only found here. */
static void test_stored(void **state) {
    (void)state;
    calls c;
    calls_new(&c);
    const comet_codec_record wrong[] = {{.bound = -1, .stats = {.count = 4}},
                                        {.bound = NAN, .stats = {.count = 4}},
                                        {.bound = 0.1, .stats = {.count = 0}}};
    for (int i = 0; i < 3; i++) {
        comet_stats_tensor found = COMET_STATS_TENSOR_INIT;
        comet_status status;
        cuda_block_write(&c.result, &wrong[i]);
        CUDA_SEE(tensor, &c.tensor, &found, &status);
        assert_int_equal(status, COMET_ERROR_ARGUMENT);
        assert_true(found.streams == 0);
    }
    const comet_codec_record lossless = {.bytes = 3, .stats = {.count = 4}};
    comet_stats_tensor found = COMET_STATS_TENSOR_INIT;
    comet_status status;
    cuda_block_write(&c.result, &lossless);
    CUDA_SEE(tensor, &c.tensor, &found, &status);
    assert_int_equal(status, COMET_OK);
    assert_true(found.streams == 1 && !found.has_alike);
    calls_free(&c);
}

/* Whichever launch or copy fails, the call says so. */
static void test_failures(void **state) {
    (void)state;
#ifdef COMET_CUDA_EMULATION
    calls c;
    calls_new(&c);
#define FAILS(kind)                                                                                                    \
    for (int after = 0;; after++) {                                                                                    \
        emulation_fail_next(cudaErrorLaunchFailure, after);                                                            \
        const comet_status status = comet_cuda_stats_see_##kind(&c.kind, &c.seen.exec, &c.seen.slot);                  \
        emulation_fail_next(cudaSuccess, 0);                                                                           \
        if (status == COMET_OK) {                                                                                      \
            assert_true(after > 2); /* asking for the device, a launch, the copy */                                    \
            break;                                                                                                     \
        }                                                                                                              \
        assert_int_equal(status, COMET_ERROR_DEVICE);                                                                  \
    }
    FAILS(tensor)
    FAILS(layer)
    FAILS(norm)
    FAILS(silu)
    FAILS(scale)
#undef FAILS
    calls_free(&c);
#else
    skip_because("launches do not fail on purpose on a device");
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_room),     cmocka_unit_test(test_passes),
        cmocka_unit_test(test_needs),     cmocka_unit_test(test_folding),  cmocka_unit_test(test_stored),
        cmocka_unit_test(test_no_record), cmocka_unit_test(test_failures),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
