/* SPDX-License-Identifier: Apache-2.0 */
/* The header of .npy files (numpy's format, versions 1 to 3): parsed strictly, written in version 1. */
#ifndef COMET_CMD_NPY_H
#define COMET_CMD_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "comet/tensor.h"

typedef struct npy_header {
    char type[16]; /* numpy's name, such as "<f4" */
    int fortran_order;
    int32_t ndim;
    int64_t shape[COMET_MAX_DIMS];
    size_t data_offset;
} npy_header;

int npy_is(const uint8_t *data, size_t bytes);

/* NULL, or what is wrong, in words. Checks the header alone: not whether the type is known, nor what follows. */
const char *npy_parse(const uint8_t *data, size_t bytes, npy_header *header);

/* The header of a C-order file with these values. bf16, which numpy does not have, is written as "<u2". */
enum { NPY_HEADER_MAX = 512 };
size_t npy_format(comet_dtype dtype, int32_t ndim, const int64_t *shape, uint8_t header[NPY_HEADER_MAX]);

#endif
