/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the .safetensors reader and writer. */
#ifndef COMET_DATA_SAFETENSORS_IMPL_H
#define COMET_DATA_SAFETENSORS_IMPL_H

#include "data/files/safetensors.h"

enum { COMET_SAFETENSORS_MOST_HEADER = 100000000 }; /* bytes; the format's own limit */

/* What a header says. Strings point into its text. */
typedef struct comet_safetensors_index {
    comet_safetensors_entry *entries; /* by name after comet_safetensors_check */
    size_t count, capacity;
    comet_safetensors_text *metadata;
    size_t metadata_count, metadata_capacity;
} comet_safetensors_index;

/*
 * Reads the JSON of a header, `bytes` of it in `text`, which is changed: strings are decoded and ended in place.
 * Offsets of the entries are from the first byte behind the header. The message is the reason alone.
 */
comet_status comet_safetensors_parse(char *text, size_t bytes, const comet_allocator *allocator,
                                     comet_safetensors_index *index, comet_message *message);

/*
 * Sorts, and checks what entries must be to each other and to `bytes`, the size of the data: all of it, each byte once.
 */
comet_status comet_safetensors_check(comet_safetensors_index *index, uint64_t bytes, comet_message *message);

void comet_safetensors_index_free(comet_safetensors_index *index, const comet_allocator *allocator);

/* Tensors of types of lower rank come first in a file: larger values before smaller ones. */
int comet_safetensors_type_rank(comet_safetensors_type type);

/*
 * Bytes of a tensor. Answers 0 if they cannot be counted: too many, or a dimension that is negative, or too many of
 * those.
 */
int comet_safetensors_size(const comet_safetensors_entry *entry, uint64_t *bytes);

/* Bytes of the UTF-8 character at `text`, of which `left` bytes (at least 1) are there: 1 to 4; 0 if it is none. */
size_t comet_safetensors_utf8(const char *text, size_t left);

#endif
