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

int coder_spec_parse(const char *text, int keep_mask, coder_spec *spec) {
    *spec = (coder_spec){.kind = &coder_comet, .params = COMET_CODEC_PARAMS_INIT};
    snprintf(spec->label, sizeof spec->label, "%s", text);
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(spec->label, ":"), spec->label);
    if (strlen(text) >= sizeof spec->label || comet_codec_from_name(name, &spec->params.codec) != COMET_OK)
        return misuse("--codec: '%s' is not one of eb, zvc, mask, pool:K, group:B, dct:T, raw", text);
    spec->promise = promise_of(spec->params.codec);
    spec->params.keep_mask = keep_mask && spec->params.codec == COMET_CODEC_EB;
    const char *colon = strchr(text, ':');
    return colon ? parse_parameter(colon + 1, spec) : DONE;
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
    return comet_codec_decompress(stream, bytes, NULL, &c->exec, tensor);
}

const coder_kind coder_comet = {NULL, comet_capacity, comet_compress, comet_decompress, NULL};
