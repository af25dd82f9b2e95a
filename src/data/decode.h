/* SPDX-License-Identifier: Apache-2.0 */
/* Image files to pixels, in memory that is known beforehand. */
#ifndef COMET_DATA_DECODE_H
#define COMET_DATA_DECODE_H

#include <stddef.h>

#include "data/image.h"
#include "data/message.h"

/*
 * What one thread decodes with. An image that takes more than `capacity` bytes is reduced by a whole factor as it is
 * read. Formats that have to be held whole first (progressive JPEG, interlaced PNG) may take another `capacity`.
 */
typedef struct comet_decoder {
    size_t capacity;
    uint8_t *pixels; /* capacity */
    uint8_t *row;    /* a row as the file has it */
    uint32_t *sums;  /* of a reduced row */
} comet_decoder;

enum { COMET_DECODE_LEAST_BYTES = 1 << 20 };

/* Bytes behind one decoder: its own, which comet_decoder_init is given, and those libjpeg and libpng take. */
size_t comet_decoder_own_bytes(size_t capacity);
size_t comet_decoder_library_bytes(size_t capacity);

/* `memory` of comet_decoder_own_bytes, aligned to 64. capacity is at least COMET_DECODE_LEAST_BYTES. */
void comet_decoder_init(comet_decoder *decoder, size_t capacity, void *memory);

/* Decodes a JPEG or a PNG; its first bytes say which. `image` points into the decoder. The message names the file. */
comet_status comet_decode(comet_decoder *decoder, const char *path, comet_image *image, comet_message *message);

#endif
