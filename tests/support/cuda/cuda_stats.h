/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of support/use_stats_case.h in device memory, and calls of comet/cuda_use_stats.h that wait. */
#ifndef TESTS_SUPPORT_CUDA_STATS_H
#define TESTS_SUPPORT_CUDA_STATS_H

#include "comet/cuda_use_stats.h"
#include "support/cuda/cuda_memory.h"
#include "support/use_stats_case.h"

/* Values as a dtype has them: so that both sides see the same. */
void batch_round(batch *b, comet_dtype dtype);

typedef struct cuda_laid {
    comet_tensor tensor;
    cuda_block block;
} cuda_laid;

/* `form` is one of support/use_stats_case.h. What is not the view's is NaN. */
cuda_laid cuda_lay(const batch *b, int form, comet_dtype dtype);

/* Floats by channel. */
cuda_block cuda_table(const float *values, int64_t count);

/* Where a call writes to, and its workspace: as many bytes as it asks for. */
typedef struct cuda_seen {
    cuda_block record, workspace;
    comet_stats_exec exec;
    comet_cuda_stats_slot slot;
} cuda_seen;

cuda_seen cuda_seen_new(const comet_cuda_stats_needs *needs, cudaStream_t queue);
void cuda_seen_free(cuda_seen *s);

/* Query, run, wait, fold: the status of folding. */
#define CUDA_SEE(kind, pass, into, status)                                                                             \
    do {                                                                                                               \
        comet_cuda_stats_needs see_needs = COMET_CUDA_STATS_NEEDS_INIT;                                                \
        assert_ok(comet_cuda_stats_##kind##_needs((pass), &see_needs));                                                \
        cuda_seen see_seen = cuda_seen_new(&see_needs, NULL);                                                          \
        assert_ok(comet_cuda_stats_see_##kind((pass), &see_seen.exec, &see_seen.slot));                                \
        cuda_must(cudaStreamSynchronize(NULL));                                                                        \
        *(status) = comet_cuda_stats_fold_##kind(see_seen.slot.host, see_needs.record_bytes, (into));                  \
        cuda_seen_free(&see_seen);                                                                                     \
    } while (0)

#endif
