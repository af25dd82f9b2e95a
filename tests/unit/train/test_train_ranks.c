/* SPDX-License-Identifier: Apache-2.0 */
/* Trainers of one network that reduce their gradients between the two calls of an update. */
#include "unit/train/test_train_trainer.h"

/* ---- steps: what is random counts samples over all ranks ---- */

enum { RANKS = 3, SHARE = 4 };

/* Without batch norm, whose statistics are each rank's own. 75 values a sample before dropout: no multiple of four. */
static comet_graph *random_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 5, 5, 3);
    x = comet_graph_dropout(g, x, 0.3f);
    comet_value y = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 3, .kernel = 3, .padding = 1, .bias = 1});
    x = comet_graph_relu(g, comet_graph_add(g, x, comet_graph_stochastic_depth(g, y, 0.4f)));
    x = comet_graph_dropout(g, comet_graph_flatten(g, x), 0.5f);
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 4, 1));
    return g;
}

static void run_rank(train_case *c, const train_case *whole, int rank) {
    const int64_t values = comet_shape_count(c->graph->values[c->graph->input].shape) * c->batch;
    for (int i = 0; i < c->graph->parameter_count; i++)
        memcpy(c->graph->parameters[i].value, whole->graph->parameters[i].value,
               (size_t)c->graph->parameters[i].count * sizeof(float));
    memcpy(c->input, whole->input + rank * values, (size_t)values * sizeof *c->input);
    memcpy(c->labels, whole->labels + rank * c->batch, (size_t)c->batch * sizeof *c->labels);
    case_run(c, &(comet_step_options){.seed = 3, .step = 9, .rank = rank});
}

/* The mean of the ranks' gradients is that of one process with all samples, but for rounding. */
static void check_ranks(double *bound) {
    const comet_plan_options o = {.training = 1, .choose = bound ? comet_plan_choose_eb : NULL, .context = bound};
    comet_plan_options all = o, some = o;
    all.batch = RANKS * SHARE;
    some.batch = SHARE;
    train_case whole = case_new(random_network(), all.batch, 1, &all),
               part = case_new(random_network(), SHARE, 1, &some);
    case_run(&whole, &(comet_step_options){.seed = 3, .step = 9});
    int64_t count;
    const float *expected = comet_graph_gradients(whole.graph, &count);
    double *mean = calloc((size_t)count, sizeof *mean), squares = 0, wrong = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        run_rank(&part, &whole, rank);
        const float *found = comet_graph_gradients(part.graph, &count);
        for (int64_t i = 0; i < count; i++)
            mean[i] += (double)found[i] / RANKS;
    }
    for (int64_t i = 0; i < count; i++) {
        squares += pow((double)expected[i], 2);
        wrong += pow((double)expected[i] - mean[i], 2);
    }
    assert_true(squares > 0 && wrong <= 1e-12 * squares);
    free(mean);
    case_free(&whole);
    case_free(&part);
}

static void test_steps(void **state) {
    (void)state;
    double lossless = 0;
    check_ranks(NULL);
    check_ranks(&lossless);
}

/* The same samples under another rank are dropped in another way. */
static void test_ranks_differ(void **state) {
    (void)state;
    const comet_plan_options o = {.batch = SHARE, .training = 1};
    train_case c = case_new(random_network(), SHARE, 1, &o);
    const double first = case_run(&c, &(comet_step_options){.seed = 3, .step = 9}).loss;
    assert_true(case_run(&c, &(comet_step_options){.seed = 3, .step = 9}).loss == first);
    assert_true(case_run(&c, &(comet_step_options){.seed = 3, .step = 9, .rank = 1}).loss != first);
    case_free(&c);
}

/* ---- trainers ---- */

static comet_trainer_result gradients_of(comet_trainer *t, uint64_t seed) {
    const batch b = make_batch(seed);
    comet_trainer_result result;
    comet_message message;
    assert_done(comet_trainer_gradients(t, b.pixels, b.labels, &result, &message), message);
    return result;
}

static void reduce(comet_trainer *a, comet_trainer *b) {
    comet_trainer_pending x = comet_trainer_get_pending(a), y = comet_trainer_get_pending(b);
    assert_int_equal(x.gradient_count, y.gradient_count);
    for (int64_t i = 0; i < x.gradient_count; i++)
        x.gradients[i] = y.gradients[i] = (x.gradients[i] + y.gradients[i]) / 2;
    *x.loss = *y.loss = (*x.loss + *y.loss) / 2;
    *x.flawed = *y.flawed = *x.flawed | *y.flawed;
}

static void update(comet_trainer *t, comet_trainer_result *result) {
    comet_message message;
    assert_done(comet_trainer_update(t, 0.05, 0, result, &message), message);
    assert_true(result->updated);
}

/* Trained weights, not running statistics. */
static int same_weights(comet_trainer *a, comet_trainer *b) {
    comet_graph *g = comet_trainer_graph(a), *h = comet_trainer_graph(b);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i), *q = comet_graph_parameter(h, i);
        if (p->gradient && memcmp(p->value, q->value, (size_t)p->count * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

/* Two that see other batches stay the same network, under a controller too, and are not what one alone becomes. */
static void test_reduced(void **state) {
    (void)state;
    static const char *const controllers[] = {NULL, "comet:warmup=1:every=1"};
    for (int k = 0; k < 2; k++) {
        comet_trainer_options o = options_for("resnet8", k ? "eb" : "none");
        o.control = controllers[k];
        o.accumulate = 2;
        comet_trainer *alone = trainer_of(&o), *first = trainer_of(&o);
        o.rank = 1;
        comet_trainer *second = trainer_of(&o);
        for (uint64_t i = 0; i < 6; i++) {
            comet_trainer_result x = gradients_of(first, 2 * i), y = gradients_of(second, 2 * i + 1);
            assert_int_equal(x.complete, i % 2);
            assert_int_equal(y.complete, i % 2);
            train(alone, 2 * i, 0.05);
            if (!x.complete)
                continue;
            reduce(first, second);
            update(first, &x);
            update(second, &y);
            assert_true(same_weights(first, second));
        }
        assert_false(same_weights(first, alone));
        comet_trainer_free(alone);
        comet_trainer_free(first);
        comet_trainer_free(second);
    }
}

/* What one of them finds is known to all: none makes the update. */
static void test_flaws(void **state) {
    (void)state;
    static const char *const controllers[] = {NULL, "comet:warmup=1:every=1"};
    for (int k = 0; k < 2; k++) {
        comet_trainer_options o = options_for("resnet8", k ? "eb" : "none");
        o.control = controllers[k];
        comet_trainer *first = trainer_of(&o), *second = trainer_of(&o);
        comet_graph *g = comet_trainer_graph(second);
        comet_message message;
        comet_graph_parameter_named(g, "bn1.running_var")->value[0] = INFINITY;
        comet_trainer_result x = gradients_of(first, 1), y = gradients_of(second, 2);
        assert_true(*comet_trainer_get_pending(second).flawed && !*comet_trainer_get_pending(first).flawed);
        reduce(first, second);
        const comet_status expected = k ? COMET_OK : COMET_ERROR_DIVERGED;
        assert_int_equal(comet_trainer_update(first, 0.05, 0, &x, &message), expected);
        assert_true(k || strstr(message.text, "another trainer"));
        assert_int_equal(comet_trainer_update(second, 0.05, 0, &y, &message), expected);
        assert_true(!x.updated && !y.updated && same_weights(first, second));
        comet_trainer_free(first);
        comet_trainer_free(second);
    }
}

/* One after the other, the two calls are the one. */
static void test_two_calls(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "eb:0.3");
    comet_trainer *a = trainer_of(&o), *b = trainer_of(&o);
    comet_message message;
    for (uint64_t i = 0; i < 3; i++) {
        const comet_trainer_result one = train(a, i, 0.05);
        comet_trainer_result two = gradients_of(b, i);
        assert_int_equal(two.updated, 0);
        update(b, &two);
        assert_true(one.loss == two.loss && one.mean_momentum == two.mean_momentum);
    }
    assert_true(digest(a) == digest(b));
    comet_trainer_free(a);
    comet_trainer_free(b);
    comet_trainer_options accumulated = o;
    accumulated.accumulate = 2;
    a = trainer_of(&accumulated);
    comet_trainer_result result = gradients_of(a, 1);
    assert_int_equal(comet_trainer_update(a, 0.05, 0, &result, &message), COMET_ERROR_ARGUMENT); /* half of it */
    comet_trainer_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps), cmocka_unit_test(test_ranks_differ), cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_flaws), cmocka_unit_test(test_two_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
