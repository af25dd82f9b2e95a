// SPDX-License-Identifier: Apache-2.0
// The threads of a block as fibers of one CPU thread. A fiber runs until it must wait for others: at a collective of
// its warp, at a barrier of its block, or where it polls. What can never end, or what CUDA leaves undefined, is told
// and the program aborted.
#ifndef COMET_EMULATION_FIBERS_H
#define COMET_EMULATION_FIBERS_H

#include <stdint.h>

#include <functional>

#include "emulation_types.h"

enum emulation_kind {
    EMULATION_SYNCWARP,
    EMULATION_BALLOT,
    EMULATION_ANY,
    EMULATION_ALL,
    EMULATION_SHFL,
    EMULATION_SHFL_UP,
    EMULATION_SHFL_DOWN,
    EMULATION_SHFL_XOR,
    EMULATION_MATCH_ANY,
    EMULATION_MATCH_ALL,
    EMULATION_REDUCE_ADD,
    EMULATION_REDUCE_MIN,
    EMULATION_REDUCE_MAX,
    EMULATION_REDUCE_MIN_SIGNED,
    EMULATION_REDUCE_MAX_SIGNED,
    EMULATION_REDUCE_AND,
    EMULATION_REDUCE_OR,
    EMULATION_REDUCE_XOR,
    EMULATION_BARRIER, // those of a block from here on
    EMULATION_BARRIER_OR,
    EMULATION_BARRIER_AND,
    EMULATION_BARRIER_COUNT,
    EMULATION_KINDS
};

// Where the running thread is. The emulator's own, but read by kernels all the time, hence no function.
struct emulation_place {
    uint3 thread;
    uint3 block;
    dim3 block_dim;
    dim3 grid_dim;
};
extern emulation_place emulation_here;

// Waits for the lanes of `mask`. A shuffle's `source` is the lane whose value is wanted.
uint64_t emulation_warp(emulation_kind kind, uint32_t mask, uint64_t value, uint32_t source, const char *file,
                        int line);
void emulation_warp_barrier(uint32_t mask, const char *file, int line);
int emulation_block(emulation_kind kind, int predicate, const char *file, int line);
uint32_t emulation_lane();
// Lets the others run: what a thread does that waits for a value to change.
void emulation_yield();
// Counts what polling loops do (atomics, fences); lets the others run when it has become much.
void emulation_poll();
// What was written before it others see behind theirs.
void emulation_fence();
[[noreturn]] void emulation_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Runs all blocks; returns when they have ended.
void emulation_run_grid(dim3 grid, dim3 block, const std::function<void()> &body);
bool emulation_in_kernel();

#endif
