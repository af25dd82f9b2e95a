/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files of weights say of themselves, with damaged texts too; a predictor's probabilities beside the evaluation of
 * the trainer that wrote the weights.
 */
#include "unit/train/test_train_run_case.h"

#include <math.h>

#include "train/predict/predictor.h"

static comet_run_result result;

static void train_here(const char *folder, const char *weights) {
    diary d;
    comet_run_options options = small_run(&d);
    options.folder = folder;
    options.weights_out = weights;
    options.data_name = "generated:100";
    run(&options, &result);
}

static comet_about about_of(const char *path) {
    const comet_predictor_wishes nothing = {NULL, 0};
    comet_about about;
    assert_ok(comet_predictor_about(path, &nothing, NULL, &about, &message));
    return about;
}

static void test_about(void **state) {
    (void)state;
    char folder[256], weights[256], path[COMET_ABOUT_PATH];
    snprintf(folder, sizeof folder, "%s", in_folder("run"));
    snprintf(weights, sizeof weights, "%s", in_folder("w.safetensors"));
    train_here(folder, weights);
    assert_ok(comet_about_find(folder, NULL, path, &message));
    assert_non_null(strstr(path, "/best.safetensors"));
    const char *const files[] = {path, weights, in_folder("run/last.safetensors")};
    for (int i = 0; i < 3; i++) {
        comet_about a = about_of(files[i]);
        assert_string_equal(a.model, "resnet8");
        assert_int_equal(a.classes, 10);
        assert_int_equal(a.height * 1000 + a.width, 12012);
        assert_int_equal(a.channels, 1);
        assert_string_equal(a.data, "generated:100");
        assert_string_equal(comet_about_label(&a, 9), "checkerboard");
        assert_null(comet_about_label(&a, 10));
        assert_true(a.centre == 1 && a.is_normalised);
        assert_true(a.normalisation.mean[0] == comet_dataset_get_info(data)->normalisation.mean[0]);
        assert_true(a.normalisation.deviation[0] == comet_dataset_get_info(data)->normalisation.deviation[0]);
        assert_int_equal(a.step, i == 0 ? result.best_step : 20);
        comet_about_free(&a);
    }
}

/* Files that say something else than they should are read as if they said nothing. */
static void test_strange_texts(void **state) {
    (void)state;
    static const float zeros[16];
    static const char *const images[] = {"",
                                         "centre=1",
                                         "centre=x mean=1,2,3 deviation=1,1,1\n",
                                         "\n\n\n",
                                         "centre=1 mean=1,2 deviation=1,1,1\na\nb\n",
                                         "centre=1 mean=0,0,0 deviation=1,0,1\na\n",
                                         "a\nb\nc\nd\n"};
    static const char *const models[] = {"", "resnet8", "resnet8 classes=-1 image=1x1x3",
                                         "resnet8 classes=2 image=1x1x2"};
    const char *path = in_folder("strange.safetensors");
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        comet_safetensors_source source = {.entry = {"x", COMET_SAFETENSORS_F32, 1, {16}, 0, 0}, .data = zeros};
        const comet_safetensors_text texts[] = {{"comet.images", images[i]}, {"comet.model", models[i % 4]}};
        comet_safetensors *file;
        comet_about a;
        assert_ok(comet_safetensors_write(path, &source, 1, texts, 2, NULL, &message));
        assert_ok(comet_safetensors_open(path, NULL, &file, &message));
        assert_int_equal(comet_about_read(file, NULL, &a), COMET_OK);
        assert_false(a.is_normalised || a.model[0] || a.classes || a.labels);
        comet_about_free(&a);
        comet_safetensors_close(file);
    }
}

/* The loss and the accuracy that its probabilities make are those of the last evaluation. */
static void test_probabilities(void **state) {
    (void)state;
    const comet_predictor_options options = {.threads = 2, .batch = 7};
    const comet_loader_options loading = {
        .split = COMET_SPLIT_EVALUATE, .batch = 7, .height = 12, .width = 12, .channels = 1};
    const char *path = in_folder("w.safetensors");
    double loss = 0, probabilities[7 * 10];
    int right = 0;
    train_here(NULL, path);
    comet_about a = about_of(path);
    comet_predictor *p;
    comet_loader *loader;
    assert_ok(comet_predictor_new(path, &a, &options, NULL, &p, &message));
    assert_ok(comet_loader_new(data, &loading, &loader, &message));
    for (comet_batch batch = {.last = false}; !batch.last;) {
        assert_ok(comet_loader_next(loader, &batch, &message));
        assert_ok(comet_predictor_run(p, batch.pixels, batch.count, probabilities, &message));
        for (int i = 0; i < batch.count; i++) {
            const double *of = probabilities + 10 * i;
            double sum = 0;
            int best = 0;
            for (int k = 0; k < 10; k++) {
                sum += of[k];
                best = of[k] > of[best] ? k : best;
            }
            assert_true(fabs(sum - 1) < 1e-12);
            loss -= log(of[batch.labels[i]]) / 20;
            right += best == batch.labels[i];
        }
    }
    assert_true(fabs(loss - result.loss) < 1e-5);
    assert_true(fabs(100.0 * right / 20 - result.top1) < 1e-9);
    assert_int_equal(comet_predictor_run(p, (const uint8_t *)"", 8, probabilities, &message), COMET_ERROR_ARGUMENT);
    comet_loader_free(loader);
    comet_predictor_free(p);
    comet_about_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_about, open_data, close_data),
        cmocka_unit_test_setup_teardown(test_strange_texts, open_data, close_data),
        cmocka_unit_test_setup_teardown(test_probabilities, open_data, close_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
