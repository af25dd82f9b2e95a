/* SPDX-License-Identifier: Apache-2.0 */
/* A list of named tensors in memory, row-major without gaps: what bench and demo work on. */
#ifndef COMET_CMD_TENSORS_H
#define COMET_CMD_TENSORS_H

#include "cmd/files/array.h"

typedef struct named_tensor {
    char *name;
    array array;
} named_tensor;

typedef struct tensor_list {
    named_tensor *items;
    size_t count, room;
} tensor_list;

/* A new tensor at the end of the list, values not set; *added is valid until the next one. The name is copied. */
int tensors_add(tensor_list *list, const char *name, comet_dtype dtype, comet_layout layout, int32_t ndim,
                const int64_t *shape, array **added);

/* All tensors of a .npy or .npz file; their names are the file's, and the member's behind a slash. */
int tensors_load(tensor_list *list, const char *path);

/* Those behind it move up. */
void tensors_remove(tensor_list *list, size_t index);

void tensors_free(tensor_list *list);

#endif
