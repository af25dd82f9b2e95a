/* SPDX-License-Identifier: Apache-2.0 */
/* Fashion-MNIST: four IDX files, as Debian's dataset-fashion-mnist has them (or MNIST's, which have the same names). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "data/sets/dataset_impl.h"
#include "data/sets/idx.h"

enum { CLASSES = 10, MOST_SIDE = 4096, PATH_BYTES = 4096 };

static const char *const class_names[CLASSES] = {"T-shirt/top", "trouser", "pullover", "dress", "coat",
                                                 "sandal",      "shirt",   "sneaker",  "bag",   "ankle boot"};
static const comet_dataset_kind kind = {0};
static const char *const replaced =
    "Fashion-MNIST is not installed (on Debian: apt-get install dataset-fashion-mnist): "
    "using generated images in its place";

static const char *const files[COMET_SPLITS][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                                   {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};

/* Compressed if that is there, else plain. */
static comet_status path_of(const char *folder, const char *name, char path[PATH_BYTES], comet_message *message) {
    struct stat status;
    int length = snprintf(path, PATH_BYTES, "%s/%s.gz", folder, name);
    if (length >= PATH_BYTES)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "the name of the folder '%.64s...' is too long",
                                 folder);
    if (stat(path, &status) != 0)
        path[length - 3] = '\0';
    if (stat(path, &status) != 0)
        return comet_message_set(message, COMET_ERROR_IO,
                                 "there is no '%s.gz': %s; on Debian: apt-get install dataset-fashion-mnist", path,
                                 strerror(errno));
    return COMET_OK;
}

static comet_status take_images(comet_dataset *set, comet_split split, comet_idx *idx, comet_message *message) {
    comet_dataset_info *info = &set->info;
    int32_t height = (int32_t)idx->extents[1], width = (int32_t)idx->extents[2];
    if (height > MOST_SIDE || width > MOST_SIDE)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' has images of %dx%d; at most %dx%d are possible",
                                 idx->path, width, height, MOST_SIDE, MOST_SIDE);
    if (split != COMET_SPLIT_TRAIN && (height != info->height || width != info->width))
        return comet_message_set(message, COMET_ERROR_CORRUPT,
                                 "'%s' has images of another size than those to train with", idx->path);
    info->height = height;
    info->width = width;
    COMET_TRY(comet_dataset_reserve(set, split, idx->extents[0], 1, message));
    return comet_idx_read(idx, set->parts[split].pixels, (int64_t)set->parts[split].pixel_bytes, message);
}

/* Labels are read into the first quarter of their memory and widened from the back. */
static comet_status take_labels(comet_dataset_part *part, comet_idx *idx, comet_message *message) {
    if (idx->extents[0] != part->count)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' has %lld labels for %lld images; get both again",
                                 idx->path, (long long)idx->extents[0], (long long)part->count);
    uint8_t *bytes = (uint8_t *)part->labels;
    comet_status status = comet_idx_read(idx, bytes, part->count, message);
    for (int64_t i = part->count - 1; status == COMET_OK && i >= 0; i--) {
        int32_t label = bytes[i];
        if (label >= CLASSES)
            return comet_message_set(message, COMET_ERROR_CORRUPT,
                                     "'%s' has label %d at image %lld; labels are 0 to %d", idx->path, label,
                                     (long long)i, CLASSES - 1);
        memcpy(&part->labels[i], &label, sizeof label);
    }
    return status;
}

static comet_status read_file(comet_dataset *set, comet_split split, const char *folder, int labels,
                              comet_message *message) {
    char path[PATH_BYTES];
    comet_idx idx;
    comet_status status = path_of(folder, files[split][labels], path, message);
    if (status == COMET_OK)
        status = comet_idx_open(&idx, path, labels ? 1 : 3, message);
    if (status != COMET_OK)
        return status;
    status = labels ? take_labels(&set->parts[split], &idx, message) : take_images(set, split, &idx, message);
    comet_idx_close(&idx);
    return status;
}

static comet_status open_folder(const char *folder, const comet_allocator *allocator, comet_dataset **out,
                                comet_message *message) {
    comet_dataset *set;
    comet_status status = comet_dataset_new(&kind, sizeof *set, allocator, &set, message);
    if (status != COMET_OK)
        return status;
    set->info.name = "fashion-mnist";
    set->info.classes = CLASSES;
    set->info.channels = 1;
    set->info.augment = COMET_AUGMENT_CROP;
    set->class_names = class_names;
    for (int i = 0; i < 4 && status == COMET_OK; i++)
        status = read_file(set, (comet_split)(i / 2), folder, i % 2, message);
    if (status != COMET_OK) {
        comet_dataset_free(set);
        return status;
    }
    comet_dataset_complete(set);
    *out = set;
    return COMET_OK;
}

comet_status comet_fashion_open(const char *folder, const char *const *defaults, const comet_allocator *allocator,
                                comet_dataset **set, comet_message *message) {
    struct stat status;
    if (folder)
        return open_folder(folder, allocator, set, message);
    for (; *defaults; defaults++)
        if (stat(*defaults, &status) == 0)
            return open_folder(*defaults, allocator, set, message);
    comet_status answer = comet_generated_open(12000, allocator, set, message);
    if (answer == COMET_OK)
        (*set)->info.note = replaced;
    return answer;
}
