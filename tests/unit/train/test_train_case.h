/* SPDX-License-Identifier: Apache-2.0 */
/* A network ready to run, for the trainer's tests. */
#ifndef TESTS_TRAIN_CASE_H
#define TESTS_TRAIN_CASE_H

#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "support/rng.h"
#include "train/graph/graph_impl.h"
#include "train/plan/learned.h"
#include "train/plan/plan_impl.h"
#include "train/step/step.h"

#define assert_done(call, message)                                                                                     \
    do {                                                                                                               \
        comet_status status_of_done = (call);                                                                          \
        if (status_of_done != COMET_OK)                                                                                \
            fail_msg("%s: %s: %s (%s)", #call, comet_status_string(status_of_done), (message).text,                    \
                     comet_last_error());                                                                              \
    } while (0)

#define assert_near(a, b, relative)                                                                                    \
    do {                                                                                                               \
        const double near_a = (a), near_b = (b);                                                                       \
        if (!(fabs(near_a - near_b) <= (relative)*fabs(near_b)))                                                       \
            fail_msg("%s is %.9g, %s is %.9g", #a, near_a, #b, near_b);                                                \
    } while (0)

typedef struct train_case {
    comet_graph *graph;
    comet_backend *backend;
    comet_plan *plan;
    comet_learned *learned;
    comet_holder *holder;
    comet_step *step;
    int batch;
    float *input;
    int32_t *labels;
    comet_message message;
} train_case;

static inline float any_parameter(const comet_parameter *p, rng *r) {
    if (p->kind == COMET_CONV_WEIGHT || p->kind == COMET_LINEAR_WEIGHT)
        return (float)(rng_gauss(r) / (1 + 0.3 * p->fan_in));
    if (p->kind == COMET_NORM_WEIGHT)
        return (float)((rng_below(r, 4) ? 1 : -1) * (0.5 + rng_unit(r)));
    return (float)(0.3 * rng_gauss(r));
}

/*
 * Weights around 0.4 / sqrt(fan in), norm weights around 1 with either sign, so that both sides of a threshold occur.
 */
static inline void fill_parameters(comet_graph *g, rng *r) {
    for (int i = 0; i < g->parameter_count; i++) {
        comet_parameter *p = &g->parameters[i];
        if (p->kind >= COMET_RUNNING_MEAN)
            continue;
        float *values = malloc((size_t)p->count * sizeof *values);
        for (int64_t k = 0; k < p->count; k++)
            values[k] = any_parameter(p, r);
        assert_ok(g->space->write(g->space, p->value, values, (size_t)p->count * sizeof *values));
        free(values);
    }
}

static inline void case_free_plan(train_case *c) {
    comet_step_free(c->step);
    comet_holder_free(c->holder);
    comet_learned_free(c->learned);
    comet_plan_free(c->plan);
}

static inline void case_plan(train_case *c, const comet_plan_options *options) {
    assert_done(comet_plan_new(c->graph, c->backend, options, NULL, &c->plan, &c->message), c->message);
    const comet_holder_options o = {.slots = comet_plan_entries(c->plan),
                                    .spill_directory = "/tmp"}; /* without a name */
    assert_ok(c->backend->holder_new(c->backend, &o, &c->holder));
    assert_ok(comet_learned_new(c->plan, NULL, &c->learned));
    const comet_step_parts parts = {.learned = c->learned, .holder = c->holder};
    assert_done(comet_step_new(c->plan, &parts, NULL, &c->step, &c->message), c->message);
}

/* Takes backend and graph over. options NULL: training, everything kept. */
static inline train_case case_on_backend(comet_backend *backend, comet_graph *g, int batch,
                                         const comet_plan_options *options) {
    train_case c = {.graph = g, .backend = backend, .batch = batch};
    comet_plan_options plain = {.batch = batch, .training = 1};
    assert_done(comet_graph_check(g, &c.message), c.message);
    assert_ok(comet_graph_allocate(g, c.backend->space, 1));
    rng r = rng_seed(7);
    fill_parameters(g, &r);
    const size_t count = (size_t)comet_shape_count(g->values[g->input].shape) * (size_t)batch;
    c.input = malloc(count * sizeof *c.input);
    c.labels = malloc((size_t)batch * sizeof *c.labels);
    for (size_t i = 0; i < count; i++)
        c.input[i] = (float)rng_gauss(&r);
    for (int i = 0; i < batch; i++)
        c.labels[i] = (int32_t)rng_below(&r, (uint64_t)g->values[g->output].shape.channels);
    case_plan(&c, options ? options : &plain);
    return c;
}

static inline train_case case_new(comet_graph *g, int batch, unsigned threads, const comet_plan_options *options) {
    comet_backend *backend;
    assert_ok(comet_backend_onednn_new(threads, NULL, &backend));
    return case_on_backend(backend, g, batch, options);
}

static inline void case_free(train_case *c) {
    case_free_plan(c);
    comet_graph_free(c->graph);
    comet_backend_free(c->backend);
    free(c->input);
    free(c->labels);
}

/* The batch, in the numbers that activations have. */
static inline void case_put_input(const train_case *c) {
    const comet_dtype dtype = c->backend->dtype;
    const size_t count = (size_t)comet_shape_count(c->graph->values[c->graph->input].shape) * (size_t)c->batch;
    uint16_t *halves = malloc(count * sizeof *halves);
    for (size_t i = 0; i < count && dtype != COMET_F32; i++)
        halves[i] = dtype == COMET_F16 ? comet_f16_of_f32(c->input[i]) : comet_bf16_of_f32(c->input[i]);
    comet_space *space = c->backend->space;
    assert_ok(space->write(space, comet_step_input(c->step), dtype == COMET_F32 ? (void *)c->input : halves,
                           count * comet_dtype_size(dtype)));
    free(halves);
}

static inline comet_step_result case_run(train_case *c, const comet_step_options *options) {
    comet_step_result result;
    comet_step_options o = options ? *options : (comet_step_options){.seed = 1, .step = 1};
    o.labels = c->labels;
    case_put_input(c);
    assert_done(comet_step_run(c->step, &o, &result, &c->message), c->message);
    return result;
}

#endif
