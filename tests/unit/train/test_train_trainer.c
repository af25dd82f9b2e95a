/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainers on generated images: every form trains, those without loss to the same bits, and evaluation, accumulation,
 * resuming.
 */
#include "test_train_trainer.h"

/* `batches`: how many different ones. */
static void check_trains(const char *model, const char *codec, double rate, int steps, int batches) {
    comet_trainer_options o = options_for(model, codec);
    comet_trainer *t = trainer_of(&o);
    double before = 0, after = 0;
    comet_trainer_result result = {0};
    for (int i = 0; i < steps; i++) {
        result = train(t, (uint64_t)(i % batches), rate);
        before += i < 4 ? result.loss / 4 : 0;
        after += i >= steps - 4 ? result.loss / 4 : 0;
    }
    const comet_trainer_bytes bytes = comet_trainer_get_bytes(t);
    if (!(after < 0.8 * before))
        fail_msg("%s, %s: loss %g, then %g", model, codec, before, after);
    assert_int_equal(result.updated, 1);
    assert_true(result.mean_momentum > 0);
    assert_true(result.saved_raw_bytes >= result.saved_stored_bytes);
    assert_true(bytes.allocated_peak_bytes > bytes.static_bytes);
    check_planned(t);
    assert_int_equal(*comet_trainer_updates(t), steps);
    comet_trainer_free(t);
}

static const char *const every_form[] = {"none", "eb",      "pool:2",     "group:4",  "dct",
                                         "zvc",  "offload", "eb+offload", "recompute"};

static void test_every_form_trains(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof every_form / sizeof *every_form; i++)
        check_trains("resnet8", every_form[i], 0.05, 20, 20);
}

/* Another kind of network: SiLU, squeeze-excite, depthwise convolutions, stochastic depth. */
static void test_efficientnet_trains(void **state) {
    (void)state;
    const char *codecs[] = {"eb", "none", "recompute"};
    for (int i = 0; i < (EFFORT_SLOW ? 1 : 3); i++)
        check_trains("efficientnet_b0", codecs[i], 0.002, 16, 1);
}

/* ---- the same bits ---- */

static void test_without_loss(void **state) {
    (void)state;
    const char *models[] = {"resnet8", "efficientnet_b0"};
    const char *codecs[] = {"zvc", "offload", "recompute", "eb:0", "zvc+offload"};
    for (size_t m = 0; m < 2; m++) {
        comet_trainer_options o = options_for(models[m], "none");
        uint64_t expected = trained(&o, 3);
        for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
            o.codec = codecs[i];
            if (trained(&o, 3) != expected)
                fail_msg("%s: %s is not none", models[m], codecs[i]);
        }
        o.codec = "eb:0.3";
        assert_true(trained(&o, 3) != expected); /* the comparison can tell */
    }
}

/*
 * Two halves of a batch added up make about the update of the whole, and exactly that of two halves however they are
 * held.
 */
static void test_accumulate(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "none");
    o.accumulate = 2;
    comet_trainer *t = trainer_of(&o);
    assert_int_equal(train(t, 1, 0.05).updated, 0);
    assert_int_equal(train(t, 2, 0.05).updated, 1);
    assert_int_equal(*comet_trainer_updates(t), 1);
    assert_int_equal(*comet_trainer_batches(t), 2);
    const uint64_t kept = digest(t);
    comet_trainer_free(t);
    o.codec = "recompute";
    t = trainer_of(&o);
    train(t, 1, 0.05);
    train(t, 2, 0.05);
    assert_true(digest(t) == kept);
    comet_trainer_free(t);
}

/* A batch that is not full: the rest of it does not count. */
static void test_evaluate(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    comet_trainer *t = trainer_of(&o);
    for (int i = 0; i < 3; i++)
        train(t, (uint64_t)i, 0.05);
    const uint64_t before = digest(t);
    batch b = make_batch(1000);
    comet_accuracy all = {0}, parts = {0};
    comet_mean loss = {0}, loss_parts = {0};
    comet_message message;
    const size_t image = sizeof b.pixels / BATCH;
    assert_done(comet_trainer_evaluate(t, b.pixels, b.labels, BATCH, &all, &loss, &message), message);
    assert_done(comet_trainer_evaluate(t, b.pixels, b.labels, 5, &parts, &loss_parts, &message), message);
    assert_done(comet_trainer_evaluate(t, b.pixels + 5 * image, b.labels + 5, BATCH - 5, &parts, &loss_parts, &message),
                message);
    assert_int_equal(all.samples, parts.samples);
    assert_int_equal(all.top1, parts.top1);
    assert_true(fabs(comet_mean_value(&loss) - comet_mean_value(&loss_parts)) < 1e-6);
    assert_true(digest(t) == before);
    assert_int_equal(comet_trainer_evaluate(t, b.pixels, b.labels, BATCH + 1, &all, &loss, &message),
                     COMET_ERROR_ARGUMENT);
    comet_trainer_free(t);
}

/* ---- estimates ---- */

static void test_estimates(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    comet_trainer *t = trainer_of(&o), *other = trainer_of(&o);
    comet_message message;
    for (int i = 0; i < 2; i++)
        train(t, (uint64_t)i, 0.05);
    const size_t bytes = comet_trainer_estimates_bytes(t);
    char *data = malloc(bytes);
    comet_trainer_get_estimates(t, data);
    assert_true(comet_trainer_get_bytes(t).planned_peak_bytes != comet_trainer_get_bytes(other).planned_peak_bytes);
    assert_done(comet_trainer_set_estimates(other, data, bytes, &message), message);
    assert_int_equal(comet_trainer_get_bytes(t).planned_peak_bytes, comet_trainer_get_bytes(other).planned_peak_bytes);
    for (int i = 0; i < comet_plan_entries(comet_trainer_plan(other)); i++)
        assert_int_not_equal(comet_learned_at(comet_trainer_learned(other), i)->source, COMET_SIZE_GUESSED);
    assert_int_equal(comet_trainer_set_estimates(other, data, bytes - 8, &message), COMET_ERROR_MISMATCH);
    data[0] ^= 1;
    assert_int_equal(comet_trainer_set_estimates(other, data, bytes, &message), COMET_ERROR_MISMATCH);
    train(other, 5, 0.05);
    free(data);
    comet_trainer_free(t);
    comet_trainer_free(other);
}

/* ---- what is wrong ---- */

static void check_wrong(const comet_trainer_options *o, comet_status status, const char *part) {
    comet_trainer *t = NULL;
    comet_message message = {{0}};
    assert_int_equal(comet_trainer_new(o, NULL, &t, &message), status);
    assert_null(t);
    if (!strstr(message.text, part))
        fail_msg("'%s' does not say '%s'", message.text, part);
}

static void test_wrong(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet9", "none");
    check_wrong(&o, COMET_ERROR_ARGUMENT, "there is no model 'resnet9'");
    o = options_for("resnet8", "lz4");
    check_wrong(&o, COMET_ERROR_ARGUMENT, "there is no form 'lz4'");
    o = options_for("resnet8", "none");
    o.forms = "conv7=eb";
    check_wrong(&o, COMET_ERROR_ARGUMENT, "no layer is called 'conv7'");
    o = options_for("resnet8", "offload");
    o.spill_directory = NULL;
    check_wrong(&o, COMET_ERROR_ARGUMENT, "needs a directory");
    o.spill_directory = "/nowhere/at/all";
    check_wrong(&o, COMET_ERROR_IO, "/nowhere/at/all");
    o = options_for("resnet8", "none");
    o.batch = 0;
    check_wrong(&o, COMET_ERROR_ARGUMENT, "batch of 0");
    o = options_for("resnet8", "none");
    o.optimiser.momentum = 2;
    check_wrong(&o, COMET_ERROR_ARGUMENT, "momentum is 2");
    o = options_for("resnet8", "none");
    o.smoothing = 1;
    check_wrong(&o, COMET_ERROR_ARGUMENT, "smoothed");
}

/* Every allocation fails once: an error, and nothing is left. */
static void test_failures(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    for (long at = 1;; at++) {
        counting_allocator counting;
        comet_trainer *t = NULL;
        comet_message message;
        counting_allocator_init(&counting);
        counting.fail_at = at;
        comet_status status = comet_trainer_new(&o, &counting.allocator, &t, &message);
        const int was_last = counting.calls < at;
        if (status == COMET_OK)
            comet_trainer_free(t);
        else
            assert_int_equal(status, COMET_ERROR_MEMORY);
        assert_int_equal(counting.live_blocks, 0);
        assert_int_equal(counting.wrong_sizes, 0);
        if (was_last) {
            assert_int_equal(status, COMET_OK);
            assert_true(at > 50);
            return;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_trains),
        cmocka_unit_test(test_efficientnet_trains),
        cmocka_unit_test(test_without_loss),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
