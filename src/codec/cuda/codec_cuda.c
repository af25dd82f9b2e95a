/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda.h: arguments checked, the header made, the rest left to the codec's kernels. Device memory is not read. */
#include <stdint.h>
#include <string.h>

#include "base/fp_environment.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/cuda/cuda_impl.h"
#include "codec/cuda/runtime.h"

enum { ALIGN_MEMORY = 256, ALIGN_TENSOR = 16, ALIGN_RESULT = 16 };

static const cuda_codec_vtable *const device_codecs[CODEC_COUNT] = {
    [COMET_CODEC_RAW] = &comet_cuda_raw,   [COMET_CODEC_EB] = &comet_cuda_eb,
    [COMET_CODEC_ZVC] = &comet_cuda_zvc,   [COMET_CODEC_MASK] = &comet_cuda_mask,
    [COMET_CODEC_POOL] = &comet_cuda_pool, [COMET_CODEC_GROUP] = &comet_cuda_group,
    [COMET_CODEC_DCT] = &comet_cuda_dct,
};

/* NULL is aligned. */
static int is_aligned(const void *pointer, size_t alignment) {
    return (uintptr_t)pointer % alignment == 0;
}

/* ---- checks ---- */

/* On the current device, as kernels need it. */
static comet_status check_tensor(const comet_tensor *tensor, int32_t device) {
    comet_status status = comet_tensor_check(tensor);
    if (status != COMET_OK)
        return status;
    if (tensor->device.kind != COMET_CUDA || !comet_tensor_is_contiguous(tensor))
        return COMET_ERROR_UNSUPPORTED;
    return tensor->device.index == device && is_aligned(tensor->data, ALIGN_TENSOR) ? COMET_OK : COMET_ERROR_ARGUMENT;
}

/*
 * The CPU's checks, of what they can see: scale and shift of a grid are device memory. That these are finite, and that
 * a bound on the device is valid, is not known before the kernel runs.
 */
static comet_status check_as_on_cpu(const comet_tensor *tensor, const comet_codec_params *params) {
    comet_codec_params p = *params;
    comet_codec_grid grid;
    if (p.grid) {
        grid = *p.grid;
        grid.scale = grid.shift = NULL;
        p.grid = &grid;
    }
    if (p.device_bound)
        p.bound = 0.0;
    const codec_vtable *codec = comet_codecs[p.codec];
    return codec->check ? codec->check(tensor, &p) : COMET_OK;
}

static comet_status check_params(const comet_tensor *tensor, const comet_codec_params *p) {
    comet_status status = comet_call_choices(p);
    if (status == COMET_OK && tensor->dtype == COMET_U8)
        status = COMET_ERROR_UNSUPPORTED;
    if (status == COMET_OK && !(is_aligned(p->device_bound, sizeof(float)) && is_aligned(p->device_stats, 8)))
        status = COMET_ERROR_ARGUMENT;
    if (status == COMET_OK)
        status = check_as_on_cpu(tensor, p);
    if (status != COMET_OK)
        return status;
    const cuda_codec_vtable *codec = device_codecs[p->codec];
    return codec->check ? codec->check(tensor, p) : COMET_OK;
}

static int slot_is_valid(const comet_cuda_slot *slot) {
    return slot && slot->base && is_aligned(slot->base, ALIGN_MEMORY) && is_aligned(slot->start, sizeof(uint64_t)) &&
           is_aligned(slot->result, ALIGN_RESULT);
}

static size_t workspace_of(const comet_tensor *tensor, const comet_codec_params *p) {
    const cuda_codec_vtable *codec = device_codecs[p->codec];
    return codec->workspace ? codec->workspace(tensor, p) : 0;
}

static comet_status check_workspace(const comet_tensor *tensor, const comet_codec_params *p,
                                    const comet_codec_exec *exec) {
    size_t needed = workspace_of(tensor, p);
    if (needed == 0)
        return COMET_OK;
    if (!exec->workspace || !is_aligned(exec->workspace, ALIGN_MEMORY))
        return COMET_ERROR_ARGUMENT;
    return exec->workspace_bytes >= needed ? COMET_OK : COMET_ERROR_CAPACITY;
}

/* Takes `given`, which is not NULL, into `epilogue`. */
static comet_status take_epilogue(comet_cuda_epilogue *epilogue, const comet_cuda_epilogue *given,
                                  const comet_codec_params *p, const comet_tensor *tensor) {
    static const comet_cuda_epilogue defaults = COMET_CUDA_EPILOGUE_INIT;
    if (!comet_sized_read(epilogue, sizeof *epilogue, given, &defaults))
        return COMET_ERROR_ARGUMENT;
    if (p->codec != COMET_CODEC_EB && p->codec != COMET_CODEC_ZVC)
        return COMET_ERROR_UNSUPPORTED;
    int by_channel = epilogue->scale || epilogue->shift;
    if ((by_channel && epilogue->channels != comet_tensor_channels(tensor)) || !is_aligned(epilogue->add, ALIGN_TENSOR))
        return COMET_ERROR_ARGUMENT;
    return by_channel && epilogue->channels > INT32_MAX ? COMET_ERROR_UNSUPPORTED : COMET_OK;
}

/* ---- queries ---- */

comet_status comet_cuda_check(int32_t device) {
    int major = 0, minor = 0;
    comet_status status = comet_cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (status == COMET_OK)
        status = comet_cuda_status(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    if (status != COMET_OK)
        return status;
    return 10 * major + minor >= COMET_CUDA_LEAST_ARCH ? COMET_OK : COMET_ERROR_UNSUPPORTED;
}

static comet_status take_query(const comet_tensor *tensor, const comet_codec_params *params, const size_t *bytes,
                               comet_codec_params *p) {
    int32_t device;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    if (!bytes || !comet_call_params(p, params))
        return COMET_ERROR_ARGUMENT;
    status = comet_call_shape(tensor);
    return status == COMET_OK ? check_params(tensor, p) : status;
}

comet_status comet_cuda_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_status status = take_query(tensor, params, bytes, &p);
    if (status == COMET_OK)
        *bytes = STREAM_HEADER_BYTES + device_codecs[p.codec]->body_max_bytes(tensor, &p);
    return status;
}

comet_status comet_cuda_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_status status = take_query(tensor, params, bytes, &p);
    if (status == COMET_OK)
        *bytes = workspace_of(tensor, &p);
    return status;
}

comet_status comet_cuda_workspace_init(void *workspace, size_t bytes, void *queue) {
    int32_t device;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK || bytes == 0)
        return status;
    if (!workspace || !is_aligned(workspace, ALIGN_MEMORY))
        return COMET_ERROR_ARGUMENT;
    size_t zeroed = bytes < CUDA_WORKSPACE_ZEROED ? bytes : CUDA_WORKSPACE_ZEROED;
    return comet_cuda_status(cudaMemsetAsync(workspace, 0, zeroed, (cudaStream_t)queue));
}

/* ---- compressing and decompressing ---- */

/* The header without what only the device knows. A checksum is of that kind too: the flag is there, the word is 0. */
static void make_header(const comet_tensor *tensor, const comet_codec_params *p, stream_header *fields,
                        cuda_header *header) {
    comet_call_header(tensor, p, fields);
    fields->flags = 0;
    if (device_codecs[p->codec]->describe)
        device_codecs[p->codec]->describe(tensor, p, fields);
    fields->bound = 0.0f;
    fields->body_bytes = 0;
    comet_stream_header_write(fields, (uint8_t *)header->words);
    if (p->checksum) {
        fields->flags |= STREAM_CHECKSUM;
        header->words[CUDA_HEADER_WORD_FLAGS] |= (uint32_t)STREAM_CHECKSUM << 16;
    }
}

static comet_status compress(const comet_tensor *tensor, const comet_codec_params *params, const comet_codec_exec *exec,
                             const comet_cuda_slot *slot, comet_cuda_result *host) {
    int32_t device;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    comet_codec_params p;
    comet_codec_exec e;
    if (!comet_call_params(&p, params) || !comet_call_exec(&e, exec) || !slot_is_valid(slot) || !slot->result)
        return COMET_ERROR_ARGUMENT;
    status = check_tensor(tensor, device);
    if (status == COMET_OK)
        status = p.checksum ? COMET_ERROR_UNSUPPORTED : check_params(tensor, &p);
    if (status == COMET_OK)
        status = check_workspace(tensor, &p, &e);
    if (status != COMET_OK)
        return status;
    cuda_compress_job job = {
        .tensor = tensor, .params = &p, .slot = *slot, .workspace = e.workspace, .queue = (cudaStream_t)e.queue};
    make_header(tensor, &p, &job.fields, &job.header);
    cudaError_t error = device_codecs[p.codec]->compress(&job);
    if (error == cudaSuccess && host)
        error = cudaMemcpyAsync(host, slot->result, sizeof *host, cudaMemcpyDeviceToHost, job.queue);
    return comet_cuda_status(error);
}

comet_status comet_cuda_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                 const comet_codec_exec *exec, const comet_cuda_slot *slot, comet_cuda_result *host) {
    fenv_t callers; /* a codec may compute steps from the bound on the host */
    comet_fp_enter(&callers);
    comet_status status = compress(tensor, params, exec, slot, host);
    comet_fp_leave(&callers);
    return status;
}

/* What of the parameters matters for decompressing, so that the rest may be anything. */
static int take_decompress_params(comet_codec_params *p, const comet_codec_params *given) {
    if (!comet_call_params(p, given))
        return 0;
    p->bound = 0.0;
    p->bound_kind = COMET_BOUND_ABSOLUTE;
    p->device_bound = NULL;
    p->device_stats = NULL;
    return 1;
}

static comet_status decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                               const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                               const comet_tensor *tensor, int32_t *device_status) {
    int32_t device;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    comet_codec_params p;
    comet_codec_exec e;
    if (!take_decompress_params(&p, params) || !comet_call_exec(&e, exec) || !slot_is_valid(slot) || !device_status ||
        !is_aligned(device_status, sizeof *device_status))
        return COMET_ERROR_ARGUMENT;
    status = check_tensor(tensor, device);
    if (status == COMET_OK)
        status = check_params(tensor, &p);
    comet_cuda_epilogue taken;
    if (status == COMET_OK && epilogue)
        status = take_epilogue(&taken, epilogue, &p, tensor);
    if (status == COMET_OK)
        status = check_workspace(tensor, &p, &e);
    if (status != COMET_OK)
        return status;
    cuda_decompress_job job = {.tensor = tensor,
                               .params = &p,
                               .epilogue = epilogue ? &taken : NULL,
                               .slot = *slot,
                               .workspace = e.workspace,
                               .queue = (cudaStream_t)e.queue,
                               .status = device_status};
    make_header(tensor, &p, &job.fields, &job.header);
    if (!epilogue && p.codec != COMET_CODEC_MASK && job.fields.dtype != tensor->dtype)
        return COMET_ERROR_MISMATCH; /* a grid's values are fp32 */
    return comet_cuda_status(device_codecs[p.codec]->decompress(&job));
}

comet_status comet_cuda_decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                                   const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                                   const comet_tensor *tensor, int32_t *status) {
    fenv_t callers;
    comet_fp_enter(&callers);
    comet_status result = decompress(slot, params, epilogue, exec, tensor, status);
    comet_fp_leave(&callers);
    return result;
}
