/* SPDX-License-Identifier: Apache-2.0 */
/* Writing zip archives of stored members. */
#include "cmd/files/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/text.h"
#include "cmd/files/bytes.h"
#include "cmd/files/zip_format.h"

/* From here on a 32-bit field does not do. (Lower in a test build, to see zip64 without a file of 4 GiB.) */
#ifndef COMET_ZIP_LIMIT
#define COMET_ZIP_LIMIT UINT32_MAX
#endif

enum { NO_DATE = 1 << 5 | 1 }; /* 1 January 1980, the least there is */

static int is_long(uint64_t value) {
    return value >= COMET_ZIP_LIMIT;
}

static uint64_t short_or_ones(uint64_t value) {
    return is_long(value) ? UINT32_MAX : value;
}

void zip_writer_init(zip_writer *writer, output_file *out) {
    *writer = (zip_writer){.out = out};
}

void zip_writer_free(zip_writer *writer) {
    for (size_t i = 0; i < writer->count; i++)
        free(writer->entries[i].name);
    free(writer->entries);
    *writer = (zip_writer){0};
}

static int write_bytes(zip_writer *writer, const void *data, size_t bytes) {
    writer->offset += bytes;
    return output_write(writer->out, data, bytes);
}

static zip_entry *new_entry(zip_writer *writer, const char *name) {
    zip_entry *entries =
        comet_array_reserve(NULL, writer->entries, writer->count, writer->count + 1, &writer->room, sizeof *entries);
    if (!entries)
        return NULL;
    writer->entries = entries;
    zip_entry *entry = &writer->entries[writer->count];
    *entry = (zip_entry){.name = strdup(name), .header = writer->offset};
    writer->count += entry->name != NULL;
    return entry->name ? entry : NULL;
}

static void measure(zip_entry *entry, const zip_chunk *chunks, int chunk_count) {
    uLong crc = crc32_z(0, NULL, 0);
    for (int i = 0; i < chunk_count; i++) {
        if (chunks[i].bytes)
            crc = crc32_z(crc, chunks[i].data, chunks[i].bytes);
        entry->bytes += chunks[i].bytes;
    }
    entry->crc = (uint32_t)crc;
}

/* version needed .. sizes: the part that local and central headers share. */
static uint8_t *put_common(uint8_t *p, const zip_entry *entry, int needs64, uint64_t bytes) {
    p = put_u16(p, needs64 ? ZIP_VERSION64 : 20);
    p = put_u16(p, text_is_utf8(entry->name) ? ZIP_UTF8 : 0);
    p = put_u16(p, ZIP_STORED);
    p = put_u16(p, 0);
    p = put_u16(p, NO_DATE);
    p = put_u32(p, entry->crc);
    p = put_u32(p, bytes);
    p = put_u32(p, bytes);
    return put_u16(p, strlen(entry->name));
}

static int write_local(zip_writer *writer, const zip_entry *entry) {
    uint8_t header[ZIP_LOCAL_BYTES], extra[20];
    int needs64 = is_long(entry->bytes);
    uint8_t *p = put_common(put_u32(header, ZIP_LOCAL), entry, needs64, short_or_ones(entry->bytes));
    put_u16(p, needs64 ? sizeof extra : 0);
    p = put_u16(put_u16(extra, ZIP_EXTRA64), 16);
    put_u64(put_u64(p, entry->bytes), entry->bytes);
    if (write_bytes(writer, header, sizeof header) != DONE ||
        write_bytes(writer, entry->name, strlen(entry->name)) != DONE)
        return FAILED;
    return needs64 ? write_bytes(writer, extra, sizeof extra) : DONE;
}

int zip_writer_add(zip_writer *writer, const char *name, const zip_chunk *chunks, int chunk_count) {
    if (strlen(name) > UINT16_MAX)
        return fail("the name of a member is too long for a zip archive");
    zip_entry *entry = new_entry(writer, name);
    if (!entry)
        return fail_memory();
    measure(entry, chunks, chunk_count);
    if (write_local(writer, entry) != DONE)
        return FAILED;
    for (int i = 0; i < chunk_count; i++)
        if (write_bytes(writer, chunks[i].data, chunks[i].bytes) != DONE)
            return FAILED;
    return DONE;
}

static int write_central(zip_writer *writer, const zip_entry *entry) {
    uint8_t header[ZIP_CENTRAL_BYTES] = {0}, extra[28], *e = extra + 4;
    if (is_long(entry->bytes))
        e = put_u64(put_u64(e, entry->bytes), entry->bytes);
    if (is_long(entry->header))
        e = put_u64(e, entry->header);
    int needs64 = e != extra + 4;
    size_t extra_bytes = needs64 ? (size_t)(e - extra) : 0;
    put_u16(put_u16(extra, ZIP_EXTRA64), extra_bytes - 4);

    uint8_t *p = put_u16(put_u32(header, ZIP_CENTRAL), ZIP_VERSION64);
    p = put_common(p, entry, needs64, short_or_ones(entry->bytes));
    put_u16(p, extra_bytes);
    put_u32(header + 42, short_or_ones(entry->header));
    if (write_bytes(writer, header, sizeof header) != DONE ||
        write_bytes(writer, entry->name, strlen(entry->name)) != DONE)
        return FAILED;
    return write_bytes(writer, extra, extra_bytes);
}

static int write_end64(zip_writer *writer, uint64_t start, uint64_t bytes) {
    uint8_t record[ZIP_END64_BYTES + ZIP_LOCATOR64_BYTES];
    uint64_t place = writer->offset;
    uint8_t *p = put_u64(put_u32(record, ZIP_END64), ZIP_END64_BYTES - 12);
    p = put_u16(put_u16(p, ZIP_VERSION64), ZIP_VERSION64);
    p = put_u32(put_u32(p, 0), 0); /* this disk, the directory's disk */
    p = put_u64(put_u64(p, writer->count), writer->count);
    p = put_u64(put_u64(p, bytes), start);
    p = put_u32(put_u32(p, ZIP_LOCATOR64), 0);
    put_u32(put_u64(p, place), 1); /* one disk in all */
    return write_bytes(writer, record, sizeof record);
}

int zip_writer_finish(zip_writer *writer) {
    uint64_t start = writer->offset;
    for (size_t i = 0; i < writer->count; i++)
        if (write_central(writer, &writer->entries[i]) != DONE)
            return FAILED;
    uint64_t bytes = writer->offset - start, count = writer->count;
    int needs64 = is_long(start) || is_long(bytes) || count >= UINT16_MAX;
    if (needs64 && write_end64(writer, start, bytes) != DONE)
        return FAILED;
    uint8_t end[ZIP_END_BYTES] = {0};
    uint64_t short_count = needs64 ? UINT16_MAX : count;
    uint8_t *p = put_u16(put_u16(put_u32(end, ZIP_END) + 4, short_count), short_count);
    put_u32(put_u32(p, short_or_ones(bytes)), short_or_ones(start));
    return write_bytes(writer, end, sizeof end);
}
