/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles stored exactly, raw or sparse: docs/format.md, 'Sparse and raw tiles'. */
#ifndef COMET_CODEC_EXACT_TILE_H
#define COMET_CODEC_EXACT_TILE_H

#include "codec/eb/tile.h"

enum { TILE_KIND_CODES = 0, TILE_KIND_SPARSE = 1, TILE_KIND_RAW = 2 };

enum { TILE_EXACT_MAX = TILE_VALUES * 4 };

/*
 * Writes the smaller of the two at `out`, at most TILE_EXACT_MAX bytes; returns how many. May write 4 bytes more.
 * patterns are in LINEAR order. zeros_are_empty: a tile of zeros is a code tile without bytes.
 */
int comet_exact_encode(const void *patterns, size_t size, int valid, const tile_padding *padding, int zeros_are_empty,
                       uint8_t *out, int *kind);

/* The inverse; padding becomes 0. Returns 0 if `bytes` do not fit. */
int comet_exact_decode(const uint8_t *tile, int bytes, int kind, size_t size, int valid, const tile_padding *padding,
                       void *patterns);

#endif
