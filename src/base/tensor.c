/* SPDX-License-Identifier: Apache-2.0 */
#include "comet/tensor.h"

#include <stdio.h>

#include "base/fail.h"
#include "base/tensor_check.h"

size_t comet_dtype_size(comet_dtype dtype) {
    switch (dtype) {
    case COMET_F32:
        return 4;
    case COMET_F16:
    case COMET_BF16:
        return 2;
    case COMET_U8:
        return 1;
    }
    return 0;
}

const char *comet_dtype_name(comet_dtype dtype) {
    switch (dtype) {
    case COMET_F32:
        return "fp32";
    case COMET_F16:
        return "fp16";
    case COMET_BF16:
        return "bf16";
    case COMET_U8:
        return "u8";
    }
    return "?";
}

int64_t comet_shape_count(int32_t ndim, const int64_t *shape) {
    int64_t count = 1;
    for (int32_t d = 0; d < ndim; d++)
        if (shape[d] < 0)
            return -1;
        else if (shape[d] == 0)
            count = 0;
    for (int32_t d = 0; d < ndim && count; d++) {
        if (shape[d] > COMET_MAX_COUNT / count)
            return -1;
        count *= shape[d];
    }
    return count;
}

int comet_shape_is_valid(int32_t ndim, const int64_t *shape) {
    return ndim >= 0 && ndim <= COMET_MAX_DIMS && comet_shape_count(ndim, shape) >= 0;
}

/* `of`: what the reason calls the view, "tensor->", or "" where dtype and all are arguments themselves. */
static comet_status check_kind(const char *of, comet_dtype dtype, comet_layout layout) {
    COMET_REQUIRE(comet_dtype_size(dtype), "%sdtype is %d, which is none", of, (int)dtype);
    COMET_REQUIRE(layout >= COMET_FLAT && layout <= COMET_NHWC, "%slayout is %d, which is none", of, (int)layout);
    return COMET_OK;
}

static comet_status check_shape(const char *of, int32_t ndim, const int64_t *shape) {
    COMET_REQUIRE(ndim >= 0 && ndim <= COMET_MAX_DIMS, "%sndim is %d: it must be 0 to %d", of, (int)ndim,
                  COMET_MAX_DIMS);
    COMET_REQUIRE(ndim == 0 || shape, "%sshape is NULL", of);
    for (int32_t d = 0; d < ndim; d++)
        COMET_REQUIRE(shape[d] >= 0, "%sshape[%d] is %lld: it must not be negative", of, (int)d, (long long)shape[d]);
    COMET_REQUIRE(comet_shape_count(ndim, shape) >= 0, "%sshape has more than 2^48 values", of);
    return COMET_OK;
}

comet_status comet_tensor_check_shape(const comet_tensor *tensor, const char *name) {
    char of[32];
    COMET_REQUIRE(tensor, "%s is NULL", name);
    snprintf(of, sizeof of, "%s->", name);
    COMET_TRY(check_kind(of, tensor->dtype, tensor->layout));
    return check_shape(of, tensor->ndim, tensor->shape);
}

comet_status comet_tensor_check(const comet_tensor *tensor, const char *name) {
    COMET_TRY(comet_tensor_check_shape(tensor, name));
    COMET_REQUIRE(tensor->data || comet_tensor_count(tensor) == 0, "%s->data is NULL", name);
    return COMET_OK;
}

comet_status comet_tensor_init(comet_tensor *tensor, void *data, comet_dtype dtype, comet_layout layout, int32_t ndim,
                               const int64_t *shape) {
    return comet_tensor_init_on(tensor, (comet_device){COMET_CPU, 0}, data, dtype, layout, ndim, shape);
}

comet_status comet_tensor_init_on(comet_tensor *tensor, comet_device device, void *data, comet_dtype dtype,
                                  comet_layout layout, int32_t ndim, const int64_t *shape) {
    comet_begin();
    COMET_REQUIRE(device.kind == COMET_CPU || device.kind == COMET_CUDA, "device.kind is %d, which is none",
                  (int)device.kind);
    COMET_REQUIRE(device.index >= 0, "device.index is %d: it must not be negative", (int)device.index);
    COMET_REQUIRE_POINTER(tensor);
    COMET_TRY(check_kind("", dtype, layout));
    COMET_TRY(check_shape("", ndim, shape));
    *tensor = (comet_tensor){.data = data, .device = device, .dtype = dtype, .layout = layout, .ndim = ndim};
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        tensor->shape[d] = shape[d];
        tensor->strides[d] = stride;
        /* beside an empty dimension extents may be of any size; any stride does, but none may overflow */
        stride = shape[d] <= COMET_MAX_COUNT / stride ? stride * (shape[d] ? shape[d] : 1) : COMET_MAX_COUNT;
    }
    return COMET_OK;
}

int64_t comet_tensor_count(const comet_tensor *tensor) {
    return comet_shape_count(tensor->ndim, tensor->shape);
}

int comet_tensor_is_contiguous(const comet_tensor *tensor) {
    if (comet_tensor_count(tensor) == 0)
        return 1;
    int64_t stride = 1;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != stride)
            return 0;
        stride *= tensor->shape[d];
    }
    return 1;
}

int64_t comet_tensor_channels(const comet_tensor *tensor) {
    if (tensor->layout == COMET_NHWC && tensor->ndim >= 1)
        return tensor->shape[tensor->ndim - 1];
    return tensor->layout == COMET_NCHW && tensor->ndim >= 3 ? tensor->shape[1] : 1;
}
