/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of images with labels, in a split to train with and one to evaluate with. */
#ifndef COMET_DATA_DATASET_H
#define COMET_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/message.h"
#include "comet/allocator.h"
#include "data/image/augment.h"
#include "data/image/decode.h"
#include "data/image/image.h"
#include "data/image/normalise.h"

typedef enum comet_split { COMET_SPLIT_TRAIN = 0, COMET_SPLIT_EVALUATE = 1, COMET_SPLITS = 2 } comet_split;

typedef struct comet_dataset_info {
    const char *name; /* "fashion-mnist", "cifar10", "folder", "generated" */
    const char *note; /* a line the user should see (another set took this one's place), or NULL */
    int32_t classes;
    int64_t count[COMET_SPLITS];
    int32_t height, width;             /* of every image; 0 where they differ */
    int32_t channels;                  /* 1: all are grey; 3 */
    comet_normalisation normalisation; /* for `channels`; see comet_normalisation_for */
    comet_augment augment;             /* what COMET_AUGMENT_DEFAULT stands for when training */
    double centre;                     /* the part of an image that evaluation looks at */
    size_t memory_bytes;               /* held as long as the set is open */
    comet_decode_need need;            /* of the images that are decoded; 0 if it is not known */
    uint32_t digest[COMET_SPLITS];     /* of names and labels: tells whether it is the same set */
} comet_dataset_info;

typedef struct comet_dataset comet_dataset;

/*
 * Opens what `spec` names: fashion-mnist[:DIR], cifar10:DIR, folder:DIR or generated[:N]. allocator NULL: the C
 * library's. The message says what is wrong and what to do: COMET_ERROR_ARGUMENT for the spec itself, COMET_ERROR_IO
 * for files that are missing or cannot be read, COMET_ERROR_CORRUPT for what is in them, COMET_ERROR_MEMORY.
 */
comet_status comet_dataset_open(const char *spec, const comet_allocator *allocator, comet_dataset **set,
                                comet_message *message);

/* NULL is allowed. No loader may still use it. */
void comet_dataset_free(comet_dataset *set);

const comet_dataset_info *comet_dataset_get_info(const comet_dataset *set);

/* Never NULL for 0 .. classes - 1; lives as long as the set. */
const char *comet_dataset_class_name(const comet_dataset *set, int32_t label);

/* 1 if images are decoded from files: comet_dataset_read then needs a decoder. */
int comet_dataset_is_decoded(const comet_dataset *set);

int32_t comet_dataset_label(const comet_dataset *set, comet_split split, int64_t index);

/* What the sample's file is called, from the set's or the split's folder on; NULL where it has none. */
const char *comet_dataset_file_name(const comet_dataset *set, comet_split split, int64_t index);

/*
 * A set of files with nothing to train with and one class, "": images of which it is to be found out what they are.
 * `paths` must outlive it; `centre` as in the info.
 */
comet_status comet_dataset_open_files(const char *const *paths, int64_t count, double centre,
                                      const comet_allocator *allocator, comet_dataset **set, comet_message *message);

/*
 * Sample `index` (0 .. count - 1). The pixels are the set's, or the decoder's until it is used again. Any number of
 * threads may read, each with its decoder. A file that cannot be used: a status other than OK, and the message says
 * why; only COMET_ERROR_MEMORY may pass by itself.
 */
comet_status comet_dataset_read(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                                comet_image *image, comet_message *message);

#endif
