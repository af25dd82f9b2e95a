/* SPDX-License-Identifier: Apache-2.0 */
/* Files that one program has at a time, and files that make way for others without being lost. */
#ifndef COMET_BASE_FILE_EXCLUSIVE_FILE_H
#define COMET_BASE_FILE_EXCLUSIVE_FILE_H

#include <stddef.h>

/*
 * Opens `path` to read and write, makes it if it is not there, and locks it. The lock ends with the descriptor, or with
 * the process, however that ends. A child made by fork has it too, until it closes the descriptor.
 */
typedef enum comet_exclusive {
    COMET_EXCLUSIVE_OK,
    COMET_EXCLUSIVE_BUSY,
    COMET_EXCLUSIVE_FAILED /* errno */
} comet_exclusive;
comet_exclusive comet_exclusive_open(const char *path, int *descriptor);

/*
 * Gives `path` the first of the names STEM + EXTENSION, STEM-2 + EXTENSION, STEM-3 + EXTENSION, ... that is free, and
 * puts it into `to`. At any moment the file has its old name, its new one, or both; nothing is ever replaced. 0, or -1
 * and errno.
 */
int comet_put_aside(const char *path, const char *stem, const char *extension, char *to, size_t capacity);

#endif
