/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda.h, comet/cuda_norm.h and the device's half of comet/indices.h in a library built without CUDA. */
#include "comet/cuda.h"
#include "comet/cuda_norm.h"
#include "comet/indices.h"

#include "base/fail.h"

static comet_status absent(void) {
    return comet_fail(COMET_ERROR_NO_DEVICE, "this library was built without CUDA");
}

comet_status comet_cuda_check(int32_t device) {
    (void)device;
    return absent();
}

comet_status comet_cuda_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    (void)tensor, (void)params, (void)bytes;
    return absent();
}

comet_status comet_cuda_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    (void)tensor, (void)params, (void)bytes;
    return absent();
}

comet_status comet_cuda_workspace_init(void *workspace, size_t bytes, void *queue) {
    (void)workspace, (void)bytes, (void)queue;
    return absent();
}

comet_status comet_cuda_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                 const comet_codec_exec *exec, const comet_cuda_slot *slot, comet_cuda_result *host) {
    (void)tensor, (void)params, (void)exec, (void)slot, (void)host;
    return absent();
}

comet_status comet_cuda_decompress(const comet_cuda_slot *slot, const comet_codec_params *params,
                                   const comet_cuda_epilogue *epilogue, const comet_codec_exec *exec,
                                   const comet_tensor *tensor, int32_t *status) {
    (void)slot, (void)params, (void)epilogue, (void)exec, (void)tensor, (void)status;
    return absent();
}

/* ---- comet/cuda_norm.h ---- */

comet_status comet_cuda_norm_prepare(const comet_cuda_norm *norm, void *queue) {
    (void)norm, (void)queue;
    return absent();
}

comet_status comet_cuda_norm_statistics(const comet_cuda_norm_batch *batch, const comet_tensor *x,
                                        const comet_codec_exec *exec) {
    (void)batch, (void)x, (void)exec;
    return absent();
}

comet_status comet_cuda_norm_grid(const comet_cuda_norm *norm, comet_codec_grid *grid) {
    (void)norm, (void)grid;
    return absent();
}

comet_status comet_cuda_norm_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    (void)tensor, (void)params, (void)bytes;
    return absent();
}

comet_status comet_cuda_norm_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    (void)tensor, (void)params, (void)bytes;
    return absent();
}

comet_status comet_cuda_norm_forward(const comet_cuda_norm *norm, const comet_tensor *x, const comet_tensor *y,
                                     const comet_codec_params *params, const comet_codec_exec *exec,
                                     const comet_cuda_slot *slot, comet_cuda_result *host,
                                     const comet_cuda_norm_residual *residual) {
    (void)norm, (void)x, (void)y, (void)params, (void)exec, (void)slot, (void)host, (void)residual;
    return absent();
}

comet_status comet_cuda_norm_backward(const comet_cuda_norm *norm, const comet_cuda_slot *slot, const comet_tensor *x,
                                      const comet_tensor *dy, const comet_tensor *dx, float *dgamma, float *dbeta,
                                      const comet_codec_params *params, const comet_codec_exec *exec, int32_t *status,
                                      const comet_cuda_norm_residual_back *residual) {
    (void)norm, (void)slot, (void)x, (void)dy, (void)dx, (void)dgamma, (void)dbeta, (void)params, (void)exec;
    (void)status, (void)residual;
    return absent();
}

/* ---- comet/indices.h ---- */

comet_status comet_cuda_indices_pack(const comet_pool_window *window, const int64_t *indices, void *packed,
                                     int32_t *status, void *queue) {
    (void)window, (void)indices, (void)packed, (void)status, (void)queue;
    return absent();
}

comet_status comet_cuda_indices_unpack(const comet_pool_window *window, const void *packed, int64_t *indices,
                                       void *queue) {
    (void)window, (void)packed, (void)indices, (void)queue;
    return absent();
}
