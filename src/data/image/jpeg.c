/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG with libjpeg-turbo: grey, YCbCr, RGB, CMYK and YCCK; baseline and progressive. */
#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

#include "data/image/decode_impl.h"

enum { MOST_SCANS = 500 }; /* a file of a few kilobytes with more than that only costs time */

/* Everything that outlives a jump is in here. */
typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    comet_message *message;
    comet_status status; /* why it jumped */
    comet_rows rows;
} reader;

static void stop(j_common_ptr jpeg) {
    reader *r = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    int code = jpeg->err->msg_code;
    comet_status status = code == JERR_OUT_OF_MEMORY ? COMET_ERROR_MEMORY : COMET_ERROR_CORRUPT;
    if (code == JERR_NO_BACKING_STORE)
        snprintf(text, sizeof text, "too large for a %s",
                 r->jpeg.progressive_mode ? "progressive JPEG" : "JPEG of several scans");
    r->status = comet_message_set(r->message, status, "%s", text);
    longjmp(r->jump, 1);
}

/* libjpeg goes on after a warning, with grey where data is missing: such an image is broken. Others are harmless. */
static void warn(j_common_ptr jpeg, int level) {
    switch (level < 0 ? jpeg->err->msg_code : 0) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_NOT_SEQUENTIAL:
    case JWRN_BOGUS_PROGRESSION:
        stop(jpeg);
        break;
    default:
        break;
    }
}

static void count_scans(j_common_ptr jpeg) {
    reader *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= MOST_SCANS)
        return;
    r->status = comet_message_set(r->message, COMET_ERROR_CORRUPT, "more than %d scans", MOST_SCANS);
    longjmp(r->jump, 1);
}

static void silence(j_common_ptr jpeg) {
    (void)jpeg;
}

static void create(reader *r, FILE *file) {
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = stop;
    r->errors.emit_message = warn;
    r->errors.output_message = silence;
    r->jpeg.client_data = r;
    jpeg_create_decompress(&r->jpeg);
    r->progress.progress_monitor = count_scans;
    r->jpeg.progress = &r->progress;
    jpeg_stdio_src(&r->jpeg, file);
}

static void check_size(reader *r) {
    if ((uint64_t)r->jpeg.image_width * r->jpeg.image_height <= COMET_IMAGE_MOST_PIXELS)
        return;
    r->status = comet_message_set(r->message, COMET_ERROR_CORRUPT, "more than %d pixels", COMET_IMAGE_MOST_PIXELS);
    longjmp(r->jump, 1);
}

/* What is asked of libjpeg: colours, and the part of the reduction that it can do while it decodes. */
static void choose_output(reader *r) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    int grey = jpeg->jpeg_color_space == JCS_GRAYSCALE, four = jpeg->num_components == 4;
    jpeg->out_color_space = grey ? JCS_GRAYSCALE : four ? JCS_CMYK : JCS_RGB;
    int32_t factor =
        comet_rows_factor(r->rows.decoder, (int32_t)jpeg->image_height, (int32_t)jpeg->image_width, grey ? 1 : 3);
    jpeg->scale_num = 1;
    jpeg->scale_denom = factor >= 8 ? 8 : factor >= 4 ? 4 : factor >= 2 ? 2 : 1;
    jpeg->dct_method = JDCT_ISLOW; /* the same result with and without SIMD */
}

static uint8_t multiply(unsigned a, unsigned b) {
    return (uint8_t)((a * b + 127) / 255);
}

/* CMYK to RGB in place. Adobe writes ink inverted: 255 is none. */
static void ink_to_rgb(uint8_t *row, JDIMENSION width, int inverted) {
    unsigned flip = inverted ? 0 : 255;
    for (JDIMENSION x = 0; x < width; x++) {
        const uint8_t *in = row + 4 * (size_t)x;
        unsigned c = in[0] ^ flip, m = in[1] ^ flip, y = in[2] ^ flip, k = in[3] ^ flip;
        uint8_t *out = row + 3 * (size_t)x;
        out[0] = multiply(c, k);
        out[1] = multiply(m, k);
        out[2] = multiply(y, k);
    }
}

static void read_rows(reader *r) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    comet_decoder *decoder = r->rows.decoder;
    int four = jpeg->output_components == 4;
    comet_rows_begin(&r->rows, decoder, (int32_t)jpeg->output_height, (int32_t)jpeg->output_width,
                     four ? 3 : jpeg->output_components);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = decoder->row;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (four)
            ink_to_rgb(decoder->row, jpeg->output_width, jpeg->saw_Adobe_marker);
        comet_rows_put(&r->rows, decoder->row);
    }
}

comet_status comet_decode_jpeg(comet_decoder *decoder, FILE *file, comet_image *image, comet_message *message) {
    reader r = {.message = message, .rows = {.decoder = decoder}};
    if (setjmp(r.jump)) {
        jpeg_destroy_decompress(&r.jpeg);
        return r.status;
    }
    create(&r, file);
    r.jpeg.mem->max_memory_to_use = (long)(decoder->whole ? decoder->whole : 1); /* 0 would be no limit */
    jpeg_read_header(&r.jpeg, TRUE);
    check_size(&r);
    choose_output(&r);
    jpeg_start_decompress(&r.jpeg);
    read_rows(&r);
    *image = comet_rows_image(&r.rows);
    jpeg_destroy_decompress(&r.jpeg); /* what follows the last row does not matter */
    return COMET_OK;
}

/*
 * Coefficients of an image in several scans, as progressive ones are and some others: 64 of two bytes in a block, in
 * rows and columns of whole MCUs.
 */
static size_t coefficient_bytes(struct jpeg_decompress_struct *jpeg) {
    size_t bytes = 0;
    int whole = jpeg_has_multiple_scans(jpeg);
    for (int c = 0; whole && c < jpeg->num_components; c++) {
        const jpeg_component_info *info = &jpeg->comp_info[c];
        size_t wide = info->width_in_blocks + (size_t)info->h_samp_factor;
        size_t tall = info->height_in_blocks + (size_t)info->v_samp_factor;
        bytes += wide * tall * sizeof(JBLOCK) + tall * sizeof(JBLOCKROW);
    }
    return bytes ? bytes + (64 << 10) : 0; /* and what libjpeg took before */
}

comet_status comet_measure_jpeg(FILE *file, comet_decode_need *need) {
    reader r = {0};
    if (setjmp(r.jump)) {
        jpeg_destroy_decompress(&r.jpeg);
        return r.status;
    }
    create(&r, file);
    jpeg_read_header(&r.jpeg, TRUE);
    check_size(&r);
    size_t channels = r.jpeg.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    need->pixels = (size_t)r.jpeg.image_width * r.jpeg.image_height * channels;
    need->whole = coefficient_bytes(&r.jpeg);
    need->width = (int32_t)r.jpeg.image_width;
    need->height = (int32_t)r.jpeg.image_height;
    jpeg_destroy_decompress(&r.jpeg);
    return COMET_OK;
}
