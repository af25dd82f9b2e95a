// SPDX-License-Identifier: Apache-2.0
// What all kernels share: short names, a typed launch, and the instructions that CUDA C++ has no function for.
// Everything else in this folder is plain CUDA C++, so that tests/emulation can run it on a CPU; COMET_CUDA_EMULATION
// marks the few places where that needs another way to say the same.
#ifndef COMET_CODEC_CUDA_DEVICE_CUH
#define COMET_CODEC_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr u32 ALL_LANES = 0xffffffffu;

// ---- launching ----

// Runs kernel<<<grid, block, 0, queue>>>(arguments); arguments convert to the parameters' types as in any call.
template <class... Parameters>
static inline cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t queue,
                                 typename std::common_type<Parameters>::type... arguments) {
#ifdef COMET_CUDA_EMULATION
    return emulation_launch(grid, block, queue, [=] { kernel(arguments...); });
#else
    void *pointers[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, grid, block, pointers, 0, queue);
#endif
}

// ---- threads ----

// A thread's number in its block, asked for once: compilers like to ask the hardware again at every use, which takes
// longer. It is a hint, and where registers are short they still do.
__device__ __forceinline__ u32 thread_number() {
#ifdef COMET_CUDA_EMULATION
    return threadIdx.x;
#else
    u32 r;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(r));
    return r;
#endif
}

// The number of a thread's warp in its block, found in a way that shows compilers that it is the same for all lanes:
// what it decides is then no reason to guard what lanes do together, and addresses made of it take no registers of
// threads.
__device__ __forceinline__ u32 warp_number(u32 thread) {
    return __reduce_max_sync(ALL_LANES, thread >> 5);
}

// ---- memory ahead of time ----

// Copies 8 or 16 bytes to shared memory without waiting for them; they are there for the same thread after
// await_copies.
template <class T> __device__ __forceinline__ void copy_ahead(T *to, const void *from) {
    static_assert(sizeof(T) == 8 || sizeof(T) == 16, "what the hardware copies");
#ifdef COMET_CUDA_EMULATION
    *to = *(const T *)from;
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "n"(sizeof(T))
                 : "memory");
#endif
}

__device__ __forceinline__ void await_copies() {
#ifndef COMET_CUDA_EMULATION
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Copies 16 bytes to shared memory without waiting for them, or zeros if they are not there: then `from` is any
// address.
__device__ __forceinline__ void copy_ahead_or_zero(void *to, const void *from, bool are_there) {
#ifdef COMET_CUDA_EMULATION
    *(uint4 *)to = are_there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(are_there ? 16 : 0)
                 : "memory");
#endif
}

// What this thread asked for since the last call is a group, perhaps an empty one.
__device__ __forceinline__ void close_copies() {
#ifndef COMET_CUDA_EMULATION
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all groups but the last N are there for this thread.
template <int N> __device__ __forceinline__ void await_copies_before() {
#ifndef COMET_CUDA_EMULATION
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Asks for the line of memory that an address lies in, which is then on its way to the L2 cache.
__device__ __forceinline__ void ask_for_line(const void *address) {
#ifdef COMET_CUDA_EMULATION
    (void)address;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// ---- bits ----

// Byte i of the result is byte (select >> 4 i & 7) of {b, a}; with bit 3 set, that byte's sign, eight times.
__device__ __forceinline__ u32 permute_by(u32 a, u32 b, u32 select) {
#ifdef COMET_CUDA_EMULATION
    return emulation_permute(a, b, select);
#else
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
    return r;
#endif
}

// The same with a choice that is a constant.
template <u32 SELECT> __device__ __forceinline__ u32 permute(u32 a, u32 b) {
    return permute_by(a, b, SELECT);
}

// Any function of three bits, bit by bit: bit (4 a + 2 b + c) of TABLE.
template <u32 TABLE> __device__ __forceinline__ u32 logic3(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return emulation_logic3(a, b, c, TABLE);
#else
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return r;
#endif
}

// The place of the highest bit; ~0 of 0. One instruction, where __clz takes two.
__device__ __forceinline__ u32 highest_bit(u32 v) {
#ifdef COMET_CUDA_EMULATION
    return 31u - (u32)__clz((int)v);
#else
    u32 r;
    asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(v));
    return r;
#endif
}

// Keeps a compiler from carrying what it made of a word to later uses, which costs it registers.
__device__ __forceinline__ void forget_uses(u32 &word) {
#ifdef COMET_CUDA_EMULATION
    (void)word;
#else
    asm volatile("" : "+r"(word));
#endif
}

// Keeps a compiler from making addresses out of a pointer before this, on ways that do not come here.
template <class T> __device__ __forceinline__ T *from_here_on(T *pointer) {
#ifndef COMET_CUDA_EMULATION
    asm volatile("" : "+l"(pointer));
#endif
    return pointer;
}

// ---- memory ----

// A counter in global memory; what was written before it was raised by add_released can be seen afterwards.
__device__ __forceinline__ u32 load_acquired(u32 *counter) {
#ifdef COMET_CUDA_EMULATION
    return atomicAdd(counter, 0u);
#else
    u32 n;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(counter) : "memory");
    return n;
#endif
}

// Adds to a counter in global memory once everything this thread wrote before can be seen.
__device__ __forceinline__ void add_released(u32 *counter, u32 n) {
#ifdef COMET_CUDA_EMULATION
    __threadfence();
    atomicAdd(counter, n);
#else
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(n) : "memory");
#endif
}

// ---- numbers ----

// The greatest, or least, of three: one instruction on Hopper.
__device__ __forceinline__ int max3(int a, int b, int c) {
#ifdef COMET_CUDA_EMULATION
    return max(max(a, b), c);
#else
    return __vimax3_s32(a, b, c);
#endif
}
__device__ __forceinline__ u32 max3(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return max(max(a, b), c);
#else
    return __vimax3_u32(a, b, c);
#endif
}
// Of two halves of 16 bits each.
__device__ __forceinline__ u32 max3_halves_signed(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return emulation_max3_halves(a, b, c, 1);
#else
    return __vimax3_s16x2(a, b, c);
#endif
}
__device__ __forceinline__ u32 max3_halves(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return emulation_max3_halves(a, b, c, 0);
#else
    return __vimax3_u16x2(a, b, c);
#endif
}
__device__ __forceinline__ u32 min3(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return min(min(a, b), c);
#else
    return __vimin3_u32(a, b, c);
#endif
}

// The greater of two; a NaN stays.
__device__ __forceinline__ float not_below(float x, float floor) {
#ifdef COMET_CUDA_EMULATION
    return x < floor ? floor : x;
#else
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(floor));
    return r;
#endif
}

// 16-bit numbers as bit patterns, exact to fp32 and rounded to nearest even from it. A NaN stays one; its bits may
// change.
__device__ __forceinline__ float float_of_bf16(u32 bits) {
    return __uint_as_float(bits << 16);
}

__device__ __forceinline__ float float_of_f16(u32 bits) {
#ifdef COMET_CUDA_EMULATION
    return emulation_float_of_f16((u16)bits);
#else
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)bits));
    return r;
#endif
}

// Of the upper half of a word.
__device__ __forceinline__ float float_of_upper_f16(u32 word) {
#ifdef COMET_CUDA_EMULATION
    return emulation_float_of_f16((u16)(word >> 16));
#else
    float r;
    asm("{ .reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(r) : "r"(word));
    return r;
#endif
}

__device__ __forceinline__ u32 bf16_of_float(float v) {
#ifdef COMET_CUDA_EMULATION
    return emulation_bf16_of_float(v);
#else
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
#endif
}

__device__ __forceinline__ u32 f16_of_float(float v) {
#ifdef COMET_CUDA_EMULATION
    return emulation_f16_of_float(v);
#else
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
#endif
}

// Two floats rounded to nearest even, the first in the lower half.
template <bool IS_BF16> __device__ __forceinline__ u32 pair_of_floats(float low, float high) {
#ifdef COMET_CUDA_EMULATION
    return IS_BF16 ? bf16_of_float(low) | bf16_of_float(high) << 16 : f16_of_float(low) | f16_of_float(high) << 16;
#else
    u32 r;
    if constexpr (IS_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#endif
}

// The greater of two numbers in each half; a NaN stays.
template <bool IS_BF16> __device__ __forceinline__ u32 max_pair(u32 a, u32 b) {
#ifdef COMET_CUDA_EMULATION
    return emulation_max_halves(a, b, IS_BF16);
#else
    u32 r;
    if constexpr (IS_BF16)
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    else
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
#endif
}

// A 16-bit pattern in both halves of a word.
__device__ __forceinline__ u32 twice(u32 half) {
    return half | half << 16;
}

// a b + c of both halves of words, which are bf16 (IS_BF16) or fp16, rounded once; relu: what is negative becomes 0.
template <bool IS_BF16> __device__ __forceinline__ u32 fma_pair(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return emulation_fma_halves(a, b, c, IS_BF16, 0);
#else
    u32 r;
    if constexpr (IS_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    else
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}
template <bool IS_BF16> __device__ __forceinline__ u32 fma_relu_pair(u32 a, u32 b, u32 c) {
#ifdef COMET_CUDA_EMULATION
    return emulation_fma_halves(a, b, c, IS_BF16, 1);
#else
    u32 r;
    if constexpr (IS_BF16)
        asm("fma.rn.relu.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    else
        asm("fma.rn.relu.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}

#endif
