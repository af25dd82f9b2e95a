/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's windows as the CPU and kernels need them: checked, and small enough for arithmetic in 32 bits. */
#ifndef COMET_CODEC_INDICES_WINDOW_H
#define COMET_CODEC_INDICES_WINDOW_H

#include "comet/indices.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Pairs are rows, then columns. Extents, maps, strides and what a window spans are 2^28 at most: sums of a few of them
 * fit 32 bits without a sign. Indices lie in memory as [maps][output[0]][output[1]][inner].
 */
typedef struct comet_window {
    int64_t count; /* of indices */
    size_t bytes;  /* packed */
    uint32_t bits; /* of an index: 1, 2, 4 or 8 */
    uint32_t inner;
    uint32_t input[2], output[2], kernel[2], stride[2], padding[2], dilation[2];
    uint32_t map;    /* values of an input map */
    uint32_t places; /* of a window */
} comet_window;

enum {
    COMET_WINDOW_MOST = 1 << 28,  /* see above */
    COMET_WINDOW_PLACES = 256,    /* in a window */
    COMET_WINDOW_PACKED_UNIT = 16 /* bytes that packed indices are a multiple of */
};

comet_status comet_window_take(const comet_pool_window *given, comet_window *w);

#ifdef __cplusplus
}
#endif

#endif
