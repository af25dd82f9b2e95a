/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets: the least that is said to do does, less does not; what fits one way or another gives the same bits; what is
 * resident is what was planned.
 */
#include "test_train_trainer.h"

#include <sys/wait.h>
#include <unistd.h>

static comet_fit fit_of(const comet_trainer_options *o) {
    comet_fit fit;
    comet_message message;
    assert_done(comet_trainer_fit(o, NULL, &fit, NULL, NULL, NULL, &message), message);
    return fit;
}

/* All that a budget counts, but for what the caller holds. */
static size_t whole(const comet_trainer_bytes *b) {
    return b->planned_peak_bytes + b->library_bytes;
}

static size_t held(const comet_trainer *t) {
    const comet_trainer_bytes b = comet_trainer_get_bytes(t);
    return b.allocated_peak_bytes + b.library_bytes;
}

/* ---- the least ---- */

static void check_least(const char *model, const char *codec, const char *directory) {
    comet_trainer_options o = options_for(model, codec);
    o.spill_directory = directory;
    o.reserved_bytes = 12345;
    const comet_fit plenty = fit_of(&o);
    o.memory_bytes = plenty.least_bytes;
    const comet_fit least = fit_of(&o);
    assert_true(whole(&least.bytes) + o.reserved_bytes <= o.memory_bytes);
    assert_true(least.bytes.planned_peak_bytes <= plenty.bytes.planned_peak_bytes);
    comet_trainer *t = trainer_of(&o);
    for (int i = 0; i < 4; i++)
        train(t, (uint64_t)i, 0.05);
    assert_true(held(t) + o.reserved_bytes <= o.memory_bytes);
    evaluate(t, BATCH);
    comet_trainer_free(t);
    comet_message message;
    comet_fit fit;
    o.memory_bytes--;
    assert_int_equal(comet_trainer_new(&o, NULL, &t, &message), COMET_ERROR_CAPACITY);
    assert_non_null(strstr(message.text, "at least"));
    assert_int_equal(comet_trainer_fit(&o, NULL, &fit, NULL, NULL, NULL, &message), COMET_ERROR_CAPACITY);
    assert_int_equal(fit.least_bytes, o.memory_bytes + 1);
}

static void test_least(void **state) {
    (void)state;
    const char *codecs[] = {"none", "eb", "pool:2", "zvc", "recompute", "group:4"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        check_least("resnet8", codecs[i], NULL);
        check_least("resnet8", codecs[i], "/tmp");
    }
    check_least("resnet8", "eb+offload", "/tmp");
    check_least("efficientnet_b0", "eb", "/tmp");
}

/* But for what a controller holds itself. */
static void check_against_none(comet_trainer_options o, const char *codec, const char *control) {
    o.codec = "none";
    const comet_fit none = fit_of(&o);
    o.codec = codec;
    o.control = control;
    const comet_fit fit = fit_of(&o);
    if (fit.least_bytes - fit.bytes.static_bytes > none.least_bytes - none.bytes.static_bytes)
        fail_msg("%s, %s, batch %d of %d, %s: the least is %zu, that of none %zu", o.model, codec, o.batch, o.height,
                 o.spill_directory ? "with a file" : "without one", fit.least_bytes, none.least_bytes);
    assert_true(control || fit.least_bytes <= none.least_bytes);
}

static void test_no_codec_needs_more_than_none(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int batch, side;
    } cases[] = {
        {"resnet8", 128, 32}, {"resnet20", 3, 16}, {"resnet18", 16, 64}, {"efficientnet_b0", 16, 96}, {"vgg16", 4, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        comet_trainer_options o = options_for(cases[i].model, "none");
        o.batch = cases[i].batch;
        o.height = o.width = cases[i].side;
        for (int file = 0; file < 2; file++) {
            o.spill_directory = file ? "/tmp" : NULL;
            check_against_none(o, "eb", NULL);
            check_against_none(o, "eb", "comet");
            check_against_none(o, "zvc", NULL);
        }
    }
}

static int count_form(const comet_trainer *t, comet_store_form form, int offload) {
    int count = 0;
    for (int i = 0; i < comet_plan_entries(comet_trainer_plan(t)); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(comet_trainer_plan(t), i);
        count += e->kind <= COMET_SAVED_NORM && e->form.form == form && e->form.offload == offload;
    }
    return count;
}

/*
 * Below what the largest stream could come to, that tensor alone is in the file as it is, and others are still
 * compressed.
 */
static void test_large_ones_as_they_are(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    const comet_fit fit = fit_of(&o);
    o.memory_bytes = whole(&fit.bytes);
    comet_trainer *t;
    int plain = 0, streams = 1;
    for (; o.memory_bytes > fit.least_bytes && plain == 0; o.memory_bytes -= 4096) {
        t = trainer_of(&o);
        plain = count_form(t, COMET_FORM_KEEP, 1);
        streams = count_form(t, COMET_FORM_CODEC, 0);
        if (plain > 0) {
            train(t, 0, 0.05);
            assert_true(held(t) <= o.memory_bytes);
        }
        comet_trainer_free(t);
    }
    assert_true(plain > 0 && streams > 0);
}

/* ---- the same bits ---- */

static void check_budgets(const char *model, const char *directory, int budgets) {
    comet_trainer_options o = options_for(model, "none");
    o.spill_directory = directory;
    const uint64_t expected = trained(&o, 2);
    const comet_fit fit = fit_of(&o);
    const size_t most = whole(&fit.bytes);
    for (int i = 0; i <= budgets; i++) {
        o.memory_bytes = most - (most - fit.least_bytes) / (size_t)budgets * (size_t)i;
        comet_trainer *t = trainer_of(&o);
        train(t, 0, 0.05);
        comet_trainer_result result = train(t, 1, 0.05);
        assert_true(digest(t) == expected);
        assert_true(held(t) <= o.memory_bytes);
        assert_true(i == 0 || result.saved_stored_bytes - result.spilled_bytes < result.saved_raw_bytes);
        comet_trainer_free(t);
    }
}

static void test_budgets_give_the_same_bits(void **state) {
    (void)state;
    check_budgets("resnet20", NULL, 5);
    check_budgets("resnet20", "/tmp", 5);
    check_budgets("efficientnet_b0", NULL, 2);
}

/* ---- sizes that are not what was thought ---- */

enum {
    PLAIN_WORD = 5
}; /* of estimates, in words of 8 bytes; sizes follow, in two windows, then as many rms as in one */

static size_t rms_words(size_t bytes) {
    return (bytes / sizeof(uint64_t) - PLAIN_WORD - 1) / 3;
}

static int count_again(const comet_trainer *t) {
    int again = 0;
    for (int i = 0; i < comet_plan_entries(comet_trainer_plan(t)); i++)
        again += comet_plan_get_entry(comet_trainer_plan(t), i)->form.form == COMET_FORM_RECOMPUTE;
    return again;
}

/* Estimates of a byte each: the first step finds no room, and goes on under another plan as if nothing had been. */
static void test_step_is_run_again(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet20", "none");
    const uint64_t expected = trained(&o, 2);
    o.codec = "zvc";
    o.spill_directory = NULL;
    const comet_fit fit = fit_of(&o);
    o.memory_bytes = (fit.least_bytes + 2 * whole(&fit.bytes)) / 3;
    comet_trainer *t = trainer_of(&o);
    comet_message message;
    const size_t bytes = comet_trainer_estimates_bytes(t);
    uint64_t *data = malloc(bytes);
    comet_trainer_get_estimates(t, data);
    for (size_t i = 2; i < bytes / sizeof *data - rms_words(bytes); i++)
        data[i] = i < 4 || i == PLAIN_WORD ? 0 : 1; /* what is saved beside, then sizes */
    assert_done(comet_trainer_set_estimates(t, data, bytes, &message), message);
    free(data);
    const size_t hopeful = comet_trainer_get_bytes(t).saved_stored_bytes;
    train(t, 0, 0.05);
    train(t, 1, 0.05);
    assert_true(digest(t) == expected);
    assert_true(comet_trainer_get_bytes(t).saved_stored_bytes > hopeful);
    assert_true(held(t) <= o.memory_bytes);
    assert_true(count_again(t) > 0);
    comet_trainer_free(t);
}

/* A run that is resumed goes on under the plan it had. */
static void test_resumed_plan(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet20", "eb");
    o.spill_directory = NULL;
    const comet_fit fit = fit_of(&o);
    o.memory_bytes = (fit.least_bytes + whole(&fit.bytes)) / 2;
    comet_trainer *t = trainer_of(&o), *other = trainer_of(&o);
    comet_message message;
    train(t, 0, 0.05);
    char *data = malloc(comet_trainer_estimates_bytes(t));
    comet_trainer_get_estimates(t, data);
    assert_done(comet_trainer_set_estimates(other, data, comet_trainer_estimates_bytes(t), &message), message);
    free(data);
    const comet_plan *a = comet_trainer_plan(t), *b = comet_trainer_plan(other);
    assert_int_equal(comet_plan_entries(a), comet_plan_entries(b));
    for (int i = 0; i < comet_plan_entries(a); i++) {
        assert_int_equal(comet_plan_get_entry(a, i)->form.form, comet_plan_get_entry(b, i)->form.form);
        assert_int_equal(comet_plan_get_entry(a, i)->stored_bytes, comet_plan_get_entry(b, i)->stored_bytes);
    }
    comet_trainer_free(t);
    comet_trainer_free(other);
}

/* Of version 2, which had no plain tensors and no rms: these words are not there. */
static void test_older_estimates(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    comet_trainer *t = trainer_of(&o), *other = trainer_of(&o);
    comet_message message;
    train(t, 0, 0.05);
    const size_t bytes = comet_trainer_estimates_bytes(t);
    uint64_t *data = malloc(bytes);
    comet_trainer_get_estimates(t, data);
    const uint32_t version = 2;
    memcpy((char *)data + sizeof version, &version, sizeof version);
    memmove(&data[PLAIN_WORD], &data[PLAIN_WORD + 1], bytes - (PLAIN_WORD + 1) * sizeof *data);
    const size_t old_bytes = bytes - (1 + rms_words(bytes)) * sizeof *data;
    assert_int_equal(comet_trainer_set_estimates(other, data, bytes, &message), COMET_ERROR_MISMATCH);
    assert_done(comet_trainer_set_estimates(other, data, old_bytes, &message), message);
    free(data);
    assert_int_equal(comet_trainer_get_bytes(t).saved_stored_bytes, comet_trainer_get_bytes(other).saved_stored_bytes);
    comet_trainer_free(t);
    comet_trainer_free(other);
}

/* Guesses that are too high ask for more saving than is needed: after the first batch that is known. */
static void test_settles(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet20", "zvc");
    o.spill_directory = NULL;
    comet_trainer *t = trainer_of(&o);
    const size_t guessed = comet_trainer_get_bytes(t).planned_peak_bytes;
    train(t, 0, 0.05);
    const size_t seen = comet_trainer_get_bytes(t).planned_peak_bytes;
    comet_trainer_free(t);
    assert_true(seen < guessed);
    o.memory_bytes = (seen + guessed) / 2 + fit_of(&o).bytes.library_bytes;
    t = trainer_of(&o);
    assert_true(count_again(t) > 0);
    train(t, 0, 0.05);
    assert_int_equal(count_again(t), 0);
    train(t, 1, 0.05);
    assert_true(held(t) <= o.memory_bytes);
    comet_trainer_free(t);
}

/* As if streams had been four times as large until now, and half of the network computed again for that. */
static void pretend_large_streams(comet_trainer *t) {
    comet_message message;
    const size_t bytes = comet_trainer_estimates_bytes(t), words = bytes / sizeof(uint64_t) - rms_words(bytes);
    uint64_t *data = malloc(bytes), sum = 0;
    const int32_t saving[] = {4, 8, 1, 0}; /* segments, held, forced, offload */
    comet_trainer_get_estimates(t, data);
    for (size_t i = PLAIN_WORD + 1; i < words; i++)
        sum += data[i] *= 4;
    memcpy(&data[2], saving, sizeof saving);
    data[4] = sum;
    data[PLAIN_WORD] = 0;
    assert_done(comet_trainer_set_estimates(t, data, bytes, &message), message);
    free(data);
}

/*
 * Bounds follow the training, and sizes follow bounds: what was spilled or computed again in the first steps need not
 * be for ever.
 */
static void test_plans_again_when_streams_shrink(void **state) {
    (void)state;
    enum { WINDOW = 64 };
    comet_trainer_options o = options_for("resnet20", "eb");
    o.spill_directory = NULL;
    const comet_fit fit = fit_of(&o);
    o.memory_bytes = 2 * fit.bytes.planned_peak_bytes + fit.bytes.library_bytes;
    comet_trainer *t = trainer_of(&o);
    train(t, 0, 0.05);
    assert_int_equal(count_again(t), 0);
    const size_t before = comet_trainer_get_bytes(t).saved_stored_bytes;
    pretend_large_streams(t);
    assert_true(count_again(t) > 0);
    *comet_trainer_batches(t) = WINDOW - 1; /* the others would take a while and change nothing */
    train(t, 1, 0.05);
    assert_true(count_again(t) > 0);
    *comet_trainer_batches(t) = 2 * WINDOW - 2;
    train(t, 2, 0.05);
    assert_true(count_again(t) > 0);
    train(t, 3, 0.05); /* the second window since then ends: the large ones are forgotten */
    assert_int_equal(count_again(t), 0);
    train(t, 4, 0.05);
    const size_t now = comet_trainer_get_bytes(t).saved_stored_bytes;
    assert_true(now < before + before / 4 && before < now + now / 4);
    comet_trainer_free(t);
}

static void test_full_disk(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "offload");
    o.spill_limit_bytes = 300000;
    comet_trainer *t = trainer_of(&o);
    const uint64_t before = digest(t);
    batch b = make_batch(1);
    comet_trainer_result result;
    comet_message message = {{0}};
    assert_int_equal(comet_trainer_train(t, b.pixels, b.labels, 0.05, 0, &result, &message), COMET_ERROR_DISK_FULL);
    assert_non_null(strstr(message.text, "/tmp"));
    assert_true(digest(t) == before);
    assert_int_equal(*comet_trainer_batches(t), 0);
    evaluate(t, BATCH);
    comet_trainer_free(t);
}

/* ---- a plan alone ---- */

static void test_fit_gives_its_plan(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "eb");
    comet_fit fit;
    comet_plan *plan;
    comet_graph *graph;
    comet_backend *backend;
    comet_message message;
    assert_done(comet_trainer_fit(&o, NULL, &fit, &plan, &graph, &backend, &message), message);
    const comet_plan_bytes bytes = comet_plan_get_bytes(plan, NULL);
    comet_trainer *t = trainer_of(&o);
    assert_int_equal(fit.bytes.planned_peak_bytes, comet_trainer_get_bytes(t).planned_peak_bytes);
    assert_int_equal(comet_plan_times(plan), comet_trainer_times(t));
    size_t most = 0;
    for (int i = 0; i < comet_plan_times(plan); i++) {
        assert_int_equal(comet_plan_bytes_at(plan, NULL, i), comet_trainer_bytes_at(t, i));
        most = comet_plan_bytes_at(plan, NULL, i) > most ? comet_plan_bytes_at(plan, NULL, i) : most;
    }
    assert_true(most > bytes.live_bytes / 2 && most <= bytes.live_bytes + bytes.store_bytes);
    assert_null(graph->memory);
    comet_trainer_free(t);
    comet_plan_free(plan);
    comet_backend_free(backend);
    comet_graph_free(graph);
}

/* ---- the largest batch ---- */

static void test_largest_batch(void **state) {
    (void)state;
    const char *codecs[] = {"none", "eb"};
    for (int i = 0; i < 2; i++) {
        comet_trainer_options o = options_for("resnet8", codecs[i]);
        comet_message message;
        comet_fit fit;
        int largest;
        o.spill_directory = NULL;
        o.memory_bytes = 5000000 + fit_of(&o).bytes.library_bytes;
        assert_done(comet_trainer_largest_batch(&o, 1000, NULL, &largest, &message), message);
        assert_true(largest > 1 && largest < 1000);
        o.batch = largest;
        assert_ok(comet_trainer_fit(&o, NULL, &fit, NULL, NULL, NULL, &message));
        o.batch = largest + 1;
        assert_int_equal(comet_trainer_fit(&o, NULL, &fit, NULL, NULL, NULL, &message), COMET_ERROR_CAPACITY);
        assert_done(comet_trainer_largest_batch(&o, 3, NULL, &largest, &message), message);
        assert_int_equal(largest, 3);
        o.memory_bytes = 100000;
        assert_done(comet_trainer_largest_batch(&o, 1000, NULL, &largest, &message), message);
        assert_int_equal(largest, 0);
        assert_non_null(strstr(message.text, "at least"));
    }
}

/* ---- what the system says ---- */

static size_t status_bytes(const char *key) {
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kib = (size_t)strtoull(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return kib * 1024;
}

static int forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f)
        return 0;
    const int ok = fputs("5", f) >= 0;
    return fclose(f) == 0 && ok;
}

enum { LARGE_BATCH = 16, LARGE_SIDE = 64, WRONG = 1, CANNOT_LOOK = 2 };

/* AddressSanitizer adds its shadow, an eighth, and holds back what is freed for a while. */
static double sanitizer_bytes(double planned) {
#ifdef __SANITIZE_ADDRESS__
    return planned / 8 + 8e6;
#else
    (void)planned;
    return 0;
#endif
}

/*
 * 0: the high-water mark is what was planned: not above by more than 5 % and what libraries take, not below by more
 * than 5 %.
 */
static int check_resident(const char *codec) {
    comet_trainer_options o = options_for("resnet20", codec);
    o.batch = LARGE_BATCH;
    o.height = o.width = LARGE_SIDE;
    uint8_t *pixels = calloc(LARGE_BATCH * LARGE_SIDE * LARGE_SIDE, 3);
    int32_t labels[LARGE_BATCH] = {0};
    comet_message message;
    comet_trainer_result result;
    comet_trainer *t, *warm = trainer_of(&o); /* libraries, their code and their threads */
    rng r = rng_seed(3);
    for (int i = 0; i < LARGE_BATCH * LARGE_SIDE * LARGE_SIDE * 3; i++)
        pixels[i] = (uint8_t)rng_below(&r, 256);
    if (comet_trainer_train(warm, pixels, labels, 0.01, 0, &result, &message) != COMET_OK)
        return WRONG;
    comet_trainer_free(warm);
    if (!forget_peak())
        return CANNOT_LOOK;
    const size_t before = status_bytes("VmRSS:");
    if (comet_trainer_new(&o, NULL, &t, &message) != COMET_OK)
        return WRONG;
    for (int i = 0; i < 3; i++)
        if (comet_trainer_train(t, pixels, labels, 0.01, 0, &result, &message) != COMET_OK)
            return WRONG;
    const double seen = (double)(status_bytes("VmHWM:") - before);
    const double planned = (double)comet_trainer_get_bytes(t).planned_peak_bytes;
    const int agrees = seen < 1.05 * planned + 4e6 + sanitizer_bytes(planned) && seen > 0.95 * planned;
    if (!agrees)
        fprintf(stderr, "%s: planned %.1f MB, resident %.1f MB\n", codec, planned / 1e6, seen / 1e6);
    comet_trainer_free(t);
    free(pixels);
    return agrees ? 0 : WRONG;
}

/* In a process of its own: a high-water mark is a process's. */
static void in_child(int (*check)(const char *), const char *argument) {
    int status;
    const pid_t child = fork();
    if (child == 0)
        _exit(check(argument));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_LOOK) {
        print_message("this system does not let a process reset its high-water mark: not tested\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_resident(void **state) {
    (void)state;
    const char *codecs[] = {"none", "eb", "recompute", "offload"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        in_child(check_resident, codecs[i]);
}

/* 0: a process that has done nothing before stays within the budget, with all that oneDNN takes for itself. */
static int check_process(const char *model) {
    comet_trainer_options o = options_for(model, "eb");
    comet_message message;
    comet_trainer_result result;
    comet_fit fit;
    comet_trainer *t;
    comet_accuracy accuracy = {0};
    comet_mean loss = {0};
    batch b = make_batch(1);
    if (!forget_peak())
        return CANNOT_LOOK;
    const size_t before = status_bytes("VmRSS:"), files = status_bytes("RssFile:");
    if (comet_trainer_fit(&o, NULL, &fit, NULL, NULL, NULL, &message) != COMET_OK)
        return WRONG;
    o.memory_bytes = fit.least_bytes;
    if (comet_trainer_new(&o, NULL, &t, &message) != COMET_OK)
        return WRONG;
    for (int i = 0; i < 3; i++)
        if (comet_trainer_train(t, b.pixels, b.labels, 0.01, 0, &result, &message) != COMET_OK)
            return WRONG;
    if (comet_trainer_evaluate(t, b.pixels, b.labels, BATCH, &accuracy, &loss, &message) != COMET_OK)
        return WRONG;
    const size_t seen = status_bytes("VmHWM:") - before - (status_bytes("RssFile:") - files);
    if (seen > o.memory_bytes)
        fprintf(stderr, "%s: %zu bytes are allowed, %zu were resident\n", model, o.memory_bytes, seen);
    comet_trainer_free(t);
    return seen > o.memory_bytes ? WRONG : 0;
}

static void test_process(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("AddressSanitizer's own memory would be counted: not tested\n");
    skip();
#endif
    const char *models[] = {"resnet8", "resnet18", "efficientnet_b0"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        in_child(check_process, models[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process), /* first: a fork takes no threads along, nor a library that was not used yet */
        cmocka_unit_test(test_resident),
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_no_codec_needs_more_than_none),
        cmocka_unit_test(test_large_ones_as_they_are),
        cmocka_unit_test(test_budgets_give_the_same_bits),
        cmocka_unit_test(test_step_is_run_again),
        cmocka_unit_test(test_resumed_plan),
        cmocka_unit_test(test_older_estimates),
        cmocka_unit_test(test_settles),
        cmocka_unit_test(test_plans_again_when_streams_shrink),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_fit_gives_its_plan),
        cmocka_unit_test(test_largest_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
