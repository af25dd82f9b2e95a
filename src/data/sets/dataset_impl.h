/* SPDX-License-Identifier: Apache-2.0 */
/* What the kinds of data sets are made of. */
#ifndef COMET_DATA_DATASET_IMPL_H
#define COMET_DATA_DATASET_IMPL_H

#include "data/sets/dataset.h"

enum { COMET_DATASET_MOST_CLASSES = 1000000, COMET_DATASET_MOST_IMAGES = 1 << 30 };

typedef struct comet_dataset_kind {
    comet_status (*read)(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                         comet_image *image, comet_message *message); /* NULL: from `pixels` */
    void (*free)(comet_dataset *set);                                 /* what is its own; NULL: nothing */
    const char *(*file_name)(const comet_dataset *set, comet_split split, int64_t index); /* NULL: there are no files */
} comet_dataset_kind;

/* A split. Sets in memory have pixels, one image after the other; others have NULL. */
typedef struct comet_dataset_part {
    uint8_t *pixels;
    size_t pixel_bytes;
    int32_t *labels;
    int64_t count;
} comet_dataset_part;

/* The first member of every kind's own struct; memory of the whole comes from comet_dataset_new. */
struct comet_dataset {
    const comet_dataset_kind *kind;
    const comet_allocator *allocator;
    size_t bytes; /* of the struct that this begins */
    comet_dataset_info info;
    comet_dataset_part parts[COMET_SPLITS];
    const char *const *class_names;
};

/* A set of `bytes` zero bytes, as large as the kind's struct. */
comet_status comet_dataset_new(const comet_dataset_kind *kind, size_t bytes, const comet_allocator *allocator,
                               comet_dataset **set, comet_message *message);

/* Room for `count` images in memory, of the size in info (with pixels 0: none), and their labels. */
comet_status comet_dataset_reserve(comet_dataset *set, comet_split split, int64_t count, int pixels,
                                   comet_message *message);

/* Completes info from the parts: counts, memory, digests, and for images in memory the normalisation. */
void comet_dataset_complete(comet_dataset *set);

/* Mean and deviation of each channel of `count` pixels, as parts of 255; a deviation of 0 is given as 1. */
void comet_dataset_measure(const uint8_t *pixels, int64_t count, int32_t channels, comet_normalisation *normalisation);

/* The kinds. `folder` may be NULL where there is a default. */
comet_status comet_fashion_open(const char *folder, const char *const *defaults, const comet_allocator *allocator,
                                comet_dataset **set, comet_message *message);
comet_status comet_cifar_open(const char *folder, const comet_allocator *allocator, comet_dataset **set,
                              comet_message *message);
comet_status comet_folder_open(const char *folder, const comet_allocator *allocator, comet_dataset **set,
                               comet_message *message);
comet_status comet_generated_open(int64_t count, const comet_allocator *allocator, comet_dataset **set,
                                  comet_message *message);

#endif
