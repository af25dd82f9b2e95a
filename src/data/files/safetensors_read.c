/* SPDX-License-Identifier: Apache-2.0 */
/* Reading .safetensors files: the header once, tensors one by one, at their place. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/half.h"
#include "base/memory.h"
#include "data/files/safetensors_impl.h"

struct comet_safetensors {
    const comet_allocator *allocator;
    int descriptor;
    char *path, *header; /* header: the strings of the index */
    size_t path_bytes, header_bytes;
    comet_safetensors_index index;
};

enum { CHUNK_BYTES = 1 << 14 };

/* ---- bytes ---- */

static comet_status read_at(const comet_safetensors *file, uint64_t offset, void *data, size_t bytes,
                            comet_message *message) {
    char *to = data;
    while (bytes > 0) {
        ssize_t got = pread(file->descriptor, to, bytes > 1 << 30 ? 1 << 30 : bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return comet_message_set(message, COMET_ERROR_IO, "cannot read '%s': %s", file->path, strerror(errno));
        if (got == 0)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' is cut short; get or write it again",
                                     file->path);
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return COMET_OK;
}

/* ---- opening ---- */

static comet_status wrong(const comet_safetensors *file, comet_status status, const char *why, comet_message *message) {
    return comet_message_set(message, status, "'%s' is not a usable .safetensors file: %s", file->path, why);
}

static comet_status open_file(comet_safetensors *file, uint64_t *size, comet_message *message) {
    struct stat status;
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its other end */
    if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0)
        return comet_message_set(message, COMET_ERROR_IO, "cannot open '%s': %s", file->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return comet_message_set(message, COMET_ERROR_IO, "'%s' is not a regular file", file->path);
    *size = (uint64_t)status.st_size;
    return COMET_OK;
}

static comet_status read_header(comet_safetensors *file, uint64_t size, comet_message *message) {
    uint8_t start[8];
    if (size < sizeof start + 2)
        return wrong(file, COMET_ERROR_CORRUPT, "it is too short", message);
    COMET_TRY(read_at(file, 0, start, sizeof start, message));
    uint64_t bytes = comet_read_u64(start);
    if (bytes > COMET_SAFETENSORS_MOST_HEADER)
        return wrong(file, COMET_ERROR_CORRUPT, "its header claims to be too large", message);
    if (bytes > size - sizeof start)
        return wrong(file, COMET_ERROR_CORRUPT, "its header is cut short", message);
    file->header = comet_memory_take(file->allocator, (size_t)bytes);
    if (!file->header)
        return comet_message_memory(message);
    file->header_bytes = (size_t)bytes;
    return read_at(file, sizeof start, file->header, (size_t)bytes, message);
}

static comet_status understand(comet_safetensors *file, uint64_t size, comet_message *message) {
    comet_message why;
    uint64_t begin = 8 + file->header_bytes;
    comet_safetensors_index *index = &file->index;
    comet_status status = comet_safetensors_parse(file->header, file->header_bytes, file->allocator, index, &why);
    if (status == COMET_OK)
        status = comet_safetensors_check(index, size - begin, &why);
    if (status == COMET_ERROR_MEMORY)
        return comet_message_memory(message);
    if (status != COMET_OK)
        return wrong(file, status, why.text, message);
    for (size_t i = 0; i < index->count; i++)
        index->entries[i].offset += begin;
    return COMET_OK;
}

static comet_status open_and_read(comet_safetensors *file, const char *path, comet_message *message) {
    uint64_t size = 0;
    file->path_bytes = strlen(path) + 1;
    file->path = comet_memory_take(file->allocator, file->path_bytes);
    if (!file->path)
        return comet_message_memory(message);
    memcpy(file->path, path, file->path_bytes);
    comet_status status = open_file(file, &size, message);
    if (status == COMET_OK)
        status = read_header(file, size, message);
    return status == COMET_OK ? understand(file, size, message) : status;
}

comet_status comet_safetensors_open(const char *path, const comet_allocator *allocator, comet_safetensors **out,
                                    comet_message *message) {
    *out = NULL;
    comet_safetensors *file = comet_memory_take(allocator, sizeof *file);
    if (!file)
        return comet_message_memory(message);
    *file = (comet_safetensors){.allocator = allocator, .descriptor = -1};
    comet_status status = open_and_read(file, path, message);
    if (status == COMET_OK)
        *out = file;
    else
        comet_safetensors_close(file);
    return status;
}

void comet_safetensors_close(comet_safetensors *file) {
    if (!file)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    comet_safetensors_index_free(&file->index, file->allocator);
    comet_memory_give(file->allocator, file->header, file->header_bytes);
    comet_memory_give(file->allocator, file->path, file->path_bytes);
    comet_memory_give(file->allocator, file, sizeof *file);
}

/* ---- what is in it ---- */

size_t comet_safetensors_count(const comet_safetensors *file) {
    return file->index.count;
}

const comet_safetensors_entry *comet_safetensors_at(const comet_safetensors *file, size_t index) {
    return &file->index.entries[index];
}

static int compare_name(const void *name, const void *entry) {
    return strcmp(name, ((const comet_safetensors_entry *)entry)->name);
}

static int compare_key(const void *key, const void *text) {
    return strcmp(key, ((const comet_safetensors_text *)text)->key);
}

const comet_safetensors_entry *comet_safetensors_find(const comet_safetensors *file, const char *name) {
    const comet_safetensors_index *index = &file->index;
    return index->count ? bsearch(name, index->entries, index->count, sizeof *index->entries, compare_name) : NULL;
}

const char *comet_safetensors_metadata(const comet_safetensors *file, const char *key) {
    const comet_safetensors_index *index = &file->index;
    const comet_safetensors_text *text =
        index->metadata_count ? bsearch(key, index->metadata, index->metadata_count, sizeof *text, compare_key) : NULL;
    return text ? text->value : NULL;
}

/* ---- tensors ---- */

comet_status comet_safetensors_read(const comet_safetensors *file, const comet_safetensors_entry *entry, uint64_t first,
                                    uint64_t bytes, void *data, comet_message *message) {
    if (first > entry->bytes || bytes > entry->bytes - first)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "tensor '%s' does not have that many bytes",
                                 entry->name);
    return read_at(file, entry->offset + first, data, (size_t)bytes, message);
}

static void convert(comet_safetensors_type type, const uint8_t *bytes, size_t count, float *values) {
    for (size_t i = 0; i < count; i++) {
        double wide;
        if (type == COMET_SAFETENSORS_F16)
            values[i] = comet_f16_to_f32(comet_read_u16(bytes + 2 * i));
        else if (type == COMET_SAFETENSORS_BF16)
            values[i] = comet_bf16_to_f32(comet_read_u16(bytes + 2 * i));
        else {
            memcpy(&wide, bytes + 8 * i, sizeof wide);
            values[i] = (float)wide;
        }
    }
}

comet_status comet_safetensors_read_f32_part(const comet_safetensors *file, const comet_safetensors_entry *entry,
                                             uint64_t first, uint64_t count, float *values, comet_message *message) {
    uint8_t chunk[CHUNK_BYTES];
    const size_t size = comet_safetensors_type_bytes(entry->type);
    if (entry->type == COMET_SAFETENSORS_F32)
        return comet_safetensors_read(file, entry, first * size, count * size, values, message);
    if (entry->type != COMET_SAFETENSORS_F16 && entry->type != COMET_SAFETENSORS_BF16 &&
        entry->type != COMET_SAFETENSORS_F64)
        return comet_message_set(message, COMET_ERROR_UNSUPPORTED,
                                 "tensor '%s' of '%s' is of type %s; a floating-point type is needed", entry->name,
                                 file->path, comet_safetensors_type_name(entry->type));
    for (uint64_t done = 0; done < count * size;) {
        const uint64_t left = count * size - done;
        const size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        COMET_TRY(comet_safetensors_read(file, entry, first * size + done, bytes, chunk, message));
        convert(entry->type, chunk, bytes / size, values + done / size);
        done += bytes;
    }
    return COMET_OK;
}

comet_status comet_safetensors_read_f32(const comet_safetensors *file, const comet_safetensors_entry *entry,
                                        float *values, comet_message *message) {
    const uint64_t count = entry->bytes / comet_safetensors_type_bytes(entry->type);
    return comet_safetensors_read_f32_part(file, entry, 0, count, values, message);
}
