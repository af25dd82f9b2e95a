/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing of images by an antialiased triangle filter in fixed point; Pillow 10's BILINEAR gives the same bytes. */
#ifndef COMET_DATA_RESIZE_H
#define COMET_DATA_RESIZE_H

#include <stddef.h>

#include "data/image/image.h"

/* Bytes that comet_resize needs to work in, for images of at most `most_side` a side. */
size_t comet_resize_workspace(int32_t most_side, int32_t height, int32_t width, int32_t channels);

/*
 * The part `box` of `image` as height x width into `out`, with the image's channels. What lies outside the box has no
 * influence. `workspace` is aligned to 4 bytes. The result is the same on every machine.
 */
void comet_resize(const comet_image *image, comet_box box, int32_t height, int32_t width, void *workspace,
                  uint8_t *out);

#endif
