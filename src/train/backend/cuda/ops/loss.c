/* SPDX-License-Identifier: Apache-2.0 */
/* The loss: issued with the step, awaited when the host wants to know it. */
#include <string.h>

#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/kernels/loss.h"

comet_status comet_cuda_labels(comet_backend_cuda *b, const int32_t *labels, int count, int classes) {
    const size_t bytes = (size_t)count * sizeof *labels;
    void *host;
    for (int i = 0; i < count; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return COMET_ERROR_ARGUMENT;
    COMET_TRY(comet_cuda_upload_begin(&b->kept.labels, bytes, &host));
    if (bytes)
        memcpy(host, labels, bytes);
    return comet_cuda_upload_end(&b->kept.labels, bytes, b->queue);
}

comet_status comet_cuda_loss_issue(comet_loss_call *call) {
    comet_backend_cuda *b = (comet_backend_cuda *)call->backend;
    call->loss = 0;
    call->top1 = call->top5 = 0;
    if (!b->is_recording)
        COMET_TRY(comet_cuda_labels(b, call->labels, call->batch, call->classes));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.samples, (size_t)call->batch * sizeof(comet_cuda_loss_sample)));
    COMET_TRY(comet_cuda_record_reserve(&b->kept.loss, sizeof(comet_cuda_loss_result)));
    const comet_cuda_loss_job job = {.logits = call->logits,
                                     .dlogits = call->dlogits,
                                     .labels = b->kept.labels.device.memory,
                                     .batch = call->batch,
                                     .classes = call->classes,
                                     .smoothing = (double)call->smoothing,
                                     .scale = call->batch ? (double)call->gradient_scale / call->batch : 0,
                                     .samples = b->kept.samples.memory,
                                     .result = b->kept.loss.device.memory};
    COMET_TRY(comet_cuda_status(comet_cuda_launch_loss(&job, b->base.dtype, b->queue)));
    return comet_cuda_record_fetch(&b->kept.loss, sizeof(comet_cuda_loss_result), b->queue);
}

comet_status comet_cuda_loss_await(comet_loss_call *call) {
    comet_backend_cuda *b = (comet_backend_cuda *)call->backend;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(b->queue)));
    const comet_cuda_loss_result *result = b->kept.loss.host;
    call->loss = result->loss;
    call->top1 = result->top1;
    call->top5 = result->top5;
    return COMET_OK;
}

comet_status comet_cuda_loss(comet_loss_call *call) {
    COMET_TRY(comet_cuda_loss_issue(call));
    return comet_cuda_loss_await(call);
}
