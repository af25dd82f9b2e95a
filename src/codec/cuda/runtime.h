/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's errors as statuses. Two kinds of errors come back from CUDA calls: those of the call itself, and those of work
 * that was started earlier and failed on the device. The latter are sticky: every later call that works on the device
 * returns them until the process ends. So what a call returns is all that is looked at. cudaPeekAtLastError is not:
 * what it holds may be an error of somebody else's call that was of no consequence, and is not ours to report or to
 * clear.
 */
#ifndef COMET_CODEC_CUDA_RUNTIME_H
#define COMET_CODEC_CUDA_RUNTIME_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The status for what a CUDA call returned. An error is also taken out of the thread's last error: it is reported, and
 * who asks CUDA for the last error after a call of their own shall not find ours. A sticky error stays.
 */
comet_status comet_cuda_status(cudaError_t error);

/* COMET_OK and the current device, or why there is none. Makes no context; may be called while a queue is captured. */
comet_status comet_cuda_current(int32_t *device);

/*
 * How many multiprocessors the current device has: the one that comet_cuda_current found last in this thread, which
 * every function with a queue asks first. CUDA is asked once for each of these: a batch norm wants to know a dozen
 * times.
 */
uint32_t comet_cuda_multiprocessors(void);

#ifdef __cplusplus
}
#endif

#endif
