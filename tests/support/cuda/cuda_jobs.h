/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that stay on a device, for tests that issue several calls before they look: chains of streams, graphs. */
#ifndef TESTS_SUPPORT_CUDA_JOBS_H
#define TESTS_SUPPORT_CUDA_JOBS_H

#include "support/cuda/cuda_backend.h"

typedef struct cuda_job {
    trip t;
    cuda_params params; /* device_bound is set */
    cuda_block in, out, workspace, result, bound;
    comet_cuda_result *host; /* page-locked */
    trip_stream reference;   /* what the CPU makes of it */
    void *expected;          /* and what that decodes to */
} cuda_job;

/* Points into itself: not to be copied. The bound lies in device memory. */
void cuda_job_new(cuda_job *j, rng *r, const trip_spec *spec);
void cuda_job_free(cuda_job *j);

/* Other values and another bound of the same tensor, on the device and for the CPU. Waits. */
void cuda_job_refill(cuda_job *j, rng *r, value_kind values, float bound);

/* The most that its stream takes, rounded up to where the next may begin. */
size_t cuda_job_bytes(const cuda_job *j);

/* `start`: in device memory, or NULL. */
comet_cuda_slot cuda_job_slot(const cuda_job *j, const cuda_block *memory, const uint64_t *start);
comet_status cuda_job_compress(cuda_job *j, const comet_cuda_slot *slot, cudaStream_t queue);
comet_status cuda_job_decompress(cuda_job *j, const comet_cuda_slot *slot, int32_t *word, cudaStream_t queue);

/* Where its `end` will be, in device memory. */
const uint64_t *cuda_job_end(const cuda_job *j);

/* After both: the stream in `memory` (a copy of the slot's) and the output are the CPU's. */
int cuda_job_check(const cuda_job *j, const unsigned char *memory, failure *f);

#endif
