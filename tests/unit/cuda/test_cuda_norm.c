/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation with the codec in its kernels: y and the stream bit for bit those of the CPU, the mask read off
 * the stream that of the forward pass, gradients against fp64 and against finite differences, the same bits every time,
 * and streams that are damaged or not there. Device memory is allocated to the byte, so that the emulated run under a
 * sanitizer sees what reads or writes too far.
 */
#include "support/cuda/norm_case.h"

#include <stdio.h>

#include "support/effort.h"
#include "support/number.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

static float y_of(const layer *l, int64_t i) {
    int64_t c = channel_of(l, i);
    float u = u_of(l, i), y = fmaf(l->gamma[c], u, l->beta[c]);
    if (!isnan(y) && l->relu)
        assert_int_equal(is_off(u, l->threshold[c], l->gamma[c]), y <= 0);
    return l->relu && y <= 0 ? 0 : y;
}

/* ---- forward ---- */

static void forward(layer *l, int with_slot) {
    assert_cuda(cudaMemset(l->y_tensor.data, POISON, l->bytes));
    assert_ok(comet_cuda_norm_forward(&l->norm, &l->x_tensor, &l->y_tensor, &l->params, &l->exec,
                                      with_slot ? &l->slot : NULL, NULL, NULL));
}

static void check_tables(const layer *l) {
    float *shift = device_read(l->norm.shift, (size_t)l->channels * sizeof *shift);
    float *threshold = device_read(l->norm.threshold, (size_t)l->channels * sizeof *threshold);
    for (int64_t c = 0; c < l->channels; c++) {
        assert_memory_equal(&shift[c], &l->shift[c], sizeof *shift);
        if (isnan(l->threshold[c]))
            assert_true(isnan(threshold[c]));
        else
            assert_memory_equal(&threshold[c], &l->threshold[c], sizeof *threshold);
    }
    free(shift);
    free(threshold);
}

static void check_y(const layer *l) {
    void *y = device_read(l->y_tensor.data, l->bytes), *expected = take(l->bytes);
    for (int64_t i = 0; i < l->count; i++) {
        set_value(l->dtype, expected, i, y_of(l, i));
        float a = value_at(l->dtype, y, i), b = value_at(l->dtype, expected, i);
        if (isnan(b) && isnan(a)) /* of any bits */
            set_value(l->dtype, expected, i, 0), set_value(l->dtype, y, i, 0);
    }
    assert_memory_equal(y, expected, l->bytes);
    free(y);
    free(expected);
}

static void check_mask(const layer *l) {
    float *u = decoded(l);
    int64_t on_threshold = 0;
    for (int64_t i = 0; i < l->count; i++) {
        int64_t c = channel_of(l, i);
        assert_int_equal(is_off(u[i], l->threshold[c], l->gamma[c]), is_off(u_of(l, i), l->threshold[c], l->gamma[c]));
        on_threshold += u_of(l, i) == l->threshold[c];
    }
    assert_true(!l->relu || l->channels < 8 || l->count < 1000 || on_threshold > 0);
    free(u);
}

static void forward_as_on_cpu(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const double bounds[] = {0.3, 0.05, 1e-3, 0.0};
    int round = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < 3; d++, round++) {
            layer l;
            layer_new(&l, &r, &shapes[s], dtypes[d], round % 4 != 3, bounds[round % 5 % 4], round % 3 == 2);
            check_tables(&l);
            forward(&l, 0);
            check_y(&l);
            forward(&l, 1);
            check_y(&l);
            check_stream(&l);
            check_mask(&l);
            layer_free(&l);
        }
}

/* The pass that finds u's root mean square first goes over tensors of every shape. */
static void relative_bounds_of_every_shape(void **state) {
    (void)state;
    rng r = rng_seed(11);
    for (int s = 0; s < SHAPES; s++) {
        layer l;
        layer_new(&l, &r, &shapes[s], dtypes[s % 3], 1, 0.2, 0);
        l.params.bound_kind = COMET_BOUND_RELATIVE;
        forward(&l, 1);
        check_stream(&l);
        layer_free(&l);
    }
}

static void relative_bounds(void **state) {
    (void)state;
    rng r = rng_seed(2);
    layer l;
    layer_new(&l, &r, &shapes[1], COMET_F32, 1, 0.2, 0);
    l.params.bound_kind = COMET_BOUND_RELATIVE;
    forward(&l, 1);
    check_y(&l);
    check_stream(&l);
    comet_cuda_result *own = device_read(l.slot.result, sizeof *own);
    float bound = 0.2f;
    comet_codec_stats *stats = device_take(sizeof *stats, &own->codec.stats);
    l.params.device_stats = stats;
    l.params.device_bound = device_take(sizeof bound, &bound);
    l.params.bound = -1;
    forward(&l, 1);
    comet_cuda_result *again = device_read(l.slot.result, sizeof *again);
    assert_true(fabs(again->codec.bound - own->codec.bound) < 1e-6);
    assert_cuda(cudaFree(stats));
    assert_cuda(cudaFree((void *)l.params.device_bound));
    free(own);
    free(again);
    layer_free(&l);
}

static void a_slot_that_is_too_small(void **state) {
    (void)state;
    rng r = rng_seed(3);
    layer l;
    layer_new(&l, &r, &shapes[0], COMET_F32, 1, 0.05, 0);
    l.slot.capacity = 4096;
    forward(&l, 1);
    check_y(&l);
    comet_cuda_result *result = device_read(l.slot.result, sizeof *result);
    assert_int_equal(result->status, COMET_ERROR_CAPACITY);
    assert_ok(comet_cuda_norm_backward(&l.norm, &l.slot, NULL, &l.dy_tensor, &l.dx_tensor, l.dgamma, l.dbeta, &l.params,
                                       &l.exec, l.status, NULL));
    int32_t *status = device_read(l.status, sizeof *status);
    assert_int_equal(*status, COMET_ERROR_CAPACITY);
    free(result);
    free(status);
    layer_free(&l);
}

/* ---- backward ---- */

static gradients backward(layer *l, int from_stream) {
    size_t table = (size_t)l->channels * sizeof(float);
    assert_cuda(cudaMemset(l->dx_tensor.data, POISON, l->bytes));
    assert_ok(comet_cuda_norm_backward(&l->norm, from_stream ? &l->slot : NULL, from_stream ? NULL : &l->x_tensor,
                                       &l->dy_tensor, &l->dx_tensor, l->dgamma, l->dbeta, &l->params, &l->exec,
                                       from_stream ? l->status : NULL, NULL));
    int32_t *status = device_read(l->status, sizeof *status);
    assert_int_equal(*status, COMET_OK);
    free(status);
    return (gradients){device_read(l->dx_tensor.data, l->bytes), device_read(l->dgamma, table),
                       device_read(l->dbeta, table)};
}

/* Once more, with blocks and threads in another order where that can be chosen. */
static void check_again(layer *l, int from_stream, const gradients *first) {
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(77);
    emulation_set_thread_order(78);
#endif
    gradients again = backward(l, from_stream);
    check_same(l, first, &again);
    gradients_free(&again);
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(0);
    emulation_set_thread_order(0);
#endif
}

static void check_backward(layer *l, int from_stream) {
    float *u = from_stream ? decoded(l) : exact_u(l);
    gradients g = backward(l, from_stream);
    check_gradients(l, u, &g);
    check_again(l, from_stream, &g);
    gradients_free(&g);
    free(u);
}

static void gradients_as_in_fp64(void **state) {
    (void)state;
    rng r = rng_seed(4);
    static const double bounds[] = {0.3, 0.05, 1e-3, 0.0}; /* narrow and wide codes, and none */
    int round = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < 3; d++, round++) {
            layer l;
            layer_new(&l, &r, &shapes[s], dtypes[d], round % 4 != 3, bounds[round % 5 % 4], 0);
            forward(&l, 1);
            check_backward(&l, 1);
            check_backward(&l, 0);
            layer_free(&l);
        }
}

/* More groups than blocks that run at once: every warp goes over several tiles. */
static void long_walks(void **state) {
    (void)state;
    rng r = rng_seed(5);
    static const test_shape large[] = {{COMET_NHWC, 4, {3, 32, 24, 64}}, {COMET_NHWC, 4, {2, 24, 24, 80}},
                                       {COMET_NHWC, 4, {2, 8, 8, 520}},  {COMET_NHWC, 4, {2, 40, 40, 19}},
                                       {COMET_NCHW, 4, {2, 20, 40, 36}}, {COMET_NCHW, 4, {5, 64, 14, 14}},
                                       {COMET_NCHW, 4, {9, 128, 7, 7}},  {COMET_NCHW, 4, {4, 32, 19, 21}}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        layer l;
#ifdef COMET_CUDA_EMULATION
        emulation_set_multiprocessors(1);
#endif
        layer_new(&l, &r, &large[i], dtypes[i % 3], 1, 0.2, 0);
        forward(&l, 1);
        check_y(&l);
        check_stream(&l);
        check_backward(&l, 1);
        check_backward(&l, 0);
        layer_free(&l);
#ifdef COMET_CUDA_EMULATION
        emulation_set_multiprocessors(4);
#endif
    }
}

/* A NaN goes where arithmetic takes it: into y, the stream and the gradients of its channel, and nowhere else. */
static void check_nan(layer *l, int64_t at) {
    float before = ((float *)l->x)[at];
    ((float *)l->x)[at] = NAN;
    assert_cuda(cudaMemcpy(l->x_tensor.data, l->x, l->bytes, cudaMemcpyHostToDevice));
    forward(l, 1);
    check_y(l);
    check_stream(l);
    for (int from_stream = 0; from_stream < 2; from_stream++) {
        gradients g = backward(l, from_stream);
        for (int64_t c = 0; c < l->channels; c++)
            assert_int_equal(isnan(g.dgamma[c]), c == channel_of(l, at));
        gradients_free(&g);
    }
    ((float *)l->x)[at] = before;
}

/* In the middle, and on both sides of the border of a map. */
static void values_that_are_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(6);
    static const int which[] = {0, 3, 9, 12, 21, 22, 28};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        layer l;
        layer_new(&l, &r, &shapes[which[k]], COMET_F32, 1, 0.1, 0);
        for (int64_t i = 0; i < l.count; i++) /* dz is not 0 anywhere */
            set_value(l.dtype, l.dy, i, 1.0f + (float)rng_below(&r, 8));
        assert_cuda(cudaMemcpy(l.dy_tensor.data, l.dy, l.bytes, cudaMemcpyHostToDevice));
        int64_t middle = l.count / 2, border = middle - middle % shape_channel_stride(&l.shape);
        check_nan(&l, middle);
        check_nan(&l, border);
        check_nan(&l, border - 1);
        layer_free(&l);
    }
}

/* ---- finite differences of the layer in fp64, statistics included ---- */

typedef struct small_layer {
    int64_t count, channels, stride;
    const double *x, *weight;
    const float *gamma, *beta;
} small_layer;

static void small_statistics(const small_layer *s, int64_t c, double *mean, double *inverse_std) {
    double sum = 0, squares = 0, n = (double)s->count / (double)s->channels;
    for (int64_t i = 0; i < s->count; i++)
        if (i / s->stride % s->channels == c)
            sum += s->x[i], squares += s->x[i] * s->x[i];
    *mean = sum / n;
    *inverse_std = 1 / sqrt(squares / n - *mean * *mean + 1e-5);
}

/* sum of weight * relu(gamma * u + beta) */
static double small_loss(const small_layer *s) {
    double loss = 0;
    for (int64_t c = 0; c < s->channels; c++) {
        double mean, inverse_std;
        small_statistics(s, c, &mean, &inverse_std);
        for (int64_t i = 0; i < s->count; i++)
            if (i / s->stride % s->channels == c)
                loss +=
                    s->weight[i] * fmax(0, (double)s->gamma[c] * (s->x[i] - mean) * inverse_std + (double)s->beta[c]);
    }
    return loss;
}

static void set_statistics(layer *l, const small_layer *s) {
    for (int64_t c = 0; c < l->channels; c++) {
        double mean, inverse_std;
        small_statistics(s, c, &mean, &inverse_std);
        l->mean[c] = (float)mean;
        l->inverse_std[c] = (float)inverse_std;
        l->gamma[c] = (float)(c % 2 ? -0.7 : 0.9);
        l->beta[c] = 0.3f;
        l->shift[c] = -(l->mean[c] * l->inverse_std[c]);
        l->threshold[c] = threshold_of(l->beta[c], l->gamma[c]);
    }
    size_t table = (size_t)l->channels * sizeof(float);
    assert_cuda(cudaMemcpy((void *)l->norm.mean, l->mean, table, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy((void *)l->norm.inverse_std, l->inverse_std, table, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy((void *)l->norm.gamma, l->gamma, table, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy((void *)l->norm.beta, l->beta, table, cudaMemcpyHostToDevice));
    assert_ok(comet_cuda_norm_prepare(&l->norm, NULL));
}

static void compare_differences(layer *l, const gradients *g, double tolerance) {
    double *x = take((size_t)l->count * sizeof *x), *weight = take((size_t)l->count * sizeof *weight);
    small_layer s = {l->count, l->channels, shape_channel_stride(&l->shape), x, weight, l->gamma, l->beta};
    const double h = 1e-4;
    int64_t compared = 0;
    for (int64_t i = 0; i < l->count; i++)
        x[i] = (double)value_at(l->dtype, l->x, i), weight[i] = (double)value_at(l->dtype, l->dy, i);
    for (int64_t i = 0; i < l->count; i++) {
        double at = x[i];
        x[i] = at + h;
        double above = small_loss(&s);
        x[i] = at - h;
        double below = small_loss(&s);
        x[i] = at;
        double here = small_loss(&s), left = (here - below) / h, right = (above - here) / h;
        if (fabs(left - right) > 1e-2) /* a ReLU turns in between */
            continue;
        compared++;
        assert_true(fabs((double)((const float *)g->dx)[i] - (left + right) / 2) < tolerance);
    }
    assert_true(compared > l->count / 2);
    free(x);
    free(weight);
}

static void gradients_as_differences(void **state) {
    (void)state;
    rng r = rng_seed(7);
    static const test_shape small[] = {{COMET_NHWC, 4, {2, 4, 5, 4}}, {COMET_NCHW, 4, {3, 3, 4, 5}}};
    for (int k = 0; k < 2; k++) {
        layer l;
        layer_new(&l, &r, &small[k], COMET_F32, 1, 1e-5, 0);
        double *x = take((size_t)l.count * sizeof *x);
        for (int64_t i = 0; i < l.count; i++)
            x[i] = (double)value_at(l.dtype, l.x, i);
        small_layer s = {l.count, l.channels, shape_channel_stride(&l.shape), x, NULL, l.gamma, l.beta};
        set_statistics(&l, &s);
        forward(&l, 1);
        for (int from_stream = 0; from_stream < 2; from_stream++) {
            gradients g = backward(&l, from_stream);
            compare_differences(&l, &g, 2e-3);
            gradients_free(&g);
        }
        free(x);
        layer_free(&l);
    }
}

/* ---- damage ---- */

static int32_t status_after(layer *l) {
    int32_t fine = COMET_OK;
    assert_cuda(cudaMemcpy(l->status, &fine, sizeof fine, cudaMemcpyHostToDevice));
    assert_ok(comet_cuda_norm_backward(&l->norm, &l->slot, NULL, &l->dy_tensor, &l->dx_tensor, l->dgamma, l->dbeta,
                                       &l->params, &l->exec, l->status, NULL));
    int32_t *status = device_read(l->status, sizeof *status), copy = *status;
    free(status);
    return copy;
}

static void streams_that_are_not_there(void **state) {
    (void)state;
    rng r = rng_seed(8);
    layer l;
    layer_new(&l, &r, &shapes[0], COMET_F32, 1, 0.1, 0);
    forward(&l, 1);
    assert_int_equal(status_after(&l), COMET_OK);
    comet_cuda_result *result = l.slot.result;
    l.slot.result = NULL;
    assert_int_equal(status_after(&l), COMET_OK);
    assert_cuda(cudaMemset(l.slot.base, 0, l.slot.capacity));
    assert_int_equal(status_after(&l), COMET_ERROR_CORRUPT);
    l.slot.result = result;
    layer_free(&l);
}

static void damaged_streams(void **state) {
    (void)state;
    rng r = rng_seed(9);
    static const int which[] = {1, 3, 9, 11, 16};
    int errors = 0;
    for (int k = 0; k < effort(60); k++) {
        layer l;
        layer_new(&l, &r, &shapes[which[k % 5]], dtypes[k % 3], 1, k % 2 ? 0.2 : 1e-3, 0);
        forward(&l, 1);
        comet_cuda_result *result = device_read(l.slot.result, sizeof *result);
        unsigned char *stream = device_read(l.slot.base, result->codec.bytes);
        for (int hits = 1 + (int)rng_below(&r, 4); hits; hits--)
            stream[rng_below(&r, k % 4 ? result->codec.bytes : 128)] ^= (unsigned char)(1u << rng_below(&r, 8));
        assert_cuda(cudaMemcpy(l.slot.base, stream, result->codec.bytes, cudaMemcpyHostToDevice));
        errors += status_after(&l) != COMET_OK;
        free(stream);
        free(result);
        layer_free(&l);
    }
    assert_true(errors > 0);
}

/* ---- arguments ---- */

static void arguments(void **state) {
    (void)state;
    rng r = rng_seed(10);
    layer l;
    layer_new(&l, &r, &shapes[0], COMET_F32, 1, 0.1, 0);
    comet_cuda_norm n = l.norm;
    comet_codec_params p = l.params;
    comet_tensor flat = l.x_tensor, other = l.y_tensor;
    n.channels++;
    assert_int_equal(comet_cuda_norm_forward(&n, &l.x_tensor, &l.y_tensor, &p, &l.exec, NULL, NULL, NULL),
                     COMET_ERROR_ARGUMENT);
    n.channels--, n.gamma = NULL;
    assert_int_equal(comet_cuda_norm_forward(&n, &l.x_tensor, &l.y_tensor, &p, &l.exec, NULL, NULL, NULL),
                     COMET_ERROR_ARGUMENT);
    n.gamma = l.norm.gamma;
    flat.layout = COMET_FLAT;
    assert_int_equal(comet_cuda_norm_forward(&n, &flat, &flat, &p, &l.exec, NULL, NULL, NULL), COMET_ERROR_UNSUPPORTED);
    other.shape[0]--;
    assert_int_equal(comet_cuda_norm_forward(&n, &l.x_tensor, &other, &p, &l.exec, NULL, NULL, NULL),
                     COMET_ERROR_ARGUMENT);
    assert_int_equal(comet_cuda_norm_forward(&n, &l.x_tensor, &l.x_tensor, &p, &l.exec, &l.slot, NULL, NULL),
                     COMET_ERROR_ARGUMENT);
    p.keep_mask = 1;
    assert_int_equal(comet_cuda_norm_forward(&n, &l.x_tensor, &l.y_tensor, &p, &l.exec, &l.slot, NULL, NULL),
                     COMET_ERROR_UNSUPPORTED);
    assert_int_equal(comet_cuda_norm_backward(&n, &l.slot, &l.x_tensor, &l.dy_tensor, &l.dx_tensor, l.dgamma, l.dbeta,
                                              &l.params, &l.exec, l.status, NULL),
                     COMET_ERROR_ARGUMENT);
    comet_codec_exec small = l.exec;
    small.workspace_bytes = 512;
    assert_int_equal(comet_cuda_norm_backward(&n, NULL, &l.x_tensor, &l.dy_tensor, &l.dx_tensor, l.dgamma, l.dbeta,
                                              &l.params, &small, NULL, NULL),
                     COMET_ERROR_CAPACITY);
    comet_codec_grid grid;
    assert_ok(comet_cuda_norm_grid(&n, &grid));
    assert_ptr_equal(grid.threshold, n.threshold);
    layer_free(&l);
}

/* In place: y over x without a stream, dx over dy. */
static void in_place(void **state) {
    (void)state;
    rng r = rng_seed(11);
    static const int which[] = {0, 2, 9, 13, 21, 22, 23, 28, 32};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        layer l;
        layer_new(&l, &r, &shapes[which[k]], dtypes[k % 3], 1, 0.1, 0);
        forward(&l, 1);
        gradients g = backward(&l, 1);
        comet_tensor dx = l.dx_tensor;
        l.dx_tensor = l.dy_tensor;
        assert_ok(comet_cuda_norm_backward(&l.norm, &l.slot, NULL, &l.dy_tensor, &l.dy_tensor, l.dgamma, l.dbeta,
                                           &l.params, &l.exec, l.status, NULL));
        void *over = device_read(l.dy_tensor.data, l.bytes);
        assert_memory_equal(over, g.dx, l.bytes);
        l.dx_tensor = dx;
        assert_ok(comet_cuda_norm_forward(&l.norm, &l.x_tensor, &l.x_tensor, &l.params, &l.exec, NULL, NULL, NULL));
        void *y = device_read(l.x_tensor.data, l.bytes), *expected = device_read(l.y_tensor.data, l.bytes);
        assert_memory_equal(y, expected, l.bytes);
        free(over);
        free(y);
        free(expected);
        gradients_free(&g);
        layer_free(&l);
    }
}

/* Forward and backward captured, and replayed twice. */
static void in_a_graph(void **state) {
    (void)state;
    rng r = rng_seed(13);
    layer l;
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    layer_new(&l, &r, &shapes[1], COMET_BF16, 1, 0.1, 0);
    forward(&l, 1);
    gradients g = backward(&l, 1);
    assert_cuda(cudaMemset(l.slot.base, 0, l.slot.capacity));
    assert_cuda(cudaMemset(l.dx_tensor.data, POISON, l.bytes));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    l.exec.queue = queue;
    assert_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    assert_ok(comet_cuda_norm_prepare(&l.norm, queue));
    assert_ok(comet_cuda_norm_forward(&l.norm, &l.x_tensor, &l.y_tensor, &l.params, &l.exec, &l.slot, NULL, NULL));
    assert_ok(comet_cuda_norm_backward(&l.norm, &l.slot, NULL, &l.dy_tensor, &l.dx_tensor, l.dgamma, l.dbeta, &l.params,
                                       &l.exec, l.status, NULL));
    assert_cuda(cudaStreamEndCapture(queue, &graph));
    assert_cuda(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 2; i++)
        assert_cuda(cudaGraphLaunch(ready, queue));
    assert_cuda(cudaStreamSynchronize(queue));
    void *dx = device_read(l.dx_tensor.data, l.bytes);
    assert_memory_equal(dx, g.dx, l.bytes);
    check_stream(&l);
    free(dx);
    gradients_free(&g);
    assert_cuda(cudaGraphExecDestroy(ready));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaStreamDestroy(queue));
    layer_free(&l);
}

static void an_empty_tensor(void **state) {
    (void)state;
    rng r = rng_seed(12);
    static const test_shape none = {COMET_NHWC, 4, {0, 4, 4, 8}};
    layer l;
    layer_new(&l, &r, &none, COMET_F32, 1, 0.1, 0);
    forward(&l, 0);
    forward(&l, 1);
    gradients g = backward(&l, 1);
    for (int64_t c = 0; c < l.channels; c++)
        assert_true(g.dgamma[c] == 0 && g.dbeta[c] == 0);
    gradients_free(&g);
    layer_free(&l);
}

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status != COMET_OK) {
        printf("skipped: %s\n", comet_status_string(status));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_as_on_cpu),
        cmocka_unit_test(relative_bounds),
        cmocka_unit_test(relative_bounds_of_every_shape),
        cmocka_unit_test(a_slot_that_is_too_small),
        cmocka_unit_test(gradients_as_in_fp64),
        cmocka_unit_test(long_walks),
        cmocka_unit_test(values_that_are_not_finite),
        cmocka_unit_test(gradients_as_differences),
        cmocka_unit_test(streams_that_are_not_there),
        cmocka_unit_test(damaged_streams),
        cmocka_unit_test(arguments),
        cmocka_unit_test(in_place),
        cmocka_unit_test(in_a_graph),
        cmocka_unit_test(an_empty_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
