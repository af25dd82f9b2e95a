/* SPDX-License-Identifier: Apache-2.0 */
/* A small run, and what an observer saw of it: shared by the tests of runs. */
#ifndef TEST_TRAIN_RUN_CASE_H
#define TEST_TRAIN_RUN_CASE_H

#include "test_train_folder.h"

#include <math.h>

#include "support/slow_set.h"
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

static inline void observe(void *context, const comet_run_event *event) {
    diary *d = context;
    assert_true(d->count < MOST_EVENTS);
    if (event->kind == COMET_RUN_NOTE)
        snprintf(d->last_note, sizeof d->last_note, "%s", event->text);
    d->events[d->count++] = *event;
    if (d->stop_at && event->kind == COMET_RUN_STEP && event->step == d->stop_at)
        d->stop = 1; /* before the evaluation, where it is the last step */
}

static inline int count_of(const diary *d, comet_run_event_kind kind) {
    int count = 0;
    for (int i = 0; i < d->count; i++)
        count += d->events[i].kind == kind;
    return count;
}

static comet_dataset *data; /* 100 images to train with, 20 to evaluate with */

static inline int open_data(void **state) {
    if (make_temporary_folder(state) != 0)
        return -1;
    return comet_dataset_open("generated:100", NULL, &data, &message) != COMET_OK;
}

static inline int close_data(void **state) {
    comet_dataset_free(data);
    return remove_temporary_folder(state);
}

/* Ten batches an epoch. */
static inline comet_run_options small_run(diary *d) {
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

static inline void run(const comet_run_options *options, comet_run_result *result) {
    comet_status status = comet_run(options, NULL, result, &message);
    if (status != COMET_OK)
        fail_msg("%s: %s", comet_status_string(status), message.text);
}

/*
 * The loader of a run waits for it; where its images take three times as long as its steps, it waits for them, and says
 * how fast it would be.
 */
static inline void check_waits(comet_run_options options, diary *d) {
    comet_run_result slow, quick;
    options.folder = NULL;
    options.epochs = 0;
    options.steps = 4;
    options.evaluate_every = 0;
    options.evaluate_most = 2;
    run(&options, &quick);
    assert_true(quick.data_wait < 0.5 && quick.loader_wait > 0.5);
    assert_true(quick.network_images_per_second >= quick.images_per_second);
    d->count = 0;
    slow_down(data, (long)(3 * quick.ms_per_step / options.trainer.batch) + 10);
    run(&options, &slow);
    quicken(data);
    double waited = 0, spent = 0;
    for (int i = 0; i < d->count; i++)
        if (d->events[i].kind == COMET_RUN_STEP) {
            assert_true(d->events[i].wait_ms >= 0 && d->events[i].wait_ms <= d->events[i].step_ms);
            waited += d->events[i].wait_ms;
            spent += d->events[i].step_ms;
        }
    assert_true(fabs(waited / spent - slow.data_wait) < 1e-6);
    assert_true(slow.data_wait > 0.4 && slow.loader_wait < 0.4);
    assert_true(slow.network_images_per_second > 1.4 * slow.images_per_second);
    d->count = 0;
}

static inline size_t read_bytes(const char *path, uint8_t **bytes) {
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

static inline void assert_same_files(const char *a, const char *b) {
    uint8_t *x, *y;
    size_t size = read_bytes(a, &x);
    assert_int_equal(read_bytes(b, &y), size);
    assert_memory_equal(x, y, size);
    free(x);
    free(y);
}

#endif
