/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/predict/classify.h"

#include <stdlib.h>

#include "base/parallel.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/progress.h"
#include "cmd/train/train_options.h"

enum { MOST_DECODERS = 4, BATCHES = 2 };

typedef struct work {
    network *network;
    const classify_options *options;
    comet_loader *loader;
    double *probabilities; /* of a batch */
    progress progress;
    int64_t broken;
} work;

static void report_file(void *context, const char *line) {
    work *w = context;
    w->broken++;
    progress_clear(&w->progress);
    note("%s", line);
}

static comet_status open_loader(work *w, comet_message *message) {
    const comet_about *a = &w->network->about;
    const unsigned cores = comet_usable_cores();
    const comet_loader_options options = {.split = COMET_SPLIT_EVALUATE,
                                          .batch = w->network->batch,
                                          .height = a->height,
                                          .width = a->width,
                                          .channels = a->channels,
                                          .most = w->options->most,
                                          .threads = !comet_dataset_is_decoded(w->options->data) ? 1
                                                     : cores < MOST_DECODERS                     ? cores
                                                                                                 : MOST_DECODERS,
                                          .batches = BATCHES,
                                          .report = report_file,
                                          .report_context = w};
    return comet_loader_new(w->options->data, &options, &w->loader, message);
}

static comet_status classify_batch(work *w, comet_batch *batch, comet_message *message) {
    comet_status status = comet_loader_next(w->loader, batch, message);
    if (status == COMET_OK && batch->count > 0)
        status = comet_predictor_run(w->network->predictor, batch->pixels, batch->count, w->probabilities, message);
    for (int i = 0; status == COMET_OK && i < batch->count; i++) {
        const classified image = {batch->samples[i], batch->labels[i],
                                  w->probabilities + (int64_t)i * w->network->about.classes};
        w->options->see(w->options->context, &image);
        progress_step(&w->progress, "");
    }
    return status;
}

static comet_status classify_all(work *w, comet_message *message) {
    comet_status status = open_loader(w, message);
    for (comet_batch batch = {.last = false}; status == COMET_OK && !batch.last;)
        status = classify_batch(w, &batch, message);
    comet_loader_free(w->loader);
    progress_clear(&w->progress);
    return status;
}

int classify(network *n, const classify_options *options, int64_t *broken) {
    const int64_t all = comet_dataset_get_info(options->data)->count[COMET_SPLIT_EVALUATE];
    work w = {.network = n, .options = options};
    comet_message message;
    w.probabilities = calloc((size_t)n->batch * (size_t)n->about.classes, sizeof *w.probabilities);
    if (!w.probabilities)
        return fail_memory();
    progress_start(&w.progress, (size_t)(options->most && options->most < all ? options->most : all), options->quiet);
    comet_status status = classify_all(&w, &message);
    free(w.probabilities);
    *broken = w.broken;
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

/* Of equal ones the class of lower index comes first, as in training. */
void classify_best(const double *probabilities, int classes, int count, int *best) {
    for (int i = 0; i < count; i++) {
        int found = -1;
        for (int k = 0; k < classes; k++) {
            int taken = 0;
            for (int j = 0; j < i; j++)
                taken |= best[j] == k;
            if (!taken && (found < 0 || probabilities[k] > probabilities[found]))
                found = k;
        }
        best[i] = found;
    }
}
