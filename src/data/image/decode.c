/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/decode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "data/image/decode_impl.h"

enum {
    ROW_BYTES = (COMET_IMAGE_MOST_SIDE + 1) * 4, /* CMYK, and alpha before it is dropped */
    SUM_BYTES = (COMET_IMAGE_MOST_SIDE / 2 + 1) * COMET_IMAGE_MOST_CHANNELS * 4, /* only reduced rows are summed */
    /* Of libjpeg (strips of 16 rows and their neighbours) and libpng (a window, some rows of 8 bytes a pixel). */
    LIBRARY_BYTES = 384 << 10,
    LIBRARY_BYTES_OF_WIDTH = 64
};

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

size_t comet_decoder_own_bytes(size_t capacity) {
    return round_up(capacity) + round_up(ROW_BYTES) + round_up(SUM_BYTES);
}

size_t comet_decoder_touched_bytes(size_t pixels, int32_t width) {
    const size_t row = (size_t)width * 4, sums = ((size_t)width / 2 + 1) * COMET_IMAGE_MOST_CHANNELS * 4;
    return pixels + (row < ROW_BYTES ? row : ROW_BYTES) + (sums < SUM_BYTES ? sums : SUM_BYTES);
}

size_t comet_decoder_library_bytes(size_t whole, int32_t width) {
    return whole + LIBRARY_BYTES + (size_t)width * LIBRARY_BYTES_OF_WIDTH;
}

void comet_decoder_init(comet_decoder *decoder, size_t capacity, size_t whole, void *memory) {
    uint8_t *bytes = memory;
    decoder->capacity = capacity;
    decoder->whole = whole;
    decoder->pixels = bytes;
    decoder->row = bytes + round_up(capacity);
    decoder->sums = (uint32_t *)(void *)(decoder->row + round_up(ROW_BYTES));
}

typedef enum image_format { FORMAT_JPEG, FORMAT_PNG } image_format;

static comet_status find_format(FILE *file, image_format *format, comet_message *why) {
    static const unsigned char jpeg[3] = {0xff, 0xd8, 0xff}, png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    unsigned char start[8] = {0};
    struct stat status;
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode))
        return comet_message_set(why, COMET_ERROR_IO, "not a regular file");
    size_t got = fread(start, 1, sizeof start, file);
    if (ferror(file))
        return comet_message_set(why, COMET_ERROR_IO, "%s", strerror(errno));
    if (got == 0)
        return comet_message_set(why, COMET_ERROR_CORRUPT, "the file is empty");
    rewind(file);
    *format = memcmp(start, jpeg, sizeof jpeg) == 0 ? FORMAT_JPEG : FORMAT_PNG;
    if (*format == FORMAT_PNG && memcmp(start, png, sizeof png) != 0)
        return comet_message_set(why, COMET_ERROR_CORRUPT, "neither a JPEG nor a PNG file");
    return COMET_OK;
}

static comet_status decode_file(comet_decoder *decoder, FILE *file, comet_image *image, comet_message *why) {
    image_format format;
    COMET_TRY(find_format(file, &format, why));
    return (format == FORMAT_JPEG ? comet_decode_jpeg : comet_decode_png)(decoder, file, image, why);
}

/* A pipe would wait for its other end, and must not: it is refused when it is open. */
static FILE *open_file(const char *path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!file && descriptor >= 0)
        close(descriptor);
    return file;
}

void comet_decode_measure(const char *path, comet_decode_need *need) {
    image_format format;
    comet_decode_need one = {0};
    FILE *file = open_file(path);
    if (!file)
        return;
    if (find_format(file, &format, NULL) == COMET_OK &&
        (format == FORMAT_JPEG ? comet_measure_jpeg : comet_measure_png)(file, &one) == COMET_OK) {
        need->pixels = one.pixels > need->pixels ? one.pixels : need->pixels;
        need->whole = one.whole > need->whole ? one.whole : need->whole;
        need->width = one.width > need->width ? one.width : need->width;
        need->height = one.height > need->height ? one.height : need->height;
    }
    fclose(file);
}

comet_status comet_decode(comet_decoder *decoder, const char *path, comet_image *image, comet_message *message) {
    comet_message why;
    FILE *file = open_file(path);
    if (!file)
        return comet_message_set(message, COMET_ERROR_IO, "cannot open an image (%s): '%s'", strerror(errno), path);
    comet_status status = decode_file(decoder, file, image, &why);
    fclose(file);
    if (status != COMET_OK)
        comet_message_set(message, status, "cannot use an image (%s): '%s'", why.text, path); /* paths are long */
    return status;
}
