/* SPDX-License-Identifier: Apache-2.0 */
/* .npy headers. The dictionary is Python source; what is accepted of Python is exactly what numpy writes there. */
#include "cmd/files/npy.h"

#include <stdio.h>
#include <string.h>

#include "cmd/files/bytes.h"

static const char magic[6] = "\x93NUMPY";
static const char *const damaged = "its .npy header is damaged";

int npy_is(const uint8_t *data, size_t bytes) {
    return bytes >= sizeof magic && memcmp(data, magic, sizeof magic) == 0;
}

/* What is left of the dictionary. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

/* Takes `token` if it comes next, spaces before it aside. */
static int take(cursor *c, const char *token) {
    skip_space(c);
    size_t length = strlen(token);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, token, length) != 0)
        return 0;
    c->at += length;
    return 1;
}

/* A quoted string without escapes; longer ones than fit `text` are refused. */
static int take_string(cursor *c, char *text, size_t capacity) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return 0;
    char quote = *c->at++;
    size_t length = 0;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || (unsigned char)*c->at < 0x20 || length + 1 >= capacity)
            return 0;
        text[length++] = *c->at++;
    }
    text[length] = '\0';
    return c->at++ < c->end;
}

static int take_extent(cursor *c, int64_t *extent) {
    skip_space(c);
    const char *start = c->at;
    int64_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (value > INT64_MAX / 100)
            return 0;
        value = value * 10 + (*c->at++ - '0');
    }
    *extent = value;
    return c->at > start;
}

static const char *take_shape(cursor *c, npy_header *header) {
    if (!take(c, "("))
        return damaged;
    int comma = 0;
    while (!take(c, ")")) {
        if (header->ndim > 0 && !comma)
            return damaged;
        if (header->ndim == COMET_MAX_DIMS)
            return "it has more than 8 dimensions";
        if (!take_extent(c, &header->shape[header->ndim++]))
            return damaged;
        comma = take(c, ",");
    }
    return header->ndim == 1 && !comma ? damaged : NULL; /* (5) is no tuple */
}

enum { KEY_TYPE = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

/* One "key: value" pair. Each key comes once. */
static const char *take_pair(cursor *c, npy_header *header, int *seen) {
    char key[16];
    if (!take_string(c, key, sizeof key) || !take(c, ":"))
        return damaged;
    int which = !strcmp(key, "descr") ? KEY_TYPE : !strcmp(key, "fortran_order") ? KEY_ORDER : KEY_SHAPE;
    if ((which == KEY_SHAPE && strcmp(key, "shape") != 0) || *seen & which)
        return damaged;
    *seen |= which;
    if (which == KEY_SHAPE)
        return take_shape(c, header);
    if (which == KEY_TYPE)
        return take_string(c, header->type, sizeof header->type) ? NULL : "its values are records, not numbers";
    header->fortran_order = take(c, "True");
    return header->fortran_order || take(c, "False") ? NULL : damaged;
}

static const char *parse_dictionary(cursor c, npy_header *header) {
    int seen = 0, comma = 1;
    if (!take(&c, "{"))
        return damaged;
    while (!take(&c, "}")) {
        if (!comma)
            return damaged;
        const char *problem = take_pair(&c, header, &seen);
        if (problem)
            return problem;
        comma = take(&c, ",");
    }
    skip_space(&c);
    return seen == KEY_ALL && c.at == c.end ? NULL : damaged;
}

const char *npy_parse(const uint8_t *data, size_t bytes, npy_header *header) {
    *header = (npy_header){0};
    if (!npy_is(data, bytes))
        return "it does not start as a .npy file does";
    if (bytes < 12)
        return "its .npy header is cut short";
    if (data[6] < 1 || data[6] > 3)
        return "its .npy version is unknown";
    size_t start = data[6] == 1 ? 10 : 12;
    size_t length = data[6] == 1 ? get_u16(data + 8) : get_u32(data + 8);
    if (length > bytes - start)
        return "its .npy header is cut short";
    header->data_offset = start + length;
    const char *text = (const char *)data + start;
    return parse_dictionary((cursor){text, text + length}, header);
}

size_t npy_format(comet_dtype dtype, int32_t ndim, const int64_t *shape, uint8_t header[NPY_HEADER_MAX]) {
    static const char *const types[] = {
        [COMET_F32] = "<f4", [COMET_F16] = "<f2", [COMET_BF16] = "<u2", [COMET_U8] = "|u1"};
    char *text = (char *)header + 10;
    size_t room = NPY_HEADER_MAX - 10, used;
    used = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[dtype]);
    for (int32_t d = 0; d < ndim; d++)
        used += (size_t)snprintf(text + used, room - used, d ? ", %lld" : "%lld", (long long)shape[d]);
    used += (size_t)snprintf(text + used, room - used, ndim == 1 ? ",), }" : "), }");
    size_t length = (10 + used + 1 + 63) / 64 * 64 - 10; /* the data starts at a multiple of 64 */
    memset(text + used, ' ', length - used);
    text[length - 1] = '\n';
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    put_u16(header + 8, length);
    return 10 + length;
}
