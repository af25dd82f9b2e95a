/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/cuda/arguments.h"

#include "base/fail.h"
#include "base/tensor_check.h"

comet_status comet_cuda_check_aligned(const void *pointer, size_t alignment, const char *name) {
    COMET_REQUIRE((uintptr_t)pointer % alignment == 0, "%s must be aligned to %zu bytes", name, alignment);
    return COMET_OK;
}

comet_status comet_cuda_check_tensor(const comet_tensor *tensor, const char *name, int32_t device) {
    COMET_TRY(comet_tensor_check(tensor, name));
    if (tensor->device.kind != COMET_CUDA)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s is not in device memory: %s->device.kind must be COMET_CUDA",
                          name, name);
    if (!comet_tensor_is_contiguous(tensor))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s is not contiguous", name);
    COMET_REQUIRE(tensor->device.index == device, "%s->device.index is %d: it must be the current device, %d", name,
                  (int)tensor->device.index, (int)device);
    COMET_REQUIRE((uintptr_t)tensor->data % COMET_CUDA_ALIGN_VALUES == 0, "%s->data must be aligned to %d bytes", name,
                  COMET_CUDA_ALIGN_VALUES);
    return COMET_OK;
}

comet_status comet_cuda_check_slot(const comet_cuda_slot *slot, int writes) {
    COMET_REQUIRE_POINTER(slot);
    COMET_REQUIRE(slot->base, "slot->base is NULL");
    COMET_TRY(comet_cuda_check_aligned(slot->base, COMET_CUDA_ALIGN_MEMORY, "slot->base"));
    COMET_TRY(comet_cuda_check_aligned(slot->start, sizeof(uint64_t), "slot->start"));
    COMET_TRY(comet_cuda_check_aligned(slot->result, COMET_CUDA_ALIGN_VALUES, "slot->result"));
    COMET_REQUIRE(!writes || slot->result, "slot->result is NULL");
    return COMET_OK;
}

comet_status comet_cuda_check_workspace(const comet_codec_exec *exec, size_t needed) {
    COMET_REQUIRE(exec->workspace, "exec->workspace is NULL: %zu bytes of device memory are needed", needed);
    COMET_TRY(comet_cuda_check_aligned(exec->workspace, COMET_CUDA_ALIGN_MEMORY, "exec->workspace"));
    if (exec->workspace_bytes < needed)
        return comet_fail(COMET_ERROR_CAPACITY, "exec->workspace_bytes is %zu: it must be at least %zu",
                          exec->workspace_bytes, needed);
    return COMET_OK;
}

comet_status comet_cuda_check_status_word(const int32_t *status) {
    COMET_REQUIRE_POINTER(status);
    return comet_cuda_check_aligned(status, sizeof *status, "status");
}
