/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op's gradients against central differences in fp64: odd sizes, strides, groups, padding, ceil_mode; and whole
 * small networks.
 */
#include "test_train_case.h"
#include "test_train_reference.h"

#include "support/effort.h"

static comet_value input(comet_graph **g, int height, int width, int channels) {
    assert_ok(comet_graph_new(NULL, g));
    return comet_graph_input(*g, height, width, channels);
}

/* Some output of the network in front: vectors of 5 classes. */
static void classify(comet_graph *g, comet_value x) {
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_flatten(g, x), 5, 1));
}

static void check_parameter(train_case *c, reference *r, int index) {
    const comet_parameter *p = &c->graph->parameters[index];
    if (!p->gradient)
        return;
    double scale = 1e-3;
    for (int64_t k = 0; k < p->count; k++)
        scale = fmax(scale, fabs((double)p->gradient[k]));
    const int64_t stride = p->count / effort(60) + 1; /* not every one of a large layer */
    for (int64_t k = 0; k < p->count; k += stride) {
        const double expected = reference_slope(r, index, k), got = (double)p->gradient[k];
        if (!(fabs(got - expected) <= 2e-5 * scale + 1e-7))
            fail_msg("%s[%lld]: %.9g, by differences %.9g", p->name, (long long)k, got, expected);
    }
}

static void check_all(train_case *c, float smoothing) {
    comet_step_options o = {.seed = 42, .step = 3, .smoothing = smoothing};
    comet_step_result result = case_run(c, &o);
    reference r = reference_new(c->graph, c->batch, c->input);
    r.seed = o.seed;
    r.step = o.step;
    r.labels = c->labels;
    r.smoothing = (double)smoothing;
    const double loss = reference_loss(&r);
    if (!(fabs(result.loss - loss) <= 1e-6 * fabs(loss)))
        fail_msg("loss %.9g, in fp64 %.9g", result.loss, loss);
    for (int i = 0; i < c->graph->parameter_count; i++)
        check_parameter(c, &r, i);
    reference_free(&r);
}

/* Takes the graph over. */
static void check(comet_graph *g, int batch) {
    train_case c = case_new(g, batch, 2, NULL);
    check_all(&c, 0);
    case_free(&c);
}

/* ---- ops ---- */

static void check_conv(int height, int width, int channels, comet_conv2d conv) {
    comet_graph *g;
    comet_value x = input(&g, height, width, 3);
    x = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = channels, .kernel = 1, .bias = 1});
    classify(g, comet_graph_conv2d(g, "conv", x, &conv));
    check(g, 3);
}

static void test_conv(void **state) {
    (void)state;
    check_conv(7, 5, 4, (comet_conv2d){.out = 6, .kernel = 3, .padding = 1, .bias = 1});
    check_conv(8, 9, 5, (comet_conv2d){.out = 7, .kernel = 3, .stride = 2, .padding = 1});
    check_conv(6, 6, 3, (comet_conv2d){.out = 16, .kernel = 1, .stride = 2});
    check_conv(11, 7, 3, (comet_conv2d){.out = 8, .kernel = 7, .stride = 2, .padding = 3});
    check_conv(9, 6, 4,
               (comet_conv2d){.out = 5, .kernel = 5, .kernel_width = 2, .padding = 2, .padding_width = 1, .bias = 1});
    check_conv(6, 5, 16, (comet_conv2d){.out = 16, .kernel = 3, .padding = 1});
    check_conv(5, 5, 32, (comet_conv2d){.out = 16, .kernel = 1});
}

static void test_groups(void **state) {
    (void)state;
    check_conv(6, 5, 6, (comet_conv2d){.out = 4, .kernel = 3, .padding = 1, .groups = 2, .bias = 1});
    check_conv(6, 5, 9, (comet_conv2d){.out = 9, .kernel = 3, .padding = 1, .groups = 9});
    check_conv(7, 7, 16, (comet_conv2d){.out = 16, .kernel = 3, .stride = 2, .padding = 1, .groups = 16, .bias = 1});
    check_conv(8, 7, 20, (comet_conv2d){.out = 20, .kernel = 5, .stride = 2, .padding = 2, .groups = 20});
    check_conv(5, 5, 4, (comet_conv2d){.out = 12, .kernel = 3, .padding = 1, .groups = 4});
}

typedef comet_value (*unary)(comet_graph *, comet_value);

static comet_value two_norms(comet_graph *g, comet_value x) {
    return comet_graph_batch_norm_with(g, "bn", x, 1e-3f, 0.01f);
}

static comet_value norm_relu(comet_graph *g, comet_value x) {
    return comet_graph_relu(g, comet_graph_batch_norm(g, "bn", x));
}

static comet_value norm_relu_twice_used(comet_graph *g, comet_value x) {
    x = comet_graph_batch_norm(g, "bn", x);
    return comet_graph_add(g, comet_graph_relu(g, x), x);
}

static comet_value dropped(comet_graph *g, comet_value x) {
    return comet_graph_dropout(g, x, 0.4f);
}

static comet_value deep(comet_graph *g, comet_value x) {
    return comet_graph_stochastic_depth(g, x, 0.5f);
}

static comet_value squeezed(comet_graph *g, comet_value x) {
    comet_value s = comet_graph_adaptive_average_pool(g, x, 1, 1);
    s = comet_graph_conv2d(g, "se", s,
                           &(comet_conv2d){.out = comet_graph_shape(g, x).channels, .kernel = 1, .bias = 1});
    return comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, s));
}

static comet_value doubled(comet_graph *g, comet_value x) {
    return comet_graph_add(g, x, x);
}

static comet_value short_cut(comet_graph *g, comet_value x) {
    return comet_graph_shortcut(g, x, 2, comet_graph_shape(g, x).channels + 3);
}

static comet_value plain_cut(comet_graph *g, comet_value x) {
    return comet_graph_shortcut(g, x, 1, comet_graph_shape(g, x).channels);
}

static comet_value nothing(comet_graph *g, comet_value x) {
    (void)g;
    return x;
}

static void check_unary(unary op, int height, int width, int channels) {
    comet_graph *g;
    comet_value x = input(&g, height, width, 3);
    x = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = channels, .kernel = 1, .bias = 1});
    classify(g, op(g, x));
    check(g, 4);
}

static void test_elementwise(void **state) {
    (void)state;
    static const unary ops[] = {comet_graph_relu,
                                comet_graph_silu,
                                comet_graph_sigmoid,
                                two_norms,
                                norm_relu,
                                norm_relu_twice_used,
                                dropped,
                                deep,
                                squeezed,
                                doubled,
                                short_cut,
                                plain_cut,
                                nothing};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        check_unary(ops[i], 5, 3, 7);
        check_unary(ops[i], 4, 4, 16);
        check_unary(ops[i], 1, 1, 5);
    }
    check_unary(squeezed, 3, 3, 70); /* more than a strip of channels */
}

static void check_pool(int height, int width, int channels, int average, comet_pool2d pool) {
    comet_graph *g;
    comet_value x = input(&g, height, width, 2);
    x = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = channels, .kernel = 1, .bias = 1});
    classify(g, average ? comet_graph_average_pool(g, x, &pool) : comet_graph_max_pool(g, x, &pool));
    check(g, 3);
}

static void test_pools(void **state) {
    (void)state;
    for (int average = 0; average < 2; average++)
        for (int flags = 0; flags < 4; flags++) {
            const int ceil_mode = flags & 1, count_padding = flags >> 1;
            check_pool(8, 6, 5, average,
                       (comet_pool2d){.kernel = 2, .ceil_mode = ceil_mode, .count_padding = count_padding});
            check_pool(7, 9, 3, average, (comet_pool2d){3, 2, 1, ceil_mode, count_padding});
            check_pool(6, 8, 4, average, (comet_pool2d){3, 2, 0, ceil_mode, count_padding});
            check_pool(7, 7, 2, average, (comet_pool2d){5, 3, 2, ceil_mode, count_padding});
            check_pool(6, 7, 3, average, (comet_pool2d){2, 3, 1, ceil_mode, count_padding});
        }
    check_pool(5, 5, 67, 0, (comet_pool2d){.kernel = 3, .stride = 1, .padding = 1});
    check_pool(20, 20, 2, 0, (comet_pool2d){.kernel = 17, .stride = 2});
    check_pool(3, 3, 4, 0, (comet_pool2d){.kernel = 1, .stride = 2});
}

static void check_adaptive(int from_height, int from_width, int height, int width) {
    comet_graph *g;
    comet_value x = input(&g, from_height, from_width, 2);
    x = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = 6, .kernel = 1});
    classify(g, comet_graph_adaptive_average_pool(g, x, height, width));
    check(g, 2);
}

static void test_adaptive_pool(void **state) {
    (void)state;
    check_adaptive(7, 7, 1, 1);
    check_adaptive(7, 5, 3, 2);
    check_adaptive(3, 4, 6, 7);
    check_adaptive(6, 6, 6, 6);
}

/* ---- networks ---- */

/* Residual blocks, a projection, pooling, a branch used three times. */
static comet_graph *small_net(void) {
    comet_graph *g;
    comet_value x = input(&g, 9, 8, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 6, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_max_pool(g, x, &(comet_pool2d){.kernel = 3, .stride = 2, .padding = 1});
    comet_value y = comet_graph_conv2d(g, "block1.conv1", x, &(comet_conv2d){.out = 6, .kernel = 3, .padding = 1});
    y = comet_graph_relu(g, comet_graph_batch_norm(g, "block1.bn1", y));
    y = comet_graph_conv2d(g, "block1.conv2", y, &(comet_conv2d){.out = 6, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_add(g, comet_graph_batch_norm(g, "block1.bn2", y), x));
    y = comet_graph_conv2d(g, "block2.conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .stride = 2, .padding = 1});
    y = comet_graph_silu(g, comet_graph_batch_norm(g, "block2.bn1", y));
    y = comet_graph_conv2d(g, "block2.conv2", y, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1, .groups = 8});
    y = squeezed(g, comet_graph_batch_norm(g, "block2.bn2", y));
    comet_value z = comet_graph_conv2d(g, "block2.down", x, &(comet_conv2d){.out = 8, .kernel = 1, .stride = 2});
    z = comet_graph_add(g, comet_graph_batch_norm(g, "block2.down_bn", z), comet_graph_shortcut(g, x, 2, 8));
    x = comet_graph_relu(g, comet_graph_add(g, comet_graph_stochastic_depth(g, y, 0.3f), z));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_dropout(g, x, 0.2f), 5, 1));
    return g;
}

static void test_network(void **state) {
    (void)state;
    train_case c = case_new(small_net(), 6, 2, NULL);
    check_all(&c, 0);
    check_all(&c, 0.1f);
    case_free(&c);
}

/* Two batches added up are the sum of both; scaled by 1/2, the mean. */
static void test_accumulate(void **state) {
    (void)state;
    train_case c = case_new(small_net(), 4, 2, &(comet_plan_options){.batch = 4, .training = 1, .accumulate = 1});
    comet_step_options o = {.seed = 1, .step = 1};
    case_run(&c, &o);
    float *once[64];
    for (int i = 0; i < c.graph->parameter_count; i++) {
        const comet_parameter *p = &c.graph->parameters[i];
        once[i] = malloc((size_t)p->count * sizeof(float));
        if (p->gradient)
            memcpy(once[i], p->gradient, (size_t)p->count * sizeof(float));
    }
    o.gradient_scale = 0.5f;
    case_run(&c, &o);
    o.accumulate = 1;
    case_run(&c, &o);
    for (int i = 0; i < c.graph->parameter_count; i++) {
        const comet_parameter *p = &c.graph->parameters[i];
        for (int64_t k = 0; p->gradient && k < p->count; k++)
            if (!(fabs((double)(p->gradient[k] - once[i][k])) <= 1e-6 + 1e-5 * fabs((double)once[i][k])))
                fail_msg("%s[%lld]: %g, once %g", p->name, (long long)k, (double)p->gradient[k], (double)once[i][k]);
        free(once[i]);
    }
    case_free(&c);
}

/* The same bits again, and gradients that do not depend on the number of threads beyond rounding. */
static void test_deterministic(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        train_case a = case_new(small_net(), 5, threads, NULL), b = case_new(small_net(), 5, threads, NULL);
        comet_step_result x = case_run(&a, NULL), y = case_run(&b, NULL);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        for (int i = 0; i < a.graph->parameter_count; i++) {
            const comet_parameter *p = &a.graph->parameters[i], *q = &b.graph->parameters[i];
            assert_memory_equal(p->value, q->value, (size_t)p->count * sizeof(float));
            if (p->gradient)
                assert_memory_equal(p->gradient, q->gradient, (size_t)p->count * sizeof(float));
        }
        case_free(&a);
        case_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),       cmocka_unit_test(test_groups),        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_pools),      cmocka_unit_test(test_adaptive_pool), cmocka_unit_test(test_network),
        cmocka_unit_test(test_accumulate), cmocka_unit_test(test_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
