/* SPDX-License-Identifier: Apache-2.0 */
/* What the public calls of comet/cuda_use_stats.h have in common. Host code: device memory is not read. */
#ifndef COMET_CONTROL_CUDA_ARGUMENTS_H
#define COMET_CONTROL_CUDA_ARGUMENTS_H

#include <cuda_runtime.h>

#include "comet/cuda_use_stats.h"
#include "control/collect/maps.h"

/* Bytes of a record, and of the workspace. */
typedef struct comet_stats_bytes {
    size_t record, workspace;
} comet_stats_bytes;

/* Gives the answer of a query. */
comet_status comet_stats_give_needs(comet_stats_bytes bytes, comet_cuda_stats_needs *needs);

/* The arguments as this version knows them, if there is room enough. */
comet_status comet_stats_device_exec(const comet_stats_exec *given, const comet_cuda_stats_slot *slot,
                                     comet_stats_bytes bytes, comet_stats_exec *exec);

/* A tensor of the current device whose values are aligned, with not more channels than kernels can count. */
comet_status comet_stats_check_device(const comet_tensor *tensor, const char *name, int64_t channels);

/* A table of numbers, NULL or aligned to fp32. */
comet_status comet_stats_check_table(const float *table, const char *name);

/* After the last launch, which returned `error`: copies the record to the host if it shall go there. */
comet_status comet_stats_give_record(cudaError_t error, const comet_cuda_stats_slot *slot, size_t bytes,
                                     const comet_stats_exec *exec);

/* COMET_ERROR_ARGUMENT unless `record` is aligned, has `head` bytes at least and is of that kind. */
comet_status comet_stats_check_record(const void *record, size_t bytes, size_t head, int32_t kind);

/* The same for the whole of it, once its head is known: `needed` bytes. */
comet_status comet_stats_check_whole(size_t bytes, size_t needed);

#endif
