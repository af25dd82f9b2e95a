/* SPDX-License-Identifier: Apache-2.0 */
/* An image in memory: bytes, rows from the top, channels innermost, without gaps. */
#ifndef COMET_DATA_IMAGE_H
#define COMET_DATA_IMAGE_H

#include <stdint.h>

/* More pixels than any photograph has: a small file that claims them only costs time. */
enum { COMET_IMAGE_MOST_SIDE = 65535, COMET_IMAGE_MOST_CHANNELS = 3, COMET_IMAGE_MOST_PIXELS = 1 << 28 };

typedef struct comet_image {
    const uint8_t *pixels;
    int32_t height, width;
    int32_t channels; /* 1 (grey) or 3 (RGB) */
} comet_image;

/* A rectangle of an image, inside it. */
typedef struct comet_box {
    int32_t top, left, height, width;
} comet_box;

#endif
