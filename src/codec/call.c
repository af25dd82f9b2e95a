/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/call.h"

#include <string.h>

#include "base/fail.h"
#include "base/sized.h"

const codec_vtable *const comet_codecs[CODEC_COUNT] = {
    [COMET_CODEC_RAW] = &comet_codec_raw,   [COMET_CODEC_EB] = &comet_codec_eb,
    [COMET_CODEC_ZVC] = &comet_codec_zvc,   [COMET_CODEC_MASK] = &comet_codec_mask,
    [COMET_CODEC_POOL] = &comet_codec_pool, [COMET_CODEC_GROUP] = &comet_codec_group,
    [COMET_CODEC_DCT] = &comet_codec_dct,
};

comet_status comet_call_params(comet_codec_params *params, const comet_codec_params *given) {
    static const comet_codec_params defaults = COMET_CODEC_PARAMS_INIT;
    COMET_REQUIRE(given, "params is NULL");
    return comet_sized_read(params, sizeof *params, given, &defaults, "params");
}

comet_status comet_call_exec(comet_codec_exec *exec, const comet_codec_exec *given) {
    static const comet_codec_exec defaults = COMET_CODEC_EXEC_INIT;
    return comet_sized_read(exec, sizeof *exec, given, &defaults, "exec");
}

comet_status comet_call_choices(const comet_codec_params *p) {
    COMET_REQUIRE((unsigned)p->codec < CODEC_COUNT, "params->codec is %d, which is none", (int)p->codec);
    COMET_REQUIRE((unsigned)p->bound_kind <= COMET_BOUND_RELATIVE, "params->bound_kind is %d, which is none",
                  (int)p->bound_kind);
    COMET_REQUIRE((unsigned)p->rounding <= COMET_ROUND_STOCHASTIC, "params->rounding is %d, which is none",
                  (int)p->rounding);
    COMET_REQUIRE((unsigned)p->stats_kind <= COMET_STATS_NONE, "params->stats_kind is %d, which is none",
                  (int)p->stats_kind);
    return COMET_OK;
}

void comet_call_header(const comet_tensor *tensor, const comet_codec_params *p, stream_header *h) {
    *h = (stream_header){.codec = p->codec,
                         .dtype = tensor->dtype,
                         .layout = tensor->layout,
                         .ndim = tensor->ndim,
                         .count = comet_tensor_count(tensor),
                         .flags = p->checksum ? STREAM_CHECKSUM : 0};
    memcpy(h->shape, tensor->shape, (size_t)tensor->ndim * sizeof *h->shape);
}

comet_status comet_call_stream(const stream_header *h) {
    const codec_vtable *codec = comet_codecs[h->codec];
    comet_tensor tensor = {.dtype = h->dtype, .layout = h->layout, .ndim = h->ndim};
    memcpy(tensor.shape, h->shape, sizeof tensor.shape);
    return codec->check_stream ? codec->check_stream(h, &tensor) : COMET_OK;
}
