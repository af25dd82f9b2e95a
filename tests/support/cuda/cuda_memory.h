/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for tests, poisoned and between guards. On a device there are guard bytes on both sides; emulated, the
 * memory ends where the allocation does, so that the emulator and AddressSanitizer see reads too.
 */
#ifndef TESTS_SUPPORT_CUDA_MEMORY_H
#define TESTS_SUPPORT_CUDA_MEMORY_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_POISON = 0xA5 };

/* Ends the program if a CUDA call fails: a test cannot go on then. */
#define cuda_must(call) cuda_must_at((call), #call, __FILE__, __LINE__)
void cuda_must_at(cudaError_t error, const char *call, const char *file, int line);

typedef struct cuda_block {
    void *data; /* 256-byte aligned; not NULL even without bytes */
    size_t bytes;
    unsigned char *memory; /* guards included */
} cuda_block;

/* Filled with `from`, or poisoned if that is NULL. */
cuda_block cuda_block_new(size_t bytes, const void *from);

/* Writes all of it from host memory. */
void cuda_block_write(const cuda_block *b, const void *from);

/* A copy in host memory, to be freed. Waits for the device. */
void *cuda_block_read(const cuda_block *b);

/* 0 if something outside was written. The program ends if that is only found when it is freed. */
int cuda_block_is_intact(const cuda_block *b);
void cuda_block_free(cuda_block *b);

int cuda_is_poison(const void *memory, size_t bytes);

/* COMET_OK's 0, or after saying why there is no device 77, the exit code of a test that is skipped. */
int cuda_skip(void);

#endif
