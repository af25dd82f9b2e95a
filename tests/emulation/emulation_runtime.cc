// SPDX-License-Identifier: Apache-2.0
// The runtime API. Work is done when it is issued; a capturing stream keeps it for cudaGraphLaunch instead.
#include "emulation_runtime.h"

#include <stdio.h>
#include <string.h>

#include "emulation_order.h"

emulation_state &emulation_the() {
    static emulation_state *state = new emulation_state; // never destroyed: threads and statics may outlive main
    return *state;
}

static thread_local cudaError_t last_error;
static thread_local int current_device;

// ---- errors ----

cudaError_t emulation_report(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

static cudaError_t injected(emulation_state &s) {
    if (s.failure == cudaSuccess)
        return cudaSuccess;
    if (s.calls_before_failure > 0) {
        s.calls_before_failure--;
        return cudaSuccess;
    }
    cudaError_t error = s.failure;
    if (!s.failure_stays)
        s.failure = cudaSuccess;
    return error;
}

emulation_call::emulation_call(bool needs_device) : state(emulation_the()), lock(state.mutex) {
    if (emulation_in_kernel())
        emulation_fail("a call of the runtime inside a kernel");
    state.calls++;
    early = injected(state);
    if (early == cudaSuccess && needs_device)
        early = state.device_error != cudaSuccess ? state.device_error
                : state.devices == 0              ? cudaErrorNoDevice
                                                  : cudaSuccess;
}

extern "C" {

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

const char *cudaGetErrorString(cudaError_t error) {
#define EMULATION_CASE(name, number, text)                                                                             \
    case name:                                                                                                         \
        return text;
    switch (error) {
        EMULATION_ERRORS(EMULATION_CASE)
    default:
        return "unrecognized error code";
    }
#undef EMULATION_CASE
}

const char *cudaGetErrorName(cudaError_t error) {
#define EMULATION_CASE(name, number, text)                                                                             \
    case name:                                                                                                         \
        return #name;
    switch (error) {
        EMULATION_ERRORS(EMULATION_CASE)
    default:
        return "unrecognized error code";
    }
#undef EMULATION_CASE
}

// ---- what tests set ----

void emulation_fail_next(cudaError_t error, int after_calls) {
    emulation_state &s = emulation_the();
    std::lock_guard<std::recursive_mutex> lock(s.mutex);
    s.failure = error;
    s.calls_before_failure = after_calls;
    s.failure_stays = false;
}

void emulation_fail_from(cudaError_t error, int after_calls) {
    emulation_fail_next(error, after_calls);
    emulation_the().failure_stays = true;
}

uint64_t emulation_calls(void) {
    return emulation_the().calls;
}

uint64_t emulation_launches(void) {
    return emulation_the().launches;
}

uint64_t emulation_live_allocations(void) {
    return emulation_memory_live();
}

void emulation_set_devices(int n, cudaError_t error) {
    emulation_the().devices = n;
    emulation_the().device_error = error;
}

void emulation_set_compute_capability(int major, int minor) {
    emulation_the().major = major;
    emulation_the().minor = minor;
}

void emulation_set_multiprocessors(int n) {
    emulation_the().multiprocessors = n;
}

void emulation_set_memory(size_t bytes) {
    emulation_the().memory = bytes;
}

void emulation_set_l2(size_t bytes) {
    emulation_the().l2 = bytes;
}

void emulation_reset(void) {
    static_cast<emulation_settings &>(emulation_the()) = emulation_settings();
    emulation_set_block_order(0);
    emulation_set_thread_order(0);
    last_error = cudaSuccess;
    current_device = 0;
}

// ---- devices ----

cudaError_t cudaDriverGetVersion(int *version) {
    emulation_call call(false);
    if (call.early != cudaSuccess || !version)
        return call.failed(cudaErrorInvalidValue);
    // CUDA: 0 without a driver; an old one is older than the runtime
    cudaError_t error = call.state.device_error;
    *version = error == cudaErrorNoDevice ? 0 : error == cudaErrorInsufficientDriver ? 11040 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    emulation_call call(false);
    if (call.early != cudaSuccess || !version)
        return call.failed(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    emulation_call call;
    if (count)
        *count = 0;
    if (call.early != cudaSuccess || !count)
        return call.failed(cudaErrorInvalidValue);
    *count = call.state.devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    emulation_call call;
    if (call.early != cudaSuccess || !device)
        return call.failed(cudaErrorInvalidValue);
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    emulation_call call;
    if (call.early != cudaSuccess || !call.has_device(device))
        return call.failed(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
    emulation_call call;
    return call.early != cudaSuccess || !call.has_device(device) ? call.failed(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int) {
    emulation_call call;
    return call.failed(cudaSuccess);
}

cudaError_t cudaDeviceReset(void) {
    emulation_call call;
    return call.failed(cudaErrorNotSupported);
}

static int attribute_of(const emulation_state &s, enum cudaDeviceAttr attribute) {
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        return s.major;
    case cudaDevAttrComputeCapabilityMinor:
        return s.minor;
    case cudaDevAttrMultiProcessorCount:
        return s.multiprocessors;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
        return 1024;
    case cudaDevAttrMaxGridDimX:
        return 0x7fffffff;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return 228 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return 227 << 10;
    case cudaDevAttrMaxRegistersPerBlock:
        return 65536;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrL2CacheSize:
        return (int)s.l2;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        return 1000000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return 5120;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
        return 1;
    default:
        return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    emulation_call call;
    if (call.early != cudaSuccess || !value)
        return call.failed(cudaErrorInvalidValue);
    if (!call.has_device(device))
        return call.failed(cudaErrorInvalidDevice);
    *value = attribute_of(call.state, attribute);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    emulation_call call;
    if (call.early != cudaSuccess || !p)
        return call.failed(cudaErrorInvalidValue);
    if (!call.has_device(device))
        return call.failed(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated device %d", device);
    p->totalGlobalMem = call.state.memory;
    p->sharedMemPerBlock = (size_t)attribute_of(call.state, cudaDevAttrMaxSharedMemoryPerBlock);
    p->regsPerBlock = attribute_of(call.state, cudaDevAttrMaxRegistersPerBlock);
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->major = call.state.major;
    p->minor = call.state.minor;
    p->multiProcessorCount = call.state.multiprocessors;
    p->l2CacheSize = attribute_of(call.state, cudaDevAttrL2CacheSize);
    p->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    emulation_call call;
    if (call.early != cudaSuccess)
        return call.failed(cudaErrorInvalidValue);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute, int) {
    emulation_call call;
    return call.early != cudaSuccess || !function ? call.failed(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t) {
    emulation_call call;
    if (call.early != cudaSuccess || !blocks || !function || threads < 1)
        return call.failed(cudaErrorInvalidValue);
    *blocks = threads > 1024 ? 0 : 2048 / threads < 32 ? 2048 / threads : 32;
    return cudaSuccess;
}

} // extern "C"

int emulation_current_device() {
    return current_device;
}

// ---- launching ----

static bool launchable(dim3 grid, dim3 block) {
    bool some = grid.x && grid.y && grid.z && block.x && block.y && block.z;
    return some && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 && block.y <= 1024 &&
           block.z <= 64 && (uint64_t)block.x * block.y * block.z <= 1024;
}

cudaError_t emulation_launch_function(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> body) {
    emulation_call call;
    if (call.early != cudaSuccess || !launchable(grid, block))
        return call.failed(cudaErrorInvalidConfiguration);
    emulation_state *state = &call.state;
    return call.issue(stream, [=] {
        state->launches++;
        emulation_run_grid(grid, block, body);
    });
}
