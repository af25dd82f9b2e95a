/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step tells of its values on a GPU, where norms compute sums along with themselves and work is recorded: an
 * evaluation shows the values that a CPU makes, each time it is run, and not to those who did not ask.
 */
#include "test_cuda_train_case.h"

#include "train/models/model.h"
#include "train/step/step.h"

enum { BATCH_OF_SIGHT = 4, SIDE_OF_SIGHT = 10, MOST_VALUES = 128 };

typedef struct seen {
    comet_backend *backend;
    const comet_graph *graph;
    float *values[MOST_VALUES]; /* by value of the graph; NULL: it was not shown */
    int count;
} seen;

static size_t count_of(const comet_graph *g, comet_value v) {
    return BATCH_OF_SIGHT * (size_t)comet_shape_count(*comet_value_shape(g, v));
}

static comet_status made(void *context, comet_value value, const void *values) {
    seen *s = context;
    const size_t bytes = count_of(s->graph, value) * sizeof(float);
    assert_in_range(value, 0, MOST_VALUES - 1);
    free(s->values[value]);
    s->values[value] = malloc(bytes);
    s->count++;
    return s->backend->space->read(s->backend->space, s->values[value], values, bytes);
}

/* A network of which a GPU fuses sums: resnet18 of blocks with and without a projection. */
static void fill(comet_graph *g) {
    rng r = rng_seed(9);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        float *values = malloc((size_t)p->count * sizeof *values);
        for (int64_t k = 0; k < p->count; k++)
            values[k] = p->kind == COMET_RUNNING_VAR || p->kind == COMET_NORM_WEIGHT
                            ? (float)(0.5 + rng_unit(&r))
                            : (float)(rng_gauss(&r) / sqrt(p->fan_in > 0 ? p->fan_in : 16));
        assert_ok(p->space->write(p->space, p->value, values, (size_t)p->count * sizeof *values));
        free(values);
    }
}

static comet_graph *build(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, SIDE_OF_SIGHT, SIDE_OF_SIGHT, 3), first;
    const comet_conv2d conv = {.out = 16, .kernel = 3, .padding = 1}, one = {.out = 16, .kernel = 1};
    x = first = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", comet_graph_conv2d(g, "conv1", x, &conv)));
    x = comet_graph_batch_norm(g, "bn2", comet_graph_conv2d(g, "conv2", x, &conv));
    x = comet_graph_relu(
        g, comet_graph_add(g, x, comet_graph_batch_norm(g, "bn3", comet_graph_conv2d(g, "conv3", first, &one))));
    first = x;
    x = comet_graph_batch_norm(g, "bn4", comet_graph_conv2d(g, "conv4", x, &conv));
    x = comet_graph_relu(g, comet_graph_add(g, x, first));
    x = comet_graph_dropout(g, comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1)), 0.5f);
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 10, 1));
    assert_done(comet_graph_check(g, &message), message);
    return g;
}

/* `times` runs, of which the last but one is not looked at. */
static void look(comet_backend *backend, seen *s, int times) {
    const comet_plan_options evaluation = {.batch = BATCH_OF_SIGHT, .input_bytes = 1};
    const comet_step_parts parts = {NULL};
    const comet_normalisation normalisation = {{0.5f, 0.4f, 0.3f}, {0.25f, 0.2f, 0.3f}};
    static uint8_t bytes[BATCH_OF_SIGHT * SIDE_OF_SIGHT * SIDE_OF_SIGHT * 3];
    const int32_t labels[BATCH_OF_SIGHT] = {0};
    comet_graph *g = build();
    comet_plan *plan;
    comet_step *step;
    comet_step_result result;
    *s = (seen){.backend = backend, .graph = g};
    const comet_step_sight sight = {.made = made, .context = s};
    rng r = rng_seed(4);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rng_below(&r, 256);
    assert_done(comet_plan_new(g, backend, &evaluation, NULL, &plan, &message), message);
    assert_ok(comet_graph_allocate(g, backend->space, 0));
    fill(g);
    assert_done(comet_step_new(plan, &parts, NULL, &step, &message), message);
    for (int i = 0; i < times; i++) {
        const int before = s->count;
        const comet_step_options options = {
            .bytes = bytes, .normalisation = &normalisation, .labels = labels, .sight = i + 2 == times ? NULL : &sight};
        assert_done(comet_step_run(step, &options, &result, &message), message);
        assert_true(options.sight ? s->count > before : s->count == before);
    }
    comet_step_free(step);
    comet_plan_free(plan);
}

static void test_values(void **state) {
    (void)state;
    comet_backend *cpu, *gpu;
    seen there, here;
    place = (comet_backend_cuda_options){.dtype = COMET_F32, .exact_products = 1, .deterministic = 1};
    assert_ok(comet_backend_onednn_new(1, NULL, &cpu));
    assert_done(backend_new(1, NULL, &gpu), message);
    assert_true(gpu->fuses_sums);
    look(cpu, &here, 1);
    look(gpu, &there, 4); /* the third would be recorded and replayed */
    int both = 0, fewer = 0;
    for (comet_value v = 0; v < here.graph->value_count; v++) {
        fewer += here.values[v] && !there.values[v];
        if (!here.values[v] || !there.values[v])
            continue;
        both++;
        for (size_t i = 0; i < count_of(here.graph, v); i++)
            if (!(fabs((double)here.values[v][i] - (double)there.values[v][i]) < 1e-4))
                fail_msg("value %d: %g here, %g there", v, (double)here.values[v][i], (double)there.values[v][i]);
    }
    assert_true(both > 10);
    assert_int_equal(fewer, 4); /* outputs of norms that compute sums, and the sums before their ReLUs */
    assert_non_null(there.values[there.graph->output]);
    for (int v = 0; v < MOST_VALUES; v++) {
        free(here.values[v]);
        free(there.values[v]);
    }
    comet_graph_free((comet_graph *)here.graph);
    comet_graph_free((comet_graph *)there.graph);
    comet_backend_free(cpu);
    comet_backend_free(gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
