/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives and the .npy files in them. What can be read of an archive is written as a new one and read again. The
 * writer is built to take a few hundred bytes for long, so that both forms of the format are seen.
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <string.h>
#include <zlib.h>

#include "cmd/files/zip.h"
#include "common/npy_array.h"

enum { MOST_BYTES = 64 << 20, MOST_MEMBERS = 512 }; /* of members, inflated one after the other: more only costs time */

/* The CRC is right, and the bytes are in the archive or in memory of their own. */
static void check_member(const zip_archive *archive, size_t i, const buffer *memory, const uint8_t *content,
                         size_t bytes) {
    const zip_entry *entry = &archive->entries[i];
    EXPECT(bytes == entry->bytes);
    EXPECT(memory->data ? content == memory->data && bytes == memory->bytes
                        : content >= archive->data && content + bytes <= archive->data + archive->bytes);
    EXPECT((uint32_t)crc32_z(0, content, bytes) == entry->crc);
}

static void check_tensor(const uint8_t *content, size_t bytes) {
    static const array_format nothing_said;
    blob piece = {.name = "fuzz", .where = "'fuzz' in 'fuzz.npz'", .data = content, .bytes = bytes};
    check_array(&piece, &nothing_said);
}

/* Copies what can be read and returns how many members that were, -1 if there is too much. */
static long copy_members(const zip_archive *archive, zip_writer *writer) {
    uint64_t total = 0;
    long copied = 0;
    for (size_t i = 0; i < archive->count; i++) {
        buffer memory;
        const uint8_t *content;
        size_t bytes;
        if (i == MOST_MEMBERS)
            return -1;
        if (zip_read(archive, i, &memory, &content, &bytes) != NULL) {
            EXPECT(memory.data == NULL);
            continue;
        }
        check_member(archive, i, &memory, content, bytes);
        check_tensor(content, bytes);
        zip_chunk chunks[2] = {{content, bytes / 2}, {content + bytes / 2, bytes - bytes / 2}};
        EXPECT(zip_writer_add(writer, archive->entries[i].name, chunks, 2) == DONE);
        copied++;
        total += bytes;
        buffer_give(&memory);
        if (total > MOST_BYTES)
            return -1;
    }
    return copied;
}

/* The members of `copy` are those of `archive` that can be read, in their order. */
static void compare(const zip_archive *archive, const zip_archive *copy) {
    size_t at = 0;
    for (size_t i = 0; i < archive->count; i++) {
        buffer memory[2];
        const uint8_t *content[2];
        size_t bytes[2];
        if (zip_read(archive, i, &memory[0], &content[0], &bytes[0]) != NULL)
            continue;
        EXPECT(at < copy->count && zip_read(copy, at, &memory[1], &content[1], &bytes[1]) == NULL);
        EXPECT(strcmp(archive->entries[i].name, copy->entries[at].name) == 0);
        EXPECT(bytes[0] == bytes[1] && memory[1].data == NULL);
        EXPECT(bytes[0] == 0 || memcmp(content[0], content[1], bytes[0]) == 0);
        buffer_give(&memory[0]);
        at++;
    }
    EXPECT(at == copy->count);
}

static void check_archive(const zip_archive *archive) {
    char *text = NULL;
    size_t size = 0;
    output_file out = {.file = open_memstream(&text, &size), .given = "copy.npz"};
    zip_writer writer;
    zip_archive copy;
    EXPECT(out.file != NULL);
    zip_writer_init(&writer, &out);
    long members = copy_members(archive, &writer);
    EXPECT(zip_writer_finish(&writer) == DONE);
    zip_writer_free(&writer);
    EXPECT(fclose(out.file) == 0);
    if (members >= 0) {
        EXPECT(zip_is((const uint8_t *)text, size));
        EXPECT(zip_open(&copy, (const uint8_t *)text, size) == NULL);
        EXPECT(copy.count == (size_t)members);
        compare(archive, &copy);
        zip_close(&copy);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *file = malloc(size ? size : 1); /* exactly as long as it is, for the sanitizers */
    zip_archive archive;
    EXPECT(file != NULL);
    if (size)
        memcpy(file, data, size);
    (void)zip_is(file, size);
    if (zip_open(&archive, file, size) == NULL) {
        check_archive(&archive);
        zip_close(&archive);
    }
    free(file);
    return 0;
}
