/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of .safetensors files. The format allows only this much of JSON:
 *   {"__metadata__": {"key": "value", ...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 * and only that is accepted, so there is no depth to run out of and no value that nobody looks at.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "data/files/safetensors_impl.h"

/* What is left of the text, and where the results go. */
typedef struct parser {
    char *at, *end;
    const comet_allocator *allocator;
    comet_safetensors_index *index;
    comet_message *message;
} parser;

static comet_status damaged(parser *p, const char *what) {
    return comet_message_set(p->message, COMET_ERROR_CORRUPT, "its header is damaged (%s)", what);
}

/* ---- tokens ---- */

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

/* Takes `token` if it comes next. */
static int take(parser *p, char token) {
    skip_space(p);
    if (p->at == p->end || *p->at != token)
        return 0;
    p->at++;
    return 1;
}

static int take_hex(parser *p, uint32_t *value) {
    if (p->end - p->at < 4)
        return 0;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = *p->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return 0;
        *value = *value << 4 | (uint32_t)digit;
    }
    return 1;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(leads[more] | c >> (6 * more));
    while (more-- > 0)
        *to++ = (char)(0x80 | ((c >> (6 * more)) & 0x3f));
    return to;
}

/* What follows \u: a character, or two halves of one. Never 0, which would end the string early. */
static char *take_unicode(parser *p, char *to) {
    uint32_t c, low;
    if (!take_hex(p, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000))
        return NULL;
    if (c < 0xd800 || c >= 0xe000)
        return put_utf8(to, c);
    if (p->end - p->at < 2 || *p->at++ != '\\' || *p->at++ != 'u' || !take_hex(p, &low) || low < 0xdc00 ||
        low >= 0xe000)
        return NULL;
    return put_utf8(to, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
}

/* What follows a backslash. Returns the place behind what was written, NULL if it is wrong. */
static char *take_escape(parser *p, char *to) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return NULL;
    char c = *p->at++;
    if (c == 'u')
        return take_unicode(p, to);
    const char *found = c ? strchr(letters, c) : NULL;
    if (!found)
        return NULL;
    *to = values[found - letters];
    return to + 1;
}

/* A string, decoded in place: what an escape stands for is never longer than the escape. */
static comet_status take_string(parser *p, char **string) {
    if (!take(p, '"'))
        return damaged(p, "a string is missing");
    char *to = *string = p->at;
    while (p->at < p->end && *p->at != '"') {
        size_t length = comet_safetensors_utf8(p->at, (size_t)(p->end - p->at));
        if (length == 0 || (unsigned char)*p->at < 0x20)
            return damaged(p, "a string is not UTF-8");
        if (*p->at == '\\') {
            p->at++;
            to = take_escape(p, to);
            if (!to)
                return damaged(p, "a string has a wrong escape");
            continue;
        }
        memmove(to, p->at, length);
        to += length;
        p->at += length;
    }
    if (p->at == p->end)
        return damaged(p, "a string does not end");
    p->at++; /* before it is written over */
    *to = '\0';
    return COMET_OK;
}

/* 0 .. INT64_MAX, without leading zeros, signs, fractions and exponents. */
static comet_status take_integer(parser *p, int64_t *value) {
    skip_space(p);
    char *start = p->at;
    *value = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        int64_t digit = *p->at - '0';
        if (*value > (INT64_MAX - digit) / 10)
            return damaged(p, "a number is too large");
        *value = *value * 10 + digit;
    }
    if (p->at == start || (*start == '0' && p->at > start + 1))
        return damaged(p, "a number is wrong");
    return COMET_OK;
}

/* [1, 2, 3] of at most `most`; more than that is counted on to most + 1. */
static comet_status take_integers(parser *p, int64_t *values, int32_t most, int32_t *count) {
    *count = 0;
    if (!take(p, '['))
        return damaged(p, "a list is missing");
    if (take(p, ']'))
        return COMET_OK;
    do {
        int64_t value;
        COMET_TRY(take_integer(p, &value));
        if (*count < most)
            values[*count] = value;
        *count += *count <= most;
    } while (take(p, ','));
    return take(p, ']') ? COMET_OK : damaged(p, "a list does not end");
}

/* ---- tensors and metadata ---- */

static comet_status take_type(parser *p, comet_safetensors_entry *entry) {
    char *name;
    COMET_TRY(take_string(p, &name));
    for (int t = 0; t < COMET_SAFETENSORS_TYPES; t++)
        if (strcmp(name, comet_safetensors_type_name((comet_safetensors_type)t)) == 0) {
            entry->type = (comet_safetensors_type)t;
            return COMET_OK;
        }
    return comet_message_set(p->message, COMET_ERROR_UNSUPPORTED, "tensor '%s' is of type '%s', which is not supported",
                             entry->name, name);
}

static comet_status take_shape(parser *p, comet_safetensors_entry *entry) {
    comet_status status = take_integers(p, entry->shape, COMET_SAFETENSORS_MOST_DIMS, &entry->ndim);
    if (status == COMET_OK && entry->ndim > COMET_SAFETENSORS_MOST_DIMS)
        return comet_message_set(p->message, COMET_ERROR_UNSUPPORTED, "tensor '%s' has more than %d dimensions",
                                 entry->name, COMET_SAFETENSORS_MOST_DIMS);
    return status;
}

static comet_status take_offsets(parser *p, comet_safetensors_entry *entry) {
    int64_t offsets[2];
    int32_t count;
    COMET_TRY(take_integers(p, offsets, 2, &count));
    if (count != 2 || offsets[1] < offsets[0])
        return damaged(p, "offsets are wrong");
    entry->offset = (uint64_t)offsets[0];
    entry->bytes = (uint64_t)(offsets[1] - offsets[0]);
    return COMET_OK;
}

enum { KEY_TYPE = 1, KEY_SHAPE = 2, KEY_OFFSETS = 4, KEY_ALL = 7 };

static comet_status take_property(parser *p, comet_safetensors_entry *entry, int *seen) {
    char *key;
    COMET_TRY(take_string(p, &key));
    int which = !strcmp(key, "dtype")          ? KEY_TYPE
                : !strcmp(key, "shape")        ? KEY_SHAPE
                : !strcmp(key, "data_offsets") ? KEY_OFFSETS
                                               : 0;
    if (!which || *seen & which)
        return damaged(p, "a tensor has an unknown property, or one twice");
    *seen |= which;
    if (!take(p, ':'))
        return damaged(p, "a colon is missing");
    return which == KEY_TYPE ? take_type(p, entry) : which == KEY_SHAPE ? take_shape(p, entry) : take_offsets(p, entry);
}

static comet_status take_tensor(parser *p, comet_safetensors_entry *entry) {
    int seen = 0;
    if (!take(p, '{'))
        return damaged(p, "a tensor is not described by an object");
    do {
        COMET_TRY(take_property(p, entry, &seen));
    } while (take(p, ','));
    return take(p, '}') && seen == KEY_ALL ? COMET_OK : damaged(p, "a tensor is not described completely");
}

static comet_status take_text(parser *p) {
    comet_safetensors_index *index = p->index;
    size_t count = index->metadata_count;
    comet_safetensors_text *metadata = comet_array_reserve(p->allocator, index->metadata, count, count + 1,
                                                           &index->metadata_capacity, sizeof *metadata);
    if (!metadata)
        return comet_message_memory(p->message);
    index->metadata = metadata;
    char *key = NULL, *value = NULL;
    COMET_TRY(take_string(p, &key));
    if (!take(p, ':'))
        return damaged(p, "a colon is missing");
    COMET_TRY(take_string(p, &value));
    metadata[index->metadata_count++] = (comet_safetensors_text){key, value};
    return COMET_OK;
}

static comet_status take_metadata(parser *p) {
    if (!take(p, '{'))
        return damaged(p, "the metadata is not an object");
    if (take(p, '}'))
        return COMET_OK;
    do {
        COMET_TRY(take_text(p));
    } while (take(p, ','));
    return take(p, '}') ? COMET_OK : damaged(p, "the metadata does not end");
}

/* One "name": {...}. */
static comet_status take_member(parser *p, int *has_metadata) {
    comet_safetensors_index *index = p->index;
    char *name;
    COMET_TRY(take_string(p, &name));
    if (!take(p, ':'))
        return damaged(p, "a colon is missing");
    if (strcmp(name, "__metadata__") == 0)
        return (*has_metadata)++ ? damaged(p, "there is metadata twice") : take_metadata(p);
    comet_safetensors_entry *entries = comet_array_reserve(p->allocator, index->entries, index->count, index->count + 1,
                                                           &index->capacity, sizeof *entries);
    if (!entries)
        return comet_message_memory(p->message);
    index->entries = entries;
    comet_safetensors_entry *entry = &entries[index->count++];
    *entry = (comet_safetensors_entry){.name = name};
    return take_tensor(p, entry);
}

comet_status comet_safetensors_parse(char *text, size_t bytes, const comet_allocator *allocator,
                                     comet_safetensors_index *index, comet_message *message) {
    parser p = {text, text + bytes, allocator, index, message};
    int has_metadata = 0;
    if (bytes == 0 || *text != '{')
        return damaged(&p, "it does not begin with a brace");
    p.at++;
    if (!take(&p, '}')) {
        do {
            COMET_TRY(take_member(&p, &has_metadata));
        } while (take(&p, ','));
        if (!take(&p, '}'))
            return damaged(&p, "it does not end");
    }
    skip_space(&p);
    return p.at == p.end ? COMET_OK : damaged(&p, "something follows it");
}

void comet_safetensors_index_free(comet_safetensors_index *index, const comet_allocator *allocator) {
    comet_memory_give(allocator, index->entries, index->capacity * sizeof *index->entries);
    comet_memory_give(allocator, index->metadata, index->metadata_capacity * sizeof *index->metadata);
    *index = (comet_safetensors_index){0};
}
