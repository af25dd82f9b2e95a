/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU made, judged on the CPU: by comparing values, and streams with those the CPU makes. */
#include <stdio.h>
#include <string.h>

#include "cmd/bench/cuda/measure.h"

static const size_t compared_bytes = (size_t)24 << 20; /* larger tensors are not compressed on the CPU too */

static int problem(gpu *g, const char *what, int32_t status) {
    snprintf(g->problem, sizeof g->problem, "%s: %s", what, comet_status_string((comet_status)status));
    return FAILED;
}

/* All compressions must have gone well; *one is number `index`. */
static int read_results(cuda_codec_bed *c, int index, comet_cuda_result *one) {
    gpu *g = c->bed->gpu;
    const void *copy;
    TRY(gpu_read(g, g->results.data, (size_t)c->bed->buffers * CUDA_RESULT_STRIDE, &copy));
    const uint8_t *results = copy;
    memcpy(one, results + (size_t)index * CUDA_RESULT_STRIDE, sizeof *one);
    for (int i = 0; i < c->bed->buffers; i++) {
        comet_cuda_result other;
        memcpy(&other, results + (size_t)i * CUDA_RESULT_STRIDE, sizeof other);
        if (other.status != COMET_OK)
            return problem(g, "compressing left the status", other.status);
    }
    return DONE;
}

static int check_status(cuda_codec_bed *c) {
    gpu *g = c->bed->gpu;
    const void *copy;
    int32_t status;
    TRY(gpu_read(g, g->status.data, sizeof status, &copy));
    memcpy(&status, copy, sizeof status);
    return status == COMET_OK ? DONE : problem(g, "decompressing left the status", status);
}

static int reserve(gpu *g, buffer *memory, size_t bytes) {
    return buffer_reserve(memory, bytes) ? DONE : problem(g, "host memory", COMET_ERROR_MEMORY);
}

/* The stream as the CPU would have written it, into bed->serialised. */
static int serialise(cuda_codec_bed *c, int index, const comet_cuda_result *made, cuda_result *result) {
    cuda_bed *bed = c->bed;
    comet_cuda_slot slot = cuda_slot(c, index);
    const void *stream;
    TRY(gpu_read(bed->gpu, (const uint8_t *)slot.base + made->start, made->codec.bytes, &stream));
    TRY(reserve(bed->gpu, &bed->serialised, made->codec.bytes));
    TRY_COMET(bed->gpu, comet_codec_serialise(stream, made->codec.bytes, 0, bed->serialised.data, bed->serialised.bytes,
                                              &result->base.bytes_stored));
    return DONE;
}

/* The input, on the host. */
static int repeat_input(cuda_bed *bed, comet_tensor *tensor) {
    size_t period = (size_t)comet_tensor_count(bed->source) * comet_dtype_size(bed->source->dtype);
    TRY(reserve(bed->gpu, &bed->cpu_input, bed->bytes));
    for (size_t at = 0; at < bed->bytes; at += period)
        memcpy(bed->cpu_input.data + at, bed->source->data, bed->bytes - at < period ? bed->bytes - at : period);
    *tensor = bed->tensor;
    tensor->data = bed->cpu_input.data;
    tensor->device = (comet_device){COMET_CPU, 0};
    return DONE;
}

static int same_stats(const comet_codec_stats *a, const comet_codec_stats *b) {
    return a->count == b->count && a->nonzero == b->nonzero && a->positive == b->positive &&
           a->nonfinite == b->nonfinite && a->min == b->min && a->max == b->max && a->sum_abs == b->sum_abs &&
           a->sum_squares == b->sum_squares;
}

static int compare_with_cpu(cuda_codec_bed *c, const comet_cuda_result *made, cuda_result *result) {
    cuda_bed *bed = c->bed;
    comet_tensor tensor;
    comet_codec_params params = c->params;
    comet_codec_result cpu = COMET_CODEC_RESULT_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    size_t capacity;
    exec.threads = bed->plan->threads;
    params.grid = params.grid ? &bed->grid.host : NULL;
    TRY(repeat_input(bed, &tensor));
    TRY_COMET(bed->gpu, comet_codec_max_bytes(&tensor, &params, &capacity));
    TRY(reserve(bed->gpu, &bed->cpu_stream, capacity));
    TRY_COMET(bed->gpu, comet_codec_compress(&tensor, &params, &exec, bed->cpu_stream.data, capacity, &cpu));
    result->stream_as_cpu =
        cpu.bytes == result->base.bytes_stored && memcmp(bed->cpu_stream.data, bed->serialised.data, cpu.bytes) == 0;
    if (c->params.stats_kind == COMET_STATS_EXACT)
        result->stats_as_cpu = same_stats(&cpu.stats, &made->codec.stats);
    return DONE;
}

/* `sides` is filled where there are some, and lives as long as the task. */
static check_task task_of(const cuda_codec_bed *c, const comet_tensor *output, const cuda_result *result,
                          check_sides *sides) {
    const cuda_bed *bed = c->bed;
    check_task task = {.kind = result->base.coder->promise,
                       .bound = result->base.bound,
                       .keep_mask = c->params.keep_mask,
                       .dtype = output->dtype,
                       .count = comet_tensor_count(output),
                       .input = bed->source->data};
    if (task.kind == CHECK_BOUNDED && !(task.bound > 0))
        task.kind = CHECK_EXACT;
    if (c->params.grid) {
        *sides = bench_grid_sides(&bed->grid);
        task.sides = sides;
        task.input = bed->grid.values.data;
    }
    return task;
}

/* Decodes once more, into memory where no value is a good one: a copy of the input was there before. */
static int check_values(cuda_codec_bed *c, int index, cuda_result *result) {
    cuda_bed *bed = c->bed;
    gpu *g = bed->gpu;
    comet_tensor output;
    check_sides sides;
    comet_cuda_slot slot = cuda_slot(c, index);
    int32_t *status = (int32_t *)(void *)g->status.data;
    TRY(cuda_output_to_check(c, index, &output));
    check_task task = task_of(c, &output, result, &sides);
    size_t bytes = (size_t)task.count * comet_dtype_size(output.dtype);
    TRY_CUDA(g, cudaMemsetAsync(output.data, 0xff, bytes, g->queue));
    TRY_COMET(g, comet_cuda_decompress(&slot, &c->params, NULL, &c->exec, &output, status));
    TRY(check_status(c));
    TRY(gpu_read(g, output.data, bytes, &task.output));
    check_repeated(&task, comet_tensor_count(bed->source), bed->plan->threads, &result->base.check);
    return DONE;
}

int cuda_verify(cuda_codec_bed *c, int index, cuda_result *result) {
    comet_cuda_result made;
    TRY(read_results(c, index, &made));
    result->bytes_resident = made.codec.bytes;
    result->tiles = made.codec.tiles;
    result->tiles_exact = made.codec.tiles_exact;
    result->tiles_wide = made.codec.tiles_wide;
    TRY(serialise(c, index, &made, result));
    result->stream_as_cpu = result->stats_as_cpu = -1;
    if (c->bed->bytes <= compared_bytes)
        TRY(compare_with_cpu(c, &made, result));
    return check_values(c, index, result);
}
