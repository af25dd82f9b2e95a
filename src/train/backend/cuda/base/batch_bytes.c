/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/base/batch_bytes.h"

#include <string.h>

#include "base/fail.h"
#include "codec/cuda/runtime.h"

enum { UNIT = 4096 }; /* batches of almost the same size share memory */

static size_t rounded(size_t bytes) {
    return bytes ? (bytes + UNIT - 1) / UNIT * UNIT : UNIT;
}

size_t comet_cuda_batch_bytes_on_device(size_t count) {
    return 2 * rounded(count);
}

/* ---- the places ---- */

static void free_place(comet_cuda_batch_place *p) {
    if (p->arrived)
        (void)cudaEventDestroy(p->arrived);
    if (p->read)
        (void)cudaEventDestroy(p->read);
    if (p->host)
        (void)cudaFreeHost(p->host);
    if (p->device)
        (void)cudaFree(p->device);
}

void comet_cuda_batch_bytes_free(comet_cuda_batch_bytes *b) {
    if (b->copies)
        (void)cudaStreamSynchronize(b->copies);
    for (int i = 0; i < 2; i++) {
        if (b->places[i].read)
            (void)cudaEventSynchronize(b->places[i].read);
        free_place(&b->places[i]);
    }
    if (b->copies)
        (void)cudaStreamDestroy(b->copies);
    *b = (comet_cuda_batch_bytes){.now = 0};
}

static comet_status make_place(comet_cuda_batch_place *p, size_t bytes) {
    COMET_TRY(comet_cuda_status(cudaMalloc(&p->device, bytes)));
    COMET_TRY(comet_cuda_status(cudaMallocHost(&p->host, bytes)));
    COMET_TRY(comet_cuda_status(cudaEventCreateWithFlags(&p->arrived, cudaEventDisableTiming)));
    return comet_cuda_status(cudaEventCreateWithFlags(&p->read, cudaEventDisableTiming));
}

static comet_status reserve(comet_cuda_batch_bytes *b, size_t bytes) {
    if (b->bytes && b->bytes >= bytes)
        return COMET_OK;
    comet_cuda_batch_bytes_free(b);
    COMET_TRY(comet_cuda_status(cudaStreamCreateWithFlags(&b->copies, cudaStreamNonBlocking)));
    COMET_TRY(make_place(&b->places[0], rounded(bytes)));
    COMET_TRY(make_place(&b->places[1], rounded(bytes)));
    b->bytes = rounded(bytes);
    return COMET_OK;
}

/* ---- bytes into one ---- */

/* The host's place is free when its last copy is done, the device's when its last readers are. */
static comet_status bring(comet_cuda_batch_bytes *b, int place, const uint8_t *bytes, size_t count) {
    comet_cuda_batch_place *p = &b->places[place];
    COMET_TRY(comet_cuda_status(cudaEventSynchronize(p->arrived)));
    if (count)
        memcpy(p->host, bytes, count);
    COMET_TRY(comet_cuda_status(cudaStreamWaitEvent(b->copies, p->read, 0)));
    if (count)
        COMET_TRY(comet_cuda_status(cudaMemcpyAsync(p->device, p->host, count, cudaMemcpyHostToDevice, b->copies)));
    return comet_cuda_status(cudaEventRecord(p->arrived, b->copies));
}

/* A batch that would need larger places waits until its turn comes: this one's would have to go. */
comet_status comet_cuda_batch_bytes_ahead(comet_cuda_batch_bytes *b, const uint8_t *bytes, size_t count) {
    if (b->bytes < count || b->ahead)
        return COMET_OK;
    COMET_TRY(bring(b, 1 - b->now, bytes, count));
    b->ahead = bytes;
    b->ahead_bytes = count;
    return COMET_OK;
}

comet_status comet_cuda_batch_bytes_begin(comet_cuda_batch_bytes *b, const uint8_t *bytes, size_t count,
                                          cudaStream_t queue, const uint8_t **device) {
    if (bytes || !b->bytes) {
        const int is_here = b->ahead && b->ahead == bytes && b->ahead_bytes == count;
        COMET_TRY(reserve(b, count));
        b->now = 1 - b->now;
        b->ahead = NULL;
        if (!is_here)
            COMET_TRY(bring(b, b->now, bytes, count));
    }
    *device = b->places[b->now].device;
    return comet_cuda_status(cudaStreamWaitEvent(queue, b->places[b->now].arrived, 0));
}

comet_status comet_cuda_batch_bytes_end(comet_cuda_batch_bytes *b, cudaStream_t queue) {
    return comet_cuda_status(cudaEventRecord(b->places[b->now].read, queue));
}
