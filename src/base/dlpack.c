/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack tensors as views. The only file that knows DLPack's structs. */
#include <dlpack/dlpack.h>

#include "base/fail.h"
#include "comet/tensor.h"

/* Later versions of DLPack define these; the numbers are part of its ABI. */
enum { CODE_BOOL = 6, DEVICE_CUDA_HOST = 3, DEVICE_CUDA_MANAGED = 13 };

static comet_status device_of(DLDevice source, comet_device *device) {
    switch ((int)source.device_type) {
    case kDLCPU:
    case DEVICE_CUDA_HOST:
        *device = (comet_device){COMET_CPU, 0};
        return COMET_OK;
    case DEVICE_CUDA_MANAGED:
    case 2: /* kDLCUDA, kDLGPU before 0.5 */
        *device = (comet_device){COMET_CUDA, source.device_id};
        return COMET_OK;
    default:
        return comet_fail(COMET_ERROR_UNSUPPORTED, "source is on device type %d of DLPack: only CPU and CUDA are known",
                          (int)source.device_type);
    }
}

static comet_status dtype_of(DLDataType source, comet_dtype *dtype) {
    if (source.lanes != 1)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "source has values of %u lanes: it must be 1", source.lanes);
    if (source.code == kDLFloat && source.bits == 32)
        *dtype = COMET_F32;
    else if (source.code == kDLFloat && source.bits == 16)
        *dtype = COMET_F16;
    else if (source.code == kDLBfloat && source.bits == 16)
        *dtype = COMET_BF16;
    else if ((source.code == kDLUInt || source.code == CODE_BOOL) && source.bits == 8)
        *dtype = COMET_U8;
    else
        return comet_fail(
            COMET_ERROR_UNSUPPORTED,
            "source has values of type %u of DLPack with %u bits: it must be fp32, fp16, bf16, u8 or bool", source.code,
            source.bits);
    return COMET_OK;
}

/* 1 if (N, C, H, W) lies in memory as N, H, W, C without gaps and not also as N, C, H, W. */
static int is_channels_last(const comet_tensor *t) {
    if (t->layout != COMET_NCHW || t->ndim != 4 || comet_tensor_is_contiguous(t))
        return 0;
    comet_tensor permuted = *t;
    static const int order[4] = {0, 2, 3, 1};
    for (int d = 0; d < 4; d++) {
        permuted.shape[d] = t->shape[order[d]];
        permuted.strides[d] = t->strides[order[d]];
    }
    return comet_tensor_is_contiguous(&permuted);
}

static void permute_to_channels_last(comet_tensor *t) {
    int64_t channels = t->shape[1], stride = t->strides[1];
    for (int d = 1; d < 3; d++) {
        t->shape[d] = t->shape[d + 1];
        t->strides[d] = t->strides[d + 1];
    }
    t->shape[3] = channels;
    t->strides[3] = stride;
    t->layout = COMET_NHWC;
}

comet_status comet_tensor_from_dlpack(const void *dl_tensor, comet_layout layout, comet_tensor *tensor) {
    const DLTensor *source = dl_tensor;
    comet_begin();
    COMET_REQUIRE_POINTER(source);
    COMET_REQUIRE_POINTER(tensor);
    COMET_REQUIRE(source->ndim <= 0 || source->shape, "source->shape is NULL");
    comet_dtype dtype = COMET_F32;
    comet_device device;
    COMET_TRY(dtype_of(source->dtype, &dtype));
    COMET_TRY(device_of(source->device, &device));
    void *data = source->data ? (char *)source->data + source->byte_offset : NULL;
    COMET_TRY(comet_tensor_init_on(tensor, device, data, dtype, layout, source->ndim, source->shape));
    if (source->strides)
        for (int32_t d = 0; d < source->ndim; d++)
            tensor->strides[d] = source->strides[d];
    if (is_channels_last(tensor))
        permute_to_channels_last(tensor);
    return COMET_OK;
}
