/* SPDX-License-Identifier: Apache-2.0 */
/* The options that every command that trains has, and the defaults that suit model and data. */
#ifndef COMET_CMD_TRAIN_OPTIONS_H
#define COMET_CMD_TRAIN_OPTIONS_H

#include "cmd/common/options.h"
#include "cmd/train/train_place.h"
#include "train/run/run.h"

/* As they were given; NULL where they were not. */
typedef struct train_texts {
    const char *model, *data, *codec, *error_rel, *forms, *control, *calibration, *inject, *memory, *spill;
    const char *batch, *epochs, *steps, *seed, *image, *channels;
    const char *rate, *optimiser, *momentum, *decay, *schedule, *warmup, *accumulate, *smoothing;
    const char *evaluate_every, *evaluate_most, *weights, *threads;
    const char *freeze, *patience, *config;
    int nesterov, no_augment;
    place_texts place;
} train_texts;

enum { TRAIN_OPTIONS = 38 };

/* The shared options and a command's `own` (up to MOST_OWN_OPTIONS, its end included), which takes no operands. */
enum { MOST_OWN_OPTIONS = 20 };
int train_options_parse(train_texts *texts, const option *own, size_t own_count, int argc, char **argv,
                        text_array *operands);

/* What was given of them (options.h), as text. */
char *train_options_given(train_texts *texts, const option *own, size_t own_count, const char *const *without);

/* The lines of --help about them. */
extern const char train_options_help[];

/* All that can be known before the data is open. */
int train_options_read(const train_texts *texts, comet_run_options *run);

/* Opens the data and settles what depends on it. A line about it may go to standard error. */
int train_options_data(const train_texts *texts, comet_run_options *run, comet_dataset **data);

/*
 * What the data is called in names of files: its kind, or for folder:DIR the last part of DIR, with '_' for what does
 * not belong in a name. And what it is, for people: folder:/home/me/pets.
 */
enum { TRAIN_DATA_NAME = 64, TRAIN_DATA_PLACE = 4200 };
void train_data_name(const train_texts *texts, const comet_run_options *run, char name[TRAIN_DATA_NAME]);
void train_data_place(const train_texts *texts, const comet_run_options *run, char place[TRAIN_DATA_PLACE]);

/*
 * `form` as --codec takes it: `eb` without any bound given is under --control, or controller comet. `named` 1: it may
 * be a controller's name, too, which is eb under it, and --control is for those variants alone that have a use for it.
 * MISUSED after a line.
 */
int train_control_read(const train_texts *texts, const char *form, int named, comet_trainer_options *options);

/* --resume as it was given, NULL or "" included. */
int train_resume_read(const char *text, comet_run_resume *resume);

/* Images of a step if the user does not say. */
int train_default_batch(const comet_dataset *data);

/* Where a spill file goes if the user does not say. */
const char *train_default_spill(void);

/* MISUSED or FAILED, after the message's line. */
int train_fail(comet_status status, const comet_message *message);

#endif
