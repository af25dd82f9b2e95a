/* SPDX-License-Identifier: Apache-2.0 */
/* Threshold grids on a GPU: their tables in its memory, decoding to a tensor of any dtype, and what is judged. */
#include "cmd/bench/cuda/measure.h"

int cuda_grid_set(cuda_bed *bed) {
    gpu *g = bed->gpu;
    if (bench_grid_make(&bed->grid, bed->source) != DONE)
        return gpu_comet(g, COMET_ERROR_MEMORY, "bench_grid_make");
    size_t bytes = bench_grid_bytes(&bed->grid);
    TRY(gpu_reserve(g, &g->tables, bytes));
    TRY_CUDA(g, cudaMemcpyAsync(g->tables.data, bed->grid.tables.data, bytes, cudaMemcpyHostToDevice, g->queue));
    TRY_CUDA(g, cudaStreamSynchronize(g->queue)); /* the next tensor's tables go where these came from */
    bed->device_grid = bench_grid_at(&bed->grid, g->tables.data);
    return DONE;
}

static int32_t *status_word(const cuda_codec_bed *c) {
    return (int32_t *)(void *)c->bed->gpu->status.data;
}

int cuda_start_decompress(void *context, int index) {
    const cuda_codec_bed *c = context;
    comet_cuda_epilogue none = COMET_CUDA_EPILOGUE_INIT;
    comet_tensor output = cuda_output(c->bed, index);
    comet_cuda_slot slot = cuda_slot(c, index);
    int converts = c->params.grid && output.dtype != COMET_F32; /* a grid's values are fp32 */
    TRY_COMET(c->bed->gpu,
              comet_cuda_decompress(&slot, &c->params, converts ? &none : NULL, &c->exec, &output, status_word(c)));
    return DONE;
}

int cuda_start_decompress_bn(void *context, int index) {
    const cuda_codec_bed *c = context;
    const bench_grid *grid = &c->bed->grid;
    comet_cuda_epilogue epilogue = COMET_CUDA_EPILOGUE_INIT;
    comet_tensor output = cuda_output(c->bed, index);
    comet_cuda_slot slot = cuda_slot(c, index);
    epilogue.channels = grid->channels;
    epilogue.scale = bench_grid_table(grid, c->bed->gpu->tables.data, GRID_GAMMA);
    epilogue.shift = bench_grid_table(grid, c->bed->gpu->tables.data, GRID_BETA);
    epilogue.relu = 1;
    TRY_COMET(c->bed->gpu, comet_cuda_decompress(&slot, &c->params, &epilogue, &c->exec, &output, status_word(c)));
    return DONE;
}

/* The outputs of all buffers together are larger than one in fp32, as a rule: there are three or more. */
int cuda_output_to_check(cuda_codec_bed *c, int index, comet_tensor *output) {
    gpu *g = c->bed->gpu;
    *output = cuda_output(c->bed, index);
    if (!c->params.grid || output->dtype == COMET_F32)
        return DONE;
    TRY(gpu_reserve(g, &g->output, (size_t)comet_tensor_count(output) * sizeof(float)));
    output->dtype = COMET_F32;
    output->data = g->output.data;
    return DONE;
}
