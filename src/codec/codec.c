/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on the CPU: arguments checked, workspace found, header written or read, the body left to the codec.
 */
#include "comet/codec.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/isa.h"

const char *comet_codec_name(comet_codec codec) {
    return (unsigned)codec < CODEC_COUNT ? comet_codecs[codec]->name : "?";
}

comet_status comet_codec_from_name(const char *name, comet_codec *codec) {
    comet_begin();
    COMET_REQUIRE_POINTER(name);
    COMET_REQUIRE_POINTER(codec);
    for (unsigned i = 0; i < CODEC_COUNT; i++)
        if (strcmp(name, comet_codecs[i]->name) == 0) {
            *codec = (comet_codec)i;
            return COMET_OK;
        }
    return comet_fail(COMET_ERROR_ARGUMENT, "name is \"%s\", which is no codec", name);
}

static comet_status check_on_cpu(const comet_tensor *tensor) {
    if (tensor->device.kind != COMET_CPU)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor is not in host memory: comet/cuda.h is for devices");
    return COMET_OK;
}

static comet_status check_params(const comet_tensor *tensor, const comet_codec_params *p) {
    COMET_TRY(comet_call_choices(p));
    COMET_TRY(check_on_cpu(tensor));
    if (p->device_bound || p->device_stats)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "params->%s is for comet/cuda.h alone",
                          p->device_bound ? "device_bound" : "device_stats");
    const codec_vtable *codec = comet_codecs[p->codec];
    return codec->check ? codec->check(tensor, p) : COMET_OK;
}

/* What the queries have in common: `p` and `e` are what the caller gave, checked. */
static comet_status take_query(const comet_tensor *tensor, const comet_codec_params *params,
                               const comet_codec_exec *exec, const size_t *bytes, comet_codec_params *p,
                               comet_codec_exec *e) {
    COMET_REQUIRE_POINTER(bytes);
    COMET_TRY(comet_call_params(p, params));
    COMET_TRY(comet_call_exec(e, exec));
    COMET_TRY(comet_tensor_check_shape(tensor, "tensor"));
    return check_params(tensor, p);
}

comet_status comet_codec_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_codec_exec e;
    comet_begin();
    COMET_TRY(take_query(tensor, params, NULL, bytes, &p, &e));
    *bytes = STREAM_HEADER_BYTES + comet_codecs[p.codec]->body_max_bytes(tensor, &p);
    return COMET_OK;
}

static size_t compress_workspace(const comet_tensor *tensor, const comet_codec_params *p, const comet_codec_exec *e) {
    const codec_vtable *codec = comet_codecs[p->codec];
    return codec->workspace ? codec->workspace(tensor, p, comet_threads_count(e->threads)) : 0;
}

static size_t decompress_workspace(const comet_tensor *tensor, comet_codec codec, const comet_codec_grid *grid,
                                   const comet_codec_exec *e) {
    const codec_vtable *v = comet_codecs[codec];
    return v->decompress_workspace ? v->decompress_workspace(tensor, grid, comet_threads_count(e->threads)) : 0;
}

comet_status comet_codec_compress_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                            const comet_codec_exec *exec, size_t *bytes) {
    comet_codec_params p;
    comet_codec_exec e;
    comet_begin();
    COMET_TRY(take_query(tensor, params, exec, bytes, &p, &e));
    *bytes = compress_workspace(tensor, &p, &e);
    return COMET_OK;
}

comet_status comet_codec_decompress_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                              const comet_codec_exec *exec, size_t *bytes) {
    comet_codec_params p;
    comet_codec_exec e;
    comet_begin();
    COMET_TRY(take_query(tensor, params, exec, bytes, &p, &e));
    *bytes = decompress_workspace(tensor, p.codec, p.grid, &e);
    return COMET_OK;
}

/* The caller's workspace if it is large enough, else memory of the call's own. */
static comet_status workspace_take(const comet_codec_exec *exec, size_t bytes, uint8_t **workspace) {
    *workspace = exec->workspace;
    if (bytes == 0)
        return COMET_OK;
    if (exec->workspace) {
        COMET_REQUIRE((uintptr_t)exec->workspace % COMET_ALIGNMENT == 0, "exec->workspace must be aligned to %d bytes",
                      COMET_ALIGNMENT);
        if (exec->workspace_bytes < bytes)
            return comet_fail(COMET_ERROR_CAPACITY, "exec->workspace_bytes is %zu: it must be at least %zu",
                              exec->workspace_bytes, bytes);
        return COMET_OK;
    }
    *workspace = comet_memory_take(exec->allocator, bytes);
    return *workspace ? COMET_OK : COMET_ERROR_MEMORY;
}

static void workspace_give(const comet_codec_exec *exec, size_t bytes, uint8_t *workspace) {
    if (bytes && workspace != exec->workspace)
        comet_memory_give(exec->allocator, workspace, bytes);
}

static comet_status stream_too_small(size_t capacity) {
    return comet_fail(COMET_ERROR_CAPACITY, "capacity is %zu: the stream is longer; comet_codec_max_bytes always does",
                      capacity);
}

static void give_result(const comet_codec_record *r, comet_codec_result *result) {
    comet_codec_result full = {.bytes = r->bytes,
                               .bound = r->bound,
                               .tiles = r->tiles,
                               .tiles_exact = r->tiles_exact,
                               .tiles_wide = r->tiles_wide,
                               .stats = r->stats};
    comet_sized_write(result, &full, sizeof full);
}

static comet_status compress(const comet_tensor *tensor, const comet_codec_params *params, const comet_codec_exec *exec,
                             void *stream, size_t capacity, comet_codec_result *result) {
    comet_codec_params p;
    comet_codec_exec e;
    comet_isa isa;
    COMET_REQUIRE_POINTER(stream);
    COMET_TRY(comet_call_params(&p, params));
    COMET_TRY(comet_call_exec(&e, exec));
    if (result)
        COMET_TRY(comet_sized_check(result, "result"));
    COMET_TRY(comet_tensor_check(tensor, "tensor"));
    COMET_TRY(check_params(tensor, &p));
    COMET_TRY(comet_isa_resolve(e.isa, &isa));
    if (capacity < STREAM_HEADER_BYTES)
        return stream_too_small(capacity);
    size_t workspace_bytes = compress_workspace(tensor, &p, &e);
    uint8_t *workspace;
    COMET_TRY(workspace_take(&e, workspace_bytes, &workspace));

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
    comet_status status = comet_codecs[p.codec]->compress(&job);
    workspace_give(&e, workspace_bytes, workspace);
    if (status != COMET_OK)
        return status == COMET_ERROR_CAPACITY ? stream_too_small(capacity) : status;
    comet_stream_header_write(&header, stream);
    record.bytes = STREAM_HEADER_BYTES + (size_t)header.body_bytes;
    record.bound = header.bound;
    if (result)
        give_result(&record, result);
    return COMET_OK;
}

comet_status comet_codec_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                  const comet_codec_exec *exec, void *stream, size_t capacity,
                                  comet_codec_result *result) {
    fenv_t callers;
    comet_begin();
    comet_fp_enter(&callers);
    comet_status status = compress(tensor, params, exec, stream, capacity, result);
    comet_fp_leave(&callers);
    return status;
}

static comet_status mismatch(const char *reason) {
    return comet_fail(COMET_ERROR_MISMATCH, "%s", reason);
}

static comet_status check_fit(const stream_header *h, const comet_codec_grid *grid, const comet_tensor *tensor) {
    if (h->ndim != tensor->ndim)
        return mismatch("tensor->ndim is not the stream's");
    if (h->layout != tensor->layout)
        return mismatch("tensor->layout is not the stream's");
    for (int32_t d = 0; d < h->ndim; d++)
        if (h->shape[d] != tensor->shape[d])
            return mismatch("tensor->shape is not the stream's");
    if (h->codec != COMET_CODEC_MASK && h->dtype != tensor->dtype)
        return mismatch("tensor->dtype is not the stream's");
    if (!grid != !(h->flags & STREAM_GRID))
        return mismatch(grid ? "grid is given, and the stream has none" : "grid is NULL, and the stream has one");
    if (!grid)
        return COMET_OK;
    COMET_REQUIRE(grid->threshold, "grid->threshold is NULL");
    if (grid->channels != comet_tensor_channels(tensor))
        return mismatch("grid->channels is not the tensor's");
    if (grid->channels > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "grid->channels is more than 2^31 - 1");
    return COMET_OK;
}

static comet_status decompress(const void *stream, size_t bytes, const comet_codec_grid *grid,
                               const comet_codec_exec *exec, const comet_tensor *tensor) {
    comet_codec_exec e;
    comet_isa isa;
    stream_header header;
    COMET_REQUIRE_POINTER(stream);
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(comet_tensor_check(tensor, "tensor"));
    COMET_TRY(check_on_cpu(tensor));
    COMET_TRY(comet_isa_resolve(e.isa, &isa));
    COMET_TRY(comet_stream_header_read(stream, bytes, 1, &header));
    COMET_TRY(comet_call_stream(&header));
    COMET_TRY(check_fit(&header, grid, tensor));
    size_t workspace_bytes = decompress_workspace(tensor, header.codec, grid, &e);
    uint8_t *workspace;
    COMET_TRY(workspace_take(&e, workspace_bytes, &workspace));
    codec_decompress_job job = {.header = &header,
                                .body = (const uint8_t *)stream + STREAM_HEADER_BYTES,
                                .body_bytes = (size_t)header.body_bytes,
                                .grid = grid,
                                .tensor = tensor,
                                .threads = e.threads,
                                .isa = isa,
                                .workspace = workspace};
    comet_status status = comet_codecs[header.codec]->decompress(&job);
    workspace_give(&e, workspace_bytes, workspace);
    return status;
}

comet_status comet_codec_decompress(const void *stream, size_t bytes, const comet_codec_grid *grid,
                                    const comet_codec_exec *exec, const comet_tensor *tensor) {
    fenv_t callers;
    comet_begin();
    comet_fp_enter(&callers);
    comet_status status = decompress(stream, bytes, grid, exec, tensor);
    comet_fp_leave(&callers);
    return status;
}

comet_status comet_codec_inspect(const void *stream, size_t bytes, comet_codec_info *info) {
    stream_header h;
    comet_begin();
    COMET_REQUIRE_POINTER(stream);
    COMET_TRY(comet_sized_check(info, "info"));
    COMET_TRY(comet_stream_header_read(stream, bytes, 0, &h));
    COMET_TRY(comet_call_stream(&h));
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
        COMET_TRY(codec->inspect(&h, body, (size_t)h.body_bytes, &full));
    comet_sized_write(info, &full, sizeof full);
    return COMET_OK;
}
