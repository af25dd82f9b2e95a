/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses (comet/use_stats.h) from tensors in device memory (CUDA). Kernels make the sums; they come to the
 * host as a record, and a call there adds the record to the structs of comet/use_stats.h, as if the tensors had been
 * seen on the CPU.
 *
 *     comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
 *     comet_cuda_stats_layer_needs(&layer_pass, &needs);
 *     ... cudaMalloc(record, needs.record_bytes), cudaMallocHost(host, needs.record_bytes), cudaMalloc(workspace) ...
 *     comet_cuda_stats_slot slot = {record, needs.record_bytes, host};
 *     comet_cuda_stats_see_layer(&layer_pass, &exec, &slot);         in backward, on exec.queue
 *     ... the queue has come this far: cudaEventSynchronize, or the end of the step ...
 *     comet_cuda_stats_fold_layer(host, needs.record_bytes, &conv);  then comet_stats_of_use as ever
 *
 * comet_cuda_stats_see_* are ordered on `exec->queue` (a cudaStream_t) and return at once: they allocate nothing, wait
 * for nothing and can be captured in a CUDA graph. Each writes its record anew, so that a graph may be launched again.
 * A record is one call's: calls whose records are not folded yet must not share one. A workspace may be shared by all
 * calls of one queue, and needs no preparation. They run on the current device, which must be the tensors'.
 *
 * Passes are those of comet/use_stats.h; all their pointers to numbers are device memory here: pass->result (that of
 * comet_cuda_compress: &slot.result->codec), the grid's tables, scale, gamma, weights, mask and so on. Tensors are
 * fp32, fp16 or bf16, not all of a call need be the same; layouts and strides are as there. Contiguous ones are read
 * fastest.
 *
 * Results are the CPU's but for rounding: sums are in fp64, of up to 4 terms in fp32, in an order that depends on
 * shapes and strides alone. So the same tensors give the same bits, in every run and on every GPU.
 *
 * Errors of see and needs are those of comet/use_stats.h (COMET_ERROR_UNSUPPORTED: a tensor that is not on a device),
 * and those of comet/cuda.h. What only the device knows, folding finds: COMET_ERROR_ARGUMENT for what is no record of
 * that kind, or not complete, and COMET_ERROR_DIVERGED for what is not finite, which is added all the same.
 */
#ifndef COMET_CUDA_USE_STATS_H
#define COMET_CUDA_USE_STATS_H

#include <stddef.h>

#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/use_stats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a call needs; shapes, strides and what is asked for decide. */
typedef struct comet_cuda_stats_needs {
    size_t size;            /* sizeof(comet_cuda_stats_needs) */
    size_t record_bytes;    /* a few doubles for each channel */
    size_t workspace_bytes; /* for exec->workspace: device memory; a MB or two */
} comet_cuda_stats_needs;

#define COMET_CUDA_STATS_NEEDS_INIT COMET_INIT_ZERO(comet_cuda_stats_needs)

/* Where a call leaves what it saw. Its layout is fixed. */
typedef struct comet_cuda_stats_slot {
    void *record; /* device memory, 16-byte aligned */
    size_t bytes; /* of it, and of `host`: as many as are needed, or more */
    void *host;   /* page-locked host memory, to which the record is copied on the queue; NULL: the caller copies it */
} comet_cuda_stats_slot;

/* ---- a saved tensor, when it is stored ---- */

COMET_API comet_status comet_cuda_stats_tensor_needs(const comet_tensor_pass *pass, comet_cuda_stats_needs *needs);
COMET_API comet_status comet_cuda_stats_see_tensor(const comet_tensor_pass *pass, const comet_stats_exec *exec,
                                                   const comet_cuda_stats_slot *slot);

/*
 * COMET_ERROR_ARGUMENT, too: the codec's result was of no values, or has no valid bound. Whether the stream did fit is
 * not looked at (comet_cuda_result.status).
 */
COMET_API comet_status comet_cuda_stats_fold_tensor(const void *record, size_t bytes, comet_stats_tensor *tensor);

/* ---- a convolution or linear layer ---- */

COMET_API comet_status comet_cuda_stats_layer_needs(const comet_layer_pass *pass, comet_cuda_stats_needs *needs);
COMET_API comet_status comet_cuda_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                                  const comet_cuda_stats_slot *slot);
COMET_API comet_status comet_cuda_stats_fold_layer(const void *record, size_t bytes, comet_stats_layer *layer);

/* ---- a batch norm ---- */

/*
 * A batch that comes in parts: one call for each, in order, with the same record, untouched in between (not the
 * workspace). Only the last one's is complete.
 */
COMET_API comet_status comet_cuda_stats_norm_needs(const comet_norm_pass *pass, comet_cuda_stats_needs *needs);
COMET_API comet_status comet_cuda_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec,
                                                 const comet_cuda_stats_slot *slot);
COMET_API comet_status comet_cuda_stats_fold_norm(const void *record, size_t bytes, comet_stats_norm *norm);

/* ---- a SiLU ---- */

COMET_API comet_status comet_cuda_stats_silu_needs(const comet_silu_pass *pass, comet_cuda_stats_needs *needs);
COMET_API comet_status comet_cuda_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec,
                                                 const comet_cuda_stats_slot *slot);
COMET_API comet_status comet_cuda_stats_fold_silu(const void *record, size_t bytes, comet_stats_silu *silu);

/* ---- a channel scale ---- */

COMET_API comet_status comet_cuda_stats_scale_needs(const comet_scale_pass *pass, comet_cuda_stats_needs *needs);
COMET_API comet_status comet_cuda_stats_see_scale(const comet_scale_pass *pass, const comet_stats_exec *exec,
                                                  const comet_cuda_stats_slot *slot);
COMET_API comet_status comet_cuda_stats_fold_scale(const void *record, size_t bytes, comet_stats_scale *scale);

#ifdef __cplusplus
}
#endif

#endif
