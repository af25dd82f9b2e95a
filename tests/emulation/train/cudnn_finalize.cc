// SPDX-License-Identifier: Apache-2.0
// Finalising: do the attributes belong together?
#include <cstring>

#include "cudnn_model.h"

namespace {

size_t value_bytes(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT ? 4 : 2;
}

cudnnStatus_t finalize_tensor(const cudnn_descriptor &d) {
    const auto &extents = d.attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS),
               &strides = d.attributes.at(CUDNN_ATTR_TENSOR_STRIDES);
    const auto type = d.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    const auto alignment = d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "data type %d", (int)type);
    if (extents.count != strides.count)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "%lld extents and %lld strides", (long long)extents.count,
                           (long long)strides.count);
    for (int64_t i = 0; i < extents.count; i++)
        if (d.value<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, (size_t)i) <= 0 ||
            d.value<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, (size_t)i) <= 0)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM, "extent or stride %lld is not positive", (long long)i);
    if (alignment < (int64_t)value_bytes(type) || (alignment & (alignment - 1)))
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "alignment %lld", (long long)alignment);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_geometry(const cudnn_descriptor &d) {
    const auto dimensions = d.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    for (int name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                     CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES}) {
        const bool is_padding =
            name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS || name == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS;
        if (d.attributes.at(name).count != dimensions)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d is not of %lld dimensions", name,
                               (long long)dimensions);
        for (int64_t i = 0; i < dimensions; i++)
            if (d.value<int64_t>(name, (size_t)i) < (is_padding ? 0 : 1))
                return cudnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d is too small", name);
    }
    if (dimensions != 2)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "%lld dimensions", (long long)dimensions);
    if (d.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "sums that are not fp32");
    return CUDNN_STATUS_SUCCESS;
}

// Attributes of an operation: x, filter, y, geometry, alpha, beta.
struct operation_names {
    int tensors[3], geometry, alpha, beta;
};

operation_names names_of(cudnnBackendDescriptorType_t type) {
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

cudnnStatus_t take_tensor(cudnn_convolution &c, int which, const cudnn_descriptor &t) {
    const auto type = t.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (t.attributes.at(CUDNN_ATTR_TENSOR_DIMENSIONS).count != 4)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "tensor %d has not 4 dimensions", which);
    if (which > 0 && type != c.type)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "tensors of different types");
    c.type = type;
    c.names[which] = t.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    c.alignments[which] = t.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    for (size_t i = 0; i < 4; i++) {
        c.extents[which][i] = t.value<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        c.strides[which][i] = t.value<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    const int64_t *e = c.extents[which], *s = c.strides[which];
    if (s[1] != 1 || s[3] != e[1] || s[2] != e[3] * e[1] || s[0] != e[2] * e[3] * e[1])
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor %d is not dense with channels last", which);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_shapes(cudnn_convolution &c, const cudnn_descriptor &g) {
    const int64_t *x = c.extents[0], *w = c.extents[1], *y = c.extents[2];
    if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || y[1] % (x[1] / w[1]) != 0)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "batch or channels of x, filter and y");
    c.groups = x[1] / w[1];
    for (size_t i = 0; i < 2; i++) {
        c.pads[i] = g.value<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        c.stride[i] = g.value<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.dilation[i] = g.value<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
        const int64_t after = g.value<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
        const int64_t span = x[2 + i] + c.pads[i] + after - (w[2 + i] - 1) * c.dilation[i] - 1;
        if (span < 0 || y[2 + i] != span / c.stride[i] + 1)
            return cudnn_error(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "y has an extent of %lld", (long long)y[2 + i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(cudnn_descriptor &d) {
    const operation_names names = names_of(d.type);
    cudnn_convolution c = {};
    c.direction = d.type;
    for (int i = 0; i < 3; i++) {
        const cudnnStatus_t status = take_tensor(c, i, *d.reference(names.tensors[i]));
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    const cudnn_descriptor &geometry = *d.reference(names.geometry);
    if (geometry.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "no cross-correlation");
    c.alpha = d.value<float>(names.alpha);
    c.beta = d.value<float>(names.beta);
    const cudnnStatus_t status = check_shapes(c, geometry);
    d.convolution = c;
    return status;
}

cudnnStatus_t finalize_graph(cudnn_descriptor &d) {
    const cudnn_convolution &c = d.reference(CUDNN_ATTR_OPERATIONGRAPH_OPS)->convolution;
    if (c.names[0] == c.names[1] || c.names[1] == c.names[2] || c.names[0] == c.names[2])
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors of one name");
    d.convolution = c;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_heuristics(cudnn_descriptor &d) {
    const cudnn_reference &graph = d.reference(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    std::vector<cudnn_reference> configs;
    const cudnnStatus_t status =
        cudnn_offers(graph->convolution, d.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE), d.offers);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    for (const cudnn_offer &offer : d.offers)
        configs.push_back(cudnn_config_of(graph, offer));
    cudnn_put(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, configs);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_engine(cudnn_descriptor &d) {
    const auto index = d.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    const cudnn_engine *e = cudnn_engine_at(index);
    if (!e)
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "there is no engine %lld", (long long)index);
    cudnn_put(d, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, (int64_t)e->notes.size(), e->notes.data(),
              e->notes.size() * sizeof e->notes[0]);
    cudnn_put(d, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, (int64_t)e->behaviour.size(), e->behaviour.data(),
              e->behaviour.size() * sizeof e->behaviour[0]);
    return CUDNN_STATUS_SUCCESS;
}

const cudnn_engine *engine_of(const cudnn_descriptor &config) {
    return cudnn_engine_at(
        config.reference(CUDNN_ATTR_ENGINECFG_ENGINE)->value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
}

cudnnStatus_t finalize_config(const cudnn_descriptor &d) {
    if (!d.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES))
        return CUDNN_STATUS_SUCCESS;
    for (const cudnn_reference &knob : d.attributes.at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES).references) {
        const auto type = knob->value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
        const auto value = knob->value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
        bool fits = false;
        for (const cudnn_knob_range &range : engine_of(d)->knobs)
            fits = fits || (range.type == type && value >= range.least && value <= range.most);
        if (!fits)
            return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no knob %d of %lld", (int)type,
                               (long long)value);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(cudnn_descriptor &d) {
    const cudnn_engine *e = engine_of(*d.reference(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
    if (e->refuses || cudnn_refuses(e->index))
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld does not do this", (long long)e->index);
    cudnn_put(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1, &e->workspace, sizeof e->workspace);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const cudnn_descriptor &d) {
    if (d.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count !=
        d.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "as many names as addresses are needed");
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t cudnn_finalize(const cudnn_reference &d) {
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(*d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return finalize_geometry(*d);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return finalize_operation(*d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finalize_graph(*d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return finalize_heuristics(*d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return finalize_engine(*d);
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return finalize_config(*d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(*d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return finalize_pack(*d);
    default:
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "kind %d of descriptors", (int)d->type);
    }
}
