/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/cuda/runtime.h"

#include "base/fail.h"

/* A driver that is not there at all is reported as one that is too old, but has version 0. */
static comet_status driver_status(void) {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version > 0 ? COMET_ERROR_DRIVER : COMET_ERROR_NO_DEVICE;
}

static comet_status status_of(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return COMET_OK;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorStubLibrary: /* the toolkit's stand-in for the driver, found in its place */
        return COMET_ERROR_NO_DEVICE;
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return driver_status();
    case cudaErrorMemoryAllocation:
        return COMET_ERROR_MEMORY;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorNotSupported:
        return COMET_ERROR_UNSUPPORTED;
    default:
        return COMET_ERROR_DEVICE;
    }
}

comet_status comet_cuda_status(cudaError_t error) {
    if (error == cudaSuccess)
        return COMET_OK;
    comet_status status = status_of(error);
    (void)cudaGetLastError();
    return comet_fail(status, "CUDA says: %s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

/* What comet_cuda_current said last, and what was asked of that device since then. */
static _Thread_local struct { int device, multiprocessors; /* 0: not asked yet */ } current;

comet_status comet_cuda_current(int32_t *device) {
    current.device = current.multiprocessors = 0;
    comet_status status = comet_cuda_status(cudaGetDevice(&current.device));
    *device = current.device;
    return status;
}

uint32_t comet_cuda_multiprocessors(void) {
    if (!current.multiprocessors &&
        cudaDeviceGetAttribute(&current.multiprocessors, cudaDevAttrMultiProcessorCount, current.device) != cudaSuccess)
        current.multiprocessors = 1; /* the launch will say what is wrong */
    return (uint32_t)current.multiprocessors;
}
