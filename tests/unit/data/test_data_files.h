/* SPDX-License-Identifier: Apache-2.0 */
/* Folders and files that the tests of src/data make: a temporary folder, IDX, CIFAR-10, JPEG and PNG files. */
#ifndef TEST_DATA_FILES_H
#define TEST_DATA_FILES_H

#include "support/temporary_folder.h"

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include "base/message.h"
#include "support/rng.h"

/* ---- folders ---- */

/* And the folders in which it lies. */
static inline const char *make_parents(const char *path) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *c = copy + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(copy, 0777);
            *c = '/';
        }
    return path;
}

static inline const char *in_new_folder(const char *name) {
    return make_parents(in_folder(name));
}

/* ---- plain files ---- */

static inline void write_bytes(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline size_t read_bytes(const char *path, void *bytes, size_t capacity) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, capacity, file);
    fclose(file);
    return count;
}

static inline void cut_file(const char *path, double part) {
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, (off_t)((double)status.st_size * part)), 0);
}

/* An IDX file, with gzip if the name says so. `values` more or fewer than the extents say if the test wants that. */
static inline void write_idx(const char *path, int ndim, const int *extents, const uint8_t *values, size_t count) {
    uint8_t header[16] = {0, 0, 8, (uint8_t)ndim};
    for (int d = 0; d < ndim; d++)
        for (int b = 0; b < 4; b++)
            header[4 + 4 * d + b] = (uint8_t)(extents[d] >> (24 - 8 * b));
    int plain = strcmp(path + strlen(path) - 3, ".gz") != 0;
    gzFile file = gzopen(path, plain ? "wbT" : "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, header, (unsigned)(4 + 4 * ndim)), 4 + 4 * ndim);
    assert_int_equal(gzwrite(file, values, (unsigned)count), count);
    assert_int_equal(gzclose(file), Z_OK);
}

/* ---- images ---- */

/* A smooth image, which JPEG changes little; channels 1, 3 or 4. */
static inline void paint(uint8_t *pixels, int height, int width, int channels, int seed) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                pixels[(y * width + x) * channels + c] = (uint8_t)(40 + (x * (3 + c) + y * 2 + seed * 17) % 160);
}

typedef struct jpeg_form {
    J_COLOR_SPACE colours; /* of the pixels */
    int progressive;
    int no_adobe_marker; /* CMYK as it is, not inverted by a marker's say */
    int scan_of_each;    /* component, one behind the other; not progressive */
} jpeg_form;

static inline void write_jpeg(const char *path, const uint8_t *pixels, int height, int width, jpeg_form form) {
    static const jpeg_scan_info scans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = form.colours == JCS_GRAYSCALE ? 1 : form.colours == JCS_CMYK ? 4 : 3;
    jpeg.in_color_space = form.colours;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 98, TRUE);
    if (form.progressive)
        jpeg_simple_progression(&jpeg);
    if (form.scan_of_each) {
        jpeg.scan_info = scans;
        jpeg.num_scans = 3;
    }
    if (form.no_adobe_marker)
        jpeg.write_Adobe_marker = FALSE;
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(pixels + (size_t)jpeg.next_scanline * (size_t)width * (size_t)jpeg.input_components);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

static const jpeg_form jpeg_grey = {.colours = JCS_GRAYSCALE}, jpeg_rgb = {.colours = JCS_RGB},
                       jpeg_cmyk = {.colours = JCS_CMYK};

/* `colours` is one of PNG_COLOR_TYPE_*; rows hold what libpng packs: bytes, or two for 16 bits, high first. */
static inline void write_png(const char *path, const uint8_t *pixels, int height, int width, int colours, int bits,
                             int interlaced) {
    static const int channels_of[] = {1, 0, 3, 1, 2, 0, 4};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert_int_equal(setjmp(png_jmpbuf(png)), 0);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, colours,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (colours == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[256];
        for (int i = 0; i < 256; i++)
            palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
        png_set_PLTE(png, info, palette, 256);
    }
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    size_t stride = (size_t)width * (size_t)channels_of[colours] * (size_t)bits / 8;
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < height; y++)
            png_write_row(png, pixels + (size_t)y * stride);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    fclose(file);
}

/* Fails unless the call gave `expected` and a line that contains `part`. */
#define assert_refused(call, expected, said, part)                                                                     \
    do {                                                                                                               \
        (said).text[0] = '\0';                                                                                         \
        assert_status(call, expected);                                                                                 \
        if (!strstr((said).text, part))                                                                                \
            fail_msg("\"%s\" does not contain \"%s\"", (said).text, part);                                             \
    } while (0)

#endif
