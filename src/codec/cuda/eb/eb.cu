// SPDX-License-Identifier: Apache-2.0
// eb and zvc on device memory: from a job to a launch.
#include "base/fail.h"
#include "codec/cuda/cuda_impl.h"
#include "codec/cuda/eb/eb_launch.h"
#include "codec/cuda/tile/sweep.cuh"

extern "C" {
#include "base/tensor_check.h"
}

static const comet_codec_grid *grid_of(const comet_codec_params *params) {
    return params->codec == COMET_CODEC_EB ? params->grid : NULL;
}

static comet_dtype stored_dtype(const comet_tensor *tensor, const comet_codec_params *params) {
    return grid_of(params) ? COMET_F32 : tensor->dtype;
}

static u64 groups_of(const tile_geometry *g) {
    return ((u64)g->tiles + GROUP_TILES - 1) / GROUP_TILES;
}

static tile_geometry geometry_of(const comet_tensor *tensor) {
    return comet_geometry_of(tensor->layout, tensor->ndim, tensor->shape);
}

// The product of the extents behind the channel dimension.
static u64 channel_stride(const comet_tensor *t) {
    if (t->layout != COMET_NCHW || t->ndim < 3 || comet_tensor_count(t) == 0)
        return 1;
    return (u64)comet_shape_count(t->ndim - 2, t->shape + 2);
}

// Values of a map; of one channel all maps are one, if it is near.
static u64 map_values(const comet_tensor *t) {
    u64 count = (u64)comet_tensor_count(t);
    return comet_tensor_channels(t) == 1 && count && count < FAR_MAP ? count : channel_stride(t);
}

static ChannelMap channels_of(const comet_tensor *tensor, const tile_geometry *g) {
    return channel_map_of(map_values(tensor), (u64)comet_tensor_channels(tensor), g);
}

static Reach reach_for(const comet_tensor *tensor, Mode mode) {
    tile_geometry g = geometry_of(tensor);
    if (mode == MODE_ANY)
        return plain_reach_of(&g);
    if (mode == MODE_GRID)
        return grid_reach_of(&g, comet_tensor_count(tensor) < (int64_t)FAR_MAP ? map_values(tensor) : 0);
    return reach_of(&g);
}

static comet_status check(const comet_tensor *tensor, const comet_codec_params *params) {
    tile_geometry g = geometry_of(tensor);
    (void)params;
    if (g.tiles > MOST_TILES)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor has more values than kernels count");
    if (g.row > LONGEST_ROW || g.channels > LONGEST_ROW || channel_stride(tensor) > (u64)LONGEST_ROW ||
        comet_tensor_channels(tensor) > LONGEST_ROW)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor has rows, maps or channels of more than %lld values",
                          (long long)LONGEST_ROW);
    return COMET_OK;
}

static void describe(const comet_tensor *tensor, const comet_codec_params *params, stream_header *header) {
    tile_geometry g = geometry_of(tensor);
    if (params->codec == COMET_CODEC_EB) {
        header->flags = (uint16_t)(header->flags | (params->keep_mask ? STREAM_KEEP_MASK : 0) |
                                   (params->rounding == COMET_ROUND_STOCHASTIC ? STREAM_STOCHASTIC : 0) |
                                   (params->grid ? STREAM_GRID : 0));
    }
    header->dtype = stored_dtype(tensor, params);
    header->wide_parameter = (uint64_t)g.channels;
    header->row = (uint64_t)g.row;
}

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *params) {
    tile_geometry g = geometry_of(tensor);
    u64 groups = groups_of(&g); // each starts at a multiple of 16 and is never larger than its values
    return (size_t)(groups * (GROUP_BYTES + 16) + 16) +
           (size_t)comet_tensor_count(tensor) * comet_dtype_size(stored_dtype(tensor, params));
}

static size_t workspace_bytes(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)params;
    tile_geometry g = geometry_of(tensor);
    return eb_workspace_bytes(groups_of(&g));
}

static GridTables tables_of(const comet_codec_grid *grid) {
    GridTables t = {};
    if (grid) {
        t.scale = grid->scale, t.shift = grid->shift;
        t.threshold = grid->threshold, t.slope = grid->slope;
    }
    return t;
}

// ---- compressing ----

static BoundSource bound_source(const comet_codec_params *p) {
    BoundSource s = {p->bound, p->device_bound, NULL};
    if (p->bound_kind == COMET_BOUND_RELATIVE)
        s.stats = (const comet_codec_stats *)p->device_stats;
    if (p->codec != COMET_CODEC_EB)
        s = BoundSource{0.0, NULL, NULL};
    return s;
}

static CompressArgs compress_args(const cuda_compress_job *job) {
    const comet_tensor *t = job->tensor;
    tile_geometry g = geometry_of(t);
    CompressArgs a = {};
    a.x = t->data;
    a.geometry = device_geometry(&g);
    a.bound = bound_source(job->params);
    a.base = (u8 *)job->slot.base;
    a.capacity = job->slot.capacity;
    a.start = job->slot.start;
    a.result = job->slot.result;
    a.workspace = (Workspace *)job->workspace;
    a.records = a.workspace->records;
    a.seed = job->params->seed;
    a.grid = tables_of(grid_of(job->params));
    a.grid_is_whole = is_whole(a.grid);
    a.channel_map = channels_of(t, &g);
    a.count = (u64)comet_tensor_count(t);
    a.groups = groups_of(&g);
    a.payload_start = eb_payload_start(a.groups);
    a.flags = job->fields.flags;
    a.dtype = (u32)job->fields.dtype;
    a.with_stats = job->params->stats_kind != COMET_STATS_NONE;
    a.header = job->header;
    a.bound_is_known = !a.bound.device && job->params->bound_kind == COMET_BOUND_ABSOLUTE;
    if (job->params->codec != COMET_CODEC_EB)
        a.bound_is_known = 1;
    if (a.bound_is_known)
        comet_quantiser_init(&a.q, comet_quantiser_bound(a.bound.value, job->fields.dtype), job->fields.dtype, a.flags);
    return a;
}

static bool is_exact(const CompressArgs &a) {
    return a.bound_is_known && a.q.bound == 0.0f;
}

// Which kernel compresses: exact tiles of a grid and stochastic rounding have no fast way.
static Mode compress_mode(const CompressArgs &a) {
    if (is_exact(a) || (a.flags & STREAM_STOCHASTIC))
        return MODE_ANY;
    return a.flags & STREAM_GRID ? MODE_GRID : a.flags & STREAM_KEEP_MASK ? MODE_KEEP : MODE_NEAREST;
}

static cudaError_t launch_compress(comet_dtype dtype, Reach reach, Mode mode, const CompressArgs &a,
                                   cudaStream_t queue) {
    return dtype == COMET_F32   ? comet_eb_launch_compress_f32(reach, mode, a, queue)
           : dtype == COMET_F16 ? comet_eb_launch_compress_f16(reach, mode, a, queue)
                                : comet_eb_launch_compress_bf16(reach, mode, a, queue);
}

static cudaError_t launch_survey(comet_dtype dtype, Reach reach, const CompressArgs &a, cudaStream_t queue) {
    return dtype == COMET_F32   ? comet_eb_launch_survey_f32(reach, a, queue)
           : dtype == COMET_F16 ? comet_eb_launch_survey_f16(reach, a, queue)
                                : comet_eb_launch_survey_bf16(reach, a, queue);
}

static cudaError_t compress(const cuda_compress_job *job) {
    CompressArgs a = compress_args(job);
    tile_geometry g = geometry_of(job->tensor);
    Reach reach = reach_of(&g);
    comet_dtype dtype = job->tensor->dtype;
    const comet_codec_params *p = job->params;
    if (is_exact(a) && !(a.flags & STREAM_GRID))
        return comet_exact_launch_compress(reach, a, job->queue);
    if (p->codec == COMET_CODEC_EB && p->bound_kind == COMET_BOUND_RELATIVE && !p->device_stats) {
        CompressArgs survey = a;
        survey.with_stats = 1;
        cudaError_t error = launch_survey(dtype, plain_reach_of(&g), survey, job->queue);
        if (error != cudaSuccess)
            return error;
        a.bound.stats = &a.workspace->own;
    }
    const Mode mode = compress_mode(a);
    return launch_compress(dtype, reach_for(job->tensor, mode), mode, a, job->queue);
}

// ---- decompressing ----

static void add_epilogue(DecompressArgs *a, const comet_cuda_epilogue *e) {
    if (!e)
        return;
    a->scale = e->scale;
    a->shift = e->shift;
    a->add = e->add;
    a->relu = (u32)e->relu;
    if (a->add || (a->relu && !a->scale && !a->shift))
        a->epilogue = EPILOGUE_ANY;
    else if (a->scale || a->shift)
        a->epilogue = EPILOGUE_NORM;
}

static DecompressArgs decompress_args(const cuda_decompress_job *job) {
    const comet_tensor *t = job->tensor;
    tile_geometry g = geometry_of(t);
    DecompressArgs a = {};
    a.y = t->data;
    a.geometry = device_geometry(&g);
    a.groups = groups_of(&g);
    eb_set_slot(&a, job->slot);
    a.status = job->status;
    a.grid = tables_of(grid_of(job->params));
    a.channel_map = channels_of(t, &g);
    add_epilogue(&a, job->epilogue);
    a.flags = job->fields.flags;
    a.dtype = (u32)job->fields.dtype;
    a.any_dtype = job->epilogue && !(a.flags & STREAM_GRID);
    a.header = job->header;
    return a;
}

// Whether tiles with padding are stored by the common code.
static bool stores_padding(Reach reach, Mode mode, EpilogueKind epilogue) {
    if (mode == MODE_GRID)
        return reach == REACH_LAST4 && epilogue != EPILOGUE_ANY;
    return reach == REACH_LAST4 || reach == REACH_FLAT;
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    DecompressArgs a = decompress_args(job);
    tile_geometry g = geometry_of(job->tensor);
    Reach reach = reach_of(&g);
    comet_dtype dtype = job->tensor->dtype;
    if (job->params->codec == COMET_CODEC_ZVC && !job->epilogue)
        return comet_exact_launch_decompress(reach, a, job->queue);
    Mode mode = a.flags & STREAM_GRID                            ? MODE_GRID
                : job->epilogue || (comet_dtype)a.dtype != dtype ? MODE_ANY
                : a.flags & STREAM_KEEP_MASK                     ? MODE_KEEP
                                                                 : MODE_NEAREST;
    reach = reach_for(job->tensor, mode);
    a.quick = stores_padding(reach, mode, a.epilogue) ? a.geometry.tiles : a.geometry.inner;
    return dtype == COMET_F32   ? comet_eb_launch_decompress_f32(reach, mode, a, job->queue)
           : dtype == COMET_F16 ? comet_eb_launch_decompress_f16(reach, mode, a, job->queue)
                                : comet_eb_launch_decompress_bf16(reach, mode, a, job->queue);
}

extern "C" const cuda_codec_vtable comet_cuda_eb = {check,           describe, body_max_bytes,
                                                    workspace_bytes, compress, decompress};
extern "C" const cuda_codec_vtable comet_cuda_zvc = {check,           describe, body_max_bytes,
                                                     workspace_bytes, compress, decompress};
