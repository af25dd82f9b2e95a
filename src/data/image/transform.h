/* SPDX-License-Identifier: Apache-2.0 */
/* A view of an image as a model takes it: size and channels right, moved and turned. */
#ifndef COMET_DATA_TRANSFORM_H
#define COMET_DATA_TRANSFORM_H

#include <stddef.h>

#include "data/image/augment.h"

/* Bytes that comet_transform needs to work in, for images of at most `most_side` a side. */
size_t comet_transform_workspace(int32_t most_side, int32_t height, int32_t width);

/* Writes height x width x channels bytes. Grey becomes RGB by repetition, RGB grey by its luminance. */
void comet_transform(const comet_image *image, const comet_view *view, int32_t height, int32_t width, int32_t channels,
                     void *workspace, uint8_t *out);

#endif
