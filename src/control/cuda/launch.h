/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels are started with. Arguments are checked; pointers to numbers are device memory. */
#ifndef COMET_CONTROL_CUDA_LAUNCH_H
#define COMET_CONTROL_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include "control/cuda/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of workspace for sums by channel, `arrays` of them, over maps that are read as `m` lies in memory. */
size_t comet_stats_sums_bytes(const comet_maps *m, int arrays);

/* And for how outputs correlate with inputs. */
size_t comet_stats_common_bytes(const comet_layer *layer);

/* `maps` NULL: no values. */
cudaError_t comet_stats_launch_tensor(const comet_tensor_pass *pass, const comet_maps *maps,
                                      comet_tensor_record *record, cudaStream_t queue);

typedef struct comet_layer_job {
    const comet_layer *layer;
    comet_layer_head head;
    comet_layer_record *record;
    double *output, *input; /* the record's sums */
    void *workspace;
    cudaStream_t queue;
} comet_layer_job;

cudaError_t comet_stats_launch_layer(const comet_layer_job *job);
cudaError_t comet_stats_launch_common(const comet_layer_job *job);

typedef struct comet_norm_job {
    const comet_norm_rows *rows;
    const float *scale; /* also if what is stored is u */
    comet_norm_head head;
    int32_t part;
    comet_norm_record *record;
    double *sums;
    float *tables;
    void *workspace;
    cudaStream_t queue;
} comet_norm_job;

cudaError_t comet_stats_launch_norm(const comet_norm_job *job);

typedef struct comet_silu_job {
    const comet_silu_maps *maps;
    const float *gamma, *scale, *beta; /* NULL: no norm */
    comet_silu_head head;
    comet_silu_head *record;
    double *sums;
    float *tables;
    void *workspace;
    cudaStream_t queue;
} comet_silu_job;

cudaError_t comet_stats_launch_silu(const comet_silu_job *job);

typedef struct comet_scale_job {
    const comet_scale_maps *maps;
    comet_scale_head head;
    comet_scale_head *record;
    double *sums;
    void *workspace;
    cudaStream_t queue;
} comet_scale_job;

cudaError_t comet_stats_launch_scale(const comet_scale_job *job);

#ifdef __cplusplus
}
#endif

#endif
