/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device store's driver over CUDA. Page-locked memory is portable and mapped: under unified addressing kernels of
 * every device reach it at the host's address.
 */
#include <cuda_runtime.h>
#include <stdint.h>

#include "base/fail.h"
#include "codec/cuda/runtime.h"
#include "store/device/device_store_driver.h"

/* ---- the current device, and captures ---- */

/* Most often it is current already: then nothing is changed. *scope is the device to go back to, or -1. */
static comet_status enter(const device_store_driver *self, int32_t device, int *scope) {
    (void)self;
    int current = 0;
    *scope = -1;
    COMET_TRY(comet_cuda_status(cudaGetDevice(&current)));
    if (current == device)
        return COMET_OK;
    COMET_TRY(comet_cuda_status(cudaSetDevice(device)));
    *scope = current;
    return COMET_OK;
}

static void leave(const device_store_driver *self, int scope) {
    (void)self;
    if (scope >= 0)
        (void)comet_cuda_status(cudaSetDevice(scope));
}

/*
 * Some calls CUDA refuses, and ends the capture, while a thread captures a queue. None of ours is part of a capture:
 * they run in relaxed mode.
 */
static comet_status relax(enum cudaStreamCaptureMode *mode) {
    *mode = cudaStreamCaptureModeRelaxed;
    return comet_cuda_status(cudaThreadExchangeStreamCaptureMode(mode));
}

/* Returns `status`. What restoring returns is not looked at: it fails only as the next call will too. */
static comet_status restore(enum cudaStreamCaptureMode mode, comet_status status) {
    (void)comet_cuda_status(cudaThreadExchangeStreamCaptureMode(&mode));
    return status;
}

/* ---- memory ---- */

static comet_status take(const device_store_driver *self, size_t bytes, void **page_locked) {
    (void)self;
    enum cudaStreamCaptureMode mode;
    COMET_TRY(relax(&mode));
    unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    return restore(mode, comet_cuda_status(cudaHostAlloc(page_locked, bytes, flags)));
}

static void give(const device_store_driver *self, void *page_locked) {
    (void)self;
    enum cudaStreamCaptureMode mode;
    if (relax(&mode) == COMET_OK)
        (void)restore(mode, comet_cuda_status(cudaFreeHost(page_locked)));
}

static comet_status zero(const device_store_driver *self, void *memory, size_t bytes, void *queue) {
    (void)self;
    return comet_cuda_status(cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)queue));
}

static comet_status to_host(const device_store_driver *self, void *page_locked, const void *memory, size_t bytes,
                            void *queue) {
    (void)self;
    return comet_cuda_status(cudaMemcpyAsync(page_locked, memory, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)queue));
}

static comet_status to_device(const device_store_driver *self, void *memory, const void *page_locked, size_t bytes,
                              void *queue) {
    (void)self;
    return comet_cuda_status(cudaMemcpyAsync(memory, page_locked, bytes, cudaMemcpyHostToDevice, (cudaStream_t)queue));
}

/* ---- codecs ---- */

static comet_status measure(const device_store_driver *self, const comet_tensor *tensor,
                            const comet_codec_params *params, size_t *most, size_t *workspace) {
    (void)self;
    COMET_TRY(comet_cuda_max_bytes(tensor, params, most));
    return comet_cuda_workspace(tensor, params, workspace);
}

static comet_status workspace_init(const device_store_driver *self, void *workspace, size_t bytes, void *queue) {
    (void)self;
    return comet_cuda_workspace_init(workspace, bytes, queue);
}

static comet_status compress(const device_store_driver *self, const comet_tensor *tensor,
                             const comet_codec_params *params, const comet_codec_exec *exec,
                             const comet_cuda_slot *slot) {
    (void)self;
    return comet_cuda_compress(tensor, params, exec, slot, NULL);
}

static comet_status decompress(const device_store_driver *self, const comet_cuda_slot *slot,
                               const comet_codec_params *params, const comet_cuda_epilogue *epilogue,
                               const comet_codec_exec *exec, const comet_tensor *tensor, int32_t *status) {
    (void)self;
    return comet_cuda_decompress(slot, params, epilogue, exec, tensor, status);
}

/* ---- queues and events ---- */

static comet_status queue_new(const device_store_driver *self, void **queue) {
    (void)self;
    cudaStream_t made = NULL;
    COMET_TRY(comet_cuda_status(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking)));
    *queue = made;
    return COMET_OK;
}

static void queue_free(const device_store_driver *self, void *queue) {
    (void)self;
    (void)comet_cuda_status(cudaStreamDestroy((cudaStream_t)queue));
}

static comet_status queue_wait(const device_store_driver *self, void *queue) {
    (void)self;
    enum cudaStreamCaptureMode mode;
    COMET_TRY(relax(&mode));
    return restore(mode, comet_cuda_status(cudaStreamSynchronize((cudaStream_t)queue)));
}

/* The default queue may not even be asked while one that it waits for is captured: it cannot be used either. */
static comet_status queue_capturing(const device_store_driver *self, void *queue, int *capturing) {
    (void)self;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)queue, &status);
    comet_status known = comet_cuda_status(error);
    /* an invalidated capture is one until it is ended */
    *capturing = status != cudaStreamCaptureStatusNone || error == cudaErrorStreamCaptureImplicit;
    return error == cudaErrorStreamCaptureImplicit ? COMET_OK : known;
}

/* That there is work left is no error, but some CUDA remembers it as one: comet_cuda_status clears that. */
static comet_status unless_busy(cudaError_t error) {
    comet_status status = comet_cuda_status(error);
    return error == cudaErrorNotReady ? COMET_OK : status;
}

/* A queue that is captured now cannot be asked, and what it was given before need not have failed. */
static comet_status queue_health(const device_store_driver *self, void *queue) {
    enum cudaStreamCaptureMode mode;
    int capturing = 0;
    COMET_TRY(queue_capturing(self, queue, &capturing));
    if (capturing)
        return COMET_OK;
    COMET_TRY(relax(&mode));
    return restore(mode, unless_busy(cudaStreamQuery((cudaStream_t)queue)));
}

static comet_status event_new(const device_store_driver *self, void **event) {
    (void)self;
    cudaEvent_t made = NULL;
    COMET_TRY(comet_cuda_status(cudaEventCreateWithFlags(&made, cudaEventDisableTiming)));
    *event = made;
    return COMET_OK;
}

static void event_free(const device_store_driver *self, void *event) {
    (void)self;
    (void)comet_cuda_status(cudaEventDestroy((cudaEvent_t)event));
}

static comet_status event_record(const device_store_driver *self, void *event, void *queue) {
    (void)self;
    return comet_cuda_status(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)queue));
}

static comet_status event_query(const device_store_driver *self, void *event, int *reached) {
    (void)self;
    enum cudaStreamCaptureMode mode;
    COMET_TRY(relax(&mode));
    cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    *reached = error == cudaSuccess;
    return restore(mode, unless_busy(error));
}

static comet_status queue_follow(const device_store_driver *self, void *queue, void *event) {
    (void)self;
    return comet_cuda_status(cudaStreamWaitEvent((cudaStream_t)queue, (cudaEvent_t)event, 0));
}

const device_store_driver *comet_device_store_driver_cuda(void) {
    static const device_store_driver driver = {
        .enter = enter,
        .leave = leave,
        .take = take,
        .give = give,
        .measure = measure,
        .workspace_init = workspace_init,
        .compress = compress,
        .decompress = decompress,
        .zero = zero,
        .to_host = to_host,
        .to_device = to_device,
        .queue_new = queue_new,
        .queue_free = queue_free,
        .queue_wait = queue_wait,
        .queue_capturing = queue_capturing,
        .queue_health = queue_health,
        .event_new = event_new,
        .event_free = event_free,
        .event_record = event_record,
        .event_query = event_query,
        .queue_follow = queue_follow,
    };
    return &driver;
}
