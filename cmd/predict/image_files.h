/* SPDX-License-Identifier: Apache-2.0 */
/* The image files that a user names: files, and all images below folders. */
#ifndef COMET_CMD_IMAGE_FILES_H
#define COMET_CMD_IMAGE_FILES_H

#include <stdint.h>

#include "cmd/common/options.h"

typedef struct image_files {
    const char **paths;
    int64_t count;
    size_t room;
} image_files;

/* In the order of `named`, those of a folder in the order of their names. FAILED, after a line, if one is not there. */
int image_files_find(image_files *files, const text_array *named);
void image_files_free(image_files *files);

#endif
