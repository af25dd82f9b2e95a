/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a batch norm that the holder puts together with the store. */
#ifndef COMET_TRAIN_CPU_BATCH_NORM_H
#define COMET_TRAIN_CPU_BATCH_NORM_H

#include "train/backend/cpu/kernels.h"

/* Of call->x[0], into call->side, and moves the running ones; then the output, from what is in `side`. */
void comet_cpu_norm_statistics(const comet_op_call *call);
comet_status comet_cpu_norm_output(const comet_op_call *call);

/*
 * The codec's grid for the input (comet/codec.h), when statistics are there. Arrays are in call->side and
 * call->scratch.
 */
void comet_cpu_norm_grid(const comet_op_call *call, comet_codec_grid *grid);

/*
 * In `values` is the normalised input of call->node; it becomes its output, that of its ReLU, or of the SiLU behind it.
 */
void comet_cpu_norm_rebuild(const comet_op_call *call, comet_rebuild what, float *values);

/* A normalised input that comes in parts of samples. */
typedef struct comet_norm_parts {
    int count;
    comet_status (*fetch)(void *context, int part); /* into call->x[0]; any part, any number of times */
    void *context;
} comet_norm_parts;

comet_status comet_cpu_norm_backward_by_parts(const comet_op_call *call, const comet_norm_parts *parts);

#endif
