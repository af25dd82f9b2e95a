/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nobody but the backend looks into its memory: trainings, evaluations and files in memory that is closed to all
 * others.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/temporary_folder.h"

#include <signal.h>
#include <sys/wait.h>

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "unit/train/poisoned_backend.h"
#include "unit/train/test_train_trainer.h"

static comet_message message;

/* All parameters as they are, through the space that they are in. */
static float *values_of(comet_trainer *t, size_t *count) {
    comet_graph *g = comet_trainer_graph(t);
    *count = 0;
    for (int i = 0; i < comet_graph_parameters(g); i++)
        *count += (size_t)comet_graph_parameter(g, i)->count;
    float *all = malloc(*count * sizeof *all), *next = all;
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        assert_ok(p->space->read(p->space, next, p->value, (size_t)p->count * sizeof *next));
        next += p->count;
    }
    return all;
}

static void check_same(comet_trainer *a, comet_trainer *b) {
    size_t count, others;
    float *x = values_of(a, &count), *y = values_of(b, &others);
    assert_int_equal(count, others);
    assert_memory_equal(x, y, count * sizeof *x);
    free(x);
    free(y);
}

static comet_trainer *poisoned_trainer(comet_trainer_options o) {
    o.backend = poisoned_backend_new;
    return trainer_of(&o);
}

/* The same training as in open memory, bit by bit. */
static void check_training(const comet_trainer_options *o, int batches) {
    comet_trainer *open = trainer_of(o), *closed = poisoned_trainer(*o);
    for (int i = 0; i < batches; i++) {
        const comet_trainer_result a = train(open, (uint64_t)i, 0.05), b = train(closed, (uint64_t)i, 0.05);
        assert_true(a.loss == b.loss && a.saved_stored_bytes == b.saved_stored_bytes);
        assert_true(a.mean_momentum == b.mean_momentum && a.updated == b.updated);
    }
    assert_true(evaluate(open, BATCH - 3) == evaluate(closed, BATCH - 3));
    check_same(open, closed);
    comet_trainer_free(open);
    comet_trainer_free(closed);
}

static void test_forms(void **state) {
    (void)state;
    static const char *const codecs[] = {"none",    "eb:0.3", "eb:0",      "zvc",           "pool:2",
                                         "group:4", "dct",    "recompute", "eb:0.3+offload"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        const comet_trainer_options o = options_for("resnet8", codecs[i]);
        check_training(&o, 2);
    }
}

static void test_networks(void **state) {
    (void)state;
    comet_trainer_options o = options_for("efficientnet_b0", "eb:0.3"); /* SiLU, squeeze-excite, stochastic depth */
    check_training(&o, 1);
    o = options_for("resnet8", "eb:0.3");
    o.optimiser = comet_optimiser_default(COMET_ADAMW);
    o.accumulate = 2;
    check_training(&o, 4);
}

static void test_controllers(void **state) {
    (void)state;
    static const char *const controllers[] = {"comet:warmup=1:every=1", "acgc:warmup=1:every=1",
                                              "budget:warmup=1:every=1"};
    for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
        comet_trainer_options o = options_for("resnet8", "eb");
        o.control = controllers[i];
        check_training(&o, 3);
    }
    comet_trainer_options o = options_for("efficientnet_b0", "eb");
    o.control = "comet:warmup=0:every=1";
    check_training(&o, 2);
}

static comet_checkpoint checkpoint_of(comet_trainer *t, const comet_optimiser *optimiser) {
    comet_graph *g = comet_trainer_graph(t);
    return (comet_checkpoint){.model = "resnet8",
                              .options = "",
                              .parameters = comet_graph_parameter(g, 0),
                              .parameter_count = comet_graph_parameters(g),
                              .optimiser = optimiser,
                              .state = comet_trainer_optimiser_state(t),
                              .loader = "0"};
}

/* Written from closed memory, read into open memory, and the other way round. */
static void test_files(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "none");
    comet_trainer *closed = poisoned_trainer(o), *open = trainer_of(&o);
    train(closed, 1, 0.05);
    comet_checkpoint from = checkpoint_of(closed, &o.optimiser), to = checkpoint_of(open, &o.optimiser);
    assert_done(comet_checkpoint_write(in_folder("closed"), &from, NULL, &message), message);
    assert_done(comet_checkpoint_read(in_folder("closed"), &to, NULL, NULL, &message), message);
    comet_checkpoint_release(&to, NULL);
    check_same(open, closed);
    train(open, 2, 0.05);
    train(closed, 2, 0.05); /* with the same momentum */
    check_same(open, closed);
    train(open, 3, 0.05);
    assert_done(comet_checkpoint_write(in_folder("open"), &to, NULL, &message), message);
    assert_done(comet_checkpoint_read(in_folder("open"), &from, NULL, NULL, &message), message);
    comet_checkpoint_release(&from, NULL);
    check_same(open, closed);
    train(open, 4, 0.05);
    const char *path = in_folder("weights.safetensors");
    assert_done(comet_weights_write(path, to.parameters, to.parameter_count, 1, NULL, &message), message);
    assert_done(
        comet_weights_read(path, from.parameters, from.parameter_count, COMET_WEIGHTS_EXACT, NULL, NULL, &message),
        message);
    check_same(open, closed);
    comet_trainer_free(open);
    comet_trainer_free(closed);
}

/* How a child ends that reads one value by itself. */
static int signal_of_reader(const float *value) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        volatile float seen = *value;
        (void)seen;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The trap works: weights, gradients and the optimiser's state cannot be read from here. */
static void test_trap(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "none");
    comet_trainer *closed = poisoned_trainer(o), *open = trainer_of(&o);
    train(closed, 1, 0.05);
    const comet_parameter *p = comet_graph_parameter(comet_trainer_graph(closed), 0);
    assert_int_not_equal(signal_of_reader(p->value), 0);
    assert_int_not_equal(signal_of_reader(p->gradient), 0);
    assert_int_not_equal(signal_of_reader(comet_trainer_optimiser_state(closed)), 0);
    assert_int_equal(signal_of_reader(comet_graph_parameter(comet_trainer_graph(open), 0)->value), 0);
    assert_true(poisoned.calls > 100);
    comet_trainer_free(open);
    comet_trainer_free(closed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms), cmocka_unit_test(test_networks), cmocka_unit_test(test_controllers),
        cmocka_unit_test(test_files), cmocka_unit_test(test_trap),
    };
    return cmocka_run_group_tests(tests, make_temporary_folder, remove_temporary_folder);
}
