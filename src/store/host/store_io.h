/* SPDX-License-Identifier: Apache-2.0 */
/* What the spill file needs of the system. Tests put their own in its place. */
#ifndef COMET_STORE_IO_H
#define COMET_STORE_IO_H

#include <stdint.h>
#include <sys/types.h>

/* As POSIX has them, errno included. */
typedef struct store_io {
    void *context;
    ssize_t (*write)(void *context, int file, const void *data, size_t bytes, off_t offset);
    ssize_t (*read)(void *context, int file, void *data, size_t bytes, off_t offset);
    int (*truncate)(void *context, int file, off_t bytes);
} store_io;

extern const store_io comet_store_io_system;

#endif
