/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cuda/cuda_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/cuda.h"

#ifdef COMET_CUDA_EMULATION
enum { BEFORE = 256, BEHIND = 0 };
#else
enum { BEFORE = 256, BEHIND = 256 };
#endif
enum { GUARD = 0xC3 };

void cuda_must_at(cudaError_t error, const char *call, const char *file, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    fflush(NULL);
    _Exit(1);
}

cuda_block cuda_block_new(size_t bytes, const void *from) {
    cuda_block b = {.bytes = bytes};
    void *memory;
    cuda_must(cudaMalloc(&memory, BEFORE + bytes + BEHIND));
    b.memory = memory;
    b.data = b.memory + BEFORE;
    cuda_must(cudaMemset(b.memory, GUARD, BEFORE + bytes + BEHIND));
    if (from)
        cuda_block_write(&b, from);
    else if (bytes)
        cuda_must(cudaMemset(b.data, CUDA_POISON, bytes));
    return b;
}

/* A copy may return while the last of it is still on its way, and non-blocking queues do not wait for it. */
void cuda_block_write(const cuda_block *b, const void *from) {
    if (b->bytes)
        cuda_must(cudaMemcpy(b->data, from, b->bytes, cudaMemcpyHostToDevice));
    cuda_must(cudaDeviceSynchronize());
}

void *cuda_block_read(const cuda_block *b) {
    void *copy = malloc(b->bytes ? b->bytes : 1);
    if (!copy)
        abort();
    cuda_must(cudaDeviceSynchronize());
    if (b->bytes)
        cuda_must(cudaMemcpy(copy, b->data, b->bytes, cudaMemcpyDeviceToHost));
    return copy;
}

static int is_guard(const unsigned char *device, size_t bytes) {
    unsigned char copy[BEFORE];
    cuda_must(cudaMemcpy(copy, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != GUARD)
            return 0;
    return 1;
}

int cuda_block_is_intact(const cuda_block *b) {
    cuda_must(cudaDeviceSynchronize());
    return is_guard(b->memory, BEFORE) && (BEHIND == 0 || is_guard(b->memory + BEFORE + b->bytes, BEHIND));
}

void cuda_block_free(cuda_block *b) {
    if (!b->memory)
        return;
    if (!cuda_block_is_intact(b)) {
        fprintf(stderr, "bytes around an allocation of %zu bytes were written\n", b->bytes);
        fflush(NULL);
        _Exit(1);
    }
    cuda_must(cudaFree(b->memory));
    b->memory = NULL;
}

int cuda_is_poison(const void *memory, size_t bytes) {
    const unsigned char *p = memory;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != CUDA_POISON)
            return 0;
    return 1;
}

int cuda_skip(void) {
    comet_status status = comet_cuda_check(0);
    if (status == COMET_OK)
        return 0;
    printf("no device: %s\n", comet_status_string(status));
    return 77;
}
