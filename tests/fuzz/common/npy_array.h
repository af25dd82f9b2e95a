/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for the tensor that the command makes of a .npy file, whatever is in that. */
#ifndef TESTS_FUZZ_COMMON_NPY_ARRAY_H
#define TESTS_FUZZ_COMMON_NPY_ARRAY_H

#include <string.h>

#include "cmd/common/command.h"
#include "cmd/files/array.h"
#include "cmd/files/npy.h"
#include "common/expect.h"

/* The last value of a view, in values from its start. */
static inline int64_t last_value(const comet_tensor *t) {
    int64_t last = 0;
    for (int32_t d = 0; d < t->ndim; d++)
        last += (t->shape[d] - 1) * t->strides[d];
    return last;
}

/* The header that the command writes for this tensor is read as it was. */
static inline void check_header_again(const comet_tensor *t) {
    uint8_t header[NPY_HEADER_MAX];
    npy_header again;
    size_t bytes = npy_format(t->dtype, t->ndim, t->shape, header);
    EXPECT(bytes % 64 == 0 && npy_parse(header, bytes, &again) == NULL);
    EXPECT(again.ndim == t->ndim && !again.fortran_order && again.data_offset == bytes);
    EXPECT(memcmp(again.shape, t->shape, (size_t)t->ndim * sizeof *t->shape) == 0);
}

static inline void check_array(const blob *piece, const array_format *format) {
    array a;
    if (array_from_blob(piece, format, &a) == DONE) {
        const comet_tensor *t = &a.tensor;
        int64_t count = comet_tensor_count(t);
        const uint8_t *values = t->data;
        size_t size = comet_dtype_size(t->dtype), bytes = array_bytes(&a);
        EXPECT(count >= 0 && bytes <= piece->bytes && size > 0);
        EXPECT(count == 0 || last_value(t) == count - 1);
        EXPECT(count == 0 || (uintptr_t)values % size == 0);
        EXPECT(count == 0 || a.memory.data || (values >= piece->data && values + bytes <= piece->data + piece->bytes));
        EXPECT(count == 0 || memcmp(values, piece->data + piece->bytes - bytes, bytes) == 0); /* all of them are read */
        check_header_again(t);
    }
    array_give(&a);
}

#endif
