/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/about.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"

/* ---- writing ---- */

static int put_settings(char *text, size_t capacity, double centre, const comet_normalisation *n, int channels) {
    if (channels == 1)
        return snprintf(text, capacity, "centre=%.9g mean=%.9g deviation=%.9g\n", centre, (double)n->mean[0],
                        (double)n->deviation[0]);
    return snprintf(text, capacity, "centre=%.9g mean=%.9g,%.9g,%.9g deviation=%.9g,%.9g,%.9g\n", centre,
                    (double)n->mean[0], (double)n->mean[1], (double)n->mean[2], (double)n->deviation[0],
                    (double)n->deviation[1], (double)n->deviation[2]);
}

/* A name is one line, whatever is in it. */
static char *put_name(char *to, const char *name) {
    for (; *name; name++)
        *to++ = *name == '\n' ? '?' : *name;
    *to++ = '\n';
    return to;
}

comet_status comet_about_text(const comet_dataset *data, const comet_normalisation *normalisation, int channels,
                              const comet_allocator *allocator, char **text, size_t *bytes, comet_message *message) {
    enum { SETTINGS = 256 };
    const comet_dataset_info *info = comet_dataset_get_info(data);
    *bytes = SETTINGS;
    for (int32_t c = 0; c < info->classes; c++)
        *bytes += strlen(comet_dataset_class_name(data, c)) + 1;
    *text = comet_memory_take(allocator, *bytes);
    if (!*text)
        return comet_message_memory(message);
    memset(*text, 0, *bytes);
    char *to = *text + put_settings(*text, SETTINGS, info->centre, normalisation, channels);
    for (int32_t c = 0; c < info->classes; c++)
        to = put_name(to, comet_dataset_class_name(data, c));
    return COMET_OK;
}

/* ---- reading ---- */

enum { MOST_CLASSES = 1 << 20, MOST_SIDE = 8192 };

/* Numbers with commas between them; 0 unless there are `count` of them. */
static int take_numbers(const char *text, const char *key, int count, double *numbers) {
    const char *at = strstr(text, key), *line = strchr(text, '\n');
    char *end;
    if (!at || !line || at > line)
        return 0;
    at += strlen(key);
    for (int i = 0; i < count; i++, at = end + 1) {
        numbers[i] = strtod(at, &end);
        if (end == at || (i + 1 < count && *end != ','))
            return 0;
    }
    return 1;
}

static void take_settings(const char *text, comet_about *a) {
    const int channels = a->channels == 1 ? 1 : 3;
    double mean[3] = {0}, deviation[3] = {1, 1, 1};
    a->is_normalised = take_numbers(text, "centre=", 1, &a->centre) && a->centre > 0 && a->centre <= 1 &&
                       take_numbers(text, "mean=", channels, mean) &&
                       take_numbers(text, "deviation=", channels, deviation);
    for (int c = 0; c < channels; c++) {
        a->normalisation.mean[c] = (float)mean[c];
        a->normalisation.deviation[c] = (float)deviation[c];
        a->is_normalised &= deviation[c] > 0;
    }
}

/* Names are as many as classes, or they are of no use. */
static comet_status take_labels(const char *text, comet_about *a) {
    const char *names = strchr(text, '\n');
    int count = 0;
    if (!names || a->classes == 0)
        return COMET_OK;
    a->label_bytes = strlen(names + 1) + 1;
    a->labels = comet_memory_take(a->allocator, a->label_bytes);
    if (!a->labels)
        return COMET_ERROR_MEMORY;
    memcpy(a->labels, names + 1, a->label_bytes);
    for (char *c = a->labels; *c; c++)
        if (*c == '\n') {
            *c = '\0';
            count++;
        }
    if (count == a->classes)
        return COMET_OK;
    comet_memory_give(a->allocator, a->labels, a->label_bytes);
    a->labels = NULL;
    return COMET_OK;
}

static comet_status take_images(const comet_safetensors *file, comet_about *a) {
    const char *metadata = comet_safetensors_metadata(file, "comet." COMET_ABOUT_IMAGES);
    char *blob = NULL;
    size_t bytes = 0;
    comet_status status =
        metadata ? COMET_OK : comet_checkpoint_take_text(file, COMET_ABOUT_IMAGES, a->allocator, &blob, &bytes);
    const char *text = metadata ? metadata : blob;
    if (status == COMET_OK && text) {
        take_settings(text, a);
        status = take_labels(text, a);
    }
    comet_memory_give(a->allocator, blob, bytes);
    return status;
}

static comet_status take_data(const comet_safetensors *file, comet_about *a) {
    const char *metadata = comet_safetensors_metadata(file, "comet." COMET_ABOUT_DATA);
    char *blob = NULL;
    size_t bytes = 0;
    comet_status status =
        metadata ? COMET_OK : comet_checkpoint_take_text(file, COMET_ABOUT_DATA, a->allocator, &blob, &bytes);
    const char *text = metadata ? metadata : blob;
    if (status == COMET_OK && text && strlen(text) < sizeof a->data)
        strcpy(a->data, text);
    comet_memory_give(a->allocator, blob, bytes);
    return status;
}

/* A damaged file may say anything. */
static int in(int value, int most) {
    return value > 0 && value <= most;
}

static void take_model(const comet_safetensors *file, comet_about *a) {
    const char *text = comet_safetensors_metadata(file, comet_checkpoint_text_keys[COMET_TEXT_MODEL]);
    if (text &&
        sscanf(text, "%63s classes=%d image=%dx%dx%d", a->model, &a->classes, &a->height, &a->width, &a->channels) ==
            5 &&
        in(a->classes, MOST_CLASSES) && in(a->height, MOST_SIDE) && in(a->width, MOST_SIDE) &&
        (a->channels == 1 || a->channels == 3))
        return;
    a->model[0] = '\0';
    a->classes = a->height = a->width = a->channels = 0;
}

comet_status comet_about_read(const comet_safetensors *file, const comet_allocator *allocator, comet_about *a) {
    const char *accuracy = comet_safetensors_metadata(file, "comet.accuracy"),
               *step = comet_safetensors_metadata(file, "comet.step");
    *a = (comet_about){.allocator = allocator, .accuracy = -1, .step = -1};
    take_model(file, a);
    if (accuracy)
        a->accuracy = strtod(accuracy, NULL);
    if (step)
        a->step = strtoll(step, NULL, 10);
    COMET_TRY(take_data(file, a));
    comet_status status = take_images(file, a);
    if (status != COMET_OK)
        comet_about_free(a);
    return status;
}

void comet_about_free(comet_about *a) {
    comet_memory_give(a->allocator, a->labels, a->label_bytes);
    a->labels = NULL;
}

const char *comet_about_label(const comet_about *a, int label) {
    const char *name = a->labels;
    if (!name || label < 0 || label >= a->classes)
        return NULL;
    while (label-- > 0)
        name += strlen(name) + 1;
    return name;
}

/* ---- which file ---- */

comet_status comet_about_find(const char *from, const comet_allocator *allocator, char path[COMET_ABOUT_PATH],
                              comet_message *message) {
    struct stat status;
    if (stat(from, &status) != 0 || !S_ISDIR(status.st_mode)) {
        const int length = snprintf(path, COMET_ABOUT_PATH, "%s", from);
        return length < COMET_ABOUT_PATH ? COMET_OK
                                         : comet_message_set(message, COMET_ERROR_ARGUMENT, "the name is too long");
    }
    snprintf(path, COMET_ABOUT_PATH, "%.1000s/" COMET_BEST_FILE, from);
    if (access(path, F_OK) == 0)
        return COMET_OK;
    for (int file = 0; file < COMET_CHECKPOINT_FILES; file++) {
        comet_checkpoint_path one;
        int whole = 0;
        COMET_TRY(comet_checkpoint_path_of(from, file, &one, message));
        if (access(one.text, F_OK) == 0 && comet_checkpoint_is_whole(one.text, allocator, &whole) != COMET_OK)
            return comet_message_memory(message);
        if (whole) {
            snprintf(path, COMET_ABOUT_PATH, "%s", one.text);
            return COMET_OK;
        }
    }
    return comet_message_set(message, COMET_ERROR_IO, "there is no checkpoint in '%.300s'", from);
}

/* ---- what its run was asked for ---- */

static comet_status take_given(const char *path, const comet_allocator *allocator, char given[COMET_ABOUT_GIVEN]) {
    comet_safetensors *file;
    comet_message unread;
    const comet_status status = comet_safetensors_open(path, allocator, &file, &unread);
    if (status != COMET_OK)
        return status == COMET_ERROR_MEMORY ? status : COMET_OK;
    const char *text = comet_safetensors_metadata(file, comet_checkpoint_text_keys[COMET_TEXT_OPTIONS]);
    snprintf(given, COMET_ABOUT_GIVEN, "%s", text ? text : "");
    comet_safetensors_close(file);
    return COMET_OK;
}

comet_status comet_about_given(const char *path, const comet_allocator *allocator, char given[COMET_ABOUT_GIVEN]) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char beside[COMET_ABOUT_PATH];
    comet_checkpoint_path last;
    comet_message unread;
    given[0] = '\0';
    COMET_TRY(take_given(path, allocator, given));
    if (given[0] || strcmp(name, COMET_BEST_FILE) != 0 || (size_t)(name - path) >= sizeof beside)
        return COMET_OK;
    snprintf(beside, sizeof beside, "%.*s", name > path ? (int)(name - path - 1) : 1, name > path ? path : ".");
    if (comet_checkpoint_path_of(beside, COMET_CHECKPOINT_LAST, &last, &unread) != COMET_OK)
        return COMET_OK;
    return take_given(last.text, allocator, given);
}
