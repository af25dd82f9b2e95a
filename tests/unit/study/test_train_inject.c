/* SPDX-License-Identifier: Apache-2.0 */
/* Errors on purpose: of the kind and size that was asked for, where it was asked for, the same each time. */
#include "unit/train/test_train_trainer.h"

#include "study/inject.h"
#include "train/trainer/trainer_impl.h"

static comet_message message;

static void test_texts(void **state) {
    (void)state;
    const char *const right[] = {"conv1:0.1", "layer1.*:1e-2:uniform", "a:1:normal,b:2:uniform:activation",
                                 "a:1:activation:uniform"};
    const char *const wrong[] = {
        "",     "conv1",          "conv1:", ":0.1",        "conv1:0", "conv1:-1",       "a:x",
        "a:1:", "a:1:triangular", "a:1,",   "a:1:normal:", "a:0.1b",  "a:1:normal,b:x", "a:inf:activation"};
    comet_inject *inject;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_done(comet_inject_new(right[i], 1, NULL, &inject, &message), message);
        comet_inject_free(inject);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (comet_inject_new(wrong[i], 1, NULL, &inject, &message) != COMET_ERROR_ARGUMENT)
            fail_msg("'%s' is not refused", wrong[i]);
}

static void check_refused(const char *codec, const char *rules, const char *says) {
    comet_trainer_options o = options_for("resnet8", codec);
    comet_trainer *t = NULL;
    o.hooks = comet_inject_hooks(rules);
    assert_int_equal(comet_trainer_new(&o, NULL, &t, &message), COMET_ERROR_ARGUMENT);
    if (!strstr(message.text, says))
        fail_msg("%s: %s", rules, message.text);
}

static void test_layers(void **state) {
    (void)state;
    check_refused("eb:0", "nothing:0.1", "nothing");
    check_refused("none", "bn1:0.1:activation", "eb:0");
    check_refused("eb:0", "bn1:0.1,nothing:0.1:activation", "nothing");
}

/* ---- gradients ---- */

static comet_parameter *gradient_of(comet_trainer *t, const char *name) {
    return comet_graph_parameter_named(comet_trainer_graph(t), name);
}

/* Mean, deviation and greatest of what was added to a gradient, in units of its rms. */
typedef struct added {
    double mean, deviation, greatest;
} added;

static added inject_into(comet_trainer *t, const char *rules, uint64_t seed, uint64_t step, const char *name) {
    comet_parameter *p = gradient_of(t, name);
    float *before = malloc((size_t)p->count * sizeof *before);
    comet_inject *inject;
    added a = {0};
    double rms = 0;
    memcpy(before, p->gradient, (size_t)p->count * sizeof *before);
    assert_done(comet_inject_new(rules, seed, NULL, &inject, &message), message);
    comet_inject_gradients(inject, comet_trainer_graph(t), step);
    for (int64_t i = 0; i < p->count; i++)
        rms += pow((double)before[i], 2) / (double)p->count;
    for (int64_t i = 0; i < p->count; i++) {
        const double e = ((double)p->gradient[i] - (double)before[i]) / sqrt(rms);
        a.mean += e / (double)p->count;
        a.deviation += e * e / (double)p->count;
        a.greatest = fmax(a.greatest, fabs(e));
    }
    a.deviation = sqrt(a.deviation);
    memcpy(p->gradient, before, (size_t)p->count * sizeof *before);
    comet_inject_free(inject);
    free(before);
    return a;
}

static void test_gradients(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "none");
    comet_trainer *t = trainer_of(&o);
    const char *const name = "layer3.0.conv2.weight"; /* 36864 values */
    train(t, 1, 0);
    added a = inject_into(t, "layer3.*:0.2", 1, 1, name);
    assert_true(fabs(a.mean) < 0.005 && fabs(a.deviation - 0.2) < 0.004 && a.greatest > 0.7);
    added same = inject_into(t, "layer3.*:0.2", 1, 1, name), other = inject_into(t, "layer3.*:0.2", 1, 2, name);
    assert_true(same.mean == a.mean && other.mean != a.mean);
    a = inject_into(t, "layer3.*:0.2,layer3.0.conv2:0.5:uniform", 1, 1, name); /* the last that fits */
    assert_true(fabs(a.mean) < 0.01 && fabs(a.deviation - 0.5) < 0.01);
    assert_true(a.greatest < 0.5 * sqrt(3.0) * 1.0001 && a.greatest > 0.5 * sqrt(3.0) * 0.99);
    a = inject_into(t, "layer2.*:0.2", 1, 1, name);
    assert_true(a.greatest == 0);
    comet_trainer_free(t);
}

/* ---- activations ---- */

/* Forward knows nothing of it; of the gradients, those change that are computed from the tensor. */
static void test_activations(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb:0");
    comet_trainer *a = trainer_of(&o);
    o.hooks = comet_inject_hooks("layer2.0.bn1:0.1:uniform:activation");
    comet_trainer *b = trainer_of(&o);
    assert_true(train(a, 1, 0).loss == train(b, 1, 0).loss);
    const struct {
        const char *name;
        int same;
    } gradients[] = {{"layer2.0.conv2.weight", 0}, {"layer2.0.bn1.weight", 0}, {"layer2.0.conv1.weight", 0},
                     {"layer2.0.bn1.bias", 1},     {"layer2.0.bn2.weight", 1}, {"layer3.0.conv1.weight", 1}};
    for (size_t i = 0; i < sizeof gradients / sizeof *gradients; i++) {
        const comet_parameter *p = gradient_of(a, gradients[i].name), *q = gradient_of(b, gradients[i].name);
        const int same = memcmp(p->gradient, q->gradient, (size_t)p->count * sizeof(float)) == 0;
        if (same != gradients[i].same)
            fail_msg("%s: %s", gradients[i].name, same ? "no error" : "an error");
    }
    comet_trainer_free(a);
    comet_trainer_free(b);
}

static void test_sides(void **state) {
    (void)state;
    enum { COUNT = 40000 };
    comet_inject *inject;
    static float values[COUNT], before[COUNT];
    rng r = rng_seed(3);
    float gamma[2] = {2, -0.5f}, beta[2] = {-1, 0.1f}; /* thresholds 0.5 and 0.2 */
    comet_parameter parameters[2] = {{.value = gamma}, {.value = beta}};
    comet_node node = {.parameter = {0, 1, -1, -1}};
    const comet_graph g = {.nodes = &node, .parameters = parameters};
    comet_plan_entry e = {.kind = COMET_SAVED_NORM, .name = "bn", .has_relu = 1, .shape = {1, 1, 2}};
    assert_done(comet_inject_new("bn:0.5:activation", 1, NULL, &inject, &message), message);
    for (int i = 0; i < COUNT; i++)
        values[i] = before[i] = (float)rng_gauss(&r);
    const comet_step_loaded loaded = {&e, &g, 1, 0, COUNT, values};
    comet_inject_values(inject, &loaded);
    double squares = 0;
    for (int i = 0; i < COUNT; i++) {
        const float edge = i % 2 ? 0.2f : 0.5f;
        assert_int_equal(values[i] > edge, before[i] > edge);
        squares += pow((double)values[i] - (double)before[i], 2);
    }
    assert_true(sqrt(squares / COUNT) > 0.35 && sqrt(squares / COUNT) < 0.51); /* what would cross is left out */
    e.kind = COMET_SAVED_VALUE;
    for (int i = 0; i < COUNT; i++)
        values[i] = before[i] = fmaxf(before[i], 0);
    comet_inject_values(inject, &loaded);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(values[i] > 0, before[i] > 0);
    comet_inject_free(inject);
}

/* Training with errors is the same training each time. */
static void test_repeats(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb:0");
    const uint64_t clean = trained(&o, 3);
    o.hooks = comet_inject_hooks("*:0.1,*:0.05:uniform:activation");
    const uint64_t with = trained(&o, 3);
    assert_true(with == trained(&o, 3) && with != clean);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),       cmocka_unit_test(test_layers), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_sides),  cmocka_unit_test(test_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
