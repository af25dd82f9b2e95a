/* SPDX-License-Identifier: Apache-2.0 */
/* The backend's statistics of uses against the CPU's: here that they are asked for, awaited and folded rightly. */
#include "cuda_train_bench.h"

#include "support/cuda/cuda_stats.h"

static const double NEAR = 1e-6, NEAR_DIFFERENCE = 1e-5;
static const comet_stats_exec nothing = COMET_STATS_EXEC_INIT;

/* All fields of a struct are doubles behind its size, but for some at the end. */
static void expect_near(const void *found, const void *expected, int fields, double near) {
    const double *f = (const double *)((const char *)found + sizeof(size_t));
    const double *e = (const double *)((const char *)expected + sizeof(size_t));
    for (int i = 0; i < fields; i++)
        if (!(fabs(f[i] - e[i]) <= near * fabs(e[i])))
            fail_msg("field %d is %.9g, expected %.9g", i, f[i], e[i]);
}

static void expect_alike(const comet_stats_alike *found, const comet_stats_alike *expected) {
    for (int i = 0; i < COMET_STATS_OFFSETS; i++)
        if (!(fabs(found->part[i] - expected->part[i]) <= 1e-5))
            fail_msg("offset %d is %.9g, expected %.9g", i, found->part[i], expected->part[i]);
}

/* ---- layers ---- */

/* The convolution's weights are written through the space, which keeps them in its own order. */
static void test_layers(void **state) {
    (void)state;
    for (int round = 0; round < 12; round++) {
        const comet_dtype dtype = dtypes[round % 3];
        train_bench *b = train_bench_new(dtype, 40 + (uint64_t)round);
        conv v = conv_new(&b->r, 3);
        const int64_t fan_in = fan_in_of(&v), count = v.dy.channels * fan_in;
        const int64_t shape[4] = {v.dy.channels, v.x.channels / v.groups, v.kernel[0], v.kernel[1]};
        batch_round(&v.x, dtype);
        batch_round(&v.dy, dtype);
        laid x = lay(&v.x, ROWS), dy = lay(&v.dy, ROWS);
        cuda_laid cuda_x = cuda_lay(&v.x, ROWS, dtype), cuda_dy = cuda_lay(&v.dy, ROWS, dtype);
        float *weights = NULL;
        comet_space *space = b->cuda.space;
        assert_ok(space->take(space, (size_t)count * 4, (void **)&weights));
        assert_ok(space->arrange(space, weights, shape));
        assert_ok(space->write(space, weights, v.weights, (size_t)count * 4));
        comet_layer_pass cpu = conv_pass(&v, &x.tensor, &dy.tensor);
        comet_layer_pass cuda = conv_pass(&v, &cuda_x.tensor, &cuda_dy.tensor);
        cuda.weights = weights;
        comet_stats_layer expected = COMET_STATS_LAYER_INIT, found = COMET_STATS_LAYER_INIT;
        for (int update = 0; update < 2; update++) { /* the second batch is added */
            SEE(layer, &cpu, NULL, &expected);
            assert_ok(comet_cuda_statistics.see_layer(&b->cuda.base, &cuda, &nothing, &found));
            assert_near(found.batches, (double)update, 0); /* not yet */
            assert_ok(comet_cuda_statistics.settle(&b->cuda.base, 1));
            expect_near(&found, &expected, 5, NEAR);
            assert_near(found.input_squares, expected.input_squares, NEAR);
            assert_near(found.input_variances, expected.input_variances, NEAR_DIFFERENCE);
            assert_near(found.common_squares, expected.common_squares, NEAR_DIFFERENCE);
            expect_alike(&found.gradient, &expected.gradient);
        }
        cuda_must(cudaStreamSynchronize(b->cuda.queue));
        space->give(space, weights, (size_t)count * 4);
        cuda_block_free(&cuda_x.block);
        cuda_block_free(&cuda_dy.block);
        free(x.memory);
        free(dy.memory);
        conv_free(&v);
        train_bench_free(b);
    }
}

/* ---- norms, SiLUs, scales ---- */

typedef struct norm_side {
    train_bench *b;
    norm n;
    comet_dtype dtype;
    laid x, dy;
    cuda_laid cuda_x, cuda_dy;
    cuda_block scale, shift, gamma, beta;
} norm_side;

static norm_side norm_side_new(comet_dtype dtype, uint64_t seed, int64_t images) {
    norm_side s = {.b = train_bench_new(dtype, seed), .dtype = dtype};
    s.n = norm_new(&s.b->r, images);
    batch_round(&s.n.x, dtype);
    batch_round(&s.n.dy, dtype);
    s.x = lay(&s.n.x, ROWS), s.dy = lay(&s.n.dy, ROWS);
    s.cuda_x = cuda_lay(&s.n.x, ROWS, dtype), s.cuda_dy = cuda_lay(&s.n.dy, ROWS, dtype);
    s.scale = cuda_table(s.n.scale, s.n.x.channels), s.shift = cuda_table(s.n.shift, s.n.x.channels);
    s.gamma = cuda_table(s.n.gamma, s.n.x.channels), s.beta = cuda_table(s.n.beta, s.n.x.channels);
    return s;
}

static void norm_side_free(norm_side *s) {
    cuda_block *blocks[] = {&s->cuda_x.block, &s->cuda_dy.block, &s->scale, &s->shift, &s->gamma, &s->beta};
    cuda_must(cudaStreamSynchronize(s->b->cuda.queue));
    for (int i = 0; i < 6; i++)
        cuda_block_free(blocks[i]);
    free(s->x.memory);
    free(s->dy.memory);
    norm_free(&s->n);
    train_bench_free(s->b);
}

/* Image `first` and those behind it. */
static comet_tensor part_of(comet_tensor t, int64_t first, int64_t images) {
    t.data = (char *)t.data + (size_t)(first * t.strides[0]) * comet_dtype_size(t.dtype);
    t.shape[0] = images;
    return t;
}

static void see_norm_in_parts(norm_side *s, int parts, comet_stats_norm *expected, comet_stats_norm *found) {
    const int64_t images = s->n.x.images / parts;
    comet_norm_pass whole = norm_pass(&s->n, &s->x.tensor, &s->dy.tensor);
    whole.relu = 1;
    whole.shift = s->n.shift;
    SEE(norm, &whole, NULL, expected);
    for (int part = 0; part < parts; part++) {
        comet_tensor x = part_of(s->cuda_x.tensor, part * images, images);
        comet_tensor dy = part_of(s->cuda_dy.tensor, part * images, images);
        comet_norm_pass p = norm_pass(&s->n, &x, &dy);
        comet_stats_scale scale = COMET_STATS_SCALE_INIT;
        comet_tensor factors = part_of(s->cuda_x.tensor, 0, s->n.x.images);
        p.scale = s->scale.data, p.shift = s->shift.data, p.gamma = s->gamma.data, p.beta = s->beta.data;
        p.relu = 1;
        p.part = part, p.parts = parts;
        assert_ok(comet_cuda_statistics.see_norm(&s->b->cuda.base, &p, &nothing, found));
        /* Others come in between. */
        factors.shape[1] = factors.shape[2] = 1;
        const comet_scale_pass other = {sizeof other, &factors, &s->cuda_dy.tensor};
        (void)comet_cuda_statistics.see_scale(&s->b->cuda.base, &other, &nothing, &scale);
        assert_ok(comet_cuda_statistics.settle(&s->b->cuda.base, 1));
    }
}

static void test_norms(void **state) {
    (void)state;
    for (int round = 0; round < 9; round++) {
        const int parts = round % 2 ? 3 : 1;
        norm_side s = norm_side_new(dtypes[round % 3], 70 + (uint64_t)round, 6);
        comet_stats_norm expected = COMET_STATS_NORM_INIT, found = COMET_STATS_NORM_INIT;
        see_norm_in_parts(&s, parts, &expected, &found);
        assert_near(found.batches, 1.0, 0);
        assert_near(found.derivative, expected.derivative, NEAR_DIFFERENCE);
        assert_near(found.scale_squares, expected.scale_squares, NEAR_DIFFERENCE);
        assert_near(found.own_gain, expected.own_gain, NEAR_DIFFERENCE);
        assert_near(found.common_gain, expected.common_gain, NEAR_DIFFERENCE);
        if (parts == 1) /* else of the first part */
            expect_alike(&found.gradient, &expected.gradient);
        norm_side_free(&s);
    }
}

static void test_silus_and_scales(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        norm_side s = norm_side_new(dtypes[round % 3], 170 + (uint64_t)round, 3);
        comet_silu_pass cpu = COMET_SILU_PASS_INIT;
        comet_stats_silu expected = COMET_STATS_SILU_INIT, found = COMET_STATS_SILU_INIT;
        cpu.input = &s.x.tensor, cpu.gradient = &s.dy.tensor;
        cpu.scale = s.n.scale, cpu.gamma = s.n.gamma, cpu.beta = s.n.beta;
        comet_silu_pass cuda = cpu;
        cuda.input = &s.cuda_x.tensor, cuda.gradient = &s.cuda_dy.tensor;
        cuda.scale = s.scale.data, cuda.gamma = s.gamma.data, cuda.beta = s.beta.data;
        SEE(silu, &cpu, NULL, &expected);
        assert_ok(comet_cuda_statistics.see_silu(&s.b->cuda.base, &cuda, &nothing, &found));
        assert_ok(comet_cuda_statistics.settle(&s.b->cuda.base, 1));
        expect_near(&found, &expected, 4, NEAR_DIFFERENCE);

        batch factors = batch_new(&s.b->r, 3, 1, 1, s.n.x.channels, 0);
        batch_round(&factors, s.dtype);
        laid f = lay(&factors, ROWS);
        cuda_laid cuda_f = cuda_lay(&factors, ROWS, s.dtype);
        comet_scale_pass scale = COMET_SCALE_PASS_INIT;
        comet_stats_scale wanted = COMET_STATS_SCALE_INIT, seen = COMET_STATS_SCALE_INIT;
        scale.factors = &f.tensor, scale.gradient = &s.dy.tensor;
        SEE(scale, &scale, NULL, &wanted);
        scale.factors = &cuda_f.tensor, scale.gradient = &s.cuda_dy.tensor;
        assert_ok(comet_cuda_statistics.see_scale(&s.b->cuda.base, &scale, &nothing, &seen));
        assert_ok(comet_cuda_statistics.settle(&s.b->cuda.base, 1));
        expect_near(&seen, &wanted, 3, NEAR_DIFFERENCE);
        cuda_must(cudaStreamSynchronize(s.b->cuda.queue));
        cuda_block_free(&cuda_f.block);
        free(f.memory);
        free(factors.values);
        norm_side_free(&s);
    }
}

/* Records of many calls lie one behind the other, in more memory from batch to batch; what is dropped is not added. */
static void test_many_at_once(void **state) {
    enum { MANY = 40 };
    (void)state;
    norm_side s = norm_side_new(COMET_F32, 5, 5);
    comet_backend *backend = &s.b->cuda.base;
    comet_silu_pass pass = COMET_SILU_PASS_INIT;
    comet_stats_silu one = COMET_STATS_SILU_INIT, seen[MANY];
    pass.input = &s.cuda_x.tensor, pass.gradient = &s.cuda_dy.tensor;
    pass.scale = s.scale.data, pass.gamma = s.gamma.data, pass.beta = s.beta.data;
    assert_ok(comet_cuda_statistics.see_silu(backend, &pass, &nothing, &one));
    assert_ok(comet_cuda_statistics.settle(backend, 1));
    assert_near(one.batches, 1.0, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            seen[i] = (comet_stats_silu)COMET_STATS_SILU_INIT;
            assert_ok(comet_cuda_statistics.see_silu(backend, &pass, &nothing, &seen[i]));
        }
        assert_ok(comet_cuda_statistics.settle(backend, round < 2));
        for (int i = 0; i < MANY && round < 2; i++)
            assert_memory_equal(&seen[i], &one, sizeof one);
    }
    assert_near(seen[MANY - 1].batches, 0.0, 0);
    assert_ok(comet_cuda_statistics.settle(backend, 1));
    assert_near(seen[MANY - 1].batches, 0.0, 0);
    norm_side_free(&s);
}

/* ---- recorded ---- */

/* A call of a kind, recorded. NULL: it could not be. */
static comet_recording *record(train_bench *b, const comet_silu_pass *pass, comet_stats_silu *seen) {
    comet_recording *recording = NULL;
    assert_ok(comet_cuda_begin_record(&b->cuda.base));
    const comet_status status = comet_cuda_statistics.see_silu(&b->cuda.base, pass, &nothing, seen);
    assert_int_equal(comet_cuda_end_record(&b->cuda.base, status, &recording), status);
    assert_int_equal(status, recording ? COMET_OK : COMET_ERROR_MISMATCH);
    return recording;
}

static void see_and_settle(train_bench *b, const comet_silu_pass *pass, comet_stats_silu *seen, int times) {
    for (int i = 0; i < times; i++)
        assert_ok(comet_cuda_statistics.see_silu(&b->cuda.base, pass, &nothing, seen));
    assert_ok(comet_cuda_statistics.settle(&b->cuda.base, 1));
}

/* Work leaves its records each time it is replayed; not when it is recorded, nor where others' are by now. */
static void test_recorded(void **state) {
    enum { TIMES = 3 };
    (void)state;
    norm_side s = norm_side_new(COMET_F32, 6, 5);
    comet_backend *backend = &s.b->cuda.base;
    comet_silu_pass pass = COMET_SILU_PASS_INIT;
    comet_stats_silu none = COMET_STATS_SILU_INIT, expected = none, seen = none, other = none;
    pass.input = &s.cuda_x.tensor, pass.gradient = &s.cuda_dy.tensor;
    pass.scale = s.scale.data, pass.gamma = s.gamma.data, pass.beta = s.beta.data;
    assert_ok(comet_cuda_statistics.see_silu(backend, &pass, &nothing, &other)); /* takes the workspace */
    assert_ok(comet_cuda_statistics.settle(backend, 0));
    comet_cuda_late_free(&s.b->cuda.kept.late, s.b->cuda.allocator);
    assert_null(record(s.b, &pass, &seen)); /* there is no room */
    see_and_settle(s.b, &pass, &expected, 1);
    comet_recording *recording = record(s.b, &pass, &seen);
    assert_non_null(recording);
    assert_ok(comet_cuda_statistics.settle(backend, 1));
    assert_memory_equal(&seen, &none, sizeof seen);
    for (int i = 0; i < TIMES; i++) {
        assert_ok(comet_cuda_replay(backend, recording));
        assert_ok(comet_cuda_statistics.settle(backend, 1));
    }
    see_and_settle(s.b, &pass, &expected, 1);
    see_and_settle(s.b, &pass, &expected, 1);
    assert_memory_equal(&seen, &expected, sizeof seen);
    assert_ok(comet_cuda_replay(backend, recording));
    assert_ok(comet_cuda_statistics.settle(backend, 0));
    assert_memory_equal(&seen, &expected, sizeof seen); /* dropped */
    assert_ok(comet_cuda_statistics.see_silu(backend, &pass, &nothing, &other));
    assert_int_equal(comet_cuda_replay(backend, recording), COMET_ERROR_MISMATCH);
    assert_ok(comet_cuda_statistics.settle(backend, 1));
    assert_ok(comet_cuda_replay(backend, recording)); /* they are out of the way */
    assert_ok(comet_cuda_statistics.settle(backend, 0));
    see_and_settle(s.b, &pass, &other, 400); /* in more room than there was */
    assert_int_equal(comet_cuda_replay(backend, recording), COMET_ERROR_MISMATCH);
    assert_memory_equal(&seen, &expected, sizeof seen);
    comet_cuda_recording_free(backend, recording);
    norm_side_free(&s);
}

/* ---- tensors and sums ---- */

static void test_tensors(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        norm_side s = norm_side_new(dtypes[round % 3], 270 + (uint64_t)round, 2);
        const comet_codec_record stored = {
            .bytes = 100, .bound = 0.25, .stats = {.count = 50, .nonzero = 40, .sum_squares = 60}};
        cuda_block record = cuda_block_new(sizeof stored, &stored);
        comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
        comet_stats_tensor expected = COMET_STATS_TENSOR_INIT, found = COMET_STATS_TENSOR_INIT;
        pass.result = &stored;
        pass.values = round % 2 ? &s.x.tensor : NULL;
        SEE(tensor, &pass, NULL, &expected);
        pass.result = record.data;
        pass.values = round % 2 ? &s.cuda_x.tensor : NULL;
        assert_ok(comet_cuda_statistics.see_tensor(&s.b->cuda.base, &pass, &nothing, &found));
        assert_ok(comet_cuda_statistics.settle(&s.b->cuda.base, 1));
        expect_near(&found, &expected, 6, NEAR);
        assert_int_equal(found.has_alike, expected.has_alike);
        expect_alike(&found.all, &expected.all);
        cuda_block_free(&record);
        norm_side_free(&s);
    }
}

/* All at once, some of them without values; what is there is added to. */
static void test_squares(void **state) {
    enum { SPANS = 8 };
    static const int64_t counts[SPANS] = {1, 0, 31, 257, 0, 8193, 70001, 0};
    (void)state;
    train_bench *b = train_bench_new(COMET_BF16, 3); /* gradients of parameters are fp32 all the same */
    train_values values[SPANS];
    cuda_block blocks[SPANS];
    comet_span cpu[SPANS], cuda[SPANS];
    double expected[SPANS] = {0}, found[SPANS] = {0}, again[SPANS] = {0}, alone = 0;
    for (int i = 0; i < SPANS; i++) {
        values[i] = train_values_new(COMET_F32, counts[i]);
        for (int64_t k = 0; k < counts[i]; k++)
            train_values_set(&values[i], COMET_F32, k, rng_gauss(&b->r));
        blocks[i] = cuda_block_new(values[i].bytes, values[i].patterns);
        cpu[i] = (comet_span){values[i].values, counts[i]};
        cuda[i] = (comet_span){counts[i] ? blocks[i].data : NULL, counts[i]};
    }
    assert_ok(b->cpu.statistics->squares(&b->cpu, cpu, SPANS, expected));
    assert_ok(comet_cuda_statistics.squares(&b->cuda.base, cuda, SPANS, found));
    assert_ok(comet_cuda_statistics.squares(&b->cuda.base, cuda, SPANS, again));
    assert_ok(comet_cuda_statistics.squares(&b->cuda.base, &cuda[6], 1, &alone));
    assert_near(found[0], 0.0, 0); /* not yet */
    assert_ok(comet_cuda_statistics.settle(&b->cuda.base, 1));
    for (int i = 0; i < SPANS; i++)
        assert_near(found[i], expected[i], 1e-13);
    assert_memory_equal(found, again, sizeof found);
    assert_memory_equal(&found[6], &alone, sizeof alone); /* whatever is beside it */
    assert_ok(comet_cuda_statistics.squares(&b->cuda.base, cuda, SPANS, again));
    assert_ok(comet_cuda_statistics.settle(&b->cuda.base, 1));
    for (int i = 0; i < SPANS; i++) {
        assert_near(again[i], 2 * expected[i], 1e-13);
        cuda_block_free(&blocks[i]);
        train_values_free(&values[i]);
    }
    train_bench_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers),           cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_silus_and_scales), cmocka_unit_test(test_many_at_once),
                                       cmocka_unit_test(test_tensors),          cmocka_unit_test(test_squares),
                                       cmocka_unit_test(test_recorded)};
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
