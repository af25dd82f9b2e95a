/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on a GPU: one that stops and goes on is the one that did not stop. */
#include "unit/train/test_train_run_case.h"

#include "support/cuda/cuda_memory.h"
#include "train/backend/cuda.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/train/stand_in.h"
#endif

static comet_dtype dtype; /* of the next backend */

static comet_status backend_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend) {
    comet_backend_cuda_options o = {.dtype = dtype, .exact_products = 1, .deterministic = 1, .threads = threads};
#ifdef COMET_CUDA_EMULATION
    o.loader = comet_stand_in_loader();
#endif
    return comet_backend_cuda_new(&o, allocator, backend, &message);
}

/* Stopped after every second step. */
static void check_going_on(const char *name, comet_run_options options, comet_dtype type, diary *d) {
    comet_run_result result;
    char text[96];
    dtype = type;
    options.trainer.backend = backend_new;
    options.trainer.place = (comet_place){.device = {COMET_CUDA, 0}, .dtype = type, .deterministic = 1};
    snprintf(text, sizeof text, "%s-whole.safetensors", name);
    const char *whole = in_folder(text);
    snprintf(text, sizeof text, "%s-parts.safetensors", name);
    const char *parts = in_folder(text);
    options.weights_out = whole;
    run(&options, &result);
    options.weights_out = parts;
    options.folder = in_folder(name);
    options.resume = COMET_RUN_RESUME_AUTO;
    for (int64_t at = 2; at < options.steps; at += 2) {
        *d = (diary){.stop_at = at};
        run(&options, &result);
        assert_int_equal(result.step, at);
        assert_string_equal(at == 2 ? "" : d->last_note, "");
    }
    *d = (diary){.count = 0};
    run(&options, &result);
    assert_int_equal(result.step, options.steps);
    assert_same_files(whole, parts);
}

static comet_run_options few_steps(diary *d) {
    comet_run_options options = small_run(d);
    options.epochs = 0;
    options.steps = 5;
    options.evaluate_every = 0;
    return options;
}

static void test_goes_on(void **state) {
    (void)state;
    diary d;
    check_going_on("fp32", few_steps(&d), COMET_F32, &d);
    check_going_on("fp16", few_steps(&d), COMET_F16, &d);
}

static void test_goes_on_under_control(void **state) {
    (void)state;
    diary d;
    comet_run_options options = few_steps(&d);
    options.trainer.control = "comet:warmup=2:every=2";
    check_going_on("control", options, COMET_BF16, &d);
}

/* The time a step takes on a device is in the update's, that it waits for images apart from it. */
static void test_waits(void **state) {
    (void)state;
    diary d;
    comet_run_options options = few_steps(&d);
    dtype = COMET_F32;
    options.trainer.backend = backend_new;
    options.trainer.place = (comet_place){.device = {COMET_CUDA, 0}, .deterministic = 1};
    options.trainer.batch = 2;
    options.loader_threads = 1;
    check_waits(options, &d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on), cmocka_unit_test(test_goes_on_under_control),
                                       cmocka_unit_test(test_waits)};
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, open_data, close_data);
}
