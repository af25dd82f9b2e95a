/* SPDX-License-Identifier: Apache-2.0 */
/* Setting up buffers that together are far larger than the L2 cache, and timing a codec on them. */
#include "cmd/bench/cuda/measure.h"

#include <math.h>

enum { L2_TURNS = 4, LEAST_BUFFERS = 3, MOST_BUFFERS = 256 };
static const size_t graph_below = (size_t)48 << 20; /* bytes: from here on a call takes far longer than to launch it */
static const size_t alignment = 256;

static size_t round_up(size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

static size_t bytes_of(const comet_tensor *tensor) {
    return (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
}

int cuda_bed_upload(cuda_bed *bed) {
    gpu *g = bed->gpu;
    size_t bytes = bytes_of(bed->source);
    TRY(gpu_reserve(g, &g->sample, bytes));
    TRY_CUDA(g, cudaMemcpyAsync(g->sample.data, bed->source->data, bytes, cudaMemcpyHostToDevice, g->queue));
    TRY_CUDA(g, cudaStreamSynchronize(g->queue)); /* the source is the caller's */
    return DONE;
}

/* The shape at a size: as many samples as come nearest to it, at least one. */
static void set_shape(cuda_bed *bed, double size) {
    comet_tensor *t = &bed->tensor;
    *t = *bed->source;
    if (t->ndim == 0) {
        t->ndim = 1;
        t->shape[0] = t->strides[0] = 1;
    }
    double sample = (double)bytes_of(bed->source) / (double)t->shape[0];
    if (size > 0)
        t->shape[0] = (int64_t)fmax(1, round(size * (1 << 20) / sample));
    bed->size = size;
    bed->bytes = bytes_of(t);
    bed->stride = round_up(bed->bytes);
}

static void set_buffers(cuda_bed *bed) {
    size_t wanted = (L2_TURNS * bed->gpu->facts.l2 + bed->bytes - 1) / bed->bytes;
    bed->buffers = wanted < LEAST_BUFFERS ? LEAST_BUFFERS : wanted > MOST_BUFFERS ? MOST_BUFFERS : (int)wanted;
}

static int fill_first(cuda_bed *bed) {
    gpu *g = bed->gpu;
    size_t period = bytes_of(bed->source);
    for (size_t at = 0; at < bed->bytes; at += period) {
        size_t bytes = bed->bytes - at < period ? bed->bytes - at : period;
        TRY_CUDA(g, cudaMemcpyAsync(g->input.data + at, g->sample.data, bytes, cudaMemcpyDeviceToDevice, g->queue));
    }
    return DONE;
}

int cuda_bed_fill(cuda_bed *bed, double size) {
    gpu *g = bed->gpu;
    set_shape(bed, size);
    set_buffers(bed);
    TRY(gpu_reserve(g, &g->input, bed->stride * (size_t)bed->buffers));
    TRY(gpu_reserve(g, &g->output, bed->stride * (size_t)bed->buffers));
    TRY(fill_first(bed));
    for (int i = 1; i < bed->buffers; i++)
        TRY_CUDA(g, cudaMemcpyAsync(g->input.data + (size_t)i * bed->stride, g->input.data, bed->bytes,
                                    cudaMemcpyDeviceToDevice, g->queue));
    const comet_tensor t = bed->tensor;
    TRY_COMET(g, comet_tensor_init_on(&bed->tensor, g->device, g->input.data, t.dtype, t.layout, t.ndim, t.shape));
    return DONE;
}

static comet_tensor tensor_at(const cuda_bed *bed, uint8_t *first, int index) {
    comet_tensor tensor = bed->tensor;
    tensor.data = first + (size_t)index * bed->stride;
    return tensor;
}

comet_tensor cuda_input(const cuda_bed *bed, int index) {
    return tensor_at(bed, bed->gpu->input.data, index);
}

comet_tensor cuda_output(const cuda_bed *bed, int index) {
    return tensor_at(bed, bed->gpu->output.data, index);
}

comet_cuda_slot cuda_slot(const cuda_codec_bed *c, int index) {
    gpu *g = c->bed->gpu;
    void *result = g->results.data + (size_t)index * CUDA_RESULT_STRIDE;
    return (comet_cuda_slot){g->streams.data + (size_t)index * c->stride, c->capacity, NULL, result};
}

static int start_copy(void *context, int index) {
    const cuda_bed *bed = ((cuda_codec_bed *)context)->bed;
    comet_tensor from = cuda_input(bed, index), to = cuda_output(bed, index);
    TRY_CUDA(bed->gpu, cudaMemcpyAsync(to.data, from.data, bed->bytes, cudaMemcpyDeviceToDevice, bed->gpu->queue));
    return DONE;
}

static int start_compress(void *context, int index) {
    const cuda_codec_bed *c = context;
    comet_tensor input = cuda_input(c->bed, index);
    comet_cuda_slot slot = cuda_slot(c, index);
    TRY_COMET(c->bed->gpu, comet_cuda_compress(&input, &c->params, &c->exec, &slot, NULL));
    return DONE;
}

/* With the absolute bound: what a relative one costs more is a pass that finds the rms. */
static void set_params(cuda_codec_bed *c, const bench_result *r) {
    c->params = r->coder->params;
    c->params.keep_mask = r->mode == CODER_KEEP;
    c->params.grid = r->mode == CODER_GRID ? &c->bed->device_grid : NULL;
    c->params.stats_kind = c->bed->plan->stats ? COMET_STATS_EXACT : COMET_STATS_NONE;
    if (r->coder->promise == CHECK_BOUNDED) {
        c->params.bound = r->bound;
        c->params.bound_kind = COMET_BOUND_ABSOLUTE;
    }
}

static int set_up(cuda_codec_bed *c) {
    cuda_bed *bed = c->bed;
    gpu *g = bed->gpu;
    size_t workspace = 0;
    TRY_COMET(g, comet_cuda_max_bytes(&bed->tensor, &c->params, &c->capacity));
    TRY_COMET(g, comet_cuda_workspace(&bed->tensor, &c->params, &workspace));
    c->stride = round_up(c->capacity);
    TRY(gpu_reserve(g, &g->streams, c->stride * (size_t)bed->buffers));
    TRY(gpu_reserve(g, &g->results, (size_t)MOST_BUFFERS * CUDA_RESULT_STRIDE));
    TRY(gpu_reserve(g, &g->status, sizeof(int32_t)));
    TRY(gpu_reserve(g, &g->workspace, workspace));
    TRY_COMET(g, comet_cuda_workspace_init(g->workspace.data, g->workspace.bytes, g->queue));
    TRY_CUDA(g, cudaMemsetAsync(g->status.data, 0, sizeof(int32_t), g->queue));
    c->exec.queue = g->queue;
    c->exec.workspace = g->workspace.data;
    c->exec.workspace_bytes = g->workspace.bytes;
    return DONE;
}

static int time_codec(cuda_codec_bed *c, cuda_result *result) {
    const cuda_bed *bed = c->bed;
    gpu_operation with_bn = c->params.grid ? cuda_start_decompress_bn : NULL;
    gpu_timing timing = {.operations = {start_copy, start_compress, cuda_start_decompress, with_bn},
                         .context = c,
                         .buffers = bed->buffers,
                         .as_graph = bed->bytes < graph_below,
                         .runs = bed->plan->runs < GPU_MAX_RUNS ? bed->plan->runs : GPU_MAX_RUNS};
    double ms[GPU_OPERATIONS], gigabytes = 1e-9 * (double)bed->bytes;
    for (int i = 0; i < bed->buffers; i++) /* every stream is there when the first round decompresses one */
        TRY(start_compress(c, i));
    TRY(cuda_start_decompress(c, 0)); /* a kernel is loaded when it first runs: not while a graph is made */
    if (with_bn)
        TRY(with_bn(c, 0));
    TRY(gpu_time(bed->gpu, &timing, ms));
    result->ms = (cuda_times){ms[0], ms[1], ms[2], ms[3]};
    result->base.one = (bench_speed){1e3 * gigabytes / ms[0], 1e3 * gigabytes / ms[1], 1e3 * gigabytes / ms[2]};
    return DONE;
}

/* What a relative bound is in units of. */
static double unit_of(const cuda_bed *bed, coder_mode mode) {
    return mode == CODER_GRID ? 1 : bed->values.rms;
}

int cuda_measure(cuda_bed *bed, cuda_result *result) {
    cuda_codec_bed c = {.bed = bed, .exec = COMET_CODEC_EXEC_INIT};
    bench_result *base = &result->base;
    base->tensor = bed->tensor;
    base->tensor.data = NULL;
    base->bytes_raw = base->bytes_timed = bed->bytes;
    base->bound = base->coder->promise == CHECK_BOUNDED ? base->error_rel * unit_of(bed, base->mode) : (double)NAN;
    base->all = (bench_speed){NAN, NAN, NAN};
    result->size = bed->size;
    result->buffers = bed->buffers;
    result->l2_turns = (double)bed->bytes * bed->buffers / (double)bed->gpu->facts.l2;
    set_params(&c, base);
    TRY(set_up(&c));
    TRY(time_codec(&c, result));
    return cuda_verify(&c, bed->buffers - 1, result) == DONE ? DONE : FAILED; /* what was compressed is taken */
}
