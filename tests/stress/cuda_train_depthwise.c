/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions of EfficientNet-B0 on a GPU: our own kernels beside cuDNN's and beside what the bytes alone
 * take, in microseconds (the median of some runs, with a cold cache). Not part of the ordinary tests.
 *
 *     cuda_train_depthwise [IMAGES]      of a batch; 128
 */
#include <stdio.h>
#include <stdlib.h>

#include "comet/status.h"
#include "train/backend/cuda/cudnn/cudnn.h"
#include "train/backend/cuda/kernels/depthwise/depthwise.h"

enum { ROUNDS = 15, COLD_BYTES = 256 << 20, LARGEST = 96 * 112 * 112 };
static const double bytes_per_microsecond = 3.4e6; /* of a copy on an H200, read and written */

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
    must_cuda(cudaMemset(memory, 0x3c, bytes)); /* some small number in every dtype */
    return memory;
}

typedef struct bench {
    comet_backend_cuda backend;
    void *x, *w, *y, *workspace, *cold;
    cudaEvent_t begin, end;
} bench;

/* One convolution in one way, by either. */
typedef struct job {
    bench *b;
    comet_cuda_depthwise own;
    comet_cudnn_conv conv;
    const comet_cudnn_plan *plan; /* NULL: our own kernels */
    comet_cudnn_run run;
} job;

static void run_own(const job *j) {
    const bench *b = j->b;
    cudaStream_t queue = b->backend.queue;
    must_cuda(j->conv.way == COMET_CUDNN_FORWARD ? comet_cuda_depthwise_forward(&j->own, b->x, b->w, b->y, queue)
              : j->conv.way == COMET_CUDNN_BY_INPUT
                  ? comet_cuda_depthwise_by_input(&j->own, b->y, b->w, b->x, queue)
                  : comet_cuda_depthwise_by_filter(&j->own, b->x, b->y, b->w, 0, b->workspace, queue));
}

static void run(job *j) {
    if (j->plan)
        must(comet_cudnn_execute(j->b->backend.cudnn, j->plan, &j->run, (void *[]){j->b->x, j->b->w, j->b->y},
                                 j->b->workspace));
    else
        run_own(j);
}

static int ascending(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static double microseconds(job *j) {
    float times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        must_cuda(cudaMemsetAsync(j->b->cold, i, COLD_BYTES, j->b->backend.queue));
        must_cuda(cudaEventRecord(j->b->begin, j->b->backend.queue));
        run(j);
        must_cuda(cudaEventRecord(j->b->end, j->b->backend.queue));
        must_cuda(cudaEventSynchronize(j->b->end));
        must_cuda(cudaEventElapsedTime(&times[i], j->b->begin, j->b->end));
    }
    qsort(times, ROUNDS, sizeof *times, ascending);
    return 1e3 * (double)times[ROUNDS / 2];
}

/* Channels, kernel, stride, height and width; how often. */
static const int shapes[][5] = {{32, 3, 1, 112, 1}, {96, 3, 2, 112, 1}, {144, 3, 1, 56, 1}, {144, 5, 2, 56, 1},
                                {240, 5, 1, 28, 1}, {240, 3, 2, 28, 1}, {480, 3, 1, 14, 2}, {480, 5, 1, 14, 1},
                                {672, 5, 1, 14, 2}, {672, 5, 2, 14, 1}, {1152, 5, 1, 7, 3}, {1152, 3, 1, 7, 1}};

static comet_cudnn_conv conv_of(const int *s, int images, comet_dtype dtype, comet_cudnn_way way) {
    return (comet_cudnn_conv){.way = way,
                              .dtype = dtype,
                              .batch = images,
                              .height = s[3],
                              .width = s[3],
                              .channels = s[0],
                              .out = s[0],
                              .kernel = s[1],
                              .kernel_width = s[1],
                              .stride = s[2],
                              .padding = s[1] / 2,
                              .padding_width = s[1] / 2,
                              .groups = s[0]};
}

static comet_cuda_depthwise own_of(const comet_cudnn_conv *c) {
    return (comet_cuda_depthwise){.dtype = (comet_dtype)c->dtype,
                                  .batch = c->batch,
                                  .height = c->height,
                                  .width = c->width,
                                  .channels = c->channels,
                                  .out_height = (c->height - 1) / c->stride + 1,
                                  .out_width = (c->width - 1) / c->stride + 1,
                                  .kernel = c->kernel,
                                  .kernel_width = c->kernel,
                                  .stride = c->stride,
                                  .padding = c->padding,
                                  .padding_width = c->padding_width};
}

static void time_one(bench *b, const int *s, int images, comet_dtype dtype, comet_cudnn_way way) {
    static const char *const names[] = {"forward", "by input", "by filter"};
    job j = {.b = b, .conv = conv_of(s, images, dtype, way)};
    j.own = own_of(&j.conv);
    const double floor =
        (double)(comet_cudnn_tensor_bytes(&j.conv, COMET_CUDNN_X) + comet_cudnn_tensor_bytes(&j.conv, COMET_CUDNN_Y)) /
        bytes_per_microsecond;
    const double own = microseconds(&j);
    printf("%-5s %-9s %4d channels, %d x %d / %d, %3d px, x %d: bytes %6.1f, own %6.1f", comet_dtype_name(dtype),
           names[way], s[0], s[1], s[1], s[2], s[3], s[4], floor, own);
    if (comet_cudnn_plan_for(b->backend.cudnn, &j.conv, &j.plan) == COMET_OK)
        printf(", cuDNN %7.1f\n", microseconds(&j));
    else
        printf(", cuDNN has none\n");
    fflush(stdout);
    comet_cudnn_run_clear(b->backend.cudnn, &j.run);
}

static void bench_begin(bench *b, comet_dtype dtype, int images) {
    comet_message message = {""};
    b->backend.options = (comet_backend_cuda_options){.dtype = dtype, .workspace_bytes = COLD_BYTES};
    must_cuda(cudaStreamCreateWithFlags(&b->backend.queue, cudaStreamNonBlocking));
    must(comet_cudnn_new(&b->backend, &b->backend.cudnn, &message));
    b->x = take((size_t)images * LARGEST * comet_dtype_size(dtype));
    b->y = take((size_t)images * LARGEST * comet_dtype_size(dtype));
    b->w = take(1 << 20);
    b->workspace = take(COLD_BYTES);
    b->cold = take(COLD_BYTES);
    must_cuda(cudaEventCreate(&b->begin));
    must_cuda(cudaEventCreate(&b->end));
    must_cuda(cudaDeviceSynchronize());
}

static void bench_end(bench *b) {
    void *const memory[] = {b->x, b->y, b->w, b->workspace, b->cold};
    must_cuda(cudaStreamSynchronize(b->backend.queue));
    comet_cudnn_free(b->backend.cudnn);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        must_cuda(cudaFree(memory[i]));
    must_cuda(cudaEventDestroy(b->begin));
    must_cuda(cudaEventDestroy(b->end));
    must_cuda(cudaStreamDestroy(b->backend.queue));
}

int main(int argc, char **argv) {
    static const comet_dtype dtypes[] = {COMET_BF16, COMET_F16, COMET_F32};
    const int images = argc > 1 ? atoi(argv[1]) : 128;
    if (images < 1 || images > 1024) {
        fprintf(stderr, "usage: %s [IMAGES]\n", argv[0]);
        return 2;
    }
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        bench b = {.x = NULL};
        bench_begin(&b, dtypes[d], images);
        for (int way = 0; way < 3; way++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                time_one(&b, shapes[i], images, dtypes[d], (comet_cudnn_way)way);
        bench_end(&b);
    }
    return 0;
}
