/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded work is a CUDA graph: what the queue is given while it captures. */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/base/backend_cuda.h"

struct comet_recording {
    cudaGraphExec_t work;
    int reads_bytes; /* of images: their place is in use until the work is done */
    uint64_t made_of;
    comet_cuda_late_work records; /* of statistics */
};

/* ---- memory that the backend may move ---- */

static uint64_t with_address(uint64_t hash, const void *address) {
    uint64_t word = (uintptr_t)address;
    for (int i = 0; i < 8; i++, word >>= 8)
        hash = (hash ^ (word & 0xff)) * 0x100000001b3u;
    return hash;
}

/*
 * Of all that kernels and copies have addresses of, beside what is the plan's, the graph's and the holder's. Where
 * records of statistics go is asked of their list.
 */
static uint64_t addresses_of(const comet_backend_cuda *b) {
    const comet_cuda_kept *k = &b->kept;
    const void *const others[] = {b->codec_workspace,      b->weights,
                                  k->labels.device.memory, k->words.device.memory,
                                  k->loss.device.memory,   k->loss.host,
                                  k->samples.memory,       k->partial_sums.memory,
                                  k->plain_weights.memory, k->statistics_workspace.memory};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        hash = with_address(hash, others[i]);
    return hash;
}

/* ---- what comes from the host ---- */

comet_status comet_cuda_inputs(comet_backend *backend, const comet_step_inputs *inputs) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    comet_cuda_step_words words = {NULL, inputs->step};
    void *host;
    COMET_TRY(comet_cuda_labels(b, inputs->labels, inputs->label_count, inputs->classes));
    if (inputs->bytes)
        COMET_TRY(comet_cuda_batch_bytes_begin(&b->kept.batch_bytes, inputs->bytes, (size_t)inputs->byte_count,
                                               b->queue, &words.bytes));
    COMET_TRY(comet_cuda_upload_begin(&b->kept.words, sizeof words, &host));
    memcpy(host, &words, sizeof words);
    return comet_cuda_upload_end(&b->kept.words, sizeof words, b->queue);
}

/* ---- recording ---- */

comet_status comet_cuda_begin_record(comet_backend *backend) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    COMET_TRY(comet_cuda_status(cudaStreamBeginCapture(b->queue, cudaStreamCaptureModeThreadLocal)));
    b->is_recording = 1;
    comet_cuda_late_begin_record(&b->kept.late);
    return COMET_OK;
}

static comet_status make(comet_backend_cuda *b, cudaGraph_t graph, comet_recording *r) {
    *r = (comet_recording){.reads_bytes = b->kept.batch_bytes.bytes != 0, .made_of = addresses_of(b)};
    COMET_TRY(comet_cuda_late_take(&b->kept.late, b->allocator, &r->records));
    return comet_cuda_status(cudaGraphInstantiate(&r->work, graph, 0));
}

static comet_status keep(comet_backend_cuda *b, cudaGraph_t graph, comet_recording **recording) {
    comet_recording *r = comet_memory_take(b->allocator, sizeof *r);
    if (!r)
        return COMET_ERROR_MEMORY;
    const comet_status status = make(b, graph, r);
    if (status != COMET_OK) {
        comet_cuda_late_work_free(&r->records, b->allocator);
        comet_memory_give(b->allocator, r, sizeof *r);
        return status;
    }
    *recording = r;
    return COMET_OK;
}

/* The capture ends in any case: what was issued could not be else. */
comet_status comet_cuda_end_record(comet_backend *backend, comet_status status, comet_recording **recording) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    cudaGraph_t graph = NULL;
    *recording = NULL;
    if (!b->is_recording)
        return status;
    b->is_recording = 0;
    if (status == COMET_OK)
        status = comet_cuda_late_fetch(&b->kept.late, b->queue);
    const comet_status ended = comet_cuda_status(cudaStreamEndCapture(b->queue, &graph));
    if (status == COMET_OK)
        status = ended;
    if (status == COMET_OK)
        status = keep(b, graph, recording);
    if (graph)
        (void)cudaGraphDestroy(graph);
    comet_cuda_late_end_record(&b->kept.late);
    return status;
}

comet_status comet_cuda_replay(comet_backend *backend, const comet_recording *recording) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    if (recording->made_of != addresses_of(b))
        return COMET_ERROR_MISMATCH;
    COMET_TRY(comet_cuda_late_prepare(&b->kept.late, b->allocator, &recording->records));
    COMET_TRY(comet_cuda_status(cudaGraphLaunch(recording->work, b->queue)));
    if (recording->reads_bytes)
        COMET_TRY(comet_cuda_batch_bytes_end(&b->kept.batch_bytes, b->queue));
    comet_cuda_late_again(&b->kept.late, &recording->records);
    return COMET_OK;
}

void comet_cuda_recording_free(comet_backend *backend, comet_recording *recording) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)backend;
    if (!recording)
        return;
    (void)cudaGraphExecDestroy(recording->work);
    comet_cuda_late_work_free(&recording->records, b->allocator);
    comet_memory_give(b->allocator, recording, sizeof *recording);
}
