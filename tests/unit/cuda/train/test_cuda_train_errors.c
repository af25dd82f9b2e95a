/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of gradients on the device against the CPU's: each call of train/backend/errors.h. What a layer reads is given
 * to the CPU ready made, rounded by the test where the trainer rounds it.
 */
#include "cuda_train_bench.h"

#include "base/vector/math.h"
#include "support/cuda/cuda_stats.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/emulation.h"
#endif

/* fp32 sums in another order; in 16 bits a GPU's sigmoid is another one now and then, by a rounding. */
static double near_of(comet_dtype dtype, comet_rebuild what) {
#ifndef COMET_CUDA_EMULATION
    if (dtype != COMET_F32 && what == COMET_REBUILD_SILU)
        return 5e-3;
#endif
    (void)dtype, (void)what;
    return 3e-6;
}

/* What values differ by, in parts of what they are. */
static double part_of(double difference, double whole) {
    if (whole > 0)
        return sqrt(difference / whole);
    return difference > 0 ? 1e300 : 0;
}

static double apart(const double *found, const double *expected, int64_t count) {
    double difference = 0, whole = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow(found[i] - expected[i], 2);
        whole += expected[i] * expected[i];
    }
    return part_of(difference, whole);
}

static double floats_apart(const float *found, const float *expected, int64_t count) {
    double difference = 0, whole = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)found[i] - (double)expected[i], 2);
        whole += (double)expected[i] * (double)expected[i];
    }
    return part_of(difference, whole);
}

static float rounded(float v, comet_dtype dtype) {
    if (dtype == COMET_F32)
        return v;
    return dtype == COMET_F16 ? comet_f16_to_f32(comet_f16_of_f32(v)) : comet_bf16_to_f32(comet_bf16_of_f32(v));
}

/* A tensor on both sides. */
typedef struct pair {
    batch values;
    laid cpu;
    cuda_laid cuda;
} pair;

static pair pair_of(batch values, comet_dtype dtype) {
    batch_round(&values, dtype);
    return (pair){values, lay(&values, ROWS), cuda_lay(&values, ROWS, dtype)};
}

static pair pair_new(rng *r, comet_dtype dtype, const int64_t shape[4], double zeros) {
    return pair_of(batch_new(r, shape[0], shape[1], shape[2], shape[3], zeros), dtype);
}

static void pair_free(pair *p) {
    cuda_block_free(&p->cuda.block);
    free(p->cpu.memory);
    free(p->values.values);
}

static int64_t rows_of(const batch *b) {
    return b->images * b->height * b->width;
}

static cuda_block workspace_new(const train_bench *b) {
    return cuda_block_new(comet_cuda_errors.workspace((comet_backend *)&b->cuda.base, 1, 8), NULL);
}

/* What is written on the device is NaN before. */
static cuda_block hollow(int64_t count) {
    return cuda_block_new((size_t)count * sizeof(float), NULL);
}

/* ---- keeping ---- */

static void test_keep(void **state) {
    static const int64_t shapes[][4] = {{1, 1, 1, 2}, {3, 5, 7, 9}, {2, 11, 13, 24}, {5, 1, 1, 8}};
    (void)state;
    for (int round = 0; round < 24; round++) {
        const comet_dtype dtype = dtypes[round % 3];
        train_bench *b = train_bench_new(dtype, 700 + (uint64_t)round);
        pair x = pair_new(&b->r, dtype, shapes[round / 3 % 4], 0.2);
        const int64_t channels = x.values.channels, rows = rows_of(&x.values);
        const int width = (int)rng_between(&b->r, 1, channels < 8 ? channels : 8),
                  first = (int)rng_below(&b->r, (uint32_t)(channels - width + 1));
        float *scale = channels_new(&b->r, channels, 1, 0.3), *shift = channels_new(&b->r, channels, 0, 1);
        float *expected = take((size_t)(rows * width) * sizeof *expected);
        cuda_block kept = hollow(rows * width), cuda_scale = cuda_table(scale, channels),
                   cuda_shift = cuda_table(shift, channels);
        comet_codec_grid grid = {.scale = scale, .shift = shift},
                         cuda_grid = {.scale = cuda_scale.data, .shift = cuda_shift.data};
        const int has_grid = round / 12;
        assert_ok(b->cpu.errors->keep(&b->cpu, &x.cpu.tensor, has_grid ? &grid : NULL, first, width, expected));
        assert_ok(comet_cuda_errors.keep(&b->cuda.base, &x.cuda.tensor, has_grid ? &cuda_grid : NULL, first, width,
                                         kept.data));
        float *found = train_read(b, &kept);
        assert_memory_equal(found, expected, (size_t)(rows * width) * sizeof *expected);
        free(found), free(expected), free(scale), free(shift);
        cuda_block_free(&kept), cuda_block_free(&cuda_scale), cuda_block_free(&cuda_shift);
        pair_free(&x);
        train_bench_free(b);
    }
}

/* ---- what a layer reads ---- */

/* Kept channels, and what is made of them: on the device as it is given, on the CPU ready made. */
typedef struct source {
    float *kept, *made, *gamma, *beta, *factors; /* NULL: without */
    int64_t images, pixels, channels;
    int first, width;
    comet_rebuild what;
    cuda_block cuda_kept, cuda_gamma, cuda_beta, cuda_factors;
} source;

static float made_of(const source *s, comet_dtype dtype, int64_t row, int i) {
    float v = s->kept[row * s->width + i];
    if (s->gamma)
        v = fmaf(s->gamma[s->first + i], v, s->beta[s->first + i]);
    if (s->what == COMET_REBUILD_RELU)
        v = v > 0 ? v : 0;
    v = rounded(v, dtype);
    if (s->what == COMET_REBUILD_SILU)
        v = rounded(v * comet_sigmoidf(v), dtype);
    return s->factors ? rounded(v * s->factors[row / s->pixels * s->width + i], dtype) : v;
}

static source source_new(rng *r, comet_dtype dtype, const batch *like, int width, comet_rebuild what, int has_factors) {
    source s = {.images = like->images,
                .pixels = like->height * like->width,
                .channels = like->channels,
                .first = (int)rng_below(r, (uint32_t)(like->channels - width + 1)),
                .width = width,
                .what = what};
    const int64_t rows = rows_of(like);
    if (width == 8) /* rows of whole vectors, if the tensor has such */
        s.first -= s.first % 8;
    s.kept = channels_new(r, rows * width, 0, 1);
    for (int64_t i = 0; i < rows * width && what == COMET_REBUILD_NOTHING; i++)
        s.kept[i] = rounded(s.kept[i], dtype);
    if (what != COMET_REBUILD_NOTHING) {
        s.gamma = channels_new(r, like->channels, 1, 0.3);
        s.beta = channels_new(r, like->channels, 0.1, 0.5);
        s.cuda_gamma = cuda_table(s.gamma, like->channels);
        s.cuda_beta = cuda_table(s.beta, like->channels);
    }
    if (has_factors) {
        s.factors = channels_new(r, like->images * width, 0.5, 0.2);
        for (int64_t i = 0; i < like->images * width; i++)
            s.factors[i] = rounded(s.factors[i], dtype);
        s.cuda_factors = cuda_table(s.factors, like->images * width);
    }
    s.made = take((size_t)(rows * width) * sizeof *s.made);
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < width; i++)
            s.made[row * width + i] = made_of(&s, dtype, row, i);
    s.cuda_kept = cuda_table(s.kept, rows * width);
    return s;
}

static void source_free(source *s) {
    cuda_block_free(&s->cuda_kept);
    if (s->gamma)
        cuda_block_free(&s->cuda_gamma), cuda_block_free(&s->cuda_beta);
    if (s->factors)
        cuda_block_free(&s->cuda_factors);
    free(s->kept), free(s->made), free(s->gamma), free(s->beta), free(s->factors);
}

static comet_errors_operand cpu_operand(const source *s) {
    return (comet_errors_operand){.kept = {s->made, s->first, s->width}};
}

static comet_errors_operand cuda_operand(const source *s) {
    return (comet_errors_operand){.kept = {s->cuda_kept.data, s->first, s->width},
                                  .gamma = s->gamma ? s->cuda_gamma.data : NULL,
                                  .beta = s->gamma ? s->cuda_beta.data : NULL,
                                  .what = s->what,
                                  .factors = s->factors ? s->cuda_factors.data : NULL};
}

/* The tensor as it came back: what it was but for an error within 0.3, of most values. */
static pair stored_of(rng *r, comet_dtype dtype, const source *s, int64_t height, int64_t width) {
    batch b = batch_new(r, s->images, height, width, s->channels, 0.1);
    for (int64_t row = 0; row < rows_of(&b); row++)
        for (int i = 0; i < s->width; i++)
            b.values[row * s->channels + s->first + i] =
                s->made[row * s->width + i] + (rng_below(r, 4) ? (float)(0.6 * rng_unit(r) - 0.3) : 0);
    return pair_of(b, dtype);
}

/* ---- layers ---- */

typedef struct layer_shape {
    int64_t images, height, width, inputs, outputs;
    int kernel[2], padding[2], stride, groups;
} layer_shape;

static const layer_shape layers[] = {
    {2, 9, 7, 12, 20, {3, 3}, {1, 1}, 1, 1},   {3, 11, 14, 12, 8, {5, 3}, {2, 0}, 2, 4},
    {5, 8, 6, 16, 16, {1, 1}, {0, 0}, 1, 1},   {1, 13, 5, 6, 6, {3, 5}, {1, 2}, 1, 6},
    {4, 10, 9, 24, 24, {1, 1}, {0, 0}, 2, 1},  {7, 1, 1, 40, 5, {1, 1}, {0, 0}, 1, 1},
    {2, 17, 19, 3, 10, {7, 7}, {3, 3}, 2, 1},  {1, 6, 6, 8, 24, {2, 1}, {0, 1}, 3, 8},
    {2, 21, 23, 16, 16, {1, 3}, {0, 1}, 1, 1}, {6, 15, 15, 32, 32, {1, 1}, {0, 0}, 1, 1},
    {3, 7, 7, 32, 16, {3, 3}, {1, 1}, 1, 1},   {1, 3, 4, 4, 4, {4, 5}, {3, 4}, 1, 1},
};

static int outputs_of(int64_t in, int kernel, int padding, int stride) {
    return ((int)in + 2 * padding - kernel) / stride + 1;
}

typedef struct layer_case {
    train_bench *b;
    comet_dtype dtype;
    comet_errors_layer cpu, cuda;
    source s;
    pair x, dy;
    comet_errors_operand cpu_exact, cuda_exact;
    comet_errors_kept cpu_error, cuda_error;
    cuda_block workspace;
    void *cpu_workspace;
    int sums;
} layer_case;

/* As many channels as there may be sums of. */
static void choose_channels(layer_case *c, const layer_shape *shape, int mine, int others) {
    const int taps = shape->kernel[0] * shape->kernel[1];
    c->cpu.count = mine;
    c->cpu.others = (int)rng_between(&c->b->r, 1, others < 16 ? others : 16);
    while (c->cpu.count * c->cpu.others * taps > COMET_ERRORS_SUMS) {
        c->cpu.count -= c->cpu.count > 1;
        c->cpu.others -= c->cpu.others > 1;
    }
    c->cpu.other = (int)rng_below(&c->b->r, (uint32_t)(others - c->cpu.others + 1));
    if (c->cpu.others == 8 || c->cpu.others == 16)
        c->cpu.other -= c->cpu.other % 8;
    c->sums = taps * c->cpu.count * c->cpu.others;
}

static layer_case *layer_case_new(const layer_shape *shape, comet_dtype dtype, int is_exact, comet_rebuild what,
                                  int has_factors, uint64_t seed) {
    layer_case *c = take(sizeof *c);
    memset(c, 0, sizeof *c);
    c->b = train_bench_new(dtype, seed);
    rng *r = &c->b->r;
    const int64_t h = outputs_of(shape->height, shape->kernel[0], shape->padding[0], shape->stride),
                  w = outputs_of(shape->width, shape->kernel[1], shape->padding[1], shape->stride),
                  mine = is_exact ? shape->inputs : shape->outputs, others = is_exact ? shape->outputs : shape->inputs;
    const int width = (int)(mine >= 8 ? (seed % 2 ? 8 : rng_between(r, 2, 8)) : rng_between(r, 1, mine));
    c->dtype = dtype;
    c->dy = pair_new(r, dtype, (int64_t[]){shape->images, h, w, shape->outputs}, 0);
    if (is_exact) {
        const batch like = {shape->images, shape->height, shape->width, shape->inputs, NULL};
        c->s = source_new(r, dtype, &like, width, what, has_factors);
        c->x = stored_of(r, dtype, &c->s, shape->height, shape->width);
    } else {
        c->s = source_new(r, COMET_F32, &c->dy.values, width, COMET_REBUILD_NOTHING, 0);
        c->x = pair_new(r, dtype, (int64_t[]){shape->images, shape->height, shape->width, shape->inputs}, 0.3);
    }
    c->cpu = (comet_errors_layer){.x = &c->x.cpu.tensor,
                                  .dy = &c->dy.cpu.tensor,
                                  .kernel = {shape->kernel[0], shape->kernel[1]},
                                  .padding = {shape->padding[0], shape->padding[1]},
                                  .stride = shape->stride,
                                  .groups = shape->groups};
    choose_channels(c, shape, width, (int)others);
    c->cuda = c->cpu;
    c->cuda.x = &c->x.cuda.tensor;
    c->cuda.dy = &c->dy.cuda.tensor;
    c->cpu_exact = cpu_operand(&c->s), c->cuda_exact = cuda_operand(&c->s);
    c->cpu_error = c->cpu_exact.kept, c->cuda_error = c->cuda_exact.kept;
    c->cpu.exact = is_exact ? &c->cpu_exact : NULL, c->cpu.error = is_exact ? NULL : &c->cpu_error;
    c->cuda.exact = is_exact ? &c->cuda_exact : NULL, c->cuda.error = is_exact ? NULL : &c->cuda_error;
    c->cpu.workspace = c->cpu_workspace =
        take(c->b->cpu.errors->workspace(&c->b->cpu, shape->height * shape->width, width));
    c->workspace = workspace_new(c->b);
    c->cuda.workspace = c->workspace.data;
    return c;
}

static void layer_case_free(layer_case *c) {
    cuda_must(cudaStreamSynchronize(c->b->cuda.queue));
    cuda_block_free(&c->workspace);
    source_free(&c->s);
    pair_free(&c->x), pair_free(&c->dy);
    free(c->cpu_workspace);
    train_bench_free(c->b);
    free(c);
}

static void check_layer(const layer_shape *shape, comet_dtype dtype, int is_exact, comet_rebuild what, int has_factors,
                        uint64_t seed) {
    static double expected[COMET_ERRORS_SUMS + 1], found[COMET_ERRORS_SUMS + 1];
    layer_case *c = layer_case_new(shape, dtype, is_exact, what, has_factors, seed);
    comet_backend *cuda = &c->b->cuda.base;
    memset(expected, 0, sizeof expected), memset(found, 0, sizeof found);
    assert_ok(c->b->cpu.errors->layer(&c->b->cpu, &c->cpu, expected));
    assert_ok(comet_cuda_errors.layer(cuda, &c->cuda, found));
    for (int i = 0; i <= COMET_ERRORS_SUMS; i++)
        assert_true(found[i] == 0); /* not yet */
    assert_ok(comet_cuda_statistics.settle(cuda, 1));
    const double is = apart(found, expected, COMET_ERRORS_SUMS + 1);
    if (!(is <= near_of(dtype, what)))
        fail_msg("%s, %lld x %lld, seed %llu: sums are off by %g", is_exact ? "input" : "output",
                 (long long)shape->inputs, (long long)shape->outputs, (unsigned long long)seed, is);
    layer_case_free(c);
}

static void test_layers(void **state) {
    static const comet_rebuild whats[] = {COMET_REBUILD_NOTHING, COMET_REBUILD_NORM, COMET_REBUILD_RELU,
                                          COMET_REBUILD_SILU};
    const int count = (int)(sizeof layers / sizeof *layers);
    (void)state;
    for (int i = 0; i < 6 * count; i++) {
        const int is_exact = i / count % 2;
        check_layer(&layers[i % count], dtypes[(i / count + i) % 3], is_exact, is_exact ? whats[i % 4] : 0,
                    is_exact && i % 3 == 1, 31 + (uint64_t)i);
    }
}

/* Maps so large that there are as many blocks as there is room for the sums of, and each works on. */
static void test_large_layer(void **state) {
    const layer_shape shape = {3, 150, 151, 8, 16, {2, 2}, {1, 0}, 1, 1};
    (void)state;
    check_layer(&shape, COMET_BF16, 1, COMET_REBUILD_NOTHING, 0, 9);
}

/* Whatever the order in which blocks and threads get their turn. */
static void shuffle(uint64_t seed) {
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(seed);
    emulation_set_thread_order(seed);
#endif
    (void)seed;
}

/* Calls add up, each when it is settled; what nobody wants is not added. The same call gives the same bits. */
static void test_layers_settle(void **state) {
    static double twice[COMET_ERRORS_SUMS], once[COMET_ERRORS_SUMS];
    (void)state;
    layer_case *c = layer_case_new(&layers[0], COMET_F32, 1, COMET_REBUILD_RELU, 0, 3);
    comet_backend *cuda = &c->b->cuda.base;
    assert_ok(comet_cuda_errors.layer(cuda, &c->cuda, twice));
    shuffle(7);
    assert_ok(comet_cuda_errors.layer(cuda, &c->cuda, twice));
    shuffle(0);
    assert_ok(comet_cuda_statistics.settle(cuda, 1));
    assert_ok(comet_cuda_errors.layer(cuda, &c->cuda, once));
    assert_ok(comet_cuda_statistics.settle(cuda, 1));
    assert_ok(comet_cuda_errors.layer(cuda, &c->cuda, once));
    assert_ok(comet_cuda_statistics.settle(cuda, 0));
    for (int i = 0; i < c->sums; i++)
        assert_true(once[i] != 0 && twice[i] == 2 * once[i]);
    c->cuda.others = COMET_ERRORS_SUMS;
    assert_int_equal(comet_cuda_errors.layer(cuda, &c->cuda, once), COMET_ERROR_CAPACITY);
    layer_case_free(c);
}

/* ---- norms ---- */

typedef struct norm_wish {
    int normalised, kept_normalised, relu, has_mask, has_curve, parts;
} norm_wish;

typedef struct norm_case {
    train_bench *b;
    pair x, dy;
    int first, width;
    float *kept, *curve, *error, *tables[4]; /* scale, shift, gamma, beta */
    uint8_t *mask;
    cuda_block cuda_kept, cuda_curve, cuda_error, cuda_tables[4], cuda_mask, totals, workspace;
    double cpu_totals[4 * COMET_ERRORS_WIDTH];
} norm_case;

static norm_case *norm_case_new(comet_dtype dtype, const int64_t shape[4], uint64_t seed) {
    norm_case *c = take(sizeof *c);
    memset(c, 0, sizeof *c);
    c->b = train_bench_new(dtype, seed);
    rng *r = &c->b->r;
    const int64_t channels = shape[3], rows = shape[0] * shape[1] * shape[2];
    c->x = pair_new(r, dtype, shape, 0), c->dy = pair_new(r, dtype, shape, 0.2);
    c->width = (int)rng_between(r, 1, channels < 8 ? channels : 8);
    c->first = (int)rng_below(r, (uint32_t)(channels - c->width + 1));
    c->kept = take((size_t)(rows * c->width) * sizeof(float));
    for (int64_t i = 0; i < rows * c->width; i++) /* near what came back */
        c->kept[i] =
            c->x.values.values[i / c->width * channels + c->first + i % c->width] + (float)(0.4 * rng_unit(r) - 0.2);
    c->curve = channels_new(r, rows * c->width, 0, 0.1);
    c->error = take((size_t)(rows * c->width) * sizeof(float));
    for (int i = 0; i < 4; i++) {
        c->tables[i] = channels_new(r, channels, i % 2 ? 0.1 : 1, 0.3);
        c->cuda_tables[i] = cuda_table(c->tables[i], channels);
    }
    c->mask = take((size_t)(rows * channels + 7) / 8);
    for (int64_t i = 0; i < (rows * channels + 7) / 8; i++)
        c->mask[i] = (uint8_t)rng_below(r, 256);
    c->cuda_mask = cuda_block_new((size_t)(rows * channels + 7) / 8, c->mask);
    c->cuda_kept = cuda_table(c->kept, rows * c->width), c->cuda_curve = cuda_table(c->curve, rows * c->width);
    c->cuda_error = hollow(rows * c->width);
    for (int i = 0; i < 4 * c->width; i++) /* of another batch */
        c->cpu_totals[i] = 1e20;
    c->totals = cuda_block_new(4 * (size_t)c->width * sizeof(double), c->cpu_totals);
    c->workspace = workspace_new(c->b);
    return c;
}

static void norm_case_free(norm_case *c) {
    cuda_block *blocks[] = {&c->cuda_kept,      &c->cuda_curve,    &c->cuda_error,     &c->cuda_mask,
                            &c->totals,         &c->workspace,     &c->cuda_tables[0], &c->cuda_tables[1],
                            &c->cuda_tables[2], &c->cuda_tables[3]};
    cuda_must(cudaStreamSynchronize(c->b->cuda.queue));
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        cuda_block_free(blocks[i]);
    for (int i = 0; i < 4; i++)
        free(c->tables[i]);
    free(c->kept), free(c->curve), free(c->error), free(c->mask);
    pair_free(&c->x), pair_free(&c->dy);
    train_bench_free(c->b);
    free(c);
}

/* Images of one part. */
static comet_tensor images_of(comet_tensor t, int part, int parts) {
    t.shape[0] /= parts;
    t.data = (char *)t.data + (size_t)(part * t.shape[0] * t.strides[0]) * comet_dtype_size(t.dtype);
    return t;
}

typedef struct norm_part {
    comet_tensor x, dy;
    comet_errors_norm n;
} norm_part;

static void norm_part_of(norm_case *c, const norm_wish *w, int cuda, int part, norm_part *p) {
    p->x = images_of(cuda ? c->x.cuda.tensor : c->x.cpu.tensor, part, w->parts);
    p->dy = images_of(cuda ? c->dy.cuda.tensor : c->dy.cpu.tensor, part, w->parts);
    const int64_t rows = rows_of(&c->x.values);
    float *tables[4];
    for (int i = 0; i < 4; i++)
        tables[i] = cuda ? c->cuda_tables[i].data : c->tables[i];
    p->n = (comet_errors_norm){.x = &p->x,
                               .dy = &p->dy,
                               .scale = tables[0],
                               .shift = w->normalised && w->kept_normalised ? NULL : tables[1],
                               .gamma = tables[2],
                               .beta = tables[3],
                               .normalised = w->normalised,
                               .relu = w->relu,
                               .mask = !w->has_mask ? NULL
                                       : cuda       ? c->cuda_mask.data
                                                    : c->mask,
                               .row = part * (rows / w->parts),
                               .rows = rows,
                               .kept = {cuda ? c->cuda_kept.data : c->kept, c->first, c->width},
                               .kept_normalised = w->kept_normalised,
                               .curve = !w->has_curve ? NULL
                                        : cuda        ? c->cuda_curve.data
                                                      : c->curve,
                               .totals = cuda ? c->totals.data : c->cpu_totals,
                               .workspace = cuda ? c->workspace.data : NULL};
}

/* Sums of all parts, then errors: where the curve was, over what was kept, or elsewhere. */
static float *run_norm(norm_case *c, const norm_wish *w, int cuda, int where, double *scale) {
    comet_backend *backend = cuda ? &c->b->cuda.base : &c->b->cpu;
    const comet_backend_errors *errors = cuda ? &comet_cuda_errors : c->b->cpu.errors;
    float *to[] = {cuda ? c->cuda_error.data : c->error, cuda ? c->cuda_kept.data : c->kept,
                   cuda ? c->cuda_curve.data : c->curve};
    norm_part p;
    for (int part = 0; part < w->parts; part++) {
        norm_part_of(c, w, cuda, part, &p);
        assert_ok(errors->norm(backend, &p.n, part == w->parts - 1 ? scale : NULL));
    }
    for (int part = w->parts - 1; part >= 0; part--) {
        norm_part_of(c, w, cuda, part, &p);
        p.n.error = to[where];
        assert_ok(errors->norm(backend, &p.n, NULL));
    }
    return to[where];
}

static void check_norm(comet_dtype dtype, const int64_t shape[4], const norm_wish *w, uint64_t seed) {
    double expected[COMET_ERRORS_WIDTH] = {0}, found[COMET_ERRORS_WIDTH] = {0};
    norm_case *c = norm_case_new(dtype, shape, seed);
    const int where = (int)(seed % (w->has_curve ? 3 : 2)), width = c->width;
    const float *errors = run_norm(c, w, 0, where, expected);
    (void)run_norm(c, w, 1, where, found);
    assert_true(found[0] == 0); /* not yet */
    assert_ok(comet_cuda_statistics.settle(&c->b->cuda.base, 1));
    const cuda_block *block = where == 0 ? &c->cuda_error : where == 1 ? &c->cuda_kept : &c->cuda_curve;
    float *found_errors = train_read(c->b, block);
    double *totals = train_read(c->b, &c->totals);
    const double a = apart(totals, c->cpu_totals, 4 * width), b = apart(found, expected, width),
                 d = floats_apart(found_errors, errors, rows_of(&c->x.values) * width);
    /* Sums in fp64; what they are the same in leaves less of the difference. */
    if (!(a < 1e-13 && b < 1e-10 && d < 1e-6))
        fail_msg("seed %llu: totals are off by %g, the scale by %g, errors by %g", (unsigned long long)seed, a, b, d);
    free(found_errors), free(totals);
    norm_case_free(c);
}

static void test_norms(void **state) {
    static const int64_t shapes[][4] = {{6, 5, 7, 12}, {3, 9, 4, 5}, {3, 1, 1, 16}, {12, 13, 11, 3}};
    (void)state;
    for (int i = 0; i < 48; i++) {
        const norm_wish w = {.normalised = i % 2,
                             .kept_normalised = i / 2 % 2 || i % 2,
                             .relu = i % 3 != 0,
                             .has_mask = i % 3 == 2,
                             .has_curve = i / 4 % 2,
                             .parts = i % 5 == 1 ? 3 : 1};
        check_norm(dtypes[(i + i / 3) % 3], shapes[i / 2 % 4], &w, 100 + (uint64_t)i);
    }
}

/* More rows than blocks go over once. */
static void test_large_norm(void **state) {
    const norm_wish w = {.normalised = 1, .kept_normalised = 1, .relu = 1, .parts = 1};
    (void)state;
    check_norm(COMET_F16, (int64_t[]){4, 131, 137, 8}, &w, 5);
    check_norm(COMET_F32, (int64_t[]){9, 201, 207, 8}, &w, 8);
}

/* ---- SiLUs and channel scales ---- */

static void test_silus(void **state) {
    static const int64_t shapes[][4] = {{2, 5, 7, 9}, {3, 1, 1, 16}, {1, 17, 19, 8}};
    (void)state;
    for (int round = 0; round < 18; round++) {
        const comet_dtype dtype = dtypes[round % 3];
        train_bench *b = train_bench_new(dtype, 900 + (uint64_t)round);
        pair dy = pair_new(&b->r, dtype, shapes[round / 3 % 3], 0);
        const int width = (int)rng_between(&b->r, 1, 8), in_place = round % 2;
        const int64_t count = rows_of(&dy.values) * width;
        source s =
            source_new(&b->r, dtype, &dy.values, width, round / 9 ? COMET_REBUILD_NORM : COMET_REBUILD_NOTHING, 0);
        pair x = stored_of(&b->r, dtype, &s, dy.values.height, dy.values.width);
        cuda_block curve = hollow(count);
        float *expected = take((size_t)count * sizeof *expected);
        comet_errors_silu silu = {.x = &x.cpu.tensor,
                                  .dy = &dy.cpu.tensor,
                                  .exact = cpu_operand(&s),
                                  .sign = round % 4 ? 1 : -1,
                                  .curve = expected};
        assert_ok(b->cpu.errors->silu(&b->cpu, &silu));
        silu.x = &x.cuda.tensor, silu.dy = &dy.cuda.tensor;
        silu.exact = cuda_operand(&s);
        silu.curve = in_place ? s.cuda_kept.data : curve.data;
        assert_ok(comet_cuda_errors.silu(&b->cuda.base, &silu));
        float *found = train_read(b, in_place ? &s.cuda_kept : &curve);
        const double is = floats_apart(found, expected, count);
        if (!(is <= near_of(dtype, COMET_REBUILD_SILU)))
            fail_msg("round %d: off by %g", round, is);
        free(found), free(expected);
        cuda_block_free(&curve);
        source_free(&s);
        pair_free(&x), pair_free(&dy);
        train_bench_free(b);
    }
}

static void test_scales(void **state) {
    static const int64_t shapes[][4] = {{3, 5, 7, 9}, {2, 1, 1, 16}, {2, 31, 29, 8}};
    static const comet_rebuild whats[] = {COMET_REBUILD_NOTHING, COMET_REBUILD_SILU, COMET_REBUILD_RELU};
    (void)state;
    for (int round = 0; round < 27; round++) {
        const comet_dtype dtype = dtypes[round % 3];
        train_bench *b = train_bench_new(dtype, 950 + (uint64_t)round);
        pair dy = pair_new(&b->r, dtype, shapes[round / 3 % 3], 0);
        const int width = (int)rng_between(&b->r, 1, 8);
        const int64_t images = dy.values.images, count = images * width;
        batch squashed = batch_new(&b->r, images, 1, 1, dy.values.channels, 0);
        for (int64_t i = 0; i < count_of(&squashed); i++)
            squashed.values[i] = comet_sigmoidf(squashed.values[i]);
        pair factors = pair_of(squashed, dtype);
        source s = source_new(&b->r, dtype, &dy.values, width, whats[round / 9], 0);
        pair x = stored_of(&b->r, dtype, &s, dy.values.height, dy.values.width);
        cuda_block error = hollow(count);
        float *expected = take((size_t)count * sizeof *expected);
        comet_errors_scale scale = {.x = &x.cpu.tensor,
                                    .factors = &factors.cpu.tensor,
                                    .dy = &dy.cpu.tensor,
                                    .exact = cpu_operand(&s),
                                    .error = expected};
        assert_ok(b->cpu.errors->scale(&b->cpu, &scale));
        scale = (comet_errors_scale){.x = &x.cuda.tensor,
                                     .factors = &factors.cuda.tensor,
                                     .dy = &dy.cuda.tensor,
                                     .exact = cuda_operand(&s),
                                     .error = error.data};
        assert_ok(comet_cuda_errors.scale(&b->cuda.base, &scale));
        float *found = train_read(b, &error);
        const double is = floats_apart(found, expected, count);
        if (!(is <= near_of(dtype, whats[round / 9])))
            fail_msg("round %d: off by %g", round, is);
        free(found), free(expected);
        cuda_block_free(&error);
        source_free(&s);
        pair_free(&x), pair_free(&dy), pair_free(&factors);
        train_bench_free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keep),        cmocka_unit_test(test_layers),
                                       cmocka_unit_test(test_large_layer), cmocka_unit_test(test_layers_settle),
                                       cmocka_unit_test(test_norms),       cmocka_unit_test(test_large_norm),
                                       cmocka_unit_test(test_silus),       cmocka_unit_test(test_scales)};
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
