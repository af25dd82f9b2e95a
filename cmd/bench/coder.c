/* SPDX-License-Identifier: Apache-2.0 */
/* Names of coders, and Comet's own. */
#include "cmd/bench/coder.h"

#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"

static check_kind promise_of(comet_codec codec) {
    if (codec == COMET_CODEC_EB)
        return CHECK_BOUNDED;
    return codec == COMET_CODEC_ZVC || codec == COMET_CODEC_RAW ? CHECK_EXACT : CHECK_NOTHING;
}

/* The number behind the colon, for the codecs that have one. */
static int parse_parameter(const char *text, coder_spec *spec) {
    comet_codec_params *params = &spec->params;
    int64_t value;
    int group = params->codec == COMET_CODEC_GROUP, dct = params->codec == COMET_CODEC_DCT;
    if (!group && !dct && params->codec != COMET_CODEC_POOL)
        return misuse("--codec: %s takes no number, not ':%s'", comet_codec_name(params->codec), text);
    if (parse_integer("--codec", text, dct ? 0 : group ? 2 : 1, dct ? 1 : group ? 8 : 64, &value) != DONE)
        return MISUSED;
    if (group && value != 2 && value != 4 && value != 8)
        return misuse("--codec: group takes 2, 4 or 8 bits");
    *(group ? &params->group_bits : dct ? &params->dct_table : &params->pool_block) = (int32_t)value;
    return DONE;
}

int coder_spec_parse(const char *text, coder_mode mode, coder_spec *spec) {
    *spec = (coder_spec){.kind = &coder_comet, .params = COMET_CODEC_PARAMS_INIT};
    snprintf(spec->label, sizeof spec->label, "%s", text);
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(spec->label, ":"), spec->label);
    if (strlen(text) >= sizeof spec->label || comet_codec_from_name(name, &spec->params.codec) != COMET_OK)
        return misuse("--codec: '%s' is not one of eb, zvc, mask, pool:K, group:B, dct:T, raw", text);
    spec->promise = promise_of(spec->params.codec);
    spec->mode = spec->params.codec == COMET_CODEC_EB ? mode : CODER_NEAREST;
    const char *colon = strchr(text, ':');
    return colon ? parse_parameter(colon + 1, spec) : DONE;
}

static const char *const mode_names[] = {
    [CODER_NEAREST] = "nearest", [CODER_KEEP] = "keep", [CODER_GRID] = "grid", [CODER_TRAINING] = "training"};

int coder_mode_parse(const char *text, coder_mode *mode) {
    for (size_t i = 0; i < sizeof mode_names / sizeof *mode_names; i++)
        if (strcmp(text, mode_names[i]) == 0) {
            *mode = (coder_mode)i;
            return DONE;
        }
    return misuse("--mode: '%s' is not one of training, nearest, keep, grid", text);
}

const char *coder_mode_name(coder_mode mode) {
    return mode_names[mode];
}

coder_mode coder_mode_for(const coder_spec *spec, const values_summary *values) {
    const double least_zeros = 0.05; /* of all values: fewer come by chance, not from a ReLU */
    int by_relu = values->min >= 0 && (double)values->zeros >= least_zeros * (double)values->count;
    if (spec->mode != CODER_TRAINING)
        return spec->mode;
    return by_relu ? CODER_KEEP : CODER_GRID;
}

int coder_spec_parse_peer(const char *text, coder_spec *spec) {
    int zfp = strcmp(text, "zfp") == 0;
    if (!zfp && strcmp(text, "zstd") != 0)
        return misuse("--peers: '%s' is not one of zfp, zstd", text);
    *spec = (coder_spec){.kind = zfp ? coder_zfp : coder_zstd, .params = COMET_CODEC_PARAMS_INIT};
    spec->promise = zfp ? CHECK_BOUNDED : CHECK_EXACT;
    snprintf(spec->label, sizeof spec->label, "%s", text);
    return DONE;
}

void coder_init(coder *c, const coder_spec *spec, double bound, int relative, comet_threads *threads, comet_isa isa) {
    *c = (coder){.spec = spec, .params = spec->params, .exec = COMET_CODEC_EXEC_INIT, .bound = bound};
    if (spec->promise == CHECK_BOUNDED) {
        c->params.bound = bound;
        c->params.bound_kind = relative ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE;
    }
    c->exec.threads = threads;
    c->exec.isa = isa;
}

void coder_set_mode(coder *c, coder_mode mode, const comet_codec_grid *grid) {
    c->params.keep_mask = mode == CODER_KEEP;
    c->params.grid = mode == CODER_GRID ? grid : NULL;
}

void coder_free(coder *c) {
    if (c->spec && c->spec->kind->release)
        c->spec->kind->release(c);
    buffer_give(&c->workspace);
    *c = (coder){0};
}

static comet_status comet_capacity(coder *c, const comet_tensor *tensor, size_t *bytes) {
    size_t workspace;
    comet_status status = comet_codec_compress_workspace(tensor, &c->params, &c->exec, &workspace);
    if (status != COMET_OK)
        return status;
    if (!buffer_reserve(&c->workspace, workspace))
        return COMET_ERROR_MEMORY;
    c->exec.workspace = c->workspace.data;
    c->exec.workspace_bytes = c->workspace.bytes;
    return comet_codec_max_bytes(tensor, &c->params, bytes);
}

static comet_status comet_compress(coder *c, const comet_tensor *tensor, void *stream, size_t capacity, size_t *bytes) {
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_status status = comet_codec_compress(tensor, &c->params, &c->exec, stream, capacity, &result);
    *bytes = status == COMET_OK ? result.bytes : 0;
    return status;
}

static comet_status comet_decompress(coder *c, const void *stream, size_t bytes, const comet_tensor *tensor) {
    return comet_codec_decompress(stream, bytes, c->params.grid, &c->exec, tensor);
}

const coder_kind coder_comet = {NULL, comet_capacity, comet_compress, comet_decompress, NULL};
