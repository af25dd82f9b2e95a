/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the trainer's CUDA backend that need no library, against the CPU's (support/train/op_case.h). */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <string.h>

#include "support/cuda/cuda_memory.h"
#include "support/effort.h"
#include "support/train/op_case.h"
#include "support/train/op_layer.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"

static const comet_dtype dtypes[] = {COMET_F32, COMET_BF16, COMET_F16};

/* As much of a backend as these ops look at. */
static comet_backend_cuda device;
static comet_backend *reference;

static int set_up(void **state) {
    (void)state;
    cuda_must(cudaStreamCreateWithFlags(&device.queue, cudaStreamNonBlocking));
    assert_ok(comet_cuda_space_new(device.queue, NULL, NULL, &device.space));
    device.base = (comet_backend){.name = "cuda", .space = device.space, .add = comet_cuda_add};
    const comet_op_kernel **k = device.base.kernels;
    k[COMET_OP_RELU] = &comet_cuda_relu;
    k[COMET_OP_SILU] = &comet_cuda_silu;
    k[COMET_OP_SIGMOID] = &comet_cuda_sigmoid;
    k[COMET_OP_ADD] = &comet_cuda_add_op;
    k[COMET_OP_SCALE] = &comet_cuda_scale;
    k[COMET_OP_MAX_POOL] = &comet_cuda_max_pool;
    k[COMET_OP_AVERAGE_POOL] = &comet_cuda_average_pool;
    k[COMET_OP_ADAPTIVE_POOL] = &comet_cuda_adaptive_pool;
    k[COMET_OP_SHORTCUT] = &comet_cuda_shortcut;
    k[COMET_OP_FLATTEN] = &comet_cuda_flatten;
    k[COMET_OP_DROPOUT] = &comet_cuda_dropout;
    k[COMET_OP_STOCHASTIC_DEPTH] = &comet_cuda_stochastic_depth;
    assert_ok(comet_backend_onednn_new(1, NULL, &reference));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    comet_backend_free(reference);
    comet_cuda_space_free(device.space);
    cuda_must(cudaStreamDestroy(device.queue));
    return 0;
}

/* What `how` does not say is exact. */
typedef struct manner {
    op_tolerance forward, backward;
    int odd; /* NaN and infinities occur */
    int has_mask;
} manner;

static op_case case_of(const op_layer *layer, int batch, const manner *how, rng *r) {
    op_case c = {.backend = &device.base,
                 .reference = reference,
                 .build = op_layer_build,
                 .how = layer,
                 .batch = batch,
                 .forward = how->forward,
                 .backward = how->backward,
                 .odd = how->odd && rng_below(r, 3) == 0 ? 8 : 0,
                 .spread = layer->kind == COMET_OP_SILU || layer->kind == COMET_OP_SIGMOID ? 4 : 1,
                 .has_mask = how->has_mask};
    op_case_vary(&c, r);
    return c;
}

static void check(const op_layer *layer, int batch, const manner *how, rng *r) {
    const op_case c = case_of(layer, batch, how, r);
    failure f;
    assert_check(op_case_agrees(&c, &f), f);
}

static void check_kind(comet_op_kind kind, int cases, int most, manner how) {
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int i = 0; i < effort(cases); i++) {
            rng r = rng_seed((uint64_t)(1000 * kind + i));
            const op_layer layer = op_layer_draw(kind, most, &r);
            device.base.dtype = dtypes[d];
            check(&layer, (int)rng_between(&r, 1, 4), &how, &r);
        }
}

/* ---- value by value ---- */

static void test_relu(void **state) {
    (void)state;
    check_kind(COMET_OP_RELU, 16, 9, (manner){.odd = 1, .has_mask = 1});
}

/* On a device 16-bit values are made with its own exponential. The slope of a SiLU has zeros. */
static void test_silu(void **state) {
    (void)state;
    check_kind(COMET_OP_SILU, 12, 9, (manner){.forward = {48, 0}, .backward = {48, 16}});
}

static void test_sigmoid(void **state) {
    (void)state;
    check_kind(COMET_OP_SIGMOID, 12, 9, (manner){.forward = {48, 0}});
}

static void test_add(void **state) {
    (void)state;
    check_kind(COMET_OP_ADD, 12, 9, (manner){.odd = 1});
}

/* More than a block, and a block that lacks the last of its vectors. */
static void test_many_values(void **state) {
    static const comet_shape shapes[] = {{17, 15, 35}, {11, 6, 31}};
    static const comet_op_kind kinds[] = {COMET_OP_RELU, COMET_OP_ADD, COMET_OP_DROPOUT, COMET_OP_STOCHASTIC_DEPTH};
    (void)state;
    for (size_t k = 0; k < 2 * sizeof kinds / sizeof *kinds; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            rng r = rng_seed(k);
            const op_layer layer = {.kind = kinds[k / 2], .in = shapes[k % 2], .probability = 0.4f};
            device.base.dtype = dtypes[d];
            check(&layer, 2, &(manner){.has_mask = layer.kind == COMET_OP_RELU}, &r);
        }
}

/* The step's own sums: into either of the two, from any address. */
static void check_sum(comet_dtype dtype, int over, int64_t skip) {
    enum { COUNT = 1003 };
    const size_t size = comet_dtype_size(dtype);
    unsigned char zeros[COUNT * 4] = {0}, ones[COUNT * 4], got[COUNT * 4];
    void *memory[2];
    comet_space *space = device.space;
    for (int64_t i = 0; i < COUNT * (int64_t)size; i += (int64_t)size) /* 1 in each dtype */
        memcpy(ones + i,
               dtype == COMET_F32    ? (const char *)&(float){1}
               : dtype == COMET_BF16 ? (const char *)&(uint16_t){0x3f80}
                                     : (const char *)&(uint16_t){0x3c00},
               size);
    for (int k = 0; k < 2; k++)
        assert_ok(space->take(space, COUNT * size, &memory[k]));
    assert_ok(space->write(space, memory[0], zeros, COUNT * size));
    assert_ok(space->write(space, memory[1], ones, COUNT * size));
    char *x = (char *)memory[0] + skip * (int64_t)size, *y = (char *)memory[1] + skip * (int64_t)size;
    assert_ok(comet_cuda_add(&device.base, over ? y : x, x, y, COUNT - skip));
    assert_ok(space->read(space, got, memory[over], COUNT * size));
    assert_memory_equal(got, over ? ones : zeros, (size_t)skip * size);
    assert_memory_equal(got + (size_t)skip * size, ones, (size_t)(COUNT - skip) * size);
    for (int k = 0; k < 2; k++)
        space->give(space, memory[k], COUNT * size);
}

static void test_sums(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int k = 0; k < 4; k++) {
            device.base.dtype = dtypes[d];
            check_sum(dtypes[d], k & 1, k >> 1);
        }
}

/* ---- channels ---- */

static void test_scale(void **state) {
    (void)state;
    check_kind(COMET_OP_SCALE, 20, 9, (manner){.backward = {2, 8}});
}

/* Maps that several blocks share, in chunks. */
static void test_large_maps(void **state) {
    static const comet_op_kind kinds[] = {COMET_OP_SCALE, COMET_OP_ADAPTIVE_POOL};
    static const comet_shape shapes[] = {{41, 31, 3}, {29, 37, 8}, {24, 25, 40}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
                rng r = rng_seed(10 * k + s);
                const op_layer layer = {.kind = kinds[k], .in = shapes[s], .height = 1, .width = 1};
                device.base.dtype = dtypes[d];
                check(&layer, 2, &(manner){.forward = {2, k ? 8 : 0}, .backward = {2, k ? 0 : 8}}, &r);
            }
}

/* ---- pooling ---- */

static void test_max_pool(void **state) {
    (void)state;
    check_kind(COMET_OP_MAX_POOL, 40, 11, (manner){.odd = 1});
}

/* Places of 8 and of 16 bits. */
static void test_wide_max_pool(void **state) {
    static const int kernels[] = {1, 4, 6, 17}, channels[] = {8, 11};
    (void)state;
    for (int k = 0; k < 8; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            rng r = rng_seed((uint64_t)k);
            const op_layer layer = {.kind = COMET_OP_MAX_POOL,
                                    .in = {19, 18, channels[k % 2]},
                                    .pool = {kernels[k / 2], k / 2 == 3 ? 3 : 2, kernels[k / 2] / 2, 1, 0}};
            device.base.dtype = dtypes[d];
            check(&layer, 1, &(manner){.odd = 1}, &r);
        }
}

static void test_average_pool(void **state) {
    (void)state;
    check_kind(COMET_OP_AVERAGE_POOL, 40, 11, (manner){.forward = {2, 4}});
}

/* Windows that reach over the padding, and over what rounding up adds behind it. */
static void test_pool_ends(void **state) {
    static const comet_pool2d pools[] = {
        {2, 2, 0, 0, 0}, {3, 2, 1, 0, 0}, {4, 3, 2, 0, 0}, {5, 3, 2, 0, 0}, {2, 3, 1, 0, 0}};
    (void)state;
    for (int i = 0; i < 5 * 4 * 2 * 3; i++) {
        rng r = rng_seed((uint64_t)i);
        op_layer layer = {.kind = i / 20 % 2 ? COMET_OP_AVERAGE_POOL : COMET_OP_MAX_POOL,
                          .in = {(int)rng_between(&r, 5, 9), (int)rng_between(&r, 5, 9), i % 3 ? 8 : 5},
                          .pool = pools[i % 5]};
        layer.pool.ceil_mode = i / 5 & 1;
        layer.pool.count_padding = i / 10 & 1;
        device.base.dtype = dtypes[i / 40];
        check(&layer, 2, &(manner){.forward = {i / 20 % 2 ? 2 : 0, i / 20 % 2 ? 4 : 0}}, &r);
    }
}

/* A window that is the map. */
static void test_whole_average(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int channels = 7; channels < 9; channels++) {
            rng r = rng_seed((uint64_t)channels);
            const op_layer layer = {
                .kind = COMET_OP_AVERAGE_POOL, .in = {8, 8, channels}, .pool = {.kernel = 8, .stride = 8}};
            device.base.dtype = dtypes[d];
            check(&layer, 3, &(manner){.forward = {2, 4}}, &r);
        }
}

static void test_adaptive_pool(void **state) {
    (void)state;
    check_kind(COMET_OP_ADAPTIVE_POOL, 40, 11, (manner){.forward = {2, 4}});
}

/* ---- what moves, what is dropped ---- */

static void test_shortcut(void **state) {
    (void)state;
    check_kind(COMET_OP_SHORTCUT, 24, 9, (manner){.odd = 1});
}

static void test_flatten(void **state) {
    (void)state;
    check_kind(COMET_OP_FLATTEN, 24, 9, (manner){.odd = 1});
}

static void test_dropout(void **state) {
    (void)state;
    check_kind(COMET_OP_DROPOUT, 24, 7, (manner){.odd = 0});
}

/* A rank whose first value is any of the four that a counter is for. */
static void test_dropout_of_ranks(void **state) {
    (void)state;
    for (int i = 0; i < 24; i++) {
        rng r = rng_seed((uint64_t)i);
        const op_layer layer = {.kind = COMET_OP_DROPOUT, .in = {3, 5, i % 2 ? 7 : 9}, .probability = 0.6f};
        failure f;
        device.base.dtype = dtypes[i / 8];
        op_case c = case_of(&layer, 2, &(manner){.odd = 0}, &r);
        c.first_sample = i % 8 ? i % 8 : (int64_t)1 << 36;
        assert_check(op_case_agrees(&c, &f), f);
    }
}

static void test_stochastic_depth(void **state) {
    (void)state;
    check_kind(COMET_OP_STOCHASTIC_DEPTH, 24, 7, (manner){.odd = 0});
}

/* Evaluation drops nothing. */
static void test_evaluation(void **state) {
    static const comet_op_kind kinds[] = {COMET_OP_DROPOUT, COMET_OP_STOCHASTIC_DEPTH, COMET_OP_MAX_POOL};
    (void)state;
    for (int i = 0; i < 9; i++) {
        rng r = rng_seed((uint64_t)i);
        const op_layer layer = op_layer_draw(kinds[i % 3], 6, &r);
        failure f;
        device.base.dtype = dtypes[i / 3];
        op_case c = case_of(&layer, 2, &(manner){.odd = 0}, &r);
        c.evaluation = 1;
        assert_check(op_case_agrees(&c, &f), f);
    }
}

int main(void) {
    if (cuda_skip())
        return cuda_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relu),
                                       cmocka_unit_test(test_silu),
                                       cmocka_unit_test(test_sigmoid),
                                       cmocka_unit_test(test_add),
                                       cmocka_unit_test(test_many_values),
                                       cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_scale),
                                       cmocka_unit_test(test_large_maps),
                                       cmocka_unit_test(test_max_pool),
                                       cmocka_unit_test(test_wide_max_pool),
                                       cmocka_unit_test(test_average_pool),
                                       cmocka_unit_test(test_whole_average),
                                       cmocka_unit_test(test_pool_ends),
                                       cmocka_unit_test(test_dropout_of_ranks),
                                       cmocka_unit_test(test_adaptive_pool),
                                       cmocka_unit_test(test_shortcut),
                                       cmocka_unit_test(test_flatten),
                                       cmocka_unit_test(test_dropout),
                                       cmocka_unit_test(test_stochastic_depth),
                                       cmocka_unit_test(test_evaluation)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
