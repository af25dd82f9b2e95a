/* SPDX-License-Identifier: Apache-2.0 */
/* The loss on a device against the CPU's, of logits that both have exactly. */
#include "cuda_train_bench.h"

typedef struct loss_case {
    int batch, classes;
    float smoothing, scale;
} loss_case;

/* Logits, some of them equal, and labels. */
typedef struct batch {
    train_values logits;
    int32_t *labels;
    float *expected; /* dlogits */
    comet_loss_call cpu;
} batch;

static batch batch_new(train_bench *b, const loss_case *c) {
    const comet_dtype dtype = b->cuda.base.dtype;
    batch n = {.logits = train_values_new(dtype, (int64_t)c->batch * c->classes),
               .labels = take((size_t)c->batch * sizeof(int32_t)),
               .expected = take((size_t)c->batch * (size_t)c->classes * sizeof(float))};
    for (int64_t i = 0; i < n.logits.count; i++)
        train_values_set(&n.logits, dtype, i,
                         rng_below(&b->r, 3) ? rng_gauss(&b->r) * 3 : (double)rng_between(&b->r, -2, 6));
    for (int i = 0; i < c->batch; i++)
        n.labels[i] = (int32_t)rng_below(&b->r, (uint64_t)c->classes);
    n.cpu = (comet_loss_call){.backend = &b->cpu,
                              .batch = c->batch,
                              .classes = c->classes,
                              .logits = n.logits.values,
                              .labels = n.labels,
                              .smoothing = c->smoothing,
                              .gradient_scale = c->scale,
                              .dlogits = n.expected};
    return n;
}

static void batch_free(batch *n) {
    train_values_free(&n->logits);
    free(n->labels);
    free(n->expected);
}

static double unit_of(comet_dtype dtype) { /* of rounding, relative */
    return dtype == COMET_F32 ? 0x1p-24 : dtype == COMET_F16 ? 0x1p-11 : 0x1p-8;
}

/* fp16 has a least step. The expected values have been rounded to fp32, and exp may be one bit off. */
static void expect_gradient(comet_dtype dtype, const void *found, const float *expected, int64_t count) {
    const double least = dtype == COMET_F16 ? 0x1p-25 : 0x1p-150;
    for (int64_t i = 0; i < count; i++) {
        const double f = (double)value_at(dtype, found, i), e = (double)expected[i];
        if (isnan(e) ? !isnan(f) : !(fabs(f - e) <= fabs(e) * (unit_of(dtype) + 0x1p-23) + least))
            fail_msg("dlogits %lld is %g, expected %g", (long long)i, f, e);
    }
}

static void expect_loss(const comet_loss_call *found, const comet_loss_call *expected) {
    assert_int_equal(found->top1, expected->top1);
    assert_int_equal(found->top5, expected->top5);
    if (isnan(expected->loss))
        assert_true(isnan(found->loss));
    else if (!(found->loss == expected->loss || fabs(found->loss - expected->loss) <= 1e-13 * fabs(expected->loss)))
        fail_msg("the loss is %.17g, expected %.17g", found->loss, expected->loss);
}

/* Both ways, with a gradient and without. */
static void compare(train_bench *b, batch *n) {
    const comet_dtype dtype = b->cuda.base.dtype;
    cuda_block logits = cuda_block_new(n->logits.bytes, n->logits.patterns);
    cuda_block gradient = cuda_block_new(n->logits.bytes, NULL);
    comet_loss_call call = n->cpu, without;
    assert_ok(comet_cpu_loss(&n->cpu));
    call.backend = &b->cuda.base;
    call.logits = logits.data;
    call.dlogits = gradient.data;
    call.loss = -7, call.top1 = call.top5 = -7;
    assert_ok(comet_cuda_loss(&call));
    expect_loss(&call, &n->cpu);
    void *found = train_read(b, &gradient);
    expect_gradient(dtype, found, n->expected, n->logits.count);
    free(found);
    without = call;
    without.dlogits = NULL;
    assert_ok(comet_cuda_loss(&without));
    assert_memory_equal(&without.loss, &call.loss, sizeof call.loss); /* the same bits */
    /* Over the logits themselves. */
    call.dlogits = logits.data;
    assert_ok(comet_cuda_loss(&call));
    expect_loss(&call, &n->cpu);
    found = train_read(b, &logits);
    expect_gradient(dtype, found, n->expected, n->logits.count);
    free(found);
    assert_true(cuda_block_is_intact(&logits) && cuda_block_is_intact(&gradient));
    cuda_block_free(&logits);
    cuda_block_free(&gradient);
}

static void test_shapes(void **state) {
    static const loss_case cases[] = {{1, 1, 0, 1},   {3, 2, 0.1f, 1},       {7, 10, 0, 0.25f},
                                      {301, 5, 0, 1}, {5, 1003, 0.1f, 1.0f}, {9, 257, 1.0f, 3}};
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        train_bench *b = train_bench_new(dtypes[d], 3 + d);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            batch n = batch_new(b, &cases[i]);
            compare(b, &n);
            batch_free(&n);
        }
        train_bench_free(b);
    }
}

/* Of equal logits the first class comes first: a label at each place of a row of equals. */
static void test_ties(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        train_bench *b = train_bench_new(dtypes[d], 5);
        batch n = batch_new(b, &(loss_case){12, 12, 0, 1});
        for (int i = 0; i < 12; i++) {
            n.labels[i] = i;
            for (int k = 0; k < 12; k++)
                train_values_set(&n.logits, dtypes[d], 12 * i + k, k == 3 ? 1.5 : 0.5);
        }
        compare(b, &n);
        assert_int_equal(n.cpu.top1, 1);
        assert_int_equal(n.cpu.top5, 5);
        batch_free(&n);
        train_bench_free(b);
    }
}

static void test_not_finite(void **state) {
    const double bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (int kind = 0; kind < 3; kind++)
            for (int place = 0; place < 2; place++) { /* of the label, and not */
                train_bench *b = train_bench_new(dtypes[d], 11);
                batch n = batch_new(b, &(loss_case){3, 300, 0.1f, 1});
                train_values_set(&n.logits, dtypes[d], 300 + (n.labels[1] + 299 * place) % 300, bad[kind]);
                compare(b, &n);
                batch_free(&n);
                train_bench_free(b);
            }
}

static void test_labels(void **state) {
    (void)state;
    train_bench *b = train_bench_new(COMET_F32, 5);
    batch n = batch_new(b, &(loss_case){4, 6, 0, 1});
    const int32_t wrong[] = {-1, 6, INT32_MAX, INT32_MIN};
    cuda_block logits = cuda_block_new(n.logits.bytes, n.logits.patterns);
    for (int i = 0; i < 4; i++) {
        comet_loss_call call = n.cpu;
        const int32_t kept = n.labels[i];
        call.backend = &b->cuda.base;
        call.logits = logits.data;
        call.dlogits = NULL;
        n.labels[i] = wrong[i];
        assert_status(comet_cuda_loss(&call), COMET_ERROR_ARGUMENT);
        n.labels[i] = kept;
        assert_ok(comet_cuda_loss(&call));
    }
    cuda_block_free(&logits);
    batch_free(&n);
    train_bench_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_not_finite), cmocka_unit_test(test_labels)};
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
