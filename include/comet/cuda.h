/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs on device memory (CUDA). The streams are those of comet/codec.h: what the GPU writes the CPU reads, and the
 * other way round.
 *
 *     comet_device device = {COMET_CUDA, 0};
 *     comet_tensor_init_on(&tensor, device, values, COMET_F32, COMET_NCHW, 4, shape);  // values: device memory
 *     comet_cuda_max_bytes(&tensor, &params, &capacity);
 *     comet_cuda_workspace(&tensor, &params, &workspace_bytes);
 *     ... cudaMalloc(stream memory, workspace, result) ...
 *     comet_cuda_workspace_init(workspace, workspace_bytes, queue);                // once
 *     comet_cuda_slot slot = {memory, capacity, NULL, result};
 *     comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
 *     exec.queue = queue, exec.workspace = workspace, exec.workspace_bytes = workspace_bytes;
 *     comet_cuda_compress(&tensor, &params, &exec, &slot, NULL);
 *     comet_cuda_decompress(&slot, &params, NULL, &exec, &tensor, status);
 *
 * Every call is ordered on `exec->queue` (a cudaStream_t; NULL is the default one) and returns at once: it
 * allocates nothing, waits for nothing and copies nothing to the host, so it can be captured in a CUDA graph. Sizes,
 * statistics and what went wrong on the device are left in device memory. Calls on different queues may be in flight
 * together if they share no output and no workspace. They run on the current device, which must be the tensor's.
 *
 * What a call returns is known to the host: bad arguments, a launch that failed, and a fault of earlier work on the
 * device (COMET_ERROR_DEVICE; CUDA reports those late, and the device's context is lost then). Without a CUDA device,
 * or in a library built without CUDA, every call here returns COMET_ERROR_NO_DEVICE.
 *
 * Tensors are contiguous (row-major in the order of their dimensions; a channels-last tensor is COMET_NHWC), of fp32,
 * fp16 or bf16, and 16-byte aligned. Pointers in comet_codec_grid are device memory here.
 */
#ifndef COMET_CUDA_H
#define COMET_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What compressing leaves in device memory. Kernels write it: its layout is fixed. */
typedef struct comet_cuda_result {
    comet_codec_record codec; /* as on the CPU; `bytes` may be more than the CPU's (docs/format.md, 'Table': gaps) */
    uint64_t start;           /* where the stream begins, from the slot's base */
    uint64_t end;     /* where another may begin: start + bytes, rounded up to 256; `start` if status is not COMET_OK */
    int32_t status;   /* COMET_OK, or COMET_ERROR_CAPACITY: it did not fit, nothing behind the capacity was written */
    int32_t reserved; /* 0 */
} comet_cuda_result;

/*
 * Where a stream lies, or shall lie, in device memory. With `start` the place is not known to the host either: streams
 * are put one behind the other by giving each the address of the `end` of the one before it, on the same queue. Its
 * layout is fixed.
 */
typedef struct comet_cuda_slot {
    void *base;                /* 256-byte aligned */
    size_t capacity;           /* bytes from `base` on that the stream may use */
    const uint64_t *start;     /* device memory: where the stream begins, a multiple of 256; NULL: at `base` */
    comet_cuda_result *result; /* device memory, 16-byte aligned; NULL only for decompressing */
} comet_cuda_slot;

/*
 * What is done to decoded values before they are written, in the same kernel: y = act(scale[c] * x + shift[c] + add),
 * rounded to the tensor's dtype, which then need not be the stream's. Only EB and ZVC.
 */
typedef struct comet_cuda_epilogue {
    size_t size;        /* sizeof(comet_cuda_epilogue) */
    int64_t channels;   /* values in scale and shift: the extent of the tensor's channel dimension (1 for COMET_FLAT) */
    const float *scale; /* device memory; NULL: 1 */
    const float *shift; /* device memory; NULL: 0 */
    const void *add;    /* device memory, the shape, layout and dtype of the output; NULL: nothing is added */
    int32_t relu;       /* 1: what is negative becomes 0; a NaN stays */
} comet_cuda_epilogue;

#define COMET_CUDA_EPILOGUE_INIT COMET_INIT_ZERO(comet_cuda_epilogue)

/*
 * Whether `device` can be used. COMET_ERROR_NO_DEVICE: there is no such GPU, no driver, or this library was built
 * without CUDA. COMET_ERROR_DRIVER: the driver is older than the CUDA runtime this library was built with.
 * COMET_ERROR_UNSUPPORTED: the GPU is older than what it was built for.
 */
COMET_API comet_status comet_cuda_check(int32_t device);

/* The most bytes that compressing `tensor` can take in device memory. Only shape, dtype and layout are read. */
COMET_API comet_status comet_cuda_max_bytes(const comet_tensor *tensor, const comet_codec_params *params,
                                            size_t *bytes);

/* The workspace that compressing `tensor` or decompressing into it needs. May be 0. */
COMET_API comet_status comet_cuda_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                            size_t *bytes);

/*
 * Makes device memory (256-byte aligned) a workspace. Once; every call leaves it ready for the next one of the same
 * queue, whatever tensor and parameters that has, as long as it is large enough.
 */
COMET_API comet_status comet_cuda_workspace_init(void *workspace, size_t bytes, void *queue);

/*
 * Compresses `tensor` into `slot`. The result goes to slot->result and, if `host` is not NULL, is copied there too:
 * page-locked host memory that may be read when the queue has come this far.
 *
 * The bound is params->device_bound[0] if that is not NULL (read when the kernel runs), else params->bound. A relative
 * bound is that times the root mean square of params->device_stats, statistics in device memory (of the last step,
 * say), or if that is NULL of the tensor itself, in a pass of its own. A device bound that is negative or not finite is
 * taken as 0: lossless. A checksum is not made on the device: COMET_ERROR_UNSUPPORTED (comet_codec_serialise makes
 * one).
 */
COMET_API comet_status comet_cuda_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                           const comet_codec_exec *exec, const comet_cuda_slot *slot,
                                           comet_cuda_result *host);

/*
 * Decompresses `slot` into `tensor`. `params` are those it was compressed with (bound and seed are not read).
 * `epilogue` may be NULL. `status`, in device memory, is set to a comet_status if the stream is corrupt, is not what
 * `params` and `tensor` say, or did not fit when it was compressed; it is never set back, so that one word can watch
 * over many calls. A checksum is not verified. Reads stay inside the slot and writes inside the tensor whatever the
 * stream holds; after an error the tensor's content is unspecified.
 */
COMET_API comet_status comet_cuda_decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                                             const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                                             const comet_tensor *tensor, int32_t *status);

#ifdef __cplusplus
}
#endif

#endif
