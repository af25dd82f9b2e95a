/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that go on where they stopped, and whose folder is whose: nothing of another training is lost. */
#include "test_train_run_case.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on),
                                       cmocka_unit_test(test_checkpoint_every),
                                       cmocka_unit_test(test_begins_anew),
                                       cmocka_unit_test(test_earlier_ones_stay),
                                       cmocka_unit_test(test_put_aside_halfway),
                                       cmocka_unit_test(test_put_aside_damaged),
                                       cmocka_unit_test(test_one_run_in_a_folder),
                                       cmocka_unit_test(test_nothing_to_resume_from),
                                       cmocka_unit_test(test_prepare),
                                       cmocka_unit_test(test_data_name)};
    return cmocka_run_group_tests(tests, open_data, close_data);
}
