/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that collect statistics for a controller: replayed they find what issued ones find, bit by bit, and so bounds
 * and weights are the same. Errors are not measured here: steps that do are issued.
 */
#include "unit/cuda/train/test_cuda_train_case.h"

#include "support/cuda/device_memory.h"
#include "train/collect/collect_impl.h"
#include "train/step/step_impl.h"

enum { FEW = 4, MAP = 6, KINDS = 5, INPUTS = 2, MOST_TENSORS = 8, MOST_PARAMETERS = 24 };

/* ---- a network and its steps ---- */

typedef struct bed {
    comet_backend *backend;
    comet_graph *graph;
    comet_plan *plan;
    comet_learned *learned;
    comet_holder *holder;
    comet_step *step;
    comet_collect *collect;
    comet_status (*record)(comet_backend *backend);
    int accumulates;
} bed;

/* A norm with a ReLU, one with a SiLU, factors of channels, and all that reads them. */
static comet_graph *network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, MAP, MAP, 4);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 8, .kernel = 1});
    x = comet_graph_silu(g, comet_graph_batch_norm(g, "bn2", x));
    comet_value s = comet_graph_adaptive_average_pool(g, x, 1, 1);
    s = comet_graph_conv2d(g, "fc1", s, &(comet_conv2d){.out = 8, .kernel = 1, .bias = 1});
    x = comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, s));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, KINDS, 1));
    return g;
}

static void fill(const bed *b) {
    rng r = rng_seed(11);
    for (int i = 0; i < b->graph->parameter_count; i++) {
        const comet_parameter *p = &b->graph->parameters[i];
        const int is_norm = p->kind == COMET_NORM_WEIGHT;
        float *values = malloc((size_t)p->count * sizeof *values);
        for (int64_t k = 0; k < p->count; k++)
            values[k] = (float)((is_norm ? 1 : 0) + 0.3 * rng_gauss(&r));
        assert_ok(b->graph->space->write(b->graph->space, p->value, values, (size_t)p->count * sizeof *values));
        free(values);
    }
}

static void choose(void *context, comet_plan_entry *e) {
    if (e->op == COMET_OP_SCALE || e->op == COMET_OP_SIGMOID)
        return;
    comet_plan_choose_eb(context, e);
}

/* `bound`: in parts of the rms, for the first guess of what streams take. */
static void make_plan(bed *b, double bound) {
    const comet_plan_options options = {
        .batch = FEW, .training = 1, .accumulate = b->accumulates, .choose = choose, .context = &bound};
    assert_done(comet_plan_new(b->graph, b->backend, &options, NULL, &b->plan, &message), message);
    const comet_holder_options o = {.slots = comet_plan_entries(b->plan)};
    assert_ok(b->backend->holder_new(b->backend, &o, &b->holder));
    assert_ok(comet_learned_new(b->plan, NULL, &b->learned));
    const comet_step_parts parts = {.learned = b->learned, .holder = b->holder};
    assert_done(comet_step_new(b->plan, &parts, NULL, &b->step, &message), message);
}

static void free_plan(bed *b) {
    comet_step_free(b->step);
    comet_holder_free(b->holder);
    comet_learned_free(b->learned);
    comet_plan_free(b->plan);
}

static bed bed_new(comet_dtype dtype, uint32_t needs, int accumulates) {
    bed b = {.accumulates = accumulates};
    place = (comet_backend_cuda_options){.dtype = dtype, .exact_products = dtype == COMET_F32, .deterministic = 1};
    assert_done(backend_new(1, NULL, &b.backend), message);
    b.record = b.backend->record;
    b.graph = network();
    assert_done(comet_graph_check(b.graph, &message), message);
    assert_ok(comet_graph_allocate(b.graph, b.backend->space, 1));
    assert_true(b.graph->parameter_count <= MOST_PARAMETERS);
    fill(&b);
    make_plan(&b, 0.02);
    assert_done(comet_collect_new(b.plan, needs, NULL, &b.collect, &message), message);
    assert_in_range(b.collect->count, 3, MOST_TENSORS);
    return b;
}

static void bed_free(bed *b) {
    free_plan(b);
    comet_collect_free(b->collect);
    comet_graph_free(b->graph);
    comet_backend_free(b->backend);
}

static comet_status see_squares(void *collect) {
    comet_collect_squares(collect);
    return COMET_OK;
}

/* A batch of some input, each with bounds of its own. */
static comet_status run_bounded(bed *b, int input, int accumulate, double bound) {
    const int64_t count = (int64_t)FEW * MAP * MAP * 4;
    const comet_step_tail tail = {see_squares, b->collect};
    comet_step_result result;
    int32_t labels[FEW];
    float *values = malloc((size_t)count * sizeof *values);
    char *patterns = malloc((size_t)count * sizeof *values);
    rng r = rng_seed((uint64_t)input);
    for (int64_t i = 0; i < count; i++)
        set_value(b->backend->dtype, patterns, i, (float)rng_gauss(&r));
    for (int i = 0; i < FEW; i++)
        labels[i] = (int32_t)rng_below(&r, KINDS);
    assert_ok(b->backend->space->write(b->backend->space, comet_step_input(b->step), patterns,
                                       (size_t)count * comet_dtype_size(b->backend->dtype)));
    for (int i = 0; i < comet_plan_entries(b->plan); i++)
        if (comet_collect_find(b->collect, comet_plan_get_entry(b->plan, i)) >= 0)
            comet_learned_set_bound(b->learned, i, COMET_BOUND_ABSOLUTE, bound);
    const comet_step_options options = {.labels = labels,
                                        .seed = 3,
                                        .step = (uint64_t)input,
                                        .accumulate = accumulate,
                                        .collect = b->collect,
                                        .tail = &tail};
    const comet_status status = comet_step_run(b->step, &options, &result, &message);
    free(values);
    free(patterns);
    return status;
}

static void run_input(bed *b, int input, int accumulate) {
    assert_done(run_bounded(b, input, accumulate, 0.05 + 0.1 * input), message);
}

/* ---- what comes of an update ---- */

typedef struct outcome {
    comet_use_stats uses[MOST_TENSORS][COMET_COLLECT_MOST_USES];
    comet_control_size sizes[MOST_TENSORS];
    double rms[MOST_TENSORS];
    uint64_t read_bytes;
    int64_t count;
    float gradients[2048];
} outcome;

static void note_gradients(const bed *b, outcome *o) {
    for (int i = 0; i < b->graph->parameter_count; i++) {
        const comet_parameter *p = &b->graph->parameters[i];
        if (p->kind >= COMET_RUNNING_MEAN)
            continue;
        assert_true(o->count + p->count <= 2048);
        assert_ok(b->graph->space->read(b->graph->space, o->gradients + o->count, p->gradient,
                                        (size_t)p->count * sizeof *o->gradients));
        o->count += p->count;
    }
}

static void note_observations(const bed *b, outcome *o) {
    static double means[MOST_PARAMETERS];
    comet_optimiser optimiser = comet_optimiser_default(COMET_SGD);
    for (int i = 0; i < MOST_PARAMETERS; i++)
        means[i] = 1;
    const comet_collect_update update = {&optimiser, 0, means, 1, 1};
    for (int32_t i = 0; i < b->collect->count; i++) {
        const comet_control_observation *seen = comet_collect_observation(b->collect, &update, i);
        assert_true(seen && seen->rms > 0 && b->collect->tensors[i].use_count > 0);
        memcpy(o->uses[i], seen->uses, (size_t)b->collect->tensors[i].use_count * sizeof *seen->uses);
        o->sizes[i] = seen->sizes[0];
        o->rms[i] = seen->rms;
    }
    assert_ok(b->collect->status);
}

/* An update of one batch, or of this one and the next. */
static outcome *run_update(bed *b, int input) {
    outcome *o = calloc(1, sizeof *o);
    const uint64_t read = comet_collect_read_bytes(b->collect);
    assert_non_null(o);
    comet_collect_begin(b->collect);
    run_input(b, input, 0);
    if (b->accumulates)
        run_input(b, input + 1, 1);
    o->read_bytes = comet_collect_read_bytes(b->collect) - read;
    note_gradients(b, o);
    note_observations(b, o);
    return o;
}

/* Of each input, from steps that are issued. They differ. */
static void run_issued(bed *b, outcome *expected[INPUTS]) {
    b->backend->record = NULL;
    for (int i = 0; i < INPUTS; i++)
        expected[i] = run_update(b, i);
    b->backend->record = b->record;
    assert_memory_not_equal(expected[0]->uses, expected[1]->uses, sizeof expected[0]->uses);
    assert_true(expected[0]->sizes[0].bound < expected[1]->sizes[0].bound && expected[0]->read_bytes > 0);
}

static void free_all(outcome *expected[INPUTS]) {
    for (int i = 0; i < INPUTS; i++)
        free(expected[i]);
}

static void expect_same(bed *b, int input, outcome *const expected[INPUTS]) {
    outcome *found = run_update(b, input);
    assert_memory_equal(found, expected[input], sizeof *found);
    free(found);
}

static void expect_all(bed *b, outcome *const expected[INPUTS]) {
    for (int i = INPUTS; i-- > 0;)
        expect_same(b, i, expected);
}

/* Kinds of steps that collect and are recorded, in so many parts. */
static int recorded_kinds(const comet_step *step, int parts) {
    int kinds = 0;
    for (int i = 0; i < COMET_STEP_RECORDINGS; i++) {
        const comet_step_kind *kind = &step->kinds[i];
        int is = kind->read_bytes[0] + kind->read_bytes[1] > 0;
        for (int k = 0; k < COMET_STEP_PARTS; k++)
            is &= (kind->parts[k] != NULL) == (k < parts);
        kinds += is;
    }
    return kinds;
}

/* ---- replayed ---- */

#ifdef COMET_CUDA_EMULATION
static uint64_t calls_of(bed *b, int input) {
    const uint64_t before = emulation_calls();
    comet_collect_begin(b->collect);
    run_input(b, input, 0);
    return emulation_calls() - before;
}

/* Launches and copies are in the graph. */
static void check_calls(bed *b) {
    const uint64_t few = calls_of(b, 0);
    b->backend->record = NULL;
    const uint64_t many = calls_of(b, 0);
    b->backend->record = b->record;
    if (few * 4 > many)
        fail_msg("%d calls in a step that is replayed, %d in one that is issued", (int)few, (int)many);
}
#else
static void check_calls(bed *b) {
    (void)b;
}
#endif

static void check_replayed(comet_dtype dtype, uint32_t needs) {
    outcome *expected[INPUTS];
    bed b = bed_new(dtype, needs, 0);
    run_issued(&b, expected);
    expect_same(&b, 0, expected);
    assert_int_equal(recorded_kinds(b.step, 1), 0);
    expect_all(&b, expected);
    expect_all(&b, expected);
    assert_int_equal(recorded_kinds(b.step, 1), 1);
    assert_string_equal(comet_step_refusal(b.step), "");
    check_calls(&b);
    free_all(expected);
    bed_free(&b);
}

static void test_replayed(void **state) {
    (void)state;
    check_replayed(COMET_F32, 0);
    check_replayed(COMET_BF16, 0);
}

/* Of gradients, too: they are there with the batch, and nobody waits for them. */
static void test_squares(void **state) {
    (void)state;
    check_replayed(COMET_F32, COMET_NEEDS_ACGC);
    bed b = bed_new(COMET_F32, COMET_NEEDS_ACGC, 0);
    comet_collect_begin(b.collect);
    run_input(&b, 0, 0);
    assert_int_equal(b.collect->has_squares, 1);
    for (int i = 0; i < b.graph->parameter_count; i++)
        if (b.graph->parameters[i].kind == COMET_CONV_WEIGHT && b.graph->parameters[i].count > 32)
            assert_true(b.collect->squares[i] > 0);
    bed_free(&b);
}

static void test_accumulated(void **state) {
    (void)state;
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, COMET_NEEDS_ACGC, 1);
    run_issued(&b, expected);
    for (int i = 0; i < 2; i++)
        expect_all(&b, expected);
    assert_int_equal(recorded_kinds(b.step, 1), 1); /* the first batch of an update, which adds to nothing */
    assert_int_equal(recorded_kinds(b.step, 2), 1);
    free_all(expected);
    bed_free(&b);
}

/* ---- where something is in the way ---- */

/* Another plan: other places, and all is recorded anew. */
static void test_plan_changes(void **state) {
    (void)state;
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, 0, 0);
    run_issued(&b, expected);
    expect_all(&b, expected);
    const size_t bytes = b.plan->buffer_bytes;
    free_plan(&b);
    make_plan(&b, 0.002);
    assert_true(b.plan->buffer_bytes > bytes);
    expect_all(&b, expected);
    assert_int_equal(recorded_kinds(b.step, 1), 1);
    expect_all(&b, expected);
    free_all(expected);
    bed_free(&b);
}

/* Streams that do not fit: what was issued, recorded or replayed of the step counts for nothing under the next plan. */
static void test_does_not_fit(void **state) {
    (void)state;
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, COMET_NEEDS_ACGC, 0);
    run_issued(&b, expected);
    for (int before = 0; before < 3; before++) {
        for (int i = 0; i < before; i++)
            run_input(&b, 0, 0);
        outcome found = {.read_bytes = expected[1]->read_bytes};
        comet_collect_begin(b.collect);
        assert_int_equal(run_bounded(&b, 1, 0, 1e-7), COMET_ERROR_CAPACITY);
        assert_int_equal(recorded_kinds(b.step, 1), before > 0);
        free_plan(&b);
        make_plan(&b, 0.02);
        run_input(&b, 1, 0);
        note_gradients(&b, &found);
        note_observations(&b, &found);
        assert_memory_equal(&found, expected[1], sizeof found);
        free_plan(&b); /* whose first step was this one */
        make_plan(&b, 0.02);
    }
    free_all(expected);
    bed_free(&b);
}

/* Room for records that is not there, or elsewhere, costs a step that is issued, and no more. */
static void test_room_for_records(void **state) {
    (void)state;
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, 0, 0);
    comet_backend_cuda *cuda = (comet_backend_cuda *)b.backend;
    run_issued(&b, expected);
    expect_same(&b, 0, expected);
    for (int i = 0; i < 2; i++) { /* nothing is recorded yet; and then something is */
        comet_cuda_late_free(&cuda->kept.late, cuda->allocator);
        expect_same(&b, 1, expected);
        assert_int_equal(recorded_kinds(b.step, 1), 0);
        expect_same(&b, 0, expected);
        assert_int_equal(recorded_kinds(b.step, 1), 1);
    }
    expect_all(&b, expected);
    assert_string_equal(comet_step_refusal(b.step), "");
    free_all(expected);
    bed_free(&b);
}

/* ---- recording that fails ---- */

static int failing; /* the recording that is given up: how many come before it */

static comet_status end_record_or_fail(comet_backend *backend, comet_status status, comet_recording **recording) {
    const int fails = failing-- == 0;
    return comet_cuda_end_record(backend, fails ? COMET_ERROR_UNSUPPORTED : status, recording);
}

/* Any of so many recordings. */
static void check_failing(int accumulates, int recordings) {
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, 0, accumulates);
    run_issued(&b, expected);
    b.backend->end_record = end_record_or_fail;
    for (failing = 0; failing < recordings;) {
        const int number = failing;
        expect_all(&b, expected);
        assert_true(failing < 0);
        expect_same(&b, 0, expected);
        assert_string_not_equal(comet_step_refusal(b.step), "");
        free_plan(&b);
        make_plan(&b, 0.02);
        failing = number + 1;
    }
    free_all(expected);
    bed_free(&b);
}

static void test_recording_fails(void **state) {
    (void)state;
    check_failing(0, 1);
    check_failing(1, 3); /* of the first batch; both parts of the second */
}

/* What looks at a tensor cannot be recorded: nothing of it is, and the controller hears of no mistake. */
static comet_status refuse_to_record(comet_backend *backend, const comet_silu_pass *pass, const comet_stats_exec *exec,
                                     comet_stats_silu *seen) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)backend;
    return b->is_recording ? COMET_ERROR_UNSUPPORTED : comet_cuda_statistics.see_silu(backend, pass, exec, seen);
}

static void test_looking_fails(void **state) {
    (void)state;
    outcome *expected[INPUTS];
    bed b = bed_new(COMET_F32, 0, 0);
    comet_backend_statistics refusing = comet_cuda_statistics;
    refusing.see_silu = refuse_to_record;
    run_issued(&b, expected);
    b.backend->statistics = &refusing;
    expect_all(&b, expected);
    assert_int_equal(recorded_kinds(b.step, 1), 0);
    assert_string_not_equal(comet_step_refusal(b.step), "");
    free_all(expected);
    bed_free(&b);
}

/* ---- whole trainings ---- */

static int settled; /* how often a trainer waited for statistics that it wanted */

static comet_status count_settled(comet_backend *backend, int keep) {
    settled += keep;
    return comet_cuda_statistics.settle(backend, keep);
}

static double bounds_of(const comet_trainer *t) {
    double sum = 0;
    for (int32_t i = t->parts.collect->count; i-- > 0;)
        sum += comet_control_bound(t->control, i).value;
    return sum;
}

/* All that the controllers know, and what it comes to. */
static void expect_same_control(const comet_trainer *x, const comet_trainer *y) {
    const size_t bytes = comet_control_state_bytes(x->control);
    char *a = malloc(bytes), *b = malloc(bytes);
    assert_true(a && b && bytes == comet_control_state_bytes(y->control));
    assert_ok(comet_control_save(x->control, a, bytes));
    assert_ok(comet_control_save(y->control, b, bytes));
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

static void expect_same_weights(comet_trainer *x, comet_trainer *y) {
    int64_t count, again;
    float *a = parameters_of(x, &count), *b = parameters_of(y, &again);
    assert_int_equal(count, again);
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
    free(a);
    free(b);
}

/* Under a controller that asks for all there is, and moves bounds each time; one wait for statistics a step. */
static void test_trained(void **state) {
    enum { STEPS = 4 };
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    comet_backend_statistics counting = comet_cuda_statistics;
    int moved = 0;
    counting.settle = count_settled;
    o.control = "acgc:warmup=1:every=1:window=1";
    comet_trainer *replayed = gpu_trainer(o, COMET_F32);
    unrecorded = 1;
    comet_trainer *issued = gpu_trainer_like(replayed, o, COMET_F32);
    unrecorded = 0;
    replayed->parts.backend->statistics = issued->parts.backend->statistics = &counting;
    for (int i = 0; i < STEPS; i++) {
        const double before = bounds_of(replayed);
        settled = 0;
        const double a = train(replayed, (uint64_t)i, 0.01).loss, b = train(issued, (uint64_t)i, 0.01).loss;
        assert_true(isfinite(a) && a == b);
        assert_int_equal(settled, 2 * replayed->collects);
        expect_same_control(replayed, issued);
        moved += bounds_of(replayed) != before;
    }
    expect_same_weights(replayed, issued);
    assert_true(moved >= 2);
    assert_int_equal(recorded_kinds(replayed->step, 1), 1);
    assert_int_equal(comet_trainer_is_recorded(issued), 0);
    comet_trainer_free(replayed);
    comet_trainer_free(issued);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replayed),        cmocka_unit_test(test_squares),
        cmocka_unit_test(test_accumulated),     cmocka_unit_test(test_plan_changes),
        cmocka_unit_test(test_does_not_fit),    cmocka_unit_test(test_room_for_records),
        cmocka_unit_test(test_recording_fails), cmocka_unit_test(test_looking_fails),
        cmocka_unit_test(test_trained),
    };
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
