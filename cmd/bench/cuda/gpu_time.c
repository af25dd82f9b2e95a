/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times on a GPU. Everything is put on the queue without waiting, so that the GPU is never short of work: an event
 * lies between one operation and the next, and the time of an operation is that between its two events.
 *
 * A small call is shorter than it takes to launch it. There a graph of one call for each buffer is launched instead and
 * its time divided. The operations of a round work on different buffers, or each on all: what one leaves in the L2
 * cache is of no use to the next.
 */
#include <math.h>

#include "cmd/bench/cuda/gpu.h"
#include "cmd/common/measure.h"

enum { WARM_UP_ROUNDS = 3 };

static int operations_of(const gpu_timing *timing) {
    int count = 0;
    while (count < GPU_OPERATIONS && timing->operations[count])
        count++;
    return count;
}

static int start_all(const gpu_timing *timing, gpu_operation operation) {
    for (int i = 0; i < timing->buffers; i++)
        TRY(operation(timing->context, i));
    return DONE;
}

/* The calls of one operation on all buffers as a graph, ready to be launched. */
static int make_graph(gpu *g, const gpu_timing *timing, gpu_operation operation, cudaGraphExec_t *ready) {
    cudaGraph_t graph = NULL;
    TRY_CUDA(g, cudaStreamBeginCapture(g->queue, cudaStreamCaptureModeThreadLocal));
    int answer = start_all(timing, operation);
    cudaError_t ended = cudaStreamEndCapture(g->queue, &graph); /* also after a failure, which then is what is told */
    if (answer == DONE)
        answer = gpu_cuda(g, ended, "cudaStreamEndCapture");
    if (answer == DONE)
        answer = gpu_cuda(g, cudaGraphInstantiate(ready, graph, 0), "cudaGraphInstantiate");
    if (graph && answer == DONE)
        return gpu_cuda(g, cudaGraphDestroy(graph), "cudaGraphDestroy");
    if (graph)
        (void)cudaGraphDestroy(graph);
    return answer;
}

static int make_graphs(gpu *g, const gpu_timing *timing, cudaGraphExec_t graphs[GPU_OPERATIONS]) {
    for (int i = 0; i < operations_of(timing) && timing->as_graph; i++)
        TRY(make_graph(g, timing, timing->operations[i], &graphs[i]));
    return DONE;
}

static int start(gpu *g, const gpu_timing *timing, const cudaGraphExec_t *graphs, int operation, int round) {
    if (timing->as_graph)
        return gpu_cuda(g, cudaGraphLaunch(graphs[operation], g->queue), "cudaGraphLaunch");
    return timing->operations[operation](timing->context, (round + operation) % timing->buffers);
}

static int run_rounds(gpu *g, const gpu_timing *timing, const cudaGraphExec_t *graphs) {
    int next = 0, operations = operations_of(timing);
    for (int round = 0; round < WARM_UP_ROUNDS + timing->runs; round++)
        for (int i = 0; i < operations; i++) {
            if (round == WARM_UP_ROUNDS && i == 0)
                TRY_CUDA(g, cudaEventRecord(g->events[next++], g->queue));
            TRY(start(g, timing, graphs, i, round));
            if (round >= WARM_UP_ROUNDS)
                TRY_CUDA(g, cudaEventRecord(g->events[next++], g->queue));
        }
    TRY_CUDA(g, cudaStreamSynchronize(g->queue));
    return DONE;
}

static int read_median(gpu *g, const gpu_timing *timing, int operation, double *ms) {
    double values[GPU_MAX_RUNS];
    for (int run = 0; run < timing->runs; run++) {
        int first = run * operations_of(timing) + operation;
        float elapsed;
        TRY_CUDA(g, cudaEventElapsedTime(&elapsed, g->events[first], g->events[first + 1]));
        values[run] = (double)elapsed / (timing->as_graph ? timing->buffers : 1);
    }
    *ms = median_of(values, timing->runs);
    return DONE;
}

static int run_and_read(gpu *g, const gpu_timing *timing, const cudaGraphExec_t *graphs, double ms[GPU_OPERATIONS]) {
    TRY(run_rounds(g, timing, graphs));
    for (int i = 0; i < GPU_OPERATIONS; i++)
        ms[i] = NAN;
    for (int i = 0; i < operations_of(timing); i++)
        TRY(read_median(g, timing, i, &ms[i]));
    return DONE;
}

int gpu_time(gpu *g, const gpu_timing *timing, double ms[GPU_OPERATIONS]) {
    cudaGraphExec_t graphs[GPU_OPERATIONS] = {NULL};
    int answer = make_graphs(g, timing, graphs);
    if (answer == DONE)
        answer = run_and_read(g, timing, graphs, ms);
    for (int i = 0; i < GPU_OPERATIONS; i++)
        if (graphs[i]) {
            cudaError_t error = cudaGraphExecDestroy(graphs[i]);
            answer = answer == DONE ? gpu_cuda(g, error, "cudaGraphExecDestroy") : answer;
        }
    return answer;
}
