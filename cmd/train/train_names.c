/* SPDX-License-Identifier: Apache-2.0 */
/* What a training and its data are called where something is left behind. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/train/train_options.h"

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
    char *folder = find_folder(texts);
    if (folder)
        snprintf(place, TRAIN_DATA_PLACE, "%s%s", folder_prefix, folder);
    else
        snprintf(place, TRAIN_DATA_PLACE, "%s", comet_dataset_get_info(run->data)->name);
    free(folder);
}

int train_resume_read(const char *text, comet_run_resume *resume) {
    *resume = !text ? COMET_RUN_ANEW : *text ? COMET_RUN_RESUME_AUTO : COMET_RUN_RESUME;
    if (text && *text && strcmp(text, "auto") != 0)
        return misuse("--resume=%.60s is neither --resume nor --resume=auto", text);
    return DONE;
}
