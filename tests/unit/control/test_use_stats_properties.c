/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for all statistics of uses: the same bits in any layout and with any number of threads; batches add up;
 * what is wrong is said and changes nothing; what is not finite is said.
 */
#include "support/use_stats_case.h"

/* All kinds of calls on the same tensors: everything they find. */
typedef struct found {
    comet_stats_layer layer;
    comet_stats_norm norm, plain_norm, acgc_norm;
    comet_stats_silu silu;
    comet_stats_scale scale;
    comet_stats_tensor tensor, on_grid;
} found;

typedef struct tensors {
    conv v;
    norm n;
    batch s;
} tensors;

static tensors tensors_new(rng *r, int64_t images) {
    tensors t = {.v = conv_new(r, 6), .n = norm_new(r, images)};
    t.s = batch_new(r, images, 1, 1, t.n.x.channels, 0);
    return t;
}

static void tensors_free(tensors *t) {
    conv_free(&t->v);
    norm_free(&t->n);
    free(t->s.values);
}

static const comet_codec_record stored = {
    .bytes = 100, .bound = 0.2, .stats = {.count = 50, .nonzero = 40, .sum_squares = 60}};

static void see_norms(const tensors *t, const comet_tensor *x, const comet_tensor *dy, comet_threads *threads,
                      found *f) {
    comet_norm_pass pass = norm_pass(&t->n, x, dy);
    pass.relu = 1;
    SEE(norm, &pass, threads, &f->norm);
    pass.acgc = 1;
    SEE(norm, &pass, threads, &f->acgc_norm);
    pass.shift = t->n.shift;
    pass.mask = t->n.mask;
    pass.acgc = 0;
    SEE(norm, &pass, threads, &f->plain_norm);
}

static void see_tensors(const tensors *t, const comet_tensor *x, comet_threads *threads, found *f) {
    const comet_codec_grid grid = {t->n.x.channels, t->n.scale, NULL, t->n.beta, NULL};
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    pass.result = &stored;
    pass.values = x;
    SEE(tensor, &pass, threads, &f->tensor);
    pass.grid = &grid;
    pass.gamma = t->n.gamma;
    pass.relu = 1;
    SEE(tensor, &pass, threads, &f->on_grid);
}

/* Each tensor in one of the layouts; added to what is there. */
static void see_more(const tensors *t, int form, int other_form, comet_threads *threads, found *f) {
    laid x = lay(&t->v.x, form), dy = lay(&t->v.dy, other_form), u = lay(&t->n.x, form), g = lay(&t->n.dy, other_form),
         s = lay(&t->s, other_form);
    const comet_layer_pass layer = conv_pass(&t->v, &x.tensor, &dy.tensor);
    comet_silu_pass silu = COMET_SILU_PASS_INIT;
    comet_scale_pass scale = COMET_SCALE_PASS_INIT;
    SEE(layer, &layer, threads, &f->layer);
    see_norms(t, &u.tensor, &g.tensor, threads, f);
    silu.input = &u.tensor, silu.gradient = &g.tensor;
    silu.scale = t->n.scale, silu.gamma = t->n.gamma, silu.beta = t->n.beta;
    SEE(silu, &silu, threads, &f->silu);
    scale.factors = &s.tensor, scale.gradient = &u.tensor;
    SEE(scale, &scale, threads, &f->scale);
    see_tensors(t, &u.tensor, threads, f);
    free(x.memory);
    free(dy.memory);
    free(u.memory);
    free(g.memory);
    free(s.memory);
}

static found see_all(const tensors *t, int form, int other_form, comet_threads *threads) {
    found f;
    memset(&f, 0, sizeof f); /* bytes between the fields, too: results are compared as memory */
    f = (found){COMET_STATS_LAYER_INIT, COMET_STATS_NORM_INIT,  COMET_STATS_NORM_INIT,   COMET_STATS_NORM_INIT,
                COMET_STATS_SILU_INIT,  COMET_STATS_SCALE_INIT, COMET_STATS_TENSOR_INIT, COMET_STATS_TENSOR_INIT};
    see_more(t, form, other_form, threads, &f);
    return f;
}

static void assert_same(const found *a, const found *b) {
    assert_memory_equal(&a->layer, &b->layer, sizeof a->layer);
    assert_memory_equal(&a->norm, &b->norm, sizeof a->norm);
    assert_memory_equal(&a->plain_norm, &b->plain_norm, sizeof a->norm);
    assert_memory_equal(&a->acgc_norm, &b->acgc_norm, sizeof a->norm);
    assert_memory_equal(&a->silu, &b->silu, sizeof a->silu);
    assert_memory_equal(&a->scale, &b->scale, sizeof a->scale);
    assert_memory_equal(&a->tensor.all, &b->tensor.all, sizeof a->tensor.all);
    assert_memory_equal(&a->tensor.passed, &b->tensor.passed, sizeof a->tensor.passed);
    assert_memory_equal(&a->on_grid.all, &b->on_grid.all, sizeof a->on_grid.all);
    assert_memory_equal(&a->on_grid.passed, &b->on_grid.passed, sizeof a->on_grid.passed);
}

static void test_layouts(void **state) {
    (void)state;
    rng r = rng_seed(11);
    for (int round = 0; round < 30; round++) {
        tensors t = tensors_new(&r, rng_between(&r, 1, 9));
        const found rows = see_all(&t, ROWS, ROWS, NULL);
        for (int form = 0; form < FORMS; form++)
            for (int other = 0; other < FORMS; other++) {
                const found f = see_all(&t, form, other, NULL);
                assert_same(&f, &rows);
            }
        tensors_free(&t);
    }
}

static void test_threads(void **state) {
    (void)state;
    rng r = rng_seed(12);
    for (int round = 0; round < 10; round++) { /* the last ones so large that threads meet */
        tensors t = tensors_new(&r, round < 6 ? rng_between(&r, 1, 9) : 400);
        const found alone = see_all(&t, PLANES, ROWS, NULL);
        for (unsigned threads = 1; threads <= 3; threads++) {
            comet_threads *pool;
            assert_ok(comet_threads_new(threads, NULL, &pool));
            const found f = see_all(&t, PLANES, ROWS, pool);
            assert_same(&f, &alone);
            comet_threads_free(pool);
        }
        tensors_free(&t);
    }
}

/* Rows and channels, with 2, 3 or 4 dimensions. */
static void test_dimensions(void **state) {
    (void)state;
    rng r = rng_seed(13);
    batch x = batch_new(&r, 24, 1, 1, 10, 0.3), dy = batch_new(&r, 24, 1, 1, 7, 0);
    float *weights = channels_new(&r, 70, 0, 1);
    comet_stats_layer seen[4];
    for (int k = 0; k < 4; k++) {
        const comet_layout layouts[] = {COMET_NHWC, COMET_NHWC, COMET_FLAT, COMET_NCHW};
        const int dimensions[] = {4, 3, 2, 2};
        const int64_t x_shapes[][4] = {{24, 1, 1, 10}, {24, 1, 10}, {24, 10}, {24, 10}},
                      dy_shapes[][4] = {{24, 1, 1, 7}, {24, 1, 7}, {24, 7}, {24, 7}};
        comet_tensor tx, tdy;
        comet_layer_pass pass = COMET_LAYER_PASS_INIT;
        assert_ok(comet_tensor_init(&tx, x.values, COMET_F32, layouts[k], dimensions[k], x_shapes[k]));
        assert_ok(comet_tensor_init(&tdy, dy.values, COMET_F32, layouts[k], dimensions[k], dy_shapes[k]));
        pass.what = COMET_STATS_OUTPUT | COMET_STATS_INPUT | COMET_STATS_COMMON;
        pass.input = &tx, pass.gradient = &tdy, pass.weights = weights;
        memset(&seen[k], 0, sizeof seen[k]);
        seen[k] = (comet_stats_layer)COMET_STATS_LAYER_INIT;
        SEE(layer, &pass, NULL, &seen[k]);
        assert_memory_equal(&seen[k], &seen[0], sizeof seen[0]);
    }
    assert_true(seen[0].common_squares > 0);
    free(x.values);
    free(dy.values);
    free(weights);
}

/* ---- batches ---- */

/* Some images of a batch. */
static batch part_of(const batch *b, int64_t first, int64_t count) {
    batch part = *b;
    part.images = count;
    part.values = b->values + first * b->height * b->width * b->channels;
    return part;
}

/* Sums of a layer over two batches are those of both together; shares stay what they are when they are used. */
static void test_batches_of_a_layer(void **state) {
    (void)state;
    rng r = rng_seed(14);
    for (int round = 0; round < 20; round++) {
        conv v = conv_new(&r, 6);
        comet_stats_layer whole = COMET_STATS_LAYER_INIT, halves = COMET_STATS_LAYER_INIT;
        const int64_t first = v.x.images / 2;
        for (int k = 0; k < 3; k++) { /* the whole; its halves */
            const int64_t from = k == 2 ? first : 0, count = k == 0 ? v.x.images : k == 1 ? first : v.x.images - first;
            const batch x = part_of(&v.x, from, count), dy = part_of(&v.dy, from, count);
            if (count == 0)
                continue;
            laid lx = lay(&x, ROWS), ldy = lay(&dy, PLANES);
            comet_layer_pass pass = conv_pass(&v, &lx.tensor, &ldy.tensor);
            pass.what = COMET_STATS_OUTPUT | COMET_STATS_INPUT;
            SEE(layer, &pass, NULL, k == 0 ? &whole : &halves);
            free(lx.memory);
            free(ldy.memory);
        }
        assert_near(halves.gradient_squares, whole.gradient_squares, 1e-6);
        assert_near(halves.gradient_sizes, whole.gradient_sizes, 1e-6);
        assert_near(halves.input_squares, whole.input_squares, 1e-6);
        assert_near(halves.positions, whole.positions, 0);
        assert_near(halves.inside / halves.batches, whole.inside, 1e-12);
        assert_true(halves.input_variances <= whole.input_variances * (1 + 1e-5)); /* around a mean of each */
        conv_free(&v);
    }
}

static comet_use_stats use_of(const found *f, comet_use_kind kind) {
    comet_stats_use use = COMET_STATS_USE_INIT;
    comet_use_stats stats;
    use.kind = kind;
    use.tensor = &f->on_grid, use.layer = &f->layer, use.norm = &f->acgc_norm, use.scale = &f->scale;
    use.silu = kind == COMET_USE_CURVE_INPUT || kind == COMET_USE_CHANNEL_SCALE ? &f->silu : NULL;
    use.weight_gradient_squares = 1;
    assert_ok(comet_stats_of_use(&use, &stats));
    return stats;
}

/*
 * The same batch again: sums are twice what they were, means the same. AC-GC's bound of a layer is |dW|^2, twice as
 * many values, dY^2.
 */
static void test_twice(void **state) {
    (void)state;
    rng r = rng_seed(18);
    for (int round = 0; round < 10; round++) {
        tensors t = tensors_new(&r, rng_between(&r, 1, 9));
        found f = see_all(&t, ROWS, PLANES, NULL);
        comet_use_stats once[COMET_USE_KINDS];
        for (int kind = 0; kind < COMET_USE_KINDS; kind++)
            once[kind] = use_of(&f, (comet_use_kind)kind);
        const double rms = comet_stats_tensor_rms(&f.tensor);
        see_more(&t, ROWS, PLANES, NULL, &f);
        for (int kind = 0; kind < COMET_USE_KINDS; kind++) {
            const comet_use_stats twice = use_of(&f, (comet_use_kind)kind);
            const int is_layer = kind == COMET_USE_CONV_WEIGHTS || kind == COMET_USE_LINEAR_WEIGHTS;
            assert_near(twice.gradient_squares, 2 * once[kind].gradient_squares, 1e-12);
            assert_near(twice.positions, 2 * once[kind].positions, 1e-12);
            assert_near(twice.input_squares, 2 * once[kind].input_squares, 1e-12);
            assert_near(twice.derivative_squares, once[kind].derivative_squares, 1e-12);
            assert_near(twice.gradient_mean, once[kind].gradient_mean, 1e-12);
            assert_near(twice.error_gain, once[kind].error_gain, 1e-12);
            assert_near(twice.correction, once[kind].correction, 1e-12);
            assert_near(twice.acgc, (is_layer ? 0.25 : 2) * once[kind].acgc, 1e-12);
        }
        assert_near(comet_stats_tensor_rms(&f.tensor), rms, 1e-12);
        assert_near(comet_stats_tensor_size(&f.tensor, 50).bytes, 100, 1e-12);
        assert_near(comet_stats_tensor_size(&f.tensor, 50).bound, 0.2, 1e-12);
        tensors_free(&t);
    }
}

/* Parts of one batch of a norm are the batch; two batches are not. */
static void test_parts_of_a_norm(void **state) {
    (void)state;
    rng r = rng_seed(15);
    for (int round = 0; round < 20; round++) {
        norm n = norm_new(&r, 7);
        const int64_t counts[3] = {2, 1, 4};
        comet_stats_norm whole = COMET_STATS_NORM_INIT, parts = COMET_STATS_NORM_INIT;
        laid x = lay(&n.x, ROWS), dy = lay(&n.dy, PLANES);
        comet_norm_pass pass = norm_pass(&n, &x.tensor, &dy.tensor);
        comet_stats_exec exec = COMET_STATS_EXEC_INIT;
        pass.relu = 1, pass.acgc = 1, pass.mask = round % 2 ? n.mask : NULL;
        SEE(norm, &pass, NULL, &whole);
        free(x.memory);
        free(dy.memory);
        pass.parts = 3;
        for (int64_t k = 0, first = 0; k < 3; first += counts[k], k++) {
            const batch some = part_of(&n.x, first, counts[k]), some_dy = part_of(&n.dy, first, counts[k]);
            x = lay(&some, ROWS), dy = lay(&some_dy, ROWS);
            pass.part = (int32_t)k;
            if (k == 0) {
                size_t bytes;
                assert_ok(comet_stats_norm_workspace(&pass, &bytes));
                exec = exec_new(bytes, NULL);
            }
            assert_near(parts.batches, 0, 0);
            assert_ok(comet_stats_see_norm(&pass, &exec, &parts));
            free(x.memory);
            free(dy.memory);
        }
        free(exec.workspace);
        assert_near(parts.batches, 1, 0);
        assert_near(parts.derivative, whole.derivative, 1e-12); /* numbers of values that are on */
        assert_near(parts.scale_squares, whole.scale_squares, 1e-12);
        assert_near(parts.own_gain, whole.own_gain, 1e-9);
        assert_near(parts.common_gain, whole.common_gain, 1e-9);
        assert_near(parts.acgc, whole.acgc, 1e-9);
        norm_free(&n);
    }
}

/* ---- nothing, and what is not finite ---- */

static void test_no_gradient(void **state) {
    (void)state;
    rng r = rng_seed(16);
    tensors t = tensors_new(&r, 3);
    memset(t.v.dy.values, 0, (size_t)count_of(&t.v.dy) * sizeof *t.v.dy.values);
    memset(t.n.dy.values, 0, (size_t)count_of(&t.n.dy) * sizeof *t.n.dy.values);
    const found f = see_all(&t, ROWS, PLANES, NULL);
    comet_stats_use use = COMET_STATS_USE_INIT;
    comet_use_stats stats;
    use.tensor = &f.tensor, use.layer = &f.layer, use.norm = &f.acgc_norm;
    for (int kind = 0; kind <= COMET_USE_NORM_INPUT; kind++) {
        use.kind = (comet_use_kind)kind;
        assert_ok(comet_stats_of_use(&use, &stats));
        assert_true(stats.gradient_squares == 0 && stats.gradient_mean == 0 && stats.error_gain == 0);
        assert_true(stats.acgc == 0);
        assert_near(stats.correction, kind == COMET_USE_LINEAR_WEIGHTS ? 1 : stats.correction, 0);
        assert_true(comet_error_sensitivity(use.kind, &stats) == 0);
    }
    tensors_free(&t);
}

/* One value of one tensor is spoilt; the call says so, and so does the use. */
static void test_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(17);
    const float spoilt[] = {NAN, INFINITY, -INFINITY};
    for (int round = 0; round < 45; round++) {
        tensors t = tensors_new(&r, 3);
        batch *of[] = {&t.v.x, &t.v.dy, &t.n.x, &t.n.dy, &t.s};
        const int which = round % 5;
        of[which]->values[rng_below(&r, (uint64_t)count_of(of[which]))] = spoilt[round / 5 % 3];
        laid a = lay(which < 2   ? &t.v.x
                     : which < 4 ? &t.n.x
                                 : &t.s,
                     PLANES),
             b = lay(which < 2 ? &t.v.dy : &t.n.dy, ROWS);
        comet_stats_exec exec = exec_new(1 << 20, NULL);
        comet_stats_tensor tensor = COMET_STATS_TENSOR_INIT;
        comet_stats_layer layer = COMET_STATS_LAYER_INIT;
        comet_stats_norm seen = COMET_STATS_NORM_INIT;
        comet_stats_scale scale = COMET_STATS_SCALE_INIT;
        comet_stats_silu silu = COMET_STATS_SILU_INIT;
        comet_stats_use use = COMET_STATS_USE_INIT;
        comet_use_stats stats;
        tensor.count = tensor.nonzero = tensor.streams = 1;
        use.tensor = &tensor, use.layer = &layer;
        if (which < 2) {
            const comet_layer_pass pass = conv_pass(&t.v, &a.tensor, &b.tensor);
            assert_status(comet_stats_see_layer(&pass, &exec, &layer), COMET_ERROR_DIVERGED);
            use.kind = which == 0 ? COMET_USE_CURVE_INPUT : COMET_USE_CONV_WEIGHTS;
            silu.batches = 1;
            use.silu = which == 0 ? &silu : NULL;
            assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_DIVERGED);
        } else if (which < 4) {
            const comet_norm_pass pass = norm_pass(&t.n, &a.tensor, &b.tensor);
            comet_silu_pass curve = COMET_SILU_PASS_INIT;
            curve.input = &a.tensor, curve.gradient = &b.tensor;
            assert_status(comet_stats_see_norm(&pass, &exec, &seen), COMET_ERROR_DIVERGED);
            assert_status(comet_stats_see_silu(&curve, &exec, &silu), COMET_ERROR_DIVERGED);
        } else {
            comet_scale_pass pass = COMET_SCALE_PASS_INIT;
            pass.factors = &a.tensor, pass.gradient = &b.tensor;
            assert_status(comet_stats_see_scale(&pass, &exec, &scale), COMET_ERROR_DIVERGED);
            use.kind = COMET_USE_CHANNEL_SCALE, use.scale = &scale;
            layer.batches = 1;
            assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_DIVERGED);
        }
        free(exec.workspace);
        free(a.memory);
        free(b.memory);
        tensors_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_dimensions),  cmocka_unit_test(test_batches_of_a_layer),
        cmocka_unit_test(test_twice),       cmocka_unit_test(test_parts_of_a_norm),
        cmocka_unit_test(test_no_gradient), cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
