/* SPDX-License-Identifier: Apache-2.0 */
/* What tests may ask of the emulated device beyond CUDA's API. For C too. */
#ifndef COMET_EMULATION_H
#define COMET_EMULATION_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `after_calls` API calls are done as usual, the one behind them does nothing and returns `error`; once. Launches and
 * captured calls count; cudaGetLastError, cudaPeekAtLastError, cudaGetErrorName and -String do not. cudaSuccess: no
 * failure is due any more.
 */
void emulation_fail_next(cudaError_t error, int after_calls);

/* The same, but every call from then on fails, as after a fault on the device, until emulation_reset(). */
void emulation_fail_from(cudaError_t error, int after_calls);

/* The calls that emulation_fail_next counts, launches, and live cudaMalloc allocations, all since the program began. */
uint64_t emulation_calls(void);
uint64_t emulation_launches(void);
uint64_t emulation_live_allocations(void);

/*
 * There are n devices from now on. With an `error` other than cudaSuccess every call returns it, as without a driver
 * (cudaErrorNoDevice) or with an old one (cudaErrorInsufficientDriver). One device is what a program starts with.
 */
void emulation_set_devices(int n, cudaError_t error);
void emulation_set_compute_capability(int major, int minor); /* 9, 0 */
void emulation_set_multiprocessors(int n);                   /* 4 */
void emulation_set_memory(size_t bytes);                     /* what cudaMalloc has in all; 16 GiB */
void emulation_set_l2(size_t bytes);                         /* what it says of its L2 cache; 50 MiB */

/* The order in which blocks run, and in which a block's threads get their turn. 0: in order; else a shuffle. */
void emulation_set_block_order(uint64_t seed);
void emulation_set_thread_order(uint64_t seed);

/* Everything the functions above set, as it was when the program began. Memory, streams and graphs stay. */
void emulation_reset(void);

#ifdef __cplusplus
}
#endif

#endif
