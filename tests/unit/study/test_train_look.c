/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is seen of a network's values in an evaluation: those that the network computes, in all models, also where a
 * backend computes sums along with norms; and what is kept of them.
 */
#include "unit/train/test_train_run_case.h"

#include <math.h>

#include "study/look.h"
#include "study/look_impl.h"
#include "support/rng.h"
#include "train/models/model.h"
#include "train/plan/plan_impl.h"

enum { CLASSES = 10, BATCH = 8, IMAGES = 20, SIDE = 12 };

/* ---- of all models ---- */

static int is_made(const comet_plan *p, comet_value v) {
    for (int i = 0; i < p->n; i++)
        if (!p->nodes[i].skip && p->nodes[i].output == v)
            return 1;
    return 0;
}

static int convolutions(const comet_graph *g) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i].kind == COMET_OP_CONV || g->nodes[i].kind == COMET_OP_LINEAR;
    return count;
}

static void check_model(const char *name, int fuses_sums) {
    const comet_plan_options evaluation = {.batch = 4, .input_bytes = 1};
    const comet_look_options options = {.images = 4, .batch = 4};
    comet_graph *g;
    comet_backend *backend;
    comet_plan *plan;
    comet_look *look;
    assert_ok(comet_graph_new(NULL, &g));
    assert_ok(comet_model_build(g, name, CLASSES, 64, 64, 3, &message));
    assert_ok(comet_backend_onednn_new(1, NULL, &backend));
    backend->fuses_sums = fuses_sums; /* nothing is computed */
    assert_ok(comet_plan_new(g, backend, &evaluation, NULL, &plan, &message));
    assert_ok(comet_look_new(g, backend, &options, NULL, &look, &message));
    int shortcuts = 0;
    for (int i = 0; i < comet_graph_parameters(g); i++)
        shortcuts += strstr(comet_graph_parameter(g, i)->name, "downsample.0.weight") != NULL;
    assert_int_equal(comet_look_layers(look), convolutions(g) - shortcuts);
    for (int i = 0; i < comet_look_layers(look); i++)
        if (!is_made(plan, comet_look_layer_at(look, i)->value))
            fail_msg("%s: nobody makes the value of %s", name, comet_look_layer_at(look, i)->name);
    assert_int_equal(comet_look_layer_at(look, comet_look_layers(look) - 1)->value, g->output);
    assert_int_equal(comet_look_depths(look), strcmp(name, "alexnet") == 0 ? 2 : COMET_LOOK_DEPTHS);
    comet_look_free(look);
    comet_plan_free(plan);
    comet_graph_free(g);
    comet_backend_free(backend);
}

static void test_models(void **state) {
    (void)state;
    for (int i = 0; comet_model_at(i); i++)
        for (int fuses = 0; fuses < 2; fuses++)
            check_model(comet_model_at(i)->name, fuses);
}

/* ---- of a run ---- */

static comet_run_result result;
static comet_about about;

static void train_here(const char *weights) {
    diary d;
    comet_run_options options = small_run(&d);
    options.weights_out = weights;
    options.data_name = "generated:100";
    run(&options, &result);
    assert_ok(comet_predictor_about(weights, &(comet_predictor_wishes){NULL, 0}, NULL, &about, &message));
}

static void draw_images(uint8_t *pixels, unsigned salt) {
    rng r = rng_seed((uint64_t)salt << 32); /* seeds that are neighbours give the same numbers, one place on */
    for (unsigned i = 0; i < IMAGES * SIDE * SIDE; i++)
        pixels[i] = (uint8_t)rng_below(&r, 256);
}

static comet_look *look_at(const char *path, const uint8_t *pixels, double *probabilities) {
    const comet_predictor_options options = {.threads = 2, .batch = BATCH};
    const comet_look_options looking = {.images = IMAGES, .batch = BATCH};
    comet_predictor *p;
    comet_look *look;
    assert_ok(comet_predictor_new(path, &about, &options, NULL, &p, &message));
    assert_ok(comet_look_new(comet_predictor_graph(p), comet_predictor_backend(p), &looking, NULL, &look, &message));
    comet_predictor_show(p, comet_look_sight(look));
    for (int at = 0; at < IMAGES; at += BATCH) {
        const int count = IMAGES - at < BATCH ? IMAGES - at : BATCH;
        assert_ok(comet_predictor_run(p, pixels + at * SIDE * SIDE, count, probabilities + at * CLASSES, &message));
        comet_look_next(look);
    }
    comet_predictor_free(p);
    return look;
}

/* The same images: the same. Others, of noise: little, but for the chance that so few leave. */
static void test_two(void **state) {
    (void)state;
    static uint8_t pixels[IMAGES * SIDE * SIDE], others[IMAGES * SIDE * SIDE];
    static double probabilities[IMAGES * CLASSES];
    const char *path = in_folder("w.safetensors");
    double mean = 0;
    train_here(path);
    draw_images(pixels, 1);
    draw_images(others, 2);
    comet_look *a = look_at(path, pixels, probabilities), *b = look_at(path, pixels, probabilities),
               *c = look_at(path, others, probabilities);
    for (int i = 0; i < comet_look_layers(a); i++) {
        assert_true(fabs(comet_look_cka(a, b, i) - 1) < 1e-12);
        mean += comet_look_cka(a, c, i) / comet_look_layers(a);
    }
    assert_true(fabs(mean) < 0.5);
    comet_look_free(a);
    comet_look_free(b);
    comet_look_free(c);
    comet_about_free(&about);
}

/* The last layer's values are the logits that probabilities come from: their Gram matrices are the same. */
static void test_logits(void **state) {
    (void)state;
    static uint8_t pixels[IMAGES * SIDE * SIDE];
    static double probabilities[IMAGES * CLASSES];
    float logits[BATCH * CLASSES];
    double expected[BATCH * (BATCH - 1) / 2];
    const char *path = in_folder("w.safetensors");
    train_here(path);
    draw_images(pixels, 3);
    comet_look *look = look_at(path, pixels, probabilities);
    const int last = comet_look_layers(look) - 1;
    assert_string_equal(comet_look_layer_at(look, last)->name, "fc");
    /* Probabilities say logits up to a number for each image, which a centring over classes takes away: here, too. */
    for (int i = 0; i < BATCH; i++) {
        double mean = 0;
        for (int k = 0; k < CLASSES; k++)
            mean += log(probabilities[i * CLASSES + k]) / CLASSES;
        for (int k = 0; k < CLASSES; k++)
            logits[i * CLASSES + k] = (float)(log(probabilities[i * CLASSES + k]) - mean);
    }
    assert_ok(comet_gram(logits, BATCH, CLASSES, NULL, NULL, expected));
    comet_cka cka = {0, 0, 0};
    comet_cka_add(&cka, look->grams[last], expected, BATCH);
    assert_true(comet_cka_value(&cka) > 0.98); /* what all logits of an image have in common is little */
    comet_look_free(look);
    comet_about_free(&about);
}

/* Behind a ReLU nothing is below 0; fine maps of small images are the values themselves, coarse ones of all images. */
static void test_maps(void **state) {
    (void)state;
    static uint8_t pixels[IMAGES * SIDE * SIDE];
    static double probabilities[IMAGES * CLASSES];
    const char *path = in_folder("w.safetensors");
    train_here(path);
    draw_images(pixels, 4);
    comet_look *look = look_at(path, pixels, probabilities);
    assert_true(comet_look_depths(look) >= 2);
    for (int depth = 0; depth < comet_look_depths(look); depth++) {
        const comet_look_layer *layer = comet_look_layer_at(look, comet_look_depth_layer(look, depth));
        const comet_maps coarse = comet_look_coarse(look, depth);
        const int64_t of_one = comet_shape_count(layer->shape);
        comet_shape shape;
        double sum = 0;
        assert_int_equal(coarse.channels, layer->shape.channels);
        assert_int_equal(coarse.places, (int64_t)IMAGES * layer->shape.height * layer->shape.width);
        for (int64_t i = 0; i < coarse.places * coarse.channels; i++) {
            assert_true(coarse.values[i] >= 0);
            sum += (double)coarse.values[i];
        }
        assert_true(sum > 0);
        for (int image = 0; image < COMET_LOOK_SHOWN; image++) {
            const float *fine = comet_look_fine(look, depth, image, &shape);
            assert_memory_equal(&shape, &layer->shape, sizeof shape);
            assert_memory_equal(fine, coarse.values + image * of_one, (size_t)of_one * sizeof *fine);
        }
    }
    assert_memory_not_equal(comet_look_coarse(look, 0).values,
                            comet_look_coarse(look, 0).values + comet_look_coarse(look, 0).places, 64);
    comet_look_free(look);
    comet_about_free(&about);
}

static void test_refused(void **state) {
    (void)state;
    comet_look *look;
    for (int i = 0; i < 3; i++) {
        const comet_look_options options = {.images = i == 0 ? 3 : 9, .batch = i == 1 ? 3 : COMET_GRAM_MOST + 1};
        assert_status(comet_look_new(NULL, NULL, &options, NULL, &look, &message), COMET_ERROR_ARGUMENT);
        assert_null(look);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test_setup_teardown(test_two, open_data, close_data),
        cmocka_unit_test_setup_teardown(test_logits, open_data, close_data),
        cmocka_unit_test_setup_teardown(test_maps, open_data, close_data),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
