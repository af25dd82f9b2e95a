/* SPDX-License-Identifier: Apache-2.0 */
/* A file as named pieces of bytes: a plain file is one piece, a zip archive one for each member. */
#ifndef COMET_CMD_BUNDLE_H
#define COMET_CMD_BUNDLE_H

#include "cmd/files/buffer.h"
#include "cmd/files/zip.h"

typedef struct bundle {
    const char *path;
    buffer file;
    int is_archive;
    zip_archive archive;
    size_t count;
    char stem[256]; /* the name of a plain file's piece */
} bundle;

typedef struct blob {
    const char *name;
    char where[512]; /* for messages: the file, and the member if there is one */
    const uint8_t *data;
    size_t bytes;
    buffer memory; /* what `data` needs, if it is not in the bundle's file */
} blob;

/* `path` must outlive the bundle. as_plain: one piece, whatever it looks like. */
int bundle_open(bundle *b, const char *path, int as_plain);
void bundle_close(bundle *b);

/* The bundle must outlive the blob. */
int bundle_get(const bundle *b, size_t index, blob *piece);
void blob_give(blob *piece);

/*
 * `name` with the ending `from` (if it is there) replaced by `to`, such as ".npy" by ".comet". NULL without memory;
 * free() it.
 */
char *name_replace_ending(const char *name, const char *from, const char *to);

#endif
