/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SGD and AdamW: sequences worked out by hand, a second implementation in double, bits that do not depend on threads.
 * tests/train compares with torch.optim where it is installed.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/rng.h"
#include "train/optimiser/optimiser.h"
#include "unit/train/cpu_update.h"

static comet_message message;

static void near(double got, double expected) {
    if (fabs(got - expected) > 6e-7 * (fabs(expected) + 1.0))
        fail_msg("%.9g, expected %.9g", got, expected);
}

static comet_parameter parameter(comet_parameter_kind kind, float *value, float *gradient, int64_t count) {
    return (comet_parameter){
        .name = "p", .kind = kind, .ndim = 1, .shape = {count}, .count = count, .value = value, .gradient = gradient};
}

/* Values of one weight that begins at 1, after each of three steps at rate 0.1 with gradients 1, 2, -1. */
static void follow(const comet_optimiser *o, const double expected[3]) {
    static const float gradients[3] = {1.0f, 2.0f, -1.0f};
    float value = 1.0f, gradient, state[2] = {0};
    comet_parameter p = parameter(COMET_CONV_WEIGHT, &value, &gradient, 1);
    assert_ok(comet_optimiser_check(o, &message));
    for (int i = 0; i < 3; i++) {
        comet_optimiser_step step = {.number = i + 1, .learning_rate = 0.1, .gradient_scale = 1.0};
        gradient = gradients[i];
        cpu_update(o, &step, &p, 1, state, NULL, NULL);
        near((double)value, expected[i]);
        assert_true(gradient == gradients[i]);
    }
}

static void test_by_hand(void **state) {
    (void)state;
    comet_optimiser o = {.kind = COMET_SGD};
    follow(&o, (double[]){0.9, 0.7, 0.8});
    o.momentum = 0.9; /* buffers 1, 2.9, 1.61 */
    follow(&o, (double[]){0.9, 0.61, 0.449});
    o.nesterov = 1; /* directions 1.9, 2 + 0.9 * 2.9 = 4.61, -1 + 0.9 * 1.61 = 0.449 */
    follow(&o, (double[]){0.81, 0.349, 0.3041});
    o = (comet_optimiser){.kind = COMET_SGD, .momentum = 0.5, .weight_decay = 0.1};
    /* 1.1 -> 0.89; 0.55 + 2.089 = 2.639 -> 0.6261; 1.3195 - 1 + 0.06261 = 0.38211 -> 0.587889 */
    follow(&o, (double[]){0.89, 0.6261, 0.587889});
    o = comet_optimiser_default(COMET_ADAMW);
    o.weight_decay = 0.0;
    /* first step: -rate * g / |g|; then m = 0.29 / 0.19, v = 0.004999 / 0.001999; then m = 0.161 / 0.271, ... */
    double second = 0.9 - 0.1 * (0.29 / 0.19) / sqrt(0.004999 / 0.001999);
    double third = second - 0.1 * (0.161 / 0.271) / sqrt(0.005994001 / 0.002997001);
    follow(&o, (double[]){0.9, second, third});
    o.weight_decay = 0.5; /* each value is multiplied by 0.95 first */
    follow(&o,
           (double[]){0.95 - 0.1, 0.95 * 0.85 + second - 0.9, 0.95 * (0.95 * 0.85 + second - 0.9) + third - second});
}

static void test_scale_and_kinds(void **state) {
    (void)state;
    float value[3] = {1.0f, 1.0f, 5.0f}, gradient[2] = {4.0f, 4.0f}, buffers[2] = {0};
    comet_parameter p[3] = {parameter(COMET_CONV_WEIGHT, &value[0], &gradient[0], 1),
                            parameter(COMET_RUNNING_MEAN, &value[2], NULL, 1),
                            parameter(COMET_NORM_BIAS, &value[1], &gradient[1], 1)};
    double means[3] = {7, 7, 7};
    comet_optimiser o = {.kind = COMET_SGD, .momentum = 0.9, .weight_decay = 1.0, .decay_weights_only = 1};
    comet_optimiser_step step = {.number = 1, .learning_rate = 0.1, .gradient_scale = 0.25};
    assert_int_equal(comet_optimiser_count(p, 3), 2);
    assert_int_equal(comet_optimiser_bytes(&o, p, 3), 8);
    cpu_update(&o, &step, p, 3, buffers, means, NULL);
    near((double)value[0], 0.8); /* 1 of the gradient, 1 of the decay */
    near((double)value[1], 0.9);
    assert_true(value[2] == 5.0f && buffers[0] == 2.0f && buffers[1] == 1.0f);
    assert_true(means[0] == 2.0 && means[1] == 0.0 && means[2] == 1.0);
    step.momentum = 0.5; /* of this step */
    cpu_update(&o, &step, p, 3, buffers, means, NULL);
    assert_true(buffers[1] == 1.5f && means[2] == 1.5);
    o = (comet_optimiser){.kind = COMET_SGD};
    assert_int_equal(comet_optimiser_bytes(&o, p, 3), 0);
    cpu_update(&o, &step, p, 3, NULL, means, NULL);
    assert_true(means[0] == 1.0);
    o = comet_optimiser_default(COMET_ADAMW);
    assert_int_equal(comet_optimiser_bytes(&o, p, 3), 16);
    assert_string_equal(comet_optimiser_array_name(&o, 1), "second_moment");
}

/* What is not finite after an update is named: values and both kinds of state, wherever they are. */
static void test_not_finite(void **state) {
    (void)state;
    enum { COUNT = 40000 }; /* more than a block, and than one worker's */
    static float value[2][COUNT], gradient[2][COUNT], buffers[4 * COUNT];
    comet_parameter p[2] = {parameter(COMET_CONV_WEIGHT, value[0], gradient[0], COUNT),
                            parameter(COMET_LINEAR_WEIGHT, value[1], gradient[1], COUNT)};
    const comet_optimiser sgd = comet_optimiser_default(COMET_SGD), adamw = comet_optimiser_default(COMET_ADAMW),
                          plain = {.kind = COMET_SGD};
    comet_optimiser_step step = {.number = 1, .learning_rate = 0.1, .gradient_scale = 1};
    const comet_optimiser *const all[] = {&sgd, &adamw, &plain};
    comet_threads *threads = NULL;
    assert_ok(comet_threads_new(2, NULL, &threads));
    for (int o = 0; o < 3; o++)
        for (int which = 0; which < 2; which++)
            for (int at = 0; at < COUNT; at += 13333) {
                memset(buffers, 0, sizeof buffers);
                memset(value, 0, sizeof value);
                step.learning_rate = o == 1 ? 0.1 : 100;
                assert_int_equal(cpu_update(all[o], &step, p, 2, buffers, NULL, threads), -1);
                gradient[which][at] = 3e37f; /* its square, and 100 times it, overflow */
                assert_int_equal(cpu_update(all[o], &step, p, 2, buffers, NULL, threads), which);
                gradient[which][at] = 0;
            }
    gradient[0][7] = gradient[1][7] = 3e38f;
    assert_int_equal(cpu_update(&plain, &step, p, 2, NULL, NULL, threads), 0); /* the first */
    comet_threads_free(threads);
}

/* ---- many values ---- */

enum { MANY = 100003, FEW = 77, STEPS = 5 };

typedef struct model {
    comet_parameter parameters[2];
    float *values, *gradients, *state;
    double means[2];
} model;

static void model_new(model *m, const comet_optimiser *o) {
    rng r = rng_seed(9);
    m->values = malloc((MANY + FEW) * sizeof(float));
    m->gradients = malloc((MANY + FEW) * sizeof(float));
    m->parameters[0] = parameter(COMET_LINEAR_WEIGHT, m->values, m->gradients, MANY);
    m->parameters[1] = parameter(COMET_BIAS, m->values + MANY, m->gradients + MANY, FEW);
    m->state = calloc(1, comet_optimiser_bytes(o, m->parameters, 2) + 1);
    for (int i = 0; i < MANY + FEW; i++)
        m->values[i] = (float)rng_gauss(&r);
}

static void model_free(model *m) {
    free(m->values);
    free(m->gradients);
    free(m->state);
}

static void model_run(model *m, const comet_optimiser *o, comet_threads *threads) {
    rng r = rng_seed(10);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < MANY + FEW; i++)
            m->gradients[i] = (float)rng_gauss(&r);
        comet_optimiser_step step = {.number = s + 1, .learning_rate = 0.01 * (s + 1), .gradient_scale = 0.5};
        cpu_update(o, &step, m->parameters, 2, m->state, m->means, threads);
    }
}

/* The same for value i, in double. Returns it; *momentum is what the statistics are of. */
static double in_double(const comet_optimiser *o, const double start, const double *gradients, double *momentum) {
    double value = start, first = 0, second = 0;
    for (int s = 0; s < STEPS; s++) {
        double g = 0.5 * gradients[s], rate = 0.01 * (s + 1);
        if (o->kind == COMET_SGD) {
            g += o->weight_decay * value;
            first = o->momentum * first + g;
            value -= rate * (o->nesterov ? g + o->momentum * first : first);
            continue;
        }
        first = o->beta1 * first + (1 - o->beta1) * g;
        second = o->beta2 * second + (1 - o->beta2) * g * g;
        double hat = first / (1 - pow(o->beta1, s + 1)), root = sqrt(second / (1 - pow(o->beta2, s + 1)));
        value = value * (1 - rate * o->weight_decay) - rate * hat / (root + o->epsilon);
    }
    *momentum = first;
    return value;
}

static void check_in_double(const comet_optimiser *o, const model *m) {
    static double start[MANY + FEW], gradients[MANY + FEW][STEPS];
    rng r = rng_seed(9);
    double sums[2] = {0}, momentum;
    for (int i = 0; i < MANY + FEW; i++)
        start[i] = (double)(float)rng_gauss(&r);
    r = rng_seed(10);
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < MANY + FEW; i++)
            gradients[i][s] = (double)(float)rng_gauss(&r);
    for (int i = 0; i < MANY + FEW; i++) {
        near((double)m->values[i], in_double(o, start[i], gradients[i], &momentum));
        sums[i >= MANY] += fabs(momentum);
    }
    near(m->means[0], sums[0] / MANY);
    near(m->means[1], sums[1] / FEW);
}

static void test_many(void **state) {
    (void)state;
    comet_optimiser kinds[3] = {comet_optimiser_default(COMET_SGD), comet_optimiser_default(COMET_SGD),
                                comet_optimiser_default(COMET_ADAMW)};
    kinds[0].weight_decay = 5e-4;
    kinds[1].nesterov = 1;
    for (int k = 0; k < 3; k++) {
        model one, three;
        comet_threads *threads = NULL;
        assert_ok(comet_threads_new(3, NULL, &threads));
        model_new(&one, &kinds[k]);
        model_new(&three, &kinds[k]);
        model_run(&one, &kinds[k], NULL);
        model_run(&three, &kinds[k], threads);
        check_in_double(&kinds[k], &one);
        assert_memory_equal(one.values, three.values, (MANY + FEW) * sizeof(float));
        assert_memory_equal(one.state, three.state, comet_optimiser_bytes(&kinds[k], one.parameters, 2));
        assert_memory_equal(one.means, three.means, sizeof one.means);
        model_free(&one);
        model_free(&three);
        comet_threads_free(threads);
    }
}

static void refuse(comet_optimiser o, const char *part) {
    assert_status(comet_optimiser_check(&o, &message), COMET_ERROR_ARGUMENT);
    if (!strstr(message.text, part))
        fail_msg("no '%s' in: %s", part, message.text);
}

static void test_refused(void **state) {
    (void)state;
    refuse((comet_optimiser){.kind = COMET_SGD, .momentum = 1.0}, "momentum is 1");
    refuse((comet_optimiser){.kind = COMET_SGD, .momentum = (double)NAN}, "momentum is");
    refuse((comet_optimiser){.kind = COMET_SGD, .nesterov = 1}, "Nesterov");
    refuse((comet_optimiser){.kind = COMET_SGD, .weight_decay = -1.0}, "weight decay of -1");
    refuse((comet_optimiser){.kind = COMET_ADAMW, .beta1 = 0.9, .beta2 = 1.0, .epsilon = 1e-8}, "betas 0.9 and 1");
    refuse((comet_optimiser){.kind = (comet_optimiser_kind)7}, "sgd and adamw");
    comet_optimiser sgd = comet_optimiser_default(COMET_SGD), adamw = comet_optimiser_default(COMET_ADAMW);
    assert_ok(comet_optimiser_check(&sgd, &message));
    assert_ok(comet_optimiser_check(&adamw, &message));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_scale_and_kinds), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
