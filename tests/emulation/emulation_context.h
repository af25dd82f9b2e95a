// SPDX-License-Identifier: Apache-2.0
// Stacks, and going from one to another. AddressSanitizer is told. So is ThreadSanitizer, to which each fiber is a
// thread of its own that only barriers, __syncwarp and fences put in order: it finds races of a block's threads. For
// that compile kernels with -fsanitize=thread, and the emulator itself with -fno-sanitize=thread -DEMULATION_TSAN: its
// own state needs no order.
#ifndef COMET_EMULATION_CONTEXT_H
#define COMET_EMULATION_CONTEXT_H

#include <stddef.h>

#if !defined(EMULATION_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define EMULATION_UCONTEXT 1
#endif

#if defined(__has_feature)
#define EMULATION_HAS(feature) __has_feature(feature)
#else
#define EMULATION_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || EMULATION_HAS(address_sanitizer)
#define EMULATION_ASAN 1
#endif

#ifdef EMULATION_UCONTEXT
#include <ucontext.h>
#endif

struct emulation_stack {
    char *base;
    size_t bytes;
    void *tsan_fiber; // one that always runs on this stack
};

struct emulation_context {
    emulation_stack stack; // of the program itself: known to the sanitizer only
    void *fake_stack;      // AddressSanitizer's
#ifdef EMULATION_UCONTEXT
    ucontext_t machine;
#else
    void *stack_pointer;
#endif
};

// Stacks for n fibers; they are kept for the next launch. Below each lies a page that may not be touched.
void emulation_stacks_make(unsigned n);
emulation_stack emulation_stack_of(unsigned i);

// A context that begins with `entry`, which must never return.
void emulation_context_make(emulation_context *context, const emulation_stack &stack, void (*entry)());
// The context of the caller, who is no fiber.
void emulation_context_of_caller(emulation_context *context);
// Leaves `from`, which `ends` if nobody will come back to it.
void emulation_context_switch(emulation_context *from, emulation_context *to, bool ends);

// What the caller did before publishing at an address is done before what others do after observing it.
#ifdef EMULATION_TSAN
constexpr bool emulation_orders = true;
#else
constexpr bool emulation_orders = false;
#endif
void emulation_publish(void *address);
void emulation_observe(void *address);

#endif
