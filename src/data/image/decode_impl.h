/* SPDX-License-Identifier: Apache-2.0 */
/* Between the decoders of the formats and what they have in common: rows are put one by one, and come out reduced. */
#ifndef COMET_DATA_DECODE_IMPL_H
#define COMET_DATA_DECODE_IMPL_H

#include <stdio.h>

#include "data/image/decode.h"

typedef struct comet_rows {
    comet_decoder *decoder;
    int32_t height, width, channels; /* of what is put */
    int32_t factor;
    int32_t out_height, out_width;
    int32_t y; /* rows put so far */
} comet_rows;

/* The whole factor by which sides are divided so that an image fits the decoder. */
int32_t comet_rows_factor(const comet_decoder *decoder, int32_t height, int32_t width, int32_t channels);

void comet_rows_begin(comet_rows *rows, comet_decoder *decoder, int32_t height, int32_t width, int32_t channels);

/* `row` has width x channels bytes. Exactly height rows are put. */
void comet_rows_put(comet_rows *rows, const uint8_t *row);
comet_image comet_rows_image(const comet_rows *rows);

/* The message is the reason alone. COMET_ERROR_CORRUPT for what is in the file. */
comet_status comet_decode_jpeg(comet_decoder *decoder, FILE *file, comet_image *image, comet_message *message);
comet_status comet_decode_png(comet_decoder *decoder, FILE *file, comet_image *image, comet_message *message);

/* COMET_OK and what the file takes. */
comet_status comet_measure_jpeg(FILE *file, comet_decode_need *need);
comet_status comet_measure_png(FILE *file, comet_decode_need *need);

#endif
