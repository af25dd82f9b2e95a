/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/transform.h"

#include <string.h>

#include "data/image/resize.h"

/* ITU-R 601 in 16 bits, as Pillow has it. */
static uint8_t luminance(const uint8_t *p) {
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static void put_pixel(const uint8_t *in, int32_t in_channels, uint8_t *out, int32_t channels) {
    if (channels == 1)
        *out = in_channels == 1 ? *in : luminance(in);
    else
        for (int32_t c = 0; c < 3; c++)
            out[c] = in[in_channels == 1 ? 0 : c];
}

/* One row of the result from row `in` of the resized image; NULL: above or below it. */
static void put_row(const uint8_t *in, int32_t in_channels, const comet_view *view, int32_t width, uint8_t *out,
                    int32_t channels) {
    memset(out, 0, (size_t)width * (size_t)channels);
    for (int32_t x = 0; in && x < width; x++) {
        int32_t from = (view->flipped ? width - 1 - x : x) - view->right;
        if (from >= 0 && from < width)
            put_pixel(in + (size_t)from * (size_t)in_channels, in_channels, out + (size_t)x * (size_t)channels,
                      channels);
    }
}

static size_t resized_bytes(int32_t height, int32_t width) {
    return ((size_t)height * (size_t)width * COMET_IMAGE_MOST_CHANNELS + 3) / 4 * 4; /* words follow */
}

size_t comet_transform_workspace(int32_t most_side, int32_t height, int32_t width) {
    return resized_bytes(height, width) + comet_resize_workspace(most_side, height, width, COMET_IMAGE_MOST_CHANNELS);
}

void comet_transform(const comet_image *image, const comet_view *view, int32_t height, int32_t width, int32_t channels,
                     void *workspace, uint8_t *out) {
    uint8_t *resized = workspace, *work = resized + resized_bytes(height, width);
    bool plain = !view->down && !view->right && !view->flipped && image->channels == channels;
    comet_resize(image, view->box, height, width, work, plain ? out : resized);
    if (plain)
        return;
    size_t in_row = (size_t)width * (size_t)image->channels, out_row = (size_t)width * (size_t)channels;
    for (int32_t y = 0; y < height; y++) {
        int32_t from = y - view->down;
        const uint8_t *in = from >= 0 && from < height ? resized + (size_t)from * in_row : NULL;
        put_row(in, image->channels, view, width, out + (size_t)y * out_row, channels);
    }
}
