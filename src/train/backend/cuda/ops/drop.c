/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and stochastic depth: what train/backend/cpu/drop.c drops is dropped here. */
#include "train/backend/cuda/kernels/drop.h"
#include "train/backend/cuda/base/backend_cuda.h"

static comet_status apply(const comet_op_call *call, const void *from, void *to) {
    const comet_cuda_step_words *words = comet_cuda_recorded_words(comet_cuda_backend(call));
    const double p = (double)call->node->as.probability;
    const int64_t count = comet_cuda_count(call, call->node->output);
    const comet_cuda_drop d = {.dtype = call->backend->dtype,
                               .from = from,
                               .to = to,
                               .count = count,
                               .sample_values = count / call->batch,
                               .first_sample = call->first_sample,
                               .seed = call->seed,
                               .step = (uint32_t)call->step,
                               .step_at = words ? &words->step : NULL,
                               .node = (uint32_t)(call->node - call->graph->nodes),
                               .limit = (uint32_t)(p * 0x1p32),
                               .scale = (float)(1 / (1 - p))};
    cudaError_t error = cudaSuccess;
    if (call->training)
        error = call->node->kind == COMET_OP_DROPOUT ? comet_cuda_launch_dropout(&d, comet_cuda_queue(call))
                                                     : comet_cuda_launch_stochastic_depth(&d, comet_cuda_queue(call));
    else if (from != to)
        error = cudaMemcpyAsync(to, from, (size_t)count * comet_dtype_size(d.dtype), cudaMemcpyDeviceToDevice,
                                comet_cuda_queue(call));
    return comet_cuda_status(error);
}

static comet_status drop_forward(const comet_op_call *call) {
    return apply(call, call->x[0], call->y);
}

static comet_status drop_backward(const comet_op_call *call) {
    return call->dx[0] ? apply(call, call->dy, call->dx[0]) : COMET_OK;
}

const comet_op_kernel comet_cuda_dropout = {.forward = drop_forward, .backward = drop_backward};
const comet_op_kernel comet_cuda_stochastic_depth = {.forward = drop_forward, .backward = drop_backward};
