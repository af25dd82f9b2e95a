// SPDX-License-Identifier: Apache-2.0
// Device memory is host memory of which the emulator knows the borders. It is filled with a pattern, as nothing says
// what fresh device memory holds, and followed by one that must still be there when it is freed.
#include <stdlib.h>
#include <string.h>

#include <map>

#include "emulation_context.h"
#include "emulation_runtime.h"

namespace {

enum { ALIGNMENT = 256, FRESH = 0xa5, FENCE = 0xfd };

#ifdef EMULATION_ASAN
enum { FENCE_BYTES = 0 }; // AddressSanitizer sees the first byte behind
#else
enum { FENCE_BYTES = 64 };
#endif

struct allocation {
    size_t bytes;
    enum cudaMemoryType type;
    int device;
    bool owned;
};

std::map<uintptr_t, allocation> &allocations() {
    static auto *all = new std::map<uintptr_t, allocation>;
    return *all;
}

// The allocation that holds the byte at `pointer`.
std::map<uintptr_t, allocation>::iterator find(const void *pointer) {
    auto &all = allocations();
    auto it = all.upper_bound((uintptr_t)pointer);
    if (it == all.begin())
        return all.end();
    --it;
    return (uintptr_t)pointer - it->first < it->second.bytes ? it : all.end();
}

bool on_device(enum cudaMemoryType type) {
    return type == cudaMemoryTypeDevice || type == cudaMemoryTypeManaged;
}

size_t used() {
    size_t sum = 0;
    for (auto &a : allocations())
        sum += on_device(a.second.type) ? a.second.bytes : 0;
    return sum;
}

cudaError_t allocate(emulation_call &call, void **pointer, size_t bytes, enum cudaMemoryType type) {
    cudaError_t error = pointer ? call.refuse_while_capturing() : cudaErrorInvalidValue;
    if (call.early != cudaSuccess || error != cudaSuccess)
        return call.failed(error);
    *pointer = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    void *p;
    if (bytes > call.state.memory || (on_device(type) && bytes > call.state.memory - used()) ||
        posix_memalign(&p, ALIGNMENT, bytes + FENCE_BYTES) != 0)
        return call.failed(cudaErrorMemoryAllocation);
    memset(p, FRESH, bytes);
    memset((char *)p + bytes, FENCE, FENCE_BYTES);
    allocations()[(uintptr_t)p] = {bytes, type, emulation_current_device(), true};
    *pointer = p;
    return cudaSuccess;
}

void check_fence(const char *begin, size_t bytes) {
    for (size_t i = 0; i < FENCE_BYTES; i++)
        if ((unsigned char)begin[bytes + i] != FENCE)
            emulation_fail("byte %zu behind an allocation of %zu bytes was written", i, bytes);
}

cudaError_t release(emulation_call &call, void *pointer, bool device) {
    cudaError_t error = call.refuse_while_capturing();
    if (call.early != cudaSuccess || error != cudaSuccess)
        return call.failed(error);
    if (!pointer)
        return cudaSuccess;
    auto it = allocations().find((uintptr_t)pointer);
    if (it == allocations().end() || !it->second.owned || on_device(it->second.type) != device)
        return call.failed(cudaErrorInvalidValue);
    check_fence((const char *)pointer, it->second.bytes);
    allocations().erase(it);
    free(pointer);
    return cudaSuccess;
}

// Whether [pointer, +bytes) may be that side of a copy: wholly inside device memory, or, for the host, not in it.
bool side_fits(const void *pointer, size_t bytes, bool device) {
    auto it = find(pointer);
    if (it == allocations().end())
        return !device;
    bool inside = bytes <= it->second.bytes - ((uintptr_t)pointer - it->first);
    return inside && (device ? true : it->second.type != cudaMemoryTypeDevice);
}

bool copy_fits(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (bytes == 0)
        return true;
    if (!to || !from)
        return false;
    if (kind == cudaMemcpyDefault)
        return (side_fits(to, bytes, true) || side_fits(to, bytes, false)) &&
               (side_fits(from, bytes, true) || side_fits(from, bytes, false));
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return side_fits(to, bytes, to_device) && side_fits(from, bytes, from_device);
}

cudaError_t copy(emulation_call &call, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                 cudaStream_t stream) {
    if (call.early != cudaSuccess)
        return call.failed(cudaSuccess);
    if ((unsigned)kind > cudaMemcpyDefault)
        return call.failed(cudaErrorInvalidMemcpyDirection);
    if (!copy_fits(to, from, bytes, kind))
        return call.failed(cudaErrorInvalidValue);
    return call.issue(stream, [=] {
        if (bytes > 0)
            memmove(to, from, bytes);
    });
}

cudaError_t set(emulation_call &call, void *to, int value, size_t bytes, cudaStream_t stream) {
    if (call.early != cudaSuccess || (bytes > 0 && !side_fits(to, bytes, true)))
        return call.failed(cudaErrorInvalidValue);
    return call.issue(stream, [=] {
        if (bytes > 0)
            memset(to, value, bytes);
    });
}

} // namespace

uint64_t emulation_memory_live() {
    std::lock_guard<std::recursive_mutex> lock(emulation_the().mutex);
    uint64_t n = 0;
    for (auto &a : allocations())
        n += on_device(a.second.type);
    return n;
}

extern "C" {

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    emulation_call call;
    return allocate(call, pointer, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void *pointer) {
    emulation_call call;
    return release(call, pointer, true);
}

// Not kept in graphs: where a stream captures they are errors, unlike in CUDA.
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t) {
    emulation_call call;
    return allocate(call, pointer, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t) {
    emulation_call call;
    return release(call, pointer, true);
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned int) {
    emulation_call call;
    return allocate(call, pointer, bytes, cudaMemoryTypeManaged);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    emulation_call call;
    return allocate(call, pointer, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int) {
    emulation_call call;
    return allocate(call, pointer, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void *pointer) {
    emulation_call call;
    return release(call, pointer, false);
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int) {
    emulation_call call;
    if (call.early != cudaSuccess || !pointer || bytes == 0)
        return call.failed(cudaErrorInvalidValue);
    if (find(pointer) != allocations().end())
        return call.failed(cudaErrorHostMemoryAlreadyRegistered);
    allocations()[(uintptr_t)pointer] = {bytes, cudaMemoryTypeHost, emulation_current_device(), false};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer) {
    emulation_call call;
    auto it = allocations().find((uintptr_t)pointer);
    if (call.early != cudaSuccess || it == allocations().end() || it->second.owned)
        return call.failed(cudaErrorHostMemoryNotRegistered);
    allocations().erase(it);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int) {
    emulation_call call;
    auto it = find(host);
    if (call.early != cudaSuccess || !device || it == allocations().end() || it->second.type != cudaMemoryTypeHost)
        return call.failed(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    emulation_call call;
    if (call.early != cudaSuccess || !attributes)
        return call.failed(cudaErrorInvalidValue);
    auto it = find(pointer);
    if (it == allocations().end()) {
        *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, (void *)pointer};
        return cudaSuccess;
    }
    const allocation &a = it->second;
    *attributes = {a.type, a.device, (void *)pointer, a.type == cudaMemoryTypeDevice ? nullptr : (void *)pointer};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    emulation_call call;
    if (call.early != cudaSuccess || !available || !total)
        return call.failed(cudaErrorInvalidValue);
    size_t taken = used();
    *total = call.state.memory;
    *available = taken < *total ? *total - taken : 0;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    emulation_call call;
    return copy(call, to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    emulation_call call;
    return copy(call, to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    emulation_call call;
    if (call.early != cudaSuccess || width > to_pitch || width > from_pitch)
        return call.failed(cudaErrorInvalidPitchValue);
    if (width == 0 || height == 0)
        return cudaSuccess;
    if (!copy_fits(to, from, (height - 1) * to_pitch + width, kind) ||
        !copy_fits(to, from, (height - 1) * from_pitch + width, kind))
        return call.failed(cudaErrorInvalidValue);
    return call.issue(stream, [=] {
        for (size_t i = 0; i < height; i++)
            memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    });
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    emulation_call call;
    return set(call, to, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    emulation_call call;
    return set(call, to, value, bytes, stream);
}

} // extern "C"
