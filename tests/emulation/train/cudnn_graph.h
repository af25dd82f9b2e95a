/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for cuDNN 9's header of this name: its graph API, as much as convolutions need. Numbers are cuDNN's
 * (cudnn_numbers.h); what stands behind it, and how strict that is, is in cudnn_model.h.
 */
#ifndef COMET_EMULATION_CUDNN_GRAPH_H
#define COMET_EMULATION_CUDNN_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>
#include "cudnn_numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDNN_ENUMERATOR(name, number) name = number,
#define CUDNN_ENUMERATION(type)        typedef enum { NUMBERS_OF_##type(CUDNN_ENUMERATOR) } type;
CUDNN_ENUMERATIONS(CUDNN_ENUMERATION)
#undef CUDNN_ENUMERATION
#undef CUDNN_ENUMERATOR

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t max_size);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values);
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);

#ifdef __cplusplus
}
#endif

#endif
