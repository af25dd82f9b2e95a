/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of an image is used, where it is put, and whether it is turned: decided without looking at it. */
#ifndef COMET_DATA_AUGMENT_H
#define COMET_DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "data/image/image.h"

typedef enum comet_augment {
    COMET_AUGMENT_DEFAULT,     /* what suits the data set */
    COMET_AUGMENT_NONE,        /* the centre, resized */
    COMET_AUGMENT_FLIP,        /* and turned left to right, or not */
    COMET_AUGMENT_CROP,        /* and moved by up to an eighth of its size, black around it */
    COMET_AUGMENT_RESIZED_CROP /* a rectangle of random area, shape and place, resized; turned or not */
} comet_augment;

typedef struct comet_augment_rule {
    comet_augment kind;
    double centre;     /* of the largest centred rectangle of the right shape, the part used; NONE, FLIP and CROP */
    double least_area; /* RESIZED_CROP: of the image's area, at least this part (the most is all of it) */
} comet_augment_rule;

/* Take `box`, resize it, move it by (down, right), turn it. */
typedef struct comet_view {
    comet_box box;
    int32_t down, right;
    bool flipped;
} comet_view;

/* What sample `sample` of `epoch` looks like, of an image of in_height x in_width for a model of height x width. */
comet_view comet_augment_view(const comet_augment_rule *rule, uint64_t seed, uint32_t epoch, int64_t sample,
                              int32_t in_height, int32_t in_width, int32_t height, int32_t width);

#endif
