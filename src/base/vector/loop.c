/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vector/loop.h"

#include "base/parallel.h"

typedef struct loop {
    int64_t count, grain, blocks;
    unsigned workers;
    comet_loop_body body;
    const void *context;
} loop;

static void run(void *context, unsigned worker) {
    const loop *l = context;
    int64_t first = l->blocks * worker / l->workers * l->grain, end = l->blocks * (worker + 1) / l->workers * l->grain;
    if (end > l->count)
        end = l->count;
    if (first < end)
        l->body(l->context, first, end);
}

void comet_loop(comet_threads *threads, int64_t count, int64_t grain, comet_loop_body body, const void *context) {
    loop l = {count, grain, (count + grain - 1) / grain, comet_threads_count(threads), body, context};
    if (l.blocks < l.workers)
        l.workers = (unsigned)l.blocks;
    if (l.workers)
        comet_parallel(threads, l.workers, run, &l);
}
