/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image folders: train/CLASS/... and val/CLASS/... or test/CLASS/..., JPEG and PNG files. Where there is nothing to
 * evaluate with, a fifth of each class is taken for it (folder_split.h).
 */
#include <stdio.h>
#include <string.h>

#include <zlib.h>

#include "base/fail.h"
#include "data/sets/dataset_impl.h"
#include "data/sets/folder_split.h"
#include "data/sets/scan.h"

typedef struct folder_set {
    comet_dataset set;
    comet_names classes;
    comet_names files[COMET_SPLITS]; /* from the split's folder */
    char folders[COMET_SPLITS][COMET_SCAN_PATH_BYTES];
    int has_train;
    int is_split; /* 1: both splits are out of the same folder */
    char note[2 * COMET_SCAN_PATH_BYTES];
} folder_set;

static comet_status read_sample(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                                comet_image *image, comet_message *message) {
    const folder_set *f = (const folder_set *)set;
    char path[2 * COMET_SCAN_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", f->folders[split], f->files[split].items[index]);
    return comet_decode(decoder, path, image, message);
}

static void free_lists(comet_dataset *set) {
    folder_set *f = (folder_set *)set;
    comet_names_free(&f->classes);
    for (int s = 0; s < COMET_SPLITS; s++)
        comet_names_free(&f->files[s]);
}

static const char *file_name(const comet_dataset *set, comet_split split, int64_t index) {
    return ((const folder_set *)set)->files[split].items[index];
}

static const comet_dataset_kind kind = {read_sample, free_lists, file_name};

static int has_folder(const char *root, const char *name, char path[COMET_SCAN_PATH_BYTES]) {
    snprintf(path, COMET_SCAN_PATH_BYTES, "%.*s/%s", COMET_SCAN_PATH_BYTES - 16, root, name);
    return comet_scan_is_folder(path);
}

/* Which folders there are: train, and val or test; train alone, or the classes themselves. */
static comet_status find_splits(folder_set *f, const char *root, comet_message *message) {
    char *train = f->folders[COMET_SPLIT_TRAIN], *evaluate = f->folders[COMET_SPLIT_EVALUATE];
    if (strlen(root) > COMET_SCAN_PATH_BYTES - 16)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "the name of the folder '%.64s...' is too long", root);
    if (!comet_scan_is_folder(root))
        return comet_message_set(message, COMET_ERROR_IO, "there is no folder '%s'", root);
    const int evaluates = has_folder(root, "val", evaluate) || has_folder(root, "test", evaluate);
    const int trains = f->has_train = has_folder(root, "train", train);
    if (trains && evaluates)
        return COMET_OK;
    if (evaluates)
        return comet_message_set(message, COMET_ERROR_IO,
                                 "'%s' needs a folder train/ beside val/ or test/, each with a folder of images per "
                                 "class",
                                 root);
    if (!trains)
        snprintf(train, COMET_SCAN_PATH_BYTES, "%s", root);
    strcpy(evaluate, train);
    f->is_split = 1;
    return COMET_OK;
}

static comet_status find_classes(folder_set *f, comet_message *message) {
    const char *train = f->folders[COMET_SPLIT_TRAIN];
    comet_status status = comet_scan_folders(train, &f->classes, message);
    if (status == COMET_OK)
        status = comet_names_sort(&f->classes, message);
    if (status != COMET_OK)
        return status;
    if (f->classes.count < 2 || f->classes.count > COMET_DATASET_MOST_CLASSES)
        return comet_message_set(message, COMET_ERROR_CORRUPT,
                                 "'%s' has %zu folder%s; it needs one for each class, at least two%s", train,
                                 f->classes.count, f->classes.count == 1 ? "" : "s",
                                 f->has_train ? "" : ", or train/ and val/ or test/ with these in them");
    f->set.class_names = f->classes.items;
    f->set.info.classes = (int32_t)f->classes.count;
    return COMET_OK;
}

/* Every folder of the split must be a class: one that training never sees could only be a mistake. */
static comet_status check_folders(folder_set *f, comet_split split, comet_message *message) {
    comet_names found = {.allocator = f->set.allocator};
    comet_status status = comet_scan_folders(f->folders[split], &found, message);
    if (status == COMET_OK)
        status = comet_names_sort(&found, message);
    for (size_t i = 0; i < found.count && status == COMET_OK; i++)
        if (comet_names_find(&f->classes, found.items[i], strlen(found.items[i])) < 0)
            status = comet_message_set(message, COMET_ERROR_CORRUPT, "'%s/%s' is a class that '%s' does not have",
                                       f->folders[split], found.items[i], f->folders[COMET_SPLIT_TRAIN]);
    comet_names_free(&found);
    return status;
}

static comet_status scan_class(folder_set *f, comet_split split, const char *name, comet_message *message) {
    char path[2 * COMET_SCAN_PATH_BYTES];
    size_t before = f->files[split].count;
    snprintf(path, sizeof path, "%s/%s", f->folders[split], name);
    if (split != COMET_SPLIT_TRAIN && !comet_scan_is_folder(path))
        return COMET_OK;
    comet_status status = comet_scan_images(f->folders[split], name, &f->files[split], message);
    if (status == COMET_OK && split == COMET_SPLIT_TRAIN && f->files[split].count == before)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' has no JPEG or PNG file; remove it or fill it",
                                 path);
    return status;
}

static comet_status set_labels(folder_set *f, comet_split split, comet_message *message) {
    comet_names *files = &f->files[split];
    if (files->count == 0 || files->count > COMET_DATASET_MOST_IMAGES)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' has %s JPEG or PNG files", f->folders[split],
                                 files->count ? "too many" : "no");
    comet_status status = comet_dataset_reserve(&f->set, split, (int64_t)files->count, 0, message);
    uLong crc = 0;
    for (size_t i = 0; status == COMET_OK && i < files->count; i++) {
        const char *name = files->items[i];
        f->set.parts[split].labels[i] = (int32_t)comet_names_find(&f->classes, name, strcspn(name, "/"));
        crc = crc32_z(crc, (const Bytef *)name, strlen(name) + 1);
    }
    f->set.info.digest[split] = (uint32_t)crc;
    return status;
}

static comet_status scan_split(folder_set *f, comet_split split, comet_message *message) {
    comet_status status = check_folders(f, split, message);
    for (size_t i = 0; i < f->classes.count && status == COMET_OK; i++)
        status = scan_class(f, split, f->classes.items[i], message);
    return status == COMET_OK ? comet_names_sort(&f->files[split], message) : status;
}

static comet_status scan_both(folder_set *f, comet_message *message) {
    comet_status status = scan_split(f, COMET_SPLIT_TRAIN, message);
    if (status == COMET_OK && f->is_split)
        status = comet_folder_split(&f->files[COMET_SPLIT_TRAIN], &f->files[COMET_SPLIT_EVALUATE], message);
    else if (status == COMET_OK)
        status = scan_split(f, COMET_SPLIT_EVALUATE, message);
    for (int s = 0; s < COMET_SPLITS && status == COMET_OK; s++)
        status = set_labels(f, (comet_split)s, message);
    return status;
}

static void write_note(folder_set *f, const char *root) {
    const long long kept = (long long)f->files[COMET_SPLIT_EVALUATE].count,
                    all = (long long)f->files[COMET_SPLIT_TRAIN].count + kept;
    snprintf(f->note, sizeof f->note,
             "'%s' has no val/ or test/: %lld of its %lld images are kept to evaluate with, always the same ones", root,
             kept, all);
    f->set.info.note = f->note;
}

enum {
    MOST_MEASURED = 50000
}; /* files whose headers are read before anything else: about a second, if they are at hand */

/* How large images are, so that no more memory is set aside for them than they need. */
static void measure(folder_set *f) {
    char path[2 * COMET_SCAN_PATH_BYTES];
    if (f->files[0].count + f->files[1].count > MOST_MEASURED)
        return;
    for (int s = 0; s < COMET_SPLITS; s++)
        for (size_t i = 0; i < f->files[s].count; i++) {
            snprintf(path, sizeof path, "%s/%s", f->folders[s], f->files[s].items[i]);
            comet_decode_measure(path, &f->set.info.need);
        }
}

static comet_status scan(folder_set *f, const char *root, comet_message *message) {
    comet_status status = find_splits(f, root, message);
    if (status == COMET_OK)
        status = find_classes(f, message);
    if (status == COMET_OK)
        status = scan_both(f, message);
    for (int s = 0; s < COMET_SPLITS; s++)
        f->set.info.memory_bytes += comet_names_bytes(&f->files[s]);
    f->set.info.memory_bytes += comet_names_bytes(&f->classes);
    if (status == COMET_OK && f->is_split)
        write_note(f, root);
    if (status == COMET_OK)
        measure(f);
    return status;
}

comet_status comet_folder_open(const char *folder, const comet_allocator *allocator, comet_dataset **out,
                               comet_message *message) {
    /* Of ImageNet, which such images resemble more than anything else that could be said without decoding them all. */
    static const comet_normalisation imagenet = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    comet_dataset *set;
    COMET_TRY(comet_dataset_new(&kind, sizeof(folder_set), allocator, &set, message));
    folder_set *f = (folder_set *)set;
    f->classes.allocator = f->files[0].allocator = f->files[1].allocator = allocator;
    set->info.name = "folder";
    set->info.channels = 3;
    set->info.normalisation = imagenet;
    set->info.augment = COMET_AUGMENT_RESIZED_CROP;
    set->info.centre = 0.875; /* 224 of 256 */
    comet_status status = scan(f, folder, message);
    if (status != COMET_OK) {
        comet_dataset_free(set);
        return status;
    }
    comet_dataset_complete(set);
    *out = set;
    return COMET_OK;
}
