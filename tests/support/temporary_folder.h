/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder for the files that a test writes; set-up and tear-down of a group of tests. To be included first: it asks
 * for nftw and mkdtemp.
 */
#ifndef TEST_SUPPORT_TEMPORARY_FOLDER_H
#define TEST_SUPPORT_TEMPORARY_FOLDER_H

#define _XOPEN_SOURCE 700 /* nftw, mkdtemp */
#include "support/assert_ok.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char temporary_folder[64];

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline int make_temporary_folder(void **state) {
    (void)state;
    snprintf(temporary_folder, sizeof temporary_folder, "/tmp/comet-test-XXXXXX");
    return mkdtemp(temporary_folder) ? 0 : -1;
}

static inline int remove_temporary_folder(void **state) {
    (void)state;
    return nftw(temporary_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the temporary folder; the result of one of the last 256 calls. */
static inline const char *in_folder(const char *name) {
    static char paths[256][512];
    static int next;
    char *path = paths[next++ % 256];
    snprintf(path, sizeof paths[0], "%s/%s", temporary_folder, name);
    return path;
}

#endif
