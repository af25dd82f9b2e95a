/* SPDX-License-Identifier: Apache-2.0 */
/* Every value of gradients whose error is measured (docs/measured.md), against what it is: on any backend. */
#ifndef TESTS_TRAIN_COLLECT_MEASURED_H
#define TESTS_TRAIN_COLLECT_MEASURED_H

#include "unit/train/collect/test_train_collect_case.h"

/* Strides, groups, windows that are not square, padding; norms without a ReLU. */
static inline comet_graph *strided_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 11, 14, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 12, .kernel = 5, .stride = 2, .padding = 2});
    x = comet_graph_batch_norm(g, "bn1", x);
    x = comet_graph_conv2d(g, "conv2", x,
                           &(comet_conv2d){.out = 8, .kernel = 3, .stride = 2, .padding = 1, .groups = 4});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn2", x));
    x = comet_graph_conv2d(g, "conv3", x, &(comet_conv2d){.out = 20, .kernel = 1, .stride = 2});
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/* All of them, in the order of files; to be freed. */
static inline float *gradients_of(const comet_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        count += g->parameters[i].kind < COMET_RUNNING_MEAN ? g->parameters[i].count : 0;
    float *copy = malloc((size_t)count * sizeof *copy), *at = copy;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].kind < COMET_RUNNING_MEAN) {
            const comet_parameter *p = &g->parameters[i];
            assert_ok(g->space->read(g->space, at, p->gradient, (size_t)p->count * sizeof *at));
            at += p->count;
        }
    return copy;
}

static inline const float *gradient_in(const comet_graph *g, const float *copy, int parameter) {
    for (int i = 0; i < parameter; i++)
        copy += g->parameters[i].kind < COMET_RUNNING_MEAN ? g->parameters[i].count : 0;
    return copy;
}

/* ---- every value that is measured, against what it is ---- */

/* A parameter's gradients. */
typedef struct sides {
    const comet_parameter *parameter;
    const float *stored, *exact;
} sides;

typedef struct difference {
    double squares, error; /* of what the gradients differ by; of that to what was measured */
} difference;

static inline void compare(const sides *s, int64_t at, double measured, difference *d) {
    const double is = (double)s->stored[at] - (double)s->exact[at];
    assert_true(at < s->parameter->count);
    d->squares += is * is;
    d->error += (is - measured) * (is - measured);
}

/* An error of the layer's input is at input channels, any other at output channels. */
static inline void compare_layer(const comet_graph *g, const comet_collect_kept *k, const comet_collect_use *u,
                                 const comet_collect_measured *m, const sides *s, difference *d) {
    const comet_node *node = &g->nodes[u->reached];
    const int is_conv = node->kind == COMET_OP_CONV, of_input = u->node == u->reached,
              groups = is_conv ? node->as.conv.groups : 1,
              inputs = comet_value_shape(g, node->input[0])->channels / groups,
              outputs = comet_value_shape(g, node->output)->channels / groups,
              taps = is_conv ? node->as.conv.kernel * node->as.conv.kernel_width : 1;
    int values = 0;
    for (int t = 0; t < taps; t++)
        for (int i = 0; i < m->count; i++)
            for (int j = 0; j < m->others; j++) {
                const int in = of_input ? k->first + i : m->other + j, out = of_input ? m->other + j : k->first + i;
                const double sum = m->sums[(t * m->count + i) * m->others + j];
                if (in / inputs != out / outputs) {
                    assert_true(sum == 0);
                    continue;
                }
                compare(s, ((int64_t)out * inputs + in % inputs) * taps + t, sum, d);
                values++;
            }
    assert_int_equal(values, m->values);
}

static inline void compare_use(const comet_graph *g, const comet_collect_kept *k, const comet_collect_use *u,
                               const comet_collect_measured *m, const sides *s, difference *d) {
    if (u->kind != COMET_USE_NORM_SCALE) {
        compare_layer(g, k, u, m, s, d);
        return;
    }
    assert_int_equal(m->values, k->width);
    for (int i = 0; i < k->width; i++)
        compare(s, k->first + i, m->sums[i], d);
}

typedef struct single {
    comet_graph *(*network)(void);
    const char *tensor;
    int measured;      /* gradients that it reaches */
    const char *aside; /* those whose error comes another way, too: not compared */
} single;

/* Where, on how many images, how often, and how far apart they may be, in parts of the error. */
typedef struct single_on {
    comet_backend *(*backend)(void);
    int batch, turns;
    double near;
} single_on;

static inline int compare_all(const train_case *c, const comet_collect *collect, const single *s, const single_on *on,
                              const float *exact) {
    const comet_collect_kept *k = &collect->keeping.kept[0];
    const comet_collect_tensor *t = &collect->tensors[0];
    float *stored = gradients_of(c->graph);
    int measured = 0;
    assert_int_equal(collect->keeping.count, 1);
    for (int u = 0; u < t->use_count; u++) {
        const int parameter = t->uses[u].parameter;
        const sides of = {&c->graph->parameters[parameter], gradient_in(c->graph, stored, parameter),
                          gradient_in(c->graph, exact, parameter)};
        difference d = {0, 0};
        if (k->uses[u].seen == 0)
            continue;
        measured++;
        if (s->aside && strstr(s->aside, of.parameter->name))
            continue;
        compare_use(c->graph, k, &t->uses[u], &k->uses[u], &of, &d);
        if (!(d.squares > 0) || sqrt(d.error / d.squares) > on->near)
            fail_msg("%s in the gradient of %s: off by %g of it", s->tensor, of.parameter->name,
                     sqrt(d.error / d.squares));
    }
    free(stored);
    return measured;
}

/* A network with one tensor compressed, beside the same with none. */
static inline void check_single(const single *s, const single_on *on) {
    wish one = {s->tensor, 0.3};
    train_case c = case_with(on->backend(), s->network(), on->batch, &one),
               kept = case_on_backend(on->backend(), s->network(), on->batch, NULL);
    comet_collect *collect;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    for (int turn = 0; turn < on->turns; turn++) {
        draw_case(&c, (uint64_t)turn + 1);
        draw_case(&kept, (uint64_t)turn + 1);
        case_run(&kept, NULL);
        float *exact = gradients_of(kept.graph);
        comet_collect_set_turn(collect, turn);
        comet_collect_begin(collect);
        case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        assert_int_equal(compare_all(&c, collect, s, on, exact), s->measured);
        free(exact);
    }
    comet_collect_free(collect);
    case_free(&kept);
    case_free(&c);
}

#endif
