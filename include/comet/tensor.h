/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view of a tensor that somebody else owns: pointer, type, shape, strides and what the dimensions mean.
 * Nothing here allocates or keeps a reference. All functions are thread-safe.
 */
#ifndef COMET_TENSOR_H
#define COMET_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "comet/export.h"
#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COMET_MAX_DIMS 8

typedef enum comet_dtype { COMET_F32 = 0, COMET_F16 = 1, COMET_BF16 = 2, COMET_U8 = 3 } comet_dtype;

/* What the dimensions mean. Codecs use it to find neighbours; it never changes which values are stored. */
typedef enum comet_layout {
    COMET_FLAT = 0, /* no spatial meaning */
    COMET_NCHW = 1, /* last dimension is a row of a map, dimension 1 the channel (of 3 or more dimensions) */
    COMET_NHWC = 2  /* last dimension is the channel, the one before it a row of a map */
} comet_layout;

typedef enum comet_device_kind { COMET_CPU = 0, COMET_CUDA = 1 } comet_device_kind;

typedef struct comet_device {
    comet_device_kind kind;
    int32_t index;
} comet_device;

/* Its layout is fixed. */
typedef struct comet_tensor {
    void *data;
    comet_device device;
    comet_dtype dtype;
    comet_layout layout;
    int32_t ndim;                    /* 0 (a scalar) to COMET_MAX_DIMS */
    int64_t shape[COMET_MAX_DIMS];   /* outermost first; 0 is allowed */
    int64_t strides[COMET_MAX_DIMS]; /* in values, not bytes; any sign, 0 for a repeated dimension */
} comet_tensor;

/* Bytes of one value, 0 for an unknown type. */
COMET_API size_t comet_dtype_size(comet_dtype dtype);

/* "fp32", "fp16", "bf16", "u8"; "?" for an unknown type. */
COMET_API const char *comet_dtype_name(comet_dtype dtype);

/*
 * Fills `tensor` with a contiguous (row-major) CPU view of `data`.
 * COMET_ERROR_ARGUMENT: ndim out of range, a negative extent, or more values than 2^48.
 */
COMET_API comet_status comet_tensor_init(comet_tensor *tensor, void *data, comet_dtype dtype, comet_layout layout,
                                         int32_t ndim, const int64_t *shape);

/*
 * The same for memory of a device: comet_tensor_init_on(&tensor, device, ...), comet_device device = {COMET_CUDA, 0}.
 * COMET_ERROR_ARGUMENT also for a device of an unknown kind or a negative index. The device is not looked at.
 */
COMET_API comet_status comet_tensor_init_on(comet_tensor *tensor, comet_device device, void *data, comet_dtype dtype,
                                            comet_layout layout, int32_t ndim, const int64_t *shape);

/* The number of values: the product of the shape, 1 for ndim 0. Only meaningful for a valid view. */
COMET_API int64_t comet_tensor_count(const comet_tensor *tensor);

/* 1 if the values lie row-major without gaps. */
COMET_API int comet_tensor_is_contiguous(const comet_tensor *tensor);

/*
 * Fills `tensor` from a DLPack tensor (CPU, CUDA and pinned-host devices; float 32/16, bfloat 16, uint 8, bool; one
 * lane). `source` is a `const DLTensor *`; its type has no tag that could be declared here without DLPack's header.
 * `layout` names the dimensions as DLPack orders them, with one exception that frameworks make necessary: a 4-D tensor
 * given as COMET_NCHW whose strides are channels-last becomes a COMET_NHWC view of the same values (dimensions permuted
 * to N, H, W, C). COMET_ERROR_UNSUPPORTED: another device or type. The view is valid as long as `source` is.
 */
COMET_API comet_status comet_tensor_from_dlpack(const void *source, comet_layout layout, comet_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif
