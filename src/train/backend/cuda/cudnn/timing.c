/* SPDX-License-Identifier: Apache-2.0 */
/* Which plan is the fastest: each is run on tensors of its shape. */
#include <stdlib.h>

#include "base/fail.h"
#include "comet/tensor.h"
#include "train/backend/cuda/cudnn/cudnn_impl.h"
#include "train/backend/cuda/kernels/noise.h"

enum { RUNS = 5, ALIGNMENT = 256 };

typedef struct bench {
    comet_cudnn *c;
    void *memory, *tensors[COMET_CUDNN_TENSORS], *workspace;
    cudaEvent_t begin[RUNS], end[RUNS];
} bench;

static size_t rounded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/*
 * How much power a kernel draws, and so its clock, depends on the values: random ones, not zeros. What is written over
 * is of no interest, and gets some, too.
 */
static comet_status fill(bench *b, const comet_cudnn_conv *conv) {
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++) {
        const size_t bytes = comet_cudnn_tensor_bytes(conv, i);
        COMET_TRY(comet_cuda_noise(b->tensors[i], (comet_dtype)conv->dtype,
                                   (int64_t)(bytes / comet_dtype_size((comet_dtype)conv->dtype)), (uint32_t)i,
                                   b->c->queue));
    }
    return COMET_OK;
}

static comet_status open_bench(bench *b, const comet_cudnn_conv *conv, size_t workspace) {
    size_t offsets[COMET_CUDNN_TENSORS], bytes = 0;
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++) {
        offsets[i] = bytes;
        bytes += rounded(comet_cudnn_tensor_bytes(conv, i));
    }
    COMET_TRY(comet_cuda_status(cudaMalloc(&b->memory, bytes + rounded(workspace))));
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++)
        b->tensors[i] = (char *)b->memory + offsets[i];
    b->workspace = workspace > 0 ? (char *)b->memory + bytes : NULL;
    for (int i = 0; i < RUNS; i++) {
        COMET_TRY(comet_cuda_status(cudaEventCreate(&b->begin[i])));
        COMET_TRY(comet_cuda_status(cudaEventCreate(&b->end[i])));
    }
    return fill(b, conv);
}

static void close_bench(bench *b) {
    for (int i = 0; i < RUNS; i++) {
        if (b->begin[i])
            cudaEventDestroy(b->begin[i]);
        if (b->end[i])
            cudaEventDestroy(b->end[i]);
    }
    if (b->memory)
        cudaFree(b->memory);
}

static int by_time(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static comet_status median(bench *b, float *milliseconds) {
    float times[RUNS];
    for (int i = 0; i < RUNS; i++)
        COMET_TRY(comet_cuda_status(cudaEventElapsedTime(&times[i], b->begin[i], b->end[i])));
    qsort(times, RUNS, sizeof times[0], by_time);
    *milliseconds = times[RUNS / 2];
    return COMET_OK;
}

/*
 * The first run loads the kernels. The queue then waits until all the others have been given to it, so that no launch
 * is in what is measured.
 */
static comet_status issue(bench *b, const comet_cudnn_plan *plan, comet_cudnn_run *run) {
    COMET_TRY(comet_cudnn_execute(b->c, plan, run, b->tensors, b->workspace));
    COMET_TRY(comet_cuda_pause(b->c->queue));
    for (int i = 0; i < RUNS; i++) {
        COMET_TRY(comet_cuda_status(cudaEventRecord(b->begin[i], b->c->queue)));
        COMET_TRY(comet_cudnn_execute(b->c, plan, run, b->tensors, b->workspace));
        COMET_TRY(comet_cuda_status(cudaEventRecord(b->end[i], b->c->queue)));
    }
    return COMET_OK;
}

/* One that is hardly faster is not worth more workspace, which is part of the plan's memory. */
static int is_better(const comet_cudnn_plan *plan, float milliseconds, const comet_cudnn_plan *best, float least) {
    const float little = 0.03f;
    return milliseconds < (plan->workspace < best->workspace ? 1 + little : 1 - little) * least;
}

/* *ran 0: this plan cannot be run, and others may. */
static comet_status time_plan(bench *b, const comet_cudnn_plan *plan, float *milliseconds, int *ran) {
    comet_cudnn_run run = {.next = 0};
    const comet_status issued = issue(b, plan, &run);
    const comet_status waited = comet_cuda_status(cudaStreamSynchronize(b->c->queue));
    comet_cudnn_run_clear(b->c, &run);
    *ran = issued == COMET_OK;
    return waited != COMET_OK ? waited : *ran ? median(b, milliseconds) : COMET_OK;
}

static comet_status time_all(bench *b, const comet_cudnn_plan *plans, int count, int *fastest) {
    float least = 0;
    *fastest = -1;
    for (int i = 0; i < count; i++) {
        float milliseconds = 0;
        int ran;
        COMET_TRY(time_plan(b, &plans[i], &milliseconds, &ran));
        if (ran && (*fastest < 0 || is_better(&plans[i], milliseconds, &plans[*fastest], least))) {
            *fastest = i;
            least = milliseconds;
        }
    }
    return *fastest >= 0 ? COMET_OK : COMET_ERROR_UNSUPPORTED; /* with the last one's reason */
}

comet_status comet_cudnn_time(comet_cudnn *cudnn, const comet_cudnn_conv *conv, const comet_cudnn_plan *plans,
                              int count, int *fastest) {
    bench b = {.c = cudnn};
    size_t workspace = 0;
    for (int i = 0; i < count; i++)
        workspace = plans[i].workspace > workspace ? plans[i].workspace : workspace;
    comet_status status = open_bench(&b, conv, workspace);
    if (status == COMET_OK) {
        cudnn->timed++;
        status = time_all(&b, plans, count, fastest);
    }
    close_bench(&b);
    return status;
}
