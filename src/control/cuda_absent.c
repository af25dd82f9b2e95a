/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda_use_stats.h in a library built without CUDA. */
#include "comet/cuda_use_stats.h"

#include "base/fail.h"

static comet_status absent(void) {
    return comet_fail(COMET_ERROR_NO_DEVICE, "this library was built without CUDA");
}

/* ---- tensor ---- */

comet_status comet_cuda_stats_tensor_needs(const comet_tensor_pass *pass, comet_cuda_stats_needs *needs) {
    (void)pass, (void)needs;
    return absent();
}

comet_status comet_cuda_stats_see_tensor(const comet_tensor_pass *pass, const comet_stats_exec *exec,
                                         const comet_cuda_stats_slot *slot) {
    (void)pass, (void)exec, (void)slot;
    return absent();
}

comet_status comet_cuda_stats_fold_tensor(const void *record, size_t bytes, comet_stats_tensor *tensor) {
    (void)record, (void)bytes, (void)tensor;
    return absent();
}

/* ---- layer ---- */

comet_status comet_cuda_stats_layer_needs(const comet_layer_pass *pass, comet_cuda_stats_needs *needs) {
    (void)pass, (void)needs;
    return absent();
}

comet_status comet_cuda_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                        const comet_cuda_stats_slot *slot) {
    (void)pass, (void)exec, (void)slot;
    return absent();
}

comet_status comet_cuda_stats_fold_layer(const void *record, size_t bytes, comet_stats_layer *layer) {
    (void)record, (void)bytes, (void)layer;
    return absent();
}

/* ---- norm ---- */

comet_status comet_cuda_stats_norm_needs(const comet_norm_pass *pass, comet_cuda_stats_needs *needs) {
    (void)pass, (void)needs;
    return absent();
}

comet_status comet_cuda_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec,
                                       const comet_cuda_stats_slot *slot) {
    (void)pass, (void)exec, (void)slot;
    return absent();
}

comet_status comet_cuda_stats_fold_norm(const void *record, size_t bytes, comet_stats_norm *norm) {
    (void)record, (void)bytes, (void)norm;
    return absent();
}

/* ---- silu ---- */

comet_status comet_cuda_stats_silu_needs(const comet_silu_pass *pass, comet_cuda_stats_needs *needs) {
    (void)pass, (void)needs;
    return absent();
}

comet_status comet_cuda_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec,
                                       const comet_cuda_stats_slot *slot) {
    (void)pass, (void)exec, (void)slot;
    return absent();
}

comet_status comet_cuda_stats_fold_silu(const void *record, size_t bytes, comet_stats_silu *silu) {
    (void)record, (void)bytes, (void)silu;
    return absent();
}

/* ---- scale ---- */

comet_status comet_cuda_stats_scale_needs(const comet_scale_pass *pass, comet_cuda_stats_needs *needs) {
    (void)pass, (void)needs;
    return absent();
}

comet_status comet_cuda_stats_see_scale(const comet_scale_pass *pass, const comet_stats_exec *exec,
                                        const comet_cuda_stats_slot *slot) {
    (void)pass, (void)exec, (void)slot;
    return absent();
}

comet_status comet_cuda_stats_fold_scale(const void *record, size_t bytes, comet_stats_scale *scale) {
    (void)record, (void)bytes, (void)scale;
    return absent();
}
