// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs. A capture is a list of work in the order it was issued, whichever of its streams it was
// issued to: one of the orders that the graph allows.
#include <time.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

#include "emulation_runtime.h"

typedef std::vector<std::function<void()>> work_list;

struct capture {
    work_list work;
    CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool valid, ended;
};

struct CUstream_st {
    unsigned flags;
    std::shared_ptr<capture> in; // what it captures into
    uint64_t issued;             // pieces of work in this capture
    uint64_t joined;             // so many of them some other stream of the capture waits for
};

struct CUevent_st {
    unsigned flags;
    bool recorded;
    double seconds;
    std::shared_ptr<capture> in; // recorded in a capture
    CUstream_st *stream;
    uint64_t issued;
};

struct CUgraph_st {
    work_list work;
};

struct CUgraphExec_st {
    work_list work;
};

namespace {

thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

template <class T> std::set<T *> &all_of() {
    static auto *all = new std::set<T *>;
    return *all;
}

template <class T> bool exists(T *handle) {
    return all_of<T>().count(handle) != 0;
}

template <class T> T *enter(T *handle) {
    all_of<T>().insert(handle);
    return handle;
}

template <class T> void remove(T *handle) {
    all_of<T>().erase(handle);
    delete handle;
}

bool is_default(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

bool is_legacy(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy;
}

bool is_stream(cudaStream_t stream) {
    return is_default(stream) || exists(stream);
}

bool captures(cudaStream_t stream) {
    return !is_default(stream) && stream->in;
}

cudaError_t invalidate(capture *c, cudaError_t error) {
    c->valid = false;
    return error;
}

// The legacy stream waits for all others but those created non-blocking, and so must not be used while one of them
// captures.
capture *capture_before_legacy() {
    for (CUstream_st *s : all_of<CUstream_st>())
        if (s->in && !(s->flags & cudaStreamNonBlocking))
            return s->in.get();
    return nullptr;
}

cudaError_t check_legacy() {
    capture *c = capture_before_legacy();
    return c ? invalidate(c, cudaErrorStreamCaptureImplicit) : cudaSuccess;
}

// CUDA's rule for calls that could disturb a capture: what the calling thread's mode says about its own captures and
// others'.
bool disturbs(const capture &c) {
    if (thread_mode == cudaStreamCaptureModeRelaxed || c.mode == cudaStreamCaptureModeRelaxed)
        return false;
    bool own = c.thread == std::this_thread::get_id();
    return own || (thread_mode == cudaStreamCaptureModeGlobal && c.mode == cudaStreamCaptureModeGlobal);
}

cudaError_t check_disturbs() {
    for (CUstream_st *s : all_of<CUstream_st>())
        if (s->in && disturbs(*s->in))
            return invalidate(s->in.get(), cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

// Waiting for a stream, or asking it, is never allowed while it captures.
cudaError_t check_wait(cudaStream_t stream) {
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    if (captures(stream))
        return invalidate(stream->in.get(), cudaErrorStreamCaptureUnsupported);
    cudaError_t error = is_legacy(stream) ? check_legacy() : cudaSuccess;
    return error != cudaSuccess ? error : check_disturbs();
}

double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Lets go of a capture's streams; whether all that they did was waited for.
bool leave(capture *c) {
    bool joined = true;
    for (CUstream_st *s : all_of<CUstream_st>()) {
        if (s->in.get() != c)
            continue;
        joined = joined && (s == c->origin || s->joined == s->issued);
        if (s != c->origin)
            s->in.reset();
    }
    return joined;
}

void join(CUstream_st *stream, const std::shared_ptr<capture> &in) {
    if (stream->in)
        return;
    stream->in = in;
    stream->issued = 1; // the fork itself must be joined again
    stream->joined = 0;
}

cudaError_t wait_for_captured(cudaStream_t stream, cudaEvent_t event) {
    capture *c = event->in.get();
    if (c->ended)
        return cudaErrorCapturedEvent;
    if (is_default(stream))
        return invalidate(c, cudaErrorStreamCaptureImplicit);
    if (stream->in && stream->in != event->in)
        return invalidate(c, cudaErrorStreamCaptureMerge);
    if (!c->valid)
        return cudaErrorStreamCaptureInvalidated;
    join(stream, event->in);
    if (exists(event->stream) && event->stream != stream && event->stream->in == event->in)
        event->stream->joined = std::max(event->stream->joined, event->issued);
    return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t *graph) {
    std::shared_ptr<capture> c = stream->in;
    if (c->origin != stream)
        return invalidate(c.get(), cudaErrorStreamCaptureUnmatched);
    bool joined = leave(c.get());
    stream->in.reset();
    c->ended = true;
    if (!c->valid)
        return cudaErrorStreamCaptureInvalidated;
    if (!joined)
        return cudaErrorStreamCaptureUnjoined;
    *graph = enter(new CUgraph_st{c->work});
    return cudaSuccess;
}

} // namespace

cudaError_t emulation_call::issue(cudaStream_t stream, std::function<void()> work) {
    if (!is_stream(stream))
        return emulation_report(cudaErrorInvalidResourceHandle);
    cudaError_t error = is_legacy(stream) ? check_legacy() : cudaSuccess;
    if (error != cudaSuccess)
        return emulation_report(error);
    if (!captures(stream)) {
        work();
        return cudaSuccess;
    }
    if (!stream->in->valid)
        return emulation_report(cudaErrorStreamCaptureInvalidated);
    stream->in->work.push_back(std::move(work));
    stream->issued++;
    return cudaSuccess;
}

cudaError_t emulation_call::refuse_while_capturing() {
    return check_disturbs();
}

extern "C" {

// ---- streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    emulation_call call;
    if (call.early != cudaSuccess || !stream || flags > cudaStreamNonBlocking)
        return call.failed(cudaErrorInvalidValue);
    *stream = enter(new CUstream_st{flags, nullptr, 0, 0});
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    emulation_call call;
    if (call.early != cudaSuccess || is_default(stream) || !exists(stream))
        return call.failed(cudaErrorInvalidResourceHandle);
    if (stream->in)
        stream->in->valid = false;
    remove(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    emulation_call call;
    return call.failed(call.early != cudaSuccess ? cudaSuccess : check_wait(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    emulation_call call;
    return call.failed(call.early != cudaSuccess ? cudaSuccess : check_wait(stream));
}

cudaError_t cudaDeviceSynchronize(void) {
    emulation_call call;
    if (call.early != cudaSuccess)
        return call.failed(cudaSuccess);
    for (CUstream_st *s : all_of<CUstream_st>())
        if (s->in)
            return emulation_report(invalidate(s->in.get(), cudaErrorStreamCaptureUnsupported));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    emulation_call call;
    if (call.early != cudaSuccess || !is_stream(stream) || !exists(event))
        return call.failed(cudaErrorInvalidResourceHandle);
    if (event->in)
        return emulation_report(wait_for_captured(stream, event));
    if (captures(stream) && event->recorded)
        return emulation_report(invalidate(stream->in.get(), cudaErrorStreamCaptureIsolation));
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    emulation_call call;
    if (call.early != cudaSuccess || !function)
        return call.failed(cudaErrorInvalidValue);
    return call.issue(stream, [=] { function(data); });
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    emulation_call call;
    if (call.early != cudaSuccess || !event)
        return call.failed(cudaErrorInvalidValue);
    *event = enter(new CUevent_st{flags, false, 0, nullptr, nullptr, 0});
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(event) || !is_stream(stream))
        return call.failed(cudaErrorInvalidResourceHandle);
    cudaError_t error = is_legacy(stream) ? check_legacy() : cudaSuccess;
    if (error != cudaSuccess)
        return emulation_report(error);
    event->in = captures(stream) ? stream->in : nullptr;
    event->stream = is_default(stream) ? nullptr : stream;
    event->issued = event->stream ? event->stream->issued : 0;
    event->recorded = true;
    event->seconds = now();
    return cudaSuccess;
}

static cudaError_t event_done(cudaEvent_t event) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(event))
        return call.failed(cudaErrorInvalidResourceHandle);
    if (event->in)
        return emulation_report(invalidate(event->in.get(), cudaErrorCapturedEvent));
    return emulation_report(check_disturbs());
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return event_done(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event_done(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(event))
        return call.failed(cudaErrorInvalidResourceHandle);
    remove(event);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    emulation_call call;
    if (call.early != cudaSuccess || !milliseconds)
        return call.failed(cudaErrorInvalidValue);
    if (!exists(begin) || !exists(end) || !begin->recorded || !end->recorded ||
        ((begin->flags | end->flags) & cudaEventDisableTiming))
        return call.failed(cudaErrorInvalidResourceHandle);
    if (begin->in || end->in)
        return call.failed(cudaErrorCapturedEvent);
    *milliseconds = (float)((end->seconds - begin->seconds) * 1e3);
    return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    emulation_call call;
    if (call.early != cudaSuccess || !is_stream(stream))
        return call.failed(cudaErrorInvalidResourceHandle);
    if (is_default(stream))
        return call.failed(cudaErrorStreamCaptureUnsupported);
    if (stream->in)
        return call.failed(cudaErrorIllegalState);
    stream->in = std::make_shared<capture>(capture{{}, stream, mode, std::this_thread::get_id(), true, false});
    stream->issued = stream->joined = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    emulation_call call;
    if (call.early != cudaSuccess || !graph)
        return call.failed(cudaErrorInvalidValue);
    *graph = nullptr;
    if (is_default(stream) || !exists(stream))
        return call.failed(cudaErrorInvalidResourceHandle);
    return emulation_report(stream->in ? end_capture(stream, graph) : cudaErrorIllegalState);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    emulation_call call;
    if (call.early != cudaSuccess || !status || !is_stream(stream))
        return call.failed(cudaErrorInvalidValue);
    *status = !captures(stream)   ? cudaStreamCaptureStatusNone
              : stream->in->valid ? cudaStreamCaptureStatusActive
                                  : cudaStreamCaptureStatusInvalidated;
    bool unknown = is_legacy(stream) && capture_before_legacy(); // an error that breaks no capture
    return emulation_report(unknown ? cudaErrorStreamCaptureImplicit : cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    emulation_call call;
    if (call.early != cudaSuccess || !mode)
        return call.failed(cudaErrorInvalidValue);
    std::swap(thread_mode, *mode);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(graph) || !count)
        return call.failed(cudaErrorInvalidValue);
    if (nodes)
        return call.failed(cudaErrorNotSupported);
    *count = graph->work.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    emulation_call call;
    if (call.early != cudaSuccess || !exec || !exists(graph))
        return call.failed(cudaErrorInvalidValue);
    *exec = enter(new CUgraphExec_st{graph->work});
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    emulation_call call;
    return call.early != cudaSuccess || !exists(exec) || !is_stream(stream) ? call.failed(cudaErrorInvalidValue)
                                                                            : cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(exec))
        return call.failed(cudaErrorInvalidValue);
    work_list work = exec->work; // a copy: a capturing stream makes it a child graph
    return call.issue(stream, [work = std::move(work)] {
        for (const std::function<void()> &piece : work)
            piece();
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(exec))
        return call.failed(cudaErrorInvalidValue);
    remove(exec);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    emulation_call call;
    if (call.early != cudaSuccess || !exists(graph))
        return call.failed(cudaErrorInvalidValue);
    remove(graph);
    return cudaSuccess;
}

} // extern "C"
