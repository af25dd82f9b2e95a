/* SPDX-License-Identifier: Apache-2.0 */
/* The images that every network is shown, in the same batches. */
#ifndef COMET_CMD_LOOK_IMAGES_H
#define COMET_CMD_LOOK_IMAGES_H

#include "cmd/predict/network.h"
#include "data/sets/dataset.h"

typedef struct look_images {
    comet_dataset *data;
    char name[1024]; /* as it was given, or as the first weights say */
    uint8_t *pixels; /* NHWC */
    int32_t *labels; /* the networks' classes */
    int count;
    int64_t bytes; /* of an image */
    int height, width, channels;
} look_images;

/*
 * About `most` images that the set has for evaluation, drawn over all classes and mixed, so that each batch has of all:
 * similarities are estimated within batches. Files that cannot be used are told and left out.
 */
int look_images_load(look_images *images, const network *n, const char *given, int64_t most);
void look_images_free(look_images *images);

#endif
