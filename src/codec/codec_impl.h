/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a codec must provide. codec.c checks arguments, finds workspace, reads and writes the header and the checksum;
 * a codec handles only the body behind the header (docs/format.md, section 1).
 */
#ifndef COMET_CODEC_IMPL_H
#define COMET_CODEC_IMPL_H

#include "codec/stream_header.h"
#include "comet/codec.h"

/* Everything a compress call knows. The view is on the CPU, valid, and params are within their documented ranges. */
typedef struct codec_compress_job {
    const comet_tensor *tensor;
    const comet_codec_params *params;
    comet_threads *threads;
    comet_isa isa;      /* resolved: never AUTO */
    uint8_t *workspace; /* as large as the codec's workspace() said; 64-byte aligned */
    uint8_t *body;
    size_t body_capacity;
    stream_header *header;      /* filled but for codec-specific fields: B, flags, parameter, C, S, body bytes, dtype */
    comet_codec_record *result; /* zeroed; never NULL */
} codec_compress_job;

typedef struct codec_decompress_job {
    const stream_header *header; /* checked by stream_header_read */
    const uint8_t *body;
    size_t body_bytes;
    const comet_codec_grid *grid;
    const comet_tensor *tensor; /* on the CPU, valid; shape, layout and (but for MASK) dtype equal the header's */
    comet_threads *threads;
    comet_isa isa;
    uint8_t *workspace;
} codec_decompress_job;

typedef struct codec_vtable {
    const char *name;
    /* Codec-specific checks of the parameters. NULL: none. */
    comet_status (*check)(const comet_tensor *tensor, const comet_codec_params *params);
    /* The most body bytes. Never fails. */
    size_t (*body_max_bytes)(const comet_tensor *tensor, const comet_codec_params *params);
    /* Bytes of workspace for compressing with `threads` threads. NULL: none. */
    size_t (*workspace)(const comet_tensor *tensor, const comet_codec_params *params, unsigned threads);
    /* The same for decompressing, never more than for compressing. NULL: none. */
    size_t (*decompress_workspace)(const comet_tensor *tensor, const comet_codec_grid *grid, unsigned threads);
    /* Writes the body, sets header->body_bytes. COMET_ERROR_CAPACITY if it does not fit body_capacity. */
    comet_status (*compress)(const codec_compress_job *job);
    /*
     * Whether the header's fields and the size of the body can be of this codec; `tensor` is a view with the header's
     * shape. Called before decompress and inspect. NULL: they check for themselves.
     */
    comet_status (*check_stream)(const stream_header *header, const comet_tensor *tensor);
    /* Body bytes are hostile: check everything. */
    comet_status (*decompress)(const codec_decompress_job *job);
    /* Adds what the body says (tile counts, ...), checking what it reads. NULL: nothing to add. */
    comet_status (*inspect)(const stream_header *header, const uint8_t *body, size_t body_bytes,
                            comet_codec_info *info);
    /*
     * Writes the body to `out` as compress would have, without gaps; sets *used. check_stream and inspect have passed,
     * all else in the body is hostile. COMET_ERROR_CAPACITY if `out` is too small. NULL: a body has no other form.
     */
    comet_status (*serialise)(const stream_header *header, const uint8_t *body, uint8_t *out, size_t capacity,
                              size_t *used);
} codec_vtable;

extern const codec_vtable comet_codec_raw, comet_codec_eb, comet_codec_zvc, comet_codec_mask, comet_codec_pool,
    comet_codec_group, comet_codec_dct;

#endif
