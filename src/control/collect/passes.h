/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of each call of comet/use_stats.h: its arguments, checked, and what its sums say, added to the caller's
 * struct. What lies between them, the sums, is made on the CPU here and by kernels in control/cuda.
 */
#ifndef COMET_CONTROL_COLLECT_PASSES_H
#define COMET_CONTROL_COLLECT_PASSES_H

#include "base/bits.h"
#include "comet/use_stats.h"
#include "control/collect/alike.h"
#include "control/collect/layer.h"
#include "control/collect/sums.h"

/*
 * comet_take_x: `how` is that of comet_maps_of; pointers to device memory are not followed. comet_end_x:
 * COMET_ERROR_DIVERGED if something is not finite; it is added all the same. Sums are by channel, one array behind
 * the other, as control/collect/sums.h has them.
 */

/* ---- a saved tensor ---- */

/* pass->result, which comet_take_tensor does not look at, as it may be on a device. */
comet_status comet_check_stored(const comet_codec_record *result);

/* Without pass->values there are no maps. */
comet_status comet_take_tensor(const comet_tensor_pass *given, int how, comet_tensor_pass *pass, comet_maps *maps);

/* `has_values`: errors were looked at, unless the bound is 0; `errors`: a sum for each offset. */
comet_status comet_end_tensor(const comet_codec_record *result, int has_values, const comet_alike_errors_sums *errors,
                              comet_stats_tensor *tensor);

/* ---- a layer ---- */

comet_status comet_take_layer(const comet_layer_pass *given, int how, comet_layer_pass *pass, comet_layer *layer);

/* What is known without its values. */
typedef struct comet_layer_shape {
    int64_t outputs, inputs; /* channels */
    double positions;        /* batch * H' * W' */
    double samples;          /* batch */
    double pixels;           /* batch * H * W */
    double inside, kernel;   /* as in comet_stats_layer */
    uint32_t what;
    int32_t stride[2];
} comet_layer_shape;

comet_layer_shape comet_layer_shape_of(const comet_layer *layer, uint32_t what);

/* NULL, or 0: not looked at. */
typedef struct comet_layer_sums {
    comet_sizes output;     /* of dY */
    const double *gradient; /* products of dY's values, for each offset */
    const double *input;    /* x and x^2 */
    double common;          /* comet_layer_common */
} comet_layer_sums;

comet_status comet_end_layer(const comet_layer_shape *shape, const comet_layer_sums *sums, comet_stats_layer *layer);

/* ---- a batch norm ---- */

comet_status comet_take_norm(const comet_norm_pass *given, int how, comet_norm_pass *pass, comet_norm_rows *rows);

/* A whole batch. */
typedef struct comet_norm_batch {
    int64_t channels;
    double pixels;
    const float *gamma, *scale;
    const float *inverse;  /* comet_norm_inverse */
    const float *greatest; /* |g|, then comet_norm_greatest; NULL: without acgc */
    const double *sums;
    int is_input; /* what is stored is x, not u */
} comet_norm_batch;

/* 1 / deviation of what is stored. */
COMET_HOST_DEVICE static inline float comet_norm_inverse(float scale, int is_input) {
    return (float)((double)scale * (is_input ? (double)scale : 1.0));
}

/* |x - mean|, from |u|. */
COMET_HOST_DEVICE static inline float comet_norm_greatest(double u, float scale) {
    return (float)(u / (double)scale);
}

comet_status comet_end_norm(const comet_norm_batch *batch, comet_stats_norm *norm);

/* ---- a SiLU ---- */

typedef struct comet_silu_maps {
    comet_maps y, dz;
} comet_silu_maps;

comet_status comet_take_silu(const comet_silu_pass *given, int how, comet_silu_pass *pass, comet_silu_maps *maps);

typedef struct comet_silu_batch {
    int64_t channels;
    double pixels;
    const float *gamma, *scale; /* NULL: no norm */
    const double *sums;
    int normalised;
} comet_silu_batch;

comet_status comet_end_silu(const comet_silu_batch *batch, comet_stats_silu *silu);

/* ---- a channel scale ---- */

typedef struct comet_scale_maps {
    comet_maps s, dy;
} comet_scale_maps;

comet_status comet_take_scale(const comet_scale_pass *given, int how, comet_scale_maps *maps);
comet_status comet_end_scale(int64_t images, int64_t channels, const double *sums, comet_stats_scale *scale);

#endif
