/* SPDX-License-Identifier: Apache-2.0 */
/* Indices of a max-pool on a device: the calls. */
#include "codec/cuda/indices/indices.h"
#include "base/fail.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/runtime.h"

static comet_status take(const comet_pool_window *window, const int64_t *indices, const void *packed, comet_window *w) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_window_take(window, w));
    COMET_REQUIRE(w->count == 0 || indices, "indices is NULL");
    COMET_REQUIRE(w->count == 0 || packed, "packed is NULL");
    COMET_TRY(comet_cuda_check_aligned(indices, sizeof *indices, "indices"));
    return comet_cuda_check_aligned(packed, COMET_WINDOW_PACKED_UNIT, "packed");
}

comet_status comet_cuda_indices_pack(const comet_pool_window *window, const int64_t *indices, void *packed,
                                     int32_t *status, void *queue) {
    comet_window w;
    comet_begin();
    COMET_TRY(take(window, indices, packed, &w));
    COMET_TRY(comet_cuda_check_status_word(status));
    if (w.count == 0)
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_pack(&w, indices, packed, status, (cudaStream_t)queue));
}

comet_status comet_cuda_indices_unpack(const comet_pool_window *window, const void *packed, int64_t *indices,
                                       void *queue) {
    comet_window w;
    comet_begin();
    COMET_TRY(take(window, indices, packed, &w));
    if (w.count == 0)
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_unpack(&w, packed, indices, (cudaStream_t)queue));
}
