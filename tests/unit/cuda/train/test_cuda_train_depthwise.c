/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions by our own kernels: with whole numbers, where all sums are exact, against plain loops, and
 * with random values as an op against the CPU's (support/train/op_case.h).
 */
#include "cuda_train_bench.h"

#include "support/effort.h"
#include "support/train/op_case.h"
#include "support/train/op_layer.h"
#include "train/backend/cuda/kernels/depthwise/depthwise.h"

/* ---- whole numbers ---- */

static comet_cuda_depthwise shape_of(comet_dtype dtype, int batch, int height, int width, int channels, int kernel,
                                     int stride, int padding, int padding_width) {
    return (comet_cuda_depthwise){.dtype = dtype,
                                  .batch = batch,
                                  .height = height,
                                  .width = width,
                                  .channels = channels,
                                  .out_height = (height + 2 * padding - kernel) / stride + 1,
                                  .out_width = (width + 2 * padding_width - kernel) / stride + 1,
                                  .kernel = kernel,
                                  .kernel_width = kernel,
                                  .stride = stride,
                                  .padding = padding,
                                  .padding_width = padding_width};
}

static int64_t x_count(const comet_cuda_depthwise *c) {
    return (int64_t)c->batch * c->height * c->width * c->channels;
}

static int64_t y_count(const comet_cuda_depthwise *c) {
    return (int64_t)c->batch * c->out_height * c->out_width * c->channels;
}

static int64_t w_count(const comet_cuda_depthwise *c) {
    return (int64_t)c->channels * c->kernel * c->kernel;
}

/* -3 .. 3: a sum of 25 products is exact in 8 bits. */
static train_values whole_numbers(comet_dtype dtype, int64_t count, rng *r) {
    train_values v = train_values_new(dtype, count);
    for (int64_t i = 0; i < count; i++)
        train_values_set(&v, dtype, i, (double)rng_between(r, -3, 3));
    return v;
}

typedef struct expected {
    float *y, *dx, *dw;
} expected;

static void *zeros(int64_t count) {
    void *memory = calloc((size_t)count, sizeof(float));
    assert_non_null(memory);
    return memory;
}

static void expect_pixel(const expected *e, const comet_cuda_depthwise *c, int64_t at, const int y[3], const float *x,
                         const float *w, const float *dy) {
    for (int i = 0; i < c->kernel * c->kernel; i++) {
        const int row = y[1] * c->stride - c->padding + i / c->kernel;
        const int column = y[2] * c->stride - c->padding_width + i % c->kernel;
        if (row < 0 || row >= c->height || column < 0 || column >= c->width)
            continue;
        const int64_t from = (((int64_t)y[0] * c->height + row) * c->width + column) * c->channels;
        for (int k = 0; k < c->channels; k++) {
            const int64_t weight = (int64_t)k * c->kernel * c->kernel + i;
            e->y[at + k] += x[from + k] * w[weight];
            e->dx[from + k] += dy[at + k] * w[weight];
            e->dw[weight] += dy[at + k] * x[from + k];
        }
    }
}

static expected expect(const comet_cuda_depthwise *c, const float *x, const float *w, const float *dy) {
    const expected e = {zeros(y_count(c)), zeros(x_count(c)), zeros(w_count(c))};
    for (int64_t pixel = 0; pixel < (int64_t)c->batch * c->out_height * c->out_width; pixel++) {
        const int64_t line = pixel / c->out_width;
        expect_pixel(&e, c, pixel * c->channels,
                     (int[]){(int)(line / c->out_height), (int)(line % c->out_height), (int)(pixel % c->out_width)}, x,
                     w, dy);
    }
    return e;
}

static void check_equal(const char *what, const comet_cuda_depthwise *c, comet_dtype dtype, const train_bench *b,
                        const cuda_block *block, const float *wanted, int64_t count) {
    void *found = train_read(b, block);
    for (int64_t i = 0; i < count; i++)
        if ((double)value_at(dtype, found, i) != (double)wanted[i])
            fail_msg("%s[%lld of %lld] is %g, not %g: %s, %d x %d x %d x %d, kernel %d, stride %d, padding %d and %d",
                     what, (long long)i, (long long)count, (double)value_at(dtype, found, i), (double)wanted[i],
                     comet_dtype_name(c->dtype), c->batch, c->height, c->width, c->channels, c->kernel, c->stride,
                     c->padding, c->padding_width);
    free(found);
    assert_true(cuda_block_is_intact(block));
}

/* Written over NaN, then added to itself. */
static void check_by_filter(const comet_cuda_depthwise *c, const train_bench *b, const cuda_block *x,
                            const cuda_block *dy, const expected *e) {
    cuda_block scratch = cuda_block_new(comet_cuda_depthwise_bytes(c), NULL);
    cuda_block dw = cuda_block_new((size_t)w_count(c) * sizeof(float), NULL);
    cuda_must(cudaMemsetAsync(dw.data, 0xff, dw.bytes, b->cuda.queue));
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        cuda_must(
            comet_cuda_depthwise_by_filter(c, x->data, dy->data, dw.data, accumulate, scratch.data, b->cuda.queue));
        check_equal(accumulate ? "dw, added" : "dw", c, COMET_F32, b, &dw, e->dw, w_count(c));
        for (int64_t i = 0; i < w_count(c); i++)
            e->dw[i] *= 2;
    }
    assert_true(cuda_block_is_intact(&scratch));
    cuda_block_free(&scratch);
    cuda_block_free(&dw);
}

static void check_shape(const train_bench *b, const comet_cuda_depthwise *c, rng *r) {
    train_values x = whole_numbers(c->dtype, x_count(c), r), dy = whole_numbers(c->dtype, y_count(c), r),
                 w = whole_numbers(c->dtype, w_count(c), r);
    const expected e = expect(c, x.values, w.values, dy.values);
    cuda_block in = cuda_block_new(x.bytes, x.patterns), grad = cuda_block_new(dy.bytes, dy.patterns),
               filter = cuda_block_new(w.bytes, w.patterns), y = cuda_block_new(dy.bytes, NULL);
    assert_true(comet_cuda_depthwise_takes(c));
    cuda_must(cudaMemsetAsync(y.data, 0xff, y.bytes, b->cuda.queue));
    cuda_must(comet_cuda_depthwise_forward(c, in.data, filter.data, y.data, b->cuda.queue));
    check_equal("y", c, c->dtype, b, &y, e.y, y_count(c));
    check_by_filter(c, b, &in, &grad, &e);
    cuda_must(cudaMemsetAsync(in.data, 0xff, in.bytes, b->cuda.queue)); /* dx lies over x */
    cuda_must(comet_cuda_depthwise_by_input(c, grad.data, filter.data, in.data, b->cuda.queue));
    check_equal("dx", c, c->dtype, b, &in, e.dx, x_count(c));
    cuda_block *const blocks[] = {&in, &grad, &filter, &y};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        cuda_block_free(blocks[i]);
    train_values_free(&x);
    train_values_free(&dy);
    train_values_free(&w);
    free(e.y);
    free(e.dx);
    free(e.dw);
}

static const comet_dtype types[] = {COMET_F32, COMET_BF16, COMET_F16};
enum { TYPES = sizeof types / sizeof *types };

/* Batch, height, width, channels, kernel, stride, padding down and right. */
static const int shapes[][8] = {
    {1, 1, 1, 8, 3, 1, 1, 1},   {1, 1, 1, 16, 5, 2, 2, 2},  {2, 2, 3, 8, 5, 1, 4, 3},    {1, 4, 5, 8, 3, 2, 0, 2},
    {3, 7, 7, 32, 5, 1, 2, 2},  {4, 7, 7, 64, 3, 1, 1, 1},  {2, 14, 13, 48, 5, 2, 2, 2}, /* several images a block */
    {2, 70, 9, 16, 3, 1, 1, 1}, {1, 67, 6, 8, 5, 2, 2, 2},  {1, 33, 4, 8, 5, 1, 2, 1},   /* bands */
    {1, 135, 5, 8, 3, 2, 1, 0}, {2, 66, 3, 8, 5, 2, 1, 4},                               /* of dx, too */
    {1, 5, 90, 64, 3, 1, 1, 1}, {1, 5, 83, 64, 5, 2, 2, 2}, {1, 6, 120, 32, 5, 1, 0, 0}, /* tiles of columns */
    {2, 6, 7, 296, 3, 1, 1, 1}, {1, 6, 5, 144, 5, 2, 2, 2},                              /* chunks, some not full */
    {797, 2, 2, 8, 3, 1, 1, 1},                                                          /* a block has many items */
};

static void test_whole_numbers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < TYPES; t++) {
            const int *s = shapes[i];
            train_bench *b = train_bench_new(types[t], i);
            const comet_cuda_depthwise c = shape_of(types[t], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
            check_shape(b, &c, &b->r);
            train_bench_free(b);
        }
}

static void test_random_shapes(void **state) {
    (void)state;
    for (int i = 0; i < effort(60); i++) {
        rng r = rng_seed((uint64_t)i);
        const int kernel = i % 2 ? 5 : 3, least = kernel;
        const int down = (int)rng_below(&r, (uint64_t)kernel), right = (int)rng_below(&r, (uint64_t)kernel);
        const comet_cuda_depthwise c = shape_of(types[i % TYPES], (int)rng_between(&r, 1, 4),
                                                (int)rng_between(&r, least, 18), (int)rng_between(&r, least, 18),
                                                8 * (int)rng_between(&r, 1, 9), kernel, 1 + i / 2 % 2, down, right);
        train_bench *b = train_bench_new(c.dtype, 1);
        check_shape(b, &c, &r);
        train_bench_free(b);
    }
}

static void test_takes(void **state) {
    (void)state;
    comet_cuda_depthwise c = shape_of(COMET_BF16, 2, 7, 7, 24, 3, 1, 1, 1);
    assert_true(comet_cuda_depthwise_takes(&c));
    c.channels = 12;
    assert_false(comet_cuda_depthwise_takes(&c));
    c.dtype = COMET_F32;
    assert_true(comet_cuda_depthwise_takes(&c));
    c.stride = 3;
    assert_false(comet_cuda_depthwise_takes(&c));
    c.stride = 1;
    c.kernel_width = 5;
    assert_false(comet_cuda_depthwise_takes(&c));
    c = shape_of(COMET_F32, 2, 9, 9, 24, 7, 1, 3, 3);
    assert_false(comet_cuda_depthwise_takes(&c));
    c = shape_of(COMET_F32, 1, 16384, 4096, 4, 3, 1, 1, 1); /* 1 GiB */
    assert_true(comet_cuda_depthwise_takes(&c));
    c = shape_of(COMET_F32, 1, 16385, 4096, 4, 3, 1, 1, 1);
    assert_false(comet_cuda_depthwise_takes(&c));
    c = shape_of(COMET_F32, 1 << 27, 16, 4, 4, 3, 1, 1, 1); /* rows are counted in 31 bits */
    assert_false(comet_cuda_depthwise_takes(&c));
}

/* ---- the op ---- */

static comet_status begin(comet_backend *backend, const comet_graph *g) {
    return comet_cuda_weights_begin((comet_backend_cuda *)backend, g);
}

/* What rounding leaves of sums of 25 in another order; with a bias y is rounded before it is added, too. */
static op_tolerance of_forward(comet_dtype dtype, const comet_conv2d *c) {
    const double once = dtype == COMET_F32 ? 0 : dtype == COMET_BF16 ? 0x1p16 : 0x1p13;
    return (op_tolerance){8, 8 + (c->bias ? once : 0)};
}

/* Gradients of filters are sums of some hundred. */
static void check_op(train_bench *b, comet_backend *reference, const op_layer *layer, rng *r) {
    failure f;
    op_case c = {.backend = &b->cuda.base,
                 .reference = reference,
                 .build = op_layer_build,
                 .how = layer,
                 .batch = (int)rng_between(r, 1, 4),
                 .forward = of_forward(b->cuda.base.dtype, &layer->conv),
                 .backward = {8, 8},
                 .gradients = {16, 16}};
    op_case_vary(&c, r);
    assert_check(op_case_agrees(&c, &f), f);
}

static op_layer draw_layer(int i, rng *r) {
    const int kernel = i % 2 ? 5 : 3, channels = 8 * (int)rng_between(r, 1, 5);
    return (op_layer){.kind = COMET_OP_CONV,
                      .in = {(int)rng_between(r, 5, 14), (int)rng_between(r, 5, 14), channels},
                      .conv = {.out = channels,
                               .kernel = kernel,
                               .stride = 1 + i / 2 % 2,
                               .padding = (int)rng_below(r, (uint64_t)kernel),
                               .padding_width = (int)rng_below(r, (uint64_t)kernel),
                               .groups = channels,
                               .bias = (int)rng_below(r, 2)}};
}

static void test_op(void **state) {
    comet_backend *reference;
    (void)state;
    assert_ok(comet_backend_onednn_new(1, NULL, &reference));
    for (int t = 0; t < TYPES; t++) {
        train_bench *b = train_bench_new(types[t], 1);
        b->cuda.base.kernels[COMET_OP_CONV] = &comet_cuda_conv; /* cuDNN is not there and not asked for */
        b->cuda.base.begin = begin;
        for (int i = 0; i < effort(12); i++) {
            rng r = rng_seed((uint64_t)(100 * t + i));
            const op_layer layer = draw_layer(i, &r);
            check_op(b, reference, &layer, &r);
        }
        train_bench_free(b);
    }
    comet_backend_free(reference);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_random_shapes),
                                       cmocka_unit_test(test_takes), cmocka_unit_test(test_op)};
    return cuda_skip() ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
