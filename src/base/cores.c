/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cores.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#ifdef __linux__
/* 0: not known. The system wants room for every core that it could have, and says only whether there is enough. */
static unsigned allowed_cores(void) {
    for (unsigned most = CPU_SETSIZE; most <= 64 * CPU_SETSIZE; most *= 2) {
        cpu_set_t *set = CPU_ALLOC(most);
        size_t bytes = CPU_ALLOC_SIZE(most);
        if (!set)
            return 0;
        int answer = sched_getaffinity(0, bytes, set);
        int is_short = answer != 0 && errno == EINVAL;
        int count = answer == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (!is_short)
            return (unsigned)count;
    }
    return 0;
}
#else
static unsigned allowed_cores(void) {
    return 0;
}
#endif

unsigned comet_usable_cores(void) {
    unsigned allowed = allowed_cores();
    long online = allowed ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    return allowed ? allowed : online > 0 ? (unsigned)online : 1;
}
