/* SPDX-License-Identifier: Apache-2.0 */
/* The 128 bytes in front of every stream: docs/format.md, section 1. */
#ifndef COMET_CODEC_STREAM_HEADER_H
#define COMET_CODEC_STREAM_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STREAM_HEADER_BYTES 128

enum { STREAM_CHECKSUM = 1, STREAM_KEEP_MASK = 2, STREAM_STOCHASTIC = 4, STREAM_GRID = 8, STREAM_FLAGS_KNOWN = 15 };

typedef struct stream_header {
    comet_codec codec;
    comet_dtype dtype;
    comet_layout layout;
    uint16_t flags;
    int32_t ndim;
    int64_t shape[COMET_MAX_DIMS];
    int64_t count; /* the product of shape */
    float bound;
    uint32_t parameter;
    uint64_t wide_parameter; /* C (eb, zvc), values a group (group) */
    uint64_t row;            /* S (eb, zvc) */
    uint64_t body_bytes;
} stream_header;

/* Writes the header in front of header->body_bytes of body; computes the checksum if its flag is set. */
void comet_stream_header_write(const stream_header *header, uint8_t *stream);

/*
 * Reads and checks the header of a stream of which `bytes` are readable, including that the whole stream is there.
 * verify_checksum: also check the checksum, if there is one.
 */
comet_status comet_stream_header_read(const uint8_t *stream, size_t bytes, int verify_checksum, stream_header *header);

#ifdef __cplusplus
}
#endif

#endif
