// SPDX-License-Identifier: Apache-2.0
// Batch normalisation on device memory: from a job to launches.
#include "codec/cuda/norm/norm_impl.h"
#include "codec/cuda/norm/norm_launch.h"
#include "codec/cuda/tile/sweep.cuh"

extern "C" {
#include "base/tensor_check.h"
}

// ---- shapes ----

struct Shape {
    tile_geometry tiles;
    Reach reach;
    u64 groups;
    u64 inner;    // values side by side of one channel
    u32 channels; // 0: the tensor is empty
};

static Shape shape_of(const comet_tensor *t) {
    Shape s = {};
    s.tiles = comet_geometry_of(t->layout, t->ndim, t->shape);
    s.groups = ((u64)s.tiles.tiles + GROUP_TILES - 1) / GROUP_TILES;
    s.channels = (u32)comet_tensor_channels(t);
    s.inner = t->layout == COMET_NCHW && comet_tensor_count(t) ? (u64)comet_shape_count(t->ndim - 2, t->shape + 2) : 1;
    if (t->layout == COMET_NCHW && s.channels == 1) { // the maps of all samples are one; not near if it is too long
        u64 count = (u64)comet_tensor_count(t);
        s.inner = count < FAR_MAP ? count : FAR_MAP;
    }
    s.reach = grid_reach_of(&s.tiles, s.inner);
    return s;
}

static ChannelMap map_of(const Shape &s) {
    return channel_map_of(s.inner, s.channels, &s.tiles);
}

extern "C" int comet_norm_is_supported(const comet_tensor *tensor) {
    Shape s = shape_of(tensor);
    return reach_is_last(s.reach) || map_of(s).is_near;
}

static NormTables tables_of(const comet_cuda_norm *n) {
    NormTables t = {n->inverse_std, n->shift, n->threshold, n->gamma, n->beta, n->relu ? 0.0f : -INFINITY};
    return t;
}

extern "C" cudaError_t comet_norm_prepare(const comet_cuda_norm *n, cudaStream_t queue) {
    NormPrepareArgs a = {n->mean,  n->inverse_std, n->gamma,         n->beta,
                         n->shift, n->threshold,   (u32)n->channels, (u32)(n->relu && !n->adds)};
    return n->channels ? comet_norm_launch_prepare(a, queue) : cudaSuccess;
}

// ---- forward ----

static cudaError_t forward_plain(const norm_forward_job *job) {
    const comet_tensor *x = job->codec.tensor;
    Shape s = shape_of(x);
    NormPlainArgs a = {};
    u64 vector = 16 / comet_dtype_size(x->dtype);
    a.x = x->data;
    a.add = job->add;
    a.y = job->y;
    a.tables = tables_of(job->norm);
    a.count = (u64)comet_tensor_count(x);
    a.map = map_of(s);
    if (a.count == 0)
        return cudaSuccess;
    if (x->layout == COMET_NHWC && s.channels % vector == 0) {
        a.rows = a.count / s.channels;
        a.length = (u32)(s.channels / vector);
    }
    return comet_norm_launch_plain(x->dtype, a, job->codec.queue);
}

static GridTables grid_of(const comet_codec_grid *g) {
    GridTables t = {};
    if (g)
        t = {g->scale, g->shift, g->threshold, g->slope};
    return t;
}

static void set_bound(CompressArgs *a, const comet_codec_params *p) {
    a->bound = BoundSource{p->bound, p->device_bound, NULL};
    if (p->bound_kind == COMET_BOUND_RELATIVE)
        a->bound.stats = (const comet_codec_stats *)p->device_stats;
    a->bound_is_known = !p->device_bound && p->bound_kind == COMET_BOUND_ABSOLUTE;
    if (a->bound_is_known)
        comet_quantiser_init(&a->q, comet_quantiser_bound(p->bound, (comet_dtype)a->dtype), (comet_dtype)a->dtype,
                             a->flags);
}

static CompressArgs compress_args(const cuda_compress_job *job) {
    Shape s = shape_of(job->tensor);
    CompressArgs a = {};
    a.x = job->tensor->data;
    a.geometry = device_geometry(&s.tiles);
    a.base = (u8 *)job->slot.base;
    a.capacity = job->slot.capacity;
    a.start = job->slot.start;
    a.result = job->slot.result;
    a.workspace = (Workspace *)job->workspace;
    a.records = a.workspace->records;
    a.grid = grid_of(job->params->grid);
    a.grid_is_whole = is_whole(a.grid);
    a.channel_map = map_of(s);
    a.count = (u64)comet_tensor_count(job->tensor);
    a.groups = s.groups;
    a.payload_start = eb_payload_start(a.groups);
    a.flags = job->fields.flags;
    a.dtype = (u32)job->fields.dtype;
    a.with_stats = job->params->stats_kind != COMET_STATS_NONE;
    a.header = job->header;
    set_bound(&a, job->params);
    return a;
}

// Statistics of u for a relative bound, in a pass of its own.
static cudaError_t survey(comet_dtype dtype, Reach reach, CompressArgs *a, cudaStream_t queue) {
    CompressArgs s = *a;
    s.with_stats = 1;
    cudaError_t error = dtype == COMET_F32   ? comet_eb_launch_survey_f32(reach, s, queue)
                        : dtype == COMET_F16 ? comet_eb_launch_survey_f16(reach, s, queue)
                                             : comet_eb_launch_survey_bf16(reach, s, queue);
    a->bound.stats = &a->workspace->own;
    return error;
}

// Both streams use one workspace: the totals of y's lie behind those of u's, and so do its records.
extern "C" size_t comet_norm_forward_workspace(const comet_tensor *tensor, int keeps_y) {
    return eb_workspace_bytes(shape_of(tensor).groups * (keeps_y ? 2 : 1));
}

static void add_y(NormResidualArgs *a, const cuda_compress_job *job) {
    a->keeps_y = 1;
    a->y = compress_args(job);
    a->y.workspace = (Workspace *)(job->workspace + TOTALS_ROOM);
    a->y.records = a->forward.codec.records + a->y.groups;
}

static cudaError_t launch_residual(comet_dtype dtype, Reach reach, const NormResidualArgs &a, cudaStream_t queue) {
    return dtype == COMET_F32   ? comet_norm_launch_residual_f32(reach, a, queue)
           : dtype == COMET_F16 ? comet_norm_launch_residual_f16(reach, a, queue)
                                : comet_norm_launch_residual_bf16(reach, a, queue);
}

static cudaError_t launch_forward(comet_dtype dtype, Reach reach, const NormForwardArgs &a, cudaStream_t queue) {
    return dtype == COMET_F32   ? comet_norm_launch_forward_f32(reach, a, queue)
           : dtype == COMET_F16 ? comet_norm_launch_forward_f16(reach, a, queue)
                                : comet_norm_launch_forward_bf16(reach, a, queue);
}

// The stream of y, by a kernel of its own.
static cudaError_t launch_y(comet_dtype dtype, const tile_geometry &tiles, const CompressArgs &a, cudaStream_t queue) {
    const Reach reach = reach_of(&tiles);
    return dtype == COMET_F32   ? comet_eb_launch_compress_f32(reach, MODE_KEEP, a, queue)
           : dtype == COMET_F16 ? comet_eb_launch_compress_f16(reach, MODE_KEEP, a, queue)
                                : comet_eb_launch_compress_bf16(reach, MODE_KEEP, a, queue);
}

extern "C" cudaError_t comet_norm_forward(const norm_forward_job *job) {
    if (!job->has_slot)
        return forward_plain(job);
    const comet_codec_params *p = job->codec.params;
    comet_dtype dtype = job->codec.tensor->dtype;
    Shape s = shape_of(job->codec.tensor);
    NormResidualArgs a = {{compress_args(&job->codec), tables_of(job->norm), job->y}, job->add, {}, 0};
    cudaStream_t queue = job->codec.queue;
    cudaError_t error = cudaSuccess;
    if (p->bound_kind == COMET_BOUND_RELATIVE && !p->device_stats)
        error = survey(dtype, plain_reach_of(&s.tiles), &a.forward.codec, queue);
    if (error != cudaSuccess)
        return error;
    if (job->has_y_slot)
        add_y(&a, &job->y_codec);
    const bool is_apart = a.keeps_y && !residual_keeps_y(s.reach);
    if (a.add || (a.keeps_y && !is_apart))
        error = launch_residual(dtype, s.reach, a, queue);
    else
        error = launch_forward(dtype, s.reach, a.forward, queue);
    return error == cudaSuccess && is_apart ? launch_y(dtype, s.tiles, a.y, queue) : error;
}

// ---- backward ----

static u64 blocks_of(const Shape &s, comet_dtype dtype, NormFrom from, NormPass pass) {
    return eb_walk_blocks(s.groups, s.reach, (u64)s.tiles.channels, norm_backward_blocks(s.reach, dtype, from, pass));
}

// Partial sums: of blocks where channels come last.
static u64 block_sums(const Shape &s, u64 blocks) {
    return blocks * (s.channels < BLOCK_THREADS ? s.channels : (u64)BLOCK_THREADS);
}

// The most maps that a tile can touch: see norm_maps.
static u64 maps_of_tile(const Shape &s) {
    u64 row = (u64)s.tiles.row, span = s.reach == REACH_FLAT ? 1024 : 256 + 3 * row * ((row + 254) / row + 1);
    u64 maps = (s.inner - 1 + span - 1) / s.inner + 1;
    return maps < 2 ? 2 : maps;
}

static u64 tiles_of_map(const Shape &s) {
    u64 row = (u64)s.tiles.row;
    return s.reach == REACH_FLAT ? s.inner / 1024 + 2 : (s.inner / (4 * row) + 2) * row / 256 + 2;
}

static u64 partial_sums(const Shape &s, comet_dtype dtype) {
    if (!reach_is_last(s.reach))
        return (u64)s.tiles.tiles * maps_of_tile(s);
    u64 most = 0;
    for (int from = NORM_FROM_STREAM; from <= NORM_FROM_X; from++)
        for (int pass = NORM_SUMS; pass <= NORM_MASKED_SUMS; pass++) {
            u64 sums = block_sums(s, blocks_of(s, dtype, (NormFrom)from, (NormPass)pass));
            most = sums > most ? sums : most;
        }
    return most;
}

extern "C" size_t comet_norm_workspace(const comet_tensor *tensor) {
    Shape s = shape_of(tensor);
    return CUDA_WORKSPACE_ZEROED + s.channels * sizeof(float4) + partial_sums(s, tensor->dtype) * sizeof(float2);
}

static NormSums sums_of(const norm_backward_job *job, const Shape &s, u64 blocks) {
    NormSums n = {};
    n.coefficients = (float4 *)(job->codec.workspace + CUDA_WORKSPACE_ZEROED);
    n.partial = (float2 *)(n.coefficients + s.channels);
    n.dgamma = job->dgamma;
    n.dbeta = job->dbeta;
    n.channels = s.channels;
    n.count = (double)comet_tensor_count(job->codec.tensor) / (double)s.channels;
    if (reach_is_last(s.reach)) {
        n.entries = block_sums(s, blocks);
    } else {
        n.slots = (u32)maps_of_tile(s);
        n.a_map = (u32)tiles_of_map(s);
        n.samples = (u64)comet_tensor_count(job->codec.tensor) / (s.channels * s.inner);
    }
    return n;
}

// Without parameters there is no stream.
static DecompressArgs decompress_args(const cuda_decompress_job *job, const Shape &s) {
    DecompressArgs a = {};
    a.geometry = device_geometry(&s.tiles);
    a.groups = s.groups;
    a.channel_map = map_of(s);
    a.status = job->status;
    if (!job->params)
        return a;
    a.dtype = (u32)job->fields.dtype;
    eb_set_slot(&a, job->slot);
    a.grid = grid_of(job->params->grid);
    a.flags = job->fields.flags;
    a.header = job->header;
    return a;
}

static norm_launch_backward *launcher_of(comet_dtype dtype, NormFrom from) {
    if (from == NORM_FROM_STREAM)
        return dtype == COMET_F32   ? comet_norm_launch_stream_f32
               : dtype == COMET_F16 ? comet_norm_launch_stream_f16
                                    : comet_norm_launch_stream_bf16;
    return dtype == COMET_F32   ? comet_norm_launch_x_f32
           : dtype == COMET_F16 ? comet_norm_launch_x_f16
                                : comet_norm_launch_x_bf16;
}

// The sums, and dz.
static cudaError_t run_masked(const norm_backward_job *job, const Shape &s, NormFrom from, const NormBackwardArgs &args,
                              dim3 blocks) {
    comet_dtype dtype = job->codec.tensor->dtype;
    NormMaskedArgs a = {};
    (NormBackwardArgs &)a = args;
    a.y_codec = decompress_args(&job->y_codec, s);
    a.y = job->y;
    a.dz = job->dz;
    return dtype == COMET_F32   ? comet_norm_launch_masked_f32(s.reach, from, a, blocks, job->codec.queue)
           : dtype == COMET_F16 ? comet_norm_launch_masked_f16(s.reach, from, a, blocks, job->codec.queue)
                                : comet_norm_launch_masked_bf16(s.reach, from, a, blocks, job->codec.queue);
}

extern "C" cudaError_t comet_norm_backward(const norm_backward_job *job) {
    Shape s = shape_of(job->codec.tensor);
    NormFrom from = job->x ? NORM_FROM_X : NORM_FROM_STREAM;
    comet_dtype dtype = job->codec.tensor->dtype;
    dim3 blocks((unsigned)blocks_of(s, dtype, from, job->dz ? NORM_MASKED_SUMS : NORM_SUMS));
    NormBackwardArgs a = {};
    if (s.channels == 0)
        return cudaSuccess;
    a.codec = decompress_args(&job->codec, s);
    a.codec.geometry.walk = walk_step(a.codec.geometry, (u64)blocks.x * GROUP_TILES);
    a.tables = tables_of(job->norm);
    a.x = job->x;
    a.dy = job->dy;
    a.dx = job->codec.tensor->data;
    a.sums = sums_of(job, s, blocks.x);
    norm_launch_backward *run = launcher_of(dtype, from);
    cudaStream_t queue = job->codec.queue;
    cudaError_t error = cudaSuccess;
    if (s.groups)
        error = job->dz ? run_masked(job, s, from, a, blocks) : run(s.reach, NORM_SUMS, a, blocks, queue);
    if (job->dz)
        a.dy = job->dz; // the mask is in it
    if (error == cudaSuccess)
        error = comet_norm_launch_totals(reach_is_last(s.reach), a, queue);
    blocks.x = (unsigned)blocks_of(s, dtype, from, NORM_DX);
    a.codec.geometry.walk = walk_step(a.codec.geometry, (u64)blocks.x * GROUP_TILES);
    if (error == cudaSuccess && s.groups)
        error = run(s.reach, NORM_DX, a, blocks, queue);
    return error;
}
