/* SPDX-License-Identifier: Apache-2.0 */
/* Work that was recorded finds on the device what differs from step to step: what it drops is that of the step. */
#include "cuda_train_bench.h"

enum { BATCH = 3, SIDE = 5, CHANNELS = 16, STEPS = 4 };

/* A graph of one drop, and a call of it with its memory. */
typedef struct drop {
    comet_graph *graph;
    const comet_op_kernel *kernel;
    comet_op_call call;
    cuda_block x, y;
} drop;

static drop drop_new(train_bench *b, comet_op_kind kind) {
    const comet_dtype dtype = b->cuda.base.dtype;
    drop d = {.kernel = kind == COMET_OP_DROPOUT ? &comet_cuda_dropout : &comet_cuda_stochastic_depth};
    assert_ok(comet_graph_new(NULL, &d.graph));
    const comet_value x = comet_graph_input(d.graph, SIDE, SIDE, CHANNELS);
    const comet_value y = kind == COMET_OP_DROPOUT ? comet_graph_dropout(d.graph, x, 0.5f)
                                                   : comet_graph_stochastic_depth(d.graph, x, 0.5f);
    assert_ok(d.graph->status);
    train_values values = train_values_new(dtype, (int64_t)BATCH * SIDE * SIDE * CHANNELS);
    for (int64_t i = 0; i < values.count; i++)
        train_values_set(&values, dtype, i, 1 + rng_gauss(&b->r));
    d.x = cuda_block_new(values.bytes, values.patterns);
    d.y = cuda_block_new(values.bytes, NULL);
    train_values_free(&values);
    d.call = (comet_op_call){.backend = &b->cuda.base,
                             .graph = d.graph,
                             .node = &d.graph->nodes[d.graph->values[y].producer],
                             .batch = BATCH,
                             .training = 1,
                             .seed = 7,
                             .x = {d.x.data},
                             .y = d.y.data};
    return d;
}

static void drop_free(drop *d) {
    cuda_block_free(&d->x);
    cuda_block_free(&d->y);
    comet_graph_free(d->graph);
}

/* What is made of the input when the work is issued for that step alone. */
static void *issued(const train_bench *b, drop *d, uint64_t step) {
    d->call.step = step;
    assert_ok(d->kernel->forward(&d->call));
    return train_read(b, &d->y);
}

static comet_recording *record(train_bench *b, drop *d) {
    comet_recording *recording = NULL;
    d->call.step = 1000; /* of no step that is replayed */
    assert_ok(comet_cuda_begin_record(&b->cuda.base));
    assert_ok(comet_cuda_end_record(&b->cuda.base, d->kernel->forward(&d->call), &recording));
    assert_non_null(recording);
    return recording;
}

static void give_step(train_bench *b, uint64_t step) {
    const int32_t label = 0;
    const comet_step_inputs inputs = {.labels = &label, .label_count = 1, .classes = 1, .step = step};
    assert_ok(comet_cuda_inputs(&b->cuda.base, &inputs));
}

static void check_steps(comet_op_kind kind, comet_dtype dtype) {
    train_bench *b = train_bench_new(dtype, 3);
    drop d = drop_new(b, kind);
    void *expected[STEPS];
    for (uint64_t i = 0; i < STEPS; i++)
        expected[i] = issued(b, &d, i);
    assert_memory_not_equal(expected[0], expected[1], d.y.bytes);
    give_step(b, 0); /* takes the memory that is then there */
    comet_recording *recording = record(b, &d);
    for (uint64_t i = STEPS; i-- > 0;) {
        give_step(b, i);
        assert_ok(comet_cuda_replay(&b->cuda.base, recording));
        void *found = train_read(b, &d.y);
        assert_memory_equal(found, expected[i], d.y.bytes);
        free(found);
        free(expected[i]);
    }
    comet_cuda_recording_free(&b->cuda.base, recording);
    drop_free(&d);
    train_bench_free(b);
}

static void test_dropout(void **state) {
    (void)state;
    check_steps(COMET_OP_DROPOUT, COMET_F32);
    check_steps(COMET_OP_DROPOUT, COMET_BF16);
}

static void test_stochastic_depth(void **state) {
    (void)state;
    check_steps(COMET_OP_STOCHASTIC_DEPTH, COMET_F32);
    check_steps(COMET_OP_STOCHASTIC_DEPTH, COMET_BF16);
}

/* Memory of which a recording has addresses has moved: nothing is issued. */
static void test_moved(void **state) {
    (void)state;
    train_bench *b = train_bench_new(COMET_F32, 3);
    drop d = drop_new(b, COMET_OP_DROPOUT);
    give_step(b, 0);
    comet_recording *recording = record(b, &d);
    static int32_t many[1 << 15];
    const comet_step_inputs inputs = {.labels = many, .label_count = 1 << 15, .classes = 1, .step = 1};
    void *before = train_read(b, &d.y);
    assert_ok(comet_cuda_inputs(&b->cuda.base, &inputs));
    assert_int_equal(comet_cuda_replay(&b->cuda.base, recording), COMET_ERROR_MISMATCH);
    void *after = train_read(b, &d.y);
    assert_memory_equal(before, after, d.y.bytes);
    free(before);
    free(after);
    comet_cuda_recording_free(&b->cuda.base, recording);
    drop_free(&d);
    train_bench_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dropout), cmocka_unit_test(test_stochastic_depth),
                                       cmocka_unit_test(test_moved)};
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
