/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in plain C: all ops but convolutions and linear layers. */
#ifndef COMET_TRAIN_CPU_KERNELS_H
#define COMET_TRAIN_CPU_KERNELS_H

#include "train/backend/backend.h"

extern const comet_op_kernel comet_cpu_batch_norm, comet_cpu_relu, comet_cpu_silu, comet_cpu_sigmoid, comet_cpu_add_op,
    comet_cpu_scale, comet_cpu_max_pool, comet_cpu_average_pool, comet_cpu_adaptive_pool, comet_cpu_shortcut,
    comet_cpu_flatten, comet_cpu_dropout, comet_cpu_stochastic_depth;

/* The table's entries for these, and all else that does not need a library. The space is the caller's to set. */
void comet_cpu_fill(comet_backend *backend);

comet_status comet_cpu_images(const comet_images_call *call);
comet_status comet_cpu_loss(comet_loss_call *call);
comet_status comet_cpu_update(comet_update_call *call);
comet_status comet_cpu_add(comet_backend *backend, void *sum, const void *a, const void *b, int64_t count);
comet_status comet_cpu_holder_new(comet_backend *backend, const comet_holder_options *options, comet_holder **holder);

/* y += bias in every row; sums over rows, formed in fp64, into or added to `sum`. For small matrices: one thread. */
void comet_cpu_add_bias(float *y, const float *bias, int64_t rows, int64_t columns);
void comet_cpu_sum_rows(float *sum, const float *x, int64_t rows, int64_t columns, int accumulate);

/* Values of a whole tensor. */
static inline int64_t comet_call_count(const comet_op_call *call, comet_value v) {
    return comet_shape_count(*comet_value_shape(call->graph, v)) * call->batch;
}

#endif
