/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen layers: gradients of the others are those of the network without frozen layers, bit by bit, and what only
 * frozen ones would need is neither computed nor saved.
 */
#include "test_train_frozen.h"

#include "train/plan/forms.h"

enum { IMAGES = 4 };

static comet_value conv(comet_graph *g, const char *name, comet_value x, int out, int kernel, int bias) {
    return comet_graph_conv2d(g, name, x,
                              &(comet_conv2d){.out = out, .kernel = kernel, .padding = kernel / 2, .bias = bias});
}

static comet_value norm(comet_graph *g, const char *name, comet_value x) {
    return comet_graph_relu(g, comet_graph_batch_norm(g, name, x));
}

/* Norms with a ReLU and a SiLU, a pool, residual blocks with and without a projection, squeeze-excite, dropout. */
static comet_graph *network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 8, 8, 3);
    x = norm(g, "bn1", conv(g, "conv1", x, 8, 3, 1));
    x = comet_graph_max_pool(g, x, &(comet_pool2d){.kernel = 3, .stride = 2, .padding = 1});
    comet_value y = norm(g, "block1.bn1", conv(g, "block1.conv1", x, 8, 3, 0));
    y = comet_graph_batch_norm(g, "block1.bn2", conv(g, "block1.conv2", y, 8, 3, 0));
    x = comet_graph_relu(g, comet_graph_add(g, y, x));
    comet_value z = comet_graph_batch_norm(g, "block2.down_bn", conv(g, "block2.down", x, 16, 1, 0));
    y = comet_graph_silu(g, comet_graph_batch_norm(g, "block2.bn1", conv(g, "block2.conv1", x, 16, 3, 0)));
    comet_value s = comet_graph_adaptive_average_pool(g, y, 1, 1);
    s = comet_graph_silu(g, conv(g, "block2.se1", s, 4, 1, 1));
    y = comet_graph_scale_channels(g, y, comet_graph_sigmoid(g, conv(g, "block2.se2", s, 16, 1, 1)));
    y = comet_graph_batch_norm(g, "block2.bn2", conv(g, "block2.conv2", y, 16, 1, 0));
    x = comet_graph_relu(g, comet_graph_add(g, z, comet_graph_stochastic_depth(g, y, 0.3f)));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    x = comet_graph_relu(g, comet_graph_linear(g, "fc1", x, 12, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_dropout(g, x, 0.2f), 5, 1));
    return g;
}

/* The same network, the same batch, some of it frozen. */
static train_case frozen_case(const char *patterns, const char *form, int accumulate) {
    comet_graph *g = network();
    comet_message message;
    comet_forms *forms = NULL;
    if (patterns)
        assert_done(comet_graph_freeze(g, patterns, &message), message);
    assert_done(comet_forms_new(form, 0.1, NULL, NULL, &forms, &message), message);
    const comet_plan_options o = {
        .batch = IMAGES, .training = 1, .accumulate = accumulate, .choose = comet_forms_choose, .context = forms};
    train_case c = case_new(g, IMAGES, 2, &o);
    comet_forms_free(forms);
    return c;
}

static void run_twice(train_case *c, int accumulate) {
    comet_step_options o = {.seed = 1, .step = 1};
    case_run(c, &o);
    o.accumulate = accumulate;
    o.step = 2;
    case_run(c, &o);
}

static void check_gradients(const train_case *frozen, const train_case *whole, const char *what) {
    for (int i = 0; i < frozen->graph->parameter_count; i++) {
        const comet_parameter *p = &frozen->graph->parameters[i], *q = &whole->graph->parameters[i];
        const size_t bytes = (size_t)p->count * sizeof(float);
        if (memcmp(p->value, q->value, bytes) != 0)
            fail_msg("%s: forward left another %s", what, p->name);
        if (p->frozen && p->gradient)
            fail_msg("%s: %s is frozen and has a gradient", what, p->name);
        if (p->gradient && memcmp(p->gradient, q->gradient, bytes) != 0)
            fail_msg("%s: another gradient of %s", what, p->name);
    }
}

static void check_one(const char *patterns, const char *form, int accumulate) {
    char what[200];
    snprintf(what, sizeof what, "'%s' frozen, %s%s", patterns, form, accumulate ? ", accumulated" : "");
    train_case frozen = frozen_case(patterns, form, accumulate), whole = frozen_case(NULL, form, accumulate);
    run_twice(&frozen, accumulate);
    run_twice(&whole, accumulate);
    check_gradients(&frozen, &whole, what);
    case_free(&frozen);
    case_free(&whole);
}

/*
 * From the front, to the last layer, in the middle, one branch alone, single parameters. All forms are exact ones, so
 * that it does not matter that the output of a frozen part is held itself and not rebuilt from a norm's input.
 */
static void test_gradients(void **state) {
    (void)state;
    static const char *const patterns[] = {"conv1",
                                           "bn1",
                                           "conv1,bn1",
                                           "conv1,bn1,block1.*",
                                           "conv1,bn1,block1.*,block2.*",
                                           "*,!fc",
                                           "*,!block2.down*",
                                           "*,!block2.se2",
                                           "*,!block1.bn2",
                                           "block1.*",
                                           "block2.conv2,block2.bn2,fc",
                                           "block2.se1,fc1",
                                           "conv1.bias,fc.bias,block2.se2.bias",
                                           "bn1.weight,block1.bn1.bias",
                                           "fc.weight"};
    static const char *const forms[] = {"none", "eb:0", "eb:0+offload", "zvc", "offload", "recompute"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            check_one(patterns[i], forms[k], 0);
            check_one(patterns[i], forms[k], 1);
        }
}

/* With loss: where the same tensors are held, the gradients are the same, too. */
static void test_gradients_with_loss(void **state) {
    (void)state;
    static const char *const patterns[] = {"block1.conv2,block1.bn2", "block2.*", "fc", "block1.bn1"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        check_one(patterns[i], "eb:0.1", 0);
}

/* The sum of a bias's gradient alone is formed in another order than beside the weights'. */
static void test_bias_alone(void **state) {
    (void)state;
    train_case frozen = frozen_case("*,!conv1.bias", "none", 0), whole = frozen_case(NULL, "none", 0);
    run_twice(&frozen, 0);
    run_twice(&whole, 0);
    const comet_parameter *found = comet_graph_parameter_named(frozen.graph, "conv1.bias"),
                          *expected = comet_graph_parameter_named(whole.graph, "conv1.bias");
    double most = 0;
    for (int64_t i = 0; i < found->count; i++)
        most = fmax(most, fabs((double)expected->gradient[i]));
    for (int64_t i = 0; i < found->count; i++) /* before a norm it is rounding alone: of sums of about 1 */
        assert_true(fabs((double)(found->gradient[i] - expected->gradient[i])) < 1e-6 + 1e-5 * most);
    case_free(&frozen);
    case_free(&whole);
}

/* ---- what is saved ---- */

static const comet_plan_entry *entry_of(const comet_plan *plan, const char *name, comet_saved_kind kind) {
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        if (e->kind == kind && strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

/* All but the last layer: what it reads, and nothing else. */
static void test_last_layer_alone(void **state) {
    (void)state;
    train_case c = frozen_case("*,!fc", "none", 0), whole = frozen_case(NULL, "none", 0);
    const comet_plan_bytes few = comet_plan_get_bytes(c.plan, NULL), all = comet_plan_get_bytes(whole.plan, NULL);
    assert_int_equal(comet_plan_entries(c.plan), 1);
    assert_int_equal(few.saved_raw_bytes, IMAGES * 12 * sizeof(float));
    int64_t weights = 0, values = 0;
    for (int i = 0; i < c.graph->parameter_count; i++) {
        const comet_parameter *p = &whole.graph->parameters[i];
        const int64_t bytes = (p->count * (int64_t)sizeof(float) + 63) / 64 * 64; /* as they are aligned */
        values += bytes;
        weights += p->gradient ? bytes : 0;
    }
    assert_int_equal(all.static_bytes, values + weights);
    assert_int_equal(few.static_bytes, values + 5 * 12 * 4 + 16 + 64); /* fc's weight and bias */
    assert_true(few.buffer_bytes < all.buffer_bytes / 2);
    case_free(&c);
    case_free(&whole);
}

/* A frozen layer behind trained ones needs its weights for dx, a frozen norm what it is made of. */
static void test_frozen_in_the_middle(void **state) {
    (void)state;
    train_case c = frozen_case("block1.conv2,block1.bn1", "none", 0), whole = frozen_case(NULL, "none", 0);
    /* block1.bn1's output: conv2's input, and its ReLU's mask, which comes from the norm's input. */
    assert_non_null(entry_of(whole.plan, "block1.bn1", COMET_SAVED_VALUE));
    assert_null(entry_of(c.plan, "block1.bn1", COMET_SAVED_VALUE));
    assert_non_null(entry_of(c.plan, "block1.conv1", COMET_SAVED_VALUE));
    assert_non_null(entry_of(c.plan, "block1.bn1", COMET_SAVED_SIDE));
    assert_int_equal(comet_plan_entries(whole.plan), comet_plan_entries(c.plan) + 1);
    case_free(&c);
    case_free(&whole);
}

/* What is computed again begins at the output of the frozen part, which is held in place of the input. */
static void test_nothing_frozen_is_made_again(void **state) {
    (void)state;
    train_case c = frozen_case("conv1,bn1,block1.*", "recompute", 0);
    assert_null(entry_of(c.plan, "input", COMET_SAVED_VALUE));
    for (int i = 0; i < c.plan->load_count; i++)
        if (c.plan->load_list[i].entry < 0)
            assert_true(c.plan->value_trained[c.plan->nodes[c.plan->load_list[i].node].output]);
    assert_true(c.plan->computes_again);
    case_free(&c);
}

/* ---- trainers ---- */

static void check_trainer(const char *freeze, const char *codec, const char *control, comet_optimiser_kind optimiser) {
    comet_trainer_options o = options_for("resnet8", codec);
    o.optimiser = comet_optimiser_default(optimiser);
    o.control = control;
    comet_trainer *freed = trainer_of(&o);
    o.freeze = freeze;
    comet_trainer *frozen = trainer_of(&o);
    for (uint64_t i = 0; i < 3; i++)
        train_both(frozen, freed, i);
    check_same(frozen, freed);
    const comet_trainer_bytes few = comet_trainer_get_bytes(frozen), all = comet_trainer_get_bytes(freed);
    assert_true(few.saved_raw_bytes < all.saved_raw_bytes);
    assert_true(few.static_bytes < all.static_bytes);
    assert_true(few.allocated_peak_bytes < all.allocated_peak_bytes);
    comet_trainer_free(frozen);
    comet_trainer_free(freed);
}

static void test_trainers(void **state) {
    (void)state;
    check_trainer("conv1,bn1,layer1.*", "none", NULL, COMET_SGD);
    check_trainer("*,!fc", "none", NULL, COMET_ADAMW);
    check_trainer("*,!fc,!layer3.*", "eb:0", NULL, COMET_SGD);
    check_trainer("conv1,bn1,layer1.*,layer3.0.conv1", "recompute", NULL, COMET_ADAMW);
    check_trainer("conv1,bn1", "offload", NULL, COMET_SGD);
}

/* Every controller: frozen weights stay, others do not, and what is left is under its control. */
static void test_controllers(void **state) {
    (void)state;
    static const char *const controls[] = {"comet:warmup=1:every=1", "comet:mean:warmup=1:every=1",
                                           "comet:paper:warmup=1:every=1", "acgc:warmup=1:every=1",
                                           "budget:warmup=1:every=1"};
    for (size_t k = 0; k < sizeof controls / sizeof *controls; k++) {
        comet_trainer_options o = options_for("resnet8", "eb");
        o.control = controls[k];
        o.freeze = "conv1,bn1,layer1.*,layer2.0.conv1,layer3.0.bn2";
        comet_trainer *t = trainer_of(&o);
        comet_graph *g = comet_trainer_graph(t);
        float *before[64];
        for (int i = 0; i < comet_graph_parameters(g); i++)
            before[i] = values_of(g, comet_graph_parameter(g, i));
        double first = train(t, 0, 0.05).loss, last = first;
        for (int i = 0; i < 8; i++)
            last = train(t, 0, 0.05).loss;
        assert_true(last < first);
        for (int i = 0; i < comet_graph_parameters(g); i++) {
            const comet_parameter *p = comet_graph_parameter(g, i);
            assert_int_equal(p->frozen, memcmp(p->value, before[i], (size_t)p->count * sizeof(float)) == 0);
            free(before[i]);
        }
        comet_trainer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradients_with_loss),
        cmocka_unit_test(test_bias_alone),
        cmocka_unit_test(test_last_layer_alone),
        cmocka_unit_test(test_frozen_in_the_middle),
        cmocka_unit_test(test_nothing_frozen_is_made_again),
        cmocka_unit_test(test_trainers),
        cmocka_unit_test(test_controllers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
