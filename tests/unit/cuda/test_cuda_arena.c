/* SPDX-License-Identifier: Apache-2.0 */
/* The arena with real streams: what comes out of it is, bit for bit, what a stream in memory of its own gives. */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/arena.h"
#include "support/effort.h"
#include "support/rng.h"

#define assert_cuda(call)                                                                                              \
    do {                                                                                                               \
        cudaError_t error_of_call = (call);                                                                            \
        if (error_of_call != cudaSuccess)                                                                              \
            fail_msg("%s: %s", #call, cudaGetErrorString(error_of_call));                                              \
    } while (0)

enum { TENSORS = 24, MOST_VALUES = 1 << 16, MOST_BYTES = MOST_VALUES * 4, WORKSPACE = 1 << 24, MIB = 1 << 20 };

/* A tensor on the device, how it is kept, and what that gives. */
typedef struct item {
    comet_tensor tensor;
    comet_codec_params params;
    size_t worst;
    void *expected; /* on the host */
    size_t bytes;   /* of it */
    comet_arena_entry entry;
    int held;
} item;

typedef struct bench {
    cudaStream_t queue;
    comet_codec_exec exec;
    void *workspace, *output, *own, *result;
    int32_t *status;
    unsigned char *host; /* page-locked */
    item items[TENSORS];
    rng r;
} bench;

static void fill(bench *b, item *t) {
    float *values = (float *)(void *)b->host;
    int64_t count = comet_tensor_count(&t->tensor);
    for (int64_t i = 0; i < count; i++)
        values[i] = rng_below(&b->r, 3) ? 0.0f : (float)rng_gauss(&b->r);
    assert_cuda(cudaMemcpyAsync(t->tensor.data, values, (size_t)count * 4, cudaMemcpyHostToDevice, b->queue));
    assert_cuda(cudaStreamSynchronize(b->queue));
}

static int32_t device_status(bench *b) {
    int32_t status;
    assert_cuda(cudaStreamSynchronize(b->queue));
    assert_cuda(cudaMemcpy(&status, b->status, sizeof status, cudaMemcpyDeviceToHost));
    assert_cuda(cudaMemset(b->status, 0, sizeof status));
    return status;
}

static void decompress(bench *b, const comet_cuda_slot *slot, const item *t, void *output) {
    comet_tensor out = t->tensor;
    out.data = output;
    assert_ok(comet_cuda_decompress(slot, &t->params, NULL, &b->exec, &out, b->status));
}

/* Round trip through memory of its own. */
static void expect(bench *b, item *t) {
    comet_cuda_slot slot = {b->own, MOST_BYTES + MIB, NULL, b->result};
    assert_ok(comet_cuda_compress(&t->tensor, &t->params, &b->exec, &slot, NULL));
    decompress(b, &slot, t, b->output);
    assert_cuda(cudaMemcpyAsync(b->host, b->output, t->bytes, cudaMemcpyDeviceToHost, b->queue));
    assert_int_equal(device_status(b), COMET_OK);
    memcpy(t->expected, b->host, t->bytes);
}

static comet_codec_params choose_codec(bench *b, const comet_tensor *tensor) {
    static const comet_codec codecs[] = {COMET_CODEC_EB, COMET_CODEC_GROUP, COMET_CODEC_ZVC, COMET_CODEC_RAW};
    size_t bytes;
    for (uint64_t i = rng_below(&b->r, 4);; i++) {
        comet_codec_params params = COMET_CODEC_PARAMS_INIT;
        params.codec = codecs[i < 4 ? i : 3];
        params.bound = 0.1;
        if (i >= 3 || comet_cuda_max_bytes(tensor, &params, &bytes) == COMET_OK)
            return params;
    }
}

static void item_new(bench *b, item *t) {
    int64_t shape[3] = {rng_between(&b->r, 1, 8), rng_between(&b->r, 1, 64), rng_between(&b->r, 1, 128)};
    void *data;
    assert_cuda(cudaMalloc(&data, MOST_BYTES));
    assert_ok(comet_tensor_init_on(&t->tensor, (comet_device){COMET_CUDA, 0}, data, COMET_F32, COMET_NCHW, 3, shape));
    t->bytes = (size_t)comet_tensor_count(&t->tensor) * 4;
    t->expected = malloc(t->bytes);
    assert_non_null(t->expected);
    t->params = choose_codec(b, &t->tensor);
    assert_ok(comet_cuda_max_bytes(&t->tensor, &t->params, &t->worst));
    fill(b, t);
    expect(b, t);
}

static bench *bench_new(uint64_t seed) {
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->r = rng_seed(seed);
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&b->queue, cudaStreamNonBlocking));
    assert_cuda(cudaMalloc(&b->workspace, WORKSPACE));
    assert_cuda(cudaMalloc(&b->output, MOST_BYTES));
    assert_cuda(cudaMalloc(&b->own, MOST_BYTES + MIB));
    assert_cuda(cudaMalloc(&b->result, sizeof(comet_cuda_result)));
    assert_cuda(cudaMalloc((void **)&b->status, sizeof *b->status));
    assert_cuda(cudaMemset(b->status, 0, sizeof *b->status));
    assert_cuda(cudaHostAlloc((void **)&b->host, MOST_BYTES, cudaHostAllocDefault));
    b->exec = (comet_codec_exec)COMET_CODEC_EXEC_INIT;
    b->exec.queue = b->queue;
    b->exec.workspace = b->workspace;
    b->exec.workspace_bytes = WORKSPACE;
    assert_ok(comet_cuda_workspace_init(b->workspace, WORKSPACE, b->queue));
    for (int i = 0; i < TENSORS; i++)
        item_new(b, &b->items[i]);
    return b;
}

static void bench_free(bench *b) {
    for (int i = 0; i < TENSORS; i++) {
        assert_cuda(cudaFree(b->items[i].tensor.data));
        free(b->items[i].expected);
    }
    assert_cuda(cudaFree(b->workspace));
    assert_cuda(cudaFree(b->output));
    assert_cuda(cudaFree(b->own));
    assert_cuda(cudaFree(b->result));
    assert_cuda(cudaFree(b->status));
    assert_cuda(cudaFreeHost(b->host));
    assert_cuda(cudaStreamDestroy(b->queue));
    free(b);
}

static comet_arena *arena_new(bench *b, size_t limit, uint32_t entries) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    o.limit_bytes = limit;
    o.max_entries = entries;
    o.queue = b->queue;
    assert_ok(comet_arena_new(&o, &a));
    return a;
}

static comet_arena_stats stats_of(comet_arena *a) {
    comet_arena_stats s = {.size = sizeof s};
    assert_ok(comet_arena_get_stats(a, &s));
    return s;
}

static comet_status save(bench *b, comet_arena *a, item *t, size_t expected) {
    comet_cuda_slot slot;
    comet_status status = comet_arena_open(a, t->worst, expected, &t->entry, &slot);
    if (status != COMET_OK)
        return status;
    assert_ok(comet_cuda_compress(&t->tensor, &t->params, &b->exec, &slot, NULL));
    t->held = 1;
    return comet_arena_close(a, t->entry);
}

static void check_output(bench *b, const item *t) {
    assert_cuda(cudaMemcpyAsync(b->host, b->output, t->bytes, cudaMemcpyDeviceToHost, b->queue));
    assert_int_equal(device_status(b), COMET_OK);
    assert_memory_equal(b->host, t->expected, t->bytes);
}

static void load(bench *b, comet_arena *a, const item *t) {
    comet_cuda_slot slot;
    assert_ok(comet_arena_slot(a, t->entry, &slot));
    assert_cuda(cudaMemsetAsync(b->output, 0xEE, t->bytes, b->queue));
    decompress(b, &slot, t, b->output);
    check_output(b, t);
}

static void drop(comet_arena *a, item *t) {
    assert_ok(comet_arena_release(a, t->entry));
    t->held = 0;
}

/* Every tensor saved, loaded and released many times, in any order; nothing synchronises but the checks. */
static void test_random_release(void **state) {
    (void)state;
    bench *b = bench_new(1);
    comet_arena *a = arena_new(b, 64 * MIB, 256);
    int rounds = effort(600);
    for (int i = 0; i < rounds; i++) {
        item *t = &b->items[rng_below(&b->r, TENSORS)];
        if (!t->held) {
            assert_ok(save(b, a, t, 0));
        } else {
            if (rng_below(&b->r, 2))
                load(b, a, t);
            drop(a, t);
        }
    }
    for (int i = 0; i < TENSORS; i++)
        if (b->items[i].held)
            load(b, a, &b->items[i]);
    comet_arena_stats s = stats_of(a);
    assert_true(s.end_bytes <= s.mapped_bytes && s.mapped_bytes <= 64 * MIB);
    assert_ok(comet_arena_free(a)); /* with what is left in it */
    bench_free(b);
}

/* What the host is told of a stream is what the device has. */
static void test_results(void **state) {
    (void)state;
    bench *b = bench_new(2);
    comet_arena *a = arena_new(b, 64 * MIB, 64);
    uint64_t end = 0;
    size_t sum = 0;
    for (int i = 0; i < TENSORS; i++)
        assert_ok(save(b, a, &b->items[i], 0));
    assert_int_equal(stats_of(a).waits, 0);
    for (int i = 0; i < TENSORS; i++) {
        comet_cuda_result r, there;
        comet_cuda_slot slot;
        assert_ok(comet_arena_await(a, b->items[i].entry, &r));
        assert_ok(comet_arena_slot(a, b->items[i].entry, &slot));
        assert_cuda(cudaMemcpy(&there, slot.result, sizeof there, cudaMemcpyDeviceToHost));
        assert_memory_equal(&r, &there, sizeof r);
        assert_int_equal(r.start, end);
        assert_true(r.codec.bytes <= b->items[i].worst);
        end = r.end;
        sum += r.codec.bytes;
    }
    comet_arena_stats s = stats_of(a);
    assert_int_equal(s.known_bytes, sum);
    assert_int_equal(s.unknown_entries, 0);
    assert_int_equal(s.end_bytes, end);
    assert_ok(comet_arena_trim(a));
    s = stats_of(a);
    assert_true(s.mapped_bytes == s.limit_bytes || s.mapped_bytes < end + 2 * MIB);
    for (int i = 0; i < TENSORS; i++)
        load(b, a, &b->items[i]);
    for (int i = TENSORS; i-- > 0;)
        drop(a, &b->items[i]);
    assert_ok(comet_arena_trim(a));
    s = stats_of(a);
    assert_true(s.mapped_bytes == s.limit_bytes || s.mapped_bytes == 0);
    assert_ok(save(b, a, &b->items[0], 0)); /* mapped again */
    load(b, a, &b->items[0]);
    assert_ok(comet_arena_free(a));
    bench_free(b);
}

/*
 * Less than a granule, so a plain allocation; more streams than fit. What does not fit is refused, and the rest is
 * unharmed.
 */
static void test_overflow(void **state) {
    (void)state;
    bench *b = bench_new(3);
    size_t room = 0;
    for (int i = 0; i < TENSORS; i++) {
        item *t = &b->items[i];
        t->params.codec = COMET_CODEC_RAW;
        assert_ok(comet_cuda_max_bytes(&t->tensor, &t->params, &t->worst));
        expect(b, t);
        room += i < TENSORS / 2 ? (t->worst + 255) / 256 * 256 : 0;
    }
    assert_true(room < 2 * MIB);
    comet_arena *a = arena_new(b, room, 64);
    for (int i = 0; i < TENSORS; i++)
        assert_ok(save(b, a, &b->items[i], 1));
    int refused = 0;
    for (int i = 0; i < TENSORS; i++) {
        item *t = &b->items[i];
        comet_cuda_slot slot;
        comet_status status = comet_arena_slot(a, t->entry, &slot);
        if (status == COMET_OK) { /* it fits, or the host does not know yet */
            decompress(b, &slot, t, b->output);
            status = (comet_status)device_status(b);
            assert_status(comet_arena_await(a, t->entry, NULL), status);
        }
        assert_true(status == COMET_OK || (status == COMET_ERROR_CAPACITY && i >= TENSORS / 2));
        refused += status != COMET_OK;
        if (status == COMET_OK)
            load(b, a, t);
    }
    assert_true(refused > 0);
    assert_int_equal(stats_of(a).overflows, refused);
    assert_status(save(b, a, &b->items[0], 0), COMET_ERROR_CAPACITY);
    assert_true(stats_of(a).missing_bytes > 0);
    assert_ok(comet_arena_free(a));
    bench_free(b);
}

/* A whole step in a graph, replayed with other values in the tensors. */
static void test_graph(void **state) {
    (void)state;
    enum { SAVED = 6 };
    bench *b = bench_new(4);
    comet_arena *a = arena_new(b, 64 * MIB, 64);
    void *outputs[SAVED];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    assert_ok(save(b, a, &b->items[SAVED], 0)); /* outlives the graph's streams */
    for (int i = 0; i < SAVED; i++)
        assert_cuda(cudaMalloc(&outputs[i], MOST_BYTES));
    assert_cuda(cudaStreamBeginCapture(b->queue, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < SAVED; i++)
        assert_ok(save(b, a, &b->items[i], 0));
    for (int i = SAVED; i-- > 0;) {
        comet_cuda_slot slot;
        assert_ok(comet_arena_slot(a, b->items[i].entry, &slot));
        decompress(b, &slot, &b->items[i], outputs[i]);
        drop(a, &b->items[i]);
    }
    assert_cuda(cudaStreamEndCapture(b->queue, &graph));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_status(save(b, a, &b->items[0], 0), COMET_ERROR_UNSUPPORTED);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < SAVED; i++) {
            fill(b, &b->items[i]);
            expect(b, &b->items[i]);
        }
        assert_cuda(cudaGraphLaunch(exec, b->queue));
        for (int i = 0; i < SAVED; i++) {
            assert_cuda(cudaMemcpyAsync(b->output, outputs[i], b->items[i].bytes, cudaMemcpyDeviceToDevice, b->queue));
            check_output(b, &b->items[i]);
        }
    }
    load(b, a, &b->items[SAVED]);
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaGraphDestroy(graph));
    assert_ok(comet_arena_forget_graphs(a));
    assert_ok(save(b, a, &b->items[0], 0));
    load(b, a, &b->items[0]);
    load(b, a, &b->items[SAVED]);
    assert_ok(comet_arena_free(a));
    for (int i = 0; i < SAVED; i++)
        assert_cuda(cudaFree(outputs[i]));
    bench_free(b);
}

#ifdef COMET_CUDA_EMULATION

enum { LIVE_TENSORS = 8 }; /* calls and lives both grow with it */

/* One life of an arena; 1 if a call failed. *freed is whether giving back worked. */
static int live(bench *b, int *freed) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    int failed = 0;
    o.limit_bytes = 4 * MIB;
    o.max_entries = 64;
    o.queue = b->queue;
    *freed = 1;
    if (comet_arena_new(&o, &a) != COMET_OK)
        return 1;
    for (int i = 0; i < LIVE_TENSORS; i++) {
        item *t = &b->items[i];
        comet_cuda_slot slot;
        t->held = comet_arena_open(a, t->worst, 0, &t->entry, &slot) == COMET_OK;
        if (t->held && comet_cuda_compress(&t->tensor, &t->params, &b->exec, &slot, NULL) != COMET_OK) {
            assert_ok(comet_arena_release(a, t->entry));
            t->held = 0;
        } else if (t->held) {
            failed |= comet_arena_close(a, t->entry) != COMET_OK;
        }
        failed |= !t->held;
    }
    failed |= comet_arena_poll(a) != COMET_OK;
    for (int i = 0; i < LIVE_TENSORS; i++)
        if (b->items[i].held)
            failed |= comet_arena_await(a, b->items[i].entry, NULL) != COMET_OK;
    failed |= comet_arena_trim(a) != COMET_OK;
    *freed = comet_arena_free(a) == COMET_OK;
    return failed | !*freed;
}

/* Whatever CUDA call fails, it is reported and nothing is lost. */
static void test_every_call_fails_once(void **state) {
    (void)state;
    bench *b = bench_new(5);
    for (int n = 0;; n++) {
        uint64_t calls = emulation_calls(), allocations = emulation_live_allocations();
        int freed;
        emulation_fail_next(cudaErrorUnknown, n);
        int failed = live(b, &freed);
        int done = emulation_calls() - calls <= (uint64_t)n;
        emulation_fail_next(cudaSuccess, 0);
        if (freed)
            assert_int_equal(emulation_live_allocations(), allocations);
        if (done) {
            assert_int_equal(failed, 0);
            assert_true(n > 8 * LIVE_TENSORS);
            break;
        }
    }
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
        cmocka_unit_test(test_random_release),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_graph),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_every_call_fails_once),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
