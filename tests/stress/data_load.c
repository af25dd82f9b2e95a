/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a data set as training does, and says how fast, in how much memory, and what came out.
 * usage: data_load SPEC [SIZE [THREADS [BATCH [PICTURE]]]]    PICTURE: the first training batch, as a PPM file
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <zlib.h>

#include "data/loader/loader.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void print_line(void *context, const char *line) {
    (void)context;
    printf("  %s\n", line);
}

static void write_picture(const char *path, const comet_batch *batch, int size) {
    FILE *file = fopen(path, "wb");
    if (!file)
        return;
    fprintf(file, "P6 %d %d 255\n", size, size * batch->count);
    fwrite(batch->pixels, 3, (size_t)size * (size_t)size * (size_t)batch->count, file);
    fclose(file);
}

static int run(const comet_dataset *set, comet_loader_options *options, const char *picture) {
    comet_loader *loader = NULL;
    comet_batch batch;
    comet_message message;
    size_t bytes = 0;
    uLong crc = 0;
    double images = 0, before = peak_mib();
    if (comet_loader_memory(set, options, &bytes, &message) != COMET_OK ||
        comet_loader_new(set, options, &loader, &message) != COMET_OK) {
        printf("%s\n", message.text);
        return 1;
    }
    double start = now();
    do {
        if (comet_loader_next(loader, &batch, &message) != COMET_OK) {
            printf("%s\n", message.text);
            return 1;
        }
        if (images == 0 && picture)
            write_picture(picture, &batch, options->width);
        size_t image = (size_t)options->height * (size_t)options->width * (size_t)options->channels;
        crc = crc32_z(crc, batch.pixels, image * (size_t)batch.count);
        crc = crc32_z(crc, (const Bytef *)batch.labels, (size_t)batch.count * sizeof *batch.labels);
        images += batch.count;
    } while (!batch.last);
    printf("%s: %.0f images, %.0f a second, announced %.1f MiB, resident peak grew by %.1f MiB, checksum %08lx\n",
           options->split ? "evaluate" : "train", images, images / (now() - start), (double)bytes / (1 << 20),
           peak_mib() - before, crc);
    comet_loader_free(loader);
    return 0;
}

int main(int argc, char **argv) {
    comet_dataset *set;
    comet_message message;
    if (argc < 2 || comet_dataset_open(argv[1], NULL, &set, &message) != COMET_OK) {
        printf("%s\n", argc < 2 ? "usage: data_load SPEC [SIZE [THREADS [BATCH [PICTURE]]]]" : message.text);
        return 1;
    }
    const comet_dataset_info *info = comet_dataset_get_info(set);
    printf("%s: %d classes, %lld + %lld images of %dx%dx%d, %.1f MiB; mean %.4f %.4f %.4f, deviation %.4f %.4f %.4f\n",
           info->name, info->classes, (long long)info->count[0], (long long)info->count[1], info->width, info->height,
           info->channels, (double)info->memory_bytes / (1 << 20), (double)info->normalisation.mean[0],
           (double)info->normalisation.mean[1], (double)info->normalisation.mean[2],
           (double)info->normalisation.deviation[0], (double)info->normalisation.deviation[1],
           (double)info->normalisation.deviation[2]);
    if (info->note)
        printf("%s\n", info->note);
    comet_loader_options options = {
        .batch = argc > 4 ? atoi(argv[4]) : 64, .channels = 3, .seed = 1, .report = print_line};
    options.height = options.width = argc > 2 ? atoi(argv[2]) : 32;
    options.threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    int failed = run(set, &options, argc > 5 ? argv[5] : NULL);
    options.split = COMET_SPLIT_EVALUATE;
    failed |= run(set, &options, NULL);
    comet_dataset_free(set);
    return failed;
}
