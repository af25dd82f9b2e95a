/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation with the codec in the same kernels. What the backward pass needs of the layer's input is the
 * normalised value u, kept as a stream on a grid whose bins end at the ReLU's threshold: the mask read off the stream
 * is the one the forward pass used, value for value.
 *
 *     comet_cuda_norm norm = COMET_CUDA_NORM_INIT;
 *     comet_cuda_norm_batch batch = COMET_CUDA_NORM_BATCH_INIT;
 *     norm.channels = c, norm.mean = mean, norm.inverse_std = ..., norm.relu = 1;
 *     batch.norm = &norm, batch.channels = c, batch.mean = mean, ...
 *     comet_cuda_norm_workspace(&x, &params, &workspace_bytes);
 *     comet_cuda_norm_statistics(&batch, &x, &exec);           // or known ones, and comet_cuda_norm_prepare
 *     comet_cuda_norm_forward(&norm, &x, &y, &params, &exec, &slot, NULL, NULL);   // x is not needed any more
 *     ...
 *     comet_cuda_norm_backward(&norm, &slot, NULL, &dy, &dx, dgamma, dbeta, &params, &exec, status, NULL);
 *
 * Calls are like those of comet/cuda.h: ordered on a queue, returning at once, and fit for a graph. Tensors are
 * those of comet/cuda.h too (all of one call of the same shape, layout and dtype), with a channel dimension: the
 * last of COMET_NHWC, the second of COMET_NCHW with three or more dimensions.
 *
 * In fp32, rounded to nearest, no flushing of subnormals, fma where written:
 *
 *     shift = -(mean * inverse_std)
 *     u = fma(inverse_std, x, shift)
 *     threshold = -beta / gamma, rounded down, or up if gamma < 0; if gamma is 0: +Inf (always off) where beta <= 0,
 *                 else -Inf (always on); without a ReLU: NaN (always on)
 *     off = gamma < 0 ? u >= threshold : u <= threshold      (a NaN is never off: it goes on to y and the gradients)
 *     y = max(fma(gamma, u, beta), 0), without ReLU fma(gamma, u, beta); then rounded to y's dtype
 *
 * The threshold's rounding makes y 0 exactly where it is off (where it is NaN, 0 times an infinite u, it stays NaN).
 *
 * Backwards, from a stream u is the decoded value u', else it is that of x again:
 *
 *     dz = off ? 0 : dy,   dbeta = sum dz,   dgamma = sum dz * u
 *     dx = gamma * inverse_std * (dz - dbeta / n - u * dgamma / n)                 n: values of a channel
 *
 * A layer that ends a residual block adds a tensor z before the ReLU (norm.adds, comet_cuda_norm_residual). Where it is
 * off is no matter of u alone then: the grid has no threshold (NaN: always on), and the backward pass takes the mask
 * from y, or from a stream of y that the forward pass writes beside that of u:
 *
 *     y = max(fma(gamma, u, beta) + z, 0), without ReLU fma(gamma, u, beta) + z; then rounded to y's dtype
 *     dz = y <= 0 ? 0 : dy, without ReLU dy: the gradient of z, which is written; the rest as above
 *
 * Sums are formed in an order that depends on the shape and the kind of GPU alone:
 * the same input gives the same bits again.
 */
#ifndef COMET_CUDA_NORM_H
#define COMET_CUDA_NORM_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"
#include "comet/cuda.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer. All pointers are device memory, 16-byte aligned, `channels` values each. */
typedef struct comet_cuda_norm {
    size_t size;              /* sizeof(comet_cuda_norm) */
    int64_t channels;         /* the extent of the tensors' channel dimension */
    const float *mean;        /* only for comet_cuda_norm_prepare */
    const float *inverse_std; /* 1 / sqrt(variance + epsilon); finite */
    const float *gamma;
    const float *beta;
    float *shift;     /* comet_cuda_norm_prepare writes these two, the other calls read them; */
    float *threshold; /* a kernel of the caller that knows the statistics first may write them in its place */
    int32_t relu;     /* 1: a ReLU follows in the same pass */
    int32_t adds;     /* 1: a tensor is added before the ReLU: comet_cuda_norm_residual */
} comet_cuda_norm;

#define COMET_CUDA_NORM_INIT COMET_INIT_ZERO(comet_cuda_norm)

/* Writes norm->shift and norm->threshold. A small kernel; whenever a table changed, before the next forward pass. */
COMET_API comet_status comet_cuda_norm_prepare(const comet_cuda_norm *norm, void *queue);

/*
 * What a batch's statistics are to be written to, in training. Device memory, `channels` values each; mean and
 * inverse_std aligned to 16 bytes, the others to their type.
 */
typedef struct comet_cuda_norm_batch {
    size_t size;                 /* sizeof(comet_cuda_norm_batch) */
    const comet_cuda_norm *norm; /* NULL, or the layer: its shift and threshold are written too, so that no
                                    comet_cuda_norm_prepare is needed; its inverse_std is the one below */
    int64_t channels;
    float *mean;
    float *inverse_std;      /* 1 / sqrt(variance + epsilon); variance: sum (x - mean)^2 / n */
    float *running_mean;     /* NULL, or becomes (1 - momentum) * itself + momentum * mean; */
    float *running_variance; /* the same with sum (x - mean)^2 / (n - 1); the sum itself if n is 1 */
    int64_t *batches;        /* NULL, or one number: 1 is added */
    double momentum;         /* 0 to 1 */
    double epsilon;          /* not negative */
} comet_cuda_norm_batch;

#define COMET_CUDA_NORM_BATCH_INIT                                                                                     \
    COMET_INIT(comet_cuda_norm_batch, COMET_FIELD(momentum) = 0.1, COMET_FIELD(epsilon) = 1e-5)

/*
 * The statistics of x, which is read once; of an empty tensor none are written. Squares are summed in fp32, around
 * values of the same channel: to about 1e-6 of the variance whatever the mean, as long as they and their sums are
 * inside fp32's range. A channel that is constant has a variance of 0. A NaN or infinity makes its channel's
 * inverse_std NaN, and its mean NaN or infinite. The workspace is that of comet_cuda_norm_workspace.
 */
COMET_API comet_status comet_cuda_norm_statistics(const comet_cuda_norm_batch *batch, const comet_tensor *x,
                                                  const comet_codec_exec *exec);

/*
 * The grid of the streams that forward passes write, for comet_cuda_decompress: it decodes u', and with gamma and beta
 * as the epilogue's scale and shift, and its relu, the layer's output.
 */
COMET_API comet_status comet_cuda_norm_grid(const comet_cuda_norm *norm, comet_codec_grid *grid);

/* The workspace (comet_cuda_workspace_init) that the statistics of such a tensor and both passes over it need. */
COMET_API comet_status comet_cuda_norm_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                                 size_t *bytes);

/* The most bytes that the stream of such a tensor can take. */
COMET_API comet_status comet_cuda_norm_max_bytes(const comet_tensor *tensor, const comet_codec_params *params,
                                                 size_t *bytes);

/* What a forward pass may do beside its own work. */
typedef struct comet_cuda_norm_residual {
    size_t size;                        /* sizeof(comet_cuda_norm_residual) */
    const comet_tensor *add;            /* z; given exactly where norm->adds is 1 */
    const comet_cuda_slot *y_slot;      /* NULL, or where a stream of y goes; only beside one of u */
    const comet_codec_params *y_params; /* of that stream: codec COMET_CODEC_EB with keep_mask, rounding to nearest,
                                           without checksum or grid; a relative bound only with device_stats */
    comet_cuda_result *y_host;          /* NULL, or as `host`, of y's stream */
} comet_cuda_norm_residual;

#define COMET_CUDA_NORM_RESIDUAL_INIT COMET_INIT_ZERO(comet_cuda_norm_residual)

/*
 * Writes y and, unless `slot` is NULL, the stream of u; y is the same either way. `params` say the bound, as for
 * comet_cuda_compress; codec must be COMET_CODEC_EB, rounding to nearest, without keep-mask, checksum or grid (it is
 * made from `norm`). Without a slot params, the workspace and `host` are not read, and y may be x or z. `residual` may
 * be NULL; the stream of y is the one that comet_cuda_compress would write.
 */
COMET_API comet_status comet_cuda_norm_forward(const comet_cuda_norm *norm, const comet_tensor *x,
                                               const comet_tensor *y, const comet_codec_params *params,
                                               const comet_codec_exec *exec, const comet_cuda_slot *slot,
                                               comet_cuda_result *host, const comet_cuda_norm_residual *residual);

/* Of a layer that adds: where the mask comes from, and where the gradient of z goes. */
typedef struct comet_cuda_norm_residual_back {
    size_t size;                        /* sizeof(comet_cuda_norm_residual_back) */
    const comet_cuda_slot *y_slot;      /* the stream of y, */
    const comet_codec_params *y_params; /* with the parameters it was made with; the bound may be any; */
    const comet_tensor *y;              /* or y itself: one of the two is NULL. Without a ReLU neither is read */
    const comet_tensor *dz;             /* may be dy; not dx */
} comet_cuda_norm_residual_back;

#define COMET_CUDA_NORM_RESIDUAL_BACK_INIT COMET_INIT_ZERO(comet_cuda_norm_residual_back)

/*
 * Writes dx, dgamma and dbeta (device memory, `channels` values each) from the stream in `slot`, or if that is NULL
 * from `x`; one of the two is given. `status` is that of comet_cuda_decompress; it may be NULL where no stream is read.
 * dx may be dy. `residual` is given exactly where norm->adds is 1.
 */
COMET_API comet_status comet_cuda_norm_backward(const comet_cuda_norm *norm, const comet_cuda_slot *slot,
                                                const comet_tensor *x, const comet_tensor *dy, const comet_tensor *dx,
                                                float *dgamma, float *dbeta, const comet_codec_params *params,
                                                const comet_codec_exec *exec, int32_t *status,
                                                const comet_cuda_norm_residual_back *residual);

#ifdef __cplusplus
}
#endif

#endif
