/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10's binary files: records of a label and 32x32 pixels, a plane for each colour. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "data/sets/dataset_impl.h"

enum { CLASSES = 10, SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, FILES = 6, PATH_BYTES = 4096 };

static const char *const class_names[CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                 "dog",      "frog",       "horse", "ship", "truck"};
static const comet_dataset_kind kind = {0};
static const char *const files[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static comet_split split_of(int file) {
    return file == FILES - 1 ? COMET_SPLIT_EVALUATE : COMET_SPLIT_TRAIN;
}

/* How many records a file has, from its size. */
static comet_status count_records(const char *folder, const char *name, char path[PATH_BYTES], int64_t *count,
                                  comet_message *message) {
    struct stat status;
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "the name of the folder '%.64s...' is too long",
                                 folder);
    if (stat(path, &status) != 0)
        return comet_message_set(message, COMET_ERROR_IO,
                                 "there is no '%s': %s; unpack cifar-10-binary.tar.gz and name its folder", path,
                                 strerror(errno));
    if (!S_ISREG(status.st_mode))
        return comet_message_set(message, COMET_ERROR_IO, "'%s' is not a regular file", path);
    if (status.st_size == 0 || status.st_size % RECORD != 0)
        return comet_message_set(message, COMET_ERROR_CORRUPT,
                                 "'%s' has %lld bytes, not a multiple of %d: it is cut short or of another format",
                                 path, (long long)status.st_size, RECORD);
    *count = status.st_size / RECORD;
    return COMET_OK;
}

static void take_pixels(const uint8_t *planes, uint8_t *pixels) {
    for (int i = 0; i < PLANE; i++)
        for (int c = 0; c < 3; c++)
            pixels[3 * i + c] = planes[c * PLANE + i];
}

static comet_status read_records(FILE *file, const char *path, comet_dataset_part *part, int64_t first, int64_t count,
                                 comet_message *message) {
    uint8_t record[RECORD];
    for (int64_t i = 0; i < count; i++) {
        if (fread(record, 1, RECORD, file) != RECORD)
            return comet_message_set(message, COMET_ERROR_IO, "cannot read all of '%s'", path);
        if (record[0] >= CLASSES)
            return comet_message_set(message, COMET_ERROR_CORRUPT,
                                     "'%s' has label %d at image %lld; labels are 0 to %d", path, record[0],
                                     (long long)i, CLASSES - 1);
        part->labels[first + i] = record[0];
        take_pixels(record + 1, part->pixels + (first + i) * 3 * PLANE);
    }
    return COMET_OK;
}

static comet_status read_file(comet_dataset *set, const char *folder, int which, int64_t *filled,
                              comet_message *message) {
    char path[PATH_BYTES];
    int64_t count;
    comet_dataset_part *part = &set->parts[split_of(which)];
    COMET_TRY(count_records(folder, files[which], path, &count, message));
    if (count > part->count - *filled)
        return comet_message_set(message, COMET_ERROR_IO, "'%s' grows while it is read", path);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return comet_message_set(message, COMET_ERROR_IO, "cannot open '%s': %s", path, strerror(errno));
    comet_status status = read_records(file, path, part, *filled, count, message);
    *filled += count;
    fclose(file);
    return status;
}

static comet_status fill(comet_dataset *set, const char *folder, comet_message *message) {
    char path[PATH_BYTES];
    int64_t counts[COMET_SPLITS] = {0}, filled[COMET_SPLITS] = {0}, count = 0;
    comet_status status = COMET_OK;
    for (int i = 0; i < FILES && status == COMET_OK; i++) {
        status = count_records(folder, files[i], path, &count, message);
        counts[split_of(i)] += count;
    }
    for (int s = 0; s < COMET_SPLITS && status == COMET_OK; s++)
        status = comet_dataset_reserve(set, (comet_split)s, counts[s], 1, message);
    for (int i = 0; i < FILES && status == COMET_OK; i++)
        status = read_file(set, folder, i, &filled[split_of(i)], message);
    for (int s = 0; s < COMET_SPLITS && status == COMET_OK; s++)
        if (filled[s] != counts[s])
            status = comet_message_set(message, COMET_ERROR_IO, "files in '%s' shrink while they are read", folder);
    return status;
}

static comet_status open_folder(const char *folder, const comet_allocator *allocator, comet_dataset **out,
                                comet_message *message) {
    comet_dataset *set;
    COMET_TRY(comet_dataset_new(&kind, sizeof *set, allocator, &set, message));
    set->info.name = "cifar10";
    set->info.classes = CLASSES;
    set->info.height = set->info.width = SIDE;
    set->info.channels = 3;
    set->info.augment = COMET_AUGMENT_CROP;
    set->class_names = class_names;
    comet_status status = fill(set, folder, message);
    if (status != COMET_OK) {
        comet_dataset_free(set);
        return status;
    }
    comet_dataset_complete(set);
    *out = set;
    return COMET_OK;
}

comet_status comet_cifar_open(const char *folder, const comet_allocator *allocator, comet_dataset **set,
                              comet_message *message) {
    char inner[PATH_BYTES];
    struct stat status;
    int length = snprintf(inner, sizeof inner, "%s/cifar-10-batches-bin", folder);
    int nested = length < PATH_BYTES && stat(inner, &status) == 0 && S_ISDIR(status.st_mode);
    return open_folder(nested ? inner : folder, allocator, set, message);
}
