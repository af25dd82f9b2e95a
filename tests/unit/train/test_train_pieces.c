/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution whose batch is copied in pieces gives what its samples give one by one. */
#include "test_train_case.h"

#include <math.h>

enum { SAMPLES = 4, SIDE = 96, CHANNELS = 64 }; /* in and out 4.5 MiB a sample: more than is copied at a time */

static comet_graph *wide_net(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, SIDE, SIDE, 3);
    x = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = CHANNELS, .kernel = 1, .bias = 1});
    x = comet_graph_conv2d(g, "conv", x, &(comet_conv2d){.out = CHANNELS, .kernel = 3, .padding = 1, .bias = 1});
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, comet_graph_silu(g, x), 3, 3));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

static void check_parameter(const comet_parameter *whole, const comet_parameter *mean) {
    double greatest = 0;
    for (int64_t k = 0; k < whole->count; k++)
        greatest = fmax(greatest, fabs((double)whole->gradient[k]));
    assert_true(greatest > 0);
    for (int64_t k = 0; k < whole->count; k++)
        if (!(fabs((double)(whole->gradient[k] - mean->gradient[k])) <= 1e-5 * greatest))
            fail_msg("%s[%lld]: %g, one by one %g", whole->name, (long long)k, (double)whole->gradient[k],
                     (double)mean->gradient[k]);
}

static void test_pieces(void **state) {
    (void)state;
    train_case whole = case_new(wide_net(), SAMPLES, 2, NULL),
               one = case_new(wide_net(), 1, 2, &(comet_plan_options){.batch = 1, .training = 1, .accumulate = 1});
    const double loss = case_run(&whole, NULL).loss;
    double mean = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const size_t count = (size_t)SIDE * SIDE * 3;
        memcpy(one.input, whole.input + (size_t)i * count, count * sizeof *one.input);
        one.labels[0] = whole.labels[i];
        mean +=
            case_run(&one, &(comet_step_options){.gradient_scale = 1.0f / SAMPLES, .accumulate = i > 0}).loss / SAMPLES;
    }
    assert_true(fabs(loss - mean) <= 1e-6 * fabs(mean));
    for (int i = 0; i < whole.graph->parameter_count; i++)
        check_parameter(&whole.graph->parameters[i], &one.graph->parameters[i]);
    case_free(&whole);
    case_free(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
