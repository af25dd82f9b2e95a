/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that are issued before the host knows whether they may be made: the device finds out. */
#include "train/backend/cuda/kernels/guard.h"
#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/holder.h"

comet_status comet_cuda_guard(comet_guard_call *call) {
    comet_backend_cuda *b = (comet_backend_cuda *)call->backend;
    comet_cuda_guard_job job = {.loss = b->kept.loss.device.memory};
    call->first = -1;
    COMET_TRY(comet_cuda_space_search(b->space, call->spans, call->count, &job.nonfinite));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.refused, sizeof *job.refused));
    job.refused = b->kept.refused.memory;
    comet_cuda_holder_guard(call->holder, &job);
    return comet_cuda_status(comet_cuda_launch_guard(&job, b->queue));
}

comet_status comet_cuda_guard_await(comet_guard_call *call) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)call->backend;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(b->queue)));
    call->first = comet_cuda_space_found(b->space);
    return COMET_OK;
}
