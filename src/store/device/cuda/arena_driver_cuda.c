/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena's driver over CUDA. Mapping memory is part of the driver API, whose functions are looked up through the
 * runtime: the library is not linked with libcuda and loads without one. Where they cannot be had, ranges are plain
 * allocations.
 */
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "codec/cuda/runtime.h"
#include "store/device/arena_driver.h"

/*
 * Calls that are not part of a capture run in relaxed mode: else CUDA refuses them, and ends the capture, while this
 * thread, or any other in global mode, captures a queue. Those that make or free something run on its device.
 */
typedef struct scope {
    enum cudaStreamCaptureMode mode;
    int device; /* to go back to; -1: it was not changed */
} scope;

static comet_status enter_relaxed(scope *s) {
    s->mode = cudaStreamCaptureModeRelaxed;
    s->device = -1;
    return comet_cuda_status(cudaThreadExchangeStreamCaptureMode(&s->mode));
}

/* Returns `status`. What restoring returns is not looked at: it fails only as the next call will too. */
static comet_status leave(scope *s, comet_status status) {
    if (s->device >= 0)
        (void)comet_cuda_status(cudaSetDevice(s->device));
    (void)comet_cuda_status(cudaThreadExchangeStreamCaptureMode(&s->mode));
    return status;
}

static comet_status enter_device(scope *s, int32_t device) {
    int current = 0;
    COMET_TRY(enter_relaxed(s));
    comet_status status = comet_cuda_status(cudaGetDevice(&current));
    if (status == COMET_OK)
        status = comet_cuda_status(cudaSetDevice(device)); /* makes its context, if there is none yet */
    if (status != COMET_OK)
        return leave(s, status);
    s->device = current;
    return COMET_OK;
}

/* ---- memory ---- */

static comet_status take(const arena_driver *self, int32_t device, arena_memory kind, size_t bytes, void **memory) {
    (void)self;
    scope s;
    COMET_TRY(enter_device(&s, device));
    cudaError_t error =
        kind == ARENA_MEMORY_DEVICE ? cudaMalloc(memory, bytes) : cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
    return leave(&s, comet_cuda_status(error));
}

static comet_status give(const arena_driver *self, int32_t device, arena_memory kind, void *memory) {
    (void)self;
    scope s;
    COMET_TRY(enter_device(&s, device));
    cudaError_t error = kind == ARENA_MEMORY_DEVICE ? cudaFree(memory) : cudaFreeHost(memory);
    return leave(&s, comet_cuda_status(error));
}

static comet_status zero(const arena_driver *self, void *memory, size_t bytes, void *queue) {
    (void)self;
    return comet_cuda_status(cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)queue));
}

static comet_status copy(const arena_driver *self, void *page_locked, const void *memory, size_t bytes, void *queue) {
    (void)self;
    return comet_cuda_status(cudaMemcpyAsync(page_locked, memory, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)queue));
}

/* ---- ranges ---- */

enum { GRANULE = 256 }; /* of a range that is a plain allocation: the alignment of streams */

static comet_status reserve_plain(const arena_driver *self, int32_t device, size_t bytes, arena_range *range) {
    void *memory = NULL;
    bytes -= bytes % GRANULE;
    comet_status status = take(self, device, ARENA_MEMORY_DEVICE, bytes, &memory);
    if (status == COMET_OK)
        *range = (arena_range){.base = memory, .bytes = bytes, .device = device};
    return status;
}

#ifdef COMET_CUDA_EMULATION /* has no driver API */

static comet_status reserve(const arena_driver *self, int32_t device, size_t bytes, arena_range *range) {
    return reserve_plain(self, device, bytes, range);
}

static comet_status unreserve(const arena_driver *self, const arena_range *range) {
    return give(self, range->device, ARENA_MEMORY_DEVICE, range->base);
}

static comet_status map(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    (void)self, (void)range, (void)offset, (void)bytes;
    return COMET_ERROR_UNSUPPORTED;
}

static comet_status unmap(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    (void)self, (void)range, (void)offset, (void)bytes;
    return COMET_ERROR_UNSUPPORTED;
}

#else

#include <cuda.h>
#include <cudaTypedefs.h>

enum { ADDRESS_RESERVE, ADDRESS_FREE, CREATE, RELEASE, MAP, UNMAP, SET_ACCESS, CALLS };
_Static_assert((int)CALLS <= (int)ARENA_DRIVER_CALLS, "the range has room for what is looked up");

/* The driver's numbers are the runtime's where both have them. */
static comet_status driver_status(CUresult result) {
    return comet_cuda_status((cudaError_t)result);
}

/* A function as of `version` of CUDA; 0 if the driver has none. Void pointers, as the runtime gives them. */
static int look_up(const char *name, unsigned version, void **function) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, &found);
#else
    (void)version; /* that of the runtime: none of these has changed since */
    cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &found);
#endif
    return comet_cuda_status(error) == COMET_OK && found == cudaDriverEntryPointSuccess && *function;
}

/* ISO C has no cast from an object's pointer to a function's. */
#define AS_FUNCTION(type, name, pointer)                                                                               \
    type name;                                                                                                         \
    memcpy(&name, &(pointer), sizeof name)

static int look_up_all(void **calls) {
    static const char *const names[CALLS] = {
        [ADDRESS_RESERVE] = "cuMemAddressReserve",
        [ADDRESS_FREE] = "cuMemAddressFree",
        [CREATE] = "cuMemCreate",
        [RELEASE] = "cuMemRelease",
        [MAP] = "cuMemMap",
        [UNMAP] = "cuMemUnmap",
        [SET_ACCESS] = "cuMemSetAccess",
    };
    for (int i = 0; i < CALLS; i++)
        if (!look_up(names[i], 10020, &calls[i]))
            return 0;
    return 1;
}

static CUmemAllocationProp properties(int32_t device) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

/* 0: the device cannot map memory on demand. */
static size_t granularity_of(int32_t device) {
    void *get_attribute = NULL, *get_granularity = NULL;
    if (!look_up("cuDeviceGetAttribute", 2000, &get_attribute) ||
        !look_up("cuMemGetAllocationGranularity", 10020, &get_granularity))
        return 0;
    AS_FUNCTION(PFN_cuDeviceGetAttribute_v2000, attribute, get_attribute);
    AS_FUNCTION(PFN_cuMemGetAllocationGranularity_v10020, granularity, get_granularity);
    int supported = 0;
    size_t bytes = 0;
    CUmemAllocationProp p = properties(device);
    if (attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, (CUdevice)device) !=
            CUDA_SUCCESS ||
        !supported || granularity(&bytes, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

static comet_status reserve_addresses(int32_t device, size_t bytes, arena_range *range) {
    arena_range r = {.device = device, .granularity = granularity_of(device)};
    if (!r.granularity || r.granularity % GRANULE || bytes < r.granularity || !look_up_all(r.calls))
        return COMET_ERROR_UNSUPPORTED;
    r.bytes = bytes - bytes % r.granularity;
    AS_FUNCTION(PFN_cuMemAddressReserve_v10020, address_reserve, r.calls[ADDRESS_RESERVE]);
    CUdeviceptr base = 0;
    comet_status status = driver_status(address_reserve(&base, r.bytes, 0, 0, 0));
    r.base = (unsigned char *)(uintptr_t)base;
    if (status == COMET_OK)
        *range = r;
    return status;
}

static comet_status reserve(const arena_driver *self, int32_t device, size_t bytes, arena_range *range) {
    scope s;
    COMET_TRY(enter_device(&s, device));
    comet_status status = leave(&s, reserve_addresses(device, bytes, range));
    return status == COMET_ERROR_UNSUPPORTED ? reserve_plain(self, device, bytes, range) : status;
}

static comet_status unreserve(const arena_driver *self, const arena_range *range) {
    if (!range->granularity)
        return give(self, range->device, ARENA_MEMORY_DEVICE, range->base);
    scope s;
    COMET_TRY(enter_device(&s, range->device));
    AS_FUNCTION(PFN_cuMemAddressFree_v10020, address_free, range->calls[ADDRESS_FREE]);
    return leave(&s, driver_status(address_free((CUdeviceptr)(uintptr_t)range->base, range->bytes)));
}

/* The memory's handle is released at once: from then on the mapping holds it, and unmapping frees it. */
static comet_status map_memory(const arena_range *range, CUdeviceptr at, size_t bytes) {
    AS_FUNCTION(PFN_cuMemCreate_v10020, create, range->calls[CREATE]);
    AS_FUNCTION(PFN_cuMemMap_v10020, map_at, range->calls[MAP]);
    AS_FUNCTION(PFN_cuMemRelease_v10020, release, range->calls[RELEASE]);
    CUmemAllocationProp p = properties(range->device);
    CUmemGenericAllocationHandle handle;
    COMET_TRY(driver_status(create(&handle, bytes, &p, 0)));
    CUresult mapped = map_at(at, bytes, 0, handle, 0), released = release(handle);
    if (mapped != CUDA_SUCCESS)
        return driver_status(mapped);
    if (released != CUDA_SUCCESS) {
        AS_FUNCTION(PFN_cuMemUnmap_v10020, unmap_at, range->calls[UNMAP]);
        (void)unmap_at(at, bytes);
    }
    return driver_status(released);
}

static comet_status map_accessible(const arena_range *range, CUdeviceptr at, size_t bytes) {
    AS_FUNCTION(PFN_cuMemSetAccess_v10020, set_access, range->calls[SET_ACCESS]);
    AS_FUNCTION(PFN_cuMemUnmap_v10020, unmap_at, range->calls[UNMAP]);
    COMET_TRY(map_memory(range, at, bytes));
    CUmemAccessDesc access = {properties(range->device).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    comet_status status = driver_status(set_access(at, bytes, &access, 1));
    if (status != COMET_OK)
        (void)unmap_at(at, bytes);
    return status;
}

static comet_status map(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    (void)self;
    scope s;
    COMET_TRY(enter_device(&s, range->device));
    return leave(&s, map_accessible(range, (CUdeviceptr)(uintptr_t)(range->base + offset), bytes));
}

static comet_status unmap(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    (void)self;
    scope s;
    COMET_TRY(enter_device(&s, range->device));
    AS_FUNCTION(PFN_cuMemUnmap_v10020, unmap_at, range->calls[UNMAP]);
    return leave(&s, driver_status(unmap_at((CUdeviceptr)(uintptr_t)(range->base + offset), bytes)));
}

#endif

/* ---- events and the queue ---- */

static comet_status event_new(const arena_driver *self, int32_t device, void **event) {
    (void)self;
    scope s;
    cudaEvent_t made = NULL;
    COMET_TRY(enter_device(&s, device));
    comet_status status = leave(&s, comet_cuda_status(cudaEventCreateWithFlags(&made, cudaEventDisableTiming)));
    *event = made;
    return status;
}

static comet_status event_free(const arena_driver *self, void *event) {
    (void)self;
    scope s;
    comet_status status = enter_relaxed(&s);
    return status == COMET_OK ? leave(&s, comet_cuda_status(cudaEventDestroy((cudaEvent_t)event))) : status;
}

static comet_status event_record(const arena_driver *self, void *event, void *queue) {
    (void)self;
    return comet_cuda_status(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)queue));
}

static comet_status event_query(const arena_driver *self, void *event, int *reached) {
    (void)self;
    scope s;
    COMET_TRY(enter_relaxed(&s));
    cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    /* that it is not ready is no error, but some CUDA remembers it as one */
    comet_status status = comet_cuda_status(error);
    *reached = error == cudaSuccess;
    return leave(&s, error == cudaErrorNotReady ? COMET_OK : status);
}

static comet_status event_wait(const arena_driver *self, void *event) {
    (void)self;
    scope s;
    comet_status status = enter_relaxed(&s);
    return status == COMET_OK ? leave(&s, comet_cuda_status(cudaEventSynchronize((cudaEvent_t)event))) : status;
}

static comet_status queue_wait(const arena_driver *self, void *queue) {
    (void)self;
    scope s;
    comet_status status = enter_relaxed(&s);
    return status == COMET_OK ? leave(&s, comet_cuda_status(cudaStreamSynchronize((cudaStream_t)queue))) : status;
}

static comet_status queue_capturing(const arena_driver *self, void *queue, int *capturing) {
    (void)self;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)queue, &status);
    *capturing = status != cudaStreamCaptureStatusNone; /* an invalidated capture is one until it is ended */
    return comet_cuda_status(error);
}

const arena_driver *comet_arena_driver_cuda(void) {
    static const arena_driver driver = {
        reserve,      unreserve,   map,        unmap,      take,
        give,         zero,        copy,       event_new,  event_free,
        event_record, event_query, event_wait, queue_wait, queue_capturing,
    };
    return &driver;
}
