/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: the order of events, what goes on where it stopped, what is refused, and that all memory is given back. */
#include "test_train_folder.h"

#include <math.h>
#include <stdarg.h>

#include "support/counting_allocator.h"
#include "support/effort.h"
#include "train/checkpoint/weights.h"
#include "train/run/run.h"

enum { MOST_EVENTS = 400 };

static comet_message message;

/* What an observer saw. */
typedef struct diary {
    comet_run_event events[MOST_EVENTS];
    int count;
    volatile sig_atomic_t stop;
    int64_t stop_at; /* 0: never */
    char last_note[640];
} diary;

static void observe(void *context, const comet_run_event *event) {
    diary *d = context;
    assert_true(d->count < MOST_EVENTS);
    if (event->kind == COMET_RUN_NOTE)
        snprintf(d->last_note, sizeof d->last_note, "%s", event->text);
    d->events[d->count++] = *event;
    if (d->stop_at && event->kind == COMET_RUN_STEP && event->step == d->stop_at)
        d->stop = 1; /* before the evaluation, where it is the last step */
}

static int count_of(const diary *d, comet_run_event_kind kind) {
    int count = 0;
    for (int i = 0; i < d->count; i++)
        count += d->events[i].kind == kind;
    return count;
}

static comet_dataset *data; /* 100 images to train with, 20 to evaluate with */

static int open_data(void **state) {
    if (make_temporary_folder(state) != 0)
        return -1;
    return comet_dataset_open("generated:100", NULL, &data, &message) != COMET_OK;
}

static int close_data(void **state) {
    comet_dataset_free(data);
    return remove_temporary_folder(state);
}

/* Ten batches an epoch. */
static comet_run_options small_run(diary *d) {
    *d = (diary){.count = 0};
    return (comet_run_options){.trainer = {.model = "resnet8",
                                           .height = 12,
                                           .width = 12,
                                           .batch = 10,
                                           .codec = "eb",
                                           .error_rel = 0.3,
                                           .optimiser = comet_optimiser_default(COMET_SGD),
                                           .seed = 5,
                                           .threads = 2},
                               .data = data,
                               .epochs = 2,
                               .schedule = COMET_SCHEDULE_ONE_CYCLE,
                               .rate = 0.05,
                               .evaluate_every = 1,
                               .stop = &d->stop,
                               .observe = observe,
                               .context = d};
}

static void run(const comet_run_options *options, comet_run_result *result) {
    comet_status status = comet_run(options, NULL, result, &message);
    if (status != COMET_OK)
        fail_msg("%s: %s", comet_status_string(status), message.text);
}

static size_t read_bytes(const char *path, uint8_t **bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *bytes = malloc(size + 1);
    assert_int_equal(fread(*bytes, 1, size, file), size);
    fclose(file);
    return size;
}

static void assert_same_files(const char *a, const char *b) {
    uint8_t *x, *y;
    size_t size = read_bytes(a, &x);
    assert_int_equal(read_bytes(b, &y), size);
    assert_memory_equal(x, y, size);
    free(x);
    free(y);
}

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
    const int64_t saved =
        every <= result.step ? result.step / every * every : result.step; /* where there is no other */
    assert_says("training has diverged since step %lld: ", (long long)result.step + 1);
    assert_says("; go on from step %lld in '%s', or begin anew, with a smaller learning rate", (long long)saved,
                options.folder);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), result.step);
    assert_int_equal(count_of(&d, COMET_RUN_CHECKPOINT), every <= result.step ? result.step / every : 1);
    assert_int_equal(access(options.weights_out, F_OK), -1);
    options.resume =
        COMET_RUN_RESUME; /* from a checkpoint that is finite, or it would be refused; then all happens again */
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

/* ---- going on ---- */

/* Stopped in the middle of each epoch, and begun again from the checkpoint: the weights of a run that was not. */
static void check_going_on(const char *name, comet_run_options options, diary *d) {
    char text[96];
    comet_run_result result;
    snprintf(text, sizeof text, "%s-whole.safetensors", name);
    const char *whole = in_folder(text);
    snprintf(text, sizeof text, "%s-parts.safetensors", name);
    const char *parts = in_folder(text);
    options.weights_out = whole;
    run(&options, &result);
    int64_t steps = result.step;
    options.weights_out = parts;
    options.folder = in_folder(name);
    options.resume = COMET_RUN_RESUME_AUTO;
    for (int64_t at = 2; at <= steps; at += at + 5 > steps && at < steps ? steps - at : 5) {
        *d = (diary){.stop_at = at};
        run(&options, &result);
        assert_int_equal(result.stopped, 1);
        assert_int_equal(result.step, at);
    }
    *d = (diary){.count = 0};
    run(&options, &result);
    assert_int_equal(result.stopped, 0);
    assert_int_equal(result.step, steps);
    assert_same_files(whole, parts);
}

static void test_goes_on(void **state) {
    (void)state;
    diary d;
    comet_run_options options = small_run(&d);
    check_going_on("eb", options, &d);
    options.trainer.control = "comet:warmup=3:every=2";
    check_going_on("comet", options, &d);
    options.trainer.control = NULL;
    options.trainer.codec = "none";
    options.trainer.optimiser = comet_optimiser_default(COMET_ADAMW);
    options.trainer.accumulate = 3;
    options.rate = 1e-3;
    options.epochs = 4;
    check_going_on("adamw", options, &d);
}

static void test_checkpoint_every(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.folder = in_folder("every");
    options.checkpoint_every = 8;
    run(&options, &result);
    int64_t expected[] = {8, 16, 20};
    int found = 0;
    for (int i = 0; i < d.count; i++)
        if (d.events[i].kind == COMET_RUN_CHECKPOINT)
            assert_int_equal(d.events[i].step, expected[found++]);
    assert_int_equal(found, 3);
}

static void test_begins_anew(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("anew");
    run(&options, &result);
    options.weights_out = in_folder("anew.safetensors");
    run(&options, &result);
    assert_non_null(strstr(d.last_note, "earlier.safetensors"));
    assert_int_equal(access(in_folder("anew/earlier.safetensors"), F_OK), 0);
    assert_same_files(in_folder("anew/earlier.safetensors"), in_folder("anew/last.safetensors")); /* the same run */
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void copy_file(const char *from, const char *to) {
    uint8_t *bytes;
    size_t size = read_bytes(from, &bytes);
    FILE *file = fopen(to, "wb");
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    free(bytes);
}

/* The third run and the fourth do not take away what the second has put aside. */
static void test_earlier_ones_stay(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("many");
    static const char *const names[] = {"many/earlier.safetensors", "many/earlier-2.safetensors",
                                        "many/earlier-3.safetensors"};
    static const char *const copies[] = {"first", "second", "third"};
    for (int i = 0; i < 4; i++) {
        options.trainer.seed = (uint64_t)i + 1;
        run(&options, &result);
        if (i == 0)
            assert_int_equal(count_of(&d, COMET_RUN_NOTE), 0);
        else
            assert_non_null(strstr(d.last_note, names[i - 1]));
        if (i < 3)
            copy_file(in_folder("many/last.safetensors"), in_folder(copies[i]));
    }
    for (int i = 0; i < 3; i++)
        assert_same_files(in_folder(names[i]), in_folder(copies[i]));
}

/* A program that was killed between the two steps of putting it aside left it under both names. */
static void test_put_aside_halfway(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("half");
    run(&options, &result);
    assert_int_equal(link(in_folder("half/last.safetensors"), in_folder("half/earlier.safetensors")), 0);
    copy_file(in_folder("half/last.safetensors"), in_folder("half-copy"));
    options.trainer.seed = 9;
    run(&options, &result);
    assert_same_files(in_folder("half/earlier.safetensors"), in_folder("half-copy"));
    assert_int_equal(access(in_folder("half/earlier-2.safetensors"), F_OK), -1);
}

/* The newest is damaged: the one before it is what there is to keep, and both are. */
static void test_put_aside_damaged(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 4;
    options.checkpoint_every = 2;
    options.folder = in_folder("broken");
    run(&options, &result);
    copy_file(in_folder("broken/previous.safetensors"), in_folder("whole-one"));
    FILE *file = fopen(in_folder("broken/last.safetensors"), "r+b");
    assert_non_null(file);
    fseek(file, -100, SEEK_END);
    int byte = fgetc(file);
    fseek(file, -100, SEEK_END);
    fputc(byte ^ 1, file);
    fclose(file);
    run(&options, &result);
    assert_same_files(in_folder("broken/earlier.safetensors"), in_folder("whole-one"));
    assert_int_equal(access(in_folder("broken/earlier-2.safetensors"), F_OK), 0);
    assert_non_null(strstr(d.last_note, "damaged"));
}

/* ---- the folder ---- */

/* Tries to begin in the folder of a run that has begun. */
typedef struct intruder {
    comet_run_options options;
    comet_status status;
    comet_message message;
} intruder;

static void intrude(void *context, const comet_run_event *event) {
    intruder *i = context;
    comet_run_result result;
    if (event->kind == COMET_RUN_STARTED)
        i->status = comet_run(&i->options, NULL, &result, &i->message);
}

static void test_one_run_in_a_folder(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    char process[64];
    intruder i = {.options = small_run(&d)};
    i.options.steps = 2;
    i.options.folder = in_folder("shared");
    comet_run_options options = i.options;
    options.observe = intrude;
    options.context = &i;
    assert_int_equal(mkdir(in_folder("shared"), 0777), 0);
    write_text(in_folder("shared/lock"), "process 1 on another, which ended by a power cut\n");
    snprintf(process, sizeof process, "(process %ld on ", (long)getpid());
    for (int resume = COMET_RUN_ANEW; resume <= COMET_RUN_RESUME_AUTO; resume++) {
        i.options.resume = (comet_run_resume)resume;
        run(&options, &result);
        assert_int_equal(i.status, COMET_ERROR_IO);
        assert_non_null(strstr(i.message.text, in_folder("shared")));
        assert_non_null(strstr(i.message.text, process));
        assert_non_null(strstr(i.message.text, "--checkpoint"));
        assert_int_equal(count_of(&d, COMET_RUN_NOTE), 0); /* the one that was refused did nothing */
        assert_int_equal(access(in_folder("shared/lock"), F_OK), -1);
    }
}

static void test_nothing_to_resume_from(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("nothing");
    options.resume = COMET_RUN_RESUME;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_IO, message, "--resume=auto");
    assert_non_null(strstr(message.text, options.folder));
    assert_int_equal(access(options.folder, F_OK), -1);
    assert_int_equal(mkdir(options.folder, 0777), 0);
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_IO, message, "there is no checkpoint");
    options.resume = COMET_RUN_RESUME_AUTO;
    run(&options, &result);
    assert_non_null(strstr(d.last_note, "beginning anew"));
    assert_int_equal(result.step, 2);
    d.count = 0;
    options.steps = 3;
    run(&options, &result);
    assert_int_equal(count_of(&d, COMET_RUN_NOTE), 0);
    assert_int_equal(count_of(&d, COMET_RUN_STEP), 1);
}

static comet_status cannot(void *context, comet_message *why) {
    (void)context;
    return comet_message_set(why, COMET_ERROR_IO, "cannot prepare");
}

/* A run that is refused leaves what it found. */
static void test_prepare(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.steps = 2;
    options.folder = in_folder("prepared");
    options.prepare = cannot;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_IO, message, "cannot prepare");
    assert_int_equal(access(options.folder, F_OK), -1);
    options.prepare = NULL;
    run(&options, &result);
    copy_file(in_folder("prepared/last.safetensors"), in_folder("unprepared"));
    d.count = 0;
    options.prepare = cannot;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_IO, message, "cannot prepare");
    options.prepare = NULL;
    options.weights = in_folder("no-such-weights");
    assert_int_not_equal(comet_run(&options, NULL, &result, &message), COMET_OK);
    assert_int_equal(d.count, 0);
    assert_same_files(in_folder("prepared/last.safetensors"), in_folder("unprepared"));
    assert_int_equal(access(in_folder("prepared/earlier.safetensors"), F_OK), -1);
}

/* Where the data was is told; other data is refused with where it was. */
static void test_data_name(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    comet_dataset *other = NULL;
    options.folder = in_folder("named");
    options.steps = 1; /* without a name, as before there were names */
    run(&options, &result);
    options.resume = COMET_RUN_RESUME;
    static const char *const names[] = {"folder:/a/pets", "folder:/a/pets", "folder:/b/pets"};
    for (int i = 0; i < 3; i++) {
        options.steps++;
        options.data_name = names[i];
        run(&options, &result);
        assert_int_equal(count_of(&d, COMET_RUN_NOTE), i == 2);
    }
    assert_non_null(strstr(d.last_note, "'folder:/a/pets', this is 'folder:/b/pets'"));
    assert_ok(comet_dataset_open("generated:90", NULL, &other, &message));
    options.steps++;
    options.data = other;
    options.data_name = "folder:/c/pets";
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_MISMATCH, message, "'folder:/b/pets'");
    comet_dataset_free(other);
}

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

static void test_refused(void **state) {
    (void)state;
    diary d;
    comet_run_result result;
    comet_run_options options = small_run(&d);
    options.epochs = 0;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "epochs or steps");
    options = small_run(&d);
    options.trainer.model = "resnet9";
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "resnet8");
    options = small_run(&d);
    options.trainer.batch = 0;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "batch");
    options = small_run(&d);
    options.trainer.batch = 101;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "100");
    options = small_run(&d);
    options.warmup_epochs = 3;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "warm-up");
    options = small_run(&d);
    options.folder = "/proc/none";
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_IO, message, "/proc/none");
    options = small_run(&d);
    options.trainer.memory_bytes = 100000;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_CAPACITY, message, "at least");
    options = small_run(&d);
    options.resume = COMET_RUN_RESUME_AUTO;
    assert_refused(comet_run(&options, NULL, &result, &message), COMET_ERROR_ARGUMENT, message, "a folder");
    assert_int_equal(count_of(&d, COMET_RUN_STARTED), 0);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_train_loss),
                                       cmocka_unit_test(test_evaluation),
                                       cmocka_unit_test(test_accumulation),
                                       cmocka_unit_test(test_diverged),
                                       cmocka_unit_test(test_skipped),
                                       cmocka_unit_test(test_diverged_without_checkpoints),
                                       cmocka_unit_test(test_spoilt_state),
                                       cmocka_unit_test(test_spoilt_weights),
                                       cmocka_unit_test(test_goes_on),
                                       cmocka_unit_test(test_checkpoint_every),
                                       cmocka_unit_test(test_begins_anew),
                                       cmocka_unit_test(test_from_weights),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_full_spill),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_earlier_ones_stay),
                                       cmocka_unit_test(test_put_aside_halfway),
                                       cmocka_unit_test(test_put_aside_damaged),
                                       cmocka_unit_test(test_one_run_in_a_folder),
                                       cmocka_unit_test(test_nothing_to_resume_from),
                                       cmocka_unit_test(test_prepare),
                                       cmocka_unit_test(test_data_name),
                                       cmocka_unit_test(test_largest_batch),
                                       cmocka_unit_test(test_one_loader),
                                       cmocka_unit_test(test_evaluations_change_nothing),
                                       cmocka_unit_test(test_largest_within)};
    return cmocka_run_group_tests(tests, open_data, close_data);
}
