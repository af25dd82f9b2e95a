/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers through cuBLASLt, or what stands in for it, against sums in fp64 of the numbers that it is given. */
#include "cuda_train_bench.h"

#include "train/backend/cuda/cublaslt/cublaslt.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/train/stand_in.h"
#endif

typedef struct linear_case {
    int batch, in, out, bias;
    int exact, accumulate, small_workspace;
} linear_case;

typedef struct layer {
    train_bench *b;
    const linear_case *of;
    comet_graph *g;
    comet_parameter *weight, *bias; /* bias NULL: none */
    train_values x, dy;
    float *weights, *biases;         /* as products have them */
    float *old_weights, *old_biases; /* the gradients before */
    cuda_block device_x, device_dy, y, dx;
    void *scratch;
    size_t scratch_bytes;
    comet_op_call call;
} layer;

static comet_backend_cuda *cuda_of(layer *l) {
    return &l->b->cuda;
}

static train_bench *bench_of(comet_dtype dtype, const linear_case *c) {
    train_bench *b = train_bench_new(dtype, (uint64_t)(c->batch * 1000 + c->in));
    comet_message message;
    b->cuda.options.exact_products = c->exact;
    b->cuda.options.workspace_bytes = c->small_workspace ? 1024 : 1 << 20;
#ifdef COMET_CUDA_EMULATION
    b->cuda.options.loader = comet_stand_in_loader();
#endif
    if (comet_cublaslt_new(&b->cuda, &b->cuda.cublaslt, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return b;
}

static void make_graph(layer *l) {
    assert_ok(comet_graph_new(NULL, &l->g));
    comet_value x = comet_graph_input(l->g, 1, 1, l->of->in);
    comet_graph_output(l->g, comet_graph_linear(l->g, "fc", x, l->of->out, l->of->bias));
    assert_ok(comet_graph_allocate(l->g, l->b->cuda.space, 1));
    l->weight = comet_graph_parameter_named(l->g, "fc.weight");
    l->bias = comet_graph_parameter_named(l->g, "fc.bias");
}

/* Random values, with old gradients. Returns what products read: rounded to the type of the activations. */
static float *fill_parameter(layer *l, comet_parameter *p, float **old) {
    comet_space *space = l->b->cuda.space;
    float *values = take((size_t)p->count * sizeof(float));
    *old = take((size_t)p->count * sizeof(float));
    for (int64_t i = 0; i < p->count; i++) {
        values[i] = (float)rng_gauss(&l->b->r);
        (*old)[i] = (float)rng_gauss(&l->b->r);
    }
    assert_ok(space->write(space, p->value, values, (size_t)p->count * sizeof(float)));
    assert_ok(space->write(space, p->gradient, *old, (size_t)p->count * sizeof(float)));
    for (int64_t i = 0; i < p->count; i++) {
        float rounded = 0;
        set_value(l->b->cuda.base.dtype, &rounded, 0, values[i]);
        values[i] = value_at(l->b->cuda.base.dtype, &rounded, 0);
    }
    return values;
}

static train_values random_values(layer *l, int64_t count) {
    const comet_dtype dtype = l->b->cuda.base.dtype;
    train_values v = train_values_new(dtype, count);
    for (int64_t i = 0; i < count; i++)
        train_values_set(&v, dtype, i, rng_gauss(&l->b->r));
    return v;
}

static void prepare(layer *l, int training) {
    l->call = (comet_op_call){.backend = &l->b->cuda.base,
                              .graph = l->g,
                              .node = &l->g->nodes[0],
                              .batch = l->of->batch,
                              .training = training,
                              .accumulate = l->of->accumulate};
    assert_ok(comet_cuda_linear.prepare(&l->call, &l->call.state));
    const size_t forward = comet_cuda_linear.scratch(&l->call, 0);
    const size_t backward = training ? comet_cuda_linear.scratch(&l->call, 1) : 0;
    l->scratch_bytes = forward > backward ? forward : backward;
    assert_true(l->scratch_bytes <= l->b->cuda.options.workspace_bytes);
    l->scratch = l->scratch_bytes ? device_take(l->scratch_bytes, NULL) : NULL;
    l->call.scratch = l->scratch;
}

static layer layer_new(comet_dtype dtype, const linear_case *c, int training) {
    layer l = {.b = bench_of(dtype, c), .of = c};
    const size_t unit = comet_dtype_size(dtype);
    make_graph(&l);
    l.weights = fill_parameter(&l, l.weight, &l.old_weights);
    l.biases = l.bias ? fill_parameter(&l, l.bias, &l.old_biases) : NULL;
    assert_ok(comet_cuda_weights_begin(cuda_of(&l), l.g));
    l.x = random_values(&l, (int64_t)c->batch * c->in);
    l.dy = random_values(&l, (int64_t)c->batch * c->out);
    l.device_x = cuda_block_new(l.x.bytes, l.x.patterns);
    l.device_dy = cuda_block_new(l.dy.bytes, l.dy.patterns);
    l.y = cuda_block_new((size_t)c->batch * (size_t)c->out * unit, NULL);
    l.dx = cuda_block_new((size_t)c->batch * (size_t)c->in * unit, NULL);
    prepare(&l, training);
    l.call.x[0] = l.device_x.data;
    l.call.y = l.y.data;
    l.call.dy = l.device_dy.data;
    l.call.dx[0] = l.dx.data;
    return l;
}

static void layer_free(layer *l) {
    cuda_block *blocks[] = {&l->device_x, &l->device_dy, &l->y, &l->dx};
    cuda_must(cudaStreamSynchronize(l->b->cuda.queue));
    comet_cuda_linear.forget(l->call.state);
    for (int i = 0; i < 4; i++)
        cuda_block_free(blocks[i]);
    cuda_must(cudaFree(l->scratch));
    comet_cublaslt_free(l->b->cuda.cublaslt);
#ifdef COMET_CUDA_EMULATION
    assert_int_equal(comet_stand_in_cublaslt_objects(), 0);
    assert_int_equal(comet_stand_in_open_libraries(), 0);
#endif
    comet_graph_free(l->g);
    train_values_free(&l->x);
    train_values_free(&l->dy);
    free(l->weights);
    free(l->biases);
    free(l->old_weights);
    free(l->old_biases);
    train_bench_free(l->b);
}

/* ---- what is to come out ---- */

/* A sum of products, and of their sizes: what errors are measured by. */
typedef struct sum {
    double value, sizes;
} sum;

static void add(sum *s, double x) {
    s->value += x;
    s->sizes += fabs(x);
}

/* TF32 rounds both factors; sums are in fp32; the result is rounded to its type. */
static void expect(const layer *l, const char *what, double found, sum s, comet_dtype type) {
    const comet_backend_cuda *b = &l->b->cuda;
    const double products = b->base.dtype == COMET_F32 && !b->options.exact_products ? 0x1p-10 : 0x1p-21;
    const double result = type == COMET_F32 ? 0x1p-23 : type == COMET_F16 ? 0x1p-11 : 0x1p-8;
    if (!(fabs(found - s.value) <= products * s.sizes + result * fabs(s.value)))
        fail_msg("%s: %.9g, expected %.9g (terms of %.3g)", what, found, s.value, s.sizes);
}

static void expect_y(const layer *l) {
    const comet_dtype dtype = l->b->cuda.base.dtype;
    void *y = train_read(l->b, &l->y);
    for (int n = 0; n < l->of->batch; n++)
        for (int o = 0; o < l->of->out; o++) {
            sum s = {0};
            for (int i = 0; i < l->of->in; i++)
                add(&s, (double)l->x.values[n * l->of->in + i] * (double)l->weights[o * l->of->in + i]);
            if (l->bias)
                add(&s, (double)l->biases[o]);
            expect(l, "y", (double)value_at(dtype, y, n * l->of->out + o), s, dtype);
        }
    assert_true(cuda_block_is_intact(&l->y));
    free(y);
}

static void expect_dx(const layer *l, const cuda_block *where) {
    const comet_dtype dtype = l->b->cuda.base.dtype;
    void *dx = train_read(l->b, where);
    for (int n = 0; n < l->of->batch; n++)
        for (int i = 0; i < l->of->in; i++) {
            sum s = {0};
            for (int o = 0; o < l->of->out; o++)
                add(&s, (double)l->dy.values[n * l->of->out + o] * (double)l->weights[o * l->of->in + i]);
            expect(l, "dx", (double)value_at(dtype, dx, n * l->of->in + i), s, dtype);
        }
    assert_true(cuda_block_is_intact(where));
    free(dx);
}

/* `times`: how often the gradient was added. */
static void expect_gradients(const layer *l, int times) {
    comet_space *space = l->b->cuda.space;
    const int in = l->of->in, out = l->of->out, added = l->of->accumulate;
    float *dw = take((size_t)in * (size_t)out * sizeof *dw), *db = take((size_t)out * sizeof *db);
    assert_ok(space->read(space, dw, l->weight->gradient, (size_t)in * (size_t)out * sizeof *dw));
    if (l->bias)
        assert_ok(space->read(space, db, l->bias->gradient, (size_t)out * sizeof *db));
    for (int o = 0; o < out; o++) {
        sum of_bias = {0};
        for (int n = 0; n < l->of->batch; n++)
            add(&of_bias, (added ? times : 1) * (double)l->dy.values[n * out + o]);
        if (l->bias && added)
            add(&of_bias, (double)l->old_biases[o]);
        if (l->bias && !(fabs((double)db[o] - of_bias.value) <= 0x1p-22 * of_bias.sizes)) /* no product: fp64 */
            fail_msg("the bias's gradient %d is %g, expected %g", o, (double)db[o], of_bias.value);
        for (int i = 0; i < in; i++) {
            sum s = {0};
            for (int n = 0; n < l->of->batch; n++)
                add(&s, (added ? times : 1) * (double)l->x.values[n * in + i] * (double)l->dy.values[n * out + o]);
            if (added)
                add(&s, (double)l->old_weights[o * in + i]);
            expect(l, "dW", (double)dw[o * in + i], s, COMET_F32);
        }
    }
    free(dw);
    free(db);
}

/* ---- tests ---- */

static const linear_case cases[] = {
    {1, 1, 1, 1, 0, 0, 0},    {5, 7, 3, 1, 0, 0, 1},    {3, 33, 10, 0, 0, 1, 0}, {17, 64, 48, 1, 0, 1, 0},
    {16, 128, 5, 1, 1, 0, 0}, {2, 19, 131, 1, 1, 1, 1}, {9, 8, 40, 0, 0, 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static void test_layers(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (int i = 0; i < CASES; i++) {
            layer l = layer_new(dtypes[d], &cases[i], 1);
            for (int times = 1; times <= 2; times++) {
                assert_ok(comet_cuda_linear.forward(&l.call));
                expect_y(&l);
                assert_ok(comet_cuda_linear.backward(&l.call));
                expect_dx(&l, &l.dx);
                expect_gradients(&l, times);
            }
            layer_free(&l);
        }
}

/* dx over x, and not at all. */
static void test_places(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        layer l = layer_new(dtypes[d], &cases[1], 1);
        l.call.dx[0] = NULL;
        assert_ok(comet_cuda_linear.backward(&l.call));
        expect_gradients(&l, 1);
        void *untouched = train_read(l.b, &l.dx);
        assert_true(cuda_is_poison(untouched, l.dx.bytes));
        free(untouched);
        l.call.dx[0] = l.device_x.data;
        assert_ok(comet_cuda_linear.backward(&l.call));
        expect_gradients(&l, 1);
        expect_dx(&l, &l.device_x);
        layer_free(&l);
    }
}

/* Weights that were written since are read as they are now, also when their copies have moved. */
static void test_new_weights(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        layer l = layer_new(dtypes[d], &cases[3], 0);
        assert_ok(comet_cuda_linear.forward(&l.call));
        expect_y(&l);
        free(l.weights);
        free(l.old_weights);
        l.weights = fill_parameter(&l, l.weight, &l.old_weights);
        cuda_must(cudaStreamSynchronize(l.b->cuda.queue));
        comet_cuda_buffer_free(&cuda_of(&l)->kept.weights);
        l.b->cuda.weights = NULL;
        void *in_the_way = device_take(5000, NULL);
        assert_ok(comet_cuda_weights_begin(cuda_of(&l), l.g));
        assert_ok(comet_cuda_linear.forward(&l.call));
        expect_y(&l);
        cuda_must(cudaFree(in_the_way));
        layer_free(&l);
    }
}

static void capture(layer *l, cudaGraphExec_t *exec) {
    cudaGraph_t graph;
    cuda_must(cudaStreamBeginCapture(l->b->cuda.queue, cudaStreamCaptureModeThreadLocal));
    assert_ok(comet_cuda_linear.forward(&l->call));
    assert_ok(comet_cuda_linear.backward(&l->call));
    cuda_must(cudaStreamEndCapture(l->b->cuda.queue, &graph));
    cuda_must(cudaGraphInstantiate(exec, graph, 0));
    cuda_must(cudaGraphDestroy(graph));
}

static void test_graph(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        layer l = layer_new(dtypes[d], &cases[3], 1);
        cudaGraphExec_t exec;
        assert_ok(comet_cuda_linear.forward(&l.call)); /* libraries load their kernels at first use */
        assert_ok(comet_cuda_linear.backward(&l.call));
        cuda_must(cudaStreamSynchronize(l.b->cuda.queue));
        capture(&l, &exec);
        for (int i = 0; i < 2; i++)
            cuda_must(cudaGraphLaunch(exec, l.b->cuda.queue));
        expect_y(&l);
        expect_dx(&l, &l.dx);
        expect_gradients(&l, 3);
        cuda_must(cudaGraphExecDestroy(exec));
        layer_free(&l);
    }
}

#ifdef COMET_CUDA_EMULATION
static void test_failures(void **state) {
    (void)state;
    layer l = layer_new(COMET_BF16, &cases[1], 1);
    void *other = NULL;
    comet_stand_in_cublaslt_break(1);
    assert_status(comet_cuda_linear.forward(&l.call), COMET_ERROR_DEVICE);
    assert_reason("cuBLASLt says: CUBLAS_STATUS_EXECUTION_FAILED");
    assert_status(comet_cuda_linear.backward(&l.call), COMET_ERROR_DEVICE);
    comet_stand_in_cublaslt_break(0);
    comet_stand_in_cublaslt_refuse(1);
    assert_status(comet_cuda_linear.prepare(&l.call, &other), COMET_ERROR_UNSUPPORTED);
    comet_stand_in_cublaslt_refuse(0);
    layer_free(&l);
    comet_stand_in_reset();
}

static comet_status open_library(comet_message *message) {
    train_bench *b = train_bench_new(COMET_F32, 1);
    b->cuda.options.loader = comet_stand_in_loader();
    const comet_status status = comet_cublaslt_new(&b->cuda, &b->cuda.cublaslt, message);
    comet_cublaslt_free(b->cuda.cublaslt);
    train_bench_free(b);
    assert_int_equal(comet_stand_in_open_libraries(), 0);
    assert_int_equal(comet_stand_in_cublaslt_objects(), 0);
    return status;
}

static void test_library(void **state) {
    comet_message message;
    (void)state;
    comet_stand_in_hide("libcublasLt.so.13"); /* there is still 12 */
    assert_ok(open_library(&message));
    comet_stand_in_hide("cublasLtMatmul");
    assert_status(open_library(&message), COMET_ERROR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "cublasLtMatmul"));
    comet_stand_in_reset();
    comet_stand_in_cublaslt_set_version(111103);
    assert_status(open_library(&message), COMET_ERROR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "11.11.3"));
    comet_stand_in_reset();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),      cmocka_unit_test(test_places),
        cmocka_unit_test(test_new_weights), cmocka_unit_test(test_graph),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_failures),    cmocka_unit_test(test_library),
#endif
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
