/* SPDX-License-Identifier: Apache-2.0 */
/* Measured errors (docs/measured.md): against gradients with the tensor as it is, and where the model is wrong. */
#include "support/effort.h"
#include "unit/train/collect/test_train_collect_case.h"

/* Strides, groups, windows that are not square, padding; norms without a ReLU. */
static comet_graph *strided_network(void) {
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

static void set_bound(train_case *c, comet_bound_kind kind, double bound) {
    for (int i = 0; i < comet_plan_entries(c->plan); i++)
        if (comet_plan_get_entry(c->plan, i)->form.form == COMET_FORM_CODEC)
            comet_learned_set_bound(c->learned, i, kind, bound);
}

static float *gradients_of(const comet_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        count += g->parameters[i].kind < COMET_RUNNING_MEAN ? g->parameters[i].count : 0;
    float *copy = malloc((size_t)count * sizeof *copy), *at = copy;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].kind < COMET_RUNNING_MEAN) {
            memcpy(at, g->parameters[i].gradient, (size_t)g->parameters[i].count * sizeof *at);
            at += g->parameters[i].count;
        }
    return copy;
}

static const float *gradient_in(const comet_graph *g, const float *copy, int parameter) {
    for (int i = 0; i < parameter; i++)
        copy += g->parameters[i].kind < COMET_RUNNING_MEAN ? g->parameters[i].count : 0;
    return copy;
}

/* ---- every value that is measured, against what it is ---- */

typedef struct difference {
    double squares, error; /* of what the gradients differ by; of that to what was measured */
} difference;

static void compare(const comet_parameter *p, const float *exact, int64_t at, double measured, difference *d) {
    const double is = (double)p->gradient[at] - (double)exact[at];
    assert_true(at < p->count);
    d->squares += is * is;
    d->error += (is - measured) * (is - measured);
}

/* An error of the layer's input is at input channels, any other at output channels. */
static void compare_layer(const comet_graph *g, const comet_collect_kept *k, const comet_collect_use *u,
                          const comet_collect_measured *m, const float *exact, difference *d) {
    const comet_parameter *p = &g->parameters[u->parameter];
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
                compare(p, exact, ((int64_t)out * inputs + in % inputs) * taps + t, sum, d);
                values++;
            }
    assert_int_equal(values, m->values);
}

static void compare_use(const comet_graph *g, const comet_collect_kept *k, const comet_collect_use *u,
                        const comet_collect_measured *m, const float *exact, difference *d) {
    if (u->kind != COMET_USE_NORM_SCALE) {
        compare_layer(g, k, u, m, exact, d);
        return;
    }
    assert_int_equal(m->values, k->width);
    for (int i = 0; i < k->width; i++)
        compare(&g->parameters[u->parameter], exact, k->first + i, m->sums[i], d);
}

typedef struct single {
    comet_graph *(*network)(void);
    const char *tensor;
    int measured;      /* gradients that it reaches */
    const char *aside; /* those whose error comes another way, too: not compared */
} single;

static int compare_all(const train_case *c, const comet_collect *collect, const single *s, const float *exact) {
    const comet_collect_kept *k = &collect->keeping.kept[0];
    const comet_collect_tensor *t = &collect->tensors[0];
    int measured = 0;
    assert_int_equal(collect->keeping.count, 1);
    for (int u = 0; u < t->use_count; u++) {
        const comet_parameter *p = &c->graph->parameters[t->uses[u].parameter];
        difference d = {0, 0};
        if (k->uses[u].seen == 0)
            continue;
        measured++;
        if (s->aside && strstr(s->aside, p->name))
            continue;
        compare_use(c->graph, k, &t->uses[u], &k->uses[u], gradient_in(c->graph, exact, t->uses[u].parameter), &d);
        /* Both are sums in fp32, of which the errors are small differences. */
        if (!(d.squares > 0) || sqrt(d.error / d.squares) > 2e-3)
            fail_msg("%s in the gradient of %s: off by %g of it", s->tensor, p->name, sqrt(d.error / d.squares));
    }
    return measured;
}

static void check_single(const single *s) {
    wish one = {s->tensor, 0.3};
    train_case c = case_on(1, s->network(), 32, &one);
    comet_collect *collect;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    for (int turn = 0; turn < 5; turn++) {
        draw_case(&c, (uint64_t)turn + 1);
        set_bound(&c, COMET_BOUND_ABSOLUTE, 0);
        case_run(&c, NULL);
        float *exact = gradients_of(c.graph);
        set_bound(&c, COMET_BOUND_RELATIVE, 0.3);
        comet_collect_set_turn(collect, turn);
        comet_collect_begin(collect);
        case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        assert_int_equal(compare_all(&c, collect, s, exact), s->measured);
        free(exact);
    }
    comet_collect_free(collect);
    case_free(&c);
}

static void test_measured_is_what_is(void **state) {
    (void)state;
    const single all[] = {
        {plain_network, "bn1", 3, NULL},
        {plain_network, "bn2", 3, NULL},
        {plain_network, "bn3", 2, NULL},
        {plain_network, "relu.9", 1, NULL},
        {small_network, "bn1", 3, NULL},
        {small_network, "bn2", 2, NULL},
        {curved_network, "bn1", 3, NULL},
        {curved_network, "bn3", 2, NULL},
        {curved_network, "bn2", 4, "bn2.weight conv2.weight"},
        {curved_network, "fc1", 1, NULL},
        {strided_network, "bn1", 3, NULL},
        {strided_network, "bn2", 3, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_single(&all[i]);
}

/* Two batches of one update add up; a batch that fails counts for nothing, but what is seen then is not whole. */
static void test_batches_add_up(void **state) {
    (void)state;
    wish one = {"bn2", 0.3};
    train_case c = case_on(1, plain_network(), 32, &one);
    comet_collect *collect;
    static double sums[COMET_ERRORS_SUMS];
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    draw_case(&c, 1);
    comet_collect_begin(collect);
    const comet_collect_measured *m = &collect->keeping.kept[0].uses[0];
    const comet_collect_update update = any_update();
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    assert_int_equal(m->seen, 1);
    memcpy(sums, m->sums, sizeof sums);
    const double once = comet_collect_observation(collect, &update, 0)->uses[0].factor;
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    assert_int_equal(m->seen, 2);
    for (int i = 0; i < COMET_ERRORS_SUMS; i++)
        assert_true(m->sums[i] == 2 * sums[i]);
    /* Errors that are the same twice make twice the sigma; independent ones would make the root of that. */
    const double twice = comet_collect_observation(collect, &update, 0)->uses[0].factor;
    assert_true(once > 0 && fabs(twice / once - sqrt(2)) < 0.01);
    comet_collect_batch_begin(collect);
    comet_collect_batch_end(collect); /* nothing was seen of it */
    assert_true(comet_collect_observation(collect, &update, 0)->uses[0].factor == 0);
    comet_collect_free(collect);
    case_free(&c);
}

/* Without COMET_NEEDS_MEASURED nothing is kept; with it memory is counted. */
static void test_memory_is_counted(void **state) {
    (void)state;
    wish all = {NULL, 0.3};
    train_case c = case_on(1, curved_network(), 32, &all);
    comet_collect *with, *without;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &with, &c.message), c.message);
    assert_done(comet_collect_new(c.plan, 0, NULL, &without, &c.message), c.message);
    assert_true(comet_collect_bytes(with) >= comet_collect_bytes(without) + with->keeping.bytes);
    assert_true(with->keeping.room > 0 && with->keeping.bytes >= with->keeping.room);
    assert_int_equal(without->keeping.packs, 0);
    for (int turn = 0; turn < 3 * with->keeping.packs; turn++) { /* each tensor has its turn, within the room */
        comet_collect_set_turn(with, turn);
        comet_collect_begin(with);
        assert_true(with->keeping.count > 0);
        for (int i = 0; i < with->keeping.count; i++) {
            const comet_collect_kept *k = &with->keeping.kept[i];
            const float *end = (k->second ? k->second : k->exact) + k->rows * k->width;
            assert_true((const char *)end <= with->keeping.memory + with->keeping.room);
            assert_int_equal(with->keeping.turns[k->tensor].pack, turn % with->keeping.packs);
        }
    }
    comet_collect_free(with);
    comet_collect_free(without);
    case_free(&c);
}

/* ---- even backgrounds ---- */

enum { EVEN_BATCH = 64, EVEN_BATCHES = 160 };

/* Images that are the same number but for a spot. */
static void even_input(train_case *c, uint64_t seed) {
    const comet_shape shape = c->graph->values[c->graph->input].shape;
    rng r = rng_seed(seed);
    for (int n = 0; n < c->batch; n++) {
        const int y = (int)rng_below(&r, (uint32_t)shape.height), x = (int)rng_below(&r, (uint32_t)shape.width);
        for (int64_t i = 0; i < comet_shape_count(shape); i++) {
            const int64_t pixel = i / shape.channels, down = pixel / shape.width - y, right = pixel % shape.width - x;
            c->input[n * comet_shape_count(shape) + i] =
                down * down + right * right < 12 ? (float)rng_gauss(&r) : -0.8f;
        }
        c->labels[n] = (int32_t)rng_below(&r, 5);
    }
}

/* Of one gradient: variances by the model, by the model with the factor so far, as they are. */
typedef struct account {
    const char *gradient;
    double factor;
    int64_t count;
    double predicted, with_factor, measured;
} account;

static double actual_variance(const comet_graph *g, const float *exact, int parameter) {
    const comet_parameter *p = &g->parameters[parameter];
    const float *was = gradient_in(g, exact, parameter);
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += pow((double)p->gradient[i] - (double)was[i], 2) / (double)p->count;
    return sum;
}

/* In the first half factors are found, in the second they are used. */
static void add_batch(const train_case *c, comet_collect *collect, const float *exact, int is_used, account *a) {
    int32_t count;
    const comet_control_tensor *tensor = comet_collect_tensors(collect, &count);
    const comet_collect_update update = any_update();
    const comet_control_observation *o = comet_collect_observation(collect, &update, 0);
    assert_non_null(o);
    for (int32_t u = 0; u < tensor->use_count; u++) {
        comet_use_stats s = o->uses[u];
        if (strcmp(c->graph->parameters[tensor->uses[u].gradient].name, a->gradient) != 0)
            continue;
        assert_true(s.factor > 0);
        if (!is_used) {
            a->factor = comet_error_factor_mean(a->factor, a->count++, s.factor);
            continue;
        }
        s.factor = 0;
        const double variance = pow(comet_error_sensitivity(tensor->uses[u].kind, &s) * o->sizes[0].bound, 2);
        a->predicted += variance;
        a->with_factor += variance * a->factor * a->factor;
        a->measured += actual_variance(c->graph, exact, tensor->uses[u].gradient);
    }
}

/* One network with other images each time. */
static void run_even(uint64_t network, account *all, int count) {
    wish one = {"bn1", 0.3};
    train_case c = case_on(1, pooled_network(), EVEN_BATCH, &one);
    comet_collect *collect;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    draw_case(&c, network);
    for (int i = 0; i < EVEN_BATCHES; i++) {
        even_input(&c, (uint64_t)i + 1);
        set_bound(&c, COMET_BOUND_ABSOLUTE, 0);
        case_run(&c, NULL);
        float *exact = gradients_of(c.graph);
        set_bound(&c, COMET_BOUND_RELATIVE, 0.3);
        comet_collect_set_turn(collect, i);
        comet_collect_begin(collect);
        case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        for (int k = 0; k < count; k++)
            add_batch(&c, collect, exact, i >= EVEN_BATCHES / 2, &all[k]);
        free(exact);
    }
    comet_collect_free(collect);
    case_free(&c);
}

/*
 * All of an even background has the same error in every image, which the model does not know: it is off by more than 2,
 * to either side. What chance leaves of a factor is 10 % or so: there are two channels in each of its measurements.
 */
static void test_even_backgrounds(void **state) {
    (void)state;
    static const uint64_t networks[] = {4, 12, 13};
    double least = 1, most = 1;
    int wrong = 0;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        account all[] = {{.gradient = "conv1.weight"}, {.gradient = "bn1.weight"}, {.gradient = "conv2.weight"}};
        run_even(networks[i], all, 3);
        for (int k = 0; k < 3; k++) {
            const double model = sqrt(all[k].predicted / all[k].measured),
                         with = sqrt(all[k].with_factor / all[k].measured);
            print_message("bn1 in the gradient of %s: predicted / measured sigma %.2f, with its factor %.2f\n",
                          all[k].gradient, model, with);
            least = model < least ? model : least;
            most = model > most ? model : most;
            wrong += !(with > 0.85 && with < 1.2);
        }
    }
    assert_true(least < 0.5 && most > 2); /* or the images are not what they are for */
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured_is_what_is),
                                       cmocka_unit_test(test_batches_add_up), cmocka_unit_test(test_memory_is_counted),
                                       cmocka_unit_test(test_even_backgrounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
