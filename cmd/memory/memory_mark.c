/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/memory/memory_mark.h"

#include "train/backend/cuda.h"

static int is_gpu(const memory_mark *m) {
    return m->place.device.kind == COMET_CUDA;
}

static size_t gpu_used(const comet_place *place, size_t *total) {
    size_t free_bytes = 0;
    const comet_status status = comet_backend_cuda_memory(place->device.index, &free_bytes, total);
    return status == COMET_OK ? *total - free_bytes : 0;
}

/* The first question of all makes the context, which is not counted. */
void memory_begin(memory_mark *m, const comet_place *place) {
    static size_t gpu_first, gpu_total;
    m->place = *place;
    if (!is_gpu(m)) {
        resident_begin(&m->resident);
        return;
    }
    if (!gpu_first)
        gpu_first = gpu_used(place, &gpu_total);
    m->total = gpu_total;
    m->used = m->most = gpu_first;
}

void memory_look(memory_mark *m) {
    const size_t used = is_gpu(m) ? gpu_used(&m->place, &m->total) : 0;
    m->most = used > m->most ? used : m->most;
}

size_t memory_peak(const memory_mark *m) {
    return is_gpu(m) ? m->most - m->used : resident_peak(&m->resident);
}

void memory_again(memory_mark *m) {
    const size_t before = m->resident.resident;
    m->most = m->used;
    if (is_gpu(m))
        return;
    resident_begin(&m->resident);
    m->resident.resident = before;
}
