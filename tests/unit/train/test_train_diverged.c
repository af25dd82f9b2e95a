/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that diverge: where they end, what they say, what they leave behind, and what a controller lets pass. */
#include "test_train_run_case.h"

#include <math.h>
#include <stdarg.h>

/* ---- events and figures ---- */

static comet_run_options diverging_run(diary *d) {
    comet_run_options options = small_run(d);
    options.trainer.optimiser.weight_decay = 100;
    options.rate = 1e6;
    options.schedule = COMET_SCHEDULE_CONSTANT;
    options.checkpoint_every = 2;
    return options;
}

/* The message has this in it. */
static void assert_says(const char *format, ...) {
    char part[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part, sizeof part, format, arguments);
    va_end(arguments);
    if (!strstr(message.text, part))
        fail_msg("no '%s' in: %s", part, message.text);
}

/* The run ends at the first update that is not finite, and its checkpoints stay as they were. */
static void check_diverges(const char *codec, int accumulate, int64_t every) {
    diary d;
    comet_run_result result, again;
    comet_run_options options = diverging_run(&d);
    char name[64];
    snprintf(name, sizeof name, "diverged-%.4s-%d-%d", codec, accumulate, (int)every);
    options.trainer.codec = codec;
    options.trainer.accumulate = accumulate;
    options.folder = in_folder(name);
    options.checkpoint_every = every;
    options.weights_out = in_folder("never.safetensors");
    assert_int_equal(comet_run(&options, NULL, &result, &message), COMET_ERROR_DIVERGED);
    assert_true(result.step > 0 && result.step < 20);
    /* where there is no other */
    const int64_t saved = every <= result.step ? result.step / every * every : result.step;
    assert_says("training has diverged since step %lld: ", (long long)result.step + 1);
    assert_says("; go on from step %lld in '%s', or begin anew, with a smaller learning rate", (long long)saved,
                options.folder);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), result.step);
    assert_int_equal(count_of(&d, COMET_RUN_CHECKPOINT), every <= result.step ? result.step / every : 1);
    assert_int_equal(access(options.weights_out, F_OK), -1);
    /* from a checkpoint that is finite, or it would be refused; then all happens again */
    options.resume = COMET_RUN_RESUME;
    d.count = 0;
    const comet_message first = message;
    assert_int_equal(comet_run(&options, NULL, &again, &message), COMET_ERROR_DIVERGED);
    assert_string_equal(message.text, first.text);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), result.step - saved);
    assert_int_equal(count_of(&d, COMET_RUN_NOTE) + count_of(&d, COMET_RUN_CHECKPOINT), 0);
}

static void test_diverged(void **state) {
    (void)state;
    static const char *const codecs[] = {"none", "eb:0.3", "pool:2"};
    for (int i = 0; i < 3; i++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
            check_diverges(codecs[i], accumulate, 2);
            check_diverges(codecs[i], accumulate, 15);
        }
}

static void test_diverged_without_checkpoints(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = diverging_run(&d);
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_DIVERGED, message,
                   "there is no checkpoint to go on from: begin anew with a smaller learning rate");
}

/* Weights that are not finite, whoever made them so: nothing is written of them. */
static void spoil(void *context, const comet_run_event *event) {
    observe(context, event);
    if (event->kind == COMET_RUN_STEP && event->step == 5)
        comet_graph_parameter(comet_trainer_graph(event->trainer), 0)->value[1] = INFINITY;
}

static void test_spoilt_state(void **state) {
    (void)state;
    for (int every = 2; every <= 5; every += 3) { /* the next update finds it; the checkpoint does */
        diary d;
        comet_run_result result;
        comet_run_options options = small_run(&d);
        options.folder = in_folder(every == 2 ? "spoilt-2" : "spoilt-5");
        options.checkpoint_every = every;
        options.observe = spoil;
        assert_int_equal(comet_run(&options, NULL, &result, &message), COMET_ERROR_DIVERGED);
        assert_int_equal(result.step, 5);
        assert_int_equal(count_of(&d, COMET_RUN_CHECKPOINT), every == 2 ? 2 : 0);
        if (every == 2)
            assert_says("; go on from step 4 in '%s', or", options.folder);
        else
            assert_says("'conv1.weight' has values that are not finite: '%s/new.safetensors' was not written; there is "
                        "no checkpoint",
                        options.folder);
        options.observe = observe;
        options.resume = every == 2 ? COMET_RUN_RESUME : COMET_RUN_ANEW;
        run(&options, &result);
        assert_int_equal(result.step, 20);
    }
}

/* Weights alone, at the end. */
static void test_spoilt_weights(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 5;
    options.observe = spoil;
    options.weights_out = in_folder("spoilt.safetensors");
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_DIVERGED, message,
                   "/spoilt.safetensors' was not written");
    assert_int_equal(access(options.weights_out, F_OK), -1);
    assert_non_null(strstr(d.last_note, "evaluation is not finite"));
}

/* Under a controller steps that are not finite are skipped, up to a point; decisions are told. */
static void test_skipped(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.trainer.control = "comet:warmup=2:every=1:most-skips=4";
    run(&options, &result);
    assert_int_equal(result.skipped, 0);
    assert_true(count_of(&d, COMET_RUN_CONTROL) > 0);
    options = diverging_run(&d);
    options.trainer.control = "comet:warmup=2:every=1:most-skips=4";
    options.folder = in_folder("skipped");
    assert_int_equal(comet_run(&options, NULL, &result, &message), COMET_ERROR_DIVERGED);
    const long long made = (long long)(result.step - result.skipped); /* all that were skipped come last */
    assert_int_equal(result.skipped, 3);
    assert_says("training has diverged since step %lld: 4 steps in a row", made + 1);
    assert_says("; go on from step %lld in", made); /* while steps are skipped there is nothing new to write */
    assert_int_equal(count_of(&d, COMET_RUN_NOTE), 1);
    assert_non_null(strstr(d.last_note, "skipped"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_diverged), cmocka_unit_test(test_skipped),
                                       cmocka_unit_test(test_diverged_without_checkpoints),
                                       cmocka_unit_test(test_spoilt_state), cmocka_unit_test(test_spoilt_weights)};
    return cmocka_run_group_tests(tests, open_data, close_data);
}
