/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with images of every kind, some of them broken, a generated set, and loaders of them. */
#ifndef TEST_DATA_LOADER_CASE_H
#define TEST_DATA_LOADER_CASE_H

#include "test_data_files.h"

#include "data/loader/loader.h"

enum { IMAGES = 57, BROKEN = 4, EVALUATED = 13 };

static comet_message message;
static uint8_t pixels[80 * 80 * 4];
static comet_dataset *folder_set, *small_set;

/* ---- a folder with everything in it ---- */

static inline void write_sample(const char *path, int i) {
    int height = 20 + i % 40, width = 24 + i * 7 % 40;
    paint(pixels, height, width, i % 5 == 3 ? 4 : i % 5 == 1 ? 1 : 3, i);
    if (i % 5 == 0)
        write_png(path, pixels, height, width, PNG_COLOR_TYPE_RGB, 8, i % 2);
    else
        write_jpeg(path, pixels, height, width, i % 5 == 1 ? jpeg_grey : i % 5 == 3 ? jpeg_cmyk : jpeg_rgb);
}

/* Samples are in the order of their names; these are broken. */
static inline int is_broken(int i) {
    return i == 5 || i == 20 || i == 21 || i == 40;
}

static inline void write_folder(void) {
    char name[128];
    for (int i = 0; i < IMAGES; i++) {
        snprintf(name, sizeof name, "set/train/class%d/%03d.jpg", i / 20, i);
        write_sample(in_new_folder(name), i);
        if (is_broken(i))
            cut_file(in_folder(name), 0.6);
    }
    for (int i = 0; i < EVALUATED; i++) {
        snprintf(name, sizeof name, "set/val/class%d/%03d.jpg", i / 5, i);
        write_sample(in_new_folder(name), i + 11);
        if (i == 2 || i == 12)
            write_bytes(in_folder(name), "broken", 6);
    }
}

static inline int set_up(void **state) {
    char spec[128];
    if (make_temporary_folder(state) != 0)
        return -1;
    write_folder();
    snprintf(spec, sizeof spec, "folder:%s", in_folder("set"));
    return comet_dataset_open(spec, NULL, &folder_set, &message) == COMET_OK &&
                   comet_dataset_open("generated:203", NULL, &small_set, &message) == COMET_OK
               ? 0
               : -1;
}

static inline int tear_down(void **state) {
    comet_dataset_free(folder_set);
    comet_dataset_free(small_set);
    return remove_temporary_folder(state);
}

/* ---- loaders ---- */

static inline comet_loader_options options_for(comet_split split, int batch, unsigned threads) {
    return (comet_loader_options){.split = split,
                                  .batch = batch,
                                  .height = 24,
                                  .width = 20,
                                  .channels = 3,
                                  .seed = 99,
                                  .threads = threads,
                                  .decode_bytes = COMET_DECODE_LEAST_BYTES};
}

static inline comet_loader *open_loader(const comet_dataset *set, const comet_loader_options *options) {
    comet_loader *loader = NULL;
    if (comet_loader_new(set, options, &loader, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return loader;
}

static inline comet_batch next(comet_loader *loader) {
    comet_batch batch = {0};
    if (comet_loader_next(loader, &batch, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return batch;
}

#endif
