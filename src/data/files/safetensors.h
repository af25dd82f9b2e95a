/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .safetensors files: named tensors and text. Eight bytes for the size of a JSON header, the header, then the tensors'
 * bytes, little-endian, rows last. Names are the caller's.
 */
#ifndef COMET_DATA_SAFETENSORS_H
#define COMET_DATA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/message.h"
#include "comet/allocator.h"

enum { COMET_SAFETENSORS_MOST_DIMS = 8 };

typedef enum comet_safetensors_type {
    COMET_SAFETENSORS_F32,
    COMET_SAFETENSORS_F16,
    COMET_SAFETENSORS_BF16,
    COMET_SAFETENSORS_F64,
    COMET_SAFETENSORS_I64,
    COMET_SAFETENSORS_I32,
    COMET_SAFETENSORS_U8,
    COMET_SAFETENSORS_TYPES
} comet_safetensors_type;

/* "F32", "F16", ...; bytes of a value. */
const char *comet_safetensors_type_name(comet_safetensors_type type);
size_t comet_safetensors_type_bytes(comet_safetensors_type type);

typedef struct comet_safetensors_entry {
    const char *name; /* UTF-8 */
    comet_safetensors_type type;
    int32_t ndim;
    int64_t shape[COMET_SAFETENSORS_MOST_DIMS];
    uint64_t offset, bytes; /* in the file */
} comet_safetensors_entry;

typedef struct comet_safetensors_text {
    const char *key, *value;
} comet_safetensors_text;

/* ---- reading ---- */

typedef struct comet_safetensors comet_safetensors;

/*
 * Opens a file and checks its whole header; reads no tensor yet. COMET_ERROR_IO, COMET_ERROR_CORRUPT for a header that
 * is wrong, COMET_ERROR_UNSUPPORTED for types and ranks that are not known here, COMET_ERROR_MEMORY.
 */
comet_status comet_safetensors_open(const char *path, const comet_allocator *allocator, comet_safetensors **file,
                                    comet_message *message);

/* NULL is allowed. */
void comet_safetensors_close(comet_safetensors *file);

/* Tensors, in the order of their names. */
size_t comet_safetensors_count(const comet_safetensors *file);
const comet_safetensors_entry *comet_safetensors_at(const comet_safetensors *file, size_t index);
const comet_safetensors_entry *comet_safetensors_find(const comet_safetensors *file, const char *name); /* or NULL */

/* The value of a key of the file's metadata; NULL if it has none. */
const char *comet_safetensors_metadata(const comet_safetensors *file, const char *key);

/* Part of a tensor's bytes, or all of them (0, entry->bytes), as they are. Threads may read at the same time. */
comet_status comet_safetensors_read(const comet_safetensors *file, const comet_safetensors_entry *entry, uint64_t first,
                                    uint64_t bytes, void *data, comet_message *message);

/*
 * All values as fp32, or `count` of them from `first` on. COMET_ERROR_UNSUPPORTED unless they are F32, F16, BF16 or
 * F64.
 */
comet_status comet_safetensors_read_f32(const comet_safetensors *file, const comet_safetensors_entry *entry,
                                        float *values, comet_message *message);
comet_status comet_safetensors_read_f32_part(const comet_safetensors *file, const comet_safetensors_entry *entry,
                                             uint64_t first, uint64_t count, float *values, comet_message *message);

/* ---- writing ---- */

/* A tensor to be written. offset and bytes of the entry are not looked at. */
typedef struct comet_safetensors_source {
    comet_safetensors_entry entry;
    const void *data; /* its bytes; NULL: `produce` gives them when they are needed, piece by piece, in order */
    comet_status (*produce)(void *context, const comet_safetensors_entry *entry, uint64_t first, uint64_t bytes,
                            void *data);
    void *context;
} comet_safetensors_source;

/*
 * Writes a file that appears complete or not at all (base/file/atomic_file.h). The same tensors give the same bytes,
 * whatever their order. Of what is produced a piece at a time is in memory.
 */
comet_status comet_safetensors_write(const char *path, const comet_safetensors_source *sources, size_t count,
                                     const comet_safetensors_text *metadata, size_t metadata_count,
                                     const comet_allocator *allocator, comet_message *message);

#endif
