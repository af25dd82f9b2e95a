/* SPDX-License-Identifier: Apache-2.0 */
/* What all data sets have in common, and the names they are opened by. */
#include "data/sets/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/memory.h"
#include "base/text/nearest.h"
#include "data/sets/dataset_impl.h"
#include "data/sets/scan.h"

static const char *const fashion_folders[] = {"/usr/share/datasets/fashion-mnist",
                                              "/usr/local/share/datasets/fashion-mnist", NULL};

enum { GENERATED_COUNT = 12000 };

/* ---- opening ---- */

static comet_status open_generated(const char *count, const comet_allocator *allocator, comet_dataset **set,
                                   comet_message *message) {
    char *end = NULL;
    long long value = count ? strtoll(count, &end, 10) : GENERATED_COUNT;
    if (count && (*count < '0' || *count > '9' || *end || value < 10 || value > 10000000))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'generated:%s' does not name a number of images; give 10 to 10000000", count);
    return comet_generated_open(value, allocator, set, message);
}

enum { NAMES = 4 };
static const char *const names[NAMES] = {"fashion-mnist", "cifar10", "folder", "generated"};

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < NAMES ? names[index] : NULL;
}

/* A folder alone is what people try first. */
static comet_status unknown(const char *spec, size_t length, comet_message *message) {
    char name[64];
    const char *meant = NULL;
    if (comet_scan_is_folder(spec))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.300s' is a folder: did you mean folder:%.300s?",
                                 spec, spec);
    if (length < sizeof name) {
        memcpy(name, spec, length);
        name[length] = '\0';
        meant = comet_nearest(name, name_at, NULL);
    }
    return comet_message_set(message, COMET_ERROR_ARGUMENT,
                             "unknown data set '%.300s'%s%s%s; there are fashion-mnist, cifar10:DIR, folder:DIR and "
                             "generated",
                             spec, meant ? " (did you mean " : "", meant ? meant : "", meant ? "?)" : "");
}

comet_status comet_dataset_open(const char *spec, const comet_allocator *allocator, comet_dataset **set,
                                comet_message *message) {
    *set = NULL;
    const char *colon = strchr(spec, ':'), *rest = colon ? colon + 1 : NULL;
    size_t length = colon ? (size_t)(colon - spec) : strlen(spec);
    size_t which = 0;
    while (which < NAMES && (strlen(names[which]) != length || memcmp(names[which], spec, length) != 0))
        which++;
    if (which == NAMES)
        return unknown(spec, length, message);
    if ((which == 1 || which == 2) && (!rest || !*rest))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%s' needs a folder; write %s:DIR", spec,
                                 names[which]);
    if (rest && !*rest)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "nothing follows the colon in '%s'", spec);
    if (which == 0)
        return comet_fashion_open(rest, fashion_folders, allocator, set, message);
    if (which == 1)
        return comet_cifar_open(rest, allocator, set, message);
    return which == 2 ? comet_folder_open(rest, allocator, set, message)
                      : open_generated(rest, allocator, set, message);
}

/* ---- memory ---- */

comet_status comet_dataset_new(const comet_dataset_kind *kind, size_t bytes, const comet_allocator *allocator,
                               comet_dataset **set, comet_message *message) {
    *set = comet_memory_take(allocator, bytes);
    if (!*set)
        return comet_message_memory(message);
    memset(*set, 0, bytes);
    (*set)->kind = kind;
    (*set)->allocator = allocator;
    (*set)->bytes = bytes;
    (*set)->info.memory_bytes = bytes;
    (*set)->info.centre = 1.0;
    return COMET_OK;
}

comet_status comet_dataset_reserve(comet_dataset *set, comet_split split, int64_t count, int pixels,
                                   comet_message *message) {
    comet_dataset_part *part = &set->parts[split];
    size_t image = (size_t)set->info.height * (size_t)set->info.width * (size_t)set->info.channels;
    part->count = count;
    part->pixel_bytes = pixels ? image * (size_t)count : 0;
    part->labels = comet_memory_take(set->allocator, (size_t)count * sizeof *part->labels);
    part->pixels = pixels ? comet_memory_take(set->allocator, part->pixel_bytes) : NULL;
    if (!part->labels || (pixels && !part->pixels))
        return comet_message_memory(message);
    set->info.memory_bytes += part->pixel_bytes + (size_t)count * sizeof *part->labels;
    return COMET_OK;
}

void comet_dataset_free(comet_dataset *set) {
    if (!set)
        return;
    if (set->kind->free)
        set->kind->free(set);
    for (int s = 0; s < COMET_SPLITS; s++) {
        comet_dataset_part *part = &set->parts[s];
        comet_memory_give(set->allocator, part->pixels, part->pixel_bytes);
        comet_memory_give(set->allocator, part->labels, (size_t)part->count * sizeof *part->labels);
    }
    comet_memory_give(set->allocator, set, set->bytes);
}

/* ---- what is known about it ---- */

void comet_dataset_measure(const uint8_t *pixels, int64_t count, int32_t channels, comet_normalisation *normalisation) {
    uint64_t histogram[COMET_IMAGE_MOST_CHANNELS][256] = {{0}};
    for (int64_t i = 0; i < count; i++)
        for (int32_t c = 0; c < channels; c++)
            histogram[c][pixels[i * channels + c]]++;
    for (int32_t c = 0; c < channels; c++) {
        double sum = 0.0, squares = 0.0, n = (double)count;
        for (int v = 0; v < 256; v++) {
            sum += (double)histogram[c][v] * v;
            squares += (double)histogram[c][v] * v * v;
        }
        double mean = sum / n, variance = squares / n - mean * mean;
        normalisation->mean[c] = (float)(mean / 255.0);
        normalisation->deviation[c] = variance > 0.0 ? (float)(sqrt(variance) / 255.0) : 1.0f;
    }
}

void comet_dataset_complete(comet_dataset *set) {
    comet_dataset_info *info = &set->info;
    for (int s = 0; s < COMET_SPLITS; s++) {
        const comet_dataset_part *part = &set->parts[s];
        uLong crc = crc32_z(0, (const Bytef *)&part->count, sizeof part->count);
        crc = crc32_z(crc, (const Bytef *)part->labels, (size_t)part->count * sizeof *part->labels);
        info->count[s] = part->count;
        info->digest[s] ^= (uint32_t)crc; /* a kind may have put more there */
    }
    const comet_dataset_part *train = &set->parts[COMET_SPLIT_TRAIN];
    if (train->pixels)
        comet_dataset_measure(train->pixels, train->count * info->height * info->width, info->channels,
                              &info->normalisation);
}

const comet_dataset_info *comet_dataset_get_info(const comet_dataset *set) {
    return &set->info;
}

const char *comet_dataset_class_name(const comet_dataset *set, int32_t label) {
    return set->class_names[label];
}

const char *comet_dataset_file_name(const comet_dataset *set, comet_split split, int64_t index) {
    return set->kind->file_name ? set->kind->file_name(set, split, index) : NULL;
}

/* ---- reading ---- */

int comet_dataset_is_decoded(const comet_dataset *set) {
    return set->kind->read != NULL;
}

int32_t comet_dataset_label(const comet_dataset *set, comet_split split, int64_t index) {
    return set->parts[split].labels[index];
}

comet_status comet_dataset_read(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                                comet_image *image, comet_message *message) {
    if (set->kind->read)
        return set->kind->read(set, split, index, decoder, image, message);
    const comet_dataset_info *info = &set->info;
    size_t bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
    *image = (comet_image){set->parts[split].pixels + bytes * (size_t)index, info->height, info->width, info->channels};
    return COMET_OK;
}
