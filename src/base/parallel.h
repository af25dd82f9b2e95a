/* SPDX-License-Identifier: Apache-2.0 */
/* Work shared out over a comet_threads. */
#ifndef COMET_BASE_PARALLEL_H
#define COMET_BASE_PARALLEL_H

#include "comet/threads.h"

/*
 * Calls run(context, worker) once for each worker 0 .. count - 1, in parallel, and returns when all are done.
 * threads NULL, or count 1: on the calling thread. count is at most comet_threads_count(threads).
 */
void comet_parallel(comet_threads *threads, unsigned count, void (*run)(void *context, unsigned worker), void *context);

#endif
