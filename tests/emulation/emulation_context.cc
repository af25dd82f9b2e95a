// SPDX-License-Identifier: Apache-2.0
#include "emulation_context.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulation_fibers.h"

#ifdef EMULATION_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATION_TSAN
#include <sanitizer/tsan_interface.h>
#elif defined(__SANITIZE_THREAD__) || EMULATION_HAS(thread_sanitizer)
#error "for ThreadSanitizer see emulation_context.h"
#endif

// ---- stacks ----

namespace {

enum { PAGE = 4096, STACK_BYTES = 64 * PAGE, STRIDE = STACK_BYTES + 65536 /* a page of any machine */ };

enum { MAX_STACKS = 1024 };

char *stacks;
unsigned stack_count;
void *tsan_fibers[MAX_STACKS];

void tsan_make_fibers(unsigned n) {
#ifdef EMULATION_TSAN
    for (unsigned i = 0; i < n; i++)
        if (!tsan_fibers[i])
            tsan_fibers[i] = __tsan_create_fiber(0);
#else
    (void)n;
#endif
}

} // namespace

void emulation_stacks_make(unsigned n) {
    if (n <= stack_count)
        return;
    if (stacks)
        munmap(stacks, (size_t)stack_count * STRIDE);
    stacks = (char *)mmap(nullptr, (size_t)n * STRIDE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        emulation_fail("no memory for the stacks of %u threads", n);
    for (unsigned i = 0; i < n; i++)
        if (mprotect(stacks + (size_t)i * STRIDE, STRIDE - STACK_BYTES, PROT_NONE) != 0)
            emulation_fail("no guard page for stack %u", i);
    stack_count = n;
    tsan_make_fibers(n);
}

emulation_stack emulation_stack_of(unsigned i) {
    // tops that differ in their low bits do not fight for the same sets of the cache
    size_t colour = (size_t)(i % 60) * 1088 % STACK_BYTES & ~(size_t)15;
    return {stacks + (size_t)i * STRIDE + (STRIDE - STACK_BYTES), STACK_BYTES - colour, tsan_fibers[i]};
}

// ---- from one stack to another ----

#ifdef EMULATION_UCONTEXT

static void machine_make(emulation_context *context, const emulation_stack &stack, void (*entry)()) {
    getcontext(&context->machine);
    context->machine.uc_stack.ss_sp = stack.base;
    context->machine.uc_stack.ss_size = stack.bytes;
    context->machine.uc_link = nullptr;
    makecontext(&context->machine, entry, 0);
}

static void machine_switch(emulation_context *from, emulation_context *to) {
    swapcontext(&from->machine, &to->machine);
}

#else

// Saves what a function must keep for its caller, and the stack pointer; loads the other's. No system call, unlike
// swapcontext.
extern "C" void emulation_machine_switch(void **save, void *load);

#if defined(__x86_64__)

asm(".text\n"
    ".p2align 4\n"
    ".globl emulation_machine_switch\n"
    ".hidden emulation_machine_switch\n"
    ".type emulation_machine_switch, @function\n"
    "emulation_machine_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size emulation_machine_switch, . - emulation_machine_switch\n");

enum { SAVED_WORDS = 8, ENTRY_WORD = 6 }; // six registers, where to go, and a caller that is none

#else

asm(".text\n"
    ".p2align 4\n"
    ".globl emulation_machine_switch\n"
    ".hidden emulation_machine_switch\n"
    ".type emulation_machine_switch, %function\n"
    "emulation_machine_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n"
    "    stp x21, x22, [sp, #16]\n"
    "    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n"
    "    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n"
    "    str x9, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n"
    "    ldp x21, x22, [sp, #16]\n"
    "    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n"
    "    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size emulation_machine_switch, . - emulation_machine_switch\n");

enum { SAVED_WORDS = 20, ENTRY_WORD = 11 };

#endif

static void machine_make(emulation_context *context, const emulation_stack &stack, void (*entry)()) {
    uintptr_t top = ((uintptr_t)stack.base + stack.bytes) & ~(uintptr_t)15;
    void **words = (void **)top - SAVED_WORDS;
    memset(words, 0, SAVED_WORDS * sizeof *words);
    words[ENTRY_WORD] = (void *)entry;
    context->stack_pointer = words;
}

static void machine_switch(emulation_context *from, emulation_context *to) {
    emulation_machine_switch(&from->stack_pointer, to->stack_pointer);
}

#endif

// ---- with the sanitizers ----

static emulation_context *left;

static void (*entry_of_all)();

// The first thing on a new stack.
static void arrive(emulation_context *self) {
#ifdef EMULATION_ASAN
    const void *base;
    __sanitizer_finish_switch_fiber(self ? self->fake_stack : nullptr, &base, &left->stack.bytes);
    left->stack.base = (char *)base;
#else
    (void)self;
#endif
}

static void begin() {
    arrive(nullptr);
    entry_of_all();
}

void emulation_context_make(emulation_context *context, const emulation_stack &stack, void (*entry)()) {
    context->stack = stack;
    context->fake_stack = nullptr;
    entry_of_all = entry;
    machine_make(context, stack, begin);
}

void emulation_context_switch(emulation_context *from, emulation_context *to, bool ends) {
    left = from;
#ifdef EMULATION_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake_stack, to->stack.base, to->stack.bytes);
#else
    (void)ends;
#endif
#ifdef EMULATION_TSAN
    __tsan_switch_to_fiber(to->stack.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
    machine_switch(from, to);
    arrive(from);
}

void emulation_context_of_caller(emulation_context *context) {
    context->stack = {nullptr, 0, nullptr};
    context->fake_stack = nullptr;
#ifdef EMULATION_TSAN
    context->stack.tsan_fiber = __tsan_get_current_fiber();
#endif
}

#ifdef EMULATION_TSAN

void emulation_publish(void *address) {
    __tsan_release(address);
}

void emulation_observe(void *address) {
    __tsan_acquire(address);
}

#else

void emulation_publish(void *) {}

void emulation_observe(void *) {}

#endif
