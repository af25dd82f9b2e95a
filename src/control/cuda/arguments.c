/* SPDX-License-Identifier: Apache-2.0 */
#include "control/cuda/arguments.h"

#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"

comet_status comet_stats_give_needs(comet_stats_bytes bytes, comet_cuda_stats_needs *needs) {
    const comet_cuda_stats_needs found = {sizeof found, bytes.record, bytes.workspace};
    COMET_TRY(comet_sized_check(needs, "needs"));
    comet_sized_write(needs, &found, sizeof found);
    return COMET_OK;
}

comet_status comet_stats_device_exec(const comet_stats_exec *given, const comet_cuda_stats_slot *slot,
                                     comet_stats_bytes bytes, comet_stats_exec *exec) {
    COMET_REQUIRE_POINTER(slot);
    COMET_REQUIRE(slot->record, "slot->record is NULL");
    COMET_TRY(comet_cuda_check_aligned(slot->record, COMET_CUDA_ALIGN_VALUES, "slot->record"));
    if (slot->bytes < bytes.record)
        return comet_fail(COMET_ERROR_CAPACITY, "slot->bytes is %zu: it must be at least %zu", slot->bytes,
                          bytes.record);
    return comet_stats_exec_of(given, bytes.workspace, exec);
}

comet_status comet_stats_check_device(const comet_tensor *tensor, const char *name, int64_t channels) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_REQUIRE(tensor->device.index == device, "%s->device.index is %d: it must be the current device, %d", name,
                  (int)tensor->device.index, (int)device);
    COMET_REQUIRE((uintptr_t)tensor->data % comet_dtype_size(tensor->dtype) == 0,
                  "%s->data must be aligned to its values", name);
    if (channels > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s has more than 2^31 - 1 channels", name);
    return COMET_OK;
}

comet_status comet_stats_check_table(const float *table, const char *name) {
    return comet_cuda_check_aligned(table, sizeof *table, name);
}

comet_status comet_stats_give_record(cudaError_t error, const comet_cuda_stats_slot *slot, size_t bytes,
                                     const comet_stats_exec *exec) {
    if (error == cudaSuccess && slot->host)
        error = cudaMemcpyAsync(slot->host, slot->record, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)exec->queue);
    return comet_cuda_status(error);
}

comet_status comet_stats_check_record(const void *record, size_t bytes, size_t head, int32_t kind) {
    int32_t found;
    COMET_REQUIRE_POINTER(record);
    COMET_REQUIRE((uintptr_t)record % sizeof(double) == 0, "record must be aligned to %zu bytes", sizeof(double));
    COMET_TRY(comet_stats_check_whole(bytes, head));
    memcpy(&found, record, sizeof found);
    COMET_REQUIRE(found == kind, "record is none of this kind, or is not there yet");
    return COMET_OK;
}

comet_status comet_stats_check_whole(size_t bytes, size_t needed) {
    COMET_REQUIRE(bytes >= needed, "bytes is %zu: a record of this kind has %zu", bytes, needed);
    return COMET_OK;
}
