/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are there completely or not at all, whenever the machine stops. */
#ifndef COMET_BASE_FILE_ATOMIC_FILE_H
#define COMET_BASE_FILE_ATOMIC_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/message.h"

/*
 * A file being written under the name FILE.tmp beside its final one, FILE. What an interrupted program left there is
 * written over by the next one. Two programs cannot write the same file at a time.
 */
typedef struct comet_atomic_file {
    int descriptor; /* -1: not open */
    char *path;     /* final, links resolved */
    char *temporary;
} comet_atomic_file;

comet_status comet_atomic_file_open(comet_atomic_file *file, const char *path, comet_message *message);

/* Appends. */
comet_status comet_atomic_file_write(comet_atomic_file *file, const void *data, size_t bytes, comet_message *message);

/* A stream of its own that appends to it, for fprintf; NULL: no memory. Closed with fclose, before the commit. */
FILE *comet_atomic_file_stream(comet_atomic_file *file);

/*
 * Brings it to the disk and gives it its name; then the folder to the disk, too. After a failure the former file, if
 * there was one, is unchanged.
 */
comet_status comet_atomic_file_commit(comet_atomic_file *file, comet_message *message);

/* After any failure; harmless after a commit. */
void comet_atomic_file_abandon(comet_atomic_file *file);

#endif
