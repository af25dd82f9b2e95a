/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device store on a CPU: streams are made in a buffer that is kept, and moved to memory of just their size. All is
 * done when a call returns; only that owners are told waits for a poll, as on a GPU.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "store/device/device_store_impl.h"

/* A buffer that grows. What it held is lost. */
static comet_status reserve(comet_device_store *s, void **buffer, size_t *bytes, size_t wanted) {
    if (wanted <= *bytes)
        return COMET_OK;
    void *larger = comet_memory_take(s->allocator, wanted);
    if (!larger)
        return COMET_ERROR_MEMORY;
    comet_memory_give(s->allocator, *buffer, *bytes);
    *buffer = larger;
    *bytes = wanted;
    return COMET_OK;
}

static void *stream_take(comet_device_store *s, size_t bytes, void *queue) {
    const comet_device_memory *memory = &s->options.memory;
    return memory->take ? memory->take(memory->context, bytes, queue) : comet_memory_take(NULL, bytes);
}

void comet_held_cpu_give(comet_device_store *s, comet_device_entry *e) {
    const comet_device_memory *memory = &s->options.memory;
    if (!e->base)
        return;
    if (memory->take)
        memory->give(memory->context, e->base, e->room, e->lane->queue);
    else
        comet_memory_give(NULL, e->base, e->room);
    s->stats.room_bytes -= e->room;
    e->base = NULL;
}

/* `workspace` bytes of it are there. */
static comet_codec_exec exec_of(const comet_device_store *s, size_t workspace) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = s->options.threads;
    exec.workspace = workspace ? s->workspace : NULL;
    exec.workspace_bytes = workspace;
    return exec;
}

comet_status comet_held_cpu_compress(comet_device_store *s, comet_device_entry *e) {
    comet_codec_exec exec = exec_of(s, 0);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    size_t workspace = 0;
    COMET_TRY(comet_codec_max_bytes(&e->tensor, &e->params, &e->most));
    COMET_TRY(comet_codec_compress_workspace(&e->tensor, &e->params, &exec, &workspace));
    COMET_TRY(reserve(s, &s->scratch, &s->scratch_bytes, e->most));
    COMET_TRY(reserve(s, &s->workspace, &s->workspace_bytes, workspace));
    exec = exec_of(s, workspace);
    COMET_TRY(comet_codec_compress(&e->tensor, &e->params, &exec, s->scratch, e->most, &result));
    e->base = stream_take(s, result.bytes, e->lane->queue);
    if (!e->base)
        return comet_fail(COMET_ERROR_MEMORY, "the caller has no %zu bytes of memory for a stream", result.bytes);
    memcpy(e->base, s->scratch, result.bytes);
    e->room = result.bytes;
    e->result = comet_codec_record_of(&result);
    s->stats.room_bytes += e->room;
    return COMET_OK;
}

comet_status comet_held_cpu_load(comet_device_store *s, const comet_device_entry *e, const comet_tensor *tensor) {
    comet_codec_exec exec = exec_of(s, 0);
    size_t workspace = 0;
    COMET_TRY(comet_codec_decompress_workspace(tensor, &e->params, &exec, &workspace));
    COMET_TRY(reserve(s, &s->workspace, &s->workspace_bytes, workspace));
    exec = exec_of(s, workspace);
    return comet_codec_decompress(e->base, e->result.bytes, e->params.grid, &exec, tensor);
}
