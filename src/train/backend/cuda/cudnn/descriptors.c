/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cudnn/descriptors.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

void comet_cudnn_begin(comet_cudnn_descriptors *d, const comet_cudnn_functions *call) {
    *d = (comet_cudnn_descriptors){.call = call, .status = CUDNN_STATUS_SUCCESS};
}

void comet_cudnn_clear(comet_cudnn_descriptors *d) {
    while (d->count > 0)
        d->call->unmake(d->owned[--d->count]);
}

/* cuDNN tells a stack of errors; the first of them is where it began. */
static void describe(const comet_cudnn_functions *call, const char *what, cudnnStatus_t status,
                     char text[COMET_CUDNN_REASON_BYTES]) {
    static const char mark[] = "Reason: ";
    char last[2048] = "";
    call->last_error(last, sizeof last);
    last[sizeof last - 1] = 0;
    char *reason = strstr(last, mark);
    reason = reason ? reason + strlen(mark) : last;
    reason[strcspn(reason, "\n")] = 0;
    snprintf(text, COMET_CUDNN_REASON_BYTES, "cuDNN: %.40s: %.60s%s%.100s", what, call->error_string(status),
             *reason ? ": " : "", reason);
}

int comet_cudnn_check(comet_cudnn_descriptors *d, const char *what, cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS)
        return 1;
    if (comet_cudnn_is_fine(d)) {
        d->status = status;
        describe(d->call, what, status, d->reason);
    }
    return 0;
}

cudnnBackendDescriptor_t comet_cudnn_make(comet_cudnn_descriptors *d, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = NULL;
    if (!comet_cudnn_is_fine(d))
        return NULL;
    if (d->count == COMET_CUDNN_OWNED) {
        d->status = CUDNN_STATUS_INTERNAL_ERROR;
        snprintf(d->reason, sizeof d->reason, "cuDNN: more descriptors than there is room for");
        return NULL;
    }
    if (comet_cudnn_check(d, "a descriptor", d->call->make(type, &descriptor)))
        d->owned[d->count++] = descriptor;
    return descriptor;
}

void comet_cudnn_set(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    char what[32];
    if (!comet_cudnn_is_fine(d))
        return;
    const cudnnStatus_t status = d->call->set(of, name, type, count, values);
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    comet_cudnn_check(d, what, status);
}

void comet_cudnn_refer(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                       cudnnBackendDescriptor_t other) {
    comet_cudnn_set(d, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

void comet_cudnn_finish(comet_cudnn_descriptors *d, const char *what, cudnnBackendDescriptor_t descriptor) {
    if (comet_cudnn_is_fine(d))
        comet_cudnn_check(d, what, d->call->finalize(descriptor));
}

int64_t comet_cudnn_get(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t room, void *values) {
    char what[32];
    int64_t count = 0;
    if (!comet_cudnn_is_fine(d))
        return 0;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    return comet_cudnn_check(d, what, d->call->get(of, name, type, room, &count, values)) ? count : 0;
}

static comet_status status_of(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS)
        return COMET_OK;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return COMET_ERROR_MEMORY;
    switch ((int)status / 1000) {
    case 1: /* not initialised, or of another version */
    case 3: /* not supported */
        return COMET_ERROR_UNSUPPORTED;
    case 2: /* a bad parameter */
        return COMET_ERROR_ARGUMENT;
    default:
        return COMET_ERROR_DEVICE;
    }
}

comet_status comet_cudnn_report(const comet_cudnn_descriptors *d) {
    return comet_cudnn_is_fine(d) ? COMET_OK : comet_fail(status_of(d->status), "%s", d->reason);
}

comet_status comet_cudnn_status(const comet_cudnn_functions *call, const char *what, cudnnStatus_t status) {
    char reason[COMET_CUDNN_REASON_BYTES];
    if (status == CUDNN_STATUS_SUCCESS)
        return COMET_OK;
    describe(call, what, status, reason);
    return comet_fail(status_of(status), "%s", reason);
}
