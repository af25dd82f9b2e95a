/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs eb (error-bounded) and zvc (lossless, zeros cost a bit): parameters and sizes. */
#include "codec/eb/eb.h"

#include <math.h>

#include "base/tensor_check.h"
#include "codec/eb/eb_grid.h"
#include "codec/eb/tile_table.h"

static int all_finite(const float *values, int64_t count) {
    for (int64_t i = 0; values && i < count; i++)
        if (!isfinite(values[i]))
            return 0;
    return 1;
}

static comet_status check_grid(const comet_tensor *tensor, const comet_codec_params *p) {
    const comet_codec_grid *g = p->grid;
    if (p->rounding == COMET_ROUND_STOCHASTIC || p->keep_mask || !g->threshold ||
        g->channels != comet_tensor_channels(tensor))
        return COMET_ERROR_ARGUMENT;
    if (g->channels > INT32_MAX)
        return COMET_ERROR_UNSUPPORTED;
    return all_finite(g->scale, g->channels) && all_finite(g->shift, g->channels) ? COMET_OK : COMET_ERROR_ARGUMENT;
}

static comet_status check(const comet_tensor *tensor, const comet_codec_params *p) {
    if (!isfinite(p->bound) || p->bound < 0.0)
        return COMET_ERROR_ARGUMENT;
    if (p->keep_mask && p->rounding == COMET_ROUND_STOCHASTIC)
        return COMET_ERROR_ARGUMENT; /* near 0 it cannot be unbiased and keep the mask */
    return p->grid ? check_grid(tensor, p) : COMET_OK;
}

/* No tile is larger than its values raw, and an empty tensor has none. */
static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *p) {
    tile_geometry g = comet_geometry_of(tensor->layout, tensor->ndim, tensor->shape);
    size_t value_bytes = p->codec == COMET_CODEC_EB && p->grid ? sizeof(float) : comet_dtype_size(tensor->dtype);
    return comet_table_bytes(g.tiles) + (size_t)comet_tensor_count(tensor) * value_bytes;
}

static size_t decompress_workspace(const comet_tensor *tensor, const comet_codec_grid *grid, unsigned threads) {
    (void)tensor, (void)threads;
    return comet_eb_grid_bytes(grid);
}

const codec_vtable comet_codec_eb = {.name = "eb",
                                     .check = check,
                                     .body_max_bytes = body_max_bytes,
                                     .workspace = comet_eb_workspace,
                                     .decompress_workspace = decompress_workspace,
                                     .compress = comet_eb_compress,
                                     .decompress = comet_eb_decompress,
                                     .inspect = comet_eb_inspect,
                                     .serialise = comet_eb_serialise};

static size_t zvc_workspace(const comet_tensor *tensor, const comet_codec_params *params, unsigned threads) {
    comet_codec_params p = *params;
    p.grid = NULL;
    return comet_eb_workspace(tensor, &p, threads);
}

const codec_vtable comet_codec_zvc = {.name = "zvc",
                                      .check = NULL,
                                      .body_max_bytes = body_max_bytes,
                                      .workspace = zvc_workspace,
                                      .compress = comet_eb_compress,
                                      .decompress = comet_eb_decompress,
                                      .inspect = comet_eb_inspect,
                                      .serialise = comet_eb_serialise};
