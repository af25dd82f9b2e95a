/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's data asks of loaders and trainer: sizes, memory, and the largest batch that fits. */
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "train/models/model.h"
#include "train/run/run_impl.h"

/* A GPU takes images faster than a few threads decode them, and does not compute on the host's cores. */
enum { MOST_DECODERS = 4, MOST_DECODERS_OF_GPU = 16, TRAIN_BATCHES = 3, EVALUATE_BATCHES = 2 };

static void report_file(void *context, const char *line) {
    comet_run_note(context, line);
}

/* Bytes in memory are cheap to make a batch of; files have to be decoded. */
static unsigned loader_threads(const comet_run_options *options) {
    if (options->loader_threads)
        return options->loader_threads;
    if (!comet_dataset_is_decoded(options->data))
        return 1;
    const unsigned cores = comet_usable_cores();
    const unsigned most = options->trainer.place.device.kind == COMET_CUDA ? MOST_DECODERS_OF_GPU : MOST_DECODERS;
    return cores > most ? most : cores;
}

static comet_loader_options loader_options(const comet_run_options *options, const comet_trainer_options *trainer,
                                           comet_split split) {
    return (comet_loader_options){.split = split,
                                  .batch = trainer->batch,
                                  .height = trainer->height,
                                  .width = trainer->width,
                                  .channels = trainer->channels,
                                  .augment = options->augment,
                                  .seed = trainer->seed,
                                  .most = split == COMET_SPLIT_EVALUATE ? options->evaluate_most : 0,
                                  .threads = loader_threads(options),
                                  .batches = split == COMET_SPLIT_TRAIN ? TRAIN_BATCHES : EVALUATE_BATCHES};
}

static comet_status complete_sizes(const comet_dataset_info *info, comet_trainer_options *t, comet_message *message) {
    const comet_model *model;
    COMET_TRY(comet_model_find(t->model, &model, message));
    t->height = t->height ? t->height : info->height ? info->height : model->image;
    t->width = t->width ? t->width : info->width ? info->width : model->image;
    t->channels = t->channels ? t->channels : info->channels;
    t->classes = info->classes;
    t->normalisation = comet_normalisation_for(&info->normalisation, info->channels, t->channels);
    return COMET_OK;
}

comet_status comet_run_trainer_options(const comet_run_options *options, comet_trainer_options *trainer,
                                       size_t loader_bytes[COMET_SPLITS], comet_message *message) {
    const comet_dataset_info *info = comet_dataset_get_info(options->data);
    size_t most = 0;
    *trainer = options->trainer;
    comet_status status = complete_sizes(info, trainer, message);
    for (int split = 0; split < COMET_SPLITS && status == COMET_OK; split++) {
        comet_loader_options loader = loader_options(options, trainer, (comet_split)split);
        status = comet_loader_resident(options->data, &loader, &loader_bytes[split], message);
        most = status == COMET_OK && loader_bytes[split] > most ? loader_bytes[split] : most;
    }
    trainer->reserved_bytes = info->memory_bytes + most; /* there is one loader at a time */
    if (trainer->place.device.kind == COMET_CUDA) {      /* the budget is of the GPU's memory: these are the host's */
        memset(loader_bytes, 0, COMET_SPLITS * sizeof *loader_bytes);
        trainer->reserved_bytes = 0;
    }
    return status;
}

size_t comet_run_planned_peak(const comet_run_result *r) {
    const comet_trainer_bytes *b = &r->bytes;
    const size_t saved = b->planned_peak_bytes - b->static_bytes - b->buffer_bytes;
    const size_t training = r->loader_bytes[COMET_SPLIT_TRAIN] + saved,
                 evaluation = r->loader_bytes[COMET_SPLIT_EVALUATE];
    return b->static_bytes + b->buffer_bytes + b->library_bytes + (training > evaluation ? training : evaluation);
}

comet_status comet_run_open_loader(comet_run_session *s, comet_split split, comet_loader **loader) {
    comet_loader_options options = loader_options(s->options, &s->trainer_options, split);
    options.allocator = s->allocator;
    if (s->evaluations == 0) /* a broken file is told once; evaluations come after whole epochs */
        options.report = report_file;
    options.report_context = s;
    return comet_loader_new(s->options->data, &options, loader, s->message);
}

/* ---- the largest batch. Not comet_trainer_largest_batch: what the loaders hold grows with the batch, too ---- */

typedef struct run_question {
    comet_run_options options;
    const comet_allocator *allocator;
} run_question;

static int most_images(const comet_run_options *options, int most) {
    const int64_t images = comet_dataset_get_info(options->data)->count[COMET_SPLIT_TRAIN];
    return most < images ? most : (int)images;
}

static comet_status fits_within(void *context, int batch, int *fits, comet_message *message) {
    run_question *q = context;
    comet_trainer_options trainer;
    size_t loader_bytes[COMET_SPLITS];
    *fits = 0;
    q->options.trainer.batch = batch;
    comet_status status = comet_run_trainer_options(&q->options, &trainer, loader_bytes, message);
    return status == COMET_OK ? comet_trainer_fits(&trainer, q->allocator, fits, NULL, message) : status;
}

comet_status comet_run_largest_within(const comet_run_options *options, int most, const comet_allocator *allocator,
                                      int *batch, comet_message *message) {
    run_question q = {.options = *options, .allocator = allocator};
    return comet_largest_batch(&(comet_batch_question){fits_within, &q}, most_images(options, most), batch, message);
}

/* All memory that a batch of that size would take, each tensor in the form that was asked for. */
static comet_status bytes_for(const comet_run_options *options, int batch, const comet_allocator *allocator,
                              size_t *bytes, comet_message *message) {
    comet_run_options o = *options;
    comet_trainer_options trainer;
    comet_trainer_bytes own;
    size_t loader_bytes[COMET_SPLITS];
    int fits;
    o.trainer.batch = batch;
    o.trainer.memory_bytes = 0;
    comet_status status = comet_run_trainer_options(&o, &trainer, loader_bytes, message);
    if (status == COMET_OK)
        status = comet_trainer_fits(&trainer, allocator, &fits, &own, message);
    if (status == COMET_OK)
        *bytes = own.planned_peak_bytes + own.library_bytes + trainer.reserved_bytes;
    return status;
}

comet_status comet_run_largest_batch(const comet_run_options *options, int most, const comet_allocator *allocator,
                                     int *batch, comet_message *message) {
    size_t limit = options->trainer.memory_bytes, bytes = 0;
    int fits = 1, above = most_images(options, most) + 1;
    *batch = 0;
    comet_status status = bytes_for(options, fits, allocator, &bytes, message);
    if (status == COMET_OK && bytes > limit)
        return comet_message_set(message, COMET_ERROR_CAPACITY,
                                 "even a batch of 1 takes %.1f MiB, and %.1f MiB are allowed", (double)bytes / 1048576,
                                 (double)limit / 1048576);
    while (status == COMET_OK && above - fits > 1) {
        int middle = fits + (above - fits) / 2;
        status = bytes_for(options, middle, allocator, &bytes, message);
        *(bytes <= limit ? &fits : &above) = middle;
    }
    if (status == COMET_OK)
        *batch = fits;
    return status;
}
