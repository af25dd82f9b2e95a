/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a folder. */
#ifndef COMET_DATA_SCAN_H
#define COMET_DATA_SCAN_H

#include "data/sets/names.h"

enum { COMET_SCAN_PATH_BYTES = 4096 };

/* Adds the names of the folders in `path`, hidden ones aside. */
comet_status comet_scan_folders(const char *path, comet_names *names, comet_message *message);

/*
 * Adds the files below root/start (start "": root itself) that are called *.jpg, *.jpeg or *.png, as paths from `root`.
 * Hidden ones are left out.
 */
comet_status comet_scan_images(const char *root, const char *start, comet_names *names, comet_message *message);

/* 1 if it is a folder. */
int comet_scan_is_folder(const char *path);

#endif
