/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cpu/kernels.h"

void comet_cpu_fill(comet_backend *backend) {
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
