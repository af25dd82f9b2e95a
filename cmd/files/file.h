/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files in, and files out that appear complete or not at all. */
#ifndef COMET_CMD_FILE_H
#define COMET_CMD_FILE_H

#include <stdio.h>

#include "base/file/atomic_file.h"
#include "base/message.h"
#include "cmd/files/buffer.h"

int file_read(const char *path, buffer *content);

/* 1 if `path` ends in `extension` (".npy"), in any case. */
int file_has_extension(const char *path, const char *extension);

/* The last part of `path` without its last extension, into `stem` of `capacity` bytes. */
void file_stem(const char *path, char *stem, size_t capacity);

/*
 * A file being written. It has a temporary name beside the final one until output_commit; output_abandon, or a signal
 * that ends the process, removes it. One at a time.
 */
typedef struct output_file {
    FILE *file;        /* what output_write writes to */
    const char *given; /* the path as the user wrote it */
    comet_atomic_file target;
} output_file;

/* Refuses to write over `input`, over anything but a regular file, and into a folder that is not there. */
int output_open(output_file *out, const char *path, const char *input);
int output_write(output_file *out, const void *data, size_t bytes);
int output_commit(output_file *out);

/* After any failure, and harmless after a commit. */
void output_abandon(output_file *out);

/*
 * Whether a file could be written there: better known before a training than behind it. What is there stays as it is.
 * COMET_ERROR_IO, with a line that names the option. `path` NULL: none is wanted.
 */
comet_status output_try(const char *option, const char *path, comet_message *message);

#endif
