/* SPDX-License-Identifier: Apache-2.0 */
/* The serialised form of a stream: what belongs together moved together, in order and without gaps. */
#include <string.h>

#include "base/fail.h"
#include "codec/call.h"
#include "codec/eb/eb.h"
#include "codec/eb/geometry.h"
#include "codec/eb/tile_table.h"

/* Bytes of the tiles of a group, which lie one behind the other. */
static size_t group_bytes(const uint8_t *group, int64_t tiles) {
    size_t bytes = 0;
    for (int64_t t = 0; t < tiles; t++)
        bytes += comet_read_u16(comet_table_entry((uint8_t *)group, t)) & TABLE_SIZE_MASK;
    return bytes;
}

/* comet_eb_inspect has passed: the table is there, and every tile lies inside the body. */
comet_status comet_eb_serialise(const stream_header *h, const uint8_t *body, uint8_t *out, size_t capacity,
                                size_t *used) {
    tile_geometry g;
    if (!comet_geometry_make(h->count, h->wide_parameter, h->row, &g))
        return COMET_ERROR_CORRUPT;
    size_t table_bytes = comet_table_bytes(g.tiles), at = 0;
    if (capacity < table_bytes)
        return COMET_ERROR_CAPACITY;
    const uint8_t *payload = body + table_bytes;
    memset(out, 0, table_bytes); /* entries behind the last tile are 0 */
    for (int64_t first = 0; first < g.tiles; first += TABLE_GROUP_TILES) {
        const uint8_t *from = body + first / TABLE_GROUP_TILES * TABLE_GROUP_BYTES;
        uint8_t *to = out + (from - body);
        int64_t tiles = comet_min_i64(TABLE_GROUP_TILES, g.tiles - first);
        size_t bytes = group_bytes(from, tiles);
        if (capacity - table_bytes - at < bytes)
            return COMET_ERROR_CAPACITY;
        comet_write_u64(to, at);
        memcpy(to + 8, from + 8, (size_t)tiles * 2);
        memcpy(out + table_bytes + at, payload + comet_read_u64(from), bytes);
        at += bytes;
    }
    *used = table_bytes + at;
    return COMET_OK;
}

static comet_status copy_body(const stream_header *h, const uint8_t *body, uint8_t *out, size_t capacity,
                              size_t *used) {
    if (capacity < h->body_bytes)
        return COMET_ERROR_CAPACITY;
    memcpy(out, body, (size_t)h->body_bytes);
    *used = (size_t)h->body_bytes;
    return COMET_OK;
}

/* Everything that can be told of a stream without decoding it. */
static comet_status check(const uint8_t *stream, size_t bytes, stream_header *h) {
    COMET_TRY(comet_stream_header_read(stream, bytes, 1, h));
    COMET_TRY(comet_call_stream(h));
    const codec_vtable *codec = comet_codecs[h->codec];
    comet_codec_info info = {0};
    return codec->inspect ? codec->inspect(h, stream + STREAM_HEADER_BYTES, (size_t)h->body_bytes, &info) : COMET_OK;
}

static comet_status too_small(size_t capacity) {
    return comet_fail(COMET_ERROR_CAPACITY, "capacity is %zu: the stream is longer", capacity);
}

comet_status comet_codec_serialise(const void *stream, size_t bytes, int32_t checksum, void *out, size_t capacity,
                                   size_t *out_bytes) {
    comet_begin();
    COMET_REQUIRE_POINTER(stream);
    COMET_REQUIRE_POINTER(out);
    COMET_REQUIRE_POINTER(out_bytes);
    stream_header h;
    COMET_TRY(check(stream, bytes, &h));
    if (capacity < STREAM_HEADER_BYTES)
        return too_small(capacity);
    const codec_vtable *codec = comet_codecs[h.codec];
    size_t used;
    comet_status status = (codec->serialise ? codec->serialise : copy_body)(
        &h, (const uint8_t *)stream + STREAM_HEADER_BYTES, (uint8_t *)out + STREAM_HEADER_BYTES,
        capacity - STREAM_HEADER_BYTES, &used);
    if (status != COMET_OK)
        return status == COMET_ERROR_CAPACITY ? too_small(capacity) : status;
    h.flags = (uint16_t)((h.flags & ~STREAM_CHECKSUM) | (checksum ? STREAM_CHECKSUM : 0));
    h.body_bytes = used;
    comet_stream_header_write(&h, out);
    *out_bytes = STREAM_HEADER_BYTES + used;
    return COMET_OK;
}
