/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: how many, and how they wait. */
#include "cmd/common/workers.h"

#include <stdlib.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"

int workers_new(const char *text, comet_threads **threads) {
    int64_t count = 0;
    *threads = NULL;
    if (text && parse_integer("--threads", text, 0, 1024, &count) != DONE)
        return MISUSED;
    if (comet_threads_new((unsigned)count, NULL, threads) != COMET_OK)
        return fail("cannot start %lld threads", (long long)count);
    return DONE;
}

void openmp_wait_passively(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* if it cannot, training is slower, no more */
}
