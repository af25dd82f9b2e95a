// SPDX-License-Identifier: Apache-2.0
// Which attributes each kind of descriptor has, of which type and how many, and setting and reading them.
#include <cstring>

#include "cudnn_model.h"

namespace {

enum use { SET, OPTIONAL, READ, SET_OR_READ }; // SET: must be set before it is finalised

struct rule {
    cudnnBackendDescriptorType_t kind;
    int name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; // values
    use as;
    int refers; // the kind of descriptor that it is; -1: it is none
};

constexpr cudnnBackendDescriptorType_t TENSOR = CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                                       GEOMETRY = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                                       FORWARD = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                       DATA = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                       FILTER = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                       GRAPH = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                                       HEURISTICS = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                                       ENGINE = CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                       CONFIG = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                       KNOB = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                       PLAN = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                       PACK = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr cudnnBackendAttributeType_t DESCRIPTOR = CUDNN_TYPE_BACKEND_DESCRIPTOR;

const rule rules[] = {
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, SET, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, 8, SET, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, 8, SET, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, SET, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, SET, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, OPTIONAL, -1},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1, OPTIONAL, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 1, 6, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 1, 6, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, 6, SET, -1},
    {GEOMETRY, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 1, 6, SET, -1},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, DESCRIPTOR, 1, 1, SET, GEOMETRY},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, DESCRIPTOR, 1, 1, SET, GEOMETRY},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, DESCRIPTOR, 1, 1, SET, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, DESCRIPTOR, 1, 1, SET, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, DESCRIPTOR, 1, 1, SET, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, DESCRIPTOR, 1, 1, SET, GEOMETRY},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, DESCRIPTOR, 1, 1, SET, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, 1, SET, -1},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, SET, -1},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, DESCRIPTOR, 1, 1, SET, -2},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DESCRIPTOR, 1, 1, SET, GRAPH},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, SET, -1},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_RESULTS, DESCRIPTOR, 0, 0, READ, CONFIG},
    {ENGINE, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, DESCRIPTOR, 1, 1, SET, GRAPH},
    {ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1, SET_OR_READ, -1},
    {ENGINE, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 0, 0, READ, -1},
    {ENGINE, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, 0, 0, READ, -1},
    {KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1, SET_OR_READ, -1},
    {KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, 1, SET_OR_READ, -1},
    {CONFIG, CUDNN_ATTR_ENGINECFG_ENGINE, DESCRIPTOR, 1, 1, SET_OR_READ, ENGINE},
    {CONFIG, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, DESCRIPTOR, 1, 64, OPTIONAL, KNOB},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, SET, -1},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DESCRIPTOR, 1, 1, SET, CONFIG},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, 1, READ, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64, SET, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64, SET, -1},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, SET, -1},
};

const rule *find_rule(cudnnBackendDescriptorType_t kind, int name) {
    for (const rule &r : rules)
        if (r.kind == kind && r.name == name)
            return &r;
    return nullptr;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return 4; // fp32 and enumerations
    }
}

bool is_operation(cudnnBackendDescriptorType_t kind) {
    return kind == FORWARD || kind == DATA || kind == FILTER;
}

cudnnStatus_t set_references(const cudnn_reference &d, const rule &r, int64_t count, const void *values) {
    std::vector<cudnn_reference> references;
    for (int64_t i = 0; i < count; i++) {
        const cudnn_reference other = cudnn_find(((const cudnnBackendDescriptor_t *)values)[i]);
        if (!other)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d is no descriptor", r.name);
        if (r.refers == -2 ? !is_operation(other->type) : other->type != r.refers)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute %d is a descriptor of kind %d",
                               r.name, (int)other->type);
        if (!other->finalized)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d is not finalised", r.name);
        references.push_back(other);
    }
    cudnn_put(*d, r.name, references);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_rule(const rule *r, int kind, int name, cudnnBackendAttributeType_t type) {
    if (!r)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "kind %d has no attribute %d", kind, name);
    if (r->type != type)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d is of type %d, not %d", name,
                           (int)r->type, (int)type);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

void cudnn_put(cudnn_descriptor &d, int name, int64_t count, const void *values, size_t bytes) {
    const auto *from = (const unsigned char *)values;
    d.attributes[name] = {count, std::vector<unsigned char>(from, from + bytes), {}};
}

void cudnn_put(cudnn_descriptor &d, int name, std::vector<cudnn_reference> references) {
    d.attributes[name] = {(int64_t)references.size(), {}, references};
}

cudnnStatus_t cudnn_set(const cudnn_reference &d, int name, cudnnBackendAttributeType_t type, int64_t count,
                        const void *values) {
    const rule *r = find_rule(d->type, name);
    const cudnnStatus_t status = check_rule(r, d->type, name, type);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (r->as == READ)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d can only be read", name);
    if (count < r->least || count > r->most)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d has %lld values", name, (long long)count);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return set_references(d, *r, count, values);
    if (type == CUDNN_TYPE_HANDLE && !cudnn_is_handle(*(const cudnnHandle_t *)values))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d is no handle", name);
    cudnn_put(*d, name, count, values, (size_t)count * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

int cudnn_missing(const cudnn_descriptor &d) {
    for (const rule &r : rules)
        if (r.kind == d.type && (r.as == SET || r.as == SET_OR_READ) && !d.has(r.name))
            return r.name;
    return -1;
}

cudnnStatus_t cudnn_get(const cudnn_reference &d, int name, cudnnBackendAttributeType_t type, int64_t room,
                        int64_t *count, void *values) {
    const rule *r = find_rule(d->type, name);
    const cudnnStatus_t status = check_rule(r, d->type, name, type);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    const bool is_there = d->has(name);
    if (!is_there && r->as != READ && r->as != OPTIONAL)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d was not set", name);
    /* As cuDNN does it: how many knobs there are it says only to who has room for them. */
    const bool is_told = is_there && (room > 0 || name != CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    const int64_t all = is_told ? d->attributes[name].count : 0;
    const int64_t some = room == 0 || all < room ? all : room;
    if (count)
        *count = some;
    if (room == 0 || some == 0)
        return CUDNN_STATUS_SUCCESS;
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        memcpy(values, d->attributes[name].bytes.data(), (size_t)some * bytes_of(type));
        return CUDNN_STATUS_SUCCESS;
    }
    for (int64_t i = 0; i < some; i++) {
        const cudnnStatus_t filled = cudnn_fill(((cudnnBackendDescriptor_t *)values)[i],
                                                (cudnnBackendDescriptorType_t)r->refers, d->reference(name, (size_t)i));
        if (filled != CUDNN_STATUS_SUCCESS)
            return filled;
    }
    return CUDNN_STATUS_SUCCESS;
}
