/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of cuDNN's graph API and who owns them. After its first error every call of a set does nothing, so that a
 * graph is written down without a check behind each line; comet_cudnn_report tells it at the end.
 */
#ifndef COMET_TRAIN_CUDA_CUDNN_DESCRIPTORS_H
#define COMET_TRAIN_CUDA_CUDNN_DESCRIPTORS_H

#include "train/backend/cuda/library/cudnn_library.h"

enum { COMET_CUDNN_OWNED = 64, COMET_CUDNN_REASON_BYTES = 240 };

typedef struct comet_cudnn_descriptors {
    const comet_cudnn_functions *call;
    cudnnStatus_t status; /* of the first error */
    char reason[COMET_CUDNN_REASON_BYTES];
    cudnnBackendDescriptor_t owned[COMET_CUDNN_OWNED];
    int count;
} comet_cudnn_descriptors;

void comet_cudnn_begin(comet_cudnn_descriptors *d, const comet_cudnn_functions *call);

/* Gives all descriptors back, the last first. What was wrong stays. */
void comet_cudnn_clear(comet_cudnn_descriptors *d);

static inline int comet_cudnn_is_fine(const comet_cudnn_descriptors *d) {
    return d->status == CUDNN_STATUS_SUCCESS;
}

/* Keeps the error if it is the first one, with cuDNN's own reason. 1: `status` is none. */
int comet_cudnn_check(comet_cudnn_descriptors *d, const char *what, cudnnStatus_t status);

/* NULL after an error. */
cudnnBackendDescriptor_t comet_cudnn_make(comet_cudnn_descriptors *d, cudnnBackendDescriptorType_t type);

void comet_cudnn_set(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void *values);

/* An attribute that is another descriptor. */
void comet_cudnn_refer(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                       cudnnBackendDescriptor_t other);

/* `what` is for the reason. */
void comet_cudnn_finish(comet_cudnn_descriptors *d, const char *what, cudnnBackendDescriptor_t descriptor);

/* How many values were read; 0 after an error. */
int64_t comet_cudnn_get(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t room, void *values);

/* COMET_OK, or what is wrong as one of our statuses, with the reason. */
comet_status comet_cudnn_report(const comet_cudnn_descriptors *d);

/* The same for a status that a call outside of a set returned. */
comet_status comet_cudnn_status(const comet_cudnn_functions *call, const char *what, cudnnStatus_t status);

#endif
