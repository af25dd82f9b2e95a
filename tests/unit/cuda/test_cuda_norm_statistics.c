/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch statistics on a device against fp64: shapes of every kind, data that a naive sum of squares fails on, running
 * statistics, the tables that follow from them, the same bits every time, graphs. Device memory is allocated to the
 * byte, so that the emulated run under a sanitizer sees what reads or writes too far.
 */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cuda/cuda_impl.h"
#include "comet/cuda_norm.h"
#include "support/codec/tensors.h"
#include "support/cuda/device_memory.h"
#include "support/effort.h"
#include "support/rng.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

/*
 * Channels that fill vectors and that do not, one channel and more than there are counters; maps that fill vectors,
 * that are odd, smaller than a vector, larger than a block, and one value; few values and fewer than a vector.
 */
static const test_shape shapes[] = {
    {COMET_NHWC, 4, {4, 16, 16, 32}},
    {COMET_NHWC, 4, {3, 9, 9, 36}},
    {COMET_NHWC, 4, {2, 5, 7, 3}},
    {COMET_NHWC, 4, {2, 17, 16, 7}},
    {COMET_NHWC, 4, {2, 3, 7, 300}},
    {COMET_NHWC, 4, {40, 1, 1, 20}},
    {COMET_NHWC, 4, {5, 1, 2, 33}},
    {COMET_NHWC, 2, {64, 130}},
    {COMET_NHWC, 4, {1, 8, 12, 516}},
    {COMET_NHWC, 4, {1, 1, 1, 1}},
    {COMET_NHWC, 1, {5}},
    {COMET_NHWC, 4, {7, 45, 45, 1}},
    {COMET_NHWC, 4, {2, 7, 7, 1024}},
    {COMET_NHWC, 4, {8, 28, 28, 64}},
    {COMET_NHWC, 2, {3, 20000}},
    {COMET_NHWC, 3, {100, 200, 2}},
    {COMET_NCHW, 4, {2, 3, 40, 40}},
    {COMET_NCHW, 4, {4, 6, 10, 10}},
    {COMET_NCHW, 4, {3, 2, 28, 28}},
    {COMET_NCHW, 4, {5, 33, 7, 7}},
    {COMET_NCHW, 4, {9, 64, 7, 7}},
    {COMET_NCHW, 4, {6, 40, 14, 14}},
    {COMET_NCHW, 4, {2, 7, 1, 100}},
    {COMET_NCHW, 4, {1, 2, 3, 300}},
    {COMET_NCHW, 4, {2, 12, 8, 8}},
    {COMET_NCHW, 4, {2, 5, 9, 13}},
    {COMET_NCHW, 4, {1, 1, 20, 20}},
    {COMET_NCHW, 3, {40, 50, 1}},
    {COMET_NCHW, 4, {30, 6, 1, 5}},
    {COMET_NCHW, 4, {19, 7, 1, 5}},
    {COMET_NCHW, 4, {9, 6, 2, 2}},
    {COMET_NCHW, 4, {3, 5, 3, 1}},
    {COMET_NCHW, 4, {3, 3, 3, 3}},
    {COMET_NCHW, 5, {2, 3, 2, 9, 10}},
    {COMET_NCHW, 4, {3, 4, 112, 112}},
    {COMET_NCHW, 4, {1, 2, 113, 113}},
    {COMET_NCHW, 4, {3, 3, 113, 113}},
    {COMET_NCHW, 4, {2, 9, 74, 74}},
    {COMET_NCHW, 4, {1, 1, 1, 2}},
    {COMET_NCHW, 4, {2, 150, 96, 96}},
    {COMET_NCHW, 4, {2, 3000, 4, 4}},
    {COMET_NCHW, 4, {70, 16, 5, 5}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- a tensor and its statistics ---- */

/* What a channel's values are like. */
typedef enum kind {
    KIND_PLAIN,
    KIND_FAR,      /* the mean is 1000 standard deviations */
    KIND_CONSTANT, /* one value; its sum is not exact */
    KIND_OUTLIER,  /* the first value is far from all others */
    KIND_STEP,     /* one half of the positions far from the other */
    KIND_HUGE,
    KIND_TINY,
    KINDS
} kind;

typedef struct bed {
    test_shape shape;
    comet_dtype dtype;
    int64_t count, channels, stride;
    size_t bytes, table;
    void *x; /* host */
    kind first;
    int kinds; /* of channels, in turn */
    double *mean, *squares;
    comet_tensor tensor;
    comet_cuda_norm_batch batch;
    comet_codec_exec exec;
} bed;

static float sample(rng *r, kind k, comet_dtype dtype, int64_t position, int64_t positions) {
    const double huge = dtype == COMET_F16 ? 3e3 : 1e15, tiny = dtype == COMET_F16 ? 1e-3 : 1e-15;
    double v = rng_gauss(r);
    switch (k) {
    case KIND_FAR:
        return (float)(1000 + v);
    case KIND_CONSTANT:
        return 0.1f;
    case KIND_OUTLIER:
        return (float)(position == 0 ? -30000 : 1 + v);
    case KIND_STEP:
        return (float)((2 * position < positions ? 50 : -3) + 0.1 * v);
    case KIND_HUGE:
        return (float)(huge * (v + 2));
    case KIND_TINY:
        return (float)(tiny * (v + 2));
    default:
        return (float)(0.3 + 2 * v);
    }
}

static kind kind_of(const bed *b, int64_t channel) {
    return (kind)((int)b->first + channel % b->kinds);
}

static void fill(bed *b, rng *r, kind first, int kinds) {
    int64_t positions = b->count / b->channels;
    b->first = first, b->kinds = kinds;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t c = i / b->stride % b->channels;
        int64_t position = i / (b->stride * b->channels) * b->stride + i % b->stride;
        set_value(b->dtype, b->x, i, sample(r, kind_of(b, c), b->dtype, position, positions));
    }
}

/* Two passes in fp64. */
static void reference(bed *b) {
    double n = (double)b->count / (double)b->channels;
    memset(b->mean, 0, (size_t)b->channels * sizeof *b->mean);
    memset(b->squares, 0, (size_t)b->channels * sizeof *b->squares);
    for (int64_t i = 0; i < b->count; i++)
        b->mean[i / b->stride % b->channels] += (double)value_at(b->dtype, b->x, i);
    for (int64_t c = 0; c < b->channels; c++)
        b->mean[c] /= n;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t c = i / b->stride % b->channels;
        double d = (double)value_at(b->dtype, b->x, i) - b->mean[c];
        b->squares[c] += d * d;
    }
}

static void upload(bed *b) {
    assert_cuda(cudaMemcpy(b->tensor.data, b->x, b->bytes, cudaMemcpyHostToDevice));
    assert_cuda(cudaDeviceSynchronize()); /* non-blocking queues do not wait for it */
    reference(b);
}

static void bed_new(bed *b, const test_shape *shape, comet_dtype dtype) {
    const comet_device device = {COMET_CUDA, 0};
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    *b = (bed){.shape = *shape, .dtype = dtype, .batch = COMET_CUDA_NORM_BATCH_INIT, .exec = COMET_CODEC_EXEC_INIT};
    b->count = shape_count(shape);
    b->channels = shape_channels(shape);
    b->stride = shape_channel_stride(shape);
    b->bytes = (size_t)b->count * comet_dtype_size(dtype);
    b->table = (size_t)b->channels * sizeof(float);
    b->x = take(b->bytes);
    b->mean = take((size_t)b->channels * sizeof *b->mean);
    b->squares = take((size_t)b->channels * sizeof *b->squares);
    assert_ok(comet_tensor_init_on(&b->tensor, device, device_take(b->bytes, NULL), dtype, shape->layout, shape->ndim,
                                   shape->shape));
    b->batch.channels = b->channels;
    b->batch.mean = device_take(b->table, NULL);
    b->batch.inverse_std = device_take(b->table, NULL);
    params.bound = 0.1;
    assert_ok(comet_cuda_norm_workspace(&b->tensor, &params, &b->exec.workspace_bytes));
    b->exec.workspace = device_take(b->exec.workspace_bytes, NULL);
    assert_ok(comet_cuda_workspace_init(b->exec.workspace, b->exec.workspace_bytes, NULL));
}

static void bed_free(bed *b) {
    unsigned char *zeroed = device_read(b->exec.workspace, CUDA_WORKSPACE_ZEROED);
    for (size_t i = 0; i < CUDA_WORKSPACE_ZEROED; i++)
        assert_int_equal(zeroed[i], 0);
    free(zeroed);
    free(b->x);
    free(b->mean);
    free(b->squares);
    assert_cuda(cudaFree(b->tensor.data));
    assert_cuda(cudaFree(b->batch.mean));
    assert_cuda(cudaFree(b->batch.inverse_std));
    assert_cuda(cudaFree(b->exec.workspace));
}

static void run(bed *b) {
    assert_ok(comet_cuda_norm_statistics(&b->batch, &b->tensor, &b->exec));
}

/*
 * How far the tables are from fp64: the mean beyond its own rounding, in standard deviations (where the first value,
 * from which differences are taken, is all of the variance, in those differences, which are sqrt(n) times that);
 * 1 / std relative.
 */
typedef struct errors {
    double mean, inverse_std;
} errors;

static errors errors_of(const bed *b) {
    float *mean = device_read(b->batch.mean, b->table), *inverse_std = device_read(b->batch.inverse_std, b->table);
    double n = (double)b->count / (double)b->channels;
    errors e = {0, 0};
    for (int64_t c = 0; c < b->channels; c++) {
        double expected = 1 / sqrt(b->squares[c] / n + b->batch.epsilon), std = sqrt(b->squares[c] / n);
        double off = fmax(0, fabs((double)mean[c] - b->mean[c]) - fabs(b->mean[c]) * 0x1p-24 * 1.0001);
        double scale = kind_of(b, c) == KIND_OUTLIER ? std * sqrt(n) : std;
        e.mean = fmax(e.mean, off / fmax(scale, 1e-300));
        e.inverse_std = fmax(e.inverse_std, fabs((double)inverse_std[c] / expected - 1));
        if (!isfinite(mean[c]) || !isfinite(inverse_std[c]))
            e = (errors){INFINITY, INFINITY};
    }
    free(mean);
    free(inverse_std);
    return e;
}

static void check(const bed *b, double most_mean, double most_inverse_std) {
    errors e = errors_of(b);
    if (e.mean > most_mean || e.inverse_std > most_inverse_std)
        print_message("%s, dtype %d, %lld x %lld ...: %g, %g\n", layout_name(b->shape.layout), (int)b->dtype,
                      (long long)b->shape.shape[0], (long long)b->channels, e.mean, e.inverse_std);
    assert_true(e.mean <= most_mean);
    assert_true(e.inverse_std <= most_inverse_std);
}

/* ---- tests ---- */

static void as_in_fp64(void **state) {
    (void)state;
    rng r = rng_seed(1);
#ifdef COMET_CUDA_EMULATION
    emulation_set_multiprocessors(132); /* as a large GPU has: how work is shared decides how sums round */
#endif
    for (int k = 0; k < SHAPES; k++)
        for (int d = 0; d < 3; d++) {
            bed b;
            bed_new(&b, &shapes[k], dtypes[d]);
            fill(&b, &r, KIND_PLAIN, 1);
            upload(&b);
            run(&b);
            check(&b, 4e-7, 3e-7);
            bed_free(&b);
        }
}

static void random_shapes(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int k = 0; k < effort(150); k++) {
        test_shape shape = {rng_below(&r, 2) ? COMET_NHWC : COMET_NCHW, 4, {0}};
        int64_t side = 1 + (int64_t)rng_below(&r, rng_below(&r, 4) ? 16 : 150);
        int64_t channels = 1 + (int64_t)rng_below(&r, rng_below(&r, 3) ? 70 : 3000 / (int)side);
        int64_t maps = 1 + (int64_t)rng_below(&r, 40), most = 200000 / (side * side * channels);
        int64_t extents[] = {maps < most ? maps : most > 0 ? most : 1, channels, side, side};
        memcpy(shape.shape, extents, sizeof extents);
        if (shape.layout == COMET_NHWC)
            shape.shape[1] = side, shape.shape[3] = channels;
        bed b;
#ifdef COMET_CUDA_EMULATION
        emulation_set_multiprocessors(1 + (int)rng_below(&r, 40));
#endif
        bed_new(&b, &shape, dtypes[rng_below(&r, 3)]);
        fill(&b, &r, KIND_PLAIN, KIND_STEP);
        upload(&b);
        run(&b);
        check(&b, 3e-7, 1e-6);
        bed_free(&b);
    }
#ifdef COMET_CUDA_EMULATION
    emulation_reset();
#endif
}

/* Data that sums of squares cancel on, or leave fp32's range of squares; channels of all kinds beside each other. */
static void hard_data(void **state) {
    (void)state;
    rng r = rng_seed(3);
    static const int which[] = {0, 3, 8, 13, 19, 20, 21, 28, 34, 36, 41};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++)
        for (int d = 0; d < 3; d++)
            for (int epsilon = 0; epsilon < 2; epsilon++) {
                bed b;
                bed_new(&b, &shapes[which[k]], dtypes[d]);
                b.batch.epsilon = epsilon ? 1e-5 : 1e-40;
                fill(&b, &r, KIND_PLAIN, KINDS);
                upload(&b);
                run(&b);
                check(&b, 3e-7, 1e-6);
                bed_free(&b);
            }
}

/* A variance of exactly 0. */
static void constant_channels(void **state) {
    (void)state;
    rng r = rng_seed(4);
    for (int k = 0; k < SHAPES; k++) {
        bed b;
        bed_new(&b, &shapes[k], dtypes[k % 3]);
        b.batch.epsilon = 0x1p-20;
        fill(&b, &r, KIND_CONSTANT, 1);
        upload(&b);
        run(&b);
        float *mean = device_read(b.batch.mean, b.table), *inverse_std = device_read(b.batch.inverse_std, b.table);
        for (int64_t c = 0; c < b.channels; c++) {
            assert_true((double)mean[c] == (double)value_at(b.dtype, b.x, 0));
            assert_true(inverse_std[c] == 0x1p10f);
        }
        free(mean);
        free(inverse_std);
        bed_free(&b);
    }
}

/* In every third channel, one value at any place. */
static void values_that_are_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(5);
    static const int which[] = {0, 3, 7, 13, 18, 19, 28, 35};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++)
        for (int wrong = 0; wrong < 3; wrong++) {
            bed b;
            bed_new(&b, &shapes[which[k]], dtypes[(k + (size_t)wrong) % 3]);
            fill(&b, &r, KIND_PLAIN, 1);
            for (int64_t c = 0; c < b.channels; c += 3) {
                int64_t sample_at = (int64_t)rng_below(&r, (uint64_t)(b.count / b.channels / b.stride));
                int64_t at = (int64_t)rng_below(&r, (uint64_t)b.stride);
                if (c % 2) /* the first */
                    sample_at = at = 0;
                set_value(b.dtype, b.x, (sample_at * b.channels + c) * b.stride + at,
                          wrong == 0   ? NAN
                          : wrong == 1 ? INFINITY
                                       : -INFINITY);
            }
            upload(&b);
            run(&b);
            float *mean = device_read(b.batch.mean, b.table), *inverse_std = device_read(b.batch.inverse_std, b.table);
            for (int64_t c = 0; c < b.channels; c++) {
                assert_int_equal(isfinite(mean[c]), c % 3 != 0);
                assert_int_equal(isnan(inverse_std[c]), c % 3 == 0);
                assert_true(c % 3 == 0 || fabs((double)mean[c] - b.mean[c]) < 1e-5);
            }
            free(mean);
            free(inverse_std);
            bed_free(&b);
        }
}

/* The same bits again, with blocks and threads in another order, and with a workspace that holds something else. */
static void the_same_bits(void **state) {
    (void)state;
    rng r = rng_seed(6);
#ifdef COMET_CUDA_EMULATION
    emulation_reset();
#endif
    for (int k = 0; k < SHAPES; k++) {
        bed b;
        bed_new(&b, &shapes[k], dtypes[k % 3]);
        fill(&b, &r, KIND_PLAIN, 2);
        upload(&b);
        run(&b);
        void *mean = device_read(b.batch.mean, b.table), *inverse_std = device_read(b.batch.inverse_std, b.table);
        for (int again = 0; again < 2; again++) {
            assert_cuda(cudaMemset((char *)b.exec.workspace + CUDA_WORKSPACE_ZEROED, 0xff,
                                   b.exec.workspace_bytes - CUDA_WORKSPACE_ZEROED));
            assert_cuda(cudaMemset(b.batch.mean, POISON, b.table));
            assert_cuda(cudaMemset(b.batch.inverse_std, POISON, b.table));
#ifdef COMET_CUDA_EMULATION
            emulation_set_block_order(rng_next(&r) | 1);
            emulation_set_thread_order(rng_next(&r) | 1);
#endif
            run(&b);
            void *second = device_read(b.batch.mean, b.table), *third = device_read(b.batch.inverse_std, b.table);
            assert_memory_equal(second, mean, b.table);
            assert_memory_equal(third, inverse_std, b.table);
            free(second);
            free(third);
#ifdef COMET_CUDA_EMULATION
            emulation_reset();
#endif
        }
        free(mean);
        free(inverse_std);
        bed_free(&b);
    }
}

/* ---- what goes with it ---- */

static float *random_table(rng *r, int64_t channels) {
    float *host = take((size_t)channels * sizeof *host);
    for (int64_t c = 0; c < channels; c++)
        host[c] = (float)rng_gauss(r);
    return host;
}

static void check_running(bed *b, const float *old_mean, const float *old_variance) {
    float *mean = device_read(b->batch.running_mean, b->table);
    float *variance = device_read(b->batch.running_variance, b->table);
    double n = (double)b->count / (double)b->channels, m = b->batch.momentum;
    for (int64_t c = 0; c < b->channels; c++) {
        double unbiased = b->squares[c] / (n > 1 ? n - 1 : 1);
        assert_true(fabs((double)mean[c] - ((1 - m) * (double)old_mean[c] + m * b->mean[c])) < 1e-6);
        assert_true(m > 0 || (mean[c] == old_mean[c] && variance[c] == old_variance[c]));
        assert_true(fabs((double)variance[c] - ((1 - m) * (double)old_variance[c] + m * unbiased)) <
                    2e-6 * (1 + unbiased));
    }
    free(mean);
    free(variance);
}

/* As PyTorch: the unbiased variance, momentum the share of the new. */
static void running_statistics(void **state) {
    (void)state;
    rng r = rng_seed(7);
    static const int which[] = {0, 2, 9, 10, 14, 19, 26, 35, 40};
    static const double momenta[] = {0.1, 0, 1, 0.75};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        bed b;
        bed_new(&b, &shapes[which[k]], dtypes[k % 3]);
        float *mean = random_table(&r, b.channels), *variance = random_table(&r, b.channels);
        int64_t batches = ((int64_t)1 << 40) + 7;
        b.batch.running_mean = device_take(b.table, mean);
        b.batch.running_variance = device_take(b.table, variance);
        b.batch.batches = device_take(sizeof batches, &batches);
        for (int i = 0; i < 4; i++) {
            b.batch.momentum = momenta[i];
            fill(&b, &r, KIND_PLAIN, 1);
            upload(&b);
            run(&b);
            check_running(&b, mean, variance);
            int64_t *now = device_read(b.batch.batches, sizeof *now);
            assert_int_equal(*now, batches + i + 1);
            free(now);
            free(mean);
            free(variance);
            mean = device_read(b.batch.running_mean, b.table);
            variance = device_read(b.batch.running_variance, b.table);
        }
        free(mean);
        free(variance);
        assert_cuda(cudaFree(b.batch.running_mean));
        assert_cuda(cudaFree(b.batch.running_variance));
        assert_cuda(cudaFree(b.batch.batches));
        bed_free(&b);
    }
}

static comet_cuda_norm layer_of(const bed *b, rng *r, int relu) {
    comet_cuda_norm n = COMET_CUDA_NORM_INIT;
    float *gamma = random_table(r, b->channels), *beta = random_table(r, b->channels);
    if (b->channels > 3)
        gamma[1] = 0, gamma[2] = -0.0f, beta[2] = 1, beta[3] = 0;
    n.channels = b->channels;
    n.mean = b->batch.mean;
    n.inverse_std = b->batch.inverse_std;
    n.gamma = device_take(b->table, gamma);
    n.beta = device_take(b->table, beta);
    n.shift = device_take(b->table, NULL);
    n.threshold = device_take(b->table, NULL);
    n.relu = relu;
    free(gamma);
    free(beta);
    return n;
}

static void layer_free(comet_cuda_norm *n) {
    assert_cuda(cudaFree((void *)n->gamma));
    assert_cuda(cudaFree((void *)n->beta));
    assert_cuda(cudaFree(n->shift));
    assert_cuda(cudaFree(n->threshold));
}

/* With a layer: its tables are what comet_cuda_norm_prepare makes of the statistics, bit for bit. */
static void tables_of_a_layer(void **state) {
    (void)state;
    rng r = rng_seed(8);
    static const int which[] = {0, 3, 12, 18, 19, 35};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        bed b;
        bed_new(&b, &shapes[which[k]], dtypes[k % 3]);
        fill(&b, &r, KIND_PLAIN, 2);
        upload(&b);
        comet_cuda_norm n = layer_of(&b, &r, k % 2 == 0);
        b.batch.norm = &n;
        run(&b);
        check(&b, 3e-7, 1e-6);
        void *shift = device_read(n.shift, b.table), *threshold = device_read(n.threshold, b.table);
        assert_cuda(cudaMemset(n.shift, POISON, b.table));
        assert_cuda(cudaMemset(n.threshold, POISON, b.table));
        assert_ok(comet_cuda_norm_prepare(&n, NULL));
        void *second = device_read(n.shift, b.table), *third = device_read(n.threshold, b.table);
        assert_memory_equal(shift, second, b.table);
        assert_memory_equal(threshold, third, b.table);
        free(shift);
        free(threshold);
        free(second);
        free(third);
        layer_free(&n);
        bed_free(&b);
    }
}

/* Captured, and replayed with other values in x. */
static void in_a_graph(void **state) {
    (void)state;
    rng r = rng_seed(9);
    static const int which[] = {1, 20};
    for (int k = 0; k < 2; k++) {
        bed b;
        cudaStream_t queue;
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        bed_new(&b, &shapes[which[k]], COMET_BF16);
        fill(&b, &r, KIND_PLAIN, 1);
        upload(&b);
        run(&b);
        assert_cuda(cudaDeviceSynchronize());
        assert_cuda(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
        b.exec.queue = queue;
        assert_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
        run(&b);
        assert_cuda(cudaStreamEndCapture(queue, &graph));
        assert_cuda(cudaGraphInstantiate(&ready, graph, 0));
        for (int i = 0; i < 3; i++) {
            fill(&b, &r, i % 2 ? KIND_PLAIN : KIND_STEP, 1);
            upload(&b);
            assert_cuda(cudaGraphLaunch(ready, queue));
            assert_cuda(cudaStreamSynchronize(queue));
            check(&b, 3e-7, 1e-6);
        }
        assert_cuda(cudaGraphExecDestroy(ready));
        assert_cuda(cudaGraphDestroy(graph));
        assert_cuda(cudaStreamDestroy(queue));
        bed_free(&b);
    }
}

static void an_empty_tensor(void **state) {
    (void)state;
    static const test_shape none[] = {
        {COMET_NHWC, 4, {0, 4, 4, 8}}, {COMET_NCHW, 4, {3, 8, 0, 2}}, {COMET_NHWC, 4, {3, 4, 4, 0}}};
    for (int k = 0; k < 3; k++) {
        bed b;
        bed_new(&b, &none[k], COMET_F32);
        run(&b);
        unsigned char *mean = device_read(b.batch.mean, b.table);
        for (size_t i = 0; i < b.table; i++)
            assert_int_equal(mean[i], POISON);
        free(mean);
        bed_free(&b);
    }
}

/* ---- arguments ---- */

static comet_status with(const bed *b, const comet_cuda_norm_batch *batch) {
    return comet_cuda_norm_statistics(batch, &b->tensor, &b->exec);
}

static void batches_that_are_wrong(void **state) {
    (void)state;
    rng r = rng_seed(10);
    bed b;
    bed_new(&b, &shapes[0], COMET_F32);
    comet_cuda_norm n = layer_of(&b, &r, 1), other = n;
    comet_cuda_norm_batch w = b.batch;
    assert_int_equal(with(&b, NULL), COMET_ERROR_ARGUMENT);
    w.channels++;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    w = b.batch, w.mean = NULL;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    w = b.batch, w.inverse_std++;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    w = b.batch, w.running_mean = (float *)(void *)((char *)b.batch.mean + 2);
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    w = b.batch, w.batches = (int64_t *)(void *)((char *)b.batch.mean + 4);
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    static const double bad[] = {-0.1, 1.1, NAN};
    for (int i = 0; i < 3; i++) {
        w = b.batch, w.momentum = bad[i];
        assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
        w = b.batch, w.epsilon = i == 1 ? (double)INFINITY : bad[i];
        assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    }
    w = b.batch, w.norm = &other, other.inverse_std = n.beta;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    other = n, other.gamma = NULL;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    other = n, other.channels = 31;
    assert_int_equal(with(&b, &w), COMET_ERROR_ARGUMENT);
    layer_free(&n);
    bed_free(&b);
}

static void tensors_that_are_wrong(void **state) {
    (void)state;
    bed b;
    bed_new(&b, &shapes[0], COMET_F32);
    comet_tensor x = b.tensor;
    comet_codec_exec exec = b.exec;
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, NULL, &exec), COMET_ERROR_ARGUMENT);
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, &x, NULL), COMET_ERROR_ARGUMENT);
    exec.workspace_bytes = CUDA_WORKSPACE_ZEROED;
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, &x, &exec), COMET_ERROR_CAPACITY);
    x.layout = COMET_FLAT;
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, &x, &b.exec), COMET_ERROR_UNSUPPORTED);
    x = b.tensor, x.dtype = COMET_U8;
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, &x, &b.exec), COMET_ERROR_UNSUPPORTED);
    x = b.tensor, x.device = (comet_device){COMET_CPU, 0};
    assert_int_equal(comet_cuda_norm_statistics(&b.batch, &x, &b.exec), COMET_ERROR_UNSUPPORTED);
    bed_free(&b);
}

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status != COMET_OK) {
        printf("skipped: %s\n", comet_status_string(status));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_fp64),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(hard_data),
        cmocka_unit_test(constant_channels),
        cmocka_unit_test(values_that_are_not_finite),
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(running_statistics),
        cmocka_unit_test(tables_of_a_layer),
        cmocka_unit_test(in_a_graph),
        cmocka_unit_test(an_empty_tensor),
        cmocka_unit_test(batches_that_are_wrong),
        cmocka_unit_test(tensors_that_are_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
