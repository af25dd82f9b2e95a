/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing .safetensors files, byte by byte as the format's own library does (but for the order of metadata, which is
 * the caller's): tensors with the largest values first, so that each begins at a multiple of its values' size, then by
 * name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/file/atomic_file.h"
#include "base/memory.h"
#include "data/files/safetensors_impl.h"

/* Text that is measured (text NULL) and then written. */
typedef struct writer {
    char *text;
    size_t used;
} writer;

static void put(writer *w, const char *text, size_t bytes) {
    if (w->text)
        memcpy(w->text + w->used, text, bytes);
    w->used += bytes;
}

static void put_plain(writer *w, const char *text) {
    put(w, text, strlen(text));
}

static void put_string(writer *w, const char *text) {
    char escape[8];
    put(w, "\"", 1);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            put(w, "\\", 1);
        if ((unsigned char)*text >= 0x20)
            put(w, text, 1);
        else
            put(w, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text));
    }
    put(w, "\"", 1);
}

static void put_number(writer *w, uint64_t value) {
    char text[24];
    put(w, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

static void put_metadata(writer *w, const comet_safetensors_text *metadata, size_t count) {
    put_plain(w, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        put(w, ",", i > 0);
        put_string(w, metadata[i].key);
        put(w, ":", 1);
        put_string(w, metadata[i].value);
    }
    put(w, "}", 1);
}

static void put_entry(writer *w, const comet_safetensors_entry *entry, uint64_t begin, uint64_t bytes) {
    put_string(w, entry->name);
    put_plain(w, ":{\"dtype\":\"");
    put_plain(w, comet_safetensors_type_name(entry->type));
    put_plain(w, "\",\"shape\":[");
    for (int32_t d = 0; d < entry->ndim; d++) {
        put(w, ",", d > 0);
        put_number(w, (uint64_t)entry->shape[d]);
    }
    put_plain(w, "],\"data_offsets\":[");
    put_number(w, begin);
    put(w, ",", 1);
    put_number(w, begin + bytes);
    put_plain(w, "]}");
}

/* What is to be written. */
typedef struct job {
    const comet_safetensors_source **sources; /* in the order of the file */
    size_t count;
    const comet_safetensors_text *metadata;
    size_t metadata_count;
    const comet_allocator *allocator;
    comet_message *message;
} job;

static void put_header(writer *w, const job *j) {
    uint64_t begin = 0, bytes = 0;
    put(w, "{", 1);
    if (j->metadata_count)
        put_metadata(w, j->metadata, j->metadata_count);
    for (size_t i = 0; i < j->count; i++, begin += bytes) {
        put(w, ",", i > 0 || j->metadata_count > 0);
        comet_safetensors_size(&j->sources[i]->entry, &bytes);
        put_entry(w, &j->sources[i]->entry, begin, bytes);
    }
    put(w, "}", 1);
    put(w, "       ", (8 - w->used % 8) % 8); /* the data begins at a multiple of 8 */
}

/* ---- checks ---- */

static int in_file_order(const void *a, const void *b) {
    const comet_safetensors_entry *x = &(*(const comet_safetensors_source *const *)a)->entry;
    const comet_safetensors_entry *y = &(*(const comet_safetensors_source *const *)b)->entry;
    int rank_x = comet_safetensors_type_rank(x->type), rank_y = comet_safetensors_type_rank(y->type);
    return rank_x != rank_y ? (rank_x < rank_y ? -1 : 1) : strcmp(x->name, y->name);
}

static int is_text(const char *text) {
    size_t left = strlen(text);
    while (left) {
        size_t length = comet_safetensors_utf8(text, left);
        if (length == 0)
            return 0;
        text += length;
        left -= length;
    }
    return 1;
}

static comet_status refuse(const job *j, const char *name, const char *why) {
    return comet_message_set(j->message, COMET_ERROR_ARGUMENT, "'%s' cannot be written: %s", name, why);
}

static comet_status check_sources(const job *j) {
    uint64_t total = 0, bytes;
    for (size_t i = 0; i < j->count; i++) {
        const comet_safetensors_source *s = j->sources[i];
        if (!is_text(s->entry.name) || strcmp(s->entry.name, "__metadata__") == 0)
            return refuse(j, s->entry.name, "it is not a name for a tensor");
        if (!comet_safetensors_size(&s->entry, &bytes) || bytes > INT64_MAX - total)
            return refuse(j, s->entry.name, "its shape is impossible");
        if (bytes && !s->data && !s->produce)
            return refuse(j, s->entry.name, "it has no data");
        total += bytes;
    }
    for (size_t i = 0; i < j->metadata_count; i++) {
        if (!is_text(j->metadata[i].key) || !is_text(j->metadata[i].value))
            return refuse(j, j->metadata[i].key, "it is not UTF-8");
        for (size_t k = 0; k < i; k++) /* there are few */
            if (strcmp(j->metadata[i].key, j->metadata[k].key) == 0)
                return refuse(j, j->metadata[i].key, "there are two of that name");
    }
    return COMET_OK;
}

/* Equal names may be of different types, far apart in the file: they are looked for in another order. */
static int by_name(const void *a, const void *b) {
    return strcmp((*(const comet_safetensors_source *const *)a)->entry.name,
                  (*(const comet_safetensors_source *const *)b)->entry.name);
}

static comet_status sort_sources(const job *j) {
    if (j->count == 0)
        return COMET_OK;
    qsort(j->sources, j->count, sizeof *j->sources, by_name);
    for (size_t i = 1; i < j->count; i++)
        if (by_name(&j->sources[i - 1], &j->sources[i]) == 0)
            return refuse(j, j->sources[i]->entry.name, "there are two of that name");
    qsort(j->sources, j->count, sizeof *j->sources, in_file_order);
    return COMET_OK;
}

/* ---- writing ---- */

static comet_status write_header(const job *j, comet_atomic_file *file) {
    writer w = {0};
    put_header(&w, j);
    size_t bytes = w.used;
    uint64_t length = bytes;
    if (bytes > COMET_SAFETENSORS_MOST_HEADER)
        return comet_message_set(j->message, COMET_ERROR_ARGUMENT,
                                 "too many tensors or too much metadata for one file");
    w = (writer){.text = comet_memory_take(j->allocator, bytes)};
    if (!w.text)
        return comet_message_memory(j->message);
    put_header(&w, j);
    comet_status status = comet_atomic_file_write(file, &length, sizeof length, j->message);
    if (status == COMET_OK)
        status = comet_atomic_file_write(file, w.text, bytes, j->message);
    comet_memory_give(j->allocator, w.text, bytes);
    return status;
}

enum { PIECE = 1 << 16 }; /* bytes: a multiple of every value's size */

static comet_status write_produced(const job *j, comet_atomic_file *file, const comet_safetensors_source *s,
                                   uint64_t total, void *piece) {
    for (uint64_t first = 0; first < total; first += PIECE) {
        const uint64_t bytes = total - first < PIECE ? total - first : PIECE;
        comet_status status = s->produce(s->context, &s->entry, first, bytes, piece);
        if (status != COMET_OK)
            return comet_message_set(j->message, status, "tensor '%s' cannot be had: %s", s->entry.name,
                                     comet_status_string(status));
        status = comet_atomic_file_write(file, piece, (size_t)bytes, j->message);
        if (status != COMET_OK)
            return status;
    }
    return COMET_OK;
}

static comet_status write_tensor(const job *j, comet_atomic_file *file, const comet_safetensors_source *s,
                                 void *piece) {
    uint64_t bytes = 0;
    comet_safetensors_size(&s->entry, &bytes);
    if (bytes == 0)
        return COMET_OK;
    return s->data ? comet_atomic_file_write(file, s->data, (size_t)bytes, j->message)
                   : write_produced(j, file, s, bytes, piece);
}

static comet_status write_all(const job *j, comet_atomic_file *file) {
    void *piece = comet_memory_take(j->allocator, PIECE);
    comet_status status = piece ? write_header(j, file) : comet_message_memory(j->message);
    for (size_t i = 0; i < j->count && status == COMET_OK; i++)
        status = write_tensor(j, file, j->sources[i], piece);
    comet_memory_give(j->allocator, piece, PIECE);
    return status;
}

static comet_status write_file(const job *j, const char *path) {
    comet_atomic_file file;
    COMET_TRY(comet_atomic_file_open(&file, path, j->message));
    comet_status status = write_all(j, &file);
    if (status == COMET_OK)
        status = comet_atomic_file_commit(&file, j->message);
    if (status != COMET_OK)
        comet_atomic_file_abandon(&file);
    return status;
}

comet_status comet_safetensors_write(const char *path, const comet_safetensors_source *sources, size_t count,
                                     const comet_safetensors_text *metadata, size_t metadata_count,
                                     const comet_allocator *allocator, comet_message *message) {
    size_t bytes = count * sizeof(const comet_safetensors_source *);
    job j = {comet_memory_take(allocator, bytes), count, metadata, metadata_count, allocator, message};
    if (!j.sources)
        return comet_message_memory(message);
    for (size_t i = 0; i < count; i++)
        j.sources[i] = &sources[i];
    comet_status status = check_sources(&j);
    if (status == COMET_OK)
        status = sort_sources(&j);
    if (status == COMET_OK)
        status = write_file(&j, path);
    comet_memory_give(allocator, j.sources, bytes);
    return status;
}
