/* SPDX-License-Identifier: Apache-2.0 */
/* Threads. */
#include "cmd/common/workers.h"

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
