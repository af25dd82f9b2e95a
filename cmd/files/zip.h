/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives: as much as .npz files need. Reading: stored and deflated members, data descriptors, zip64; sizes and
 * checksums verified, hostile archives are errors. Writing: stored members, zip64 where needed, no dates: the same
 * content gives the same bytes. No encryption, no split archives.
 */
#ifndef COMET_CMD_ZIP_H
#define COMET_CMD_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/files/buffer.h"
#include "cmd/files/file.h"

typedef struct zip_entry {
    char *name; /* ends with 0; none inside */
    uint64_t stored_bytes, bytes;
    uint64_t header; /* where the local header is, from the start of the file */
    uint32_t crc;
    uint16_t method, flags;
} zip_entry;

typedef struct zip_archive {
    const uint8_t *data; /* the whole file; not owned */
    size_t bytes;
    zip_entry *entries;
    size_t count;
} zip_archive;

/* 1 if the bytes start as zip archives do (an empty one included). */
int zip_is(const uint8_t *data, size_t bytes);

/* NULL, or what is wrong, in words. `data` must outlive the archive. */
const char *zip_open(zip_archive *archive, const uint8_t *data, size_t bytes);
void zip_close(zip_archive *archive);

/* The content of a member: inside the archive's data if stored, else inflated into `memory`. NULL or what is wrong. */
const char *zip_read(const zip_archive *archive, size_t index, buffer *memory, const uint8_t **content, size_t *bytes);

/* A piece of a member to write. */
typedef struct zip_chunk {
    const void *data;
    size_t bytes;
} zip_chunk;

typedef struct zip_writer {
    output_file *out;
    zip_entry *entries;
    size_t count, room;
    uint64_t offset;
} zip_writer;

/* `out` must be open and empty. No need to free before the first add. */
void zip_writer_init(zip_writer *writer, output_file *out);
int zip_writer_add(zip_writer *writer, const char *name, const zip_chunk *chunks, int chunk_count);

/* Writes the directory. */
int zip_writer_finish(zip_writer *writer);
void zip_writer_free(zip_writer *writer);

#endif
