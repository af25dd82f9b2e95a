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

/* The cores that this thread may run on (taskset, cpusets and schedulers of clusters restrict them); at least 1. */
unsigned comet_usable_cores(void);

/*
 * A pool without threads of its own: team(team_context, count, run, context) has to do what comet_parallel says. For
 * programs that have a team of threads already, such as OpenMP's. `team` is called by one thread at a time.
 */
typedef void (*comet_team)(void *team_context, unsigned count, void (*run)(void *context, unsigned worker),
                           void *context);
comet_status comet_threads_borrow(unsigned count, comet_team team, void *team_context, const comet_allocator *allocator,
                                  comet_threads **threads);

#endif
