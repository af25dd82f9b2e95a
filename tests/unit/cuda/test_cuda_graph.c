/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eb and zvc in CUDA graphs and on several streams at once. A capture fails if a call allocates, waits or copies to the
 * host in a way that waits, so that capturing proves that no call does. Bounds lie in device memory and change between
 * replays, as a controller changes them.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>

#include "support/cuda/cuda_jobs.h"
#include "support/effort.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

enum { JOBS = 8, STREAMS = 4 };

/* Every way to reach values, every mode, both kinds of bound. */
static trip_spec job_spec(int i) {
    static const test_shape shapes[JOBS] = {{COMET_NCHW, 4, {2, 3, 17, 16}}, {COMET_NHWC, 4, {1, 9, 9, 12}},
                                            {COMET_FLAT, 1, {9000}},         {COMET_NCHW, 4, {1, 3, 18, 23}},
                                            {COMET_NHWC, 4, {1, 16, 12, 7}}, {COMET_NCHW, 4, {1, 2, 20, 70}},
                                            {COMET_NHWC, 3, {0, 4, 4}},      {COMET_NCHW, 4, {1, 8, 40, 36}}};
    return (trip_spec){.dtype = (comet_dtype)(i % 3),
                       .shape = shapes[i % JOBS],
                       .values = VALUES_GAUSS,
                       .mode = (trip_mode)(i % TRIP_MODES),
                       .scale = 1.0,
                       .bound = 0.1,
                       .bound_kind = i % 3 == 1 ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE};
}

/* Jobs whose streams lie one behind the other, as a forward and a backward pass would have them. */
typedef struct step {
    cuda_job jobs[JOBS];
    cuda_block memory, word;
} step;

static void step_new(step *s, rng *r, int first) {
    size_t capacity = 0;
    int32_t none = COMET_OK;
    for (int i = 0; i < JOBS; i++) {
        trip_spec spec = job_spec(first + i);
        cuda_job_new(&s->jobs[i], r, &spec);
        capacity += cuda_job_bytes(&s->jobs[i]);
    }
    s->memory = cuda_block_new(capacity, NULL);
    s->word = cuda_block_new(sizeof none, &none);
}

static void step_free(step *s) {
    for (int i = 0; i < JOBS; i++)
        cuda_job_free(&s->jobs[i]);
    cuda_block_free(&s->memory);
    cuda_block_free(&s->word);
}

/* Other values and bounds; a bound that is none is lossless. */
static void step_refill(step *s, rng *r) {
    static const float bounds[] = {0.1f, 0.3f, 0.01f, 1e-3f, 0.0f};
    for (int i = 0; i < JOBS; i++)
        cuda_job_refill(&s->jobs[i], r, (value_kind)rng_below(r, VALUES_KINDS), bounds[rng_below(r, 5)]);
}

/* All forward, then all backward, last first. */
static void step_issue(step *s, cudaStream_t queue) {
    for (int i = 0; i < JOBS; i++) {
        comet_cuda_slot slot = cuda_job_slot(&s->jobs[i], &s->memory, i ? cuda_job_end(&s->jobs[i - 1]) : NULL);
        assert_ok(cuda_job_compress(&s->jobs[i], &slot, queue));
    }
    for (int i = JOBS - 1; i >= 0; i--) {
        comet_cuda_slot slot = cuda_job_slot(&s->jobs[i], &s->memory, NULL);
        assert_ok(cuda_job_decompress(&s->jobs[i], &slot, s->word.data, queue));
    }
}

static void step_check(step *s) {
    unsigned char *copy = cuda_block_read(&s->memory);
    int32_t *word = cuda_block_read(&s->word);
    failure f;
    assert_int_equal(*word, COMET_OK);
    for (int i = 0; i < JOBS; i++)
        assert_check(cuda_job_check(&s->jobs[i], copy, &f), f);
    free(word);
    free(copy);
}

static cudaGraphExec_t capture(step *s, cudaStream_t queue, enum cudaStreamCaptureMode mode) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_must(cudaStreamBeginCapture(queue, mode));
    step_issue(s, queue);
    cuda_must(cudaStreamEndCapture(queue, &graph));
    cuda_must(cudaGraphInstantiate(&exec, graph, 0));
    cuda_must(cudaGraphDestroy(graph));
    return exec;
}

/* Nothing is done while capturing; then each replay works on what the memory holds by then. */
static void test_replays(void **state) {
    (void)state;
    rng r = rng_seed(1);
    static step s;
    cudaStream_t queue;
    cuda_must(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    step_new(&s, &r, 0);
    cudaGraphExec_t exec = capture(&s, queue, cudaStreamCaptureModeGlobal);
    unsigned char *untouched = cuda_block_read(&s.memory);
    assert_true(cuda_is_poison(untouched, s.memory.bytes));
    free(untouched);
    for (int i = 0; i < effort(20); i++) {
        step_refill(&s, &r);
        cuda_must(cudaGraphLaunch(exec, queue));
        cuda_must(cudaStreamSynchronize(queue));
        step_check(&s);
    }
    cuda_must(cudaGraphExecDestroy(exec));
    cuda_must(cudaStreamDestroy(queue));
    step_free(&s);
}

/* Replays one right behind the other: each must leave the workspaces ready for the next. */
static void test_replays_without_waiting(void **state) {
    (void)state;
    rng r = rng_seed(2);
    static step s;
    cudaStream_t queue;
    cuda_must(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    step_new(&s, &r, 3);
    cudaGraphExec_t exec = capture(&s, queue, cudaStreamCaptureModeThreadLocal);
    step_refill(&s, &r);
    for (int i = 0; i < effort(12); i++)
        cuda_must(cudaGraphLaunch(exec, queue));
    cuda_must(cudaStreamSynchronize(queue));
    step_check(&s);
    cuda_must(cudaGraphExecDestroy(exec));
    cuda_must(cudaStreamDestroy(queue));
    step_free(&s);
}

/* A graph of a relative bound taken from the statistics of the replay before. */
static void test_statistics_of_the_last_replay(void **state) {
    (void)state;
    rng r = rng_seed(3);
    trip_spec spec = job_spec(0);
    cuda_job j;
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_job_new(&j, &r, &spec);
    cuda_block memory = cuda_block_new(cuda_job_bytes(&j), NULL);
    cuda_block stats = cuda_block_new(sizeof(comet_codec_stats), NULL);
    comet_codec_stats last = {.count = 10, .nonzero = 10, .sum_squares = 2.0};
    cuda_block_write(&stats, &last);
    j.params.p.bound_kind = COMET_BOUND_RELATIVE;
    j.params.p.device_stats = stats.data;
    cuda_must(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    cuda_must(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
    comet_cuda_slot slot = cuda_job_slot(&j, &memory, NULL);
    assert_ok(cuda_job_compress(&j, &slot, queue));
    cuda_must(cudaMemcpyAsync(stats.data, &((comet_cuda_result *)j.result.data)->codec.stats, sizeof last,
                              cudaMemcpyDeviceToDevice, queue));
    cuda_must(cudaStreamEndCapture(queue, &graph));
    cuda_must(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        cuda_job_refill(&j, &r, VALUES_GAUSS, 0.25f);
        cuda_must(cudaGraphLaunch(exec, queue));
        cuda_must(cudaStreamSynchronize(queue));
        double rms = sqrt(last.sum_squares / (double)last.nonzero);
        assert_true(j.host->codec.bound <= 0.25 * rms && j.host->codec.bound > 0.249999 * rms);
        last = j.host->codec.stats;
    }
    cuda_must(cudaGraphExecDestroy(exec));
    cuda_must(cudaGraphDestroy(graph));
    cuda_must(cudaStreamDestroy(queue));
    cuda_block_free(&stats);
    cuda_block_free(&memory);
    cuda_job_free(&j);
}

/* Several streams at once, each with its own workspaces and slots, some by graph. */
static void test_streams_in_flight(void **state) {
    (void)state;
    rng r = rng_seed(4);
    static step steps[STREAMS];
    cudaStream_t streams[STREAMS];
    cudaGraphExec_t graphs[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        cuda_must(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        step_new(&steps[i], &r, i);
        graphs[i] = i % 2 ? capture(&steps[i], streams[i], cudaStreamCaptureModeGlobal) : NULL;
    }
    for (int round = 0; round < effort(6); round++) {
        for (int i = 0; i < STREAMS; i++)
            step_refill(&steps[i], &r);
        for (int again = 0; again < 3; again++)
            for (int i = 0; i < STREAMS; i++) {
                if (graphs[i])
                    cuda_must(cudaGraphLaunch(graphs[i], streams[i]));
                else
                    step_issue(&steps[i], streams[i]);
            }
        cuda_must(cudaDeviceSynchronize());
        for (int i = 0; i < STREAMS; i++)
            step_check(&steps[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        if (graphs[i])
            cuda_must(cudaGraphExecDestroy(graphs[i]));
        cuda_must(cudaStreamDestroy(streams[i]));
        step_free(&steps[i]);
    }
}

/* The calls do not even allocate when they are not captured. */
static void test_nothing_is_allocated(void **state) {
    (void)state;
#ifdef COMET_CUDA_EMULATION
    rng r = rng_seed(5);
    static step s;
    step_new(&s, &r, 1);
    uint64_t live = emulation_live_allocations();
    step_issue(&s, NULL);
    assert_int_equal(emulation_live_allocations(), live);
    step_check(&s);
    step_free(&s);
#else
    skip_because("on a device, capturing shows it");
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays),
        cmocka_unit_test(test_replays_without_waiting),
        cmocka_unit_test(test_statistics_of_the_last_replay),
        cmocka_unit_test(test_streams_in_flight),
        cmocka_unit_test(test_nothing_is_allocated),
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
