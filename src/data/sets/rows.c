/* SPDX-License-Identifier: Apache-2.0 */
/* Rows into a decoder's memory: as they are, or as means of factor x factor pixels (fewer at the right and below). */
#include <string.h>

#include "data/image/decode_impl.h"

static int32_t divide_up(int32_t a, int32_t b) {
    return a / b + (a % b != 0);
}

int32_t comet_rows_factor(const comet_decoder *decoder, int32_t height, int32_t width, int32_t channels) {
    int32_t factor = 1;
    while ((uint64_t)divide_up(height, factor) * (uint64_t)divide_up(width, factor) * (uint64_t)channels >
           decoder->capacity)
        factor++;
    return factor;
}

void comet_rows_begin(comet_rows *rows, comet_decoder *decoder, int32_t height, int32_t width, int32_t channels) {
    *rows = (comet_rows){.decoder = decoder, .height = height, .width = width, .channels = channels};
    rows->factor = comet_rows_factor(decoder, height, width, channels);
    rows->out_height = divide_up(height, rows->factor);
    rows->out_width = divide_up(width, rows->factor);
}

static uint8_t *out_row(const comet_rows *rows, int32_t y) {
    return rows->decoder->pixels + (size_t)y * (size_t)rows->out_width * (size_t)rows->channels;
}

static void add(const comet_rows *rows, const uint8_t *row) {
    uint32_t *sums = rows->decoder->sums;
    for (int32_t x = 0; x < rows->width; x++)
        for (int32_t c = 0; c < rows->channels; c++)
            sums[x / rows->factor * rows->channels + c] += row[x * rows->channels + c];
}

static void finish(const comet_rows *rows, uint8_t *out) {
    uint32_t tall = (uint32_t)((rows->y - 1) % rows->factor + 1);
    for (int32_t x = 0; x < rows->out_width; x++) {
        int32_t wide = rows->width - x * rows->factor;
        uint32_t count = tall * (uint32_t)(wide < rows->factor ? wide : rows->factor);
        for (int32_t c = 0; c < rows->channels; c++, out++)
            *out = (uint8_t)((rows->decoder->sums[x * rows->channels + c] + count / 2) / count);
    }
}

void comet_rows_put(comet_rows *rows, const uint8_t *row) {
    int32_t y = rows->y++, factor = rows->factor;
    uint8_t *out = out_row(rows, y / factor);
    size_t values = (size_t)rows->out_width * (size_t)rows->channels;
    if (factor == 1) {
        memcpy(out, row, values);
        return;
    }
    if (y % factor == 0)
        memset(rows->decoder->sums, 0, values * sizeof *rows->decoder->sums);
    add(rows, row);
    if (rows->y % factor == 0 || rows->y == rows->height)
        finish(rows, out);
}

comet_image comet_rows_image(const comet_rows *rows) {
    return (comet_image){rows->decoder->pixels, rows->out_height, rows->out_width, rows->channels};
}
