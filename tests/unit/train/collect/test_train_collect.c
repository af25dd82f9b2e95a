/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics for controllers, from a graph and its plan: against sums made value by value from what each layer's
 * backward is given.
 */
#include "comet/control_methods.h"
#include "control/collect/neighbours.h"
#include "unit/train/collect/test_train_collect_case.h"

/* ---- the list ---- */

static void assert_uses(const comet_collect *collect, const char *tensor, int uses) {
    int32_t count;
    const comet_control_tensor *t = &comet_collect_tensors(collect, &count)[tensor_named(collect, tensor)];
    if (t->use_count != uses)
        fail_msg("%s has %d uses, not %d", tensor, (int)t->use_count, uses);
}

static void test_uses(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    assert_uses(collect, "input", 1); /* conv1 */
    assert_uses(collect, "bn1", 3);   /* conv2, gamma, conv1's gradient */
    assert_uses(collect, "bn2", 3);
    assert_uses(collect, "bn3", 2); /* the sum needs nothing */
    comet_collect_free(collect);
    case_free(&c);
    c = case_of(curved_network(), 8, &w);
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    assert_uses(collect, "bn1", 4); /* conv2, gamma, conv1's gradient twice */
    assert_uses(collect, "bn2", 5); /* conv3 through the factors, gamma, conv2's gradient twice, fc2's */
    assert_uses(collect, "fc1", 1); /* its own gradient, through the SiLU */
    comet_collect_free(collect);
    case_free(&c);
}

/* Where the rms is known before, from a norm's statistics or a ReLU's own pass, it is the one that the codec finds. */
static void test_relative_bounds(void **state) {
    (void)state;
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    for (int n = 0; n < 2; n++) {
        wish w = {NULL, 0.1};
        comet_collect *collect;
        train_case c = case_of(networks[n](), 8, &w);
        const comet_collect_update update = collect_step(&c, &collect, 0);
        int32_t count;
        const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
        for (int32_t i = 0; i < count; i++) {
            const comet_control_observation *o = comet_collect_observation(collect, &update, i);
            assert_non_null(o);
            assert_int_equal(o->size_count, 1);
            if (fabs(o->sizes[0].bound / (w.bound * o->rms) - 1) > 1e-3)
                fail_msg("%s: bound %g, rms %g", tensors[i].name, o->sizes[0].bound, o->rms);
        }
        comet_collect_free(collect);
        case_free(&c);
    }
}

/* A tensor whose bound was given is nobody's to set. */
static void fix(void *context, comet_plan_entry *e) {
    choose(context, e);
    e->form.fixed = strcmp(e->name, "bn2") == 0;
}

static void test_fixed(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_plan_options options = {.batch = 8, .training = 1, .choose = fix, .context = &w};
    train_case c = case_new(plain_network(), 8, 2, &options);
    comet_collect *collect;
    int32_t count;
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t i = 0; i < count; i++)
        assert_string_not_equal(tensors[i].name, "bn2");
    comet_collect_free(collect);
    case_free(&c);
}

/* ---- statistics ---- */

/*
 * What a layer behind the ReLU reads has the errors of values that pass it, at its own stride; a norm reads all of
 * them.
 */
static void check_correction(comet_collect *collect, const comet_collect_update *u, const comet_graph *g,
                             comet_use_kind kind, const char *node, const char *parameter) {
    const found f = find_use(collect, g, NULL, kind, parameter);
    const comet_collect_tensor *t = &collect->tensors[f.tensor];
    const int reader = node_named(g, node), is_conv = kind == COMET_USE_CONV_WEIGHTS;
    const int32_t stride = is_conv ? g->nodes[reader].as.conv.stride : 1, strides[2] = {stride, stride};
    const double together = comet_alike_together(
        is_conv ? &t->all.passed : &t->all.all,
        is_conv ? &collect->nodes[reader].seen.layer.gradient : &collect->nodes[reader].seen.norm.gradient, strides);
    const comet_control_observation *o = comet_collect_observation(collect, u, f.tensor);
    assert_true(fabs(together - 1) > 1e-6 && together > 0.5);
    assert_near(o->uses[f.use].correction, sqrt(together), 1e-12);
}

static void check_plain(train_case *c, comet_collect *collect, const comet_collect_update *u) {
    const comet_graph *g = c->graph;
    const seen *conv2 = &saw[node_named(g, "conv2")], *bn1 = &saw[node_named(g, "bn1")],
               *conv1 = &saw[node_named(g, "conv1")], *fc = &saw[node_named(g, "fc")];
    const float *gamma = g->parameters[g->nodes[node_named(g, "bn1")].parameter[COMET_PARAMETER_WEIGHT]].value;
    const double m = 144.0 * c->batch;
    comet_use_stats s = use_of(collect, u, g, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    double derivative = 0, own = 0, common = 0;
    for (int k = 0; k < 8; k++) {
        const double a = (double)gamma[k], scale = a * (double)bn1->inverse[k], m1 = bn1->product[k] / m;
        derivative += a * a * bn1->on[k] / m / 8 * 34 * 34 / 36 / 36; /* 2 of 36 taps of a line are in the padding */
        own += scale * scale * m1 * m1 / 8;
        common += scale * scale * bn1->g_squares[k] / m / 8 *
                  collect->nodes[node_named(g, "conv1")].seen.layer.common_squares / conv1->x_squares;
    }
    assert_near(s.gradient_squares, conv2->dy_squares / 8, 1e-6);
    assert_near(s.derivative_squares, derivative, 1e-3);
    assert_near(s.gradient_mean, conv2->dy_sizes / 8 / m, 1e-6);
    assert_near(s.positions, m, 0);
    assert_near(s.momentum, 1, 0);
    s = use_of(collect, u, g, "bn1", COMET_USE_NORM_SCALE, "bn1.weight");
    assert_near(s.derivative_squares, 1, 0);
    assert_near(s.gradient_squares, sum(bn1->g_squares, 8) / 8, 1e-4);
    s = use_of(collect, u, g, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    assert_near(collect->nodes[node_named(g, "bn1")].seen.norm.own_gain, own,
                1e-3); /* next to nothing beside the other here */
    assert_near(s.error_gain, own + common, 1e-3);
    assert_near(s.input_squares, conv1->x_squares, 1e-6);
    s = use_of(collect, u, g, NULL, COMET_USE_LINEAR_WEIGHTS, "fc.weight");
    assert_near(s.gradient_squares, fc->dy_squares / 5, 1e-6);
    check_correction(collect, u, g, COMET_USE_CONV_WEIGHTS, "conv2", "conv2.weight");
    check_correction(collect, u, g, COMET_USE_CONV_WEIGHTS, "conv4", "conv4.weight");
    check_correction(collect, u, g, COMET_USE_NORM_SCALE, "bn1", "bn1.weight");
    check_correction(collect, u, g, COMET_USE_NORM_INPUT, "bn1", "conv1.weight");
}

static void check_curved(train_case *c, comet_collect *collect, const comet_collect_update *u) {
    const comet_graph *g = c->graph;
    const int bn = node_named(g, "bn2");
    int silu = bn + 1, scale = bn;
    while (g->nodes[scale].kind != COMET_OP_SCALE)
        scale++;
    assert_int_equal(g->nodes[silu].kind, COMET_OP_SILU);
    const seen *curve = &saw[silu], *norm = &saw[bn], *factors = &saw[scale], *conv2 = &saw[node_named(g, "conv2")];
    const float *gamma = g->parameters[g->nodes[bn].parameter[COMET_PARAMETER_WEIGHT]].value;
    const double m = 144.0 * c->batch;
    double derivative = 0, gain = 0;
    for (int k = 0; k < 12; k++) {
        const double a = (double)gamma[k];
        derivative += a * a * curve->slope[k] / m / 12;
        gain += pow(a * a * (double)norm->inverse[k], 2) * curve->curve[k] / m / 12;
    }
    comet_use_stats s = use_of(collect, u, g, "bn2", COMET_USE_CONV_WEIGHTS, "conv3.weight");
    assert_near(s.derivative_squares, derivative * factors->factor, 1e-3);
    assert_near(s.gradient_squares, saw[node_named(g, "conv3")].dy_squares / 10, 1e-6);
    s = use_of(collect, u, g, "bn2", COMET_USE_NORM_SCALE, "bn2.weight");
    assert_near(s.gradient_squares, sum(curve->scale, 12) / 12, 1e-3);
    s = use_of(collect, u, g, "bn2", COMET_USE_CURVE_INPUT, "conv2.weight");
    assert_near(s.error_gain, gain, 1e-3);
    assert_near(s.input_squares, conv2->x_variances, 1e-6);
    s = use_of(collect, u, g, "bn2", COMET_USE_CHANNEL_SCALE, "fc2.weight");
    assert_near(s.error_gain, derivative * factors->gain, 1e-3);
    assert_near(s.input_squares, saw[node_named(g, "fc2")].x_squares, 1e-6);
    s = use_of(collect, u, g, "fc1", COMET_USE_CURVE_INPUT, "fc1.weight");
    assert_near(s.error_gain, sum(saw[node_named(g, "fc1") + 1].curve, 6) / 6 / c->batch, 1e-3);
}

static void test_statistics(void **state) {
    (void)state;
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    void (*const checks[])(train_case *, comet_collect *, const comet_collect_update *) = {check_plain, check_curved};
    for (int n = 0; n < 2; n++)
        for (int batch = 6; batch <= 8; batch += 2) { /* of 8 large norms come in parts */
            wish w = {NULL, 0.05};
            comet_collect *collect;
            train_case c = case_of(networks[n](), batch, &w);
            watch(&c);
            memset(saw, 0, sizeof saw);
            const comet_collect_update update = collect_step(&c, &collect, 0);
            checks[n](&c, collect, &update);
            comet_collect_free(collect);
            case_free(&c);
        }
}

/* common_squares of some steps, of two layers: from some positions, and from all of them. */
typedef struct common_sums {
    double found[2], right[2];
} common_sums;

static common_sums common_sums_of(int batch, double slope) {
    wish w = {NULL, 0.05};
    common_sums sums = {{0, 0}, {0, 0}};
    train_case c = case_on(1, small_network(), batch, &w);
    const int nodes[] = {node_named(c.graph, "conv1"), node_named(c.graph, "conv2")};
    watch(&c);
    for (uint64_t seed = 1; seed <= 24; seed++) {
        comet_collect *collect;
        draw_case(&c, seed);
        if (slope > 0)
            smooth_input(&c, slope, seed);
        memset(saw, 0, sizeof saw);
        (void)collect_step(&c, &collect, 0);
        for (int k = 0; k < 2; k++) {
            sums.found[k] += collect->nodes[nodes[k]].seen.layer.common_squares;
            sums.right[k] += saw[nodes[k]].x_common;
        }
        comet_collect_free(collect);
    }
    case_free(&c);
    return sums;
}

/*
 * Of 16 images all positions are drawn, and what is found is exact but for the means of inputs at a map's border. Of
 * 64 images half are drawn, and 16 of 25 positions: the sum over steps may be off by 1 to 2 %, if no kind of pairs is
 * counted too often or too rarely.
 */
static void test_common(void **state) {
    (void)state;
    for (double slope = 0; slope < 1; slope += 0.8) {
        const common_sums all = common_sums_of(16, slope), some = common_sums_of(64, slope);
        assert_near(all.found[0], all.right[0], 1e-5);
        assert_near(all.found[1], all.right[1], 5e-3);
        assert_near(some.found[0], some.right[0], 0.04);
        assert_near(some.found[1], some.right[1], 0.04);
    }
}

/* A run's decisions are the same on any machine: what is seen does not depend on how many threads look. */
static void test_threads(void **state) {
    (void)state;
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    for (int n = 0; n < 2; n++) {
        wish w = {NULL, 0.05};
        comet_collect *collects[4];
        const unsigned threads[] = {1, 2, 3, 16};
        train_case c = case_of(networks[n](), 8, &w);
        for (int i = 0; i < 4; i++) {
            comet_threads *pool;
            assert_ok(comet_threads_new(threads[i], NULL, &pool));
            assert_done(comet_collect_new(c.plan, COMET_NEEDS_ACGC, NULL, &collects[i], &c.message), c.message);
            comet_threads *own = c.backend->threads;
            c.backend->threads = pool;
            comet_collect_begin(collects[i]);
            case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collects[i]});
            c.backend->threads = own;
            comet_threads_free(pool);
        }
        for (int i = 1; i < 4; i++) {
            for (int32_t t = 0; t < collects[0]->count; t++) {
                const comet_stats_tensor *one = &collects[0]->tensors[t].all, *other = &collects[i]->tensors[t].all;
                assert_memory_equal(&other->all, &one->all, sizeof one->all);
                assert_memory_equal(&other->passed, &one->passed, sizeof one->passed);
            }
            for (int k = 0; k < c.graph->node_count; k++)
                assert_memory_equal(&collects[i]->nodes[k].seen, &collects[0]->nodes[k].seen,
                                    sizeof collects[0]->nodes[k].seen);
            comet_collect_free(collects[i]);
        }
        comet_collect_free(collects[0]);
        case_free(&c);
    }
}

/* Sums of several batches add up, means do not; a batch that failed does not count. */
static void test_batches(void **state) {
    (void)state;
    wish w = {NULL, 0.05};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    const comet_collect_update update = collect_step(&c, &collect, 0);
    const comet_use_stats once = use_of(collect, &update, c.graph, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    const comet_use_stats input = use_of(collect, &update, c.graph, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    const comet_control_observation o = *comet_collect_observation(collect, &update, tensor_named(collect, "bn1"));
    const comet_control_size size = o.sizes[0];
    comet_collect_batch_begin(collect);
    comet_collect_saved(collect, comet_plan_get_entry(c.plan, 0), NULL, NULL,
                        &(comet_codec_record){.stats = {.count = 1}});
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    comet_use_stats twice = use_of(collect, &update, c.graph, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    assert_near(twice.gradient_squares, 2 * once.gradient_squares, 1e-12);
    assert_near(twice.positions, 2 * once.positions, 0);
    assert_near(twice.derivative_squares, once.derivative_squares, 1e-12);
    twice = use_of(collect, &update, c.graph, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    assert_near(twice.error_gain, input.error_gain, 1e-12);
    assert_near(twice.input_squares, 2 * input.input_squares, 1e-12);
    const comet_control_observation *after = comet_collect_observation(collect, &update, tensor_named(collect, "bn1"));
    assert_near(after->rms, o.rms, 1e-12);
    assert_near(after->sizes[0].bytes, size.bytes, 1e-12);
    assert_near(after->sizes[0].bound, size.bound, 1e-12);
    comet_collect_begin(collect);
    assert_null(comet_collect_observation(collect, &update, tensor_named(collect, "bn1")));
    comet_collect_free(collect);
    case_free(&c);
}

static double squares(const float *x, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += (double)x[i] * (double)x[i];
    return total;
}

static void test_acgc(void **state) {
    (void)state;
    wish w = {NULL, 0.05};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    watch(&c);
    memset(saw, 0, sizeof saw);
    const comet_collect_update update = collect_step(&c, &collect, COMET_NEEDS_ACGC);
    const comet_graph *g = c.graph;
    const seen *bn = &saw[node_named(g, "bn2")], *conv4 = &saw[node_named(g, "conv4")],
               *conv2 = &saw[node_named(g, "conv2")];
    const comet_parameter *weight = comet_graph_parameter_named(c.graph, "conv4.weight");
    const float *gamma = comet_graph_parameter_named(c.graph, "bn2.weight")->value;
    const double values = 144.0 * 8 * 8, m = 144.0 * 8;
    comet_use_stats s = use_of(collect, &update, g, NULL, COMET_USE_CONV_WEIGHTS, "conv4.weight");
    assert_near(s.acgc, squares(weight->gradient, weight->count) / (2 * values * 9 / 4 * conv4->dy_squares), 1e-6);
    double least = INFINITY;
    for (int k = 0; k < 8; k++) {
        const double s2 = pow((double)bn->inverse[k], 2), a = (double)gamma[k];
        const double worst =
            s2 * pow(bn->on[k] * bn->greatest_g[k], 2) * pow(bn->greatest_u[k] / (double)bn->inverse[k] / 2, 2);
        least = fmin(least, conv2->dy_squares * m / (8 * a * a * s2 * s2 * (worst + pow(bn->product[k], 2))) * s2);
    }
    s = use_of(collect, &update, g, "bn2", COMET_USE_NORM_INPUT, "conv2.weight");
    assert_near(s.acgc, least, 1e-3);
    comet_collect_free(collect);
    case_free(&c);
}

/* ---- a controller of one's own ---- */

/* What a plug-in is shown at an observation. */
typedef struct shown {
    double acgc[64];
    int uses, with_acgc;
} shown;

static shown plugin_saw;

static comet_status plugin_assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    (void)instance, (void)choices;
    plugin_saw = (shown){.uses = 0};
    for (int32_t t = 0; t < view->count; t++)
        for (int32_t i = 0; i < view->tensors[t].use_count && plugin_saw.uses < 64; i++) {
            plugin_saw.acgc[plugin_saw.uses++] = view->tensors[t].uses[i].stats.acgc;
            plugin_saw.with_acgc += view->tensors[t].uses[i].stats.acgc > 0;
        }
    return COMET_OK;
}

/* What AC-GC alone needs is collected for whoever asks for it, and for nobody else. */
static void test_plugin_needs(void **state) {
    (void)state;
    comet_control_methods methods = {
        .version = COMET_CONTROL_VERSION, .size = sizeof methods, .name = "plugin", .assess = plugin_assess};
    const uint32_t needs[] = {COMET_NEEDS_SQUARES | COMET_NEEDS_ACGC, COMET_NEEDS_SQUARES};
    for (int k = 0; k < 2; k++) {
        comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
        comet_control *control;
        comet_collect *collect;
        int32_t count;
        wish w = {NULL, 0.05};
        train_case c = case_of(plain_network(), 8, &w);
        methods.needs = needs[k];
        const comet_collect_update update = collect_step(&c, &collect, methods.needs);
        const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
        options.warmup = 0;
        assert_ok(comet_control_new(&methods, &options, tensors, count, &control));
        assert_int_equal(comet_control_needs(control), needs[k]);
        assert_ok(comet_collect_observe(collect, &update, control, 0));
        assert_true(plugin_saw.uses > 10);
        if (needs[k] & COMET_NEEDS_ACGC)
            assert_true(plugin_saw.with_acgc >= plugin_saw.uses / 2);
        else
            assert_int_equal(plugin_saw.with_acgc, 0);
        const found f = find_use(collect, c.graph, NULL, COMET_USE_CONV_WEIGHTS, "conv4.weight");
        int before = f.use;
        for (int32_t t = 0; t < f.tensor; t++)
            before += tensors[t].use_count;
        const comet_use_stats s = use_of(collect, &update, c.graph, NULL, COMET_USE_CONV_WEIGHTS, "conv4.weight");
        assert_near(plugin_saw.acgc[before], s.acgc, 0);
        assert_true((s.acgc > 0) == (k == 0));
        comet_control_free(control);
        comet_collect_free(collect);
        case_free(&c);
    }
}

/* ---- what it costs ---- */

/* The gradient of each layer's output once, and of a norm's beside u; the input of each layer before a norm. */
static void test_cost(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    const uint64_t map = 12 * 12, outputs = 3 * map * 8 + map / 4 * 12 + 5, norms = 3 * 2 * map * 8,
                   inputs = map * 3 + 2 * map * 8;
    (void)collect_step(&c, &collect, 0);
    const uint64_t read = comet_collect_read_bytes(collect);
    assert_int_equal(read, 8 * (outputs + norms + inputs) * sizeof(float));
    case_run(&c, NULL);
    assert_int_equal(comet_collect_read_bytes(collect), read); /* a step that is not asked reads nothing */
    comet_collect_free(collect);
    case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uses),         cmocka_unit_test(test_relative_bounds),
        cmocka_unit_test(test_fixed),        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_common),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_batches),      cmocka_unit_test(test_acgc),
        cmocka_unit_test(test_plugin_needs), cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
