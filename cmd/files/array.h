/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors from files: .npy pieces and raw ones. */
#ifndef COMET_CMD_ARRAY_H
#define COMET_CMD_ARRAY_H

#include "cmd/files/buffer.h"
#include "cmd/files/bundle.h"
#include "comet/tensor.h"

/* What the user said of the input; what was not said comes from the file. */
typedef struct array_format {
    int has_dtype, has_layout, has_shape;
    comet_dtype dtype;
    comet_layout layout;
    int32_t ndim;
    int64_t shape[COMET_MAX_DIMS]; /* with a shape the file is raw */
} array_format;

/* Fills it from the texts of --dtype, --layout and --shape (NULL: not given). */
int array_format_parse(array_format *format, const char *dtype, const char *layout, const char *shape);

typedef struct array {
    comet_tensor tensor; /* any strides */
    buffer memory;       /* what the view needs, if it is not in the blob */
} array;

/* The blob must outlive the array. */
int array_from_blob(const blob *piece, const array_format *format, array *a);

/* A new row-major array, values not set. */
int array_new(array *a, comet_dtype dtype, comet_layout layout, int32_t ndim, const int64_t *shape);
void array_give(array *a);

size_t array_bytes(const array *a);

#endif
