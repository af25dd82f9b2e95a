/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda.h: arguments checked, the header made, the rest left to the codec's kernels. Device memory is not read. */
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/cuda_impl.h"
#include "codec/cuda/runtime.h"

static const cuda_codec_vtable *const device_codecs[CODEC_COUNT] = {
    [COMET_CODEC_RAW] = &comet_cuda_raw,   [COMET_CODEC_EB] = &comet_cuda_eb,
    [COMET_CODEC_ZVC] = &comet_cuda_zvc,   [COMET_CODEC_MASK] = &comet_cuda_mask,
    [COMET_CODEC_POOL] = &comet_cuda_pool, [COMET_CODEC_GROUP] = &comet_cuda_group,
    [COMET_CODEC_DCT] = &comet_cuda_dct,
};

/* ---- checks ---- */

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
    COMET_TRY(comet_call_choices(p));
    if (tensor->dtype == COMET_U8 && p->codec != COMET_CODEC_MASK)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor->dtype is u8: on a device it must be fp32, fp16 or bf16");
    COMET_TRY(comet_cuda_check_aligned(p->device_bound, sizeof(float), "params->device_bound"));
    COMET_TRY(comet_cuda_check_aligned(p->device_stats, 8, "params->device_stats"));
    COMET_TRY(check_as_on_cpu(tensor, p));
    const cuda_codec_vtable *codec = device_codecs[p->codec];
    return codec->check ? codec->check(tensor, p) : COMET_OK;
}

static size_t workspace_of(const comet_tensor *tensor, const comet_codec_params *p) {
    const cuda_codec_vtable *codec = device_codecs[p->codec];
    return codec->workspace ? codec->workspace(tensor, p) : 0;
}

static comet_status check_workspace(const comet_tensor *tensor, const comet_codec_params *p,
                                    const comet_codec_exec *exec) {
    size_t needed = workspace_of(tensor, p);
    return needed ? comet_cuda_check_workspace(exec, needed) : COMET_OK;
}

/* Takes `given`, which is not NULL, into `epilogue`. */
static comet_status take_epilogue(comet_cuda_epilogue *epilogue, const comet_cuda_epilogue *given,
                                  const comet_codec_params *p, const comet_tensor *tensor) {
    static const comet_cuda_epilogue defaults = COMET_CUDA_EPILOGUE_INIT;
    COMET_TRY(comet_sized_read(epilogue, sizeof *epilogue, given, &defaults, "epilogue"));
    if (p->codec != COMET_CODEC_EB && p->codec != COMET_CODEC_ZVC)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "epilogue is given, and params->codec is neither EB nor ZVC");
    COMET_TRY(comet_cuda_check_aligned(epilogue->add, COMET_CUDA_ALIGN_VALUES, "epilogue->add"));
    if (!epilogue->scale && !epilogue->shift)
        return COMET_OK;
    COMET_REQUIRE(epilogue->channels == comet_tensor_channels(tensor),
                  "epilogue->channels is %lld: it must be the tensor's %lld", (long long)epilogue->channels,
                  (long long)comet_tensor_channels(tensor));
    if (epilogue->channels > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "epilogue->channels is more than 2^31 - 1");
    return COMET_OK;
}

/* ---- queries ---- */

comet_status comet_cuda_check(int32_t device) {
    int major = 0, minor = 0;
    comet_begin();
    COMET_TRY(comet_cuda_status(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)));
    COMET_TRY(comet_cuda_status(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)));
    if (10 * major + minor < COMET_CUDA_LEAST_ARCH)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "device %d has compute capability %d.%d: this library needs %d.%d",
                          (int)device, major, minor, COMET_CUDA_LEAST_ARCH / 10, COMET_CUDA_LEAST_ARCH % 10);
    return COMET_OK;
}

static comet_status take_query(const comet_tensor *tensor, const comet_codec_params *params, const size_t *bytes,
                               comet_codec_params *p) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_REQUIRE_POINTER(bytes);
    COMET_TRY(comet_call_params(p, params));
    COMET_TRY(comet_tensor_check_shape(tensor, "tensor"));
    return check_params(tensor, p);
}

comet_status comet_cuda_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_begin();
    COMET_TRY(take_query(tensor, params, bytes, &p));
    *bytes = STREAM_HEADER_BYTES + device_codecs[p.codec]->body_max_bytes(tensor, &p);
    return COMET_OK;
}

comet_status comet_cuda_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_begin();
    COMET_TRY(take_query(tensor, params, bytes, &p));
    *bytes = workspace_of(tensor, &p);
    return COMET_OK;
}

comet_status comet_cuda_workspace_init(void *workspace, size_t bytes, void *queue) {
    int32_t device;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    if (bytes == 0)
        return COMET_OK;
    COMET_REQUIRE_POINTER(workspace);
    COMET_TRY(comet_cuda_check_aligned(workspace, COMET_CUDA_ALIGN_MEMORY, "workspace"));
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
    comet_codec_params p;
    comet_codec_exec e;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_call_params(&p, params));
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(comet_cuda_check_slot(slot, 1));
    COMET_TRY(comet_cuda_check_tensor(tensor, "tensor", device));
    if (p.checksum)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "params->checksum is set: comet_codec_serialise makes one");
    COMET_TRY(check_params(tensor, &p));
    COMET_TRY(check_workspace(tensor, &p, &e));
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
    comet_begin();
    comet_fp_enter(&callers);
    comet_status status = compress(tensor, params, exec, slot, host);
    comet_fp_leave(&callers);
    return status;
}

/* What of the parameters matters for decompressing, so that the rest may be anything. */
static comet_status take_decompress_params(comet_codec_params *p, const comet_codec_params *given) {
    COMET_TRY(comet_call_params(p, given));
    p->bound = 0.0;
    p->bound_kind = COMET_BOUND_ABSOLUTE;
    p->device_bound = NULL;
    p->device_stats = NULL;
    return COMET_OK;
}

static comet_status decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                               const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                               const comet_tensor *tensor, int32_t *device_status) {
    int32_t device;
    comet_codec_params p;
    comet_codec_exec e;
    comet_cuda_epilogue taken;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(take_decompress_params(&p, params));
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(comet_cuda_check_slot(slot, 0));
    COMET_TRY(comet_cuda_check_status_word(device_status));
    COMET_TRY(comet_cuda_check_tensor(tensor, "tensor", device));
    COMET_TRY(check_params(tensor, &p));
    if (epilogue)
        COMET_TRY(take_epilogue(&taken, epilogue, &p, tensor));
    COMET_TRY(check_workspace(tensor, &p, &e));
    cuda_decompress_job job = {.tensor = tensor,
                               .params = &p,
                               .epilogue = epilogue ? &taken : NULL,
                               .slot = *slot,
                               .workspace = e.workspace,
                               .queue = (cudaStream_t)e.queue,
                               .status = device_status};
    make_header(tensor, &p, &job.fields, &job.header);
    if (!epilogue && p.codec != COMET_CODEC_MASK && job.fields.dtype != tensor->dtype)
        return comet_fail(COMET_ERROR_MISMATCH,
                          "tensor->dtype must be fp32, as the values of a stream with a grid are");
    return comet_cuda_status(device_codecs[p.codec]->decompress(&job));
}

comet_status comet_cuda_decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                                   const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                                   const comet_tensor *tensor, int32_t *status) {
    fenv_t callers;
    comet_begin();
    comet_fp_enter(&callers);
    comet_status result = decompress(slot, params, epilogue, exec, tensor, status);
    comet_fp_leave(&callers);
    return result;
}
