// SPDX-License-Identifier: Apache-2.0
// A thin layer over cuDNN's graph API for cudnn_probe.c: tensors in NHWC, convolution, pointwise, statistics and batch
// norm as operations of a graph, and the execution plans that cuDNN's heuristics offer for it.
#ifndef CUDNN_GRAPHS_H
#define CUDNN_GRAPHS_H
#include <cudnn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    batch = 128,
    most_tensors = 24,
    most_operations = 12,
    most_owned = 160,
    most_plans = 8,
    most_configs = 64,
    most_compiled = 2
};

// A convolution with filters of kernel x kernel from c channels to k. `times`: how often the network has it. `norm`:
// the first one with this output, so that batch norm is asked here.
struct shape {
    int kernel, stride, c, k, size, times;
    bool norm;
};

static inline int output_size(const struct shape *shape) {
    return shape->size / shape->stride; // all are padded by half the kernel
}

// ---- descriptors: a graph owns them; after its first error every call does nothing ----

typedef enum { input, output, inner, scalar } role; // inner: within the graph only

typedef struct {
    const struct shape *shape;
    cudnnDataType_t type, inner_type;
    cudnnBackendDescriptor_t owned[most_owned], operations[most_operations], tensors[most_tensors];
    size_t bytes[most_tensors];
    role roles[most_tensors];
    bool used[most_tensors]; // by an operation
    int owned_count, operation_count, tensor_count;
    char error[160];
} graph;

static inline void describe(char error[160], const char *what, cudnnStatus_t status) {
    char last[2048] = "";
    cudnnGetLastErrorString(last, sizeof last);
    char *reason = strstr(last, "Reason: "); // a stack of them: the first is where it began
    reason = reason ? reason + strlen("Reason: ") : last;
    reason[strcspn(reason, "\n")] = 0;
    snprintf(error, 160, "%.50s %d %.90s", what, (int)status, reason);
}

static inline void check(graph *g, const char *what, cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS && !g->error[0])
        describe(g->error, what, status);
}

static inline void set(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (g->error[0])
        return;
    char what[32];
    snprintf(what, sizeof what, "attribute %d:", (int)name);
    check(g, what, cudnnBackendSetAttribute(d, name, type, count, values));
}

static inline void refer(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                         cudnnBackendDescriptor_t other) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static inline void use(graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int tensor) {
    refer(g, d, name, g->tensors[tensor]);
    g->used[tensor] = true;
}

static inline cudnnBackendDescriptor_t make(graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = NULL;
    if (!g->error[0] && g->owned_count == most_owned)
        snprintf(g->error, sizeof g->error, "too many descriptors");
    if (g->error[0])
        return NULL;
    check(g, "create:", cudnnBackendCreateDescriptor(type, &d));
    if (d)
        g->owned[g->owned_count++] = d;
    return d;
}

static inline void finish(graph *g, const char *what, cudnnBackendDescriptor_t d) {
    if (!g->error[0])
        check(g, what, cudnnBackendFinalize(d));
}

static inline void finish_operation(graph *g, const char *what, cudnnBackendDescriptor_t d) {
    finish(g, what, d);
    if (!g->error[0])
        g->operations[g->operation_count++] = d;
}

static inline void clear(graph *g) {
    while (g->owned_count > 0)
        cudnnBackendDestroyDescriptor(g->owned[--g->owned_count]);
    *g = (graph){.shape = g->shape, .type = g->type, .inner_type = g->inner_type};
}

static inline size_t bits_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT ? 32 : type == CUDNN_DATA_BOOLEAN ? 1 : 16;
}

static inline int tensor(graph *g, role what, cudnnDataType_t type, int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t extents[4] = {n, c, h, w}, strides[4] = {h * w * c, 1, w * c, c}, unique = g->tensor_count + 1;
    const int64_t aligned = 16;
    const bool yes = true;
    const int index = g->tensor_count++;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &aligned);
    if (what == inner)
        set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (what == scalar)
        set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, "tensor:", d);
    g->tensors[index] = d;
    g->bytes[index] = (size_t)(n * c * h * w) * bits_of(type) / 8;
    g->roles[index] = what;
    return index;
}

// The tensor before the convolution, the one after it, the filter, one value for each channel, and one value.
static inline int before(graph *g, role what) {
    const struct shape *s = g->shape;
    return tensor(g, what, what == inner ? g->inner_type : g->type, batch, s->c, s->size, s->size);
}

static inline int after(graph *g, role what) {
    const int size = output_size(g->shape);
    return tensor(g, what, what == inner ? g->inner_type : g->type, batch, g->shape->k, size, size);
}

static inline int mask(graph *g, role what) {
    const int size = output_size(g->shape);
    return tensor(g, what, CUDNN_DATA_BOOLEAN, batch, g->shape->k, size, size);
}

static inline int filter(graph *g, role what) {
    return tensor(g, what, g->type, g->shape->k, g->shape->c, g->shape->kernel, g->shape->kernel);
}

static inline int channels(graph *g, role what, cudnnDataType_t type, int count) {
    return tensor(g, what, type, 1, count, 1, 1);
}

static inline int value(graph *g, cudnnDataType_t type) {
    return tensor(g, scalar, type, 1, 1, 1, 1);
}

// ---- operations ----

static const cudnnDataType_t single = CUDNN_DATA_FLOAT;

static inline cudnnBackendDescriptor_t geometry(graph *g) {
    const int64_t dimensions = 2, pad = g->shape->kernel / 2, stride = g->shape->stride;
    const int64_t pads[2] = {pad, pad}, strides[2] = {stride, stride}, ones[2] = {1, 1};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &single);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    finish(g, "convolution:", d);
    return d;
}

// Forward, gradient of the input and gradient of the filter differ in the names of their attributes alone.
typedef enum { forward, by_input, by_filter } direction;

static inline void convolve(graph *g, direction way, int x, int w, int y) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
    } ways[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t where = geometry(g), d = make(g, ways[way].type);
    refer(g, d, ways[way].geometry, where);
    use(g, d, ways[way].x, x);
    use(g, d, ways[way].w, w);
    use(g, d, ways[way].y, y);
    set(g, d, ways[way].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, d, ways[way].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish_operation(g, "convolution operation:", d);
}

// y = mode(x, b), b < 0 where there is none; of RELU_BWD, x is dy, b is what went into the ReLU, and y is dx.
static inline void pointwise(graph *g, cudnnPointwiseMode_t mode, int x, int b, int y) {
    const bool backward = mode == CUDNN_POINTWISE_RELU_BWD;
    cudnnBackendDescriptor_t what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &single);
    finish(g, "pointwise:", what);
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    refer(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    use(g, d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b >= 0)
        use(g, d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_XDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    use(g, d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_operation(g, "pointwise operation:", d);
}

static inline void statistics(graph *g, int x) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const int sum = channels(g, output, single, g->shape->k), squares = channels(g, output, single, g->shape->k);
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &single);
    use(g, d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    use(g, d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    use(g, d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    finish_operation(g, "statistics:", d);
}

static inline void norm_forward(graph *g, int x, int y) {
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    static const struct {
        cudnnBackendAttributeName_t name;
        role what;
    } per_channel[] = {
        {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, input},
        {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, input},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, input},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, input},
        {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, output},
        {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, output},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, output},
        {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, output},
    };
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
    for (size_t i = 0; i < sizeof per_channel / sizeof per_channel[0]; i++)
        use(g, d, per_channel[i].name, channels(g, per_channel[i].what, single, g->shape->k));
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, value(g, single));
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, value(g, single));
    finish_operation(g, "batch norm:", d);
}

// What the backward pass has of the forward one.
typedef struct {
    int mean, inverse, scale, bias;
} saved;

static inline saved saved_of(graph *g, int count) {
    return (saved){channels(g, input, single, count), channels(g, input, single, count),
                   channels(g, input, single, count), channels(g, input, single, count)};
}

// Batch norm with known statistics.
static inline void norm_apply(graph *g, saved of, int x, int y) {
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_INFERENCE;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, of.mean);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, of.inverse);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, of.scale);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, of.bias);
    finish_operation(g, "batch norm applied:", d);
}

static inline void norm_backward(graph *g, saved of, int x, int dy, int dx) {
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, of.mean);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, of.inverse);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, of.scale);
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, channels(g, output, single, g->shape->k));
    use(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, channels(g, output, single, g->shape->k));
    finish_operation(g, "batch norm backward:", d);
}

// Sums over dy and x of the batch norm before the convolution; dx = A dy + B x + C is left for later.
static inline void norm_backward_weights(graph *g, saved of, int x, int dy) {
    static const cudnnBackendAttributeName_t results[] = {
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &single);
    use(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x);
    use(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy);
    use(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, of.mean);
    use(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, of.inverse);
    use(g, d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, of.scale);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        use(g, d, results[i], channels(g, output, single, g->shape->c));
    finish_operation(g, "batch norm backward weights:", d);
}

// ---- plans ----

// For whom plans are made: a handle of a device, or the properties of a device that is not there.
typedef struct {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
} target;

typedef struct {
    cudnnBackendDescriptor_t plan;
    int64_t workspace, engine;
    unsigned notes, behaviour; // one bit for each note of the engine
} plan;

typedef struct {
    plan plans[most_plans];
    int count, tried, configs[2]; // configurations of heuristics A and of the fall-back
    char error[160];              // of the first plan that did not finalise
} plan_list;

static inline cudnnBackendDescriptor_t close_graph(graph *g, target to) {
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count, g->operations);
    if (to.handle)
        set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &to.handle);
    finish(g, "graph:", d);
    return d;
}

// The configurations that a mode of the heuristics offers and that engines support, best first. The caller's.
static inline int heuristics(graph *g, target to, cudnnBackendDescriptor_t operations, cudnnBackendHeurMode_t mode,
                             cudnnBackendDescriptor_t configs[most_configs]) {
    int64_t count = 0, got = 0;
    cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    refer(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (to.properties)
        refer(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, to.properties);
    finish(g, "heuristics:", d);
    const cudnnBackendAttributeName_t results = CUDNN_ATTR_ENGINEHEUR_RESULTS;
    if (!g->error[0])
        check(g, "heuristics:", cudnnBackendGetAttribute(d, results, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
    count = g->error[0] ? 0 : count < most_configs ? count : most_configs;
    for (int64_t i = 0; i < count; i++)
        check(g, "create:", cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    if (count > 0 && !g->error[0])
        check(g,
              "heuristics:", cudnnBackendGetAttribute(d, results, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, configs));
    if (got == 0 && !g->error[0])
        describe(g->error, "no engine:", CUDNN_STATUS_NOT_SUPPORTED);
    for (int64_t i = got; i < count; i++)
        cudnnBackendDestroyDescriptor(configs[i]); // more were announced than stood the check of support
    return (int)got;
}

static inline unsigned notes_of(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type) {
    int notes[32]; // enumerations of C
    int64_t count = 0;
    unsigned bits = 0;
    if (cudnnBackendGetAttribute(engine, name, type, 32, &count, notes) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < count && i < 32; i++)
            bits |= 1u << notes[i];
    return bits;
}

static inline void describe_engine(plan *p, cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    p->engine = -1;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                 &engine) == CUDNN_STATUS_SUCCESS) {
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &p->engine);
        p->notes = notes_of(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
        p->behaviour = notes_of(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
    }
    cudnnBackendDestroyDescriptor(engine);
}

// Finalises a plan, which is where engines refuse and where kernels are compiled.
static inline bool make_plan(target to, cudnnBackendDescriptor_t config, plan *p, char error[160]) {
    int64_t count = 0;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = to.handle ? cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                                      &to.handle)
                           : cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to.properties);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(p->plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                          &count, &p->workspace);
    if (status != CUDNN_STATUS_SUCCESS) {
        if (!error[0])
            describe(error, "plan:", status);
        cudnnBackendDestroyDescriptor(p->plan);
        return false;
    }
    return true;
}

static inline void clear_plans(plan_list *list) {
    while (list->count > 0)
        cudnnBackendDestroyDescriptor(list->plans[--list->count].plan);
}

static inline bool is_compiled(const plan *p) {
    return p->behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1;
}

// Up to `wanted` plans for a graph: of heuristics A, and of the fall-back only where A has none. Of engines that
// compile their kernels, which takes half a second or more, two.
static inline void plan_graph(graph *g, target to, int wanted, int most_tries, plan_list *list) {
    static const cudnnBackendHeurMode_t modes[2] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t operations = close_graph(g, to), configs[most_configs] = {0};
    *list = (plan_list){0};
    for (int mode = 0; mode < 2 && (mode == 0 || operations); mode++) {
        char first_error[160];
        memcpy(first_error, g->error, sizeof first_error);
        const int count = list->configs[mode] = heuristics(g, to, operations, modes[mode], configs);
        const bool ask = !g->error[0] && (mode == 0 || list->count == 0);
        int compiled = 0, tries = 0;
        for (int i = 0; i < count; i++) {
            plan p = {0};
            describe_engine(&p, configs[i]);
            if (ask && tries < most_tries && list->count < wanted && (!is_compiled(&p) || compiled < most_compiled)) {
                tries++;
                compiled += is_compiled(&p);
                if (make_plan(to, configs[i], &p, list->error))
                    list->plans[list->count++] = p;
            }
            cudnnBackendDestroyDescriptor(configs[i]);
        }
        list->tried += tries;
        if (!list->error[0])
            memcpy(list->error, g->error, sizeof list->error);
        memcpy(g->error, first_error, sizeof first_error); // a mode that has nothing does not keep the next from trying
    }
}
#endif
