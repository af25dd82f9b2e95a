/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over arrays: shared out over threads, and compiled for several instruction sets. */
#ifndef COMET_BASE_LOOP_H
#define COMET_BASE_LOOP_H

#include <stdint.h>

#include "comet/threads.h"

/*
 * Calls body(context, first, end) so that all of 0 .. count - 1 is covered once: a range for each thread, which
 * starts at a multiple of `grain`. What is summed is summed in blocks of a grain, each with a place of its own, so
 * that the result does not depend on the number of threads.
 */
typedef void (*comet_loop_body)(const void *context, int64_t first, int64_t end);
void comet_loop(comet_threads *threads, int64_t count, int64_t grain, comet_loop_body body, const void *context);

#define COMET_INLINE static inline __attribute__((always_inline))

/*
 * COMET_CLONES(f, (int a, int b), (a, b)) { ... } defines f, compiled for the baseline and for newer instruction
 * sets; which one runs is asked when it is called. Results are the same: sums are over the outer loop, and products
 * are contracted only where fma is written. COMET_RANGE(f) { ... } is a comet_loop_body of that kind.
 */
#ifdef COMET_X86_64
#define COMET_CLONES(name, parameters, arguments)                                                                      \
    static inline void name##_body parameters;                                                                         \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))) static void name##_avx512 parameters {      \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    __attribute__((target("avx2,fma"))) static void name##_avx2 parameters {                                           \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    static void name parameters {                                                                                      \
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&                                \
            __builtin_cpu_supports("avx512vl"))                                                                        \
            name##_avx512 arguments;                                                                                   \
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))                                      \
            name##_avx2 arguments;                                                                                     \
        else                                                                                                           \
            name##_body arguments;                                                                                     \
    }                                                                                                                  \
    COMET_INLINE void name##_body parameters
#else
#define COMET_CLONES(name, parameters, arguments) static void name parameters
#endif
#define COMET_RANGE(name) COMET_CLONES(name, (const void *context, int64_t first, int64_t end), (context, first, end))

/* COMET_EACH before a loop: turns do not depend on each other, though arrays may be the same. */
#ifdef __clang__
#define COMET_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define COMET_EACH _Pragma("GCC ivdep")
#endif

#endif
