/* SPDX-License-Identifier: Apache-2.0 */
/* The device store with real streams: what comes out of it is, bit for bit, what a stream in memory of its own gives.
 */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/cuda_norm.h"
#include "comet/device_store.h"
#include "support/effort.h"
#include "support/rng.h"

#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

#define assert_cuda(call)                                                                                              \
    do {                                                                                                               \
        cudaError_t error_of_call = (call);                                                                            \
        if (error_of_call != cudaSuccess)                                                                              \
            fail_msg("%s: %s", #call, cudaGetErrorString(error_of_call));                                              \
    } while (0)

enum { TENSORS = 16, QUEUES = 2, MOST_VALUES = 1 << 16, MOST_BYTES = MOST_VALUES * 4, MIB = 1 << 20 };

/* A tensor on the device, how it is kept, and what that gives. */
typedef struct item {
    comet_tensor tensor;
    comet_codec_params params;
    void *expected; /* on the host */
    size_t bytes;   /* of it */
    comet_codec_record result;
    comet_device_entry *entry;
    int told;
    comet_device_settled how;
} item;

typedef struct bench {
    cudaStream_t queues[QUEUES];
    void *output;
    unsigned char *host; /* page-locked */
    size_t taken, limit;
    long blocks;
    item items[TENSORS];
    rng r;
} bench;

/* ---- the caller's memory ---- */

static void *take(void *context, size_t bytes, void *queue) {
    bench *b = context;
    void *memory = NULL;
    if ((b->limit && b->taken + bytes > b->limit) || cudaMallocAsync(&memory, bytes, queue) != cudaSuccess)
        return NULL;
    b->taken += bytes;
    b->blocks++;
    return memory;
}

static void give(void *context, void *memory, size_t bytes, void *queue) {
    bench *b = context;
    b->taken -= bytes;
    b->blocks--;
    (void)cudaFreeAsync(memory, queue);
}

static void settled(void *context, void *owner, comet_device_entry *entry, const comet_device_settled *how) {
    item *t = owner;
    (void)context, (void)entry;
    t->told++;
    t->how = *how;
}

static comet_device_store_options options_of(bench *b) {
    comet_device_store_options o = COMET_DEVICE_STORE_OPTIONS_INIT;
    o.device = (comet_device){COMET_CUDA, 0};
    o.memory = (comet_device_memory){take, give, b};
    o.segment_bytes = 2 * MIB;
    o.settled = settled;
    o.settled_context = b;
    return o;
}

static comet_device_store *store_new(bench *b) {
    comet_device_store_options o = options_of(b);
    comet_device_store *s = NULL;
    assert_ok(comet_device_store_new(&o, &s));
    return s;
}

static comet_device_store_stats stats_of(const comet_device_store *s) {
    comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
    comet_device_store_get_stats(s, &stats);
    return stats;
}

/* ---- tensors ---- */

/* What a round trip gives that does without the store. */
static void expect(bench *b, item *t) {
    size_t worst, workspace_bytes;
    void *stream, *workspace;
    comet_cuda_result *result;
    int32_t *word;
    assert_ok(comet_cuda_max_bytes(&t->tensor, &t->params, &worst));
    assert_ok(comet_cuda_workspace(&t->tensor, &t->params, &workspace_bytes));
    assert_cuda(cudaMalloc(&stream, worst));
    assert_cuda(cudaMalloc(&workspace, workspace_bytes + 256));
    assert_cuda(cudaMalloc((void **)&result, sizeof *result));
    assert_cuda(cudaMalloc((void **)&word, sizeof *word));
    assert_cuda(cudaMemset(word, 0, sizeof *word));
    assert_ok(comet_cuda_workspace_init(workspace, workspace_bytes, NULL));
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.workspace = workspace;
    exec.workspace_bytes = workspace_bytes;
    comet_cuda_slot slot = {stream, worst, NULL, result};
    comet_cuda_result on_host;
    comet_tensor out = t->tensor;
    out.data = b->output;
    assert_ok(comet_cuda_compress(&t->tensor, &t->params, &exec, &slot, NULL));
    assert_ok(comet_cuda_decompress(&slot, &t->params, NULL, &exec, &out, word));
    assert_cuda(cudaMemcpy(&on_host, result, sizeof on_host, cudaMemcpyDeviceToHost));
    assert_cuda(cudaMemcpy(t->expected, b->output, t->bytes, cudaMemcpyDeviceToHost));
    t->result = on_host.codec;
    assert_cuda(cudaFree(stream));
    assert_cuda(cudaFree(workspace));
    assert_cuda(cudaFree(result));
    assert_cuda(cudaFree(word));
}

static comet_codec_params choose_codec(bench *b, const comet_tensor *tensor) {
    static const comet_codec codecs[] = {COMET_CODEC_EB,    COMET_CODEC_EB,   COMET_CODEC_ZVC, COMET_CODEC_MASK,
                                         COMET_CODEC_GROUP, COMET_CODEC_POOL, COMET_CODEC_DCT, COMET_CODEC_RAW};
    size_t bytes;
    for (uint64_t i = rng_below(&b->r, 8);; i++) {
        comet_codec_params params = COMET_CODEC_PARAMS_INIT;
        params.codec = codecs[i < 8 ? i : 7];
        params.bound = 0.1;
        params.stats_kind = rng_below(&b->r, 2) ? COMET_STATS_EXACT : COMET_STATS_NONE;
        if (i >= 7 || comet_cuda_max_bytes(tensor, &params, &bytes) == COMET_OK)
            return params;
    }
}

static void fill(bench *b, item *t) {
    float *values = (float *)(void *)b->host;
    int64_t count = comet_tensor_count(&t->tensor);
    for (int64_t i = 0; i < count; i++)
        values[i] = rng_below(&b->r, 3) ? 0.0f : (float)rng_gauss(&b->r);
    assert_cuda(cudaMemcpy(t->tensor.data, values, t->bytes, cudaMemcpyHostToDevice)); /* 16-bit: any patterns */
    assert_cuda(cudaDeviceSynchronize());
}

static void item_new(bench *b, item *t) {
    static const comet_dtype dtypes[] = {COMET_F32, COMET_F32, COMET_F16, COMET_BF16};
    int64_t shape[4] = {rng_between(&b->r, 1, 4), rng_between(&b->r, 1, 16), rng_between(&b->r, 1, 32),
                        rng_between(&b->r, 1, 32)};
    comet_dtype dtype = dtypes[rng_below(&b->r, 4)];
    void *data;
    assert_cuda(cudaMalloc(&data, MOST_BYTES));
    assert_ok(comet_tensor_init_on(&t->tensor, (comet_device){COMET_CUDA, 0}, data, dtype, COMET_NCHW, 4, shape));
    t->bytes = (size_t)comet_tensor_count(&t->tensor) * comet_dtype_size(dtype);
    t->expected = malloc(t->bytes);
    assert_non_null(t->expected);
    t->params = choose_codec(b, &t->tensor);
    fill(b, t);
    expect(b, t);
}

static bench *bench_new(uint64_t seed) {
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->r = rng_seed(seed);
    assert_cuda(cudaSetDevice(0));
    for (int i = 0; i < QUEUES; i++)
        assert_cuda(cudaStreamCreateWithFlags(&b->queues[i], cudaStreamNonBlocking));
    assert_cuda(cudaMalloc(&b->output, MOST_BYTES));
    assert_cuda(cudaHostAlloc((void **)&b->host, MOST_BYTES, cudaHostAllocDefault));
    for (int i = 0; i < TENSORS; i++)
        item_new(b, &b->items[i]);
    return b;
}

static void bench_free(bench *b) {
    assert_int_equal(b->blocks, 0);
    assert_int_equal(b->taken, 0);
    for (int i = 0; i < TENSORS; i++) {
        assert_cuda(cudaFree(b->items[i].tensor.data));
        free(b->items[i].expected);
    }
    assert_cuda(cudaFree(b->output));
    assert_cuda(cudaFreeHost(b->host));
    for (int i = 0; i < QUEUES; i++)
        assert_cuda(cudaStreamDestroy(b->queues[i]));
    free(b);
}

static comet_status save(comet_device_store *s, item *t, size_t expected, cudaStream_t queue) {
    comet_device_save one = COMET_DEVICE_SAVE_INIT;
    one.tensor = &t->tensor;
    one.params = &t->params;
    one.expected_bytes = expected;
    one.queue = queue;
    one.owner = t;
    t->told = 0;
    t->entry = NULL;
    return comet_device_store_save(s, &one, &t->entry);
}

/* Until it is settled, which may take two rounds. */
static void settle(comet_device_store *s, item *t) {
    while (comet_device_entry_state(t->entry) == 0) {
        assert_ok(comet_device_store_await(s, t->entry));
        assert_ok(comet_device_store_poll(s));
    }
    assert_int_equal(comet_device_entry_state(t->entry), 1);
    assert_int_equal(t->told, 1);
    assert_int_equal(t->how.status, COMET_OK);
    assert_memory_equal(&t->how.result, &t->result, sizeof t->result); /* sizes and statistics are deterministic */
}

static void check_load(bench *b, comet_device_store *s, item *t, cudaStream_t queue) {
    comet_tensor out = t->tensor;
    out.data = b->output;
    assert_cuda(cudaMemsetAsync(b->output, 0xee, t->bytes, queue));
    assert_ok(comet_device_store_load(s, t->entry, queue, NULL, &out));
    assert_cuda(cudaMemcpyAsync(b->host, b->output, t->bytes, cudaMemcpyDeviceToHost, queue));
    assert_cuda(cudaStreamSynchronize(queue));
    assert_memory_equal(b->host, t->expected, t->bytes);
}

/* ---- tests ---- */

/* Steps as a training has them: all saved, loaded backwards, some on another queue; sizes known from the last one. */
static void test_steps(void **state) {
    (void)state;
    bench *b = bench_new(1);
    comet_device_store *s = store_new(b);
    uint64_t misfits = 0;
    for (int step = 0; step < effort(6); step++) {
        for (int i = 0; i < TENSORS; i++) {
            item *t = &b->items[i];
            size_t expected = step == 0 ? 0 : t->result.bytes + (step % 2 ? 0 : 300);
            assert_ok(save(s, t, expected, b->queues[i % QUEUES]));
            assert_ok(comet_device_store_poll(s));
        }
        for (int i = TENSORS; i-- > 0;) {
            settle(s, &b->items[i]);
            check_load(b, s, &b->items[i], b->queues[(i + step) % QUEUES]);
            comet_device_store_release(s, b->items[i].entry);
            assert_int_equal(b->items[i].told, 1);
        }
        comet_device_store_stats t = stats_of(s);
        assert_true(t.entries == 0 && t.segments == 0 && t.room_bytes == 0 && t.stored_bytes == 0);
        misfits = step == 0 ? t.misfits : misfits;
        assert_int_equal(t.misfits, misfits); /* of the first step alone: sizes repeat to the byte */
    }
    assert_ok(comet_device_store_health(s));
    assert_true(stats_of(s).queues_joined > 0);
    comet_device_store_free(s);
    bench_free(b);
}

/* Every stream that is larger than expected is made once more, and is the same. */
static void test_misfits(void **state) {
    (void)state;
    bench *b = bench_new(2);
    comet_device_store *s = store_new(b);
    int open = 0;
    for (int i = 0; i < TENSORS; i++) {
        item *t = &b->items[i];
        assert_ok(save(s, t, 256, b->queues[0]));
        open += (t->params.codec == COMET_CODEC_EB || t->params.codec == COMET_CODEC_ZVC) && t->result.bytes > 256;
    }
    assert_true(open > 0);
    for (int i = 0; i < TENSORS; i++) {
        settle(s, &b->items[i]);
        check_load(b, s, &b->items[i], b->queues[0]);
    }
    assert_int_equal(stats_of(s).misfits, open);
    comet_device_store_free(s);
    bench_free(b);
}

static void test_no_memory(void **state) {
    (void)state;
    bench *b = bench_new(3);
    comet_device_store *s = store_new(b);
    assert_ok(save(s, &b->items[0], 0, NULL)); /* the workspace is there */
    settle(s, &b->items[0]);
    b->limit = b->taken + 4096;
    comet_device_store_release(s, b->items[0].entry);
    b->limit = b->taken + 4096;
    assert_status(save(s, &b->items[1], 0, NULL), COMET_ERROR_MEMORY);
    assert_int_equal(b->items[1].told, 0);
    assert_int_equal(stats_of(s).refused, 1);
    b->limit = 0;
    assert_ok(save(s, &b->items[1], 0, NULL));
    settle(s, &b->items[1]);
    check_load(b, s, &b->items[1], NULL);
    comet_device_store_free(s);
    bench_free(b);
}

static void test_spill(void **state) {
    (void)state;
    bench *b = bench_new(4);
    comet_device_store *s = store_new(b);
    for (int i = 0; i < TENSORS; i++)
        assert_ok(save(s, &b->items[i], 0, b->queues[i % QUEUES]));
    for (int i = 0; i < TENSORS; i++) {
        settle(s, &b->items[i]);
        if (i % 4)
            assert_ok(comet_device_store_spill(s, b->items[i].entry));
    }
    for (int i = 0; i < TENSORS; i++) {
        comet_device_entry_info info = COMET_DEVICE_ENTRY_INFO_INIT;
        while (i % 4 && !info.on_host) {
            assert_ok(comet_device_store_poll(s));
            comet_device_entry_get_info(b->items[i].entry, &info);
        }
    }
    assert_true(stats_of(s).host_bytes > 0);
    for (int i = 0; i < TENSORS; i += 2)
        assert_ok(comet_device_store_fetch(s, b->items[i].entry, b->queues[0]));
    for (int i = TENSORS; i-- > 0;) {
        check_load(b, s, &b->items[i], b->queues[i / 2 % QUEUES]);
        if (i % 3)
            comet_device_store_release(s, b->items[i].entry);
    }
    comet_device_store_free(s);
    bench_free(b);
}

/* A record of an entry that was released at once is not mixed up with the next one's. */
static void test_released_at_once(void **state) {
    (void)state;
    bench *b = bench_new(5);
    comet_device_store *s = store_new(b);
    for (int round = 0; round < effort(20); round++)
        for (int i = 0; i < TENSORS; i += 2) {
            assert_ok(save(s, &b->items[i], 0, b->queues[0]));
            assert_ok(save(s, &b->items[i + 1], 0, b->queues[0]));
            comet_device_store_release(s, b->items[i].entry);
            assert_int_equal(b->items[i].told, 1);
            settle(s, &b->items[i + 1]);
            check_load(b, s, &b->items[i + 1], b->queues[0]);
            comet_device_store_release(s, b->items[i + 1].entry);
        }
    comet_device_store_free(s);
    bench_free(b);
}

/* A kernel of the caller writes the stream: batch norm's forward pass; and reads it: the backward pass's slot. */
static void test_open(void **state) {
    (void)state;
    enum { CHANNELS = 8, COUNT = 2 * CHANNELS * 256 };
    bench *b = bench_new(6);
    comet_device_store *s = store_new(b);
    float table[6][CHANNELS], *values = (float *)(void *)b->host;
    comet_device device = {COMET_CUDA, 0};
    int64_t shape[4] = {2, CHANNELS, 16, 16};
    comet_cuda_norm norm = COMET_CUDA_NORM_INIT;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_grid grid;
    void *x, *y, *tables;
    size_t workspace;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)rng_gauss(&b->r);
    for (int c = 0; c < CHANNELS; c++)
        table[0][c] = 0.1f * (float)c, table[1][c] = 1, table[2][c] = 1, table[3][c] = 0.2f, table[4][c] = 0,
        table[5][c] = 0;
    assert_cuda(cudaMalloc(&x, COUNT * 4));
    assert_cuda(cudaMalloc(&y, COUNT * 4));
    assert_cuda(cudaMalloc(&tables, sizeof table));
    assert_cuda(cudaMemcpy(x, values, COUNT * 4, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemcpy(tables, table, sizeof table, cudaMemcpyHostToDevice));
    float *t = tables;
    norm.channels = CHANNELS;
    norm.mean = t, norm.inverse_std = t + CHANNELS, norm.gamma = t + 2 * CHANNELS, norm.beta = t + 3 * CHANNELS;
    norm.shift = t + 4 * CHANNELS, norm.threshold = t + 5 * CHANNELS, norm.relu = 1;
    assert_ok(comet_cuda_norm_prepare(&norm, b->queues[0]));
    assert_ok(comet_cuda_norm_grid(&norm, &grid));
    params.bound = 0.05;
    comet_codec_params with_grid = params;
    with_grid.grid = &grid;
    for (int tight = 0; tight < 2; tight++) { /* the second one does not fit: it is made again by the store itself */
        comet_tensor x_tensor, y_tensor, out;
        comet_device_save one = COMET_DEVICE_SAVE_INIT;
        comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
        comet_cuda_slot slot;
        item owner = {.told = 0};
        comet_device_entry *entry;
        assert_ok(comet_tensor_init_on(&x_tensor, device, x, COMET_F32, COMET_NCHW, 4, shape));
        assert_ok(comet_tensor_init_on(&y_tensor, device, y, COMET_F32, COMET_NCHW, 4, shape));
        one.tensor = &x_tensor;
        one.params = &with_grid;
        one.expected_bytes = tight ? 512 : COUNT * 4;
        one.queue = b->queues[0];
        one.owner = &owner;
        assert_ok(comet_cuda_norm_workspace(&x_tensor, &params, &workspace));
        assert_ok(comet_device_store_open(s, &one, &entry, &slot));
        comet_device_store_abandon(s, entry);
        assert_int_equal(owner.told, 0);
        assert_ok(comet_device_store_open(s, &one, &entry, &slot));
        assert_ok(comet_device_store_exec(s, b->queues[0], workspace, &exec));
        assert_ok(comet_cuda_norm_forward(&norm, &x_tensor, &y_tensor, &params, &exec, &slot, NULL, NULL));
        assert_ok(comet_device_store_close(s, entry));
        while (comet_device_entry_state(entry) == 0) {
            assert_ok(comet_device_store_await(s, entry));
            assert_ok(comet_device_store_poll(s));
        }
        assert_int_equal(owner.how.status, COMET_OK);
        assert_int_equal(stats_of(s).misfits, tight);
        int32_t *word;
        assert_ok(comet_device_store_slot(s, entry, b->queues[1], &slot, &word));
        out = y_tensor;
        out.data = b->output;
        assert_ok(comet_device_store_load(s, entry, b->queues[0], NULL, &out));
        assert_cuda(cudaMemcpyAsync(b->host, b->output, COUNT * 4, cudaMemcpyDeviceToHost, b->queues[0]));
        assert_cuda(cudaStreamSynchronize(b->queues[0]));
        float *decoded = (float *)(void *)b->host, *original = malloc(COUNT * 4);
        assert_non_null(original);
        assert_cuda(cudaMemcpy(original, x, COUNT * 4, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++) {
            double u = (double)original[i] - (double)table[0][i / 256 % CHANNELS];
            double error = (double)decoded[i] - u;
            assert_true(error <= 0.0500001 && error >= -0.0500001); /* u itself is rounded to fp32 */
        }
        free(original);
        comet_device_store_release(s, entry);
        assert_int_equal(owner.told, 1);
    }
    comet_device_store_free(s);
    assert_cuda(cudaFree(x));
    assert_cuda(cudaFree(y));
    assert_cuda(cudaFree(tables));
    bench_free(b);
}

/* A captured queue is refused, and asking whether another one failed leaves the capture alone. */
static void test_captured(void **state) {
    (void)state;
    bench *b = bench_new(7);
    comet_device_store *s = store_new(b);
    cudaGraph_t graph;
    cudaStream_t blocking;
    assert_cuda(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    assert_cuda(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
    assert_status(save(s, &b->items[0], 0, NULL), COMET_ERROR_UNSUPPORTED); /* it would wait for that one */
    assert_cuda(cudaStreamEndCapture(blocking, &graph));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaStreamDestroy(blocking));
    assert_cuda(cudaStreamBeginCapture(b->queues[0], cudaStreamCaptureModeRelaxed));
    assert_status(save(s, &b->items[0], 0, b->queues[0]), COMET_ERROR_UNSUPPORTED);
    assert_ok(save(s, &b->items[1], 0, b->queues[1])); /* another queue is not captured */
    assert_cuda(cudaStreamEndCapture(b->queues[0], &graph));
    assert_cuda(cudaGraphDestroy(graph));
    settle(s, &b->items[1]);
    check_load(b, s, &b->items[1], b->queues[1]);
    comet_device_store_free(s);
    bench_free(b);
}

/* ---- from another thread ---- */

typedef struct waiter {
    const comet_device_store *s;
    const comet_device_entry *e;
    comet_status status;
} waiter;

static void *wait_for(void *context) {
    waiter *w = context;
    w->status = comet_device_store_await(w->s, w->e);
    return NULL;
}

static void test_await_elsewhere(void **state) {
    (void)state;
    bench *b = bench_new(8);
    comet_device_store *s = store_new(b);
    for (int i = 0; i < TENSORS; i++)
        assert_ok(save(s, &b->items[i], 0, b->queues[i % QUEUES]));
    for (int i = 0; i < TENSORS; i++) {
        waiter w = {s, b->items[i].entry, COMET_ERROR_ARGUMENT};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_for, &w), 0);
        assert_ok(comet_device_store_poll(s));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(w.status, COMET_OK);
        settle(s, &b->items[i]);
    }
    comet_device_store_free(s);
    bench_free(b);
}

#ifdef COMET_CUDA_EMULATION

/* One life of a store; 1 if a call failed. Owners of what was saved are told once, whatever fails. */
static int live(bench *b) {
    comet_device_store_options o = options_of(b);
    comet_device_store *s = NULL;
    int failed = 0, held[4];
    if (comet_device_store_new(&o, &s) != COMET_OK)
        return 1;
    for (int i = 0; i < 4; i++) {
        b->items[i].entry = NULL;
        held[i] = save(s, &b->items[i], i == 1 ? 256 : 0, b->queues[i % QUEUES]) == COMET_OK;
        failed |= !held[i];
    }
    for (int round = 0; round < 3; round++)
        failed |= comet_device_store_poll(s) != COMET_OK;
    for (int i = 0; i < 4; i++) {
        comet_tensor out = b->items[i].tensor;
        out.data = b->output;
        if (!held[i] || comet_device_entry_state(b->items[i].entry) != 1)
            continue;
        if (i == 2) {
            failed |= comet_device_store_spill(s, b->items[i].entry) != COMET_OK;
            failed |= comet_device_store_poll(s) != COMET_OK;
        }
        failed |= comet_device_store_load(s, b->items[i].entry, b->queues[0], NULL, &out) != COMET_OK;
        if (i % 2)
            comet_device_store_release(s, b->items[i].entry);
    }
    comet_device_store_free(s);
    for (int i = 0; i < 4; i++)
        assert_int_equal(b->items[i].told, held[i]);
    return failed;
}

static void test_every_call_fails_once(void **state) {
    (void)state;
    bench *b = bench_new(9);
    for (int n = 0;; n++) {
        uint64_t calls = emulation_calls();
        emulation_fail_next(cudaErrorUnknown, n);
        int failed = live(b);
        int done = emulation_calls() - calls <= (uint64_t)n;
        emulation_fail_next(cudaSuccess, 0);
        if (done) {
            assert_int_equal(failed, 0);
            assert_true(n > 50);
            break;
        }
    }
    assert_int_equal(b->taken, 0);
    bench_free(b);
}

#endif

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status != COMET_OK) {
        printf("no usable GPU: %s\n", comet_status_string(status));
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_released_at_once),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_captured),
        cmocka_unit_test(test_await_elsewhere),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_every_call_fails_once),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
