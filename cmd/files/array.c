/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors from files. */
#include "cmd/files/array.h"

#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/files/npy.h"

int array_format_parse(array_format *format, const char *dtype, const char *layout, const char *shape) {
    *format = (array_format){.has_dtype = dtype != NULL, .has_layout = layout != NULL, .has_shape = shape != NULL};
    if (dtype && parse_dtype("--dtype", dtype, &format->dtype) != DONE)
        return MISUSED;
    if (layout && parse_layout("--layout", layout, &format->layout) != DONE)
        return MISUSED;
    if (shape && !dtype)
        return misuse("--shape is for raw files and needs --dtype too");
    return shape ? parse_shape("--shape", shape, &format->ndim, format->shape) : DONE;
}

size_t array_bytes(const array *a) {
    return (size_t)comet_tensor_count(&a->tensor) * comet_dtype_size(a->tensor.dtype);
}

void array_give(array *a) {
    buffer_give(&a->memory);
}

int array_new(array *a, comet_dtype dtype, comet_layout layout, int32_t ndim, const int64_t *shape) {
    *a = (array){0};
    if (comet_tensor_init(&a->tensor, NULL, dtype, layout, ndim, shape) != COMET_OK)
        return fail("a shape is not valid or too large");
    if (buffer_take(&a->memory, array_bytes(a)) != DONE)
        return FAILED;
    a->tensor.data = a->memory.data;
    return DONE;
}

static comet_layout layout_of(const array_format *format, int32_t ndim) {
    if (format->has_layout)
        return format->layout;
    return ndim == 4 ? COMET_NCHW : COMET_FLAT;
}

/* Points the view at `bytes` bytes of values, copied where they are not aligned. */
static int set_values(array *a, const blob *piece, const uint8_t *values, size_t bytes) {
    size_t needed = array_bytes(a);
    if (bytes != needed)
        return fail("%s has %zu bytes of values where its shape and type need %zu%s", piece->where, bytes, needed,
                    bytes < needed ? "; is it cut short?" : "");
    a->tensor.data = (void *)(uintptr_t)values; /* only ever read */
    if ((uintptr_t)values % comet_dtype_size(a->tensor.dtype) == 0)
        return DONE;
    if (buffer_take(&a->memory, bytes) != DONE)
        return FAILED;
    a->tensor.data = memcpy(a->memory.data, values, bytes);
    return DONE;
}

static int find_npy_type(const blob *piece, const array_format *format, const char *type, comet_dtype *dtype) {
    static const struct {
        const char *name;
        comet_dtype dtype;
    } types[] = {{"<f4", COMET_F32},  {"<f2", COMET_F16},  {"|u1", COMET_U8},
                 {"<u2", COMET_BF16}, {"<V2", COMET_BF16}, {"|V2", COMET_BF16}};
    size_t i = 0, count = sizeof types / sizeof *types;
    while (i < count && strcmp(types[i].name, type) != 0)
        i++;
    if (i == count)
        return fail("%s holds values of numpy type '%s'; convert them to float32, float16 or uint8 first", piece->where,
                    type);
    *dtype = types[i].dtype;
    if (*dtype == COMET_BF16 && !format->has_dtype)
        return fail("%s holds 16-bit words ('%s'); if they are bfloat16, add --dtype bf16", piece->where, type);
    if (format->has_dtype && format->dtype != *dtype)
        return fail("%s holds values of numpy type '%s', not %s; leave --dtype out", piece->where, type,
                    dtype_option(format->dtype));
    return DONE;
}

/*
 * Without values any strides do; beside an empty dimension extents may be of any size, and their product may overflow.
 */
static void make_fortran_order(comet_tensor *tensor) {
    int64_t stride = 1;
    for (int32_t d = 0; d < tensor->ndim && comet_tensor_count(tensor) > 0; d++) {
        tensor->strides[d] = stride;
        stride *= tensor->shape[d];
    }
}

static int from_npy(const blob *piece, const array_format *format, array *a) {
    npy_header header;
    comet_dtype dtype = COMET_F32;
    const char *problem = npy_parse(piece->data, piece->bytes, &header);
    if (problem)
        return fail("cannot read %s: %s", piece->where, problem);
    if (find_npy_type(piece, format, header.type, &dtype) != DONE)
        return FAILED;
    comet_layout layout = layout_of(format, header.ndim);
    if (comet_tensor_init(&a->tensor, NULL, dtype, layout, header.ndim, header.shape) != COMET_OK)
        return fail("%s has a shape that is not possible", piece->where);
    if (header.fortran_order)
        make_fortran_order(&a->tensor);
    return set_values(a, piece, piece->data + header.data_offset, piece->bytes - header.data_offset);
}

static int from_raw(const blob *piece, const array_format *format, array *a) {
    comet_layout layout = layout_of(format, format->ndim);
    if (comet_tensor_init(&a->tensor, NULL, format->dtype, layout, format->ndim, format->shape) != COMET_OK)
        return fail("the shape given for %s is not possible", piece->where);
    return set_values(a, piece, piece->data, piece->bytes);
}

int array_from_blob(const blob *piece, const array_format *format, array *a) {
    *a = (array){0};
    if (format->has_shape)
        return from_raw(piece, format, a);
    if (npy_is(piece->data, piece->bytes))
        return from_npy(piece, format, a);
    if (piece->bytes >= 4 && memcmp(piece->data, "CMET", 4) == 0)
        return fail("%s is a Comet stream already", piece->where);
    return fail("%s is neither .npy nor .npz; if it is raw, give --dtype and --shape", piece->where);
}
