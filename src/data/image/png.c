/* SPDX-License-Identifier: Apache-2.0 */
/* PNG with libpng: every type as 8-bit grey or RGB; alpha is dropped. */
#include <setjmp.h>
#include <stdlib.h>

#include <png.h>

#include "data/image/decode_impl.h"

/* Everything that outlives a jump is in here. */
typedef struct reader {
    png_structp png;
    png_infop info;
    comet_message *message;
    comet_rows rows; /* decoder NULL: only the header */
} reader;

static void stop(png_structp png, png_const_charp text) {
    reader *r = png_get_error_ptr(png);
    comet_message_set(r->message, COMET_ERROR_CORRUPT, "%s", text);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void choose_output(png_structp png) {
    png_set_expand(png); /* palettes and 1, 2 and 4 bits */
    png_set_scale_16(png);
    png_set_strip_alpha(png);
}

/* Interlaced: each pass adds pixels to rows that must all be there. */
static void read_interlaced(reader *r, int passes) {
    comet_rows *rows = &r->rows;
    if (rows->factor != 1)
        png_error(r->png, "too large for an interlaced PNG");
    size_t stride = (size_t)rows->width * (size_t)rows->channels;
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < rows->height; y++)
            png_read_row(r->png, rows->decoder->pixels + (size_t)y * stride, NULL);
}

static void read_rows(reader *r) {
    png_structp png = r->png;
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    comet_rows_begin(&r->rows, r->rows.decoder, (int32_t)png_get_image_height(png, r->info),
                     (int32_t)png_get_image_width(png, r->info), png_get_channels(png, r->info));
    if (passes > 1) {
        read_interlaced(r, passes);
        return;
    }
    for (int32_t y = 0; y < r->rows.height; y++) {
        png_read_row(png, r->rows.decoder->row, NULL);
        comet_rows_put(&r->rows, r->rows.decoder->row);
    }
}

static void read_header(reader *r, FILE *file) {
    png_init_io(r->png, file);
    png_set_user_limits(r->png, COMET_IMAGE_MOST_SIDE, COMET_IMAGE_MOST_SIDE);
    /* -1: nor those that it knows but pixels do not need. A text has the length that the file claims, which would be
       allocated before it is read. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);
    uint64_t count = (uint64_t)png_get_image_width(r->png, r->info) * png_get_image_height(r->png, r->info);
    if (count > COMET_IMAGE_MOST_PIXELS)
        png_error(r->png, "too many pixels");
    choose_output(r->png);
}

static comet_status read_image(reader *r, FILE *file) {
    if (setjmp(png_jmpbuf(r->png)))
        return COMET_ERROR_CORRUPT;
    read_header(r, file);
    if (r->rows.decoder)
        read_rows(r);
    return COMET_OK;
}

static comet_status open_and_read(reader *r, FILE *file) {
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, stop, ignore);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    return r->info ? read_image(r, file) : comet_message_memory(r->message);
}

comet_status comet_decode_png(comet_decoder *decoder, FILE *file, comet_image *image, comet_message *message) {
    reader r = {.message = message, .rows = {.decoder = decoder}};
    comet_status status = open_and_read(&r, file);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (status == COMET_OK)
        *image = comet_rows_image(&r.rows);
    return status;
}

comet_status comet_measure_png(FILE *file, comet_decode_need *need) {
    reader r = {0};
    comet_status status = open_and_read(&r, file);
    if (status == COMET_OK) {
        int grey = !(png_get_color_type(r.png, r.info) & PNG_COLOR_MASK_COLOR);
        need->width = (int32_t)png_get_image_width(r.png, r.info);
        need->height = (int32_t)png_get_image_height(r.png, r.info);
        need->pixels = (size_t)need->width * (size_t)need->height * (grey ? 1 : 3);
    }
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return status;
}
