/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for any image file, whatever is in it. */
#ifndef TESTS_FUZZ_COMMON_IMAGE_H
#define TESTS_FUZZ_COMMON_IMAGE_H

#include "common/folder.h"

#include "data/image/decode.h"

enum { IMAGE_CAPACITY = COMET_DECODE_LEAST_BYTES, IMAGE_MOST_WHOLE = 8 << 20, IMAGE_MOST_PIXELS = 1 << 22 };

/*
 * Memory of its own for the pixels, so that the sanitizers see where they end; taken once, as much of it is never used.
 */
static inline void image_decoder_init(comet_decoder *decoder, size_t whole, int fill) {
    static void *memory, *pixels;
    if (!memory) {
        memory = aligned_alloc(64, comet_decoder_own_bytes(IMAGE_CAPACITY));
        pixels = malloc(IMAGE_CAPACITY);
        EXPECT(memory && pixels);
    }
    comet_decoder_init(decoder, IMAGE_CAPACITY, whole, memory);
    decoder->pixels = memset(pixels, fill, IMAGE_CAPACITY);
}

/*
 * An image that can be used was measured right, fits, and every byte of it comes from the file, not from what was in
 * memory before.
 */
static inline void image_check(const char *path) {
    static uint8_t first_pixels[IMAGE_CAPACITY];
    comet_decode_need need = {0};
    comet_decoder decoder;
    comet_image image = {0}, again = {0};
    comet_message message;
    comet_decode_measure(path, &need);
    if (need.pixels > IMAGE_MOST_PIXELS) /* a few bytes can be many: that only costs time */
        return;
    int whole_is_known = need.whole <= IMAGE_MOST_WHOLE;
    size_t whole = whole_is_known ? need.whole : IMAGE_MOST_WHOLE;
    image_decoder_init(&decoder, whole, 0x00);
    comet_status status = comet_decode(&decoder, path, &image, &message);
    EXPECT(status == COMET_OK || !whole_is_known || !strstr(message.text, "too large for a "));
    if (status != COMET_OK)
        return;
    size_t count = (size_t)image.height * (size_t)image.width * (size_t)image.channels;
    EXPECT(image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3));
    EXPECT(count <= IMAGE_CAPACITY);
    EXPECT(need.pixels > IMAGE_CAPACITY || need.pixels == count);
    memcpy(first_pixels, image.pixels, count);
    image_decoder_init(&decoder, whole, 0xff);
    EXPECT(comet_decode(&decoder, path, &again, &message) == COMET_OK);
    EXPECT(again.height == image.height && again.width == image.width && again.channels == image.channels);
    EXPECT(memcmp(first_pixels, again.pixels, count) == 0);
}

#endif
