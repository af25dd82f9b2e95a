/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG and PNG files of every kind, whole, cut short and damaged; images that are too large for the memory there is. */
#include "test_data_files.h"

#include "data/image/decode_impl.h"
#include "support/effort.h"

enum { HEIGHT = 37, WIDTH = 53, MOST = 1200 * 1000 * 4 };

static uint8_t pixels[MOST];
static comet_decoder decoder;
static comet_message message;

static void set_capacity(size_t capacity) {
    static void *memory;
    free(memory);
    memory = aligned_alloc(64, comet_decoder_own_bytes(capacity));
    assert_non_null(memory);
    memset(memory, 0xA5, comet_decoder_own_bytes(capacity));
    comet_decoder_init(&decoder, capacity, capacity, memory);
}

static comet_image decode(const char *path) {
    comet_image image = {0};
    message.text[0] = '\0';
    comet_status status = comet_decode(&decoder, path, &image, &message);
    if (status != COMET_OK)
        fail_msg("%s", message.text);
    return image;
}

static void assert_near(const comet_image *image, int height, int width, int channels, const uint8_t *expected,
                        int most) {
    assert_int_equal(image->height, height);
    assert_int_equal(image->width, width);
    assert_int_equal(image->channels, channels);
    for (int i = 0; i < height * width * channels; i++)
        if (abs(image->pixels[i] - expected[i]) > most)
            fail_msg("value %d is %d, expected %d", i, image->pixels[i], expected[i]);
}

/* ---- JPEG ---- */

/* Smooth in all directions: chroma of half the resolution does it no harm. */
static void paint_smoothly(uint8_t *to, int height, int width, int channels) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                to[(y * width + x) * channels + c] = (uint8_t)(60 + (x + c * 20) * 2 / 3 + y);
}

static void test_jpeg(void **state) {
    (void)state;
    const char *path = in_folder("a.jpg");
    for (int progressive = 0; progressive < 2; progressive++) {
        paint_smoothly(pixels, HEIGHT, WIDTH, 3);
        write_jpeg(path, pixels, HEIGHT, WIDTH, (jpeg_form){JCS_RGB, progressive, 0, 0});
        comet_image image = decode(path);
        assert_near(&image, HEIGHT, WIDTH, 3, pixels, 4);
        paint_smoothly(pixels, HEIGHT, WIDTH, 1);
        write_jpeg(path, pixels, HEIGHT, WIDTH, (jpeg_form){JCS_GRAYSCALE, progressive, 0, 0});
        image = decode(path);
        assert_near(&image, HEIGHT, WIDTH, 1, pixels, 3);
    }
}

/* Ink with Adobe's marker is inverted, without it is not. */
static void test_cmyk(void **state) {
    (void)state;
    const char *path = in_folder("ink.jpg");
    static uint8_t expected[HEIGHT * WIDTH * 3];
    for (int plain = 0; plain < 2; plain++) {
        paint_smoothly(pixels, HEIGHT, WIDTH, 4);
        for (int i = 0; i < HEIGHT * WIDTH; i++)
            for (int c = 0; c < 3; c++) {
                int ink = pixels[4 * i + c], black = pixels[4 * i + 3];
                expected[3 * i + c] = (uint8_t)(plain ? (255 - ink) * (255 - black) / 255 : ink * black / 255);
            }
        write_jpeg(path, pixels, HEIGHT, WIDTH, (jpeg_form){JCS_CMYK, 0, plain, 0});
        comet_image image = decode(path);
        assert_near(&image, HEIGHT, WIDTH, 3, expected, 4);
    }
}

/* ---- PNG ---- */

static void check_png(int colours, int bits, int interlaced) {
    static const int kept_of[] = {1, 0, 3, 3, 1, 0, 3}, all_of[] = {1, 0, 3, 1, 2, 0, 4};
    static uint8_t expected[HEIGHT * WIDTH * 3];
    const char *path = in_folder("a.png");
    int all = all_of[colours], kept = kept_of[colours], step = bits / 8;
    paint(pixels, HEIGHT, WIDTH * step, all, 1);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        for (int c = 0; c < kept; c++) {
            const uint8_t *value = &pixels[(i * all + (colours == PNG_COLOR_TYPE_PALETTE ? 0 : c)) * step];
            int index = value[0];
            expected[i * kept + c] = (uint8_t)(colours == PNG_COLOR_TYPE_PALETTE ? (c == 0   ? index
                                                                                    : c == 1 ? 255 - index
                                                                                             : index / 2)
                                               : step == 2 ? ((value[0] << 8 | value[1]) * 255 + 32767) / 65535
                                                           : index);
        }
    write_png(path, pixels, HEIGHT, WIDTH, colours, bits, interlaced);
    comet_image image = decode(path);
    assert_near(&image, HEIGHT, WIDTH, kept, expected, step == 2);
}

static void test_png(void **state) {
    (void)state;
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        for (int bits = 8; bits <= 16; bits += 8) {
            check_png(PNG_COLOR_TYPE_GRAY, bits, interlaced);
            check_png(PNG_COLOR_TYPE_GRAY_ALPHA, bits, interlaced);
            check_png(PNG_COLOR_TYPE_RGB, bits, interlaced);
            check_png(PNG_COLOR_TYPE_RGB_ALPHA, bits, interlaced);
        }
        check_png(PNG_COLOR_TYPE_PALETTE, 8, interlaced);
    }
}

static void test_one_bit(void **state) {
    (void)state;
    static const uint8_t packed[2] = {0xA0, 0x40}; /* 1010 0000 0100 0000 */
    write_png(in_folder("bits.png"), packed, 2, 8, PNG_COLOR_TYPE_GRAY, 1, 0);
    comet_image image = decode(in_folder("bits.png"));
    assert_int_equal(image.channels, 1);
    for (int i = 0; i < 16; i++)
        assert_int_equal(image.pixels[i], i == 0 || i == 2 || i == 9 ? 255 : 0);
}

/* A name says nothing: what is in the file counts. */
static void test_wrong_names(void **state) {
    (void)state;
    paint(pixels, HEIGHT, WIDTH, 3, 0);
    write_png(in_folder("png.jpg"), pixels, HEIGHT, WIDTH, PNG_COLOR_TYPE_RGB, 8, 0);
    comet_image image = decode(in_folder("png.jpg"));
    assert_near(&image, HEIGHT, WIDTH, 3, pixels, 0);
}

/* ---- broken files ---- */

static void refuse(const char *name, comet_status status, const char *part) {
    comet_image image;
    assert_refused(comet_decode(&decoder, in_folder(name), &image, &message), status, message, part);
    assert_non_null(strstr(message.text, name));
}

static void test_refused(void **state) {
    (void)state;
    refuse("nothing.jpg", COMET_ERROR_IO, "No such file");
    write_bytes(in_folder("empty.jpg"), "", 0);
    refuse("empty.jpg", COMET_ERROR_CORRUPT, "the file is empty");
    write_bytes(in_folder("text.jpg"), "Not an image at all", 19);
    refuse("text.jpg", COMET_ERROR_CORRUPT, "neither a JPEG nor a PNG");
    write_bytes(in_folder("start.jpg"), "\xff\xd8\xff", 3);
    refuse("start.jpg", COMET_ERROR_CORRUPT, "cannot use an image");
    write_bytes(in_folder("start.png"), "\x89PNG\r\n\x1a\n", 8);
    refuse("start.png", COMET_ERROR_CORRUPT, "cannot use an image");
    refuse(".", COMET_ERROR_IO, "not a regular file");
}

static void test_cut_short(void **state) {
    (void)state;
    static const double parts[] = {0.97, 0.8, 0.5, 0.2};
    comet_image image;
    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < 4; i++) {
            const char *path = in_folder("cut");
            paint(pixels, 200, 200, 3, i);
            if (kind < 2)
                write_jpeg(path, pixels, 200, 200, (jpeg_form){JCS_RGB, kind, 0, 0});
            else
                write_png(path, pixels, 200, 200, PNG_COLOR_TYPE_RGB, 8, kind == 3);
            cut_file(path, parts[i]);
            assert_status(comet_decode(&decoder, path, &image, &message), COMET_ERROR_CORRUPT);
        }
}

/* Any byte changed: an answer, whatever it is, and nothing read or written out of bounds. */
static void test_damaged(void **state) {
    (void)state;
    static uint8_t file[1 << 16];
    rng r = rng_seed(1);
    const char *path = in_folder("damaged");
    for (int kind = 0; kind < 4; kind++) {
        paint(pixels, 40, 50, 3, kind);
        if (kind < 2)
            write_jpeg(path, pixels, 40, 50, (jpeg_form){JCS_RGB, kind, 0, 0});
        else
            write_png(path, pixels, 40, 50, PNG_COLOR_TYPE_RGB, 8, kind == 3);
        size_t bytes = read_bytes(path, file, sizeof file);
        for (int i = 0; i < effort(150); i++) {
            size_t at = (size_t)rng_between(&r, 2, i % 3 ? (int64_t)bytes - 1 : 60);
            uint8_t before = file[at];
            file[at] = (uint8_t)rng_next(&r);
            write_bytes(path, file, bytes);
            file[at] = before;
            comet_image image;
            if (comet_decode(&decoder, path, &image, &message) == COMET_OK)
                assert_true((size_t)image.height * (size_t)image.width * (size_t)image.channels <= decoder.capacity);
        }
    }
}

/* ---- large files ---- */

static void test_reduced(void **state) {
    (void)state;
    const int height = 1000, width = 1200;
    set_capacity(COMET_DECODE_LEAST_BYTES); /* 3.6 MB must become 1: half of each side */
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                pixels[(y * width + x) * 3 + c] = (uint8_t)(x / 8 + y / 16 + 10 * c);
    write_jpeg(in_folder("large"), pixels, height, width, jpeg_rgb);
    write_png(in_folder("large.png"), pixels, height, width, PNG_COLOR_TYPE_RGB, 8, 0);
    for (int png = 0; png < 2; png++) {
        comet_image image = decode(in_folder(png ? "large.png" : "large"));
        assert_int_equal(image.height, 500);
        assert_int_equal(image.width, 600);
        for (int i = 0; i < 500 * 600; i++) {
            int x = i % 600 * 2, y = i / 600 * 2;
            for (int c = 0; c < 3; c++)
                assert_in_range(image.pixels[3 * i + c] + 4 - (x / 8 + y / 16 + 10 * c), 0, 9);
        }
    }
    write_png(in_folder("large"), pixels, height, width, PNG_COLOR_TYPE_RGB, 8, 1);
    refuse("large", COMET_ERROR_CORRUPT, "interlaced");
    write_jpeg(in_folder("large"), pixels, height, width, (jpeg_form){JCS_RGB, 1, 0, 0});
    refuse("large", COMET_ERROR_CORRUPT, "too large for a progressive JPEG");
    write_jpeg(in_folder("large"), pixels, height, width, (jpeg_form){JCS_RGB, 0, 0, 1});
    refuse("large", COMET_ERROR_CORRUPT, "too large for a JPEG of several scans");
    set_capacity(12 << 20);
    comet_image image = decode(in_folder("large"));
    assert_int_equal(image.width, width);
}

/* What a header says an image takes is enough to decode it, and not much more. */
static void test_measured(void **state) {
    (void)state;
    static const int sides[][2] = {{1, 1}, {8, 8}, {17, 33}, {300, 200}, {1000, 1200}, {16, 3000}};
    static const jpeg_form forms[5] = {
        {JCS_RGB, 0, 0, 0}, {JCS_RGB, 1, 0, 0}, {JCS_CMYK, 1, 0, 0}, {JCS_GRAYSCALE, 1, 0, 0}, {JCS_RGB, 0, 0, 1}};
    for (int i = 0; i < 6 * 7; i++) {
        int height = sides[i / 7][0], width = sides[i / 7][1], form = i % 7;
        const char *path = in_folder("measured");
        comet_decode_need need = {0}, same = {1 << 30, 1 << 30, 1 << 30, 1 << 30};
        comet_image image;
        paint(pixels, height, width, 4, i);
        if (form < 5)
            write_jpeg(path, pixels, height, width, forms[form]);
        else
            write_png(path, pixels, height, width, form == 5 ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_GRAY, 8,
                      form == 5);
        comet_decode_measure(path, &need);
        comet_decode_measure(path, &same);
        assert_int_equal(same.pixels, 1 << 30);
        assert_int_equal(need.width, width);
        assert_int_equal(need.height, height);
        assert_int_equal(need.whole > 0, form > 0 && form < 5);
        decoder.whole = need.whole;
        assert_ok(comet_decode(&decoder, path, &image, &message));
        assert_int_equal(image.height, height);
        assert_int_equal(need.pixels, (size_t)height * (size_t)width * (size_t)image.channels);
        decoder.whole = need.whole / 2;
        if (need.whole > 0 && height == 1000)
            assert_status(comet_decode(&decoder, path, &image, &message), COMET_ERROR_CORRUPT);
    }
    comet_decode_need nothing = {0};
    comet_decode_measure(in_folder("absent"), &nothing);
    write_bytes(in_folder("measured"), "neither", 7);
    comet_decode_measure(in_folder("measured"), &nothing);
    assert_int_equal(nothing.pixels, 0);
    set_capacity(12 << 20);
}

/* Means over blocks, smaller ones at the right and below, against the definition. */
static void test_rows(void **state) {
    (void)state;
    enum { TALL = 1501, WIDE = 1003 };
    comet_rows rows;
    set_capacity(COMET_DECODE_LEAST_BYTES);
    for (int i = 0; i < TALL * WIDE; i++)
        pixels[i] = (uint8_t)(i * 31 + i / 77);
    comet_rows_begin(&rows, &decoder, TALL, WIDE, 1);
    assert_int_equal(rows.factor, 2);
    for (int y = 0; y < TALL; y++)
        comet_rows_put(&rows, pixels + y * WIDE);
    comet_image image = comet_rows_image(&rows);
    assert_int_equal(image.height, 751);
    assert_int_equal(image.width, 502);
    for (int y = 0; y < 751; y++)
        for (int x = 0; x < 502; x++) {
            int sum = 0, count = 0;
            for (int i = 0; i < 4; i++)
                if (2 * y + i / 2 < TALL && 2 * x + i % 2 < WIDE) {
                    sum += pixels[(2 * y + i / 2) * WIDE + 2 * x + i % 2];
                    count++;
                }
            assert_int_equal(image.pixels[y * 502 + x], (sum + count / 2) / count);
        }
    set_capacity(12 << 20);
}

/* As wide as can be. */
static void test_widest(void **state) {
    (void)state;
    paint(pixels, 8, 65500, 3, 0);
    write_jpeg(in_folder("wide"), pixels, 8, 65500, jpeg_rgb);
    comet_image image = decode(in_folder("wide"));
    assert_int_equal(image.width, 65500);
    paint(pixels, 8, 65535, 4, 0);
    write_png(in_folder("wide"), pixels, 8, 65535, PNG_COLOR_TYPE_RGB_ALPHA, 8, 0);
    image = decode(in_folder("wide"));
    assert_int_equal(image.width, 65535);
    assert_int_equal(image.channels, 3);
    write_png(in_folder("wide"), pixels, 1, 65536, PNG_COLOR_TYPE_GRAY, 8, 0);
    refuse("wide", COMET_ERROR_CORRUPT, "cannot use an image");
}

static int set_up(void **state) {
    set_capacity(12 << 20);
    return make_temporary_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jpeg),      cmocka_unit_test(test_cmyk),        cmocka_unit_test(test_png),
        cmocka_unit_test(test_one_bit),   cmocka_unit_test(test_wrong_names), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut_short), cmocka_unit_test(test_damaged),     cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_measured),    cmocka_unit_test(test_widest),
    };
    return cmocka_run_group_tests(tests, set_up, remove_temporary_folder);
}
