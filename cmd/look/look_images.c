/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/look/look_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/predict/network_data.h"
#include "cmd/train/train_options.h"
#include "data/loader/loader.h"

enum { LOADED = 32, FIRST = 8 };

static void report_file(void *context, const char *line) {
    (void)context;
    note("%s", line);
}

static int common_divisor(int a, int b) {
    return b ? common_divisor(b, a % b) : a;
}

/* Steps of about the golden section of all: images that stood together are far apart, and none comes twice. */
static int step_of(int count) {
    int step = (int)(0.618 * count);
    while (step > 1 && common_divisor(step, count) != 1)
        step--;
    return step > 0 ? step : 1;
}

static void swap(look_images *images, int a, int b) {
    uint8_t *x = images->pixels + a * images->bytes, *y = images->pixels + b * images->bytes;
    const int32_t label = images->labels[a];
    images->labels[a] = images->labels[b];
    images->labels[b] = label;
    for (int64_t i = 0; i < images->bytes; i++) {
        const uint8_t byte = x[i];
        x[i] = y[i];
        y[i] = byte;
    }
}

static int is_new(const look_images *images, int first, int image) {
    for (int i = 0; i < first; i++)
        if (images->labels[i] == images->labels[image])
            return 0;
    return 1;
}

/* The first ones, which pictures are made of, are of different classes, as far as there are such. */
static void vary_first(look_images *images) {
    for (int at = 1; at < FIRST && at < images->count; at++) {
        int other = at;
        while (other < images->count && !is_new(images, at, other))
            other++;
        if (other < images->count)
            swap(images, at, other);
    }
}

static int mix(look_images *images) {
    const size_t count = (size_t)images->count, bytes = (size_t)images->bytes;
    uint8_t *pixels = malloc(count * bytes);
    int32_t *labels = malloc(count * sizeof *labels);
    if (!pixels || !labels) {
        free(pixels);
        free(labels);
        return fail_memory();
    }
    const size_t step = (size_t)step_of(images->count);
    for (size_t i = 0; i < count; i++) {
        const size_t from = i * step % count;
        memcpy(pixels + i * bytes, images->pixels + from * bytes, bytes);
        labels[i] = images->labels[from];
    }
    free(images->pixels);
    free(images->labels);
    images->pixels = pixels;
    images->labels = labels;
    vary_first(images);
    return DONE;
}

static comet_status take_batches(look_images *images, comet_loader *loader, const int32_t *classes,
                                 comet_message *message) {
    comet_status status = COMET_OK;
    for (comet_batch batch = {.last = false}; status == COMET_OK && !batch.last;) {
        status = comet_loader_next(loader, &batch, message);
        for (int i = 0; status == COMET_OK && i < batch.count; i++, images->count++) {
            memcpy(images->pixels + images->count * images->bytes, batch.pixels + i * images->bytes,
                   (size_t)images->bytes);
            images->labels[images->count] = classes[batch.labels[i]];
        }
    }
    return status;
}

static int take_all(look_images *images, int64_t most, const int32_t *classes) {
    const comet_loader_options options = {.split = COMET_SPLIT_EVALUATE,
                                          .batch = LOADED,
                                          .height = images->height,
                                          .width = images->width,
                                          .channels = images->channels,
                                          .most = most,
                                          .report = report_file};
    comet_loader *loader = NULL;
    comet_message message;
    images->pixels = malloc((size_t)most * (size_t)images->bytes);
    images->labels = malloc((size_t)most * sizeof *images->labels);
    if (!images->pixels || !images->labels)
        return fail_memory();
    comet_status status = comet_loader_new(images->data, &options, &loader, &message);
    if (status == COMET_OK)
        status = take_batches(images, loader, classes, &message);
    comet_loader_free(loader);
    return status == COMET_OK ? mix(images) : train_fail(status, &message);
}

int look_images_load(look_images *images, const network *n, const char *given, int64_t most) {
    int32_t *classes = NULL;
    images->height = n->about.height;
    images->width = n->about.width;
    images->channels = n->about.channels;
    images->bytes = (int64_t)images->height * images->width * images->channels;
    const char *name = "";
    int answer = network_data_open(n, given, &name, &images->data);
    snprintf(images->name, sizeof images->name, "%s", name); /* the network's own goes with it */
    if (answer == DONE)
        answer = network_data_classes(n, images->data, images->name, &classes);
    if (answer == DONE) {
        const int64_t all = comet_dataset_get_info(images->data)->count[COMET_SPLIT_EVALUATE];
        answer = all > 0 ? take_all(images, most < all ? most : all, classes)
                         : fail("'%s' has no images to evaluate with", images->name);
    }
    free(classes);
    return answer;
}

void look_images_free(look_images *images) {
    comet_dataset_free(images->data);
    free(images->pixels);
    free(images->labels);
}
