/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/stream_header.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/tensor_check.h"
#include "comet/version.h"

enum {
    AT_VERSION = 4,
    AT_CODEC = 6,
    AT_DTYPE = 7,
    AT_NDIM = 8,
    AT_LAYOUT = 9,
    AT_FLAGS = 10,
    AT_BOUND = 12,
    AT_BYTES = 16,
    AT_CHECKSUM = 24,
    AT_PARAMETER = 28,
    AT_WIDE_PARAMETER = 32,
    AT_ROW = 40,
    AT_RESERVED = 48,
    AT_SHAPE = 64
};

static const uint8_t magic[4] = {'C', 'M', 'E', 'T'};

/* The CRC of the stream with the checksum's own field taken as 0. */
static uint32_t checksum_of(const uint8_t *stream, uint64_t bytes) {
    static const uint8_t zero[4];
    uLong crc = crc32_z(0, stream, AT_CHECKSUM);
    crc = crc32_z(crc, zero, sizeof zero);
    return (uint32_t)crc32_z(crc, stream + AT_CHECKSUM + 4, (size_t)bytes - AT_CHECKSUM - 4);
}

void comet_stream_header_write(const stream_header *h, uint8_t *stream) {
    memset(stream, 0, STREAM_HEADER_BYTES);
    memcpy(stream, magic, sizeof magic);
    comet_write_u16(stream + AT_VERSION, COMET_FORMAT_VERSION);
    stream[AT_CODEC] = (uint8_t)h->codec;
    stream[AT_DTYPE] = (uint8_t)h->dtype;
    stream[AT_NDIM] = (uint8_t)h->ndim;
    stream[AT_LAYOUT] = (uint8_t)h->layout;
    comet_write_u16(stream + AT_FLAGS, h->flags);
    comet_write_u32(stream + AT_BOUND, comet_bits_of(h->bound));
    comet_write_u64(stream + AT_BYTES, STREAM_HEADER_BYTES + h->body_bytes);
    comet_write_u32(stream + AT_PARAMETER, h->parameter);
    comet_write_u64(stream + AT_WIDE_PARAMETER, h->wide_parameter);
    comet_write_u64(stream + AT_ROW, h->row);
    for (int32_t d = 0; d < h->ndim; d++)
        comet_write_u64(stream + AT_SHAPE + 8 * d, (uint64_t)h->shape[d]);
    if (h->flags & STREAM_CHECKSUM)
        comet_write_u32(stream + AT_CHECKSUM, checksum_of(stream, STREAM_HEADER_BYTES + h->body_bytes));
}

static int reserved_is_zero(const uint8_t *stream, int32_t ndim) {
    int used = 0;
    for (int i = AT_RESERVED; i < AT_SHAPE; i++)
        used |= stream[i];
    for (int i = AT_SHAPE + 8 * ndim; i < STREAM_HEADER_BYTES; i++)
        used |= stream[i];
    return !used;
}

static comet_status read_fields(const uint8_t *stream, stream_header *h) {
    if (stream[AT_CODEC] > COMET_CODEC_DCT || stream[AT_DTYPE] > COMET_U8 || stream[AT_NDIM] > COMET_MAX_DIMS ||
        stream[AT_LAYOUT] > COMET_NHWC)
        return COMET_ERROR_CORRUPT;
    *h = (stream_header){.codec = (comet_codec)stream[AT_CODEC],
                         .dtype = (comet_dtype)stream[AT_DTYPE],
                         .layout = (comet_layout)stream[AT_LAYOUT],
                         .flags = comet_read_u16(stream + AT_FLAGS),
                         .ndim = stream[AT_NDIM],
                         .bound = comet_float_of(comet_read_u32(stream + AT_BOUND)),
                         .parameter = comet_read_u32(stream + AT_PARAMETER),
                         .wide_parameter = comet_read_u64(stream + AT_WIDE_PARAMETER),
                         .row = comet_read_u64(stream + AT_ROW)};
    for (int32_t d = 0; d < h->ndim; d++)
        h->shape[d] = (int64_t)comet_read_u64(stream + AT_SHAPE + 8 * d);
    if (!comet_shape_is_valid(h->ndim, h->shape) || !reserved_is_zero(stream, h->ndim) ||
        (h->flags & ~STREAM_FLAGS_KNOWN) || !isfinite(h->bound) || h->bound < 0)
        return COMET_ERROR_CORRUPT;
    h->count = comet_shape_count(h->ndim, h->shape);
    return COMET_OK;
}

comet_status comet_stream_header_read(const uint8_t *stream, size_t bytes, int verify_checksum, stream_header *h) {
    if (bytes < STREAM_HEADER_BYTES || memcmp(stream, magic, sizeof magic) != 0)
        return COMET_ERROR_CORRUPT;
    if (comet_read_u16(stream + AT_VERSION) != COMET_FORMAT_VERSION)
        return COMET_ERROR_VERSION;
    COMET_TRY(read_fields(stream, h));
    uint64_t whole = comet_read_u64(stream + AT_BYTES);
    if (whole < STREAM_HEADER_BYTES || whole > bytes)
        return COMET_ERROR_CORRUPT;
    h->body_bytes = whole - STREAM_HEADER_BYTES;
    uint32_t checksum = comet_read_u32(stream + AT_CHECKSUM);
    if (!(h->flags & STREAM_CHECKSUM))
        return checksum ? COMET_ERROR_CORRUPT : COMET_OK;
    if (verify_checksum && checksum != checksum_of(stream, whole))
        return COMET_ERROR_CHECKSUM;
    return COMET_OK;
}
