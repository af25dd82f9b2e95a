/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the inputs with which the corpora of fuzz_jpeg, fuzz_png and fuzz_checkpoint begin: small, one of each kind.
 * usage: fuzz_seeds FOLDER, for example tests/fuzz/corpus. (tests/fuzz/seeds.py has those of fuzz_npy and fuzz_npz.)
 */
#include "common/small_run.h"

#include "unit/data/test_data_files.h"

#include "base/bits.h"
#include "train/checkpoint/weights.h"

static const char *corpus; /* FOLDER */

static const char *seed_path(const char *target, const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/fuzz_%s/%s", corpus, target, name);
    return make_parents(path);
}

static uint8_t pixels[1 << 14], file[1 << 16];

/* A copy of `from` that says another size: 2 bytes (JPEG) or 4 (PNG), most significant first, at `at`. */
static void put_changed(const char *target, const char *from, const char *name, size_t at, int bytes, uint32_t value) {
    size_t size = read_bytes(seed_path(target, from), file, sizeof file);
    for (int i = 0; i < bytes; i++)
        file[at + (size_t)i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    write_bytes(seed_path(target, name), file, size);
}

static void put_cut(const char *target, const char *from, const char *name) {
    size_t size = read_bytes(seed_path(target, from), file, sizeof file);
    write_bytes(seed_path(target, name), file, size * 3 / 4);
}

/* ---- JPEG ---- */

typedef enum jpeg_way { SUBSAMPLED, RESTARTS, ARITHMETIC, JPEG_WAYS } jpeg_way;

/* What write_jpeg does not write. */
static void write_odd_jpeg(const char *path, int height, int width, jpeg_way way) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, out);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 50, TRUE);
    jpeg.comp_info[0].h_samp_factor = way == SUBSAMPLED ? 4 : 2;
    jpeg.restart_interval = way == RESTARTS ? 1 : 0;
    jpeg.arith_code = way == ARITHMETIC;
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = pixels + (size_t)jpeg.next_scanline * (size_t)width * 3;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(out);
}

/* Where the frame header says the height; the width is behind it. */
static size_t find_size(const char *name) {
    size_t size = read_bytes(seed_path("jpeg", name), file, sizeof file), at = 2;
    while (at + 9 < size && (file[at + 1] < 0xc0 || file[at + 1] > 0xc2))
        at += 2 + ((size_t)file[at + 2] << 8 | file[at + 3]);
    assert_true(at + 9 < size);
    return at + 5;
}

static void put_jpegs(void) {
    static const char *const ways[JPEG_WAYS] = {"subsampled", "restarts", "arithmetic"};
    paint(pixels, 17, 23, 4, 1);
    write_jpeg(seed_path("jpeg", "rgb"), pixels, 17, 23, jpeg_rgb);
    write_jpeg(seed_path("jpeg", "rgb_progressive"), pixels, 17, 23, (jpeg_form){JCS_RGB, .progressive = 1});
    write_jpeg(seed_path("jpeg", "scan_of_each"), pixels, 17, 23, (jpeg_form){JCS_RGB, .scan_of_each = 1});
    write_jpeg(seed_path("jpeg", "grey"), pixels, 9, 8, jpeg_grey);
    write_jpeg(seed_path("jpeg", "grey_progressive"), pixels, 9, 8, (jpeg_form){JCS_GRAYSCALE, .progressive = 1});
    write_jpeg(seed_path("jpeg", "cmyk"), pixels, 8, 10, jpeg_cmyk);
    write_jpeg(seed_path("jpeg", "cmyk_plain_progressive"), pixels, 8, 10,
               (jpeg_form){JCS_CMYK, .progressive = 1, .no_adobe_marker = 1});
    for (int way = 0; way < JPEG_WAYS; way++)
        write_odd_jpeg(seed_path("jpeg", ways[way]), 17, 23, (jpeg_way)way);
    put_changed("jpeg", "rgb", "huge", find_size("rgb"), 4, 65500u << 16 | 65500u);
    put_changed("jpeg", "rgb", "wide", find_size("rgb"), 4, 8u << 16 | 65500u);
    put_changed("jpeg", "rgb_progressive", "huge_progressive", find_size("rgb_progressive"), 4, 4000u << 16 | 4000u);
    put_changed("jpeg", "rgb", "no_height", find_size("rgb"), 2, 0);
    put_cut("jpeg", "rgb", "cut");
    put_cut("jpeg", "rgb_progressive", "cut_progressive");
    put_cut("jpeg", "scan_of_each", "cut_scans");
}

/* ---- PNG ---- */

static void put_pngs(void) {
    static const struct {
        const char *name;
        int colours, bits;
    } forms[] = {{"grey", PNG_COLOR_TYPE_GRAY, 8},       {"grey_16", PNG_COLOR_TYPE_GRAY, 16},
                 {"grey_1", PNG_COLOR_TYPE_GRAY, 1},     {"grey_alpha", PNG_COLOR_TYPE_GRAY_ALPHA, 8},
                 {"rgb", PNG_COLOR_TYPE_RGB, 8},         {"rgb_16", PNG_COLOR_TYPE_RGB, 16},
                 {"rgba", PNG_COLOR_TYPE_RGB_ALPHA, 8},  {"rgba_16", PNG_COLOR_TYPE_RGB_ALPHA, 16},
                 {"palette", PNG_COLOR_TYPE_PALETTE, 8}, {"grey_4", PNG_COLOR_TYPE_GRAY, 4}};
    enum { WIDTH_AT = 16 }; /* in the header that comes first; the height is behind it */
    paint(pixels, 8, 9, 8, 1);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", forms[i].name, interlaced ? "_interlaced" : "");
            write_png(seed_path("png", name), pixels, 7, 8, forms[i].colours, forms[i].bits, interlaced);
        }
    put_changed("png", "rgb", "wide", WIDTH_AT, 4, 65535);
    put_changed("png", "rgb", "tall", WIDTH_AT + 4, 4, 65535);
    put_changed("png", "rgb", "no_width", WIDTH_AT, 4, 0);
    put_changed("png", "rgb_interlaced", "wide_interlaced", WIDTH_AT, 4, 60000);
    put_cut("png", "rgb", "cut");
    put_cut("png", "rgb_interlaced", "cut_interlaced");
    put_cut("png", "palette", "cut_palette");
}

/* ---- checkpoints ---- */

static void put_checkpoint(const char *name, comet_optimiser_kind kind, const char *controller) {
    small_run r;
    comet_message message = {""};
    comet_checkpoint *c = &r.checkpoint;
    comet_loader_state loader = {.seed = 3, .epoch = 1, .position = 64, .count = 500, .digest = 99};
    uint8_t estimates[20] = {1, 2, 3};
    small_run_init(&r, kind);
    for (int i = 0; i < SMALL_VALUES; i++)
        r.values[i] = r.state[i] = (float)i * 0.25f;
    comet_control *control = small_control(controller);
    small_control_go_on(control, 0);
    size_t bytes = comet_control_state_bytes(control);
    assert_ok(comet_control_save(control, file, bytes));
    comet_control_free(control);
    c->step = 4000;
    c->batches = 41;
    c->epoch = 1;
    comet_loader_state_format(&loader, c->loader);
    c->keys[0] = 5;
    c->blobs[0] = (comet_checkpoint_blob){"estimates", estimates, sizeof estimates};
    c->blobs[1] = (comet_checkpoint_blob){"control", file, bytes};
    c->blob_count = 2;
    if (comet_checkpoint_write(folder_get(), c, NULL, &message) != COMET_OK)
        fail_msg("%s", message.text);
    size_t size = read_bytes(in_folder("last.safetensors"), file, sizeof file);
    write_bytes(seed_path("checkpoint", name), file, size);
}

/* A controller's state whose counters cannot count any further; the target puts checksums right. */
static void put_full_counters(const char *from, const char *name) {
    enum { DECISIONS_AT = 40, SKIPS_AT = 112 }; /* src/control/state.c */
    size_t size = read_bytes(seed_path("checkpoint", from), file, sizeof file), at = 0;
    while (at + 4 < size && memcmp(file + at, "CMTS", 4) != 0)
        at++;
    assert_true(at + SKIPS_AT + 8 <= size);
    comet_write_u64(file + at + DECISIONS_AT, INT64_MAX);
    comet_write_u64(file + at + SKIPS_AT, INT64_MAX);
    write_bytes(seed_path("checkpoint", name), file, size);
}

static void put_checkpoints(void) {
    small_run r;
    comet_message message;
    for (int i = 0; comet_control_name(i); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s", i % 2 ? "adamw" : "sgd", comet_control_name(i));
        for (char *c = name; *c; c++)
            *c = *c == ':' ? '_' : *c;
        put_checkpoint(name, i % 2 ? COMET_ADAMW : COMET_SGD, comet_control_name(i));
    }
    small_run_init(&r, COMET_SGD);
    const comet_parameter *p = r.parameters;
    assert_ok(comet_weights_write(seed_path("checkpoint", "weights"), p, SMALL_PARAMETERS, 9, NULL, &message));
    assert_ok(comet_weights_write(seed_path("checkpoint", "weights_no_classifier"), p, 5, 9, NULL, &message));
    r.parameters[5].shape[0] = 1; /* fewer classes than the file's reader has */
    r.parameters[5].count = 2;
    r.parameters[6].shape[0] = r.parameters[6].count = 1;
    assert_ok(
        comet_weights_write(seed_path("checkpoint", "weights_one_class"), p, SMALL_PARAMETERS, 0, NULL, &message));
    put_cut("checkpoint", "sgd_comet", "cut");
    put_full_counters("sgd_comet", "full_counters");
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    corpus = argv[1];
    put_jpegs();
    put_pngs();
    put_checkpoints();
    return 0;
}
