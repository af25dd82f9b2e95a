/* SPDX-License-Identifier: Apache-2.0 */
/* Image files to pixels, in memory that is known beforehand. */
#ifndef COMET_DATA_DECODE_H
#define COMET_DATA_DECODE_H

#include <stddef.h>

#include "base/message.h"
#include "data/image/image.h"

/* What decoding an image takes; of several, the most of each. */
typedef struct comet_decode_need {
    size_t pixels; /* bytes of the image */
    size_t whole;  /* bytes that JPEGs of several scans (progressive ones, and some others) must be held in first */
    int32_t width, height;
} comet_decode_need;

/*
 * What one thread decodes with. An image that takes more than `capacity` bytes is reduced by a whole factor as it is
 * read. Formats that have to be held whole are refused where they do not fit: interlaced PNGs into `capacity`,
 * JPEGs of several scans into `whole`.
 */
typedef struct comet_decoder {
    size_t capacity, whole;
    uint8_t *pixels; /* capacity */
    uint8_t *row;    /* a row as the file has it */
    uint32_t *sums;  /* of a reduced row */
} comet_decoder;

enum { COMET_DECODE_LEAST_BYTES = 1 << 20 };

/* Bytes behind one decoder: its own, which comet_decoder_init is given, and those libjpeg and libpng take at most. */
size_t comet_decoder_own_bytes(size_t capacity);
size_t comet_decoder_library_bytes(size_t whole, int32_t width);

/*
 * Of its own bytes, those that images of so many bytes and pixels in a row make it write to: the rest is never
 * resident.
 */
size_t comet_decoder_touched_bytes(size_t pixels, int32_t width);

/* `memory` of comet_decoder_own_bytes, aligned to 64. capacity is at least COMET_DECODE_LEAST_BYTES. */
void comet_decoder_init(comet_decoder *decoder, size_t capacity, size_t whole, void *memory);

/* Raises `need` to what this file takes, from its header alone. A file that cannot be used takes nothing. */
void comet_decode_measure(const char *path, comet_decode_need *need);

/* Decodes a JPEG or a PNG; its first bytes say which. `image` points into the decoder. The message names the file. */
comet_status comet_decode(comet_decoder *decoder, const char *path, comet_image *image, comet_message *message);

#endif
