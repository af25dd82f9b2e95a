/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs as files, for what reads from a path. To be included first: it asks for nftw and mkdtemp. */
#ifndef TESTS_FUZZ_COMMON_FOLDER_H
#define TESTS_FUZZ_COMMON_FOLDER_H

#include "support/temporary_folder.h"

#include "common/expect.h"

static inline void folder_remove(void) {
    (void)remove_temporary_folder(NULL);
}

/* Of this process; in memory where the system has such a place, as files are written thousands of times a second. */
static inline const char *folder_get(void) {
    if (!temporary_folder[0]) {
        const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(temporary_folder, sizeof temporary_folder, "%s/comet-fuzz-XXXXXX", place);
        EXPECT(mkdtemp(temporary_folder) != NULL);
        EXPECT(atexit(folder_remove) == 0);
    }
    return temporary_folder;
}

/* Writes a file there and returns its path. */
static inline const char *folder_put(const char *name, const void *data, size_t bytes) {
    (void)folder_get();
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL);
    EXPECT(fwrite(data, 1, bytes, file) == bytes);
    EXPECT(fclose(file) == 0);
    return path;
}

#endif
