/* SPDX-License-Identifier: Apache-2.0 */
/* Trainers on generated images: every form trains. */
#include "test_train_case.h"

#include <stdio.h>

#include "train/trainer.h"

enum { BATCH = 16, CLASSES = 4, SIDE = 16 };

typedef struct batch {
    uint8_t pixels[BATCH * SIDE * SIDE * 3];
    int32_t labels[BATCH];
} batch;

/* Noise, and a brighter quarter that is the class. */
static batch make_batch(uint64_t seed) {
    batch b;
    rng r = rng_seed(seed);
    for (int i = 0; i < BATCH; i++) {
        b.labels[i] = (int32_t)rng_below(&r, CLASSES);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    const int bright = (y >= SIDE / 2) * 2 + (x >= SIDE / 2) == b.labels[i];
                    b.pixels[((i * SIDE + y) * SIDE + x) * 3 + c] = (uint8_t)(rng_below(&r, 120) + (bright ? 80 : 0));
                }
    }
    return b;
}

static comet_trainer_options options_for(const char *model, const char *codec) {
    return (comet_trainer_options){.model = model,
                                   .classes = CLASSES,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .channels = 3,
                                   .batch = BATCH,
                                   .codec = codec,
                                   .error_rel = 0.3,
                                   .optimiser = comet_optimiser_default(COMET_SGD),
                                   .seed = 5,
                                   .threads = 2,
                                   .spill_directory = "/tmp",
                                   .normalisation = {{0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}}};
}

static comet_trainer *trainer_of(const comet_trainer_options *options) {
    comet_trainer *t = NULL;
    comet_message message;
    assert_done(comet_trainer_new(options, NULL, &t, &message), message);
    return t;
}

static comet_trainer_result train(comet_trainer *t, uint64_t seed, double rate) {
    batch b = make_batch(seed);
    comet_trainer_result result;
    comet_message message;
    assert_done(comet_trainer_train(t, b.pixels, b.labels, rate, 0, &result, &message), message);
    return result;
}

static double evaluate(comet_trainer *t, int count) {
    batch b = make_batch(1000);
    comet_accuracy accuracy = {0};
    comet_mean loss = {0};
    comet_message message;
    assert_done(comet_trainer_evaluate(t, b.pixels, b.labels, count, &accuracy, &loss, &message), message);
    assert_int_equal(accuracy.samples, count);
    return comet_mean_value(&loss);
}

static void check_trains(const char *model, const char *codec, double rate, int steps) {
    comet_trainer_options o = options_for(model, codec);
    comet_trainer *t = trainer_of(&o);
    const double before = evaluate(t, BATCH);
    comet_trainer_result result = {0};
    for (int i = 0; i < steps; i++)
        result = train(t, (uint64_t)i, rate);
    const double after = evaluate(t, BATCH);
    const comet_trainer_bytes bytes = comet_trainer_get_bytes(t);
    if (!(after < 0.8 * before))
        fail_msg("%s, %s: loss %g, then %g", model, codec, before, after);
    assert_int_equal(result.updated, 1);
    assert_true(result.mean_momentum > 0);
    assert_true(result.saved_raw_bytes >= result.saved_stored_bytes);
    assert_true(bytes.allocated_peak_bytes > bytes.static_bytes);
    assert_int_equal(*comet_trainer_updates(t), steps);
    comet_trainer_free(t);
}

static void test_every_form_trains(void **state) {
    (void)state;
    const char *codecs[] = {"none", "eb", "pool:2", "group:4", "dct", "zvc", "offload", "eb+offload"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        check_trains("resnet8", codecs[i], 0.05, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
