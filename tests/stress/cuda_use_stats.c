/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long statistics of uses take on a GPU, beside a copy on the device of as many bytes as they read. Not part of the
 * ordinary tests.
 *
 *     cuda_use_stats [IMAGES]      of a batch; 64
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "comet/cuda_use_stats.h"

enum { ROUNDS = 20 };

static void must_cuda(cudaError_t error) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    exit(2);
}

static void must(comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "%s: %s\n", comet_status_string(status), comet_last_error());
    exit(2);
}

static void *take(size_t bytes) {
    void *memory;
    must_cuda(cudaMalloc(&memory, bytes));
    return memory;
}

/* Patterns that are finite in every dtype. */
static void *take_values(size_t bytes) {
    uint16_t *host = malloc(bytes);
    void *memory = take(bytes);
    for (size_t i = 0; i < bytes / 2; i++)
        host[i] = (uint16_t)(0x3400u + i * 2654435761u % 0x800u + (i * 40503u >> 7 & 1) * 0x8000u);
    must_cuda(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    free(host);
    return memory;
}

/* A call, whichever it is. */
typedef struct call {
    const char *name;
    const comet_tensor_pass *tensor;
    const comet_layer_pass *layer;
    const comet_norm_pass *norm;
    const comet_silu_pass *silu;
    const comet_scale_pass *scale;
    int reads; /* tensors */
} call;

static void ask(const call *c, comet_cuda_stats_needs *n) {
    must(c->tensor  ? comet_cuda_stats_tensor_needs(c->tensor, n)
         : c->layer ? comet_cuda_stats_layer_needs(c->layer, n)
         : c->norm  ? comet_cuda_stats_norm_needs(c->norm, n)
         : c->silu  ? comet_cuda_stats_silu_needs(c->silu, n)
                    : comet_cuda_stats_scale_needs(c->scale, n));
}

static void see(const call *c, const comet_stats_exec *exec, const comet_cuda_stats_slot *slot) {
    must(c->tensor  ? comet_cuda_stats_see_tensor(c->tensor, exec, slot)
         : c->layer ? comet_cuda_stats_see_layer(c->layer, exec, slot)
         : c->norm  ? comet_cuda_stats_see_norm(c->norm, exec, slot)
         : c->silu  ? comet_cuda_stats_see_silu(c->silu, exec, slot)
                    : comet_cuda_stats_see_scale(c->scale, exec, slot));
}

/* Microseconds of one: `what` NULL is a copy. The first round does not count. */
static double time_of(const call *what, void *to, const void *from, size_t bytes) {
    comet_cuda_stats_needs n = COMET_CUDA_STATS_NEEDS_INIT;
    comet_stats_exec exec = COMET_STATS_EXEC_INIT;
    cudaEvent_t begin, end;
    float milliseconds;
    if (what)
        ask(what, &n);
    exec.workspace_bytes = n.workspace_bytes + 64;
    exec.workspace = take(exec.workspace_bytes);
    const comet_cuda_stats_slot slot = {take(n.record_bytes + 16), n.record_bytes, NULL};
    must_cuda(cudaEventCreate(&begin));
    must_cuda(cudaEventCreate(&end));
    for (int i = 0; i <= ROUNDS; i++) {
        if (i == 1)
            must_cuda(cudaEventRecord(begin, NULL));
        if (what)
            see(what, &exec, &slot);
        else
            must_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, NULL));
    }
    must_cuda(cudaEventRecord(end, NULL));
    must_cuda(cudaEventSynchronize(end));
    must_cuda(cudaEventElapsedTime(&milliseconds, begin, end));
    must_cuda(cudaEventDestroy(begin));
    must_cuda(cudaEventDestroy(end));
    must_cuda(cudaFree(exec.workspace));
    must_cuda(cudaFree(slot.record));
    return 1e3 * (double)milliseconds / ROUNDS;
}

/* A 3 x 3 convolution from so many channels to as many, and what may stand behind it. */
typedef struct layers {
    comet_tensor x, dy, s;
    size_t bytes; /* of x and dy */
    float *table;
    comet_codec_record *result;
    comet_tensor_pass tensor;
    comet_layer_pass output, input, common;
    comet_norm_pass norm;
    comet_silu_pass silu;
    comet_scale_pass scale;
} layers;

static void take_tensors(layers *l, int64_t images, int64_t size, int64_t channels, comet_layout layout,
                         comet_dtype dtype) {
    static const comet_codec_record stored = {.bytes = 1, .bound = 0.1, .stats = {.count = 1}};
    const comet_device device = {COMET_CUDA, 0};
    const int64_t shapes[2][4] = {{images, channels, size, size}, {images, size, size, channels}};
    const int64_t *shape = shapes[layout == COMET_NHWC], factors[2] = {images, channels};
    l->bytes = (size_t)(images * size * size * channels) * comet_dtype_size(dtype);
    must(comet_tensor_init_on(&l->x, device, take_values(l->bytes), dtype, layout, 4, shape));
    must(comet_tensor_init_on(&l->dy, device, take_values(l->bytes), dtype, layout, 4, shape));
    must(comet_tensor_init_on(&l->s, device, l->x.data, dtype, layout, 2, factors));
    l->table = take_values((size_t)(channels * channels * 9) * sizeof *l->table);
    l->result = take(sizeof stored);
    must_cuda(cudaMemcpy(l->result, &stored, sizeof stored, cudaMemcpyHostToDevice));
}

static void make_passes(layers *l) {
    l->tensor = (comet_tensor_pass)COMET_TENSOR_PASS_INIT;
    l->tensor.result = l->result, l->tensor.values = &l->x;
    l->output = (comet_layer_pass)COMET_LAYER_PASS_INIT;
    l->output.input = &l->x, l->output.gradient = &l->dy, l->output.weights = l->table;
    l->output.kernel[0] = l->output.kernel[1] = 3, l->output.padding[0] = l->output.padding[1] = 1;
    l->input = l->common = l->output;
    l->input.what = COMET_STATS_INPUT, l->common.what = COMET_STATS_INPUT | COMET_STATS_COMMON;
    l->norm = (comet_norm_pass)COMET_NORM_PASS_INIT;
    l->norm.values = &l->x, l->norm.gradient = &l->dy;
    l->norm.scale = l->norm.gamma = l->norm.beta = l->table, l->norm.relu = 1;
    l->silu = (comet_silu_pass)COMET_SILU_PASS_INIT;
    l->silu.input = &l->x, l->silu.gradient = &l->dy;
    l->scale = (comet_scale_pass)COMET_SCALE_PASS_INIT;
    l->scale.factors = &l->s, l->scale.gradient = &l->dy;
}

static void report(const layers *l) {
    const call calls[] = {{.name = "tensor", .tensor = &l->tensor},
                          {.name = "layer, output", .layer = &l->output, .reads = 1},
                          {.name = "layer, input", .layer = &l->input, .reads = 1},
                          {.name = "layer, input and common", .layer = &l->common, .reads = 1},
                          {.name = "norm", .norm = &l->norm, .reads = 2},
                          {.name = "silu", .silu = &l->silu, .reads = 2},
                          {.name = "scale", .scale = &l->scale, .reads = 1}};
    const double copy = time_of(NULL, l->dy.data, l->x.data, l->bytes);
    printf("a copy %.1f us\n", copy);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const double time = time_of(&calls[i], NULL, NULL, 0);
        printf("  %-24s %8.1f us  %5.2f copies  %7.0f GB/s\n", calls[i].name, time, time / copy,
               1e-3 * (double)l->bytes * calls[i].reads / time);
    }
}

static void measure(int64_t images, int64_t size, int64_t channels, comet_layout layout, comet_dtype dtype) {
    layers l;
    take_tensors(&l, images, size, channels, layout, dtype);
    make_passes(&l);
    printf("%s %s, %lld x %lld x %lld, %lld channels: ", layout == COMET_NHWC ? "NHWC" : "NCHW",
           comet_dtype_name(dtype), (long long)images, (long long)size, (long long)size, (long long)channels);
    report(&l);
    void *all[] = {l.x.data, l.dy.data, l.table, l.result};
    for (int i = 0; i < 4; i++)
        must_cuda(cudaFree(all[i]));
}

int main(int argc, char **argv) {
    const int64_t images = argc > 1 ? atoll(argv[1]) : 64;
    static const int64_t sizes[][2] = {{112, 64}, {56, 256}, {14, 512}, {7, 512}};
    for (int layout = COMET_NCHW; layout <= COMET_NHWC; layout++)
        for (int wide = 0; wide < 2; wide++)
            for (int i = 0; i < 4; i++)
                measure(images, sizes[i][0], sizes[i][1], (comet_layout)layout, wide ? COMET_F32 : COMET_BF16);
    return 0;
}
