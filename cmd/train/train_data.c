/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a training: what it is called where something is left behind, and the defaults that suit it. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/train/train_options.h"

/* ---- names ---- */

static const char folder_prefix[] = "folder:";

/* The folder of images in full, as long as the caller keeps it; NULL where the data is none. */
static char *find_folder(const train_texts *texts) {
    if (!texts->data || strncmp(texts->data, folder_prefix, strlen(folder_prefix)) != 0)
        return NULL;
    return realpath(texts->data + strlen(folder_prefix), NULL);
}

/* What shells and people read as one word; letters of other alphabets are bytes above 127. */
static int belongs(char c) {
    return isalnum((unsigned char)c) || strchr("._-", c) || (unsigned char)c > 127;
}

void train_data_name(const train_texts *texts, const comet_run_options *run, char name[TRAIN_DATA_NAME]) {
    char *folder = find_folder(texts);
    const char *slash = folder ? strrchr(folder, '/') : NULL;
    const char *last = slash && slash[1] ? slash + 1 : comet_dataset_get_info(run->data)->name;
    snprintf(name, TRAIN_DATA_NAME, "%s", last);
    for (char *c = name; *c; c++)
        if (!belongs(*c))
            *c = '_';
    free(folder);
}

void train_data_place(const train_texts *texts, const comet_run_options *run, char place[TRAIN_DATA_PLACE]) {
    const char *spec = texts->data ? texts->data : "", *colon = strchr(spec, ':');
    char *folder = colon ? realpath(colon + 1, NULL) : NULL;
    if (folder)
        snprintf(place, TRAIN_DATA_PLACE, "%.*s%s", (int)(colon + 1 - spec), spec, folder);
    else
        snprintf(place, TRAIN_DATA_PLACE, "%s", colon ? spec : comet_dataset_get_info(run->data)->name);
    free(folder);
}

/* ---- what suits the data and the model, where the user did not say ---- */

/* Without batch norm a rate that others take makes the first steps diverge. */
static int has_no_norm(const char *model) {
    return strcmp(model, "alexnet") == 0 || strcmp(model, "vgg16") == 0;
}

/* 0.1 for 128 small images; for photographs, as is usual, for 256. */
static double default_rate(const comet_run_options *run) {
    const comet_trainer_options *t = &run->trainer;
    if (t->optimiser.kind == COMET_ADAMW)
        return 1e-3;
    int images = t->batch * (t->accumulate > 1 ? t->accumulate : 1);
    int whole = comet_dataset_is_decoded(run->data) ? 256 : 128;
    double rate = images < whole ? 0.1 * images / whole : 0.1;
    return has_no_norm(t->model) || run->weights ? rate / 10 : rate;
}

int train_default_batch(const comet_dataset *data) {
    const int batch = comet_dataset_is_decoded(data) ? 32 : 128;
    const int64_t count = comet_dataset_get_info(data)->count[COMET_SPLIT_TRAIN];
    return count < batch ? (int)count : batch;
}

static void settle(const train_texts *texts, const comet_dataset *data, comet_run_options *run) {
    int files = comet_dataset_is_decoded(data);
    comet_trainer_options *t = &run->trainer;
    if (!texts->batch)
        t->batch = train_default_batch(data);
    if (!texts->rate)
        run->rate = default_rate(run);
    if (!texts->decay && t->optimiser.kind == COMET_SGD)
        t->optimiser.weight_decay = files ? 1e-4 : 5e-4;
}

int train_options_data(const train_texts *texts, comet_run_options *run, comet_dataset **data) {
    comet_message message;
    comet_status status = comet_dataset_open(texts->data ? texts->data : "fashion-mnist", NULL, data, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    run->data = *data;
    if (comet_dataset_get_info(*data)->note)
        note("%s", comet_dataset_get_info(*data)->note);
    settle(texts, *data, run);
    return DONE;
}
