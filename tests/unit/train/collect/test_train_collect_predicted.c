/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a collector's statistics, against the errors of the gradients as they are. */
#include "support/effort.h"
#include "unit/train/collect/test_train_collect_case.h"

/* ---- predicted and measured ---- */

/*
 * A norm's gamma has 8 errors a step: a sigma measured once may be off by a quarter. So variances are summed over
 * many steps, with other weights and images, and at several bounds around the one given, whose errors have nothing in
 * common. What is left of chance is 1 to 4 %, twice that where there are few: tolerances are three times as much.
 */
enum { SEEDS = EFFORT_SLOW ? 8 : 24, BOUNDS = 4, MOST_GRADIENTS = 3 };
static const double predicted_tolerance = EFFORT_SLOW ? 0.2 : 0.1;

/* One tensor compressed, all others as they are. */
typedef struct prediction {
    comet_graph *(*network)(void);
    const char *tensor;
    double slope, error_rel; /* `slope`: how much smooth images change from pixel to pixel; 0: noise */
    const char *gradients[MOST_GRADIENTS];
    double expected;       /* predicted over measured sigma */
    int rounds;            /* times as many seeds: where errors are alike, few of them are independent */
    const char *depthwise; /* of the gradients, that of a depthwise convolution */
} prediction;

typedef struct variances {
    double predicted, measured;
} variances;

/* Of the one tensor there is. */
static void set_bound(train_case *c, comet_bound_kind kind, double bound) {
    for (int i = 0; i < comet_plan_entries(c->plan); i++)
        if (comet_plan_get_entry(c->plan, i)->form.form == COMET_FORM_CODEC)
            comet_learned_set_bound(c->learned, i, kind, bound);
}

static float *gradient_copy(const comet_parameter *p) {
    float *copy = malloc((size_t)p->count * sizeof *copy);
    memcpy(copy, p->gradient, (size_t)p->count * sizeof *copy);
    return copy;
}

/* Of the one tensor there is: the uses that reach a parameter are taken as independent. */
static double predicted_variance(comet_collect *collect, const comet_graph *g, const char *parameter) {
    int32_t count;
    const comet_control_tensor *tensor = comet_collect_tensors(collect, &count);
    const comet_collect_update update = any_update();
    const comet_control_observation *o = comet_collect_observation(collect, &update, 0);
    double variance = 0;
    assert_int_equal(count, 1);
    assert_non_null(o);
    for (int32_t i = 0; i < tensor->use_count; i++)
        if (strcmp(g->parameters[tensor->uses[i].gradient].name, parameter) == 0)
            variance += pow(comet_error_sigma(comet_error_sensitivity(tensor->uses[i].kind, &o->uses[i]), NULL,
                                              o->sizes[0].bound, o->rms),
                            2);
    assert_true(variance > 0);
    return variance;
}

static double measured_variance(const comet_parameter *p, const float *exact) {
    double off = 0;
    for (int64_t i = 0; i < p->count; i++)
        off += pow((double)p->gradient[i] - (double)exact[i], 2) / (double)p->count;
    return off;
}

/*
 * A depthwise convolution's weights see one channel each, but means over channels of the derivative and of the
 * gradient are multiplied (docs/theory.md, 8): what that makes of the variance, from sums of each channel.
 */
static double product_of_means(const comet_graph *g, const prediction *p) {
    const int norm = node_named(g, p->tensor), conv = norm + 2, channels = g->nodes[conv].as.conv.groups;
    const float *gamma = g->parameters[g->nodes[norm].parameter[COMET_PARAMETER_WEIGHT]].value;
    double derivative = 0, gradient = 0, both = 0;
    assert_true(g->nodes[conv].kind == COMET_OP_CONV && channels > 1);
    for (int k = 0; k < channels; k++) {
        const double slope = pow((double)gamma[k], 2) * saw[norm + 1].slope[k] / channels;
        derivative += slope;
        gradient += saw[conv].dy_channel[k] / channels;
        both += slope * saw[conv].dy_channel[k];
    }
    return derivative * gradient / both;
}

/* A seed's steps. */
static void measure(train_case *c, comet_collect *collect, const prediction *p, variances *sums) {
    const comet_parameter *parameters[MOST_GRADIENTS] = {0};
    float *exact[MOST_GRADIENTS] = {0};
    set_bound(c, COMET_BOUND_ABSOLUTE, 0);
    case_run(c, NULL);
    for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
        parameters[k] = comet_graph_parameter_named(c->graph, p->gradients[k]);
        exact[k] = gradient_copy(parameters[k]);
    }
    for (int i = 0; i < BOUNDS; i++) {
        set_bound(c, COMET_BOUND_RELATIVE, p->error_rel * (0.88 + 0.08 * i));
        memset(saw, 0, sizeof saw);
        comet_collect_begin(collect);
        case_run(c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
            const int is_depthwise = p->depthwise && strcmp(p->depthwise, p->gradients[k]) == 0;
            sums[k].measured += measured_variance(parameters[k], exact[k]);
            sums[k].predicted += predicted_variance(collect, c->graph, p->gradients[k]) /
                                 (is_depthwise ? product_of_means(c->graph, p) : 1);
        }
    }
    for (int k = 0; k < MOST_GRADIENTS; k++)
        free(exact[k]);
}

static void check_prediction(const prediction *p) {
    wish one = {p->tensor, p->error_rel};
    train_case c = case_on(1, p->network(), 32, &one); /* small layers: a second thread would only wait */
    variances sums[MOST_GRADIENTS] = {{0, 0}};
    comet_collect *collect;
    int wrong = 0;
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    if (p->depthwise)
        watch(&c);
    for (uint64_t seed = 1; seed <= (uint64_t)(p->rounds * SEEDS); seed++) {
        draw_case(&c, seed);
        if (p->slope > 0)
            smooth_input(&c, p->slope, seed);
        measure(&c, collect, p, sums);
    }
    for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
        const double ratio = sqrt(sums[k].predicted / sums[k].measured);
        print_message("%s in the gradient of %s: predicted / measured sigma %.3f\n", p->tensor, p->gradients[k], ratio);
        wrong += !(fabs(ratio / p->expected - 1) < predicted_tolerance);
    }
    assert_int_equal(wrong, 0);
    comet_collect_free(collect);
    case_free(&c);
}

static void test_predicted(void **state) {
    (void)state;
    const prediction all[] = {
        {plain_network, "bn1", 0, 0.1, {"conv2.weight", "bn1.weight"}, 1, 1, NULL},
        {plain_network, "bn2", 0, 0.1, {"conv3.weight", "bn2.weight", "conv2.weight"}, 1, 1, NULL},
        {plain_network, "bn3", 0, 0.1, {"conv3.weight"}, 1, 1, NULL},
        /* Of a batch norm's dX, where the inputs of a convolution are far from independent. */
        {plain_network, "bn1", 0.8, 0.1, {"conv1.weight"}, 1, 1, NULL},
        {plain_network, "bn2", 0.8, 0.1, {"conv2.weight"}, 1, 1, NULL},
        /* Bounds coarser than what smooth maps change from pixel to pixel: errors of neighbours are alike. */
        {pooled_network, "bn1", 0.2, 0.3, {"conv2.weight"}, 1, 4, NULL},
        /* And their mean is not 0, which shows where gradients do not add up to 0 (docs/theory.md, 5). */
        {pooled_network_without_norm, "bn1", 0.2, 0.3, {"conv2.weight"}, 0.88, 4, NULL},
        {curved_network, "bn1", 0, 0.1, {"conv2.weight", "bn1.weight", "conv1.weight"}, 1, 1, "conv2.weight"},
        {curved_network, "bn2", 0, 0.1, {"conv3.weight", "fc2.weight"}, 1, 2, NULL},
        {curved_network, "fc1", 0, 0.1, {"fc1.weight"}, 1, 3, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_prediction(&all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_predicted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
