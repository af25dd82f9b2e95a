/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation with an addend: y and both streams bit for bit those of the CPU, dz exactly dy under the mask of
 * y, gradients against fp64, from streams and from tensors, streams that do not fit or are damaged, and graphs.
 */
#include "support/cuda/norm_case.h"

#include <stdio.h>

#include "support/effort.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

/* A layer, what it adds, and the stream of its output. */
typedef struct block {
    layer l;
    int adds;
    void *z, *y; /* host; y: as the CPU computes it */
    comet_tensor z_tensor, dz_tensor;
    comet_codec_params y_params;
    comet_cuda_slot y_slot;
} block;

/* ---- a block ---- */

static void make_addend(block *b, rng *r, int wild) {
    layer *l = &b->l;
    b->z = take(l->bytes);
    for (int64_t i = 0; i < l->count; i++) {
        float v = (float)rng_gauss(r);
        if (rng_below(r, 8) == 0) /* on the edge: what is left is 0 */
            v = -fmaf(l->gamma[channel_of(l, i)], u_of(l, i), l->beta[channel_of(l, i)]);
        if (wild && rng_below(r, 2000) == 0)
            v = rng_below(r, 2) ? -INFINITY : (float)rng_gauss(r) * 1e4f;
        if (wild && rng_below(r, 3000) == 0)
            v = NAN;
        set_value(l->dtype, b->z, i, v);
    }
}

static void make_y(block *b) {
    layer *l = &b->l;
    b->y = take(l->bytes);
    for (int64_t i = 0; i < l->count; i++) {
        int64_t c = channel_of(l, i);
        float y = fmaf(l->gamma[c], u_of(l, i), l->beta[c]);
        if (b->adds)
            y = y + value_at(l->dtype, b->z, i);
        set_value(l->dtype, b->y, i, l->relu && y <= 0 ? 0 : y);
    }
}

static void block_new(block *b, rng *r, const test_shape *shape, comet_dtype dtype, int relu, int adds, double bound,
                      int wild) {
    layer *l = &b->l;
    size_t capacity;
    *b = (block){.adds = adds, .y_params = COMET_CODEC_PARAMS_INIT};
    layer_new(l, r, shape, dtype, relu, bound, wild);
    l->norm.adds = adds;
    for (int64_t c = 0; adds && c < l->channels; c++)
        l->threshold[c] = NAN;
    assert_ok(comet_cuda_norm_prepare(&l->norm, NULL));
    make_addend(b, r, wild);
    make_y(b);
    b->z_tensor = device_tensor(l, b->z);
    b->dz_tensor = device_tensor(l, NULL);
    b->y_params.keep_mask = 1;
    b->y_params.bound = rng_below(r, 4) ? 0.07 : 1e-3;
    assert_ok(comet_cuda_max_bytes(&l->y_tensor, &b->y_params, &capacity));
    b->y_slot = (comet_cuda_slot){device_take(capacity, NULL), capacity, NULL, NULL};
    b->y_slot.result = device_take(sizeof *b->y_slot.result, NULL);
}

static void block_free(block *b) {
    void *device[] = {b->z_tensor.data, b->dz_tensor.data, b->y_slot.base, b->y_slot.result};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        assert_cuda(cudaFree(device[i]));
    free(b->z);
    free(b->y);
    layer_free(&b->l);
}

static comet_cuda_norm_residual residual_of(const block *b, int with_y) {
    comet_cuda_norm_residual residual = COMET_CUDA_NORM_RESIDUAL_INIT;
    residual.add = b->adds ? &b->z_tensor : NULL;
    residual.y_slot = with_y ? &b->y_slot : NULL;
    residual.y_params = with_y ? &b->y_params : NULL;
    return residual;
}

static void forward(block *b, int with_slot, int with_y) {
    layer *l = &b->l;
    comet_cuda_norm_residual residual = residual_of(b, with_y);
    assert_cuda(cudaMemset(l->y_tensor.data, POISON, l->bytes));
    assert_ok(comet_cuda_norm_forward(&l->norm, &l->x_tensor, &l->y_tensor, &l->params, &l->exec,
                                      with_slot ? &l->slot : NULL, NULL, &residual));
}

/* ---- forward ---- */

/* NaNs may have any bits: those of the device become the CPU's. */
static void *read_y(const block *b) {
    const layer *l = &b->l;
    void *y = device_read(l->y_tensor.data, l->bytes);
    size_t size = comet_dtype_size(l->dtype);
    for (int64_t i = 0; i < l->count; i++)
        if (isnan(value_at(l->dtype, y, i)) && isnan(value_at(l->dtype, b->y, i)))
            memcpy((char *)y + (size_t)i * size, (const char *)b->y + (size_t)i * size, size);
    return y;
}

static void check_y(const block *b) {
    void *y = read_y(b);
    assert_memory_equal(y, b->y, b->l.bytes);
    free(y);
}

/* The stream of y is the CPU's of the same values. */
static void check_y_stream(const block *b) {
    const layer *l = &b->l;
    comet_cuda_result *result = device_read(b->y_slot.result, sizeof *result);
    comet_codec_result cpu = COMET_CODEC_RESULT_INIT;
    comet_tensor tensor;
    size_t capacity, bytes;
    void *y = device_read(l->y_tensor.data, l->bytes);
    assert_int_equal(result->status, COMET_OK);
    assert_ok(comet_tensor_init(&tensor, y, l->dtype, l->shape.layout, l->shape.ndim, l->shape.shape));
    assert_ok(comet_codec_max_bytes(&tensor, &b->y_params, &capacity));
    unsigned char *stream = device_read(b->y_slot.base, result->codec.bytes), *expected = take(capacity);
    unsigned char *serialised = take(result->codec.bytes);
    assert_ok(comet_codec_compress(&tensor, &b->y_params, NULL, expected, capacity, &cpu));
    assert_ok(comet_codec_serialise(stream, result->codec.bytes, 0, serialised, result->codec.bytes, &bytes));
    assert_int_equal(bytes, cpu.bytes);
    assert_memory_equal(serialised, expected, bytes);
    if (b->y_params.stats_kind != COMET_STATS_NONE)
        assert_memory_equal(&result->codec.stats, &cpu.stats, sizeof cpu.stats);
    assert_int_equal(result->codec.tiles_exact, cpu.tiles_exact);
    assert_int_equal(result->codec.tiles_wide, cpu.tiles_wide);
    free(result);
    free(y);
    free(stream);
    free(expected);
    free(serialised);
}

static void check_forward(block *b) {
    forward(b, 0, 0);
    check_y(b);
    forward(b, 1, 0);
    check_y(b);
    check_stream(&b->l);
    assert_cuda(cudaMemset(b->l.slot.base, 0, b->l.slot.capacity));
    forward(b, 1, 1);
    check_y(b);
    check_stream(&b->l);
    check_y_stream(b);
}

static void forward_as_on_cpu(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static const double bounds[] = {0.3, 0.05, 1e-3, 0.0};
    int round = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < 3; d++)
            for (int wild = 0; wild < 2; wild++, round++) {
                block b;
                block_new(&b, &r, &shapes[s], dtypes[d], round % 5 != 4, 1, bounds[round % 7 % 4], wild);
                check_forward(&b);
                block_free(&b);
            }
}

/* The stream of y beside that of u, of a layer that adds nothing: thresholds are as ever. */
static void without_an_addend(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int s = 0; s < SHAPES; s++) {
        block b;
        block_new(&b, &r, &shapes[s], dtypes[s % 3], s % 4 != 3, 0, 0.1, s % 2);
        forward(&b, 1, 1);
        check_y(&b);
        check_stream(&b.l);
        check_y_stream(&b);
        block_free(&b);
    }
}

/* Bounds in device memory, relative to statistics of another tensor; and no statistics. */
static void bounds_of_y(void **state) {
    (void)state;
    rng r = rng_seed(3);
    static const int which[] = {0, 3, 9};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        block b;
        float bound = 0.25f;
        block_new(&b, &r, &shapes[which[k]], dtypes[k % 3], 1, 1, 0.1, 0);
        b.y_params.bound = 0.25;
        forward(&b, 1, 1);
        comet_cuda_result *own = device_read(b.y_slot.result, sizeof *own), *again;
        comet_codec_params absolute = b.y_params;
        b.y_params.bound = -1;
        b.y_params.device_bound = device_take(sizeof bound, &bound);
        b.y_params.bound_kind = COMET_BOUND_RELATIVE;
        b.y_params.device_stats = device_take(sizeof own->codec.stats, &own->codec.stats);
        b.l.params.stats_kind = COMET_STATS_NONE;
        forward(&b, 1, 1);
        again = device_read(b.y_slot.result, sizeof *again);
        double rms = sqrt(own->codec.stats.sum_squares / (double)own->codec.stats.nonzero);
        assert_int_equal(again->status, COMET_OK);
        assert_true(fabs(again->codec.bound - 0.25 * rms) < 1e-2 * rms);
        assert_cuda(cudaFree((void *)b.y_params.device_stats));
        assert_cuda(cudaFree((void *)b.y_params.device_bound));
        b.y_params = absolute;
        b.y_params.stats_kind = COMET_STATS_NONE;
        forward(&b, 1, 1);
        check_y_stream(&b);
        free(own);
        free(again);
        block_free(&b);
    }
}

/* ---- backward ---- */

typedef enum back_from { U_STREAM = 1, Y_STREAM = 2 } back_from;

static gradients backward(block *b, int from, const comet_tensor *dz) {
    layer *l = &b->l;
    size_t table = (size_t)l->channels * sizeof(float);
    comet_cuda_norm_residual_back residual = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    residual.y_slot = from & Y_STREAM ? &b->y_slot : NULL;
    residual.y_params = from & Y_STREAM ? &b->y_params : NULL;
    residual.y = from & Y_STREAM ? NULL : &l->y_tensor;
    residual.dz = dz;
    assert_cuda(cudaMemset(l->dx_tensor.data, POISON, l->bytes));
    assert_ok(comet_cuda_norm_backward(&l->norm, from & U_STREAM ? &l->slot : NULL,
                                       from & U_STREAM ? NULL : &l->x_tensor, &l->dy_tensor, &l->dx_tensor, l->dgamma,
                                       l->dbeta, &l->params, &l->exec, from ? l->status : NULL, &residual));
    int32_t *status = device_read(l->status, sizeof *status);
    assert_int_equal(*status, COMET_OK);
    free(status);
    return (gradients){device_read(l->dx_tensor.data, l->bytes), device_read(l->dgamma, table),
                       device_read(l->dbeta, table)};
}

/* dz of the host. */
static void *expected_dz(const block *b) {
    const layer *l = &b->l;
    void *dz = take(l->bytes);
    memcpy(dz, l->dy, l->bytes);
    for (int64_t i = 0; i < l->count; i++)
        if (l->relu && value_at(l->dtype, b->y, i) <= 0)
            set_value(l->dtype, dz, i, 0);
    return dz;
}

static void check_dz(const block *b, const void *device) {
    void *dz = device_read(device, b->l.bytes), *expected = expected_dz(b);
    assert_memory_equal(dz, expected, b->l.bytes);
    free(dz);
    free(expected);
}

/* Once more, with blocks and threads in another order where that can be chosen. */
static void check_again(block *b, int from, const gradients *first) {
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(77);
    emulation_set_thread_order(78);
#endif
    gradients again = backward(b, from, &b->dz_tensor);
    check_same(&b->l, first, &again);
    gradients_free(&again);
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(0);
    emulation_set_thread_order(0);
#endif
}

static void check_backward(block *b, int from) {
    layer *l = &b->l;
    float *u = from & U_STREAM ? decoded(l) : exact_u(l);
    void *dy = l->dy, *dz = expected_dz(b);
    assert_cuda(cudaMemset(b->dz_tensor.data, POISON, l->bytes));
    gradients g = backward(b, from, &b->dz_tensor);
    check_dz(b, b->dz_tensor.data);
    l->dy = dz; /* thresholds are NaN: nothing else is off */
    check_gradients(l, u, &g);
    l->dy = dy;
    check_again(b, from, &g);
    gradients_free(&g);
    free(dz);
    free(u);
}

static void gradients_as_in_fp64(void **state) {
    (void)state;
    rng r = rng_seed(4);
    static const double bounds[] = {0.3, 0.05, 1e-3, 0.0}; /* narrow and wide codes, and none */
    int round = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < 3; d++, round++) {
            block b;
            block_new(&b, &r, &shapes[s], dtypes[d], round % 7 != 6, 1, bounds[round % 5 % 4], 0);
            b.y_params.bound = bounds[round % 4];
            forward(&b, 1, 1);
            for (int from = 0; from < 4; from++)
                check_backward(&b, from);
            block_free(&b);
        }
}

/* More groups than blocks that run at once: every warp goes over several tiles. */
static void long_walks(void **state) {
    (void)state;
    rng r = rng_seed(5);
    static const test_shape large[] = {{COMET_NHWC, 4, {3, 32, 24, 64}}, {COMET_NHWC, 4, {2, 8, 8, 520}},
                                       {COMET_NHWC, 4, {2, 40, 40, 19}}, {COMET_NCHW, 4, {2, 20, 40, 36}},
                                       {COMET_NCHW, 4, {3, 30, 30, 8}},  {COMET_NCHW, 4, {5, 64, 14, 14}},
                                       {COMET_NCHW, 4, {9, 128, 7, 7}},  {COMET_NCHW, 4, {4, 32, 19, 21}}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        block b;
#ifdef COMET_CUDA_EMULATION
        emulation_set_multiprocessors(1);
#endif
        block_new(&b, &r, &large[i], dtypes[i % 3], 1, 1, 0.2, 0);
        check_forward(&b);
        for (int from = 0; from < 4; from++)
            check_backward(&b, from);
        block_free(&b);
#ifdef COMET_CUDA_EMULATION
        emulation_set_multiprocessors(4);
#endif
    }
}

/* A NaN of the addend is never off: dy goes through there, and gradients stay finite. */
static void addends_that_are_not_finite(void **state) {
    (void)state;
    rng r = rng_seed(6);
    static const int which[] = {0, 3, 9, 12};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        block b;
        block_new(&b, &r, &shapes[which[k]], dtypes[k % 3], 1, 1, 0.1, 0);
        set_value(b.l.dtype, b.z, b.l.count / 2, NAN);
        set_value(b.l.dtype, b.z, b.l.count / 3, INFINITY);
        set_value(b.l.dtype, b.z, b.l.count / 4, -INFINITY);
        assert_cuda(cudaMemcpy(b.z_tensor.data, b.z, b.l.bytes, cudaMemcpyHostToDevice));
        free(b.y);
        make_y(&b);
        check_forward(&b);
        for (int from = 0; from < 4; from++)
            check_backward(&b, from);
        block_free(&b);
    }
}

/* dz over dy, and dx over dy with dz elsewhere; y over the addend, without streams. */
static void in_place(void **state) {
    (void)state;
    rng r = rng_seed(7);
    static const int which[] = {0, 2, 9, 13, 17, 21, 22, 23, 28, 32};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++) {
        block b;
        block_new(&b, &r, &shapes[which[k]], dtypes[k % 3], k != 4, 1, k % 2 ? 1e-3 : 0.1, 0);
        layer *l = &b.l;
        forward(&b, 1, 1);
        gradients g = backward(&b, U_STREAM | Y_STREAM, &b.dz_tensor);
        gradients over = backward(&b, U_STREAM | Y_STREAM, &l->dy_tensor);
        check_same(l, &g, &over);
        check_dz(&b, l->dy_tensor.data);
        gradients_free(&over);
        assert_cuda(cudaMemcpy(l->dy_tensor.data, l->dy, l->bytes, cudaMemcpyHostToDevice));
        comet_cuda_norm_residual_back residual = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
        residual.y_slot = &b.y_slot, residual.y_params = &b.y_params, residual.dz = &b.dz_tensor;
        assert_ok(comet_cuda_norm_backward(&l->norm, &l->slot, NULL, &l->dy_tensor, &l->dy_tensor, l->dgamma, l->dbeta,
                                           &l->params, &l->exec, l->status, &residual));
        void *dx = device_read(l->dy_tensor.data, l->bytes);
        assert_memory_equal(dx, g.dx, l->bytes);
        comet_cuda_norm_residual more = residual_of(&b, 0);
        assert_ok(comet_cuda_norm_forward(&l->norm, &l->x_tensor, &b.z_tensor, NULL, &l->exec, NULL, NULL, &more));
        void *y = device_read(b.z_tensor.data, l->bytes);
        assert_memory_equal(y, b.y, l->bytes);
        free(dx);
        free(y);
        gradients_free(&g);
        block_free(&b);
    }
}

/* ---- streams that are not there ---- */

static int32_t status_after(block *b, int from) {
    layer *l = &b->l;
    int32_t fine = COMET_OK;
    comet_cuda_norm_residual_back residual = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    residual.y_slot = from & Y_STREAM ? &b->y_slot : NULL;
    residual.y_params = &b->y_params;
    residual.y = from & Y_STREAM ? NULL : &l->y_tensor;
    residual.dz = &b->dz_tensor;
    assert_cuda(cudaMemcpy(l->status, &fine, sizeof fine, cudaMemcpyHostToDevice));
    assert_ok(comet_cuda_norm_backward(&l->norm, from & U_STREAM ? &l->slot : NULL,
                                       from & U_STREAM ? NULL : &l->x_tensor, &l->dy_tensor, &l->dx_tensor, l->dgamma,
                                       l->dbeta, &l->params, &l->exec, l->status, &residual));
    int32_t *status = device_read(l->status, sizeof *status), copy = *status;
    free(status);
    return copy;
}

static int32_t result_status(const comet_cuda_slot *slot) {
    comet_cuda_result *result = device_read(slot->result, sizeof *result);
    int32_t status = result->status;
    free(result);
    return status;
}

static void slots_that_are_too_small(void **state) {
    (void)state;
    rng r = rng_seed(8);
    for (int which = 0; which < 3; which++) {
        block b;
        block_new(&b, &r, &shapes[which == 2 ? 9 : 0], dtypes[which], 1, 1, 0.05, 0);
        comet_cuda_slot *small = which % 2 ? &b.y_slot : &b.l.slot;
        size_t capacity = small->capacity;
        small->capacity = 1024;
        forward(&b, 1, 1);
        check_y(&b);
        assert_int_equal(result_status(&b.l.slot), which % 2 ? COMET_OK : COMET_ERROR_CAPACITY);
        assert_int_equal(result_status(&b.y_slot), which % 2 ? COMET_ERROR_CAPACITY : COMET_OK);
        assert_int_equal(status_after(&b, U_STREAM | Y_STREAM), COMET_ERROR_CAPACITY);
        assert_int_equal(status_after(&b, which % 2 ? U_STREAM : Y_STREAM), COMET_OK);
        small->capacity = capacity;
        forward(&b, 1, 1);
        check_stream(&b.l);
        check_y_stream(&b);
        block_free(&b);
    }
}

static void damaged_streams(void **state) {
    (void)state;
    rng r = rng_seed(9);
    static const int which[] = {1, 3, 9, 11, 16};
    int errors = 0, rounds = effort(60) < 10 ? 10 : effort(60); /* fewer might do no damage at all */
    for (int k = 0; k < rounds; k++) {
        block b;
        block_new(&b, &r, &shapes[which[k % 5]], dtypes[k % 3], 1, 1, 0.1, 0);
        b.y_params.bound = k % 2 ? 0.2 : 1e-3;
        forward(&b, 1, 1);
        comet_cuda_result *result = device_read(b.y_slot.result, sizeof *result);
        unsigned char *stream = device_read(b.y_slot.base, result->codec.bytes);
        for (int hits = 1 + (int)rng_below(&r, 4); hits; hits--)
            stream[rng_below(&r, k % 4 ? result->codec.bytes : 128)] ^= (unsigned char)(1u << rng_below(&r, 8));
        assert_cuda(cudaMemcpy(b.y_slot.base, stream, result->codec.bytes, cudaMemcpyHostToDevice));
        errors += status_after(&b, k % 3 ? U_STREAM | Y_STREAM : Y_STREAM) != COMET_OK;
        assert_int_equal(status_after(&b, U_STREAM), COMET_OK);
        free(stream);
        free(result);
        block_free(&b);
    }
    assert_true(errors > 0);
}

/* ---- arguments ---- */

static comet_status try_forward(block *b, const comet_tensor *y, const comet_cuda_slot *slot,
                                const comet_cuda_norm_residual *residual) {
    layer *l = &b->l;
    return comet_cuda_norm_forward(&l->norm, &l->x_tensor, y, &l->params, &l->exec, slot, NULL, residual);
}

static void forward_arguments(void **state) {
    (void)state;
    rng r = rng_seed(10);
    block b;
    block_new(&b, &r, &shapes[0], COMET_F32, 1, 1, 0.1, 0);
    layer *l = &b.l;
    comet_tensor other = b.z_tensor;
    comet_cuda_norm_residual good = residual_of(&b, 1), bad = good;
    assert_int_equal(try_forward(&b, &l->y_tensor, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_int_equal(try_forward(&b, &l->y_tensor, NULL, &good), COMET_ERROR_ARGUMENT);
    assert_int_equal(try_forward(&b, &b.z_tensor, &l->slot, &good), COMET_ERROR_ARGUMENT);
    bad.add = &other, other.shape[0]--;
    assert_int_equal(try_forward(&b, &l->y_tensor, &l->slot, &bad), COMET_ERROR_ARGUMENT);
    bad = good, bad.size = 0;
    assert_int_not_equal(try_forward(&b, &l->y_tensor, &l->slot, &bad), COMET_OK);
    comet_codec_params p = b.y_params;
    bad = good, bad.y_params = &p, p.keep_mask = 0;
    assert_int_equal(try_forward(&b, &l->y_tensor, &l->slot, &bad), COMET_ERROR_UNSUPPORTED);
    p.keep_mask = 1, p.bound_kind = COMET_BOUND_RELATIVE;
    assert_int_equal(try_forward(&b, &l->y_tensor, &l->slot, &bad), COMET_ERROR_UNSUPPORTED);
    comet_codec_exec exec = l->exec;
    assert_ok(comet_cuda_workspace(&l->x_tensor, &b.y_params, &l->exec.workspace_bytes)); /* enough for one stream */
    assert_int_equal(try_forward(&b, &l->y_tensor, &l->slot, &good), COMET_ERROR_CAPACITY);
    bad = good, bad.y_slot = NULL;
    assert_ok(try_forward(&b, &l->y_tensor, &l->slot, &bad));
    l->exec = exec;
    l->norm.adds = 0;
    assert_int_equal(try_forward(&b, &l->y_tensor, &l->slot, &good), COMET_ERROR_ARGUMENT);
    l->norm.adds = 1;
    assert_ok(try_forward(&b, &l->y_tensor, &l->slot, &good));
    block_free(&b);
}

static comet_status try_backward(block *b, const comet_tensor *dx, const comet_cuda_norm_residual_back *residual) {
    layer *l = &b->l;
    return comet_cuda_norm_backward(&l->norm, NULL, &l->x_tensor, &l->dy_tensor, dx, l->dgamma, l->dbeta, &l->params,
                                    &l->exec, NULL, residual);
}

static void backward_arguments(void **state) {
    (void)state;
    rng r = rng_seed(11);
    block b;
    block_new(&b, &r, &shapes[0], COMET_F32, 1, 1, 0.1, 0);
    layer *l = &b.l;
    comet_cuda_norm_residual_back good = COMET_CUDA_NORM_RESIDUAL_BACK_INIT, bad;
    good.y = &l->y_tensor, good.dz = &b.dz_tensor;
    forward(&b, 1, 1);
    assert_int_equal(try_backward(&b, &l->dx_tensor, NULL), COMET_ERROR_ARGUMENT);
    bad = good, bad.dz = NULL;
    assert_int_equal(try_backward(&b, &l->dx_tensor, &bad), COMET_ERROR_ARGUMENT);
    bad = good, bad.y = NULL;
    assert_int_equal(try_backward(&b, &l->dx_tensor, &bad), COMET_ERROR_ARGUMENT);
    bad.y = good.y, bad.y_slot = &b.y_slot;
    assert_int_equal(try_backward(&b, &l->dx_tensor, &bad), COMET_ERROR_ARGUMENT);
    bad.y = NULL, bad.y_params = &b.y_params; /* a stream, and no status word */
    assert_int_equal(try_backward(&b, &l->dx_tensor, &bad), COMET_ERROR_ARGUMENT);
    assert_int_equal(try_backward(&b, &b.dz_tensor, &good), COMET_ERROR_ARGUMENT);
    l->norm.adds = 0;
    assert_int_equal(try_backward(&b, &l->dx_tensor, &good), COMET_ERROR_ARGUMENT);
    l->norm.adds = 1;
    assert_ok(try_backward(&b, &l->dx_tensor, &good));
    block_free(&b);
}

/* Forward and backward captured, and replayed twice. */
static void in_a_graph(void **state) {
    (void)state;
    rng r = rng_seed(12);
    block b;
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    block_new(&b, &r, &shapes[1], COMET_BF16, 1, 1, 0.1, 0);
    layer *l = &b.l;
    forward(&b, 1, 1);
    gradients g = backward(&b, U_STREAM | Y_STREAM, &b.dz_tensor);
    assert_cuda(cudaMemset(l->slot.base, 0, l->slot.capacity));
    assert_cuda(cudaMemset(b.y_slot.base, 0, b.y_slot.capacity));
    assert_cuda(cudaMemset(l->dx_tensor.data, POISON, l->bytes));
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    l->exec.queue = queue;
    comet_cuda_norm_residual more = residual_of(&b, 1);
    comet_cuda_norm_residual_back back = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    back.y_slot = &b.y_slot, back.y_params = &b.y_params, back.dz = &b.dz_tensor;
    assert_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    assert_ok(
        comet_cuda_norm_forward(&l->norm, &l->x_tensor, &l->y_tensor, &l->params, &l->exec, &l->slot, NULL, &more));
    assert_ok(comet_cuda_norm_backward(&l->norm, &l->slot, NULL, &l->dy_tensor, &l->dx_tensor, l->dgamma, l->dbeta,
                                       &l->params, &l->exec, l->status, &back));
    assert_cuda(cudaStreamEndCapture(queue, &graph));
    assert_cuda(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 2; i++)
        assert_cuda(cudaGraphLaunch(ready, queue));
    assert_cuda(cudaStreamSynchronize(queue));
    void *dx = device_read(l->dx_tensor.data, l->bytes);
    assert_memory_equal(dx, g.dx, l->bytes);
    check_dz(&b, b.dz_tensor.data);
    check_stream(l);
    check_y_stream(&b);
    free(dx);
    gradients_free(&g);
    assert_cuda(cudaGraphExecDestroy(ready));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaStreamDestroy(queue));
    block_free(&b);
}

static void an_empty_tensor(void **state) {
    (void)state;
    rng r = rng_seed(13);
    static const test_shape none = {COMET_NHWC, 4, {0, 4, 4, 8}};
    block b;
    block_new(&b, &r, &none, COMET_F32, 1, 1, 0.1, 0);
    forward(&b, 0, 0);
    forward(&b, 1, 1);
    check_y_stream(&b);
    for (int from = 0; from < 4; from++) {
        gradients g = backward(&b, from, &b.dz_tensor);
        for (int64_t c = 0; c < b.l.channels; c++)
            assert_true(g.dgamma[c] == 0 && g.dbeta[c] == 0);
        gradients_free(&g);
    }
    block_free(&b);
}

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status != COMET_OK) {
        printf("skipped: %s\n", comet_status_string(status));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_as_on_cpu),  cmocka_unit_test(without_an_addend),
        cmocka_unit_test(bounds_of_y),        cmocka_unit_test(gradients_as_in_fp64),
        cmocka_unit_test(long_walks),         cmocka_unit_test(addends_that_are_not_finite),
        cmocka_unit_test(in_place),           cmocka_unit_test(slots_that_are_too_small),
        cmocka_unit_test(damaged_streams),    cmocka_unit_test(forward_arguments),
        cmocka_unit_test(backward_arguments), cmocka_unit_test(in_a_graph),
        cmocka_unit_test(an_empty_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
