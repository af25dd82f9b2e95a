/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: what is written comes back bit by bit; every flipped byte and every cut is noticed; killed at any
 * moment, or out of disk, the newest complete one is there.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "test_train_folder.h"

#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/rng.h"
#include "train/checkpoint/checkpoint_impl.h"
#include "train/checkpoint/weights.h"
#include "unit/train/cpu_update.h"

static comet_message message, note;

/* A run with a state that depends on the step alone. */
typedef struct run {
    comet_graph *graph;
    comet_optimiser optimiser;
    float *state;
    size_t state_bytes;
    uint8_t estimates[300];
    comet_checkpoint checkpoint;
} run;

static void run_new(run *r, comet_optimiser_kind kind) {
    *r = (run){.graph = network("resnet8", 10, 1), .optimiser = comet_optimiser_default(kind)};
    comet_parameter *parameters = comet_graph_parameter(r->graph, 0);
    int count = comet_graph_parameters(r->graph);
    r->state_bytes = comet_optimiser_bytes(&r->optimiser, parameters, count);
    r->state = malloc(r->state_bytes);
    memset(r->state, 0, r->state_bytes);
    r->checkpoint = (comet_checkpoint){.model = "resnet8 classes=10 image=32x32x3",
                                       .options = "batch=64 rate=0.1",
                                       .parameters = parameters,
                                       .parameter_count = count,
                                       .optimiser = &r->optimiser,
                                       .state = r->state};
}

static void run_free(run *r) {
    comet_graph_free(r->graph);
    free(r->state);
}

static float value_at(int64_t step, int64_t k) {
    return (float)((step * 7919 + k * 104729) % 100003) * 0.001f - 50.0f;
}

static void run_to(run *r, int64_t step) {
    comet_checkpoint *c = &r->checkpoint;
    for (int i = 0; i < c->parameter_count; i++)
        for (int64_t k = 0; k < c->parameters[i].count; k++)
            c->parameters[i].value[k] = value_at(step, k + i);
    for (size_t k = 0; k < r->state_bytes / sizeof(float); k++)
        r->state[k] = value_at(step + 1, (int64_t)k);
    r->state[0] = -0.0f;
    r->state[1] = 1e-45f; /* the least there is: bits are kept */
    c->step = step;
    c->batches = 3 * step;
    c->epoch = (uint32_t)(step / 10);
    comet_loader_state loader = {.seed = 3, .epoch = c->epoch, .position = step * 64, .count = 50000, .digest = 99};
    comet_loader_state_format(&loader, c->loader);
    for (int i = 0; i < COMET_CHECKPOINT_KEYS; i++)
        c->keys[i] = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)i;
    for (size_t k = 0; k < sizeof r->estimates; k++)
        r->estimates[k] = (uint8_t)(step + (int64_t)k);
    c->blobs[0] = (comet_checkpoint_blob){"estimates", r->estimates, sizeof r->estimates};
    c->blobs[1] = (comet_checkpoint_blob){"controller", NULL, 0};
    c->blob_count = 2;
}

static comet_status write_to(const char *folder, run *r) {
    return comet_checkpoint_write(folder, &r->checkpoint, NULL, &message);
}

static comet_status read_to(const char *folder, run *r) {
    return comet_checkpoint_read(folder, &r->checkpoint, NULL, &note, &message);
}

/* All that r read is what a run has at its step. */
static void check_read(run *r, comet_optimiser_kind kind) {
    run expected;
    comet_checkpoint *c = &r->checkpoint, *e = &expected.checkpoint;
    run_new(&expected, kind);
    run_to(&expected, c->step);
    assert_true(same_values(r->graph, expected.graph, 0, c->parameter_count));
    assert_memory_equal(r->state, expected.state, r->state_bytes);
    assert_int_equal(c->batches, e->batches);
    assert_int_equal(c->epoch, e->epoch);
    assert_string_equal(c->loader, e->loader);
    assert_memory_equal(c->keys, e->keys, sizeof c->keys);
    assert_int_equal(c->blob_count, 2);
    const comet_checkpoint_blob *blob = comet_checkpoint_find(c, "estimates");
    assert_non_null(blob);
    assert_int_equal(blob->bytes, sizeof expected.estimates);
    assert_memory_equal(blob->data, expected.estimates, blob->bytes);
    assert_int_equal(comet_checkpoint_find(c, "controller")->bytes, 0);
    assert_null(comet_checkpoint_find(c, "other"));
    comet_checkpoint_release(c, NULL);
    run_free(&expected);
}

/* The step that the folder's checkpoint is of. */
static int64_t step_in(const char *folder) {
    run r;
    run_new(&r, COMET_SGD);
    message.text[0] = '\0';
    if (read_to(folder, &r) != COMET_OK)
        fail_msg("%s", message.text);
    int64_t step = r.checkpoint.step;
    check_read(&r, COMET_SGD);
    run_free(&r);
    return step;
}

/* ---- whole ones ---- */

static void test_round_trip(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        run a, b;
        const char *folder = in_folder(kind ? "adamw" : "sgd");
        run_new(&a, (comet_optimiser_kind)kind);
        run_new(&b, (comet_optimiser_kind)kind);
        run_to(&a, 42);
        assert_false(comet_checkpoint_exists(folder));
        assert_ok(write_to(folder, &a));
        assert_true(comet_checkpoint_exists(folder));
        assert_ok(read_to(folder, &b));
        assert_int_equal(b.checkpoint.step, 42);
        assert_string_equal(note.text, "");
        check_read(&b, (comet_optimiser_kind)kind);
        run_free(&a);
        run_free(&b);
    }
}

static void test_rotation(void **state) {
    (void)state;
    run r;
    const char *folder = in_folder("rotation");
    run_new(&r, COMET_SGD);
    for (int64_t step = 1; step <= 3; step++) {
        run_to(&r, step);
        assert_ok(write_to(folder, &r));
        assert_int_equal(step_in(folder), step);
        assert_int_equal(access(in_folder("rotation/new.safetensors"), F_OK), -1);
    }
    assert_int_equal(remove(in_folder("rotation/last.safetensors")), 0);
    assert_int_equal(step_in(folder), 2);
    run_free(&r);
}

static void test_no_momentum(void **state) {
    (void)state;
    run r;
    run_new(&r, COMET_SGD);
    run_to(&r, 6);
    r.optimiser.momentum = 0.0; /* no state */
    r.checkpoint.state = NULL;
    r.checkpoint.blob_count = 0;
    assert_ok(write_to(in_folder("plain"), &r));
    r.checkpoint.step = 0;
    assert_ok(read_to(in_folder("plain"), &r));
    assert_int_equal(r.checkpoint.step, 6);
    assert_int_equal(r.checkpoint.blob_count, 0);
    run_free(&r);
}

/* As a weight file: the rest is left alone. */
static void test_as_weights(void **state) {
    (void)state;
    run r;
    comet_graph *g = network("resnet8", 10, 5), *seven = network("resnet8", 7, 5);
    comet_weights_report report;
    const char *path = in_folder("sgd/last.safetensors");
    run_new(&r, COMET_SGD);
    run_to(&r, 42);
    assert_ok(comet_weights_read(path, comet_graph_parameter(g, 0), comet_graph_parameters(g), COMET_WEIGHTS_EXACT,
                                 &report, NULL, &message));
    assert_true(same_values(g, r.graph, 0, comet_graph_parameters(g)));
    assert_int_equal(report.batches, 126);
    assert_ok(comet_weights_read(path, comet_graph_parameter(seven, 0), comet_graph_parameters(seven),
                                 COMET_WEIGHTS_FINETUNE, &report, NULL, &message));
    assert_int_equal(report.classifier_kept, 1);
    comet_graph_free(g);
    comet_graph_free(seven);
    run_free(&r);
}

static void test_refused(void **state) {
    (void)state;
    run r, adamw;
    const char *folder = in_folder("sgd");
    run_new(&r, COMET_SGD);
    run_new(&adamw, COMET_ADAMW);
    r.checkpoint.model = "resnet20 classes=10 image=32x32x3";
    assert_refused(read_to(folder, &r), COMET_ERROR_MISMATCH, message,
                   "is of another training: --model was resnet8, now resnet20");
    assert_null(strstr(message.text, ";"));
    r.checkpoint.model = "resnet8 classes=7 image=28x28x1";
    assert_refused(read_to(folder, &r), COMET_ERROR_MISMATCH, message,
                   ": the number of classes was 10, now 7; --image was 32, now 28; --channels was 3, now 1");
    r.checkpoint.model = "resnet8 classes=10 image=32x32x3";
    r.checkpoint.options = "batch=128 rate=0.1";
    assert_refused(read_to(folder, &r), COMET_ERROR_MISMATCH, message,
                   "is of another training: --batch was 64, now 128");
    assert_null(strstr(message.text, "--lr"));
    r.checkpoint.options = "a digest";
    assert_refused(read_to(folder, &r), COMET_ERROR_MISMATCH, message, "batch=64 rate=0.1', now '");
    assert_non_null(strstr(message.text, "a digest"));
    r.checkpoint.options = NULL; /* any */
    assert_ok(read_to(folder, &r));
    comet_checkpoint_release(&r.checkpoint, NULL);
    assert_refused(read_to(folder, &adamw), COMET_ERROR_MISMATCH, message, ": --optimiser was sgd, now adamw");
    assert_refused(read_to(in_folder("none"), &r), COMET_ERROR_IO, message, "there is no checkpoint in '");
    assert_int_equal(mkdir(in_folder("weights"), 0777), 0);
    assert_ok(comet_weights_write(in_folder("weights/last.safetensors"), r.checkpoint.parameters,
                                  r.checkpoint.parameter_count, 0, NULL, &message));
    assert_refused(read_to(in_folder("weights"), &r), COMET_ERROR_MISMATCH, message, "is not a checkpoint");
    r.checkpoint.blob_count = COMET_CHECKPOINT_MOST_BLOBS + 1;
    assert_refused(write_to(folder, &r), COMET_ERROR_ARGUMENT, message, "at most 8 blobs");
    r.checkpoint.blob_count = 0;
    char *long_name = calloc(1, 2000);
    memset(long_name, 'a', 1999);
    assert_refused(write_to(long_name, &r), COMET_ERROR_ARGUMENT, message, "too long");
    free(long_name);
    assert_refused(write_to("/proc/none/x", &r), COMET_ERROR_IO, message, "cannot make the folder");
    run_free(&r);
    run_free(&adamw);
}

/* Options as a run writes them, and as one would type them. */
static void check_difference(const char *its, const char *ours, const char *expected) {
    const comet_checkpoint_texts a = {"m", "sgd 1", its}, b = {"m", "sgd 1", ours};
    comet_message list;
    assert_int_equal(comet_checkpoint_differences(&a, &b, &list), *expected != '\0');
    assert_string_equal(list.text, expected);
}

#define OPTIONS(codec, error, control, rate, schedule, rest)                                                           \
    "codec=" codec " error=" error " control=" control " calibration=0 batch=16 accumulate=1 seed=1 rate=" rate        \
    " schedule=" schedule " warmup=0 momentum=0.9 nesterov=" rest

static void test_differences(void **state) {
    (void)state;
    const char *plain = OPTIONS("eb", "0.3", "comet", "0.1", "3",
                                "0 decay=0.0005/0 betas=0.9,0.999 smoothing=0 augment=0 forms= inject=");
    check_difference(plain, plain, "");
    check_difference(plain, "", ""); /* anything will do */
    check_difference(
        plain,
        OPTIONS("eb", "0.3", "comet", "0.05", "2",
                "1 decay=0.0001/0 betas=0.9,0.999 smoothing=0.1 augment=1 forms=conv1=none, fc=eb:0.1 "
                "inject=conv1:0.3"),
        "--lr was 0.1, now 0.05; --schedule was one-cycle, now cosine; --nesterov was not given, now given; "
        "--weight-decay was 0.0005, now 0.0001; --label-smoothing was 0, now 0.1; "
        "--no-augment was not given, now given; --forms was not given, now conv1=none, fc=eb:0.1; "
        "--inject-error was not given, now conv1:0.3");
    check_difference(
        plain,
        OPTIONS("eb", "0.1", "", "0.1", "3", "0 decay=0.0005/0 betas=0.9,0.999 smoothing=0 augment=0 forms= inject="),
        "--error-rel was not given, now 0.1; --control was comet, now not given");
}

/* ---- what is not finite ---- */

/* A value of each kind that a checkpoint holds. */
static float *value_of_kind(run *r, int kind) {
    if (kind == 2)
        return &r->state[r->state_bytes / sizeof(float) - 1];
    return &comet_graph_parameter_named(r->graph, kind ? "layer2.0.bn1.running_var" : "fc.weight")->value[3];
}

/* Never written: both that are there stay as they are. */
static void test_not_finite_is_not_written(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const names[] = {"'fc.weight'", "'layer2.0.bn1.running_var'", "'comet.optimiser.second_moment'"};
    const char *folder = in_folder("finite");
    run r, b;
    run_new(&r, COMET_ADAMW);
    run_new(&b, COMET_ADAMW);
    for (int64_t step = 1; step <= 2; step++) {
        run_to(&r, step);
        assert_ok(write_to(folder, &r));
    }
    for (int kind = 0; kind < 3; kind++) {
        run_to(&r, 3);
        *value_of_kind(&r, kind) = bad[kind];
        assert_refused(write_to(folder, &r), COMET_ERROR_DIVERGED, message, names[kind]);
        assert_int_equal(access(in_folder("finite/new.safetensors"), F_OK), -1);
    }
    for (int64_t step = 2; step >= 1; step--) {
        assert_ok(read_to(folder, &b));
        assert_string_equal(note.text, "");
        assert_int_equal(b.checkpoint.step, step);
        check_read(&b, COMET_ADAMW);
        assert_int_equal(remove(in_folder("finite/last.safetensors")), step == 2 ? 0 : -1);
    }
    run_free(&r);
    run_free(&b);
}

/* Puts a value that is not finite where the file has the first of these two, which are nowhere else. */
static void spoil_file(const char *path, const float pair[2]) {
    FILE *file = fopen(path, "r+b");
    static uint8_t bytes[4 << 20];
    const float bad = NAN;
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    size_t at = 0;
    while (at + 2 * sizeof *pair <= size && memcmp(bytes + at, pair, 2 * sizeof *pair) != 0)
        at++;
    assert_true(size < sizeof bytes && at + 2 * sizeof *pair <= size);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(&bad, sizeof bad, 1, file), 1);
    fclose(file);
}

/* One that holds such a value is passed over, with a line; the next one replaces it, not the good one before it. */
static void test_not_finite_is_not_read(void **state) {
    (void)state;
    static const char *const says[] = {"'fc.weight' ", "'layer2.0.bn1.running_var' ", "the optimiser's state "};
    for (int kind = 0; kind < 3; kind++) {
        char name[3][64];
        for (int i = 0; i < 3; i++)
            snprintf(name[i], sizeof name[i], "spoilt%d%s", kind,
                     (const char *[]){"", "/last.safetensors", "/previous.safetensors"}[i]);
        const char *folder = in_folder(name[0]);
        run r;
        run_new(&r, COMET_ADAMW);
        for (int64_t step = 1; step <= 2; step++) {
            run_to(&r, step);
            assert_ok(write_to(folder, &r));
        }
        const float pair[2] = {12345.678f, -8765.4321f};
        memcpy(value_of_kind(&r, kind) - 1, pair, sizeof pair);
        r.checkpoint.step = 3;
        assert_ok(write_to(folder, &r));
        spoil_file(in_folder(name[1]), pair);
        assert_ok(read_to(folder, &r));
        assert_int_equal(r.checkpoint.step, 2);
        assert_int_equal(r.checkpoint.keep_previous, 1);
        assert_non_null(strstr(note.text, says[kind]));
        assert_non_null(strstr(note.text, "not finite; went on from '"));
        check_read(&r, COMET_ADAMW);
        run_to(&r, 4);
        assert_ok(write_to(folder, &r));
        assert_int_equal(remove(in_folder(name[1])), 0);
        assert_ok(read_to(folder, &r));
        assert_int_equal(r.checkpoint.step, 2);
        assert_int_equal(r.checkpoint.keep_previous, 0);
        check_read(&r, COMET_ADAMW);
        assert_int_equal(remove(in_folder(name[2])), 0);
        run_free(&r);
    }
}

/* ---- going on ---- */

/* Updates with gradients that depend on the step alone, from the step that r is at. */
static void train(run *r, int64_t steps) {
    comet_checkpoint *c = &r->checkpoint;
    for (int64_t end = c->step + steps; c->step < end;) {
        rng gradients = rng_seed((uint64_t)c->step);
        for (int i = 0; i < c->parameter_count; i++)
            for (int64_t k = 0; c->parameters[i].gradient && k < c->parameters[i].count; k++)
                c->parameters[i].gradient[k] = (float)rng_gauss(&gradients);
        comet_optimiser_step step = {.number = ++c->step, .learning_rate = 0.01, .gradient_scale = 1.0};
        cpu_update(&r->optimiser, &step, c->parameters, c->parameter_count, r->state, NULL, NULL);
    }
}

/* Five steps and five more from a checkpoint, in another run's memory, are ten steps, bit by bit. */
static void test_resumes(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        run whole, first, second;
        const char *folder = in_folder(kind ? "resume-adamw" : "resume-sgd");
        run_new(&whole, (comet_optimiser_kind)kind);
        run_new(&first, (comet_optimiser_kind)kind);
        run_new(&second, (comet_optimiser_kind)kind);
        train(&whole, 10);
        train(&first, 5);
        assert_ok(write_to(folder, &first));
        run_to(&second, 77); /* anything: all of it is replaced */
        assert_ok(read_to(folder, &second));
        assert_int_equal(second.checkpoint.step, 5);
        train(&second, 5);
        assert_true(same_values(whole.graph, second.graph, 0, whole.checkpoint.parameter_count));
        assert_memory_equal(whole.state, second.state, whole.state_bytes);
        run_free(&whole);
        run_free(&first);
        run_free(&second);
    }
}

/* ---- damaged ones ---- */

static size_t read_bytes(const char *path, uint8_t **bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *bytes = malloc(size);
    assert_int_equal(fread(*bytes, 1, size, file), size);
    fclose(file);
    return size;
}

static void write_bytes(const char *path, const uint8_t *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* With one file alone that is damaged, reading fails; with a whole one behind it, that is taken and `note` says so. */
static void check_damage(const char *what, const uint8_t *bytes, size_t size) {
    run r;
    const char *last = in_folder("damaged/last.safetensors"), *previous = in_folder("damaged/previous.safetensors");
    run_new(&r, COMET_SGD);
    write_bytes(last, bytes, size);
    comet_status status = read_to(in_folder("damaged"), &r);
    if (status == COMET_OK)
        fail_msg("%s was not noticed", what);
    assert_int_equal(r.checkpoint.blob_count, 0);
    assert_null(strchr(message.text, '\n'));
    int foreign = status == COMET_ERROR_MISMATCH || status == COMET_ERROR_VERSION; /* what it says of itself changed */
    assert_int_equal(link(in_folder("sgd/last.safetensors"), previous), 0);
    if (!foreign) {
        assert_int_equal(step_in(in_folder("damaged")), 42);
        assert_non_null(strstr(note.text, "went on from '"));
    }
    assert_int_equal(remove(previous), 0);
    run_free(&r);
}

static void test_flipped_bits(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t size = read_bytes(in_folder("sgd/last.safetensors"), &bytes);
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    rng r = rng_seed(4);
    char what[64];
    mkdir(in_folder("damaged"), 0777);
    for (int i = 0; i < effort(300); i++) { /* half of them in the header */
        size_t at = (size_t)rng_below(&r, i % 2 ? size : 8 + header);
        uint8_t bit = (uint8_t)(1u << rng_below(&r, 8));
        if (bytes[at] == ' ' && at > 8 + header - 8 && at < 8 + header)
            continue; /* padding may become other white space */
        bytes[at] ^= bit;
        snprintf(what, sizeof what, "bit 0x%02x of byte %zu", bit, at);
        check_damage(what, bytes, size);
        bytes[at] ^= bit;
    }
    free(bytes);
}

static void test_cut_short(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t size = read_bytes(in_folder("sgd/last.safetensors"), &bytes);
    const size_t cuts[] = {0, 1, 7, 8, 9, 100, 5000, size / 2, size - 4, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        check_damage("a cut", bytes, cuts[i]);
    free(bytes);
}

/* ---- interrupted writers ---- */

static void test_full_disk(void **state) {
    (void)state;
    static const rlim_t limits[] = {0, 7, 4096, 1 << 17, 600000};
    run r;
    const char *folder = in_folder("full");
    struct rlimit before, now;
    run_new(&r, COMET_SGD);
    for (int64_t step = 1; step <= 2; step++) {
        run_to(&r, step);
        assert_ok(write_to(folder, &r));
    }
    run_to(&r, 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        now = before;
        now.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        comet_status status = write_to(folder, &r);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, COMET_ERROR_IO);
        assert_non_null(strstr(message.text, "cannot write '"));
        assert_int_equal(step_in(folder), 2);
        assert_int_equal(access(in_folder("full/previous.safetensors"), F_OK), 0);
        assert_int_equal(access(in_folder("full/new.safetensors.tmp"), F_OK), -1);
    }
    signal(SIGXFSZ, handler);
    assert_ok(write_to(folder, &r));
    assert_int_equal(step_in(folder), 3);
    run_free(&r);
}

/* Told when a checkpoint is complete, so that it can be checked that none of those is lost. */
static void write_without_end(const char *folder, int64_t step, int64_t *complete) {
    run r;
    run_new(&r, COMET_SGD);
    for (;; step++) {
        run_to(&r, step);
        if (write_to(folder, &r) != COMET_OK)
            _exit(1);
        __atomic_store_n(complete, step, __ATOMIC_SEQ_CST);
    }
}

/* A number that a child's writing changes, too. */
static int64_t *shared_number(void) {
    int64_t *number = mmap(NULL, sizeof *number, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(number != MAP_FAILED);
    return number;
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Time for some checkpoints, however slow the machine is. */
static int64_t most_delay_us(void) {
    const int64_t start = now_us();
    run r;
    run_new(&r, COMET_SGD);
    run_to(&r, 1);
    assert_ok(write_to(in_folder("timed"), &r));
    run_free(&r);
    const int64_t once = now_us() - start;
    return once < 10000 ? 40000 : 4 * once;
}

static void test_killed(void **state) {
    (void)state;
    const char *folder = in_folder("killed");
    const int64_t most = most_delay_us();
    rng r = rng_seed(6);
    int64_t *complete = shared_number();
    for (int i = 0; i < effort(25); i++) {
        int64_t before = *complete;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_without_end(folder, before + 1, complete);
        const int64_t delay = rng_between(&r, 1, most);
        nanosleep(&(struct timespec){(time_t)(delay / 1000000), (long)(delay % 1000000) * 1000}, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        if (!comet_checkpoint_exists(folder)) {
            assert_int_equal(*complete, 0);
            continue;
        }
        int64_t step = step_in(folder);
        assert_true(step >= *complete && step <= *complete + 1);
        assert_string_equal(note.text, "");
        *complete = step;
    }
    assert_true(*complete > 0);
}

/* Left between the two renames: the newest has not got its name yet. */
static void test_between_renames(void **state) {
    (void)state;
    run r;
    const char *folder = in_folder("between");
    run_new(&r, COMET_SGD);
    for (int64_t step = 1; step <= 2; step++) {
        run_to(&r, step);
        assert_ok(write_to(folder, &r));
    }
    assert_int_equal(rename(in_folder("between/last.safetensors"), in_folder("between/new.safetensors")), 0);
    assert_int_equal(step_in(folder), 2);
    run_to(&r, 3);
    assert_ok(write_to(folder, &r));
    assert_int_equal(step_in(folder), 3);
    assert_int_equal(access(in_folder("between/new.safetensors"), F_OK), -1);
    run_free(&r);
}

static void test_every_allocation_fails_once(void **state) {
    (void)state;
    counting_allocator a;
    run r;
    const char *folder = in_folder("memory");
    run_new(&r, COMET_ADAMW);
    run_to(&r, 9);
    comet_status status = COMET_ERROR_MEMORY;
    for (long n = 1; status != COMET_OK; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        status = comet_checkpoint_write(folder, &r.checkpoint, &a.allocator, &message);
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
        assert_int_equal(a.live_blocks, 0);
    }
    status = COMET_ERROR_MEMORY;
    for (long n = 1; status != COMET_OK; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        status = comet_checkpoint_read(folder, &r.checkpoint, &a.allocator, &note, &message);
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
        if (status == COMET_OK)
            comet_checkpoint_release(&r.checkpoint, &a.allocator);
        assert_int_equal(a.live_blocks, 0);
        assert_int_equal(a.wrong_sizes, 0);
    }
    run_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_no_momentum),
        cmocka_unit_test(test_as_weights),
        cmocka_unit_test(test_resumes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_between_renames),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_not_finite_is_not_written),
        cmocka_unit_test(test_not_finite_is_not_read),
    };
    return cmocka_run_group_tests(tests, make_temporary_folder, remove_temporary_folder);
}
