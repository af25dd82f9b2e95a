/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/idx.h"

#include "base/fail.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <zlib.h>

enum { MOST_EXTENT = 1 << 26, MOST_RATIO = 1032 }; /* the most that deflate can shrink anything */

static comet_status cut_short(const comet_idx *idx, comet_message *message) {
    int code;
    const char *why = gzerror(idx->file, &code);
    if (code == Z_ERRNO)
        return comet_message_set(message, COMET_ERROR_IO, "cannot read '%s': %s", idx->path, strerror(errno));
    int damaged = code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR;
    return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' is %s%s%s; get it again", idx->path,
                             damaged ? "damaged (" : "cut short", damaged ? why : "", damaged ? ")" : "");
}

static comet_status read_bytes(const comet_idx *idx, uint8_t *to, int64_t bytes, comet_message *message) {
    while (bytes > 0) {
        int got = gzread(idx->file, to, bytes > 1 << 20 ? 1 << 20 : (unsigned)bytes);
        if (got <= 0)
            return cut_short(idx, message);
        to += got;
        bytes -= got;
    }
    return COMET_OK;
}

static comet_status check_size(const comet_idx *idx, comet_message *message) {
    struct stat status;
    int64_t values = 1;
    for (int32_t d = 0; d < idx->ndim; d++) {
        if (idx->extents[d] < 1 || idx->extents[d] > MOST_EXTENT || values > INT64_MAX / 4 / idx->extents[d])
            return comet_message_set(message, COMET_ERROR_CORRUPT,
                                     "'%s' is empty or its header is damaged; get it again", idx->path);
        values *= idx->extents[d];
    }
    if (stat(idx->path, &status) != 0 || values / MOST_RATIO > status.st_size)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' is cut short; get it again", idx->path);
    return COMET_OK;
}

static comet_status read_header(comet_idx *idx, comet_message *message) {
    uint8_t header[16];
    COMET_TRY(read_bytes(idx, header, 4 + 4 * idx->ndim, message));
    if (header[0] || header[1] || header[2] != 8 || header[3] != idx->ndim)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' is not an IDX file of bytes with %d dimension%s",
                                 idx->path, idx->ndim, idx->ndim > 1 ? "s" : "");
    for (int32_t d = 0; d < idx->ndim; d++) {
        const uint8_t *p = header + 4 + 4 * d;
        idx->extents[d] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
    }
    return check_size(idx, message);
}

comet_status comet_idx_open(comet_idx *idx, const char *path, int32_t ndim, comet_message *message) {
    *idx = (comet_idx){.path = path, .ndim = ndim};
    struct stat information;
    if (stat(path, &information) == 0 && !S_ISREG(information.st_mode))
        return comet_message_set(message, COMET_ERROR_IO, "cannot open '%s': not a regular file", path);
    idx->file = gzopen(path, "rbe");
    if (!idx->file)
        return comet_message_set(message, COMET_ERROR_IO, "cannot open '%s': %s", path,
                                 errno ? strerror(errno) : "not enough memory");
    gzbuffer(idx->file, 1 << 17);
    comet_status status = read_header(idx, message);
    if (status != COMET_OK)
        comet_idx_close(idx);
    return status;
}

/* Reading on behind the last value makes zlib check its checksum. */
comet_status comet_idx_read(comet_idx *idx, uint8_t *values, int64_t bytes, comet_message *message) {
    uint8_t more;
    COMET_TRY(read_bytes(idx, values, bytes, message));
    int got = gzread(idx->file, &more, 1);
    if (got > 0)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "'%s' is longer than its header says; get it again",
                                 idx->path);
    return got < 0 || !gzeof(idx->file) ? cut_short(idx, message) : COMET_OK;
}

void comet_idx_close(comet_idx *idx) {
    if (idx->file)
        gzclose(idx->file);
    idx->file = NULL;
}
