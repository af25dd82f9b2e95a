/* SPDX-License-Identifier: Apache-2.0 */
/* Networks, and steps of theirs with statistics: for the tests of collectors. */
#ifndef TESTS_TRAIN_COLLECT_CASE_H
#define TESTS_TRAIN_COLLECT_CASE_H

#include "train/collect/collect_impl.h"
#include "unit/train/collect/test_train_collect_watch.h"

/* ---- networks ---- */

/* Convolutions with and without norms, a residual sum, strides; large enough for norms that come in parts. */
static inline comet_graph *plain_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    comet_value y = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    y = comet_graph_relu(g, comet_graph_batch_norm(g, "bn2", y));
    y = comet_graph_conv2d(g, "conv3", y, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    y = comet_graph_batch_norm(g, "bn3", y);
    x = comet_graph_relu(g, comet_graph_add(g, x, y));
    x = comet_graph_conv2d(g, "conv4", x, &(comet_conv2d){.out = 12, .kernel = 3, .stride = 2, .padding = 1});
    x = comet_graph_relu(g, x);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/*
 * Behind a mean over parts of a map, gradients are the same all over a part; behind a norm they add up to 0 in each
 * channel.
 */
static inline comet_graph *pooled(int has_norm) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = has_norm ? comet_graph_batch_norm(g, "bn2", x) : x;
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

static inline comet_graph *pooled_network(void) {
    return pooled(1);
}

static inline comet_graph *pooled_network_without_norm(void) {
    return pooled(0);
}

/* Maps so small that all positions of 16 images are drawn where some are; more images are not. */
static inline comet_graph *small_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 5, 5, 6);
    x = comet_graph_batch_norm(g, "bn1", comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 1}));
    x = comet_graph_conv2d(g, "conv2", comet_graph_relu(g, x), &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_batch_norm(g, "bn2", x);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/* An inverted bottleneck with squeeze-excite; `outputs` of its last convolution. */
static inline comet_graph *curved(int outputs) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 12, .kernel = 3, .padding = 1});
    x = comet_graph_silu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 12, .kernel = 3, .padding = 1, .groups = 12});
    x = comet_graph_silu(g, comet_graph_batch_norm(g, "bn2", x));
    comet_value s = comet_graph_adaptive_average_pool(g, x, 1, 1);
    s = comet_graph_conv2d(g, "fc1", s, &(comet_conv2d){.out = 6, .kernel = 1, .bias = 1});
    s = comet_graph_conv2d(g, "fc2", comet_graph_silu(g, s), &(comet_conv2d){.out = 12, .kernel = 1, .bias = 1});
    x = comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, s));
    x = comet_graph_batch_norm(g, "bn3",
                               comet_graph_conv2d(g, "conv3", x, &(comet_conv2d){.out = outputs, .kernel = 1}));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

static inline comet_graph *curved_network(void) {
    return curved(10);
}

/* ---- what is stored by eb ---- */

typedef struct wish {
    const char *only; /* the layer that made it; NULL: all */
    double bound;
} wish;

static inline void choose(void *context, comet_plan_entry *e) {
    const wish *w = context;
    if (e->op == COMET_OP_SCALE) {
        e->form.form = COMET_FORM_RECOMPUTE;
        e->form.always = 1;
    }
    if (e->op == COMET_OP_SCALE || e->op == COMET_OP_SIGMOID || (w->only && strcmp(w->only, e->name) != 0))
        return;
    comet_plan_choose_eb((void *)&w->bound, e);
}

/* Room for whatever a stream takes, where it has a place of its own. */
static inline size_t any_size(void *context, const comet_plan_entry *e) {
    (void)context;
    return 2 * e->raw_bytes + 4096;
}

static inline train_case case_with(comet_backend *backend, comet_graph *g, int batch, wish *w) {
    comet_plan_options options = {.batch = batch, .training = 1, .choose = choose, .seen = any_size, .context = w};
    return case_on_backend(backend, g, batch, &options);
}

static inline train_case case_on(unsigned threads, comet_graph *g, int batch, wish *w) {
    comet_plan_options options = {.batch = batch, .training = 1, .choose = choose, .context = w};
    return case_new(g, batch, threads, &options);
}

static inline train_case case_of(comet_graph *g, int batch, wish *w) {
    return case_on(2, g, batch, w);
}

/* Momentum is of no interest: 1 everywhere. */
static inline comet_collect_update any_update(void) {
    static double means[MOST_NODES];
    static comet_optimiser optimiser;
    for (int i = 0; i < MOST_NODES; i++)
        means[i] = 1;
    optimiser = comet_optimiser_default(COMET_SGD);
    optimiser.momentum = 0;
    return (comet_collect_update){&optimiser, 0, means, 1, 1};
}

/* Weights, images and labels of their own. */
static inline void draw_case(train_case *c, uint64_t seed) {
    rng r = rng_seed(seed);
    fill_parameters(c->graph, &r);
    for (int64_t i = 0; i < c->batch * comet_shape_count(c->graph->values[c->graph->input].shape); i++)
        c->input[i] = (float)rng_gauss(&r);
    for (int i = 0; i < c->batch; i++)
        c->labels[i] = (int32_t)rng_below(&r, 5);
}

/*
 * Photographs are smooth, and their channels are alike: so are the inputs of the first layers. `slope`: how much they
 * change from pixel to pixel.
 */
static inline void smooth_input(train_case *c, double slope, uint64_t seed) {
    const comet_shape shape = c->graph->values[c->graph->input].shape;
    rng r = rng_seed(seed);
    for (int n = 0; n < c->batch; n++) {
        const double phase = 6 * rng_unit(&r), x = rng_unit(&r), y = rng_unit(&r);
        for (int64_t i = 0; i < comet_shape_count(shape); i++) {
            const int64_t pixel = i / shape.channels;
            const double wave =
                phase + slope * x * (double)(pixel % shape.width) + slope * y * (double)(pixel / shape.width);
            c->input[n * comet_shape_count(shape) + i] = (float)(1.4 * sin(wave) + 0.06 * slope * rng_gauss(&r));
        }
    }
}

/* A step with statistics. */
static inline comet_collect_update collect_step(train_case *c, comet_collect **collect, uint32_t needs) {
    assert_done(comet_collect_new(c->plan, needs, NULL, collect, &c->message), c->message);
    comet_collect_begin(*collect);
    case_run(c, &(comet_step_options){.seed = 1, .step = 1, .collect = *collect});
    return any_update();
}

static inline int32_t tensor_named(const comet_collect *collect, const char *name) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return -1;
}

static inline int node_named(const comet_graph *g, const char *name) {
    for (int i = 0; i < g->node_count; i++)
        if (strcmp(g->nodes[i].name, name) == 0)
            return i;
    fail_msg("no node %s", name);
    return -1;
}

/* The tensor's use of a kind that reaches a parameter; `tensor` NULL: of whichever has it. */
typedef struct found {
    int32_t tensor, use;
} found;

static inline found find_use(const comet_collect *collect, const comet_graph *g, const char *tensor,
                             comet_use_kind kind, const char *parameter) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t t = 0; t < count; t++)
        for (int32_t i = 0; i < tensors[t].use_count; i++)
            if ((!tensor || strcmp(tensors[t].name, tensor) == 0) && tensors[t].uses[i].kind == kind &&
                strcmp(g->parameters[tensors[t].uses[i].gradient].name, parameter) == 0)
                return (found){t, i};
    fail_msg("%s has no use %s of %s", tensor ? tensor : "nothing", comet_use_name(kind), parameter);
    return (found){-1, -1};
}

static inline comet_use_stats use_of(comet_collect *collect, const comet_collect_update *update, const comet_graph *g,
                                     const char *tensor, comet_use_kind kind, const char *parameter) {
    const found f = find_use(collect, g, tensor, kind, parameter);
    const comet_control_observation *o = comet_collect_observation(collect, update, f.tensor);
    assert_non_null(o);
    return o->uses[f.use];
}

static inline double sum(const double *x, int count) {
    double total = 0;
    for (int i = 0; i < count; i++)
        total += x[i];
    return total;
}

#endif
