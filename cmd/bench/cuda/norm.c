/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation on a GPU: forward and backward with x kept, and with the stream of u kept in its place. */
#include "cmd/bench/bench_norm.h"

#include <stdlib.h>

#include "base/memory.h"
#include "cmd/bench/cuda/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/common/progress.h"
#include "comet/cuda_norm.h"

/* mean, inverse_std, gamma, beta, shift, threshold, dgamma, dbeta; measured: mean, inverse_std, shift, threshold;
 * running mean and variance; threshold of the layer that adds */
enum { TABLES = 15 };
static const size_t graph_below = (size_t)48 << 20;

typedef struct norm_bed {
    cuda_codec_bed codec; /* its streams; params without a grid */
    cuda_bed bed;
    gpu gpu;
    gpu_memory dy, tables;
    gpu_memory z, dz, y_streams, y_results; /* of the layer that adds: z is what another layer puts out */
    float *host_tables;                     /* of the tensor at hand */
    int64_t channels;
    size_t table_bytes;             /* from one to the next */
    comet_cuda_norm norm, measured; /* measured: with the tables that statistics are written to */
    comet_cuda_norm adding;
    comet_codec_params y_params;
    size_t y_capacity, y_stride;
    comet_cuda_norm_batch batch;
    comet_codec_params decode; /* with the layer's grid */
    comet_codec_grid grid;
} norm_bed;

/* ---- a layer ---- */

static float *table(const norm_bed *b, void *first, int index) {
    return (float *)(void *)((uint8_t *)first + (size_t)index * b->table_bytes);
}

static int set_layer(norm_bed *b, const comet_tensor *source) {
    gpu *g = &b->gpu;
    b->channels = source->shape[source->layout == COMET_NHWC ? source->ndim - 1 : 1];
    b->table_bytes = ((size_t)b->channels * sizeof(float) + 255) / 256 * 256;
    free(b->host_tables);
    b->host_tables = calloc(TABLES, b->table_bytes);
    if (!b->host_tables)
        return fail_memory();
    if (bench_channels_measure(source, b->channels, table(b, b->host_tables, 0), table(b, b->host_tables, 1)) != DONE)
        return fail_memory();
    bench_slopes_make(table(b, b->host_tables, 2), table(b, b->host_tables, 3), b->channels);
    TRY(gpu_reserve(g, &b->tables, TABLES * b->table_bytes));
    TRY_CUDA(
        g, cudaMemcpyAsync(b->tables.data, b->host_tables, TABLES * b->table_bytes, cudaMemcpyHostToDevice, g->queue));
    void *first = b->tables.data;
    b->norm = (comet_cuda_norm)COMET_CUDA_NORM_INIT;
    b->norm.channels = b->channels;
    b->norm.mean = table(b, first, 0), b->norm.inverse_std = table(b, first, 1);
    b->norm.gamma = table(b, first, 2), b->norm.beta = table(b, first, 3);
    b->norm.shift = table(b, first, 4), b->norm.threshold = table(b, first, 5);
    b->norm.relu = 1;
    b->measured = b->norm;
    b->measured.inverse_std = table(b, first, 9);
    b->measured.shift = table(b, first, 10), b->measured.threshold = table(b, first, 11);
    b->adding = b->norm;
    b->adding.adds = 1;
    b->adding.threshold = table(b, first, 14);
    b->batch = (comet_cuda_norm_batch)COMET_CUDA_NORM_BATCH_INIT;
    b->batch.norm = &b->measured;
    b->batch.channels = b->channels;
    b->batch.mean = table(b, first, 8), b->batch.inverse_std = table(b, first, 9);
    b->batch.running_mean = table(b, first, 12), b->batch.running_variance = table(b, first, 13);
    TRY_COMET(g, comet_cuda_norm_prepare(&b->norm, g->queue));
    TRY_COMET(g, comet_cuda_norm_prepare(&b->adding, g->queue));
    TRY_COMET(g, comet_cuda_norm_grid(&b->norm, &b->grid));
    return DONE;
}

/* ---- what is timed ---- */

static comet_tensor gradient(const norm_bed *b, int index) {
    comet_tensor t = b->bed.tensor;
    t.data = b->dy.data + (size_t)index * b->bed.stride;
    return t;
}

static comet_tensor addend(const norm_bed *b, int index) {
    comet_tensor t = b->bed.tensor;
    t.data = b->z.data + (size_t)index * b->bed.stride;
    return t;
}

static int32_t *status_word(const norm_bed *b) {
    return (int32_t *)(void *)b->gpu.status.data;
}

static int start_copy(void *context, int index) {
    norm_bed *b = context;
    comet_tensor from = cuda_input(&b->bed, index), to = cuda_output(&b->bed, index);
    TRY_CUDA(&b->gpu, cudaMemcpyAsync(to.data, from.data, b->bed.bytes, cudaMemcpyDeviceToDevice, b->gpu.queue));
    return DONE;
}

static int start_statistics(void *context, int index) {
    norm_bed *b = context;
    comet_tensor x = cuda_input(&b->bed, index);
    TRY_COMET(&b->gpu, comet_cuda_norm_statistics(&b->batch, &x, &b->codec.exec));
    return DONE;
}

static int start_forward(norm_bed *b, int index, int with_stream) {
    comet_tensor x = cuda_input(&b->bed, index), y = cuda_output(&b->bed, index);
    comet_cuda_slot slot = cuda_slot(&b->codec, index);
    TRY_COMET(&b->gpu, comet_cuda_norm_forward(&b->norm, &x, &y, &b->codec.params, &b->codec.exec,
                                               with_stream ? &slot : NULL, NULL, NULL));
    return DONE;
}

static int start_forward_plain(void *context, int index) {
    return start_forward(context, index, 0);
}

static int start_forward_stream(void *context, int index) {
    return start_forward(context, index, 1);
}

static int start_backward(norm_bed *b, int index, int from_stream) {
    comet_tensor x = cuda_input(&b->bed, index), dy = gradient(b, index), dx = cuda_output(&b->bed, index);
    comet_cuda_slot slot = cuda_slot(&b->codec, index);
    TRY_COMET(&b->gpu,
              comet_cuda_norm_backward(&b->norm, from_stream ? &slot : NULL, from_stream ? NULL : &x, &dy, &dx,
                                       table(b, b->tables.data, 6), table(b, b->tables.data, 7), &b->codec.params,
                                       &b->codec.exec, from_stream ? status_word(b) : NULL, NULL));
    return DONE;
}

static int start_backward_plain(void *context, int index) {
    return start_backward(context, index, 0);
}

static int start_backward_stream(void *context, int index) {
    return start_backward(context, index, 1);
}

/* ---- with an addend ---- */

static comet_cuda_slot y_slot(const norm_bed *b, int index) {
    void *result = b->y_results.data + (size_t)index * CUDA_RESULT_STRIDE;
    return (comet_cuda_slot){b->y_streams.data + (size_t)index * b->y_stride, b->y_capacity, NULL, result};
}

/* Streams: none, of u, of u and y. */
static int start_add_with(norm_bed *b, int index, int streams) {
    comet_tensor x = cuda_input(&b->bed, index), y = cuda_output(&b->bed, index), z = addend(b, index);
    comet_cuda_slot slot = cuda_slot(&b->codec, index), of_y = y_slot(b, index);
    comet_cuda_norm_residual residual = COMET_CUDA_NORM_RESIDUAL_INIT;
    residual.add = &z;
    residual.y_slot = streams > 1 ? &of_y : NULL;
    residual.y_params = &b->y_params;
    TRY_COMET(&b->gpu, comet_cuda_norm_forward(&b->adding, &x, &y, &b->codec.params, &b->codec.exec,
                                               streams ? &slot : NULL, NULL, &residual));
    return DONE;
}

static int start_add(void *context, int index) {
    return start_add_with(context, index, 0);
}

static int start_add_stream(void *context, int index) {
    return start_add_with(context, index, 1);
}

static int start_add_streams(void *context, int index) {
    return start_add_with(context, index, 2);
}

static int start_add_backward(void *context, int index) {
    norm_bed *b = context;
    comet_tensor dy = gradient(b, index), dx = cuda_output(&b->bed, index), dz = dx;
    comet_cuda_slot slot = cuda_slot(&b->codec, index), of_y = y_slot(b, index);
    comet_cuda_norm_residual_back residual = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    dz.data = b->dz.data + (size_t)index * b->bed.stride;
    residual.y_slot = &of_y;
    residual.y_params = &b->y_params;
    residual.dz = &dz;
    TRY_COMET(&b->gpu, comet_cuda_norm_backward(&b->adding, &slot, NULL, &dy, &dx, table(b, b->tables.data, 6),
                                                table(b, b->tables.data, 7), &b->codec.params, &b->codec.exec,
                                                status_word(b), &residual));
    return DONE;
}

/* ---- decoding ---- */

static int start_decompress(norm_bed *b, int index, int with_epilogue) {
    comet_cuda_epilogue epilogue = COMET_CUDA_EPILOGUE_INIT;
    comet_tensor out = cuda_output(&b->bed, index);
    comet_cuda_slot slot = cuda_slot(&b->codec, index);
    if (with_epilogue) {
        epilogue.channels = b->channels;
        epilogue.scale = b->norm.gamma, epilogue.shift = b->norm.beta;
        epilogue.relu = 1;
    }
    int needed = with_epilogue || out.dtype != COMET_F32; /* the stream's values are fp32 */
    TRY_COMET(&b->gpu, comet_cuda_decompress(&slot, &b->decode, needed ? &epilogue : NULL, &b->codec.exec, &out,
                                             status_word(b)));
    return DONE;
}

static int start_decompress_plain(void *context, int index) {
    return start_decompress(context, index, 0);
}

static int start_decompress_epilogue(void *context, int index) {
    return start_decompress(context, index, 1);
}

/* ---- one case ---- */

static int set_up_adding(norm_bed *b) {
    gpu *g = &b->gpu;
    size_t count = (size_t)b->bed.buffers;
    b->y_params = b->codec.params; /* y's rms is not far from 1, either */
    b->y_params.keep_mask = 1;
    TRY_COMET(g, comet_cuda_max_bytes(&b->bed.tensor, &b->y_params, &b->y_capacity));
    b->y_stride = (b->y_capacity + 255) / 256 * 256;
    TRY(gpu_reserve(g, &b->y_streams, b->y_stride * count));
    TRY(gpu_reserve(g, &b->y_results, count * CUDA_RESULT_STRIDE));
    TRY(gpu_reserve(g, &b->z, b->bed.stride * count));
    for (int i = 0; i < b->bed.buffers; i++) {
        comet_tensor x = cuda_input(&b->bed, i), z = addend(b, i);
        TRY_COMET(g, comet_cuda_norm_forward(&b->norm, &x, &z, &b->codec.params, &b->codec.exec, NULL, NULL, NULL));
    }
    return gpu_reserve(g, &b->dz, b->bed.stride * count);
}

static int set_up(norm_bed *b) {
    gpu *g = &b->gpu;
    cuda_codec_bed *c = &b->codec;
    size_t workspace = 0, count = (size_t)b->bed.buffers;
    TRY_COMET(g, comet_cuda_norm_max_bytes(&b->bed.tensor, &c->params, &c->capacity));
    TRY_COMET(g, comet_cuda_norm_workspace(&b->bed.tensor, &c->params, &workspace));
    c->stride = (c->capacity + 255) / 256 * 256;
    TRY(gpu_reserve(g, &g->streams, c->stride * count));
    TRY(gpu_reserve(g, &g->results, count * CUDA_RESULT_STRIDE));
    TRY(gpu_reserve(g, &g->status, sizeof(int32_t)));
    TRY(gpu_reserve(g, &g->workspace, workspace));
    TRY(gpu_reserve(g, &b->dy, b->bed.stride * count));
    TRY_CUDA(g, cudaMemcpyAsync(b->dy.data, g->input.data, b->bed.stride * count, cudaMemcpyDeviceToDevice, g->queue));
    TRY_COMET(g, comet_cuda_workspace_init(g->workspace.data, g->workspace.bytes, g->queue));
    TRY_CUDA(g, cudaMemsetAsync(g->status.data, 0, sizeof(int32_t), g->queue));
    c->exec = (comet_codec_exec)COMET_CODEC_EXEC_INIT;
    c->exec.queue = g->queue;
    c->exec.workspace = g->workspace.data;
    c->exec.workspace_bytes = g->workspace.bytes;
    b->decode = c->params;
    b->decode.grid = &b->grid;
    return set_up_adding(b);
}

/* gpu_time takes three operations at a time; the copy goes with each. */
static int time_three(norm_bed *b, gpu_operation second, gpu_operation third, double *ms) {
    const cuda_bed *bed = &b->bed;
    gpu_timing timing = {.operations = {start_copy, second, third},
                         .context = b,
                         .buffers = bed->buffers,
                         .as_graph = bed->bytes < graph_below,
                         .runs = bed->plan->runs < GPU_MAX_RUNS ? bed->plan->runs : GPU_MAX_RUNS};
    TRY(second(b, 0)); /* a kernel is loaded when it first runs: not while a graph is made */
    TRY(third(b, 0));
    return gpu_time(&b->gpu, &timing, ms);
}

static int time_all(norm_bed *b, norm_result *r) {
    double ms[GPU_OPERATIONS];
    for (int i = 0; i < b->bed.buffers; i++) /* every stream is there when the first is read */
        TRY(start_forward_stream(b, i));
    TRY(time_three(b, start_forward_plain, start_forward_stream, ms));
    r->ms[NORM_COPY] = ms[0], r->ms[NORM_FORWARD] = ms[1], r->ms[NORM_FORWARD_STREAM] = ms[2];
    TRY(time_three(b, start_statistics, start_statistics, ms));
    r->ms[NORM_STATISTICS] = ms[1];
    TRY(time_three(b, start_backward_plain, start_backward_stream, ms));
    r->ms[NORM_BACKWARD] = ms[1], r->ms[NORM_BACKWARD_STREAM] = ms[2];
    TRY(time_three(b, start_decompress_plain, start_decompress_epilogue, ms));
    r->ms[NORM_DECOMPRESS] = ms[1], r->ms[NORM_DECOMPRESS_EPILOGUE] = ms[2];
    for (int i = 0; i < b->bed.buffers; i++)
        TRY(start_add_streams(b, i));
    TRY(time_three(b, start_add, start_add_stream, ms));
    r->ms[NORM_ADD] = ms[1], r->ms[NORM_ADD_STREAM] = ms[2];
    TRY(time_three(b, start_add_streams, start_add_backward, ms));
    r->ms[NORM_ADD_STREAMS] = ms[1], r->ms[NORM_ADD_BACKWARD] = ms[2];
    return DONE;
}

static int read_result(norm_bed *b, norm_result *r) {
    const void *copy;
    TRY(gpu_read(&b->gpu, b->gpu.status.data, sizeof(int32_t), &copy));
    TRY_COMET(&b->gpu, (comet_status) * (const int32_t *)copy);
    TRY(gpu_read(&b->gpu, b->gpu.results.data, sizeof(comet_cuda_result), &copy));
    const comet_cuda_result *result = copy;
    r->bytes_resident = result->codec.bytes;
    r->tiles = result->codec.tiles;
    r->tiles_exact = result->codec.tiles_exact;
    r->tiles_wide = result->codec.tiles_wide;
    return DONE;
}

static norm_result *new_result(norm_results *results) {
    norm_result *items =
        comet_array_reserve(NULL, results->items, results->count, results->count + 1, &results->room, sizeof *items);
    if (!items)
        return NULL;
    results->items = items;
    results->items[results->count] = (norm_result){0};
    return &results->items[results->count++];
}

static int measure(norm_bed *b, const char *name, double error, norm_results *results, norm_result **made) {
    norm_result *r = new_result(results);
    if (!r)
        return fail_memory();
    r->name = name;
    r->error_rel = error;
    r->size = b->bed.size;
    r->tensor = b->bed.tensor;
    r->tensor.data = NULL;
    r->bytes_raw = b->bed.bytes;
    r->buffers = b->bed.buffers;
    b->codec.params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    b->codec.params.bound = error; /* u's rms is 1 */
    b->codec.params.stats_kind = b->bed.plan->stats ? COMET_STATS_EXACT : COMET_STATS_NONE;
    TRY(set_up(b));
    TRY(time_all(b, r));
    *made = r;
    return read_result(b, r);
}

/* ---- all cases ---- */

typedef struct norm_run {
    const bench_plan *plan;
    void (*show)(const norm_result *result);
    norm_results *results;
    norm_bed bed;
    progress progress;
} norm_run;

static int tell(norm_run *r, const char *name) {
    const comet_tensor *t = &r->bed.bed.tensor;
    progress_clear(&r->progress);
    return fail("%s, %s, %s: %s", name, layout_name(t->layout), dtype_option(t->dtype), r->bed.gpu.problem);
}

static int run_size(norm_run *r, const char *name, double size) {
    if (cuda_bed_fill(&r->bed.bed, size) != DONE)
        return tell(r, name);
    for (int e = 0; e < r->plan->error_count; e++) {
        norm_result *made = NULL;
        if (measure(&r->bed, name, r->plan->errors[e], r->results, &made) != DONE)
            return tell(r, name);
        progress_step(&r->progress, name);
        if (r->show) {
            progress_clear(&r->progress);
            r->show(made);
        }
    }
    return DONE;
}

static int run_source(norm_run *r, const char *name, const comet_tensor *source) {
    r->bed.bed.source = source;
    r->bed.bed.tensor = *source;
    if (set_layer(&r->bed, source) != DONE || cuda_bed_upload(&r->bed.bed) != DONE)
        return tell(r, name);
    for (int i = 0; i < r->plan->size_count; i++)
        TRY(run_size(r, name, r->plan->sizes[i]));
    return DONE;
}

static int run_tensor(norm_run *r, const named_tensor *item) {
    static const comet_layout both[] = {COMET_NHWC, COMET_NCHW};
    const bench_plan *plan = r->plan;
    const comet_layout *layouts = plan->layout_count ? plan->layouts : both;
    int dtypes = plan->dtype_count ? plan->dtype_count : 1;
    if (item->array.tensor.ndim != 4 || comet_tensor_count(&item->array.tensor) == 0)
        return DONE;
    for (int l = 0; l < (plan->layout_count ? plan->layout_count : 2); l++)
        for (int d = 0; d < dtypes; d++) {
            array variant;
            comet_dtype dtype = plan->dtype_count ? plan->dtypes[d] : item->array.tensor.dtype;
            TRY(bench_variant(item, layouts[l], dtype, &variant));
            int answer = run_source(r, item->name, &variant.tensor);
            array_give(&variant);
            TRY(answer);
        }
    return DONE;
}

static int run_all(norm_run *r) {
    const bench_plan *plan = r->plan;
    size_t variants =
        (size_t)(plan->layout_count ? plan->layout_count : 2) * (size_t)(plan->dtype_count ? plan->dtype_count : 1);
    if (gpu_open(&r->bed.gpu, plan->device) != DONE)
        return fail("GPU number %d: %s", (int)plan->device.index, r->bed.gpu.problem);
    r->bed.bed.gpu = &r->bed.gpu;
    r->bed.bed.plan = plan;
    r->bed.codec.bed = &r->bed.bed;
    r->results->facts = r->bed.gpu.facts;
    progress_start(&r->progress, plan->data.count * variants * (size_t)plan->size_count * (size_t)plan->error_count,
                   plan->quiet);
    for (size_t i = 0; i < plan->data.count; i++)
        TRY(run_tensor(r, &plan->data.items[i]));
    return DONE;
}

int bench_norm_run(const bench_plan *plan, void (*show)(const norm_result *result), norm_results *results) {
    norm_run *r = calloc(1, sizeof *r);
    if (!r)
        return fail_memory();
    r->plan = plan;
    r->show = show;
    r->results = results;
    int answer = run_all(r);
    progress_clear(&r->progress);
    (void)cudaFree(r->bed.dy.data); /* what fails here has failed before, and was told */
    (void)cudaFree(r->bed.tables.data);
    (void)cudaFree(r->bed.dz.data);
    (void)cudaFree(r->bed.y_streams.data);
    (void)cudaFree(r->bed.y_results.data);
    gpu_close(&r->bed.gpu);
    free(r->bed.host_tables);
    free(r);
    return answer;
}
