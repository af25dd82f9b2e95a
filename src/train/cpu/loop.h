/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of the CPU kernels: shared out over threads, and compiled for several instruction sets. */
#ifndef COMET_TRAIN_CPU_LOOP_H
#define COMET_TRAIN_CPU_LOOP_H

#include <stdint.h>

#include "comet/threads.h"

/*
 * Calls body(context, first, end) so that all of 0 .. count - 1 is covered once: a range for each thread, which starts at a multiple of
 * `grain`. What is summed is summed in blocks of a grain, each with a place of its own, so that the result does not depend on the number
 * of threads.
 */
typedef void (*comet_loop_body)(const void *context, int64_t first, int64_t end);
void comet_loop(comet_threads *threads, int64_t count, int64_t grain, comet_loop_body body, const void *context);

/*
 * COMET_CLONES before a function: compiled for the baseline and for newer instruction sets, chosen when the program starts. Results are
 * the same: sums are over the outer loop, and products are contracted only where fma is written.
 */
#if defined(COMET_X86_64) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&             \
    defined(__OPTIMIZE__)
#define COMET_CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define COMET_CLONES
#endif

/* COMET_EACH before a loop: turns do not depend on each other, though arrays may be the same. */
#ifdef __clang__
#define COMET_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define COMET_EACH _Pragma("GCC ivdep")
#endif

#define COMET_INLINE static inline __attribute__((always_inline))

#endif
