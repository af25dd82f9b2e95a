/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on the CPU: arguments checked, workspace found, header written or read, the body left to the codec.
 */
#include "comet/codec.h"

#include <string.h>

#include "base/bits.h"
#include "base/fp_environment.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/isa.h"
#include "codec/record.h"

const char *comet_codec_name(comet_codec codec) {
    return (unsigned)codec < CODEC_COUNT ? comet_codecs[codec]->name : "?";
}

comet_status comet_codec_from_name(const char *name, comet_codec *codec) {
    if (!name || !codec)
        return COMET_ERROR_ARGUMENT;
    for (unsigned i = 0; i < CODEC_COUNT; i++)
        if (strcmp(name, comet_codecs[i]->name) == 0) {
            *codec = (comet_codec)i;
            return COMET_OK;
        }
    return COMET_ERROR_ARGUMENT;
}

static comet_status check_params(const comet_tensor *tensor, const comet_codec_params *p) {
    comet_status status = comet_call_choices(p);
    if (status != COMET_OK)
        return status;
    if (tensor->device.kind != COMET_CPU || p->device_bound || p->device_stats)
        return COMET_ERROR_UNSUPPORTED;
    const codec_vtable *codec = comet_codecs[p->codec];
    return codec->check ? codec->check(tensor, p) : COMET_OK;
}

comet_status comet_codec_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    if (!bytes || !comet_call_params(&p, params))
        return COMET_ERROR_ARGUMENT;
    comet_status status = comet_call_shape(tensor);
    if (status == COMET_OK)
        status = check_params(tensor, &p);
    if (status == COMET_OK)
        *bytes = STREAM_HEADER_BYTES + comet_codecs[p.codec]->body_max_bytes(tensor, &p);
    return status;
}

static size_t workspace_of(const comet_tensor *tensor, const comet_codec_params *p, const comet_threads *threads) {
    const codec_vtable *codec = comet_codecs[p->codec];
    return codec->workspace ? codec->workspace(tensor, p, comet_threads_count(threads)) : 0;
}

comet_status comet_codec_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                   const comet_codec_exec *exec, size_t *bytes) {
    comet_codec_params p;
    comet_codec_exec e;
    if (!bytes || !comet_call_params(&p, params) || !comet_call_exec(&e, exec))
        return COMET_ERROR_ARGUMENT;
    comet_status status = comet_call_shape(tensor);
    if (status == COMET_OK)
        status = check_params(tensor, &p);
    if (status == COMET_OK)
        *bytes = workspace_of(tensor, &p, e.threads);
    return status;
}

/* The caller's workspace if it is large enough, else memory of the call's own. */
static comet_status workspace_take(const comet_codec_exec *exec, size_t bytes, uint8_t **workspace) {
    *workspace = exec->workspace;
    if (bytes == 0)
        return COMET_OK;
    if (exec->workspace) {
        if ((uintptr_t)exec->workspace % COMET_ALIGNMENT != 0)
            return COMET_ERROR_ARGUMENT;
        return exec->workspace_bytes >= bytes ? COMET_OK : COMET_ERROR_CAPACITY;
    }
    *workspace = comet_memory_take(exec->allocator, bytes);
    return *workspace ? COMET_OK : COMET_ERROR_MEMORY;
}

static void workspace_give(const comet_codec_exec *exec, size_t bytes, uint8_t *workspace) {
    if (bytes && workspace != exec->workspace)
        comet_memory_give(exec->allocator, workspace, bytes);
}

static comet_status compress(const comet_tensor *tensor, const comet_codec_params *params, const comet_codec_exec *exec,
                             void *stream, size_t capacity, comet_codec_result *result) {
    comet_codec_params p;
    comet_codec_exec e;
    if (!stream || !comet_call_params(&p, params) || !comet_call_exec(&e, exec) ||
        (result && !comet_sized_is_valid(result)))
        return COMET_ERROR_ARGUMENT;
    comet_status status = comet_tensor_check(tensor);
    if (status == COMET_OK)
        status = check_params(tensor, &p);
    comet_isa isa = COMET_ISA_REFERENCE;
    if (status == COMET_OK)
        status = comet_isa_resolve(e.isa, &isa);
    if (status != COMET_OK)
        return status;
    if (capacity < STREAM_HEADER_BYTES)
        return COMET_ERROR_CAPACITY;
    size_t workspace_bytes = workspace_of(tensor, &p, e.threads);
    uint8_t *workspace;
    status = workspace_take(&e, workspace_bytes, &workspace);
    if (status != COMET_OK)
        return status;

    stream_header header;
    comet_call_header(tensor, &p, &header);
    comet_codec_record record = {0};
    codec_compress_job job = {.tensor = tensor,
                              .params = &p,
                              .threads = e.threads,
                              .isa = isa,
                              .workspace = workspace,
                              .body = (uint8_t *)stream + STREAM_HEADER_BYTES,
                              .body_capacity = capacity - STREAM_HEADER_BYTES,
                              .header = &header,
                              .result = &record};
    status = comet_codecs[p.codec]->compress(&job);
    workspace_give(&e, workspace_bytes, workspace);
    if (status != COMET_OK)
        return status;
    comet_stream_header_write(&header, stream);
    record.bytes = STREAM_HEADER_BYTES + (size_t)header.body_bytes;
    record.bound = header.bound;
    if (result) {
        comet_codec_result full = comet_codec_result_of(&record);
        comet_sized_write(result, &full, sizeof full);
    }
    return COMET_OK;
}

comet_status comet_codec_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                  const comet_codec_exec *exec, void *stream, size_t capacity,
                                  comet_codec_result *result) {
    fenv_t callers;
    comet_fp_enter(&callers);
    comet_status status = compress(tensor, params, exec, stream, capacity, result);
    comet_fp_leave(&callers);
    return status;
}

static comet_status check_fit(const stream_header *h, const comet_codec_grid *grid, const comet_tensor *tensor) {
    if (h->ndim != tensor->ndim || h->layout != tensor->layout)
        return COMET_ERROR_MISMATCH;
    for (int32_t d = 0; d < h->ndim; d++)
        if (h->shape[d] != tensor->shape[d])
            return COMET_ERROR_MISMATCH;
    if (h->codec != COMET_CODEC_MASK && h->dtype != tensor->dtype)
        return COMET_ERROR_MISMATCH;
    if (!grid != !(h->flags & STREAM_GRID))
        return COMET_ERROR_MISMATCH;
    if (grid && !grid->threshold)
        return COMET_ERROR_ARGUMENT;
    if (grid && grid->channels != comet_tensor_channels(tensor))
        return COMET_ERROR_MISMATCH;
    return grid && grid->channels > INT32_MAX ? COMET_ERROR_UNSUPPORTED : COMET_OK;
}

static comet_status decompress(const void *stream, size_t bytes, const comet_codec_grid *grid,
                               const comet_codec_exec *exec, const comet_tensor *tensor) {
    comet_codec_exec e;
    if (!stream || !comet_call_exec(&e, exec))
        return COMET_ERROR_ARGUMENT;
    comet_status status = comet_tensor_check(tensor);
    comet_isa isa = COMET_ISA_REFERENCE;
    if (status == COMET_OK)
        status = tensor->device.kind == COMET_CPU ? comet_isa_resolve(e.isa, &isa) : COMET_ERROR_UNSUPPORTED;
    stream_header header;
    if (status == COMET_OK)
        status = comet_stream_header_read(stream, bytes, 1, &header);
    if (status == COMET_OK)
        status = comet_call_stream(&header);
    if (status == COMET_OK)
        status = check_fit(&header, grid, tensor);
    if (status != COMET_OK)
        return status;
    const codec_vtable *codec = comet_codecs[header.codec];
    size_t workspace_bytes =
        codec->decompress_workspace ? codec->decompress_workspace(tensor, grid, comet_threads_count(e.threads)) : 0;
    uint8_t *workspace;
    status = workspace_take(&e, workspace_bytes, &workspace);
    if (status != COMET_OK)
        return status;
    codec_decompress_job job = {.header = &header,
                                .body = (const uint8_t *)stream + STREAM_HEADER_BYTES,
                                .body_bytes = (size_t)header.body_bytes,
                                .grid = grid,
                                .tensor = tensor,
                                .threads = e.threads,
                                .isa = isa,
                                .workspace = workspace};
    status = codec->decompress(&job);
    workspace_give(&e, workspace_bytes, workspace);
    return status;
}

comet_status comet_codec_decompress(const void *stream, size_t bytes, const comet_codec_grid *grid,
                                    const comet_codec_exec *exec, const comet_tensor *tensor) {
    fenv_t callers;
    comet_fp_enter(&callers);
    comet_status status = decompress(stream, bytes, grid, exec, tensor);
    comet_fp_leave(&callers);
    return status;
}

comet_status comet_codec_inspect(const void *stream, size_t bytes, comet_codec_info *info) {
    if (!stream || !info || !comet_sized_is_valid(info))
        return COMET_ERROR_ARGUMENT;
    stream_header h;
    comet_status status = comet_stream_header_read(stream, bytes, 0, &h);
    if (status == COMET_OK)
        status = comet_call_stream(&h);
    if (status != COMET_OK)
        return status;
    comet_codec_info full = {.codec = h.codec,
                             .dtype = h.dtype,
                             .layout = h.layout,
                             .ndim = h.ndim,
                             .count = h.count,
                             .version = comet_read_u16((const uint8_t *)stream + 4),
                             .bytes = STREAM_HEADER_BYTES + (size_t)h.body_bytes,
                             .bound = h.bound,
                             .keep_mask = !!(h.flags & STREAM_KEEP_MASK),
                             .stochastic = !!(h.flags & STREAM_STOCHASTIC),
                             .has_grid = !!(h.flags & STREAM_GRID),
                             .has_checksum = !!(h.flags & STREAM_CHECKSUM),
                             .parameter = (int32_t)h.parameter};
    memcpy(full.shape, h.shape, sizeof h.shape);
    const codec_vtable *codec = comet_codecs[h.codec];
    const uint8_t *body = (const uint8_t *)stream + STREAM_HEADER_BYTES;
    if (codec->inspect)
        status = codec->inspect(&h, body, (size_t)h.body_bytes, &full);
    if (status == COMET_OK)
        comet_sized_write(info, &full, sizeof full);
    return status;
}
