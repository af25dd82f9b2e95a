// SPDX-License-Identifier: Apache-2.0
// What the parts of the emulated runtime share.
#ifndef COMET_EMULATION_RUNTIME_H
#define COMET_EMULATION_RUNTIME_H

#include <stdint.h>

#include <functional>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"
#include "emulation.h"

// What emulation_reset() sets back.
struct emulation_settings {
    cudaError_t failure = cudaSuccess;
    int calls_before_failure = 0;
    bool failure_stays = false;
    int devices = 1;
    cudaError_t device_error = cudaSuccess;
    int major = 9, minor = 0, multiprocessors = 4;
    size_t memory = (size_t)16 << 30, l2 = (size_t)50 << 20;
};

struct emulation_state : emulation_settings {
    std::recursive_mutex mutex; // one call at a time, a kernel included
    uint64_t calls = 0, launches = 0;
};

emulation_state &emulation_the();
int emulation_current_device();
uint64_t emulation_memory_live();
cudaError_t emulation_report(cudaError_t error); // remembers it for cudaGetLastError

// Every call of the API begins with one of these.
struct emulation_call {
    explicit emulation_call(bool needs_device = true);
    // The error that came first: an injected one, or no device; else `otherwise`. Remembered.
    cudaError_t failed(cudaError_t otherwise) const {
        return emulation_report(early != cudaSuccess ? early : otherwise);
    }
    bool has_device(int device) const {
        return device >= 0 && device < state.devices;
    }
    // Does the work now, or keeps it if the stream captures.
    cudaError_t issue(cudaStream_t stream, std::function<void()> work);
    // What waits for the device, or changes its memory, is not allowed while something captures.
    cudaError_t refuse_while_capturing();

    emulation_state &state;
    std::lock_guard<std::recursive_mutex> lock;
    cudaError_t early;
};

#endif
