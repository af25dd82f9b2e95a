/* SPDX-License-Identifier: Apache-2.0 */
/* Channels times a factor of their sample's (squeeze-excite). */
#include "train/backend/cuda/kernels/maps/scale.h"
#include "train/backend/cuda/base/backend_cuda.h"

static comet_cuda_scale_job job_of(const comet_op_call *call) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->output);
    return (comet_cuda_scale_job){.dtype = call->backend->dtype,
                                  .batch = call->batch,
                                  .pixels = (int64_t)s->height * s->width,
                                  .channels = s->channels,
                                  .x = call->x[0],
                                  .factor = call->x[1],
                                  .y = call->y,
                                  .dy = call->dy,
                                  .dx = call->dx[0],
                                  .dfactor = call->dx[1],
                                  .scratch = call->scratch};
}

static size_t scale_scratch(const comet_op_call *call, int backward) {
    const comet_cuda_scale_job j = job_of(call);
    return backward ? comet_cuda_scale_bytes(j.dtype, j.batch, j.pixels, j.channels) : 0;
}

static comet_status scale_forward(const comet_op_call *call) {
    const comet_cuda_scale_job j = job_of(call);
    return comet_cuda_status(comet_cuda_launch_scale(&j, comet_cuda_queue(call)));
}

static comet_status scale_backward(const comet_op_call *call) {
    const comet_cuda_scale_job j = job_of(call);
    if (!j.dx && !j.dfactor)
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_scale_back(&j, comet_cuda_queue(call)));
}

const comet_op_kernel comet_cuda_scale = {
    .scratch = scale_scratch, .forward = scale_forward, .backward = scale_backward};
