/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses from tensors on a device: those of the CPU but for rounding, in any layout, with any strides and
 * dtypes; the same bits each time; from a graph; parts of a batch; what is not finite is said.
 */
#include "support/cuda/cuda_stats.h"

#include "support/cuda/cuda_backend.h"
#include "support/effort.h"

enum { KINDS = 11 };
static const double NEAR = 1e-6, /* of sums: the CPU's and ours have their terms in another order */
    NEAR_DIFFERENCE = 1e-5;      /* of sums with both signs, and differences of sums */

/* ---- both sides ---- */

typedef struct found {
    comet_stats_layer layer;
    comet_stats_norm norm, plain, acgc;
    comet_stats_silu silu, silu_behind;
    comet_stats_scale scale;
    comet_stats_tensor tensor, grid, relu, alone;
} found;

static found found_new(void) {
    found f;
    memset(&f, 0, sizeof f); /* bytes between the fields, too: results are compared as memory */
    f = (found){COMET_STATS_LAYER_INIT,  COMET_STATS_NORM_INIT,   COMET_STATS_NORM_INIT,  COMET_STATS_NORM_INIT,
                COMET_STATS_SILU_INIT,   COMET_STATS_SILU_INIT,   COMET_STATS_SCALE_INIT, COMET_STATS_TENSOR_INIT,
                COMET_STATS_TENSOR_INIT, COMET_STATS_TENSOR_INIT, COMET_STATS_TENSOR_INIT};
    return f;
}

typedef struct tensors {
    conv v;
    norm n;
    batch s;
    comet_codec_record stored;
} tensors;

static tensors tensors_of(rng *r, conv v, norm n) {
    tensors t = {.v = v, .n = n, .s = batch_new(r, n.x.images, 1, 1, n.x.channels, 0)};
    t.stored = (comet_codec_record){
        .bytes = 100, .bound = 0.2 + rng_unit(r), .stats = {.count = 50, .nonzero = 40, .sum_squares = 60}};
    return t;
}

static void tensors_free(tensors *t) {
    conv_free(&t->v);
    norm_free(&t->n);
    free(t->s.values);
}

/* Passes over tensors and tables that are all on one side. */
typedef struct passes {
    comet_layer_pass layer;
    comet_norm_pass norm, plain, acgc;
    comet_silu_pass silu, silu_behind;
    comet_scale_pass scale;
    comet_codec_grid on_grid;
    comet_tensor_pass tensor, grid, relu, alone;
} passes;

/* Where everything lies. */
typedef struct side {
    comet_tensor x, dy, u, g, s;
    const float *weights, *scale, *shift, *gamma, *beta;
    const uint8_t *mask;
    const comet_codec_record *stored;
} side;

static void norm_passes(const side *at, passes *p) {
    p->norm = (comet_norm_pass)COMET_NORM_PASS_INIT;
    p->norm.values = &at->u, p->norm.gradient = &at->g;
    p->norm.scale = at->scale, p->norm.gamma = at->gamma, p->norm.beta = at->beta;
    p->norm.relu = 1;
    p->plain = p->acgc = p->norm;
    p->plain.shift = at->shift;
    p->plain.mask = at->mask;
    p->acgc.acgc = 1;
    p->acgc.relu = 0;
    p->acgc.shift = at->shift;
}

static void tensor_passes(const side *at, int64_t channels, passes *p) {
    p->on_grid = (comet_codec_grid){channels, at->scale, NULL, at->beta, NULL};
    p->tensor = (comet_tensor_pass)COMET_TENSOR_PASS_INIT;
    p->tensor.result = at->stored;
    p->alone = p->tensor;
    p->tensor.values = &at->u;
    p->grid = p->tensor;
    p->grid.grid = &p->on_grid;
    p->relu = p->grid;
    p->relu.gamma = at->gamma;
    p->relu.relu = 1;
}

static void passes_of(const tensors *t, const side *at, passes *p) {
    p->layer = conv_pass(&t->v, &at->x, &at->dy);
    p->layer.weights = at->weights;
    norm_passes(at, p);
    tensor_passes(at, t->n.x.channels, p);
    p->silu = (comet_silu_pass)COMET_SILU_PASS_INIT;
    p->silu.input = &at->u, p->silu.gradient = &at->g;
    p->silu_behind = p->silu;
    p->silu_behind.scale = at->scale, p->silu_behind.gamma = at->gamma, p->silu_behind.beta = at->beta;
    p->silu_behind.normalised = 1;
    p->scale = (comet_scale_pass)COMET_SCALE_PASS_INIT;
    p->scale.factors = &at->s, p->scale.gradient = &at->g;
}

static found see_on_cpu(const tensors *t) {
    laid x = lay(&t->v.x, ROWS), dy = lay(&t->v.dy, ROWS), u = lay(&t->n.x, ROWS), g = lay(&t->n.dy, ROWS),
         s = lay(&t->s, ROWS);
    const side at = {x.tensor,   dy.tensor,  u.tensor,   g.tensor,  s.tensor,  t->v.weights,
                     t->n.scale, t->n.shift, t->n.gamma, t->n.beta, t->n.mask, &t->stored};
    passes p;
    found f = found_new();
    passes_of(t, &at, &p);
    SEE(layer, &p.layer, NULL, &f.layer);
    SEE(norm, &p.norm, NULL, &f.norm);
    SEE(norm, &p.plain, NULL, &f.plain);
    SEE(norm, &p.acgc, NULL, &f.acgc);
    SEE(silu, &p.silu, NULL, &f.silu);
    SEE(silu, &p.silu_behind, NULL, &f.silu_behind);
    SEE(scale, &p.scale, NULL, &f.scale);
    SEE(tensor, &p.tensor, NULL, &f.tensor);
    SEE(tensor, &p.grid, NULL, &f.grid);
    SEE(tensor, &p.relu, NULL, &f.relu);
    SEE(tensor, &p.alone, NULL, &f.alone);
    laid *all[] = {&x, &dy, &u, &g, &s};
    for (int i = 0; i < 5; i++)
        free(all[i]->memory);
    return f;
}

/* ---- the device's side ---- */

/* Forms and dtypes of the first and the second tensor of a call. */
typedef struct looks {
    int form[2];
    comet_dtype dtype[2];
} looks;

typedef struct device_side {
    cuda_laid laid[5];
    cuda_block tables[7];
    side at;
    passes p;
} device_side;

static void device_side_new(const tensors *t, const looks *k, device_side *d) {
    const batch *batches[5] = {&t->v.x, &t->v.dy, &t->n.x, &t->n.dy, &t->s};
    const int64_t channels = t->n.x.channels;
    for (int i = 0; i < 5; i++) /* x, u and s look alike, dy and g */
        d->laid[i] = cuda_lay(batches[i], k->form[i % 2], k->dtype[i % 2]);
    d->tables[0] = cuda_table(t->v.weights, t->v.dy.channels * fan_in_of(&t->v));
    d->tables[1] = cuda_table(t->n.scale, channels);
    d->tables[2] = cuda_table(t->n.shift, channels);
    d->tables[3] = cuda_table(t->n.gamma, channels);
    d->tables[4] = cuda_table(t->n.beta, channels);
    d->tables[5] = cuda_block_new((size_t)(count_of(&t->n.x) + 7) / 8, t->n.mask);
    d->tables[6] = cuda_block_new(sizeof t->stored, &t->stored);
    d->at = (side){d->laid[0].tensor, d->laid[1].tensor, d->laid[2].tensor, d->laid[3].tensor,
                   d->laid[4].tensor, d->tables[0].data, d->tables[1].data, d->tables[2].data,
                   d->tables[3].data, d->tables[4].data, d->tables[5].data, d->tables[6].data};
    passes_of(t, &d->at, &d->p);
}

static void device_side_free(device_side *d) {
    for (int i = 0; i < 5; i++)
        cuda_block_free(&d->laid[i].block);
    for (int i = 0; i < 7; i++)
        cuda_block_free(&d->tables[i]);
}

/* The same in any order: X(kind, pass and found's field, number). */
#define EVERY(X)                                                                                                       \
    X(layer, layer, 0)                                                                                                 \
    X(norm, norm, 1)                                                                                                   \
    X(norm, plain, 2)                                                                                                  \
    X(norm, acgc, 3)                                                                                                   \
    X(silu, silu, 4)                                                                                                   \
    X(silu, silu_behind, 5)                                                                                            \
    X(scale, scale, 6)                                                                                                 \
    X(tensor, tensor, 7)                                                                                               \
    X(tensor, grid, 8)                                                                                                 \
    X(tensor, relu, 9)                                                                                                 \
    X(tensor, alone, 10)

static found see_on_device(const device_side *d) {
    found f = found_new();
    comet_status status[KINDS];
#define SEE_IT(kind, field, number) CUDA_SEE(kind, &d->p.field, &f.field, &status[number]);
    EVERY(SEE_IT)
#undef SEE_IT
    for (int i = 0; i < KINDS; i++)
        assert_int_equal(status[i], COMET_OK);
    return f;
}

/* ---- comparing ---- */

static void assert_alike(const comet_stats_alike *a, const comet_stats_alike *b) {
    for (int i = 0; i < COMET_STATS_OFFSETS; i++)
        if (!(fabs(a->part[i] - b->part[i]) <= NEAR)) /* parts of 1 */
            fail_msg("offset %d: %.9g, not %.9g", i, a->part[i], b->part[i]);
}

static void assert_layer(const comet_stats_layer *a, const comet_stats_layer *b) {
    assert_true(a->batches == b->batches && a->positions == b->positions && a->inside == b->inside);
    assert_true(a->outputs == b->outputs && a->kernel == b->kernel);
    assert_memory_equal(a->stride, b->stride, sizeof a->stride);
    assert_near(a->gradient_squares, b->gradient_squares, NEAR);
    assert_near(a->gradient_sizes, b->gradient_sizes, NEAR);
    assert_near(a->input_squares, b->input_squares, NEAR);
    assert_near(a->input_variances, b->input_variances, NEAR);
    assert_near(a->common_squares, b->common_squares, NEAR_DIFFERENCE);
    assert_alike(&a->gradient, &b->gradient);
}

static void assert_norm(const comet_stats_norm *a, const comet_stats_norm *b) {
    assert_true(a->batches == b->batches && a->pixels == b->pixels);
    assert_near(a->derivative, b->derivative, NEAR);
    assert_near(a->scale_squares, b->scale_squares, NEAR);
    assert_near(a->own_gain, b->own_gain, NEAR_DIFFERENCE);
    assert_near(a->common_gain, b->common_gain, NEAR);
    assert_near(a->acgc, b->acgc, NEAR_DIFFERENCE);
    assert_alike(&a->gradient, &b->gradient);
}

static void assert_silu(const comet_stats_silu *a, const comet_stats_silu *b) {
    assert_true(a->batches == b->batches);
    assert_near(a->derivative, b->derivative, NEAR);
    assert_near(a->curve_gain, b->curve_gain, NEAR);
    assert_near(a->scale_squares, b->scale_squares, NEAR);
}

static void assert_tensor(const comet_stats_tensor *a, const comet_stats_tensor *b) {
    assert_memory_equal(a, b, offsetof(comet_stats_tensor, has_alike)); /* what the codec said */
    assert_int_equal(a->has_alike, b->has_alike);
    if (a->has_alike) {
        assert_alike(&a->all, &b->all);
        assert_alike(&a->passed, &b->passed);
    }
}

static void assert_found(const found *a, const found *b) {
    assert_layer(&a->layer, &b->layer);
    assert_norm(&a->norm, &b->norm);
    assert_norm(&a->plain, &b->plain);
    assert_norm(&a->acgc, &b->acgc);
    assert_silu(&a->silu, &b->silu);
    assert_silu(&a->silu_behind, &b->silu_behind);
    assert_true(a->scale.batches == b->scale.batches);
    assert_near(a->scale.gain, b->scale.gain, NEAR);
    assert_near(a->scale.squares, b->scale.squares, NEAR);
    assert_tensor(&a->tensor, &b->tensor);
    assert_tensor(&a->grid, &b->grid);
    assert_tensor(&a->relu, &b->relu);
    assert_tensor(&a->alone, &b->alone);
}

/* ---- tests ---- */

static looks looks_of(rng *r) {
    static const comet_dtype dtypes[] = {COMET_F32, COMET_F16, COMET_BF16};
    return (looks){{(int)rng_below(r, FORMS), (int)rng_below(r, FORMS)},
                   {dtypes[rng_below(r, 3)], dtypes[rng_below(r, 3)]}};
}

static void round_all(tensors *t, const looks *k) {
    batch *all[5] = {&t->v.x, &t->v.dy, &t->n.x, &t->n.dy, &t->s};
    for (int i = 0; i < 5; i++)
        batch_round(all[i], k->dtype[i % 2]);
}

static void check(tensors *t, const looks *k) {
    device_side d;
    round_all(t, k);
    device_side_new(t, k, &d);
    const found expected = see_on_cpu(t), once = see_on_device(&d);
    assert_found(&once, &expected);
    cuda_shuffle(7);
    const found again = see_on_device(&d);
    cuda_shuffle(0);
    assert_memory_equal(&once, &again, sizeof once);
    device_side_free(&d);
    tensors_free(t);
}

static void test_random(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = 0; round < effort(24); round++) {
        const int many = round % 8 == 7; /* images: more than a sample has, and several blocks for each channel */
        conv v = conv_new(&r, many ? 40 : 6);
        tensors t = tensors_of(&r, v, norm_new(&r, many ? 120 : rng_between(&r, 1, 9)));
        const looks k = looks_of(&r);
        check(&t, &k);
    }
}

/* A layer with more inputs than a block has threads, and channels for more than one tile. */
static conv wide_conv(rng *r) {
    conv v = {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    v.x = batch_new(r, 5, 9, 8, 70, 0.4);
    v.dy = batch_new(r, 5, 5, 8, 40, 0);
    v.weights = channels_new(r, v.dy.channels * fan_in_of(&v), 0, 1);
    return v;
}

static void test_wide(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int form = 0; form < FORMS; form++) {
        tensors t = tensors_of(&r, wide_conv(&r), norm_of(&r, 6, 14, 15, 67));
        const looks k = {{form, (form + 1) % FORMS}, {form % 2 ? COMET_BF16 : COMET_F32, COMET_BF16}};
        check(&t, &k);
    }
}

/* Rows and channels: a linear layer. */
static void test_linear(void **state) {
    (void)state;
    rng r = rng_seed(3);
    batch x = batch_new(&r, 33, 1, 1, 50, 0.2), dy = batch_new(&r, 33, 1, 1, 20, 0);
    float *weights = channels_new(&r, 50 * 20, 0, 1);
    laid cpu[2] = {lay(&x, ROWS), lay(&dy, ROWS)};
    cuda_laid device[2] = {cuda_lay(&x, ROWS, COMET_F32), cuda_lay(&dy, ROWS, COMET_F32)};
    cuda_block table = cuda_table(weights, 50 * 20);
    comet_tensor *all[] = {&cpu[0].tensor, &cpu[1].tensor, &device[0].tensor, &device[1].tensor};
    for (int i = 0; i < 4; i++) {
        all[i]->ndim = 2;
        all[i]->layout = COMET_FLAT;
        all[i]->shape[1] = all[i]->strides[0] = i % 2 ? 20 : 50;
        all[i]->strides[1] = 1;
    }
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    comet_stats_layer expected = COMET_STATS_LAYER_INIT, seen = COMET_STATS_LAYER_INIT;
    comet_status status;
    pass.what = COMET_STATS_OUTPUT | COMET_STATS_INPUT | COMET_STATS_COMMON;
    pass.input = all[0], pass.gradient = all[1], pass.weights = weights;
    SEE(layer, &pass, NULL, &expected);
    pass.input = all[2], pass.gradient = all[3], pass.weights = table.data;
    CUDA_SEE(layer, &pass, &seen, &status);
    assert_int_equal(status, COMET_OK);
    assert_layer(&seen, &expected);
    for (int i = 0; i < 2; i++) {
        free(cpu[i].memory);
        cuda_block_free(&device[i].block);
    }
    cuda_block_free(&table);
    free(x.values);
    free(dy.values);
    free(weights);
}

/* Only what is asked for is read, and written: a record has no room for more. */
static void test_what(void **state) {
    (void)state;
    rng r = rng_seed(4);
    const uint32_t whats[] = {COMET_STATS_OUTPUT, COMET_STATS_INPUT, COMET_STATS_OUTPUT | COMET_STATS_INPUT,
                              COMET_STATS_INPUT | COMET_STATS_COMMON};
    conv v = conv_new(&r, 6);
    laid x = lay(&v.x, ROWS), dy = lay(&v.dy, ROWS);
    cuda_laid on_x = cuda_lay(&v.x, PLANES, COMET_F32), on_dy = cuda_lay(&v.dy, PLANES, COMET_F32);
    cuda_block weights = cuda_table(v.weights, v.dy.channels * fan_in_of(&v));
    for (int i = 0; i < 4; i++) {
        comet_stats_layer expected = COMET_STATS_LAYER_INIT, seen = COMET_STATS_LAYER_INIT;
        comet_layer_pass cpu = conv_pass(&v, &x.tensor, &dy.tensor);
        comet_tensor input = on_x.tensor, gradient = on_dy.tensor;
        comet_layer_pass device = conv_pass(&v, &input, &gradient);
        comet_status status;
        cpu.what = device.what = whats[i];
        device.weights = weights.data;
        if (!(whats[i] & COMET_STATS_INPUT))
            input.data = NULL;
        if (!(whats[i] & COMET_STATS_OUTPUT))
            gradient.data = NULL;
        SEE(layer, &cpu, NULL, &expected);
        CUDA_SEE(layer, &device, &seen, &status);
        assert_int_equal(status, COMET_OK);
        assert_layer(&seen, &expected);
    }
    cuda_block_free(&weights);
    cuda_block_free(&on_x.block);
    cuda_block_free(&on_dy.block);
    free(x.memory);
    free(dy.memory);
    conv_free(&v);
}

/* ---- a batch in parts ---- */

static comet_tensor images_of(comet_tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + (size_t)(first * t.strides[0]) * comet_dtype_size(t.dtype);
    t.shape[0] = count;
    return t;
}

/* The parts from `from` on, of 2, 3 and 1 images; the status of folding. */
static comet_status see_parts(const device_side *d, const comet_norm_pass *whole, int from, comet_stats_norm *into) {
    static const int64_t first[] = {0, 2, 5}, count[] = {2, 3, 1};
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    assert_ok(comet_cuda_stats_norm_needs(whole, &needs));
    cuda_seen seen = cuda_seen_new(&needs, NULL);
    for (int i = from; i < 3; i++) {
        const comet_tensor u = images_of(d->at.u, first[i], count[i]), g = images_of(d->at.g, first[i], count[i]);
        comet_norm_pass p = *whole;
        p.values = &u, p.gradient = &g;
        p.part = i, p.parts = 3;
        assert_ok(comet_cuda_stats_see_norm(&p, &seen.exec, &seen.slot));
        if (i < 2) {
            cuda_must(cudaStreamSynchronize(NULL));
            assert_status(comet_cuda_stats_fold_norm(seen.slot.host, needs.record_bytes, into), COMET_ERROR_ARGUMENT);
        }
    }
    cuda_must(cudaStreamSynchronize(NULL));
    const comet_status status = comet_cuda_stats_fold_norm(seen.slot.host, needs.record_bytes, into);
    cuda_seen_free(&seen);
    return status;
}

static void test_parts(void **state) {
    (void)state;
    rng r = rng_seed(5);
    for (int form = 0; form < 2; form++) {
        tensors t = tensors_of(&r, conv_new(&r, 2), norm_of(&r, 6, 5, 7, 11));
        const looks k = {{form, ROWS}, {COMET_F32, COMET_F32}};
        device_side d;
        device_side_new(&t, &k, &d);
        const found expected = see_on_cpu(&t);
        found f = found_new();
        assert_ok(see_parts(&d, &d.p.norm, 0, &f.norm));
        assert_ok(see_parts(&d, &d.p.plain, 0, &f.plain));
        assert_ok(see_parts(&d, &d.p.acgc, 0, &f.acgc));
        f.norm.gradient = f.plain.gradient = f.acgc.gradient = expected.norm.gradient; /* of the first part alone */
        assert_near(f.norm.derivative, expected.norm.derivative, NEAR);
        assert_near(f.norm.scale_squares, expected.norm.scale_squares, NEAR);
        assert_near(f.plain.derivative, expected.plain.derivative, NEAR);
        assert_near(f.plain.scale_squares, expected.plain.scale_squares, NEAR);
        assert_near(f.plain.common_gain, expected.plain.common_gain, NEAR);
        assert_near(f.acgc.acgc, expected.acgc.acgc, NEAR_DIFFERENCE);
        assert_true(f.norm.batches == 1 && f.norm.pixels == 0);
        assert_status(see_parts(&d, &d.p.plain, 1, &f.plain), COMET_ERROR_ARGUMENT); /* the first is missing */
        assert_true(f.plain.batches == 1);
        device_side_free(&d);
        tensors_free(&t);
    }
}

/* ---- graphs ---- */

/* All calls, recorded once; launched again after the tensors changed they find what is then there. */
static void test_graph(void **state) {
    (void)state;
    rng r = rng_seed(6);
    const looks k = {{ROWS, ROWS}, {COMET_F32, COMET_F32}};
    tensors t = tensors_of(&r, conv_new(&r, 4), norm_new(&r, 5));
    device_side d;
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_seen seen[KINDS];
    device_side_new(&t, &k, &d);
    cuda_must(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
#define PREPARE(kind, field, number)                                                                                   \
    {                                                                                                                  \
        comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;                                                    \
        assert_ok(comet_cuda_stats_##kind##_needs(&d.p.field, &needs));                                                \
        seen[number] = cuda_seen_new(&needs, queue);                                                                   \
    }
    EVERY(PREPARE)
#undef PREPARE
    cuda_must(cudaDeviceSynchronize());
    cuda_must(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
#define ISSUE(kind, field, number)                                                                                     \
    assert_ok(comet_cuda_stats_see_##kind(&d.p.field, &seen[number].exec, &seen[number].slot));
    EVERY(ISSUE)
#undef ISSUE
    cuda_must(cudaStreamEndCapture(queue, &graph));
    cuda_must(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 2; launch++) {
        for (int64_t i = 0; i < count_of(&t.n.dy); i++)
            t.n.dy.values[i] = (float)rng_gauss(&r);
        for (int64_t i = 0; i < count_of(&t.v.dy); i++)
            t.v.dy.values[i] = (float)rng_gauss(&r);
        cuda_block_write(&d.laid[3].block, t.n.dy.values);
        cuda_block_write(&d.laid[1].block, t.v.dy.values);
        cuda_must(cudaGraphLaunch(exec, queue));
        cuda_must(cudaStreamSynchronize(queue));
        const found expected = see_on_cpu(&t);
        found f = found_new();
#define FOLD(kind, field, number)                                                                                      \
    assert_ok(comet_cuda_stats_fold_##kind(seen[number].slot.host, seen[number].slot.bytes, &f.field));
        EVERY(FOLD)
#undef FOLD
        assert_found(&f, &expected);
    }
    for (int i = 0; i < KINDS; i++)
        cuda_seen_free(&seen[i]);
    cuda_must(cudaGraphExecDestroy(exec));
    cuda_must(cudaGraphDestroy(graph));
    cuda_must(cudaStreamDestroy(queue));
    device_side_free(&d);
    tensors_free(&t);
}

/* ---- what is not finite ---- */

static void test_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(7);
    const float bad[] = {NAN, INFINITY, 1e30f}; /* the last: its square */
    for (int i = 0; i < 3; i++)
        for (int which = 0; which < 2; which++) {
            const looks k = {{ROWS, PLANES}, {COMET_F32, COMET_F32}};
            tensors t = tensors_of(&r, conv_new(&r, 3), norm_of(&r, 3, 4, 4, 5));
            device_side d;
            found f = found_new();
            comet_status status;
            batch *of_layer = which ? &t.v.dy : &t.v.x, *of_norm = which ? &t.n.dy : &t.n.x;
            of_layer->values[count_of(of_layer) / 2] = bad[i];
            of_norm->values[count_of(of_norm) / 2] = bad[i];
            t.n.mask[count_of(of_norm) / 2 / 8] = 0xff; /* the gradient is seen there */
            t.stored.stats.nonfinite = 1;
            device_side_new(&t, &k, &d);
            CUDA_SEE(layer, &d.p.layer, &f.layer, &status);
            assert_int_equal(status, COMET_ERROR_DIVERGED);
            if (which || i < 2) { /* a great u is no infinite sum */
                CUDA_SEE(norm, &d.p.plain, &f.plain, &status);
                assert_int_equal(status, COMET_ERROR_DIVERGED);
            }
            CUDA_SEE(silu, &d.p.silu, &f.silu, &status);
            assert_int_equal(status, which || i < 2 ? COMET_ERROR_DIVERGED : COMET_OK);
            CUDA_SEE(scale, &d.p.scale, &f.scale, &status);
            assert_int_equal(status, which ? COMET_ERROR_DIVERGED : COMET_OK);
            CUDA_SEE(tensor, &d.p.tensor, &f.tensor, &status);
            assert_int_equal(status, COMET_ERROR_DIVERGED);
            assert_true(f.layer.batches == 1 && f.silu.batches == 1 && f.tensor.streams == 1);
            device_side_free(&d);
            tensors_free(&t);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),     cmocka_unit_test(test_wide),  cmocka_unit_test(test_linear),
        cmocka_unit_test(test_what),       cmocka_unit_test(test_parts), cmocka_unit_test(test_graph),
        cmocka_unit_test(test_not_finite),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
