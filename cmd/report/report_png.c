/* SPDX-License-Identifier: Apache-2.0 */
/* Little pictures as PNG, as text that can stand in a page. */
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/report/report_impl.h"

enum { COLOURS = 256 };

static void put_base64(report *r, const uint8_t *bytes, size_t count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const unsigned triple = (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                                (left > 2 ? (unsigned)bytes[i + 2] : 0);
        fputc(digits[triple >> 18], r->file);
        fputc(digits[triple >> 12 & 63], r->file);
        fputc(left > 1 ? digits[triple >> 6 & 63] : '=', r->file);
        fputc(left > 2 ? digits[triple & 63] : '=', r->file);
    }
}

/* Twice: first to know how many bytes. */
static uint8_t *encode(const report_picture *p, size_t *bytes) {
    png_image image;
    png_alloc_size_t size = 0;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)p->width;
    image.height = (png_uint_32)p->height;
    image.format = p->palette ? PNG_FORMAT_RGB_COLORMAP : PNG_FORMAT_RGBA;
    image.colormap_entries = p->palette ? COLOURS : 0;
    if (!png_image_write_to_memory(&image, NULL, &size, 0, p->pixels, 0, p->palette))
        return NULL;
    uint8_t *memory = malloc(size);
    if (memory && !png_image_write_to_memory(&image, memory, &size, 0, p->pixels, 0, p->palette)) {
        free(memory);
        return NULL;
    }
    *bytes = size;
    return memory;
}

int report_put_png(report *r, const report_picture *picture) {
    size_t bytes = 0;
    uint8_t *png = encode(picture, &bytes);
    if (!png)
        return 0;
    fputs("data:image/png;base64,", r->file);
    put_base64(r, png, bytes);
    free(png);
    return 1;
}
