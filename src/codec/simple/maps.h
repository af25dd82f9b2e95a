/* SPDX-License-Identifier: Apache-2.0 */
/* The maps and channels of a tensor, for the codecs that use neighbours: pool and dct (docs/codecs.md, section 0). */
#ifndef COMET_CODEC_MAPS_H
#define COMET_CODEC_MAPS_H

#include "comet/tensor.h"

/*
 * A tensor that is not empty, seen as [outer][height][width][inner]. NCHW has inner = 1, NHWC inner = channels.
 * Without two spatial dimensions has_maps is 0, and the four describe nothing.
 */
typedef struct codec_maps {
    int has_maps;
    int64_t outer, height, width, inner;
    /* Value i belongs to channel i / channel_run % channels. */
    int64_t channels, channel_run;
} codec_maps;

static inline int64_t comet_maps_product(const comet_tensor *t, int32_t from, int32_t to) {
    int64_t product = 1;
    for (int32_t d = from; d < to; d++)
        product *= t->shape[d];
    return product;
}

/* Which dimensions are a map's, from the shape's length alone; so for empty tensors too. */
static inline int comet_maps_exist(comet_layout layout, int32_t ndim) {
    if (layout == COMET_NCHW)
        return ndim == 2 || ndim >= 4; /* of three, dimension 1 is the channel: one is left */
    return layout == COMET_NHWC && ndim >= 3;
}

/* The count of `t` is not 0: then no product overflows. */
static inline codec_maps comet_maps_of(const comet_tensor *t) {
    int32_t n = t->ndim;
    codec_maps m = {.has_maps = comet_maps_exist(t->layout, n), .inner = 1, .channels = 1};
    m.channel_run = comet_maps_product(t, 0, n);
    if (t->layout == COMET_NCHW && n >= 3) {
        m.channels = t->shape[1];
        m.channel_run = comet_maps_product(t, 2, n);
    } else if (t->layout == COMET_NHWC && n >= 1) {
        m.channels = m.inner = t->shape[n - 1];
        m.channel_run = 1;
    }
    if (m.has_maps) {
        int32_t h = t->layout == COMET_NCHW ? n - 2 : n - 3;
        m.outer = comet_maps_product(t, 0, h);
        m.height = t->shape[h];
        m.width = t->shape[h + 1];
    }
    return m;
}

#endif
