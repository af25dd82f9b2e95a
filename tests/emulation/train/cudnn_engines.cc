// SPDX-License-Identifier: Apache-2.0
// The stand-in's engines, what the heuristics offer of them, and a run.
#include <cstring>

#include "cudnn_model.h"

namespace {

// 21 is the one that is neither exact nor slow nor strange. 23 needs too much memory, 24 refuses, 22 gives other last
// bits in every run. 25 is exact, and so is 0, which is in the fall-back alone.
const cudnn_engine engines[] = {
    {0, {}, {}, {}, 0, false},
    {21, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 3}}, 4096, false},
    {22, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, {}, 512, false},
    {23, {}, {}, {{CUDNN_KNOB_TYPE_STAGES, 1, 8}}, (int64_t)1 << 30, false},
    {24, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, {}, 0, true},
    {25, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, {{CUDNN_KNOB_TYPE_SWIZZLE, 0, 1}}, 1000, false},
};

struct {
    int64_t slow = -1, refuses = -1, breaks = -1, last = -1, last_knob = -1;
    double milliseconds = 0;
    uint64_t runs = 0;
} settings;

bool has_note(const cudnn_engine &e, cudnnBackendNumericalNote_t note) {
    for (cudnnBackendNumericalNote_t n : e.notes)
        if (n == note)
            return true;
    return false;
}

cudnn_reference finished(cudnnBackendDescriptorType_t type) {
    auto d = std::make_shared<cudnn_descriptor>(type);
    d->finalized = true;
    return d;
}

bool is_device_memory(const void *address) {
    cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, address) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}

cudnnStatus_t check_address(const void *address, int64_t bytes, int64_t alignment, const char *what) {
    if (!address)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s is NULL", what);
    if ((uintptr_t)address % (uintptr_t)alignment != 0)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "%s is not aligned", what);
    if (!is_device_memory(address) || !is_device_memory((const char *)address + bytes - 1))
        return cudnn_error(CUDNN_STATUS_EXECUTION_FAILED, "%s is no memory of the device, or too little", what);
    return CUDNN_STATUS_SUCCESS;
}

// Addresses by the names of the graph's tensors: each once, and no others.
cudnnStatus_t find_addresses(const cudnn_convolution &c, const cudnn_descriptor &pack, void *tensors[3]) {
    const int64_t count = pack.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count;
    if (count != 3)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "the graph has 3 tensors, the pack %lld", (long long)count);
    for (int i = 0; i < 3; i++) {
        tensors[i] = nullptr;
        for (size_t k = 0; k < 3; k++)
            if (pack.value<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, k) == c.names[i])
                tensors[i] = pack.value<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, k);
        const cudnnStatus_t status =
            check_address(tensors[i], c.values(i) * (c.type == CUDNN_DATA_FLOAT ? 4 : 2), c.alignments[i], "a tensor");
        if (status != CUDNN_STATUS_SUCCESS)
            return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

int64_t knob_of(const cudnn_descriptor &config) {
    return config.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)
               ? config.reference(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)->value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)
               : -1;
}

void compute(void *job) {
    cudnn_compute(*(cudnn_job *)job);
}

// A captured run is done whenever its graph is: what it needs stays, as long as the program does.
cudnnStatus_t issue(cudaStream_t stream, const cudnn_job &job) {
    static std::vector<std::unique_ptr<cudnn_job>> captured;
    auto own = std::make_unique<cudnn_job>(job);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &capture);
    const cudaError_t error = cudaLaunchHostFunc(stream, compute, own.get());
    if (capture != cudaStreamCaptureStatusNone)
        captured.push_back(std::move(own));
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                : cudnn_error(CUDNN_STATUS_EXECUTION_FAILED, "%s", cudaGetErrorString(error));
}

} // namespace

const cudnn_engine *cudnn_engine_at(int64_t index) {
    for (const cudnn_engine &e : engines)
        if (e.index == index)
            return &e;
    return nullptr;
}

bool cudnn_refuses(int64_t engine) {
    return settings.refuses == engine;
}

cudnnStatus_t cudnn_offers(const cudnn_convolution &, cudnnBackendHeurMode_t mode, std::vector<cudnn_offer> &offers) {
    if (mode == CUDNN_HEUR_MODE_FALLBACK)
        offers = {{0, {}}};
    else if (mode == CUDNN_HEUR_MODE_A)
        offers = {{24, {}}, {23, {4}}, {22, {}}, {21, {2}}, {21, {0}}, {25, {1}}};
    else
        return cudnn_error(CUDNN_STATUS_NOT_SUPPORTED, "heuristics of mode %d", (int)mode);
    return CUDNN_STATUS_SUCCESS;
}

cudnn_reference cudnn_config_of(const cudnn_reference &graph, const cudnn_offer &offer) {
    const cudnn_engine &e = *cudnn_engine_at(offer.engine);
    cudnn_reference engine = finished(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnn_reference config = finished(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnn_put(*engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    cudnn_put(*engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &e.index, sizeof e.index);
    cudnn_finalize(engine);
    cudnn_put(*config, CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    std::vector<cudnn_reference> knobs;
    for (size_t i = 0; i < offer.knobs.size(); i++) {
        knobs.push_back(finished(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
        cudnn_put(*knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 1, &e.knobs[i].type, sizeof e.knobs[i].type);
        cudnn_put(*knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &offer.knobs[i], sizeof offer.knobs[i]);
    }
    if (!knobs.empty())
        cudnn_put(*config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
    return config;
}

cudnnStatus_t cudnn_run(cudnnHandle_t handle, const cudnn_descriptor &plan, const cudnn_descriptor &pack) {
    const cudnn_descriptor &config = *plan.reference(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                           &engine = *config.reference(CUDNN_ATTR_ENGINECFG_ENGINE);
    const cudnn_engine &e = *cudnn_engine_at(engine.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    cudnn_job job = {};
    if (plan.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle)
        return cudnn_error(CUDNN_STATUS_BAD_PARAM, "the plan is for another handle");
    job.convolution = engine.reference(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->convolution;
    job.workspace = pack.value<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    job.workspace_bytes = e.workspace;
    cudnnStatus_t status = find_addresses(job.convolution, pack, job.tensors);
    if (status == CUDNN_STATUS_SUCCESS && e.workspace > 0)
        status = check_address(job.workspace, e.workspace, 16, "the workspace");
    if (status == CUDNN_STATUS_SUCCESS && settings.breaks == e.index)
        status = cudnn_error(CUDNN_STATUS_EXECUTION_FAILED, "engine %lld is broken", (long long)e.index);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    job.engine = e.index;
    job.rounds = has_note(e, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    job.disturbance = has_note(e, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ? (uint32_t)(settings.runs % 3) : 0;
    job.milliseconds = settings.slow == e.index || settings.slow == -1 ? settings.milliseconds : 0;
    settings.runs++;
    settings.last = e.index;
    settings.last_knob = knob_of(config);
    return issue(cudnn_stream(handle), job);
}

extern "C" {
void comet_stand_in_cudnn_slow(int64_t engine, double milliseconds) {
    settings.slow = engine;
    settings.milliseconds = milliseconds;
}

void comet_stand_in_cudnn_refuse(int64_t engine) {
    settings.refuses = engine;
}

void comet_stand_in_cudnn_break(int64_t engine) {
    settings.breaks = engine;
}

uint64_t comet_stand_in_cudnn_runs(void) {
    return settings.runs;
}

int64_t comet_stand_in_cudnn_last(void) {
    return settings.last;
}

int64_t comet_stand_in_cudnn_last_knob(void) {
    return settings.last_knob;
}
}
