/* SPDX-License-Identifier: Apache-2.0 */
#include "store/host/store_io.h"

#include <unistd.h>

static ssize_t system_write(void *context, int file, const void *data, size_t bytes, off_t offset) {
    (void)context;
    return pwrite(file, data, bytes, offset);
}

static ssize_t system_read(void *context, int file, void *data, size_t bytes, off_t offset) {
    (void)context;
    return pread(file, data, bytes, offset);
}

static int system_truncate(void *context, int file, off_t bytes) {
    (void)context;
    return ftruncate(file, bytes);
}

const store_io comet_store_io_system = {NULL, system_write, system_read, system_truncate};
