/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cuda/cuda_stats.h"

#include "base/half.h"

static uint16_t pattern_of(float v, comet_dtype dtype) {
    return dtype == COMET_F16 ? comet_f16_of_f32(v) : comet_bf16_of_f32(v);
}

void batch_round(batch *b, comet_dtype dtype) {
    for (int64_t i = 0; i < count_of(b) && dtype != COMET_F32; i++) {
        const uint16_t p = pattern_of(b->values[i], dtype);
        b->values[i] = dtype == COMET_F16 ? comet_f16_to_f32(p) : comet_bf16_to_f32(p);
    }
}

cuda_laid cuda_lay(const batch *b, int form, comet_dtype dtype) {
    laid l = lay(b, form);
    const plan p = plan_of(b, form);
    cuda_laid c = {.tensor = l.tensor};
    if (dtype == COMET_F32) {
        c.block = cuda_block_new((size_t)p.floats * sizeof(float), l.memory);
    } else {
        uint16_t *patterns = malloc((size_t)p.floats * sizeof *patterns);
        for (int64_t i = 0; i < p.floats; i++)
            patterns[i] = pattern_of(l.memory[i], dtype);
        c.block = cuda_block_new((size_t)p.floats * sizeof *patterns, patterns);
        free(patterns);
    }
    c.tensor.data = (char *)c.block.data + (size_t)p.first * comet_dtype_size(dtype);
    c.tensor.dtype = dtype;
    c.tensor.device = (comet_device){COMET_CUDA, 0};
    free(l.memory);
    return c;
}

cuda_block cuda_table(const float *values, int64_t count) {
    return cuda_block_new((size_t)count * sizeof *values, values);
}

cuda_seen cuda_seen_new(const comet_cuda_stats_needs *needs, cudaStream_t queue) {
    cuda_seen s = {.record = cuda_block_new(needs->record_bytes, NULL),
                   .workspace = cuda_block_new(needs->workspace_bytes, NULL),
                   .exec = COMET_STATS_EXEC_INIT};
    s.exec.workspace = s.workspace.data;
    s.exec.workspace_bytes = needs->workspace_bytes;
    s.exec.queue = queue;
    s.slot = (comet_cuda_stats_slot){.record = s.record.data, .bytes = needs->record_bytes};
    cuda_must(cudaMallocHost(&s.slot.host, needs->record_bytes));
    memset(s.slot.host, CUDA_POISON, needs->record_bytes);
    return s;
}

void cuda_seen_free(cuda_seen *s) {
    cuda_block_free(&s->record);
    cuda_block_free(&s->workspace);
    cuda_must(cudaFreeHost(s->slot.host));
}
