/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instruction sets: which ones this machine has, and functions compiled for several of them. The same C is compiled
 * again with another target, as an always-inline body that is called from functions with that attribute. Results are
 * the same, as nothing is contracted (-ffp-contract=off) and fma is exact either way.
 */
#ifndef COMET_BASE_ISA_H
#define COMET_BASE_ISA_H

#define COMET_INLINE static inline __attribute__((always_inline))

#ifdef COMET_X86_64
#define COMET_FOR_AVX2   __attribute__((target("avx2,fma,bmi,bmi2,popcnt")))
#define COMET_FOR_AVX512 __attribute__((target("avx2,fma,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")))

static inline int comet_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

/* The part of AVX-512 that came first. */
static inline int comet_has_avx512(void) {
    return comet_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define COMET_FOR_AVX2

static inline int comet_has_avx2(void) {
    return 0;
}

static inline int comet_has_avx512(void) {
    return 0;
}
#endif

/*
 * COMET_CLONES(f, (int a, int b), (a, b)) { ... } defines f, compiled for the baseline and for newer instruction sets;
 * which one runs is asked when it is called. Its sums must be over the outer loop, its products contracted only where
 * fma is written.
 */
#ifdef COMET_X86_64
#define COMET_CLONES(name, parameters, arguments)                                                                      \
    static inline void name##_body parameters;                                                                         \
    COMET_FOR_AVX512 static void name##_avx512 parameters {                                                            \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    COMET_FOR_AVX2 static void name##_avx2 parameters {                                                                \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    static void name parameters {                                                                                      \
        if (comet_has_avx512())                                                                                        \
            name##_avx512 arguments;                                                                                   \
        else if (comet_has_avx2())                                                                                     \
            name##_avx2 arguments;                                                                                     \
        else                                                                                                           \
            name##_body arguments;                                                                                     \
    }                                                                                                                  \
    COMET_INLINE void name##_body parameters
#else
#define COMET_CLONES(name, parameters, arguments) static void name parameters
#endif

#endif
