/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs eb (error-bounded) and zvc (lossless, zeros cost a bit): parameters and sizes. */
#include "codec/eb/eb.h"

#include <math.h>

#include "base/fail.h"
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
    COMET_REQUIRE(p->rounding != COMET_ROUND_STOCHASTIC, "params->rounding is stochastic, which a grid does not allow");
    COMET_REQUIRE(!p->keep_mask, "params->keep_mask is set, which a grid does not allow");
    COMET_REQUIRE(g->threshold, "params->grid->threshold is NULL");
    COMET_REQUIRE(g->channels == comet_tensor_channels(tensor),
                  "params->grid->channels is %lld: it must be the tensor's %lld", (long long)g->channels,
                  (long long)comet_tensor_channels(tensor));
    if (g->channels > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "params->grid->channels is more than 2^31 - 1");
    COMET_REQUIRE(all_finite(g->scale, g->channels), "params->grid->scale has a value that is not finite");
    COMET_REQUIRE(all_finite(g->shift, g->channels), "params->grid->shift has a value that is not finite");
    return COMET_OK;
}

static comet_status check(const comet_tensor *tensor, const comet_codec_params *p) {
    COMET_REQUIRE(isfinite(p->bound) && p->bound >= 0.0, "params->bound is %g: it must be finite and not negative",
                  p->bound);
    /* near 0 it cannot be unbiased and keep the mask */
    COMET_REQUIRE(!p->keep_mask || p->rounding != COMET_ROUND_STOCHASTIC,
                  "params->keep_mask is set, which stochastic rounding does not allow");
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
