/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a GPU, its memory, and what went wrong. */
#include "cmd/bench/cuda/gpu.h"

#include <stdio.h>
#include <string.h>

#include "cmd/common/measure.h"
#include "cmd/common/message.h"

static int name_length(const char *call) {
    return (int)strcspn(call, "( ");
}

int gpu_cuda(gpu *g, cudaError_t error, const char *call) {
    if (error == cudaSuccess)
        return DONE;
    snprintf(g->problem, sizeof g->problem, "%.*s: %s (%s)%s", name_length(call), call, cudaGetErrorString(error),
             cudaGetErrorName(error), error == cudaErrorMemoryAllocation ? "; try smaller --sizes" : "");
    return FAILED;
}

int gpu_comet(gpu *g, comet_status status, const char *call) {
    if (status == COMET_OK)
        return DONE;
    snprintf(g->problem, sizeof g->problem, "%.*s: %s", name_length(call), call, why(status));
    return status == COMET_ERROR_UNSUPPORTED ? LEFT_OUT : FAILED;
}

static int attribute(gpu *g, enum cudaDeviceAttr which, int *value) {
    return gpu_cuda(g, cudaDeviceGetAttribute(value, which, g->device.index), "cudaDeviceGetAttribute");
}

static int read_facts(gpu *g) {
    struct cudaDeviceProp properties;
    int major, minor, l2;
    TRY_CUDA(g, cudaGetDeviceProperties(&properties, g->device.index));
    snprintf(g->facts.name, sizeof g->facts.name, "%s", properties.name);
    g->facts.memory = properties.totalGlobalMem;
    TRY(attribute(g, cudaDevAttrComputeCapabilityMajor, &major));
    TRY(attribute(g, cudaDevAttrComputeCapabilityMinor, &minor));
    TRY(attribute(g, cudaDevAttrMultiProcessorCount, &g->facts.multiprocessors));
    TRY(attribute(g, cudaDevAttrL2CacheSize, &l2));
    g->facts.compute = 10 * major + minor;
    g->facts.l2 = l2 > 0 ? (size_t)l2 : (size_t)64 << 20; /* not told: as the largest there are */
    TRY_CUDA(g, cudaDriverGetVersion(&g->facts.driver_cuda));
    TRY_CUDA(g, cudaRuntimeGetVersion(&g->facts.runtime_cuda));
    return DONE;
}

/* An idle GPU runs slowly, and takes a while to notice that there is work. */
static int warm_up(gpu *g) {
    const size_t bytes = (size_t)64 << 20;
    const double seconds = 0.5;
    TRY(gpu_reserve(g, &g->output, bytes));
    for (double start = clock_seconds(); clock_seconds() - start < seconds;) {
        for (int i = 0; i < 100; i++)
            TRY_CUDA(g, cudaMemsetAsync(g->output.data, i, bytes, g->queue));
        TRY_CUDA(g, cudaStreamSynchronize(g->queue));
    }
    return DONE;
}

int gpu_open(gpu *g, comet_device device) {
    *g = (gpu){.device = device};
    TRY_CUDA(g, cudaSetDevice(device.index));
    TRY(read_facts(g));
    TRY_CUDA(g, cudaStreamCreateWithFlags(&g->queue, cudaStreamNonBlocking));
    for (int i = 0; i < GPU_EVENTS; i++)
        TRY_CUDA(g, cudaEventCreate(&g->events[i]));
    return warm_up(g);
}

void gpu_close(gpu *g) {
    gpu_memory *const all[] = {&g->sample,  &g->input,     &g->output, &g->streams,
                               &g->results, &g->workspace, &g->status, &g->tables};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        (void)cudaFree(all[i]->data); /* what fails here has failed before, and was told */
    (void)cudaFreeHost(g->host.data);
    for (int i = 0; i < GPU_EVENTS; i++)
        if (g->events[i])
            (void)cudaEventDestroy(g->events[i]);
    if (g->queue)
        (void)cudaStreamDestroy(g->queue);
    *g = (gpu){0};
}

/* A little more than asked for: tensors of one --sizes differ by a sample or two. */
static size_t with_headroom(size_t bytes) {
    return (bytes + bytes / 16 + 4096) / 256 * 256;
}

int gpu_reserve(gpu *g, gpu_memory *memory, size_t bytes) {
    if (memory->bytes >= bytes && memory->data)
        return DONE;
    uint8_t *old = memory->data;
    *memory = (gpu_memory){0};
    TRY_CUDA(g, cudaFree(old));
    void *data = NULL;
    TRY_CUDA(g, cudaMalloc(&data, with_headroom(bytes)));
    *memory = (gpu_memory){data, with_headroom(bytes)};
    return DONE;
}

int gpu_reserve_host(gpu *g, size_t bytes) {
    if (g->host.bytes >= bytes && g->host.data)
        return DONE;
    uint8_t *old = g->host.data;
    g->host = (gpu_memory){0};
    TRY_CUDA(g, cudaFreeHost(old));
    void *data = NULL;
    TRY_CUDA(g, cudaMallocHost(&data, with_headroom(bytes)));
    g->host = (gpu_memory){data, with_headroom(bytes)};
    return DONE;
}

int gpu_read(gpu *g, const void *from, size_t bytes, const void **copy) {
    TRY(gpu_reserve_host(g, bytes));
    TRY_CUDA(g, cudaMemcpyAsync(g->host.data, from, bytes, cudaMemcpyDeviceToHost, g->queue));
    TRY_CUDA(g, cudaStreamSynchronize(g->queue));
    *copy = g->host.data;
    return DONE;
}
