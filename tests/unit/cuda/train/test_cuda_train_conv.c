/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions through cuDNN against sums in fp64. On a device it is the system's cuDNN, here the stand-in, of which
 * more can be asked: which engine ran, and what happens when one does not.
 */
#include "cuda_train_bench.h"

#include <stdio.h>

#include "train/backend/cuda/cudnn/cudnn.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#include "emulation/train/stand_in.h"
#endif

typedef struct conv_case {
    int batch, height, width, channels;
    comet_conv2d conv;
    int is_first;  /* its input is the network's */
    int is_shared; /* others use it, too; 2: and no gradient can be added, as channels are padded */
} conv_case;

typedef struct options {
    comet_dtype dtype;
    int exact, deterministic;
} options;

/* ---- a backend with cuDNN and one convolution ---- */

typedef struct fixture {
    train_bench *bench;
    comet_graph *graph;
    comet_op_call call;
    comet_parameter *weight, *bias;
    float *weight_values, *bias_values; /* host, in the order of files */
} fixture;

static void make_cudnn(train_bench *b) {
    comet_message message;
#ifdef COMET_CUDA_EMULATION
    b->cuda.options.loader = comet_stand_in_loader();
#endif
    if (comet_cudnn_new(&b->cuda, &b->cuda.cudnn, &message) != COMET_OK)
        fail_msg("%s", message.text);
}

static train_bench *bench_of(options o, uint64_t seed) {
    train_bench *b = train_bench_new(o.dtype, seed);
    b->cuda.options.exact_products = o.exact;
    b->cuda.options.deterministic = o.deterministic;
    b->cuda.options.workspace_bytes = 32 << 20;
    make_cudnn(b);
    return b;
}

static void bench_end(train_bench *b) {
    cuda_must(cudaStreamSynchronize(b->cuda.queue));
    comet_cudnn_free(b->cuda.cudnn);
    train_bench_free(b);
}

/* Random values of the dtype in a parameter, in the space's order there. */
static float *fill_parameter(train_bench *b, comet_parameter *p, comet_dtype dtype, double scale) {
    if (!p)
        return NULL;
    train_values v = train_values_new(dtype, p->count);
    for (int64_t i = 0; i < p->count; i++)
        train_values_set(&v, dtype, i, rng_gauss(&b->r) * scale);
    assert_ok(b->cuda.space->write(b->cuda.space, p->value, v.values, (size_t)p->count * sizeof(float)));
    free(v.patterns);
    return v.values;
}

static fixture fixture_new(train_bench *b, const conv_case *c, int training) {
    fixture f = {.bench = b};
    assert_ok(comet_graph_new(NULL, &f.graph));
    comet_value x = comet_graph_input(f.graph, c->height, c->width, c->channels);
    if (!c->is_first)
        x = comet_graph_relu(f.graph, x);
    if (c->is_shared)
        (void)comet_graph_relu(f.graph, x);
    comet_graph_output(f.graph, comet_graph_flatten(f.graph, comet_graph_conv2d(f.graph, "conv", x, &c->conv)));
    assert_ok(comet_graph_allocate(f.graph, b->cuda.space, 1));
    const comet_node *node = &f.graph->nodes[f.graph->node_count - 2];
    f.weight = comet_node_parameter(f.graph, node, COMET_PARAMETER_WEIGHT);
    f.bias = comet_node_parameter(f.graph, node, COMET_PARAMETER_BIAS);
    f.weight_values = fill_parameter(b, f.weight, b->cuda.base.dtype, 1);
    f.bias_values = fill_parameter(b, f.bias, COMET_F32, 3);
    assert_ok(comet_cuda_weights_begin(&b->cuda, f.graph));
    f.call = (comet_op_call){
        .backend = &b->cuda.base, .graph = f.graph, .node = node, .batch = c->batch, .training = training};
    return f;
}

static void fixture_free(fixture *f) {
    comet_cuda_conv.forget(f->call.state);
    comet_graph_free(f->graph);
    free(f->weight_values);
    free(f->bias_values);
}

/* ---- what it should be ---- */

/* Sums, and the sums of what was added, regardless of signs. */
typedef struct sums {
    double *sum, *size;
    int64_t count, terms; /* terms of each, at most */
} sums;

static sums sums_new(int64_t count, int64_t terms) {
    sums s = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double)), count, terms};
    assert_true(s.sum && s.size);
    return s;
}

static void sums_add(sums *s, int64_t at, double v) {
    s->sum[at] += v;
    s->size[at] += fabs(v);
}

static void sums_free(sums *s) {
    free(s->sum);
    free(s->size);
}

typedef struct expected {
    sums y, dx, dw, db;
} expected;

static void expect_one(expected *e, const conv_case *c, const comet_shape *ys, const float *x, const float *w,
                       const float *dy, const int at[4]) {
    const comet_conv2d *p = &c->conv;
    const int groups = p->groups ? p->groups : 1, in = c->channels / groups,
              kw = p->kernel_width ? p->kernel_width : p->kernel;
    const int stride = p->stride ? p->stride : 1, pad_w = p->padding_width ? p->padding_width : p->padding;
    const int first = at[3] / (p->out / groups) * in;
    const int64_t y_at = (((int64_t)at[0] * ys->height + at[1]) * ys->width + at[2]) * p->out + at[3];
    for (int r = 0; r < p->kernel; r++)
        for (int s = 0; s < kw; s++) {
            const int row = at[1] * stride - p->padding + r, column = at[2] * stride - pad_w + s;
            if (row < 0 || row >= c->height || column < 0 || column >= c->width)
                continue;
            for (int i = 0; i < in; i++) {
                const int64_t xi = (((int64_t)at[0] * c->height + row) * c->width + column) * c->channels + first + i;
                const int64_t wi = (((int64_t)at[3] * in + i) * p->kernel + r) * kw + s;
                sums_add(&e->y, y_at, (double)x[xi] * (double)w[wi]);
                sums_add(&e->dx, xi, (double)dy[y_at] * (double)w[wi]);
                sums_add(&e->dw, wi, (double)dy[y_at] * (double)x[xi]);
            }
        }
    sums_add(&e->db, at[3], (double)dy[y_at]);
}

static expected reference(const fixture *f, const conv_case *c, const float *x, const float *dy) {
    const comet_shape ys = *comet_value_shape(f->graph, f->call.node->output);
    const int64_t per_y = f->weight->count / c->conv.out, pixels = (int64_t)c->batch * ys.height * ys.width;
    expected e = {sums_new(pixels * c->conv.out, per_y),
                  sums_new((int64_t)c->batch * c->height * c->width * c->channels, f->weight->count / c->channels + 1),
                  sums_new(f->weight->count, pixels), sums_new(c->conv.out, pixels)};
    for (int n = 0; n < c->batch; n++)
        for (int h = 0; h < ys.height; h++)
            for (int w = 0; w < ys.width; w++)
                for (int k = 0; k < c->conv.out; k++)
                    expect_one(&e, c, &ys, x, f->weight_values, dy, (int[]){n, h, w, k});
    return e;
}

static void expected_free(expected *e) {
    sums_free(&e->y);
    sums_free(&e->dx);
    sums_free(&e->dw);
    sums_free(&e->db);
}

static double unit_of(comet_dtype dtype) { /* of rounding, relative */
    return dtype == COMET_F32 ? 0x1p-24 : dtype == COMET_F16 ? 0x1p-11 : 0x1p-8;
}

/*
 * Sums in fp32 of products that are exact, or of operands rounded to TF32; rounded to the dtype. `plus` is added
 * afterwards, and rounded again.
 */
static void check_sums(const char *what, options o, const sums *e, comet_dtype dtype, const void *found,
                       const float *plus, int64_t period) {
    const double of_terms = (double)e->terms * 0x1p-24 + (o.dtype == COMET_F32 && !o.exact ? 0x1.02p-10 : 0);
    for (int64_t i = 0; i < e->count; i++) {
        const double added = plus ? (double)plus[i % period] : 0, f = (double)value_at(dtype, found, i);
        const double wanted = e->sum[i] + added;
        const double allowed = e->size[i] * of_terms + 1.01 * unit_of(o.dtype) * (fabs(e->sum[i]) + fabs(wanted)) +
                               0x1p-24 * fabs(wanted) + (o.dtype == COMET_F16 ? 0x1p-24 : 0);
        if (!(fabs(f - wanted) <= allowed))
            fail_msg("%s %lld is %g, expected %g, +- %g", what, (long long)i, f, wanted, allowed);
    }
}

/* ---- running one ---- */

typedef struct arrays {
    train_values x, dy;
    cuda_block x_block, y_block, dy_block, dx_block, scratch[2];
} arrays;

static cuda_block scratch_of(const fixture *f, int backward) {
    return cuda_block_new(comet_cuda_conv.scratch(&f->call, backward), NULL);
}

static arrays arrays_new(fixture *f) {
    const comet_dtype dtype = f->bench->cuda.base.dtype;
    arrays a = {.x = train_values_new(dtype, comet_cuda_count(&f->call, f->call.node->input[0])),
                .dy = train_values_new(dtype, comet_cuda_count(&f->call, f->call.node->output))};
    for (int64_t i = 0; i < a.x.count; i++)
        train_values_set(&a.x, dtype, i, rng_gauss(&f->bench->r));
    for (int64_t i = 0; i < a.dy.count; i++)
        train_values_set(&a.dy, dtype, i, rng_gauss(&f->bench->r));
    a.x_block = cuda_block_new(a.x.bytes, a.x.patterns);
    a.dy_block = cuda_block_new(a.dy.bytes, a.dy.patterns);
    a.y_block = cuda_block_new(a.dy.bytes, NULL);
    a.dx_block = cuda_block_new(a.x.bytes, NULL);
    a.scratch[0] = scratch_of(f, 0);
    a.scratch[1] = f->call.training ? scratch_of(f, 1) : cuda_block_new(0, NULL);
    return a;
}

static void arrays_free(arrays *a) {
    cuda_block *const blocks[] = {&a->x_block, &a->dy_block, &a->y_block, &a->dx_block, &a->scratch[0], &a->scratch[1]};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        assert_true(cuda_block_is_intact(blocks[i]));
        cuda_block_free(blocks[i]);
    }
    train_values_free(&a->x);
    train_values_free(&a->dy);
}

static void forward(fixture *f, const arrays *a) {
    comet_op_call call = f->call;
    call.x[0] = a->x_block.data;
    call.y = a->y_block.data;
    call.scratch = a->scratch[0].bytes ? a->scratch[0].data : NULL;
    assert_ok(comet_cuda_conv.forward(&call));
}

static void backward(fixture *f, const arrays *a, void *dx, int accumulate) {
    comet_op_call call = f->call;
    call.accumulate = accumulate;
    call.x[0] = a->x_block.data;
    call.dy = a->dy_block.data;
    call.dx[0] = dx;
    call.scratch = a->scratch[1].bytes ? a->scratch[1].data : NULL;
    assert_ok(comet_cuda_conv.backward(&call));
}

static void expect_unchanged(const fixture *f, const cuda_block *block, const train_values *v) {
    void *found = train_read(f->bench, block);
    assert_memory_equal(found, v->patterns, v->bytes);
    free(found);
}

static void check_block(const char *what, const fixture *f, options o, const cuda_block *block, const sums *e,
                        const float *plus) {
    void *found = train_read(f->bench, block);
    check_sums(what, o, e, o.dtype, found, plus, e == NULL ? 1 : f->weight->shape[0]);
    free(found);
}

/* A gradient in the order of files. */
static float *read_gradient(const fixture *f, const comet_parameter *p) {
    float *values = take((size_t)p->count * sizeof(float));
    comet_space *space = f->bench->cuda.space;
    assert_ok(space->read(space, values, p->gradient, (size_t)p->count * sizeof(float)));
    return values;
}

static void poison_gradient(const fixture *f, const comet_parameter *p) {
    comet_space *space = f->bench->cuda.space;
    if (p)
        assert_ok(space->fill(space, p->gradient, p->count, NAN));
}

/* The bias's gradient is a sum in fp32 of what is exact. */
static void check_gradients(const fixture *f, options o, const expected *e, const float *dw_before,
                            const float *db_before) {
    float *dw = read_gradient(f, f->weight);
    check_sums("dw", o, &e->dw, COMET_F32, dw, dw_before, f->weight->count);
    free(dw);
    if (!f->bias)
        return;
    float *db = read_gradient(f, f->bias);
    check_sums("db", (options){COMET_F32, 1, 0}, &e->db, COMET_F32, db, db_before, f->bias->count);
    free(db);
}

/* Written, then added, then with dx over x. */
static void check_backward(fixture *f, options o, arrays *a, const expected *e) {
    poison_gradient(f, f->weight);
    poison_gradient(f, f->bias);
    backward(f, a, a->dx_block.data, 0);
    expect_unchanged(f, &a->x_block, &a->x);
    expect_unchanged(f, &a->dy_block, &a->dy);
    check_block("dx", f, o, &a->dx_block, &e->dx, NULL);
    check_gradients(f, o, e, NULL, NULL);
    float *dw = read_gradient(f, f->weight), *db = f->bias ? read_gradient(f, f->bias) : NULL;
    backward(f, a, NULL, 1);
    check_gradients(f, o, e, dw, db);
    free(dw);
    free(db);
    poison_gradient(f, f->weight);
    backward(f, a, a->x_block.data, 0);
    check_block("dx over x", f, o, &a->x_block, &e->dx, NULL);
    check_gradients(f, o, e, NULL, NULL);
}

/* dx of an input that has a gradient of other uses. It is not added where channels are padded, nor by own kernels. */
static void check_added(const fixture *f, options o, const conv_case *c, const arrays *a, const expected *e) {
    comet_op_call call = f->call;
    assert_int_equal(comet_cuda_conv.can_add_dx(&call), c->is_shared == 1);
    if (c->is_shared != 1)
        return;
    train_values before = train_values_new(o.dtype, e->dx.count);
    for (int64_t i = 0; i < before.count; i++)
        train_values_set(&before, o.dtype, i, rng_gauss(&f->bench->r));
    call.adds_dx = 1;
    cuda_block dx = cuda_block_new(before.bytes, before.patterns);
    cuda_block scratch = cuda_block_new(comet_cuda_conv.scratch(&call, 1), NULL);
    call.x[0] = a->x_block.data;
    call.dy = a->dy_block.data;
    call.dx[0] = dx.data;
    call.scratch = scratch.bytes ? scratch.data : NULL;
    assert_ok(comet_cuda_conv.backward(&call));
    void *found = train_read(f->bench, &dx);
    check_sums("dx added", o, &e->dx, o.dtype, found, before.values, before.count);
    assert_true(cuda_block_is_intact(&scratch) && cuda_block_is_intact(&dx));
    cuda_block_free(&scratch);
    cuda_block_free(&dx);
    train_values_free(&before);
    free(found);
}

static void check_case(train_bench *b, options o, const conv_case *c) {
    fixture f = fixture_new(b, c, 1);
    f.call.accumulate = 1; /* it may be asked for */
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    arrays a = arrays_new(&f);
    expected e = reference(&f, c, a.x.values, a.dy.values);
    forward(&f, &a);
    check_block("y", &f, o, &a.y_block, &e.y, f.bias_values);
    expect_unchanged(&f, &a.x_block, &a.x);
    check_added(&f, o, c, &a, &e);
    check_backward(&f, o, &a, &e);
    expected_free(&e);
    arrays_free(&a);
    fixture_free(&f);
}

static const conv_case cases[] = {
    {2, 5, 7, 8, {.out = 8, .kernel = 3, .padding = 1}, 0, 0},
    {3, 7, 6, 3, {.out = 8, .kernel = 3, .stride = 2, .padding = 1}, 1, 0}, /* images */
    {2, 6, 5, 6, {.out = 16, .kernel = 1}, 0, 2},                           /* padded, and dx is wanted */
    {2, 9, 8, 16, {.out = 24, .kernel = 1, .stride = 2, .bias = 1}, 0, 1},
    {2, 8, 9, 16, {.out = 16, .kernel = 5, .stride = 2, .padding = 2, .groups = 16}, 0, 2}, /* depthwise, our own */
    {1, 8, 9, 16, {.out = 16, .kernel = 7, .padding = 3, .groups = 16}, 0, 1},              /* depthwise, cuDNN's */
    {1, 5, 5, 16, {.out = 24, .kernel = 3, .padding = 1, .groups = 4, .bias = 1}, 0, 0},
    {1, 6, 9, 8, {.out = 8, .kernel = 1, .kernel_width = 7, .padding = 0, .padding_width = 3}, 0, 0},
    {2, 11, 10, 3, {.out = 8, .kernel = 11, .stride = 4, .padding = 2, .bias = 1}, 1, 0},
    {5, 1, 1, 40, {.out = 10, .kernel = 1, .bias = 1}, 0, 0}, /* of a squeeze-excite: out is no multiple of 8 */
    {2, 6, 7, 16, {.out = 8, .kernel = 3, .padding = 1, .bias = 1}, 0, 1},
};

/* Few channels and strides: over blocks, or not where the comment says so. */
static const conv_case strided[] = {
    {2, 13, 16, 3, {.out = 8, .kernel = 7, .stride = 2, .padding = 3}, 1, 0},             /* of ResNets */
    {1, 27, 23, 3, {.out = 8, .kernel = 11, .stride = 4, .padding = 2, .bias = 1}, 1, 0}, /* of AlexNet */
    {2, 9, 8, 3, {.out = 8, .kernel = 3, .stride = 2, .padding = 1}, 1, 0},               /* in fp32 not */
    {2, 10, 9, 1, {.out = 8, .kernel = 5, .stride = 2, .padding = 2}, 1, 0},
    {1, 11, 14, 1, {.out = 16, .kernel = 3, .stride = 3, .padding = 1}, 1, 0},
    {2, 12, 8, 3, {.out = 8, .kernel = 4, .stride = 4}, 1, 0},                           /* a block a window */
    {1, 15, 17, 5, {.out = 8, .kernel = 7, .stride = 3, .padding = 3, .bias = 1}, 0, 2}, /* dx is wanted */
    {2, 9, 13, 3, {.out = 8, .kernel = 11, .stride = 4, .padding = 9}, 0, 0},            /* much padding */
    {1, 8, 11, 5, {.out = 8, .kernel = 5, .stride = 2}, 0, 0},                           /* no padding */
    {1, 9, 14, 3, {.out = 8, .kernel = 3, .kernel_width = 7, .stride = 2, .padding_width = 2}, 1, 0}, /* in fp32 not */
    {1, 6, 7, 3, {.out = 8, .kernel = 2, .stride = 3}, 1, 0},                                         /* gaps: not */
    {1, 7, 7, 1, {.out = 8, .kernel = 7, .stride = 2}, 1, 0}, /* a single window */
};

static void check_all(options o) {
    train_bench *b = bench_of(o, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(b, o, &cases[i]);
    for (size_t i = 0; i < sizeof strided / sizeof *strided; i++)
        check_case(b, o, &strided[i]);
    bench_end(b);
}

static void test_fp32(void **state) {
    (void)state;
    check_all((options){COMET_F32, 0, 0});
}

static void test_fp32_exact(void **state) {
    (void)state;
    check_all((options){COMET_F32, 1, 1});
}

static void test_bf16(void **state) {
    (void)state;
    check_all((options){COMET_BF16, 0, 0});
}

static void test_fp16(void **state) {
    (void)state;
    check_all((options){COMET_F16, 0, 1});
}

/* Many more pixels than a block sums. */
static void test_long_bias(void **state) {
    static const conv_case c = {2, 17, 19, 8, {.out = 40, .kernel = 1, .bias = 1}, 0, 0};
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        const options o = {dtypes[d], 1, 1};
        train_bench *b = bench_of(o, 9);
        check_case(b, o, &c);
        bench_end(b);
    }
}

/* ---- the same convolution again ---- */

static void *forward_bits(train_bench *b, const conv_case *c) {
    fixture f = fixture_new(b, c, 1);
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    arrays a = arrays_new(&f);
    forward(&f, &a);
    void *bits = train_read(b, &a.y_block);
    arrays_free(&a);
    fixture_free(&f);
    return bits;
}

static void test_cache(void **state) {
    (void)state;
    train_bench *b = bench_of((options){COMET_F32, 0, 0}, 3);
    fixture f = fixture_new(b, &cases[0], 1), g = fixture_new(b, &cases[0], 1);
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    const int planned = comet_cudnn_planned(b->cuda.cudnn), timed = comet_cudnn_timed(b->cuda.cudnn);
    assert_int_equal(planned, 3);
    assert_int_equal(timed, 3);
    assert_ok(comet_cuda_conv.prepare(&g.call, &g.call.state));
    assert_int_equal(comet_cudnn_planned(b->cuda.cudnn), planned);
    assert_int_equal(comet_cudnn_timed(b->cuda.cudnn), timed);
    fixture_free(&f);
    fixture_free(&g);
    f = fixture_new(b, &cases[6], 0); /* evaluation: forward alone */
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    assert_int_equal(comet_cudnn_planned(b->cuda.cudnn), planned + 1);
    fixture_free(&f);
    bench_end(b);
}

static char *choices_of(const train_bench *b) {
    const size_t length = comet_cudnn_choices_write(b->cuda.cudnn, NULL, 0);
    char *text = take(length + 1);
    assert_int_equal(comet_cudnn_choices_write(b->cuda.cudnn, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

/* Forward and gradient of the filter: what cuDNN is asked for, as choices say it. */
static void expect_planned(comet_dtype dtype, const conv_case *c, const char *shape) {
    const options o = {dtype, 0, 1};
    char line[96];
    train_bench *b = bench_of(o, 3);
    free(forward_bits(b, c));
    char *text = choices_of(b);
    for (int i = 0; i < 2; i++) {
        const int way = i ? COMET_CUDNN_BY_FILTER : COMET_CUDNN_FORWARD;
        snprintf(line, sizeof line, "\n%d %d %s ", way, (int)dtype, shape);
        if (!strstr(text, line))
            fail_msg("no '%s' among\n%s", line + 1, text);
    }
    free(text);
    bench_end(b);
}

static void test_blocks(void **state) {
    (void)state;
    expect_planned(COMET_F32, &strided[0], "2 10 11 12 8 4 4 1 0 0 1");
    expect_planned(COMET_BF16, &strided[0], "2 10 11 16 8 4 4 1 0 0 1");
    expect_planned(COMET_F32, &strided[1], "1 8 7 48 8 3 3 1 0 0 1");
    expect_planned(COMET_F32, &strided[2], "2 9 8 4 8 3 3 2 1 1 1");
    expect_planned(COMET_F16, &strided[2], "2 6 5 16 8 2 2 1 0 0 1");
    expect_planned(COMET_F32, &strided[5], "2 3 2 48 8 1 1 1 0 0 1");
    expect_planned(COMET_BF16, &strided[9], "1 5 9 16 8 2 4 1 0 0 1");
    expect_planned(COMET_F32, &strided[10], "1 6 7 4 8 2 2 3 0 0 1");
    expect_planned(COMET_F32, &cases[2], "2 6 5 8 16 1 1 1 0 0 1"); /* no stride */
}

/* Another process that has the choices makes the same plans, without timing any. */
static void test_choices(void **state) {
    const options o = {COMET_BF16, 0, 1};
    (void)state;
    train_bench *b = bench_of(o, 3);
    free(forward_bits(b, &cases[0]));
    free(forward_bits(b, &cases[1]));
    char *text = choices_of(b);
    bench_end(b);
    b = bench_of(o, 3);
    assert_ok(comet_cudnn_choices_read(b->cuda.cudnn, text));
    char *again = choices_of(b);
    assert_string_equal(again, text);
    free(again);
    free(forward_bits(b, &cases[0]));
    assert_int_equal(comet_cudnn_planned(b->cuda.cudnn), 3);
    assert_int_equal(comet_cudnn_timed(b->cuda.cudnn), 0);
    again = choices_of(b);
    assert_int_equal(strlen(again), strlen(text));
    free(again);
    check_case(b, o, &cases[1]);
    free(forward_bits(b, &cases[6])); /* not in it */
    assert_true(comet_cudnn_timed(b->cuda.cudnn) > 0);
    bench_end(b);
    free(text);
}

static void test_damaged_choices(void **state) {
    static const char *const bad[] = {
        "",
        "cudnn-choices 2 91900\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 21\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 21 2\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 21 2=\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 21 2=1",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 99999999999 : 21 2=1\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 : 21 2=1\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 21 2=99999999999999999999\n",
        "0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 -1 : 21\n",
        "\n",
    };
    (void)state;
    train_bench *b = bench_of((options){COMET_F32, 0, 0}, 3);
    char *head = choices_of(b), text[256];
    assert_ok(comet_cudnn_choices_read(b->cuda.cudnn, head));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s%s%s", i < 2 ? "" : head, i == 2 ? "x" : "", bad[i]);
        assert_status(comet_cudnn_choices_read(b->cuda.cudnn, text), COMET_ERROR_CORRUPT);
        char *now = choices_of(b);
        assert_string_equal(now, head);
        free(now);
    }
    assert_status(comet_cudnn_choices_read(b->cuda.cudnn, "cudnn-choices 1 90000\n"), COMET_ERROR_MISMATCH);
    /* What is well written, and nothing that cuDNN makes, is timed as if it were not there. */
    snprintf(text, sizeof text, "%s0 0 2 5 7 8 8 3 3 1 1 1 1 0 0 32768 : 99999 2=1\n", head);
    assert_ok(comet_cudnn_choices_read(b->cuda.cudnn, text));
    check_case(b, (options){COMET_F32, 0, 0}, &cases[0]);
    assert_int_equal(comet_cudnn_timed(b->cuda.cudnn), 3);
    bench_end(b);
    free(head);
}

static void test_capture(void **state) {
    const options o = {COMET_BF16, 0, 1};
    (void)state;
    train_bench *b = bench_of(o, 5);
    fixture f = fixture_new(b, &cases[2], 1);
    cudaGraph_t graph;
    cudaGraphExec_t runnable;
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    arrays a = arrays_new(&f);
    expected e = reference(&f, &cases[2], a.x.values, a.dy.values);
    cuda_must(cudaStreamBeginCapture(b->cuda.queue, cudaStreamCaptureModeThreadLocal));
    forward(&f, &a);
    backward(&f, &a, a.dx_block.data, 0);
    cuda_must(cudaStreamEndCapture(b->cuda.queue, &graph));
    cuda_must(cudaGraphInstantiate(&runnable, graph, 0));
    for (int i = 0; i < 2; i++) {
        poison_gradient(&f, f.weight);
        cuda_must(cudaMemsetAsync(a.y_block.data, 0xff, a.y_block.bytes, b->cuda.queue));
        cuda_must(cudaMemsetAsync(a.dx_block.data, 0xff, a.dx_block.bytes, b->cuda.queue));
        cuda_must(cudaGraphLaunch(runnable, b->cuda.queue));
        check_block("y", &f, o, &a.y_block, &e.y, NULL);
        check_block("dx", &f, o, &a.dx_block, &e.dx, NULL);
        check_gradients(&f, o, &e, NULL, NULL);
    }
    cuda_must(cudaGraphExecDestroy(runnable));
    cuda_must(cudaGraphDestroy(graph));
    expected_free(&e);
    arrays_free(&a);
    fixture_free(&f);
    bench_end(b);
}

static void test_deterministic(void **state) {
    const options o = {COMET_F32, 0, 1};
    (void)state;
    train_bench *b = bench_of(o, 11);
    fixture f = fixture_new(b, &cases[0], 1);
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    arrays a = arrays_new(&f);
    void *first = NULL;
    for (int i = 0; i < 4; i++) {
        forward(&f, &a);
        backward(&f, &a, a.dx_block.data, 0);
        void *y = train_read(b, &a.y_block);
        float *dw = read_gradient(&f, f.weight);
        void *both = take(a.y_block.bytes + (size_t)f.weight->count * sizeof(float));
        memcpy(both, y, a.y_block.bytes);
        memcpy((char *)both + a.y_block.bytes, dw, (size_t)f.weight->count * sizeof(float));
        if (first)
            assert_memory_equal(both, first, a.y_block.bytes + (size_t)f.weight->count * sizeof(float));
        free(y);
        free(dw);
        if (first)
            free(both);
        else
            first = both;
    }
    free(first);
    arrays_free(&a);
    fixture_free(&f);
    bench_end(b);
}

/* ---- what only the stand-in can be asked ---- */

#ifdef COMET_CUDA_EMULATION

static int64_t engine_for(options o, int64_t slow) {
    train_bench *b = bench_of(o, 3);
    comet_stand_in_cudnn_slow(slow, 2);
    free(forward_bits(b, &cases[0]));
    bench_end(b);
    comet_stand_in_reset();
    return comet_stand_in_cudnn_last();
}

static void test_engines(void **state) {
    (void)state;
    /* What is slow is not taken; of two settings of one engine either may be the faster. */
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(engine_for((options){COMET_F32, 0, 0}, 21), 21);
        assert_int_not_equal(engine_for((options){COMET_F32, 0, 0}, 22), 22);
        assert_int_not_equal(engine_for((options){COMET_F32, 0, 0}, 25), 25);
        assert_int_equal(engine_for((options){COMET_F32, 0, 1}, 25), 21);
        assert_int_equal(engine_for((options){COMET_F32, 0, 1}, 21), 25);
        assert_int_equal(engine_for((options){COMET_F32, 1, 0}, 25), 25); /* nothing else is exact */
        assert_int_not_equal(engine_for((options){COMET_BF16, 1, 0}, 25), 25);
    }
}

static void test_fall_back(void **state) {
    (void)state;
    comet_stand_in_cudnn_refuse(25);
    check_all((options){COMET_F32, 1, 0});
    assert_int_equal(comet_stand_in_cudnn_last(), 0);
    comet_stand_in_reset();
}

/* Of an engine's knobs the same values again. */
static void test_knobs(void **state) {
    const options o = {COMET_F32, 0, 1};
    (void)state;
    train_bench *b = bench_of(o, 3);
    comet_stand_in_cudnn_slow(25, 3);
    free(forward_bits(b, &cases[0]));
    char *text = choices_of(b), *knob = strstr(text, ": 21 2=");
    assert_non_null(knob);
    bench_end(b);
    for (char value = '0'; value < '4'; value++) { /* also those that the heuristics do not offer */
        for (char *at = text; (at = strstr(at, ": 21 2=")) != NULL; at++)
            at[7] = value;
        b = bench_of(o, 3);
        assert_ok(comet_cudnn_choices_read(b->cuda.cudnn, text));
        free(forward_bits(b, &cases[0]));
        assert_int_equal(comet_cudnn_timed(b->cuda.cudnn), 0);
        assert_int_equal(comet_stand_in_cudnn_last(), 21);
        assert_int_equal(comet_stand_in_cudnn_last_knob(), value - '0');
        bench_end(b);
    }
    knob[7] = '4'; /* there is no such value */
    b = bench_of(o, 3);
    assert_ok(comet_cudnn_choices_read(b->cuda.cudnn, text));
    free(forward_bits(b, &cases[0]));
    assert_true(comet_cudnn_timed(b->cuda.cudnn) > 0);
    bench_end(b);
    free(text);
    comet_stand_in_reset();
}

static void test_broken_engine(void **state) {
    const options o = {COMET_F32, 0, 1};
    (void)state;
    train_bench *b = bench_of(o, 3);
    comet_stand_in_cudnn_break(21);
    free(forward_bits(b, &cases[0]));
    assert_int_equal(comet_stand_in_cudnn_last(), 25);
    /* It is told when it breaks afterwards. */
    fixture f = fixture_new(b, &cases[0], 1);
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    arrays a = arrays_new(&f);
    comet_stand_in_cudnn_break(25);
    comet_op_call call = f.call;
    call.x[0] = a.x_block.data;
    call.y = a.y_block.data;
    call.scratch = a.scratch[0].data;
    assert_status(comet_cuda_conv.forward(&call), COMET_ERROR_DEVICE);
    assert_non_null(strstr(comet_last_error(), "engine 25 is broken"));
    arrays_free(&a);
    fixture_free(&f);
    bench_end(b);
    comet_stand_in_reset();
}

static void test_workspace_limit(void **state) {
    (void)state;
    train_bench *b = train_bench_new(COMET_F32, 3);
    b->cuda.options.workspace_bytes = 999;
    b->cuda.options.deterministic = 1;
    make_cudnn(b);
    free(forward_bits(b, &cases[0]));
    assert_int_equal(comet_stand_in_cudnn_last(), 0);
    comet_stand_in_cudnn_refuse(0); /* then there is nothing */
    fixture f = fixture_new(b, &cases[6], 1);
    assert_status(comet_cuda_conv.prepare(&f.call, &f.call.state), COMET_ERROR_UNSUPPORTED);
    assert_non_null(strstr(comet_last_error(), "cuDNN"));
    fixture_free(&f);
    bench_end(b);
    comet_stand_in_reset();
}

/* Then it is the first that the heuristics offer, and as right as any. */
static void test_no_memory_for_timing(void **state) {
    const options o = {COMET_F32, 0, 0};
    (void)state;
    train_bench *b = bench_of(o, 3);
    fixture f = fixture_new(b, &cases[0], 1);
    emulation_fail_next(cudaErrorMemoryAllocation, 0);
    assert_ok(comet_cuda_conv.prepare(&f.call, &f.call.state));
    emulation_reset();
    assert_int_equal(comet_cudnn_timed(b->cuda.cudnn), 2); /* the other two */
    arrays a = arrays_new(&f);
    expected e = reference(&f, &cases[0], a.x.values, a.dy.values);
    forward(&f, &a);
    assert_int_equal(comet_stand_in_cudnn_last(), 22);
    check_block("y", &f, o, &a.y_block, &e.y, NULL);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    expected_free(&e);
    arrays_free(&a);
    fixture_free(&f);
    bench_end(b);
}

/* Whatever call of CUDA fails, it is told or does not matter, and nothing is left behind. */
static void test_failing_calls(void **state) {
    (void)state;
    for (int calls = 0, failed = 1; failed; calls++) {
        train_bench *b = bench_of((options){COMET_F32, 0, 1}, 3);
        fixture f = fixture_new(b, &cases[0], 0);
        const uint64_t before = emulation_live_allocations();
        const uint64_t count = emulation_calls();
        emulation_fail_next(cudaErrorMemoryAllocation, calls);
        const comet_status status = comet_cuda_conv.prepare(&f.call, &f.call.state);
        failed = (int)(emulation_calls() - count) > calls;
        emulation_reset();
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY || status == COMET_ERROR_UNSUPPORTED);
        assert_int_equal(emulation_live_allocations(), before);
        fixture_free(&f);
        bench_end(b);
        if (calls > 60)
            calls += 16;
    }
}

static void expect_refused(const char *begins) {
    train_bench *b = train_bench_new(COMET_F32, 1);
    comet_message message = {""};
    b->cuda.options.loader = comet_stand_in_loader();
    assert_status(comet_cudnn_new(&b->cuda, &b->cuda.cudnn, &message), COMET_ERROR_UNSUPPORTED);
    assert_null(b->cuda.cudnn);
    assert_memory_equal(message.text, begins, strlen(begins));
    assert_string_equal(comet_last_error(), message.text);
    assert_status(comet_cudnn_new(&b->cuda, &b->cuda.cudnn, NULL), COMET_ERROR_UNSUPPORTED);
    assert_int_equal(comet_stand_in_open_libraries(), 0);
    train_bench_free(b);
    comet_stand_in_reset();
}

static void test_library(void **state) {
    (void)state;
    comet_stand_in_hide("libcudnn.so.9");
    expect_refused("libcudnn.so.9 was not found: install cuDNN 9 or put its folder into LD_LIBRARY_PATH");
    comet_stand_in_hide("cudnnBackendExecute");
    expect_refused("libcudnn.so.9 has no cudnnBackendExecute");
    comet_stand_in_cudnn_set_version(8907);
    expect_refused("cuDNN 8.9.7 was found, and 9.0.0 or later is needed");
    comet_stand_in_cudnn_set_version(90000);
    train_bench *b = bench_of((options){COMET_F32, 0, 0}, 1);
    assert_int_equal(comet_cudnn_version(b->cuda.cudnn), 90000);
    bench_end(b);
    comet_stand_in_reset();
}

static int nothing_is_left(void **state) {
    (void)state;
    return comet_stand_in_cudnn_descriptors() != 0 || comet_stand_in_cudnn_handles() != 0 ||
           comet_stand_in_open_libraries() != 0;
}

#else

static int nothing_is_left(void **state) {
    (void)state;
    return 0;
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_fp32_exact),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_fp16),
        cmocka_unit_test(test_long_bias),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_damaged_choices),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_deterministic),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_fall_back),
        cmocka_unit_test(test_knobs),
        cmocka_unit_test(test_broken_engine),
        cmocka_unit_test(test_workspace_limit),
        cmocka_unit_test(test_no_memory_for_timing),
        cmocka_unit_test(test_failing_calls),
        cmocka_unit_test(test_library),
#endif
    };
    return cuda_skip() ? 77 : cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
