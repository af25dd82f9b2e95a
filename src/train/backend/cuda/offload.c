/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/offload.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "codec/cuda/runtime.h"

typedef struct slot {
    void *host;
    size_t room, bytes;
    cudaEvent_t ready, moved; /* of the backend's queue, before a copy; of the copies', behind it */
} slot;

struct comet_cuda_offload {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    cudaStream_t queue, copies;
    int count;
    slot *slots;
    size_t host_bytes;
};

comet_status comet_cuda_offload_new(int slots, cudaStream_t queue, const comet_allocator *allocator,
                                    comet_cuda_offload **offload) {
    comet_cuda_offload *o = comet_memory_take(allocator, sizeof *o);
    slot *all = comet_memory_take(allocator, (size_t)slots * sizeof *all);
    if (!o || !all) {
        comet_memory_give(allocator, all, (size_t)slots * sizeof *all);
        comet_memory_give(allocator, o, sizeof *o);
        return COMET_ERROR_MEMORY;
    }
    memset(all, 0, (size_t)slots * sizeof *all);
    *o = (comet_cuda_offload){.queue = queue, .count = slots, .slots = all};
    o->allocator = comet_memory_hold(&o->allocator_copy, allocator);
    *offload = o;
    return COMET_OK;
}

void comet_cuda_offload_free(comet_cuda_offload *o) {
    if (!o)
        return;
    const comet_allocator *allocator = o->allocator;
    if (o->copies) {
        (void)cudaStreamSynchronize(o->copies);
        (void)cudaStreamDestroy(o->copies);
    }
    for (int i = 0; i < o->count; i++) {
        slot *s = &o->slots[i];
        (void)cudaFreeHost(s->host);
        if (s->ready)
            (void)cudaEventDestroy(s->ready);
        if (s->moved)
            (void)cudaEventDestroy(s->moved);
    }
    comet_memory_give(allocator, o->slots, (size_t)o->count * sizeof *o->slots);
    comet_memory_give(allocator, o, sizeof *o);
}

/* ---- what a slot needs ---- */

static comet_status make_events(comet_cuda_offload *o, slot *s) {
    if (!o->copies)
        COMET_TRY(comet_cuda_status(cudaStreamCreateWithFlags(&o->copies, cudaStreamNonBlocking)));
    if (!s->ready)
        COMET_TRY(comet_cuda_status(cudaEventCreateWithFlags(&s->ready, cudaEventDisableTiming)));
    return s->moved ? COMET_OK : comet_cuda_status(cudaEventCreateWithFlags(&s->moved, cudaEventDisableTiming));
}

static comet_status reserve(comet_cuda_offload *o, slot *s, size_t bytes) {
    COMET_TRY(make_events(o, s));
    if (s->room >= bytes)
        return COMET_OK;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(o->copies))); /* nothing uses what goes */
    (void)cudaFreeHost(s->host);
    o->host_bytes -= s->room;
    s->host = NULL;
    s->room = 0;
    COMET_TRY(comet_cuda_status(cudaHostAlloc(&s->host, bytes, cudaHostAllocDefault)));
    o->host_bytes += s->room = bytes;
    return COMET_OK;
}

/* ---- copies ---- */

static comet_status copy(comet_cuda_offload *o, slot *s, void *to, const void *from, enum cudaMemcpyKind kind) {
    COMET_TRY(comet_cuda_status(cudaEventRecord(s->ready, o->queue)));
    COMET_TRY(comet_cuda_status(cudaStreamWaitEvent(o->copies, s->ready, 0)));
    COMET_TRY(comet_cuda_status(cudaMemcpyAsync(to, from, s->bytes, kind, o->copies)));
    return comet_cuda_status(cudaEventRecord(s->moved, o->copies));
}

comet_status comet_cuda_offload_out(comet_cuda_offload *o, int index, const void *from, size_t bytes) {
    slot *s = &o->slots[index];
    COMET_TRY(reserve(o, s, bytes));
    s->bytes = bytes;
    return copy(o, s, s->host, from, cudaMemcpyDeviceToHost);
}

comet_status comet_cuda_offload_back(comet_cuda_offload *o, int index, void *to) {
    slot *s = &o->slots[index];
    return copy(o, s, to, s->host, cudaMemcpyHostToDevice);
}

comet_status comet_cuda_offload_await(comet_cuda_offload *o, int index) {
    const slot *s = &o->slots[index];
    return s->moved ? comet_cuda_status(cudaStreamWaitEvent(o->queue, s->moved, 0)) : COMET_OK;
}

size_t comet_cuda_offload_host_bytes(const comet_cuda_offload *o) {
    return o->host_bytes;
}
