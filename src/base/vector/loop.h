/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over arrays: shared out over threads, and compiled for several instruction sets. */
#ifndef COMET_BASE_VECTOR_LOOP_H
#define COMET_BASE_VECTOR_LOOP_H

#include <stdint.h>

#include "base/isa.h"
#include "comet/threads.h"

/*
 * Calls body(context, first, end) so that all of 0 .. count - 1 is covered once: a range for each thread, which
 * starts at a multiple of `grain`. What is summed is summed in blocks of a grain, each with a place of its own, so
 * that the result does not depend on the number of threads.
 */
typedef void (*comet_loop_body)(const void *context, int64_t first, int64_t end);
void comet_loop(comet_threads *threads, int64_t count, int64_t grain, comet_loop_body body, const void *context);

/* COMET_RANGE(f) { ... } is a comet_loop_body, compiled for several instruction sets (COMET_CLONES). */
#define COMET_RANGE(name) COMET_CLONES(name, (const void *context, int64_t first, int64_t end), (context, first, end))

/* COMET_EACH before a loop: turns do not depend on each other, though arrays may be the same. */
#ifdef __clang__
#define COMET_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define COMET_EACH _Pragma("GCC ivdep")
#endif

#endif
