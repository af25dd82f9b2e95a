/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: the order of events, figures, what is refused, the largest batch, and that all memory is given back. */
#include "test_train_run_case.h"

#include <math.h>

#include "support/counting_allocator.h"
#include "support/effort.h"
#include "train/checkpoint/weights.h"

/* ---- events and figures ---- */

static void test_events(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.folder = in_folder("events");
    run(&options, &result);
    assert_int_equal(d.events[0].kind, COMET_RUN_STARTED);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), 20);
    assert_int_equal(count_of(&d, COMET_RUN_EVALUATED), 2);
    assert_int_equal(count_of(&d, COMET_RUN_CHECKPOINT), 2);
    int64_t step = 0;
    double top = 0;
    for (int i = 0; i < d.count; i++) {
        const comet_run_event *e = &d.events[i];
        step += e->kind == COMET_RUN_STEP;
        assert_int_equal(e->step, step);
        assert_int_equal(e->steps, 20);
        if (e->kind != COMET_RUN_STEP)
            continue;
        assert_int_equal(e->epoch, (step - 1) / 10);
        assert_int_equal(e->images, 10);
        assert_true(e->result.loss > 0 && e->result.top1 <= e->result.top5 && e->result.top5 <= 10);
        assert_true(e->result.saved_stored_bytes < e->result.saved_raw_bytes / 3);
        top = fmax(top, e->learning_rate);
    }
    assert_true(top > 0.045 && top <= 0.05);
    assert_int_equal(result.step, 20);
    assert_int_equal(result.stopped, 0);
    assert_true(result.ms_per_step > 0 && fabs(result.images_per_second * result.ms_per_step - 1e4) < 1);
    assert_true(result.bytes.allocated_peak_bytes <= result.bytes.planned_peak_bytes);
    assert_true(result.loader_bytes[COMET_SPLIT_TRAIN] > 0 && result.loader_bytes[COMET_SPLIT_EVALUATE] > 0);
}

/* The mean of the last epoch's losses. */
static void test_train_loss(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    double sum = 0;
    run(&options, &result);
    for (int i = 0; i < d.count; i++)
        if (d.events[i].kind == COMET_RUN_STEP && d.events[i].step > 10)
            sum += d.events[i].result.loss;
    assert_true(fabs(result.train_loss - sum / 10) < 1e-9);
}

static void test_evaluation(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 3;
    options.trainer.batch = 15; /* 20 images: a whole batch and a part of one */
    run(&options, &result);
    assert_int_equal(d.events[d.count - 1].kind, COMET_RUN_EVALUATED);
    assert_int_equal(d.events[d.count - 1].samples, 20);
    options = small_run(&d);
    options.steps = 3;
    options.evaluate_most = 7;
    run(&options, &result);
    assert_int_equal(d.events[d.count - 1].samples, 7);
    assert_int_equal(count_of(&d, COMET_RUN_EVALUATED), 1);
    assert_true(result.top1 <= result.top5 && result.top5 <= 100 && result.loss > 0);
}

/* Three batches an update: 20 batches are 7 updates, the last of which borrows from the next epoch. */
static void test_accumulation(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.trainer.accumulate = 3;
    run(&options, &result);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), 7);
    assert_int_equal(count_of(&d, COMET_RUN_EVALUATED), 2);
    assert_int_equal(d.events[1].images, 30);
    assert_true(d.events[1].result.top5 <= 30);
    assert_true(fabs(result.images_per_second * result.ms_per_step - 3e4) < 1);
}

/* ---- the folder ---- */

static void test_from_weights(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_graph *five = network("resnet8", 5, 3);
    comet_run_options options = small_run(&d);
    options.steps = 1;
    options.trainer.channels = 3;
    options.weights = in_folder("five.safetensors");
    assert_ok(comet_weights_write(options.weights, comet_graph_parameter(five, 0), comet_graph_parameters(five), 7,
                                  NULL, &message));
    run(&options, &result);
    assert_non_null(strstr(d.last_note, "classes"));
    comet_graph_free(five);
}

/* ---- refusals ---- */

/* Refused with this line, before anything began; then the options are good again. */
static void check_refused(comet_run_options *options, comet_status expected, const char *part) {
    comet_run_result result;
    diary *d = options->context;
    assert_refused(comet_run(options, NULL, &result, &message), expected, message, part);
    assert_int_equal(count_of(d, COMET_RUN_STARTED), 0);
    *options = small_run(d);
}

static void test_refused(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    options.epochs = 0;
    check_refused(&options, COMET_ERROR_ARGUMENT, "epochs or steps");
    options.trainer.model = "resnet9";
    check_refused(&options, COMET_ERROR_ARGUMENT, "resnet8");
    options.trainer.batch = 0;
    check_refused(&options, COMET_ERROR_ARGUMENT, "batch");
    options.trainer.batch = 101;
    check_refused(&options, COMET_ERROR_ARGUMENT, "100");
    options.warmup_epochs = 3;
    check_refused(&options, COMET_ERROR_ARGUMENT, "warm-up");
    options.folder = "/proc/none";
    check_refused(&options, COMET_ERROR_IO, "/proc/none");
    options.trainer.memory_bytes = 100000;
    check_refused(&options, COMET_ERROR_CAPACITY, "at least");
    options.resume = COMET_RUN_RESUME_AUTO;
    check_refused(&options, COMET_ERROR_ARGUMENT, "a folder");
}

/* The spill file's disk is full after some steps: the last update is in a checkpoint. */
static void test_full_spill(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.trainer.codec = "offload";
    options.trainer.spill_directory = in_folder("");
    options.trainer.spill_limit_bytes = 1000;
    options.folder = in_folder("spill");
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_DISK_FULL, message, "resume from step 0");
    options.trainer.spill_limit_bytes = 0;
    options.resume = COMET_RUN_RESUME;
    options.weights_out = in_folder("spill-parts.safetensors");
    run(&options, &result);
    assert_int_equal(result.step, 20);
    options.folder = NULL;
    options.resume = COMET_RUN_ANEW;
    options.weights_out = in_folder("spill-whole.safetensors");
    run(&options, &result);
    assert_same_files(in_folder("spill-parts.safetensors"), in_folder("spill-whole.safetensors"));
}

/* ---- memory ---- */

/* How many requests making the trainer takes: they are its own tests' matter. */
static long trainer_requests(const comet_run_options *options) {
    counting_allocator counter;
    comet_trainer_options completed;
    comet_trainer *trainer = NULL;
    size_t loader_bytes[COMET_SPLITS];
    counting_allocator_init(&counter);
    assert_ok(comet_run_trainer_options(options, &completed, loader_bytes, &message));
    assert_ok(comet_trainer_new(&completed, &counter.allocator, &trainer, &message));
    comet_trainer_free(trainer);
    return counter.calls;
}

/* Whichever request gets nothing: one line, and all that was taken comes back. */
static void test_no_memory(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("counted");
    counting_allocator counter;
    counting_allocator_init(&counter);
    assert_ok(comet_run(&options, &counter.allocator, &result, &message));
    assert_int_equal(counter.live_blocks, 0);
    long calls = counter.calls, first = trainer_requests(&options) + 1;
    for (long at = first; at <= calls; at += 1 + (calls - first) / (40 * effort(1))) {
        d.count = 0;
        counting_allocator_init(&counter);
        counter.fail_at = at;
        message.text[0] = '\0';
        comet_status status = comet_run(&options, &counter.allocator, &result, &message);
        if (status != COMET_ERROR_MEMORY)
            fail_msg("request %ld of %ld: %s: %s", at, calls, comet_status_string(status), message.text);
        assert_true(message.text[0] != '\0');
        assert_int_equal(counter.live_blocks, 0);
        assert_int_equal(counter.wrong_sizes, 0);
    }
}

static comet_trainer_bytes bytes_of(const comet_run_options *options) {
    comet_trainer_options trainer;
    comet_trainer_bytes bytes;
    size_t loader_bytes[COMET_SPLITS];
    int fits;
    assert_ok(comet_run_trainer_options(options, &trainer, loader_bytes, &message));
    assert_ok(comet_trainer_fits(&trainer, NULL, &fits, &bytes, &message));
    assert_true(fits);
    return bytes;
}

/* There is one loader at a time: the larger of them is what a budget counts beside the data. */
static void test_one_loader(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    comet_trainer_options trainer;
    comet_run_result result;
    size_t bytes[COMET_SPLITS];
    assert_ok(comet_run_trainer_options(&options, &trainer, bytes, &message));
    assert_true(bytes[COMET_SPLIT_TRAIN] > bytes[COMET_SPLIT_EVALUATE] && bytes[COMET_SPLIT_EVALUATE] > 0);
    assert_int_equal(trainer.reserved_bytes, comet_dataset_get_info(data)->memory_bytes + bytes[COMET_SPLIT_TRAIN]);
    run(&options, &result);
    const size_t planned = result.bytes.planned_peak_bytes + result.bytes.library_bytes;
    assert_int_equal(comet_run_planned_peak(&result), planned + bytes[COMET_SPLIT_TRAIN]);
}

/* A budget of a GPU's memory has nothing to do with what data and loaders hold: that is the host's. */
static void test_loaders_of_a_gpu(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    comet_trainer_options trainer;
    size_t bytes[COMET_SPLITS];
    options.trainer.place.device = (comet_device){COMET_CUDA, 0};
    assert_ok(comet_run_trainer_options(&options, &trainer, bytes, &message));
    assert_int_equal(trainer.reserved_bytes, 0);
    assert_true(bytes[COMET_SPLIT_TRAIN] == 0 && bytes[COMET_SPLIT_EVALUATE] == 0);
}

/* Evaluations between epochs leave no trace: training goes on where it was in the data. */
static void test_evaluations_change_nothing(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    char seen[600], unseen[600];
    snprintf(seen, sizeof seen, "%s", in_folder("seen.safetensors"));
    snprintf(unseen, sizeof unseen, "%s", in_folder("unseen.safetensors"));
    for (int every = 0; every < 2; every++) {
        comet_run_options options = small_run(&d);
        options.epochs = 3;
        options.evaluate_every = every;
        options.weights_out = every ? seen : unseen;
        run(&options, &result);
        assert_int_equal(count_of(&d, COMET_RUN_EVALUATED), every ? 3 : 1);
    }
    assert_same_files(seen, unseen);
}

/* With a file to spill to there is a plan for more than what fits as it is; one more than that does not fit. */
static void test_largest_within(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    int batch, as_asked, fits;
    options.trainer.codec = "none";
    options.trainer.spill_directory = "/tmp";
    options.trainer.memory_bytes = ((size_t)3 << 20) + bytes_of(&options).library_bytes;
    assert_ok(comet_run_largest_batch(&options, 90, NULL, &as_asked, &message));
    assert_ok(comet_run_largest_within(&options, 90, NULL, &batch, &message));
    assert_true(batch > as_asked && batch < 90);
    for (int more = 0; more < 2; more++) {
        comet_trainer_options trainer;
        size_t loader_bytes[COMET_SPLITS];
        options.trainer.batch = batch + more;
        assert_ok(comet_run_trainer_options(&options, &trainer, loader_bytes, &message));
        assert_ok(comet_trainer_fits(&trainer, NULL, &fits, NULL, &message));
        assert_int_equal(fits, !more);
    }
}

/* What the largest batch takes fits, what one more takes does not; compressed it is larger. */
static void test_largest_batch(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    const size_t limit = ((size_t)5 << 20) + bytes_of(&options).library_bytes;
    int batch[2];
    for (int i = 0; i < 2; i++) {
        options.trainer.codec = i ? "eb" : "none";
        options.trainer.memory_bytes = limit;
        assert_ok(comet_run_largest_batch(&options, 90, NULL, &batch[i], &message));
        for (int more = 0; more < 2 && batch[i] + more <= 90; more++) {
            comet_trainer_options trainer;
            comet_fit fit;
            size_t loader_bytes[COMET_SPLITS];
            options.trainer.batch = batch[i] + more;
            options.trainer.memory_bytes = 0;
            assert_ok(comet_run_trainer_options(&options, &trainer, loader_bytes, &message));
            assert_ok(comet_trainer_fit(&trainer, NULL, &fit, NULL, NULL, NULL, &message));
            assert_int_equal(fit.bytes.planned_peak_bytes + fit.bytes.library_bytes + trainer.reserved_bytes > limit,
                             more);
        }
    }
    assert_true(batch[1] > batch[0] && batch[0] > 1);
    options.trainer.memory_bytes = 1 << 20;
    assert_refused(comet_run_largest_batch(&options, 90, NULL, batch, &message), COMET_ERROR_CAPACITY, message,
                   "a batch of 1");
}

static void test_waits(void **state) {
    (void)state;
    diary d;
    const comet_run_options options = small_run(&d);
    check_waits(options, &d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),           cmocka_unit_test(test_train_loss),
        cmocka_unit_test(test_evaluation),       cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_from_weights),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_full_spill),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_largest_batch),    cmocka_unit_test(test_one_loader),
        cmocka_unit_test(test_loaders_of_a_gpu), cmocka_unit_test(test_evaluations_change_nothing),
        cmocka_unit_test(test_largest_within),   cmocka_unit_test(test_waits)};
    return cmocka_run_group_tests(tests, open_data, close_data);
}
