/* SPDX-License-Identifier: Apache-2.0 */
/* Reading zip archives. Nothing in the file is trusted: every offset and size is checked before it is used. */
#include "cmd/files/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cmd/files/bytes.h"
#include "cmd/files/zip_format.h"

static const char *const no_memory = "not enough memory";

int zip_is(const uint8_t *data, size_t bytes) {
    return bytes >= ZIP_END_BYTES && (get_u32(data) == ZIP_LOCAL || get_u32(data) == ZIP_END);
}

/* 1 if `length` bytes at `offset` lie inside `bytes`. */
static int inside(uint64_t offset, uint64_t length, uint64_t bytes) {
    return offset <= bytes && length <= bytes - offset;
}

/* The directory's place. */
typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

/* The end record is the last thing in the file, but for a comment of up to 65535 bytes. */
static const uint8_t *find_end(const uint8_t *data, size_t bytes) {
    for (size_t comment = 0; comment <= 0xffff && comment + ZIP_END_BYTES <= bytes; comment++) {
        const uint8_t *end = data + bytes - ZIP_END_BYTES - comment;
        if (get_u32(end) == ZIP_END && get_u16(end + 20) == comment)
            return end;
    }
    return NULL;
}

static const char *read_end64(const uint8_t *data, size_t end_offset, directory *found) {
    if (end_offset < ZIP_LOCATOR64_BYTES || get_u32(data + end_offset - ZIP_LOCATOR64_BYTES) != ZIP_LOCATOR64)
        return "its zip64 locator is missing";
    uint64_t offset = get_u64(data + end_offset - ZIP_LOCATOR64_BYTES + 8);
    if (!inside(offset, ZIP_END64_BYTES, end_offset) || get_u32(data + offset) != ZIP_END64)
        return "its zip64 end record is missing";
    found->count = get_u64(data + offset + 32);
    found->bytes = get_u64(data + offset + 40);
    found->offset = get_u64(data + offset + 48);
    return NULL;
}

static const char *find_directory(const uint8_t *data, size_t bytes, directory *found) {
    const uint8_t *end = find_end(data, bytes);
    if (!end)
        return "it has no end record: cut short, or not a zip archive";
    if (get_u16(end + 4) != 0 || get_u16(end + 6) != 0)
        return "it is split over several files";
    *found = (directory){.offset = get_u32(end + 16), .bytes = get_u32(end + 12), .count = get_u16(end + 10)};
    if (found->offset == UINT32_MAX || found->bytes == UINT32_MAX || found->count == UINT16_MAX) {
        const char *problem = read_end64(data, (size_t)(end - data), found);
        if (problem)
            return problem;
    }
    if (!inside(found->offset, found->bytes, (uint64_t)(end - data)) || found->count > found->bytes / ZIP_CENTRAL_BYTES)
        return "its directory lies outside the file";
    return NULL;
}

/* Fields that are all ones in the entry are in its zip64 extra field, in this order. */
static const char *apply_extra64(zip_entry *entry, const uint8_t *extra, size_t bytes) {
    uint64_t *fields[] = {&entry->bytes, &entry->stored_bytes, &entry->header};
    if (entry->bytes != UINT32_MAX && entry->stored_bytes != UINT32_MAX && entry->header != UINT32_MAX)
        return NULL;
    while (bytes >= 4) {
        size_t id = get_u16(extra), length = get_u16(extra + 2);
        if (length > bytes - 4)
            break;
        const uint8_t *next = extra + 4, *end = next + length;
        for (int i = 0; id == ZIP_EXTRA64 && i < 3; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (end - next < 8)
                return "a zip64 field is cut short";
            *fields[i] = get_u64(next);
            next += 8;
        }
        if (id == ZIP_EXTRA64)
            return NULL;
        extra = end;
        bytes -= 4 + length;
    }
    return NULL; /* no such field: the values are what they say */
}

/* Reads the entry at `*at` of the directory's `bytes` bytes and moves `*at` behind it. */
static const char *read_entry(const uint8_t *entries, size_t bytes, size_t *at, zip_entry *entry) {
    if (!inside(*at, ZIP_CENTRAL_BYTES, bytes) || get_u32(entries + *at) != ZIP_CENTRAL)
        return "its directory is damaged";
    const uint8_t *p = entries + *at;
    size_t name = get_u16(p + 28), extra = get_u16(p + 30), comment = get_u16(p + 32);
    if (!inside(*at + ZIP_CENTRAL_BYTES, name + extra + comment, bytes))
        return "its directory is damaged";
    entry->flags = get_u16(p + 8);
    entry->method = get_u16(p + 10);
    entry->crc = get_u32(p + 16);
    entry->stored_bytes = get_u32(p + 20);
    entry->bytes = get_u32(p + 24);
    entry->header = get_u32(p + 42);
    const uint8_t *text = p + ZIP_CENTRAL_BYTES;
    if (memchr(text, 0, name))
        return "a member's name is damaged";
    entry->name = malloc(name + 1);
    if (!entry->name)
        return no_memory;
    memcpy(entry->name, text, name);
    entry->name[name] = '\0';
    *at += ZIP_CENTRAL_BYTES + name + extra + comment;
    return apply_extra64(entry, text + name, extra);
}

const char *zip_open(zip_archive *archive, const uint8_t *data, size_t bytes) {
    *archive = (zip_archive){.data = data, .bytes = bytes};
    directory found;
    const char *problem = find_directory(data, bytes, &found);
    if (problem)
        return problem;
    archive->entries = calloc((size_t)found.count + 1, sizeof *archive->entries);
    if (!archive->entries)
        return no_memory;
    size_t at = 0;
    for (uint64_t i = 0; i < found.count && !problem; i++) {
        archive->count++;
        problem = read_entry(data + found.offset, (size_t)found.bytes, &at, &archive->entries[i]);
    }
    if (problem)
        zip_close(archive);
    return problem;
}

void zip_close(zip_archive *archive) {
    for (size_t i = 0; i < archive->count; i++)
        free(archive->entries[i].name);
    free(archive->entries);
    *archive = (zip_archive){0};
}

static const char *inflate_all(z_stream *z, const uint8_t *from, uint64_t from_bytes, buffer *to) {
    const uInt most = 1u << 30; /* zlib counts in 32 bits */
    uint64_t used = 0, made = 0;
    int code = Z_OK;
    while (code == Z_OK) {
        z->next_in = (Bytef *)(uintptr_t)(from + used);
        z->avail_in = from_bytes - used < most ? (uInt)(from_bytes - used) : most;
        z->next_out = to->data + made;
        z->avail_out = to->bytes - made < most ? (uInt)(to->bytes - made) : most;
        code = inflate(z, Z_NO_FLUSH);
        used = (uint64_t)(z->next_in - from);
        made = (uint64_t)(z->next_out - to->data);
    }
    if (code == Z_MEM_ERROR)
        return no_memory;
    return code == Z_STREAM_END && made == to->bytes ? NULL : "the deflated data is damaged";
}

static const char *inflate_member(const zip_entry *entry, const uint8_t *from, buffer *to) {
    /* deflate cannot do better than 1032 : 1, so a larger claim is a lie that would only cost memory */
    if (entry->bytes / 1040 > entry->stored_bytes)
        return "its size is impossible";
    if (!buffer_try(to, (size_t)entry->bytes))
        return no_memory;
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return no_memory;
    const char *problem = inflate_all(&z, from, entry->stored_bytes, to);
    inflateEnd(&z);
    return problem;
}

/* Where the member's bytes start, behind its local header. */
static const char *find_content(const zip_archive *archive, const zip_entry *entry, const uint8_t **from) {
    if (!inside(entry->header, ZIP_LOCAL_BYTES, archive->bytes) || get_u32(archive->data + entry->header) != ZIP_LOCAL)
        return "its local header is missing";
    const uint8_t *local = archive->data + entry->header;
    uint64_t offset = entry->header + ZIP_LOCAL_BYTES + get_u16(local + 26) + get_u16(local + 28);
    if (!inside(offset, entry->stored_bytes, archive->bytes))
        return "it is cut short";
    *from = archive->data + offset;
    return NULL;
}

const char *zip_read(const zip_archive *archive, size_t index, buffer *memory, const uint8_t **content, size_t *bytes) {
    const zip_entry *entry = &archive->entries[index];
    *memory = (buffer){0};
    if (entry->flags & ZIP_ENCRYPTED)
        return "it is encrypted";
    const char *problem = find_content(archive, entry, content);
    if (!problem && entry->method == ZIP_STORED && entry->bytes != entry->stored_bytes)
        problem = "its sizes contradict each other";
    if (!problem && entry->method == ZIP_DEFLATED) {
        problem = inflate_member(entry, *content, memory);
        *content = memory->data;
    } else if (!problem && entry->method != ZIP_STORED) {
        problem = "its compression method is neither stored nor deflated";
    }
    if (!problem && (uint32_t)crc32_z(0, *content, (size_t)entry->bytes) != entry->crc)
        problem = "its checksum does not match: the data is damaged";
    if (problem)
        buffer_give(memory);
    *bytes = (size_t)entry->bytes;
    return problem;
}
