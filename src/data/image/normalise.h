/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of images as the numbers a network is given. */
#ifndef COMET_DATA_NORMALISE_H
#define COMET_DATA_NORMALISE_H

#include <stdint.h>

#include "data/image/image.h"

/* Of each channel, as parts of 255. */
typedef struct comet_normalisation {
    float mean[COMET_IMAGE_MOST_CHANNELS], deviation[COMET_IMAGE_MOST_CHANNELS];
} comet_normalisation;

/* The same for another number of channels: grey repeated, or RGB's luminance (its deviation: the mean of the three). */
comet_normalisation comet_normalisation_for(const comet_normalisation *from, int32_t from_channels, int32_t channels);

/* values = (bytes / 255 - mean) / deviation, in fp32, for `count` pixels (of a batch, for example) of `channels`. */
void comet_normalise(const comet_normalisation *n, int32_t channels, const uint8_t *bytes, int64_t count,
                     float *values);

#endif
