/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect/call.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/sized.h"

void *comet_stats_place(comet_stats_memory *m, size_t count, size_t size) {
    void *at = m->at ? m->at + m->bytes : NULL;
    m->bytes += (count * size + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
    return at;
}

static float *place_strip(comet_stats_memory *m, const comet_maps *maps) {
    return maps && !maps->is_rows ? comet_stats_place(m, 1, comet_sums_strip_bytes(maps)) : NULL;
}

void comet_stats_place_strips(comet_stats_memory *m, const comet_maps *a, const comet_maps *b, comet_sums *sums) {
    sums->strips[0] = place_strip(m, a);
    sums->strips[1] = place_strip(m, b);
}

comet_status comet_stats_exec_of(const comet_stats_exec *given, size_t needed, comet_stats_exec *exec) {
    static const comet_stats_exec defaults = COMET_STATS_EXEC_INIT;
    COMET_TRY(comet_sized_read(exec, sizeof *exec, given, &defaults, "exec"));
    COMET_REQUIRE((uintptr_t)exec->workspace % COMET_ALIGNMENT == 0, "exec->workspace must be aligned to %d bytes",
                  COMET_ALIGNMENT);
    size_t there = exec->workspace ? exec->workspace_bytes : 0;
    if (there < needed)
        return comet_fail(COMET_ERROR_CAPACITY, "exec->workspace has %zu bytes: it must have %zu", there, needed);
    return COMET_OK;
}

comet_status comet_stats_check_size(const void *given, size_t known, const char *name) {
    size_t size;
    COMET_REQUIRE(given, "%s is NULL", name);
    memcpy(&size, given, sizeof size);
    COMET_REQUIRE(size == known, "%s->size is %zu: start from its initializer", name, size);
    return COMET_OK;
}

comet_status comet_stats_finite(const double *values, int count) {
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return COMET_ERROR_DIVERGED;
    return COMET_OK;
}
