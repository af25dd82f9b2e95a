// SPDX-License-Identifier: Apache-2.0
// The stand-in's functions, errors and handles.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "cudnn_model.h"

struct cudnnContext {
    cudaStream_t stream;
};

namespace {
std::set<cudnnContext *> handles;
std::set<cudnn_reference *> held;
int living;
size_t version = 91900;
thread_local std::string last_error;
} // namespace

cudnn_descriptor::cudnn_descriptor(cudnnBackendDescriptorType_t t) : type(t) {
    living++;
}

cudnn_descriptor::~cudnn_descriptor() {
    living--;
}

cudnnStatus_t cudnn_error(cudnnStatus_t status, const char *format, ...) {
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    last_error = std::string("stand-in: error\nError: ") + cudnnGetErrorString(status) + "; Reason: " + reason +
                 "\nWhere: stand-in";
    return status;
}

cudnn_reference cudnn_find(cudnnBackendDescriptor_t descriptor) {
    auto *reference = (cudnn_reference *)descriptor;
    return held.count(reference) ? *reference : nullptr;
}

cudnnBackendDescriptor_t cudnn_hold(const cudnn_reference &descriptor) {
    return *held.insert(new cudnn_reference(descriptor)).first;
}

cudnnStatus_t cudnn_fill(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type,
                         const cudnn_reference &with) {
    auto *reference = (cudnn_reference *)descriptor;
    if (!held.count(reference))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor to be filled is none");
    if ((*reference)->type != type)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor to be filled is of another kind");
    *reference = with;
    return CUDNN_STATUS_SUCCESS;
}

bool cudnn_is_handle(cudnnHandle_t handle) {
    return handles.count(handle) != 0;
}

cudaStream_t cudnn_stream(cudnnHandle_t handle) {
    return handle->stream;
}

extern "C" {

size_t cudnnGetVersion(void) {
    return version;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
#define ERROR_NAME(name, number)                                                                                       \
    case name:                                                                                                         \
        return #name;
        NUMBERS_OF_cudnnStatus_t(ERROR_NAME)
#undef ERROR_NAME
    }
    return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char *message, size_t max_size) {
    if (message && max_size)
        snprintf(message, max_size, "%s", last_error.c_str());
    last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    int device;
    if (!handle)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL");
    if (cudaGetDevice(&device) != cudaSuccess)
        return cudnn_error(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    *handle = *handles.insert(new cudnnContext{nullptr}).first;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    if (!handles.erase(handle))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "no handle");
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (!handles.count(handle))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "no handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    if (!descriptor)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor is NULL");
    switch (type) {
#define KNOWN_KIND(name, number) case name:
        NUMBERS_OF_cudnnBackendDescriptorType_t(KNOWN_KIND)
#undef KNOWN_KIND
            *descriptor = cudnn_hold(std::make_shared<cudnn_descriptor>(type));
        return CUDNN_STATUS_SUCCESS;
    }
    return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "kind %d of descriptors is not known here", (int)type);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    auto *reference = (cudnn_reference *)descriptor;
    if (!held.erase(reference))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "what is destroyed is no descriptor");
    delete reference;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    const cudnn_reference d = cudnn_find(descriptor);
    if (!d)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "what is finalised is no descriptor");
    if (d->finalized)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "finalised already");
    if (cudnn_missing(*d) >= 0)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "kind %d: attribute %d is not set", (int)d->type, cudnn_missing(*d));
    const cudnnStatus_t status = cudnn_finalize(d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    const cudnn_reference d = cudnn_find(descriptor);
    if (!d || !values)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or no values");
    if (d->finalized)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d of what is finalised", (int)name);
    return cudnn_set(d, name, type, count, values);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values) {
    const cudnn_reference d = cudnn_find(descriptor);
    if (!d || room < 0 || (room > 0 && !values) || (room == 0 && !count))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor, or nowhere to write");
    if (!d->finalized)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d of what is not finalised", (int)name);
    return cudnn_get(d, name, type, room, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const cudnn_reference p = cudnn_find(plan), v = cudnn_find(pack);
    if (!handles.count(handle) || !p || !v)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "another kind than a plan and a pack");
    if (!p->finalized || !v->finalized)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the pack is not finalised");
    return cudnn_run(handle, *p, *v);
}

void comet_stand_in_cudnn_set_version(size_t v) {
    version = v;
}

int comet_stand_in_cudnn_descriptors(void) {
    return living;
}

int comet_stand_in_cudnn_handles(void) {
    return (int)handles.size();
}

static void reset(void) {
    version = 91900;
    comet_stand_in_cudnn_slow(-1, 0);
    comet_stand_in_cudnn_refuse(-1);
    comet_stand_in_cudnn_break(-1);
}

#define FUNCTION(name)                                                                                                 \
    { #name, (void (*)(void))name }

static const comet_stand_in_function functions[] = {
    FUNCTION(cudnnGetVersion),
    FUNCTION(cudnnGetErrorString),
    FUNCTION(cudnnGetLastErrorString),
    FUNCTION(cudnnCreate),
    FUNCTION(cudnnDestroy),
    FUNCTION(cudnnSetStream),
    FUNCTION(cudnnBackendCreateDescriptor),
    FUNCTION(cudnnBackendDestroyDescriptor),
    FUNCTION(cudnnBackendFinalize),
    FUNCTION(cudnnBackendSetAttribute),
    FUNCTION(cudnnBackendGetAttribute),
    FUNCTION(cudnnBackendExecute),
};

extern const comet_stand_in_library comet_stand_in_cudnn = {"libcudnn.so.9", functions,
                                                            sizeof functions / sizeof *functions, reset};
}
