/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU to measure on: its queue (a CUDA stream), events and memory. Functions return DONE, FAILED with the reason in
 * `problem` (nothing is printed: a progress bar may be on the screen), or LEFT_OUT.
 */
#ifndef COMET_CMD_CUDA_GPU_H
#define COMET_CMD_CUDA_GPU_H

#include <cuda_runtime_api.h>

#include "cmd/bench/bench_cuda.h"
#include "cmd/common/command.h"
#include "comet/cuda.h"

enum { LEFT_OUT = -1 }; /* the codec does not take such a tensor */

enum { GPU_MAX_RUNS = 101, GPU_OPERATIONS = 4, GPU_EVENTS = GPU_MAX_RUNS * GPU_OPERATIONS + 1 };

/* Memory that grows when more is asked for; what was in it is lost then. */
typedef struct gpu_memory {
    uint8_t *data;
    size_t bytes;
} gpu_memory;

typedef struct gpu {
    comet_device device;
    cuda_facts facts;
    cudaStream_t queue;
    cudaEvent_t events[GPU_EVENTS];
    gpu_memory sample, input, output, streams, results, workspace, status, tables; /* device memory */
    gpu_memory host;                                                               /* page-locked */
    char problem[320];
} gpu;

/* After a failure too, gpu_close gives back what was taken. */
int gpu_open(gpu *g, comet_device device);
void gpu_close(gpu *g);

int gpu_reserve(gpu *g, gpu_memory *memory, size_t bytes);
int gpu_reserve_host(gpu *g, size_t bytes);

/* Copies to page-locked memory and waits: *copy is valid until the next call. */
int gpu_read(gpu *g, const void *from, size_t bytes, const void **copy);

/* The answer of a CUDA call, or of one of Comet's. `call` is its text: the message names the function. */
int gpu_cuda(gpu *g, cudaError_t error, const char *call);
int gpu_comet(gpu *g, comet_status status, const char *call);

/* Return from the function unless all went well. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        int try_answer = (expression);                                                                                 \
        if (try_answer != DONE)                                                                                        \
            return try_answer;                                                                                         \
    } while (0)
#define TRY_CUDA(g, call)  TRY(gpu_cuda(g, call, #call))
#define TRY_COMET(g, call) TRY(gpu_comet(g, call, #call))

/* One of the things that are timed: starts it on the queue, on buffer number `index`. */
typedef int (*gpu_operation)(void *context, int index);

typedef struct gpu_timing {
    gpu_operation operations[GPU_OPERATIONS]; /* up to the first that is NULL */
    void *context;
    int buffers;
    int as_graph; /* time a graph of all buffers, not each call */
    int runs;
} gpu_timing;

/* Milliseconds a call of each operation: medians; NaN where there is none. The operations take turns. */
int gpu_time(gpu *g, const gpu_timing *timing, double ms[GPU_OPERATIONS]);

#endif
