/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor that is stored, on a device: from a pass to a record, and from that to comet_stats_tensor. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"
#include "control/cuda/arguments.h"
#include "control/cuda/launch.h"

static const comet_stats_bytes needed = {sizeof(comet_tensor_record), 0};

comet_status comet_cuda_stats_tensor_needs(const comet_tensor_pass *pass, comet_cuda_stats_needs *needs) {
    int32_t device;
    comet_tensor_pass p;
    comet_maps maps;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_tensor(pass, COMET_MAPS_DEVICE | COMET_MAPS_SHAPE, &p, &maps));
    return comet_stats_give_needs(needed, needs);
}

static comet_status check_tables(const comet_tensor_pass *p) {
    COMET_TRY(comet_cuda_check_aligned(p->result, sizeof(double), "pass->result"));
    COMET_TRY(comet_stats_check_table(p->gamma, "pass->gamma"));
    if (!p->grid)
        return COMET_OK;
    COMET_TRY(comet_stats_check_table(p->grid->scale, "pass->grid->scale"));
    COMET_TRY(comet_stats_check_table(p->grid->shift, "pass->grid->shift"));
    COMET_TRY(comet_stats_check_table(p->grid->threshold, "pass->grid->threshold"));
    return comet_stats_check_table(p->grid->slope, "pass->grid->slope");
}

comet_status comet_cuda_stats_see_tensor(const comet_tensor_pass *pass, const comet_stats_exec *exec,
                                         const comet_cuda_stats_slot *slot) {
    int32_t device;
    comet_tensor_pass p;
    comet_maps maps;
    comet_stats_exec how;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_tensor(pass, COMET_MAPS_DEVICE, &p, &maps));
    if (p.values)
        COMET_TRY(comet_stats_check_device(p.values, "pass->values", maps.channels));
    COMET_TRY(check_tables(&p));
    COMET_TRY(comet_stats_device_exec(exec, slot, needed, &how));
    const cudaError_t error =
        comet_stats_launch_tensor(&p, p.values ? &maps : NULL, slot->record, (cudaStream_t)how.queue);
    return comet_stats_give_record(error, slot, needed.record, &how);
}

comet_status comet_cuda_stats_fold_tensor(const void *record, size_t bytes, comet_stats_tensor *tensor) {
    const comet_tensor_record *r = record;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_stats_check_size(tensor, sizeof *tensor, "tensor"));
    COMET_TRY(comet_stats_check_record(record, bytes, sizeof *r, COMET_RECORD_TENSOR));
    COMET_TRY(comet_check_stored(&r->result));
    comet_fp_enter(&callers);
    const comet_status status = comet_end_tensor(&r->result, r->has_values, r->errors, tensor);
    comet_fp_leave(&callers);
    return status;
}
