/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps of a batch: a tensor of any layout and strides, read as rows of channels, one row for each pixel, in the order
 * N, H, W.
 */
#ifndef COMET_CONTROL_COLLECT_MAPS_H
#define COMET_CONTROL_COLLECT_MAPS_H

#include "comet/tensor.h"

typedef struct comet_maps {
    const float *data; /* on a device: of what `dtype` says */
    comet_dtype dtype;
    int64_t images, height, width, channels;
    int64_t to_image, to_row, to_pixel, to_channel; /* strides */
    int is_rows;                                    /* 1: the rows lie one behind the other as they are read */
} comet_maps;

/*
 * SHAPE: there may be no data. DEVICE: it is on a device, fp32, fp16 or bf16; else it is fp32 in CPU memory, or
 * COMET_ERROR_UNSUPPORTED. An empty tensor is COMET_ERROR_ARGUMENT.
 */
enum { COMET_MAPS_SHAPE = 1, COMET_MAPS_DEVICE = 2 };

comet_status comet_maps_of(const comet_tensor *tensor, const char *name, int how, comet_maps *maps);

static inline int64_t comet_maps_pixels(const comet_maps *m) {
    return m->images * m->height * m->width;
}

static inline int comet_maps_alike(const comet_maps *a, const comet_maps *b) {
    return a->images == b->images && a->height == b->height && a->width == b->width && a->channels == b->channels;
}

/* Rows of pixels first .. first + count - 1 into `rows`. */
void comet_maps_gather(const comet_maps *maps, int64_t first, int64_t count, float *rows);

/* The same, where they are, or in `rows`. */
static inline const float *comet_maps_rows(const comet_maps *m, int64_t first, int64_t count, float *rows) {
    if (m->is_rows)
        return m->data + first * m->channels;
    comet_maps_gather(m, first, count, rows);
    return rows;
}

/* Values first .. first + count - 1 of all rows. */
void comet_maps_values(const comet_maps *maps, int64_t first, int64_t count, float *values);

#endif
