/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what is computed in plain C. */
#include <string.h>

#include "train/backend/cpu/kernels.h"

comet_status comet_cpu_images(const comet_images_call *call) {
    const int64_t used = call->count * call->pixels, rest = (call->batch - call->count) * call->pixels;
    comet_normalise(call->normalisation, call->channels, call->bytes, used, call->values);
    memset(call->values + used * call->channels, 0, (size_t)(rest * call->channels) * sizeof *call->values);
    return COMET_OK;
}

void comet_cpu_fill(comet_backend *backend) {
    backend->images = comet_cpu_images;
    backend->loss = comet_cpu_loss;
    backend->update = comet_cpu_update;
    backend->add = comet_cpu_add;
    backend->holder_new = comet_cpu_holder_new;
    const comet_op_kernel **k = backend->kernels;
    k[COMET_OP_BATCH_NORM] = &comet_cpu_batch_norm;
    k[COMET_OP_RELU] = &comet_cpu_relu;
    k[COMET_OP_SILU] = &comet_cpu_silu;
    k[COMET_OP_SIGMOID] = &comet_cpu_sigmoid;
    k[COMET_OP_ADD] = &comet_cpu_add_op;
    k[COMET_OP_SCALE] = &comet_cpu_scale;
    k[COMET_OP_MAX_POOL] = &comet_cpu_max_pool;
    k[COMET_OP_AVERAGE_POOL] = &comet_cpu_average_pool;
    k[COMET_OP_ADAPTIVE_POOL] = &comet_cpu_adaptive_pool;
    k[COMET_OP_SHORTCUT] = &comet_cpu_shortcut;
    k[COMET_OP_FLATTEN] = &comet_cpu_flatten;
    k[COMET_OP_DROPOUT] = &comet_cpu_dropout;
    k[COMET_OP_STOCHASTIC_DEPTH] = &comet_cpu_stochastic_depth;
}
