/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what is computed in plain C. */
#include <string.h>

#include "base/fail.h"
#include "train/backend/cpu/errors.h"
#include "train/backend/cpu/kernels.h"

comet_status comet_cpu_images(const comet_images_call *call) {
    const int64_t used = call->count * call->pixels, rest = (call->batch - call->count) * call->pixels;
    comet_normalise(call->normalisation, call->channels, call->bytes, used, call->values);
    memset((float *)call->values + used * call->channels, 0, (size_t)(rest * call->channels) * sizeof(float));
    return COMET_OK;
}

/* ---- statistics: those of libcomet, which need nothing of the backend ---- */

#define SEE(kind)                                                                                                      \
    static comet_status see_##kind(comet_backend *backend, const comet_##kind##_pass *pass,                            \
                                   const comet_stats_exec *exec, comet_stats_##kind *seen) {                           \
        (void)backend;                                                                                                 \
        return comet_stats_see_##kind(pass, exec, seen);                                                               \
    }
SEE(tensor)
SEE(layer)
SEE(norm)
SEE(silu)
SEE(scale)
#undef SEE

static comet_status squares(comet_backend *backend, const comet_span *spans, int count, double *sums) {
    (void)backend;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < spans[i].count; k++)
            sums[i] += (double)spans[i].values[k] * (double)spans[i].values[k];
    return COMET_OK;
}

static const comet_backend_statistics statistics = {.see_tensor = see_tensor,
                                                    .see_layer = see_layer,
                                                    .see_norm = see_norm,
                                                    .see_silu = see_silu,
                                                    .see_scale = see_scale,
                                                    .squares = squares};

/* ---- the table ---- */

/* An entry that no codec takes has no size: saving it will say so. */
static comet_status measure(comet_backend *backend, const comet_tensor *tensor, const comet_codec_params *codec,
                            size_t *most, size_t *workspace) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = backend->threads;
    COMET_TRY(comet_codec_max_bytes(tensor, codec, most));
    return comet_codec_compress_workspace(tensor, codec, &exec, workspace);
}

void comet_cpu_fill(comet_backend *backend) {
    backend->dtype = COMET_F32;
    backend->statistics = &statistics;
    backend->errors = &comet_cpu_errors;
    backend->images = comet_cpu_images;
    backend->loss = comet_cpu_loss;
    backend->update = comet_cpu_update;
    backend->add = comet_cpu_add;
    backend->measure = measure;
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
