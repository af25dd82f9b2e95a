/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors reach: as large as they were asked for where they are put in, none behind it, in proportion before. */
#include "unit/train/test_train_trainer.h"

#include "study/reach.h"

static comet_trainer *controlled(const char *model) {
    comet_trainer_options o = options_for(model, "eb");
    o.control = "comet";
    return trainer_of(&o);
}

static comet_reach *reach_of(comet_trainer *t, double sigma, double error_rel, const char *layers) {
    const comet_reach_options options = {.sigma = sigma, .error_rel = error_rel, .layers = layers, .seed = 3};
    comet_message message;
    comet_reach *r;
    batch b = make_batch(5);
    assert_done(comet_reach_new(t, &options, NULL, &r, &message), message);
    assert_done(comet_reach_batch(r, b.pixels, b.labels, &message), message);
    return r;
}

static int source_named(const comet_reach *r, const char *name, int is_tensor) {
    for (int i = 0; i < comet_reach_sources(r); i++) {
        const comet_reach_source s = comet_reach_get_source(r, i);
        if (s.is_tensor == is_tensor && strcmp(s.name, name) == 0)
            return i;
    }
    fail_msg("there is no source %s", name);
    return -1;
}

static comet_reach_error error_at(const comet_reach *r, int source, const char *layer) {
    comet_reach_error e = {NAN, NAN};
    for (int i = 0; i < comet_reach_layers(r); i++)
        if (strcmp(comet_reach_layer_name(r, i), layer) == 0)
            comet_reach_get(r, source, i, &e);
    return e;
}

static void test_gradients(void **state) {
    (void)state;
    comet_trainer *t = controlled("resnet8");
    train(t, 0, 0.05);
    const uint64_t before = digest(t);
    comet_reach *r = reach_of(t, 0.1, 0.3, NULL), *twice = reach_of(t, 0.2, 0.3, NULL);
    assert_int_equal(comet_reach_layers(r), 8);
    assert_string_equal(comet_reach_layer_name(r, 0), "conv1");
    assert_int_equal(comet_reach_passes(r), 1 + comet_reach_sources(r));
    for (int source = 0; source < comet_reach_layers(r); source++) {
        assert_false(comet_reach_get_source(r, source).is_tensor);
        for (int layer = 0; layer < comet_reach_layers(r); layer++) {
            comet_reach_error e, other;
            comet_reach_get(r, source, layer, &e);
            comet_reach_get(twice, source, layer, &other);
            if (layer > source)
                assert_true(e.flow == 0 && e.weights == 0);
            if (layer == source) /* the logits' gradient has few values */
                assert_true(fabs(e.flow - 0.1) < (source + 1 < comet_reach_layers(r) ? 0.005 : 0.03));
            /* Backward is linear: the same errors, twice as large. */
            assert_true(fabs(other.flow - 2 * e.flow) < 2e-4 * e.flow + 1e-6);
            assert_true(fabs(other.weights - 2 * e.weights) < 2e-4 * e.weights + 1e-6);
        }
        const comet_reach_summary s = comet_reach_summarise(r, source);
        assert_true(s.near == source && s.far == 0);
        assert_true(source == 0 ? isnan(s.growth) : s.growth > 0.2 && s.growth < 5);
        assert_true(s.largest_flow >= s.near_flow && s.largest_flow >= s.far_flow);
    }
    assert_true(digest(t) == before);
    comet_reach_free(r);
    comet_reach_free(twice);
    comet_trainer_free(t);
}

/* A norm's goes back through its convolution; of a sum nothing does, but the layers that read it feel it. */
static void test_tensors(void **state) {
    (void)state;
    comet_trainer *t = controlled("resnet8");
    comet_reach *r = reach_of(t, 0.1, 0.3, NULL), *fine = reach_of(t, 0.1, 0.01, NULL);
    const int norm = source_named(r, "layer2.0.bn1", 1), sum = source_named(r, "layer1.0.relu.9", 1);
    assert_true(error_at(r, norm, "layer2.0.conv1").flow > 0 && error_at(r, norm, "conv1").flow > 0);
    assert_true(error_at(r, norm, "layer2.0.conv2").flow == 0 && error_at(r, norm, "layer2.0.conv2").weights > 0);
    assert_true(error_at(r, norm, "layer3.0.conv1").weights == 0);
    assert_true(error_at(fine, norm, "conv1").flow < 0.2 * error_at(r, norm, "conv1").flow);
    assert_int_equal(comet_reach_summarise(r, sum).near, -1);
    assert_true(error_at(r, sum, "layer2.0.conv1").weights > 0 && error_at(r, sum, "conv1").weights == 0);
    comet_reach_free(r);
    comet_reach_free(fine);
    comet_trainer_free(t);
}

static void test_some(void **state) {
    (void)state;
    comet_trainer *t = controlled("resnet8");
    comet_reach *r = reach_of(t, 0.1, 0.3, "layer3.*"), *again = reach_of(t, 0.1, 0.3, "layer3.*");
    const comet_reach_options none = {.sigma = 0.1, .error_rel = 0.3, .layers = "nothing"};
    comet_message message;
    comet_reach *never;
    assert_in_range(comet_reach_sources(r), 3, 8);
    for (int i = 0; i < comet_reach_sources(r); i++) {
        comet_reach_error a, b;
        assert_memory_equal(comet_reach_get_source(r, i).name, "layer3.", 7);
        comet_reach_get(r, i, 0, &a);
        comet_reach_get(again, i, 0, &b);
        assert_memory_equal(&a, &b, sizeof a);
    }
    assert_status(comet_reach_new(t, &none, NULL, &never, &message), COMET_ERROR_ARGUMENT);
    assert_non_null(strstr(message.text, "'nothing'"));
    assert_null(never);
    comet_reach_free(r);
    comet_reach_free(again);
    comet_trainer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
