// SPDX-License-Identifier: Apache-2.0
// The language of kernels in plain C++: keywords, built-in variables, collectives, atomics, and the instructions.
#ifndef COMET_EMULATION_DEVICE_H
#define COMET_EMULATION_DEVICE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <memory> // before __noinline__ is a macro: libstdc++ says __attribute__((__noinline__))
#include <type_traits>
#include <utility>

#include "base/half.h"
#include "emulation_fibers.h"

// ---- keywords ----

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__      static // one block runs at a time. What it leaves behind the next one sees: nothing clears it
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

#define threadIdx (emulation_here.thread)
#define blockIdx  (emulation_here.block)
#define blockDim  (emulation_here.block_dim)
#define gridDim   (emulation_here.grid_dim)
constexpr int warpSize = 32;

// The caller's line, for messages: last parameters of everything that waits.
#define EMULATION_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- launching ----

cudaError_t emulation_launch_function(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> body);

template <class Body>
static inline cudaError_t emulation_launch(dim3 grid, dim3 block, cudaStream_t stream, Body body) {
    static_assert(sizeof(Body) <= 4096 + 64, "a kernel's parameters are 4 KiB at most");
    return emulation_launch_function(grid, block, stream, std::function<void()>(std::move(body)));
}

// ---- bits of values ----

template <class To, class From> static inline To emulation_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// A value of 4 or 8 bytes in a word, and back.
template <class T> static inline uint64_t emulation_word_of(T value) {
    static_assert(sizeof value == 4 || sizeof value == 8, "lanes exchange 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return word;
}

template <class T> static inline T emulation_of_word(uint64_t word) {
    T value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline unsigned __float_as_uint(float v) {
    return emulation_bits<unsigned>(v);
}
static inline int __float_as_int(float v) {
    return emulation_bits<int>(v);
}
static inline float __uint_as_float(unsigned v) {
    return emulation_bits<float>(v);
}
static inline float __int_as_float(int v) {
    return emulation_bits<float>(v);
}
static inline long long __double_as_longlong(double v) {
    return emulation_bits<long long>(v);
}
static inline double __longlong_as_double(long long v) {
    return emulation_bits<double>(v);
}
static inline int __double2hiint(double v) {
    return (int)(emulation_bits<uint64_t>(v) >> 32);
}
static inline int __double2loint(double v) {
    return (int)(uint32_t)emulation_bits<uint64_t>(v);
}
static inline double __hiloint2double(int high, int low) {
    return emulation_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}

// ---- barriers ----

static inline void __syncthreads(EMULATION_SITE) {
    emulation_block(EMULATION_BARRIER, 0, file, line);
}
static inline int __syncthreads_or(int predicate, EMULATION_SITE) {
    return emulation_block(EMULATION_BARRIER_OR, predicate, file, line);
}
static inline int __syncthreads_and(int predicate, EMULATION_SITE) {
    return emulation_block(EMULATION_BARRIER_AND, predicate, file, line);
}
static inline int __syncthreads_count(int predicate, EMULATION_SITE) {
    return emulation_block(EMULATION_BARRIER_COUNT, predicate, file, line);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATION_SITE) {
    emulation_warp_barrier(mask, file, line);
}

// ---- votes, matches, reductions ----

static inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATION_SITE) {
    return (unsigned)emulation_warp(EMULATION_BALLOT, mask, predicate != 0, 0, file, line);
}
static inline int __any_sync(unsigned mask, int predicate, EMULATION_SITE) {
    return (int)emulation_warp(EMULATION_ANY, mask, predicate != 0, 0, file, line);
}
static inline int __all_sync(unsigned mask, int predicate, EMULATION_SITE) {
    return (int)emulation_warp(EMULATION_ALL, mask, predicate != 0, 0, file, line);
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, EMULATION_SITE) {
    return (unsigned)emulation_warp(EMULATION_MATCH_ANY, mask, emulation_word_of(value), 0, file, line);
}
template <class T> static inline unsigned __match_all_sync(unsigned mask, T value, int *predicate, EMULATION_SITE) {
    uint64_t same = emulation_warp(EMULATION_MATCH_ALL, mask, emulation_word_of(value), 0, file, line);
    *predicate = same != 0;
    return (unsigned)same;
}

#define EMULATION_REDUCE(name, kind, type)                                                                             \
    static inline type __reduce_##name##_sync(unsigned mask, type value, EMULATION_SITE) {                             \
        return (type)(uint32_t)emulation_warp(kind, mask, (uint32_t)value, 0, file, line);                             \
    }
EMULATION_REDUCE(add, EMULATION_REDUCE_ADD, unsigned)
EMULATION_REDUCE(add, EMULATION_REDUCE_ADD, int)
EMULATION_REDUCE(min, EMULATION_REDUCE_MIN, unsigned)
EMULATION_REDUCE(min, EMULATION_REDUCE_MIN_SIGNED, int)
EMULATION_REDUCE(max, EMULATION_REDUCE_MAX, unsigned)
EMULATION_REDUCE(max, EMULATION_REDUCE_MAX_SIGNED, int)
EMULATION_REDUCE(and, EMULATION_REDUCE_AND, unsigned)
EMULATION_REDUCE(or, EMULATION_REDUCE_OR, unsigned)
EMULATION_REDUCE(xor, EMULATION_REDUCE_XOR, unsigned)
#undef EMULATION_REDUCE

static inline unsigned __activemask(EMULATION_SITE) {
    emulation_fail("%s:%d: __activemask: which lanes are together is not defined", file, line);
}

// ---- shuffles: PTX's rules, of which shfl's are the whole warp's with segments of `width` ----

struct emulation_segment {
    uint32_t lane, first, last;
};

static inline emulation_segment emulation_segment_of(int width, const char *file, int line) {
    if (width < 1 || width > 32 || (width & (width - 1)) != 0)
        emulation_fail("%s:%d: a shuffle of width %d", file, line, width);
    uint32_t lane = emulation_lane(), first = lane & ~(uint32_t)(width - 1);
    return {lane, first, first + (uint32_t)width - 1};
}

template <class T>
static inline T emulation_shuffle(emulation_kind kind, unsigned mask, T value, uint32_t source, const char *file,
                                  int line) {
    return emulation_of_word<T>(emulation_warp(kind, mask, emulation_word_of(value), source, file, line));
}

// Values of fewer bits than an int travel as one, as they do where CUDA's overloads are called.
#define EMULATION_PROMOTED decltype(+std::declval<T>())

template <class T>
static inline EMULATION_PROMOTED __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATION_SITE) {
    emulation_segment s = emulation_segment_of(width, file, line);
    uint32_t from = s.first | ((uint32_t)source & (s.last - s.first));
    return emulation_shuffle(EMULATION_SHFL, mask, +value, from, file, line);
}
template <class T>
static inline EMULATION_PROMOTED __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                                EMULATION_SITE) {
    emulation_segment s = emulation_segment_of(width, file, line);
    int from = (int)s.lane - (int)(delta & 31u);
    return emulation_shuffle(EMULATION_SHFL_UP, mask, +value, from >= (int)s.first ? (uint32_t)from : s.lane, file,
                             line);
}
template <class T>
static inline EMULATION_PROMOTED __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                                  EMULATION_SITE) {
    emulation_segment s = emulation_segment_of(width, file, line);
    uint32_t from = s.lane + (delta & 31u);
    return emulation_shuffle(EMULATION_SHFL_DOWN, mask, +value, from <= s.last ? from : s.lane, file, line);
}
template <class T>
static inline EMULATION_PROMOTED __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATION_SITE) {
    emulation_segment s = emulation_segment_of(width, file, line);
    uint32_t from = s.lane ^ ((uint32_t)bits & 31u);
    return emulation_shuffle(EMULATION_SHFL_XOR, mask, +value, from <= s.last ? from : s.lane, file, line);
}
#undef EMULATION_PROMOTED

// ---- atomics and fences ----

template <class T> static inline void emulation_check_aligned(const T *address) {
    if ((uintptr_t)address % (sizeof(T) < 16 ? sizeof(T) : 16) != 0)
        emulation_fail("misaligned address %p for %zu bytes", (const void *)address, sizeof(T));
}

// Every atomic as a function of the old value; word by word, so that it works for float and double too.
template <class T, class Change> static inline T emulation_atomic(T *address, Change change) {
    using word = typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type;
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics of 4 and 8 bytes");
    emulation_check_aligned(address);
    emulation_poll();
    typedef word __attribute__((may_alias)) alias;
    alias *at = (alias *)(void *)address;
    word old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
    do {
        next = emulation_bits<word>((T)change(emulation_bits<T>(old)));
    } while (!__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return emulation_bits<T>(old);
}

// Signed sums wrap on the device.
template <class T> static inline T emulation_wrapping_sum(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) {
        return a + b;
    } else {
        using u = typename std::make_unsigned<T>::type;
        return (T)((u)a + (u)b);
    }
}

#define EMULATION_ATOMIC(name, type, expression)                                                                       \
    static inline type name(type *address, type value) {                                                               \
        return emulation_atomic(address, [=](type old) -> type { return expression; });                                \
    }
#define EMULATION_ATOMIC_INTEGER(type)                                                                                 \
    EMULATION_ATOMIC(atomicAdd, type, emulation_wrapping_sum(old, value))                                              \
    EMULATION_ATOMIC(atomicMax, type, old > value ? old : value)                                                       \
    EMULATION_ATOMIC(atomicMin, type, old < value ? old : value)                                                       \
    EMULATION_ATOMIC(atomicOr, type, old | value)                                                                      \
    EMULATION_ATOMIC(atomicAnd, type, old &value)                                                                      \
    EMULATION_ATOMIC(atomicXor, type, old ^ value)                                                                     \
    EMULATION_ATOMIC(atomicExch, type, ((void)old, value))                                                             \
    static inline type atomicCAS(type *address, type compare, type value) {                                            \
        return emulation_atomic(address, [=](type old) -> type { return old == compare ? value : old; });              \
    }
EMULATION_ATOMIC_INTEGER(int)
EMULATION_ATOMIC_INTEGER(unsigned)
EMULATION_ATOMIC_INTEGER(long long)
EMULATION_ATOMIC_INTEGER(unsigned long long)
EMULATION_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)value))
EMULATION_ATOMIC(atomicSub, unsigned, old - value)
EMULATION_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMULATION_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
EMULATION_ATOMIC(atomicAdd, float, old + value)
EMULATION_ATOMIC(atomicAdd, double, old + value)
EMULATION_ATOMIC(atomicExch, float, ((void)old, value))
#undef EMULATION_ATOMIC_INTEGER
#undef EMULATION_ATOMIC

static inline void __threadfence() {
    emulation_fence();
}
static inline void __threadfence_block() {
    emulation_fence();
}
static inline void __threadfence_system() {
    emulation_fence();
}
static inline void __nanosleep(unsigned) {
    emulation_yield();
}
static inline void __trap() {
    emulation_fail("__trap() in block %u, thread %u", blockIdx.x, threadIdx.x);
}
static inline long long clock64() {
    return 0; // no time passes
}

// ---- loads and stores with cache hints ----

#define EMULATION_LOAD(name)                                                                                           \
    template <class T> static inline T name(const T *address) {                                                        \
        emulation_check_aligned(address);                                                                              \
        return *address;                                                                                               \
    }
#define EMULATION_POLLED_LOAD(name)                                                                                    \
    template <class T> static inline T name(const T *address) {                                                        \
        emulation_check_aligned(address);                                                                              \
        emulation_poll();                                                                                              \
        return *address;                                                                                               \
    }
#define EMULATION_STORE(name)                                                                                          \
    template <class T> static inline void name(T *address, typename std::common_type<T>::type value) {                 \
        emulation_check_aligned(address);                                                                              \
        *address = value;                                                                                              \
    }
EMULATION_LOAD(__ldg)
EMULATION_LOAD(__ldca)
EMULATION_LOAD(__ldcs)
EMULATION_LOAD(__ldlu)
EMULATION_POLLED_LOAD(__ldcg)
EMULATION_POLLED_LOAD(__ldcv)
EMULATION_STORE(__stcs)
EMULATION_STORE(__stcg)
EMULATION_STORE(__stwb)
EMULATION_STORE(__stwt)
#undef EMULATION_LOAD
#undef EMULATION_POLLED_LOAD
#undef EMULATION_STORE

// ---- integers ----

static inline int __popc(unsigned v) {
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __clzll(long long v) {
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v) {
    return __builtin_ffsll(v);
}
static inline unsigned __brev(unsigned v) {
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(v);
}
static inline unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
// The n-th (from 1) bit set at or after `base`; below it for a negative n. ~0 without one.
static inline unsigned __fns(unsigned mask, unsigned base, int n) {
    int step = n < 0 ? -1 : 1, left = n < 0 ? -n : n;
    if (n == 0)
        return mask >> (base & 31u) & 1u ? base : 0xffffffffu;
    for (int i = (int)base; i >= 0 && i < 32; i += step)
        if ((mask >> i & 1u) && --left == 0)
            return (unsigned)i;
    return 0xffffffffu;
}

static inline uint32_t emulation_permute(uint32_t a, uint32_t b, uint32_t select) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 4 * i & 15u, byte = (uint32_t)(both >> 8 * (s & 7u)) & 0xffu;
        r |= (s & 8u ? (byte & 0x80u ? 0xffu : 0u) : byte) << 8 * i;
    }
    return r;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
    return emulation_permute(a, b, select & 0x7777u);
}

static inline uint32_t emulation_logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (table >> i & 1u)
            r |= (i & 4u ? a : ~a) & (i & 2u ? b : ~b) & (i & 1u ? c : ~c);
    return r;
}

static inline uint32_t emulation_max3_halves(uint32_t a, uint32_t b, uint32_t c, int is_signed) {
    const uint32_t flip = is_signed ? 0x80008000u : 0; // to unsigned numbers in the same order
    const uint32_t words[3] = {a ^ flip, b ^ flip, c ^ flip};
    uint32_t low = 0, high = 0;
    for (int i = 0; i < 3; i++) {
        low = (words[i] & 0xffffu) > low ? words[i] & 0xffffu : low;
        high = words[i] >> 16 > high ? words[i] >> 16 : high;
    }
    return (high << 16 | low) ^ flip;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31u)) >> 32);
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31u));
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline long long __mul64hi(long long a, long long b) {
    return (long long)((__int128)a * b >> 64);
}
static inline unsigned __umul24(unsigned a, unsigned b) {
    return (a & 0xffffffu) * (b & 0xffffffu);
}
static inline unsigned __usad(unsigned a, unsigned b, unsigned sum) {
    return (a > b ? a - b : b - a) + sum;
}
static inline unsigned __uhadd(unsigned a, unsigned b) {
    return (unsigned)(((uint64_t)a + b) >> 1);
}
static inline unsigned __urhadd(unsigned a, unsigned b) {
    return (unsigned)(((uint64_t)a + b + 1) >> 1);
}

#define EMULATION_MIN_MAX(type, a_type, b_type)                                                                        \
    static inline constexpr type min(a_type a, b_type b) {                                                             \
        return (type)a < (type)b ? (type)a : (type)b;                                                                  \
    }                                                                                                                  \
    static inline constexpr type max(a_type a, b_type b) {                                                             \
        return (type)a > (type)b ? (type)a : (type)b;                                                                  \
    }
#define EMULATION_MIN_MAX_SIGNS(type, u_type)                                                                          \
    EMULATION_MIN_MAX(type, type, type)                                                                                \
    EMULATION_MIN_MAX(u_type, u_type, u_type)                                                                          \
    EMULATION_MIN_MAX(u_type, type, u_type)                                                                            \
    EMULATION_MIN_MAX(u_type, u_type, type)
EMULATION_MIN_MAX_SIGNS(int, unsigned)
EMULATION_MIN_MAX_SIGNS(long, unsigned long)
EMULATION_MIN_MAX_SIGNS(long long, unsigned long long)
#undef EMULATION_MIN_MAX_SIGNS
#undef EMULATION_MIN_MAX
static inline float min(float a, float b) {
    return fminf(a, b);
}
static inline float max(float a, float b) {
    return fmaxf(a, b);
}
static inline double min(double a, double b) {
    return fmin(a, b);
}
static inline double max(double a, double b) {
    return fmax(a, b);
}

// ---- four bytes or two halves in a word ----

template <int BITS, class Operation>
static inline unsigned emulation_parts(unsigned a, unsigned b, Operation operation) {
    constexpr unsigned MASK = (1u << BITS) - 1;
    unsigned r = 0;
    for (int i = 0; i < 32; i += BITS)
        r |= ((unsigned)operation((int)(a >> i & MASK), (int)(b >> i & MASK)) & MASK) << i;
    return r;
}

#define EMULATION_SIMD(name, bits, expression)                                                                         \
    static inline unsigned name(unsigned p, unsigned q) {                                                              \
        return emulation_parts<bits>(p, q, [](int a, int b) -> int { return expression; });                            \
    }
EMULATION_SIMD(__vadd4, 8, a + b)
EMULATION_SIMD(__vsub4, 8, a - b)
EMULATION_SIMD(__vcmpeq4, 8, a == b ? -1 : 0)
EMULATION_SIMD(__vcmpne4, 8, a != b ? -1 : 0)
EMULATION_SIMD(__vcmpgtu4, 8, a > b ? -1 : 0)
EMULATION_SIMD(__vcmpgeu4, 8, a >= b ? -1 : 0)
EMULATION_SIMD(__vcmpltu4, 8, a < b ? -1 : 0)
EMULATION_SIMD(__vcmpleu4, 8, a <= b ? -1 : 0)
EMULATION_SIMD(__vseteq4, 8, a == b)
EMULATION_SIMD(__vsetne4, 8, a != b)
EMULATION_SIMD(__vmaxu4, 8, a > b ? a : b)
EMULATION_SIMD(__vminu4, 8, a < b ? a : b)
EMULATION_SIMD(__vmaxs4, 8, (int8_t)a > (int8_t)b ? a : b)
EMULATION_SIMD(__vmins4, 8, (int8_t)a < (int8_t)b ? a : b)
EMULATION_SIMD(__vabsdiffu4, 8, a > b ? a - b : b - a)
EMULATION_SIMD(__vadd2, 16, a + b)
EMULATION_SIMD(__vsub2, 16, a - b)
EMULATION_SIMD(__vcmpeq2, 16, a == b ? -1 : 0)
EMULATION_SIMD(__vcmpne2, 16, a != b ? -1 : 0)
EMULATION_SIMD(__vcmpgtu2, 16, a > b ? -1 : 0)
EMULATION_SIMD(__vmaxu2, 16, a > b ? a : b)
EMULATION_SIMD(__vminu2, 16, a < b ? a : b)
EMULATION_SIMD(__vmaxs2, 16, (int16_t)a > (int16_t)b ? a : b)
EMULATION_SIMD(__vmins2, 16, (int16_t)a < (int16_t)b ? a : b)
#undef EMULATION_SIMD

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 32; i += 8)
        sum += (a >> i & 0xffu) * (b >> i & 0xffu);
    return sum;
}
static inline int __dp4a(int a, int b, int sum) {
    unsigned r = (unsigned)sum;
    for (int i = 0; i < 32; i += 8)
        r += (unsigned)((int8_t)((unsigned)a >> i) * (int8_t)((unsigned)b >> i));
    return (int)r;
}

// ---- numbers to integers: saturating, NaN is 0 in 32 bits and the top bit alone in 64 ----

template <class T> static inline T emulation_saturate(double v) {
    constexpr int BITS = (int)sizeof(T) * 8;
    constexpr T LEAST = std::is_signed<T>::value ? (T)(1ull << (BITS - 1)) : (T)0;
    constexpr T GREATEST = (T)~LEAST;
    if (v != v)
        return sizeof(T) == 8 ? (T)(1ull << 63) : (T)0;
    if (v >= ldexp(1.0, std::is_signed<T>::value ? BITS - 1 : BITS))
        return GREATEST;
    return v < (double)LEAST ? LEAST : (T)v;
}

#define EMULATION_TO_INTEGER(from, from_type, to, to_type)                                                             \
    static inline to_type __##from##2##to##_rn(from_type v) {                                                          \
        return emulation_saturate<to_type>(nearbyint((double)v));                                                      \
    }                                                                                                                  \
    static inline to_type __##from##2##to##_rz(from_type v) {                                                          \
        return emulation_saturate<to_type>(trunc((double)v));                                                          \
    }                                                                                                                  \
    static inline to_type __##from##2##to##_rd(from_type v) {                                                          \
        return emulation_saturate<to_type>(floor((double)v));                                                          \
    }                                                                                                                  \
    static inline to_type __##from##2##to##_ru(from_type v) {                                                          \
        return emulation_saturate<to_type>(ceil((double)v));                                                           \
    }
EMULATION_TO_INTEGER(float, float, int, int)
EMULATION_TO_INTEGER(float, float, uint, unsigned)
EMULATION_TO_INTEGER(float, float, ll, long long)
EMULATION_TO_INTEGER(float, float, ull, unsigned long long)
EMULATION_TO_INTEGER(double, double, int, int)
EMULATION_TO_INTEGER(double, double, uint, unsigned)
EMULATION_TO_INTEGER(double, double, ll, long long)
EMULATION_TO_INTEGER(double, double, ull, unsigned long long)
#undef EMULATION_TO_INTEGER

static inline float __int2float_rn(int v) {
    return (float)v;
}
static inline float __uint2float_rn(unsigned v) {
    return (float)v;
}
static inline float __ll2float_rn(long long v) {
    return (float)v;
}
static inline float __ull2float_rn(unsigned long long v) {
    return (float)v;
}
static inline double __int2double_rn(int v) {
    return v;
}
static inline double __uint2double_rn(unsigned v) {
    return v;
}
static inline double __ll2double_rn(long long v) {
    return (double)v;
}
static inline double __ull2double_rn(unsigned long long v) {
    return (double)v;
}

// ---- arithmetic with a stated rounding ----

// An fp32 result that is a NaN is always this one on the device.
static inline float emulation_number(float v) {
    return v != v ? __uint_as_float(0x7fffffffu) : v;
}
static inline double emulation_number(double v) {
    return v != v ? __longlong_as_double((long long)0xfff8000000000000ull) : v;
}

enum emulation_rounding { EMULATION_RZ, EMULATION_RU, EMULATION_RD };

// head + tail (head is the sum rounded to nearest, both finite) to fp32. Rounding head to nearest gives one of the two
// neighbours of the exact sum; which one, comparing tells.
static inline float emulation_round(double head, double tail, emulation_rounding rounding) {
    float f = (float)head;
    bool below = head > (double)f || (head == (double)f && tail > 0);
    bool above = head < (double)f || (head == (double)f && tail < 0);
    bool up = rounding == EMULATION_RU || (rounding == EMULATION_RZ && head < 0);
    if (below && up)
        return nextafterf(f, INFINITY);
    if (above && !up)
        return nextafterf(f, -INFINITY);
    return f;
}

// a b + c: the product of two floats is exact in a double, and Knuth's sum leaves no error.
static inline float emulation_fma(float a, float b, float c, emulation_rounding rounding) {
    double p = (double)a * (double)b, s = p + (double)c;
    if (!(fabs(s) <= 0x1p1000))
        return emulation_number((float)s);
    double part = s - p, tail = (p - (s - part)) + ((double)c - part);
    if (s == 0)
        return rounding == EMULATION_RD && (signbit(p) || signbit(c)) ? -0.0f : (float)s;
    return emulation_round(s, tail, rounding);
}

static inline float emulation_add(float a, float b, emulation_rounding rounding) {
    return emulation_fma(1.0f, a, b, rounding);
}
static inline float emulation_multiply(float a, float b, emulation_rounding rounding) {
    double p = (double)a * (double)b;
    return fabs(p) <= 0x1p1000 ? emulation_round(p, 0, rounding) : emulation_number((float)p);
}
static inline float emulation_narrow(double v, emulation_rounding rounding) {
    return fabs(v) <= 0x1p1023 * 1.9999999999999998 ? emulation_round(v, 0, rounding) : emulation_number((float)v);
}

#define EMULATION_DIRECTED(suffix, rounding)                                                                           \
    static inline float __fmaf_##suffix(float a, float b, float c) {                                                   \
        return emulation_fma(a, b, c, rounding);                                                                       \
    }                                                                                                                  \
    static inline float __fadd_##suffix(float a, float b) {                                                            \
        return emulation_add(a, b, rounding);                                                                          \
    }                                                                                                                  \
    static inline float __fsub_##suffix(float a, float b) {                                                            \
        return emulation_add(a, -b, rounding);                                                                         \
    }                                                                                                                  \
    static inline float __fmul_##suffix(float a, float b) {                                                            \
        return emulation_multiply(a, b, rounding);                                                                     \
    }                                                                                                                  \
    static inline float __double2float_##suffix(double v) {                                                            \
        return emulation_narrow(v, rounding);                                                                          \
    }                                                                                                                  \
    static inline float __int2float_##suffix(int v) {                                                                  \
        return emulation_narrow((double)v, rounding);                                                                  \
    }                                                                                                                  \
    static inline float __uint2float_##suffix(unsigned v) {                                                            \
        return emulation_narrow((double)v, rounding);                                                                  \
    }
EMULATION_DIRECTED(rz, EMULATION_RZ)
EMULATION_DIRECTED(ru, EMULATION_RU)
EMULATION_DIRECTED(rd, EMULATION_RD)
#undef EMULATION_DIRECTED

#define EMULATION_NEAREST(type, name, parameters, expression)                                                          \
    static inline type name parameters {                                                                               \
        return emulation_number((type)(expression));                                                                   \
    }
EMULATION_NEAREST(float, __fmaf_rn, (float a, float b, float c), fmaf(a, b, c))
EMULATION_NEAREST(float, __fadd_rn, (float a, float b), a + b)
EMULATION_NEAREST(float, __fsub_rn, (float a, float b), a - b)
EMULATION_NEAREST(float, __fmul_rn, (float a, float b), a *b)
EMULATION_NEAREST(float, __fdiv_rn, (float a, float b), a / b)
EMULATION_NEAREST(float, __frcp_rn, (float a), 1.0f / a)
EMULATION_NEAREST(float, __fsqrt_rn, (float a), sqrtf(a))
EMULATION_NEAREST(float, __double2float_rn, (double a), a)
EMULATION_NEAREST(double, __fma_rn, (double a, double b, double c), fma(a, b, c))
EMULATION_NEAREST(double, __dadd_rn, (double a, double b), a + b)
EMULATION_NEAREST(double, __dsub_rn, (double a, double b), a - b)
EMULATION_NEAREST(double, __dmul_rn, (double a, double b), a *b)
EMULATION_NEAREST(double, __ddiv_rn, (double a, double b), a / b)
EMULATION_NEAREST(double, __drcp_rn, (double a), 1.0 / a)
EMULATION_NEAREST(double, __dsqrt_rn, (double a), sqrt(a))
#undef EMULATION_NEAREST

// __isnanf, __isinff and __finitef are glibc's too.
static inline float __saturatef(float v) {
    return v > 0 ? (v < 1 ? v : 1.0f) : 0.0f;
}

// The quotient of two finite floats, rounded down or up: the product of a float with one is exact in a double.
static inline float emulation_divide(float a, float b, int up) {
    float q = a / b;
    if (!(fabsf(q) <= FLT_MAX) || b == 0)
        return q;
    double rest = (double)a - (double)q * (double)b; // its sign, and that of b, say on which side q is
    if (rest != 0 && (rest > 0) == (b > 0) && up)
        q = nextafterf(q, INFINITY);
    if (rest != 0 && (rest > 0) != (b > 0) && !up)
        q = nextafterf(q, -INFINITY);
    return q;
}
static inline float __fdiv_rd(float a, float b) {
    return emulation_divide(a, b, 0);
}
static inline float __fdiv_ru(float a, float b) {
    return emulation_divide(a, b, 1);
}

// ---- 16-bit numbers, for device.cuh ----

static inline float emulation_float_of_f16(uint16_t bits) {
    return comet_f16_to_f32(bits);
}
static inline uint32_t emulation_f16_of_float(float v) {
    return v != v ? 0x7fffu : comet_f16_of_f32(v);
}
static inline uint32_t emulation_bf16_of_float(float v) {
    return v != v ? 0x7fffu : comet_bf16_of_f32(v);
}

// a b + c of both halves of words. A double holds the sum of such a product and number unless they lie far apart, and
// rounding that to fp32 before the type changes nothing that kernels ask for: their results are numbers of the type.
static inline uint32_t emulation_fma_halves(uint32_t a, uint32_t b, uint32_t c, int is_bf16, int relu) {
    uint32_t word = 0;
    for (int i = 0; i < 32; i += 16) {
        float v[3];
        const uint32_t bits[3] = {a >> i & 0xffffu, b >> i & 0xffffu, c >> i & 0xffffu};
        for (int j = 0; j < 3; j++)
            v[j] = is_bf16 ? comet_bf16_to_f32((uint16_t)bits[j]) : comet_f16_to_f32((uint16_t)bits[j]);
        float sum = (float)((double)v[0] * (double)v[1] + (double)v[2]);
        sum = relu && sum < 0 ? 0.0f : sum;
        word |= (is_bf16 ? emulation_bf16_of_float(sum) : emulation_f16_of_float(sum)) << i;
    }
    return word;
}

static inline uint32_t emulation_max_halves(uint32_t a, uint32_t b, int is_bf16) {
    uint32_t word = 0;
    for (int i = 0; i < 32; i += 16) {
        const uint16_t p = (uint16_t)(a >> i), q = (uint16_t)(b >> i);
        const float x = is_bf16 ? comet_bf16_to_f32(p) : comet_f16_to_f32(p);
        const float y = is_bf16 ? comet_bf16_to_f32(q) : comet_f16_to_f32(q);
        word |= (uint32_t)(x != x || y != y ? 0x7fff : x < y || (x == 0 && y == 0) ? q : p) << i;
    }
    return word;
}

#endif
