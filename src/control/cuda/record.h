/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call leaves in device memory: sums by channel, and what the host needs to go on from them without the call's
 * arguments. Written by kernels, read by comet_cuda_stats_fold_*. Heads are known when the call is made; they are
 * written last. What has a length of its own lies behind the struct: doubles, then floats.
 */
#ifndef COMET_CONTROL_CUDA_RECORD_H
#define COMET_CONTROL_CUDA_RECORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "control/collect/alike.h"
#include "control/collect/layer.h"
#include "control/collect/passes.h"

/* The first word of every head: nothing else begins like that. */
enum {
    COMET_RECORD_TENSOR = 0x636f5401,
    COMET_RECORD_LAYER = 0x636f5402,
    COMET_RECORD_NORM = 0x636f5403,
    COMET_RECORD_SILU = 0x636f5404,
    COMET_RECORD_SCALE = 0x636f5405
};

/* ---- a saved tensor ---- */

typedef struct comet_tensor_record {
    int32_t kind;
    int32_t has_values; /* 1: and errors, if the bound is not 0 */
    comet_codec_record result;
    comet_alike_errors_sums errors[COMET_STATS_OFFSETS];
} comet_tensor_record;

/* ---- a layer ---- */

typedef struct comet_layer_head {
    int32_t kind;
    comet_layer_shape shape;
    comet_common_sample sample; /* COMMON */
} comet_layer_head;

/* Doubles: by output, dY^2 and |dY| (OUTPUT); by input, x and x^2 (INPUT). */
typedef struct comet_layer_record {
    comet_layer_head head;
    double gradient[COMET_STATS_OFFSETS];              /* OUTPUT */
    comet_common_output outputs[COMET_COMMON_OUTPUTS]; /* COMMON */
} comet_layer_record;

/* ---- a batch norm ---- */

typedef struct comet_norm_head {
    int32_t kind;
    int32_t parts, seen; /* of the batch; seen is -1 if they did not come in order */
    int32_t is_input, has_greatest;
    int64_t channels;
    double pixels; /* of the parts seen */
} comet_norm_head;

/* Doubles: as comet_sums_norm. Floats: gamma, scale, and comet_norm_batch's inverse and greatest. */
typedef struct comet_norm_record {
    comet_norm_head head;
    double gradient[COMET_STATS_OFFSETS];
} comet_norm_record;

enum { COMET_NORM_SUMS = 3, COMET_NORM_GREATEST = 2, COMET_NORM_TABLES = 5 };

/* ---- a SiLU ---- */

/* Doubles: as comet_sums_silu. Floats: gamma and scale, if there is a norm. */
typedef struct comet_silu_head {
    int32_t kind;
    int32_t normalised, has_norm;
    int64_t channels;
    double pixels;
} comet_silu_head;

enum { COMET_SILU_SUMS = 3, COMET_SILU_TABLES = 2 };

/* ---- a channel scale ---- */

/* Doubles: the first two of comet_sums_factors. */
typedef struct comet_scale_head {
    int32_t kind;
    int64_t images, channels;
} comet_scale_head;

enum { COMET_SCALE_SUMS = 2 };

#ifdef __cplusplus
}
#endif

#endif
