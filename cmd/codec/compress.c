/* SPDX-License-Identifier: Apache-2.0 */
/* comet compress: tensors of a .npy, .npz or raw file to Comet streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "cmd/common/workers.h"
#include "cmd/files/array.h"
#include "comet/comet.h"

static const char help[] =
    "Usage: comet compress [OPTION...] IN -o OUT\n"
    "\n"
    "Compresses a tensor (.npy or raw) to a Comet stream, or each tensor of an .npz to a stream in a zip archive.\n"
    "Without options every value comes back within 0.1 x the root mean square of the non-zeros, and zeros as zeros.\n"
    "\n"
    "Codec:\n"
    "  --codec C         eb (error-bounded, the default), zvc (lossless), mask (1 bit: x > 0), pool (k x k averages),\n"
    "                    group (2, 4 or 8 bits a value), dct (JPEG-ACT), raw\n"
    "  --error-rel F     eb: no value is off by more than F x rms of the non-zeros; 0.1 if neither is given\n"
    "  --error-abs F     eb: no value is off by more than F; 0 is lossless\n"
    "  --keep-mask       eb: non-zeros stay non-zero and keep their sign, too\n"
    "  --stochastic      eb, group: round up or down at random, without bias\n"
    "  --seed N          for --stochastic (0)\n"
    "  --pool-block K    pool: 1 to 64 (2)\n"
    "  --group-bits B    group: 2, 4 or 8 (4)\n"
    "  --checksum        let decompression detect any damage\n"
    "\n"
    "Input:\n"
    "  --layout L        nchw, nhwc or flat: where neighbours are; a tensor of 4 dimensions is nchw unless told\n"
    "  --dtype T         f32, f16, bf16 or u8: of a raw file; bf16 also says what 16-bit words of a .npy are\n"
    "  --shape N,C,H,W   of a raw file\n"
    "\n"
    "Other:\n"
    "  -o, --output OUT  where to write; never half a file, never over the input\n"
    "  --threads N       0 is one for each core (0)\n"
    "  --quiet           do not print the sizes\n"
    "\n"
    "Examples:\n"
    "  comet compress conv1.npy -o conv1.comet\n"
    "  comet compress --error-abs 0.001 --keep-mask relu1.npy -o relu1.comet\n"
    "  comet compress --codec group --group-bits 4 --stochastic --seed 7 acts.npz -o acts.zip\n"
    "  comet compress --dtype bf16 --shape 8,64,80,80 --layout nhwc acts.bin -o acts.comet\n";

typedef struct request {
    const char *codec, *error_abs, *error_rel, *seed, *pool_block, *group_bits, *layout, *dtype, *shape, *threads,
        *output;
    int keep_mask, stochastic, checksum, quiet, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--codec", OPTION_TEXT, &r->codec},
                            {"--error-abs", OPTION_TEXT, &r->error_abs},
                            {"--error-rel", OPTION_TEXT, &r->error_rel},
                            {"--keep-mask", OPTION_FLAG, &r->keep_mask},
                            {"--stochastic", OPTION_FLAG, &r->stochastic},
                            {"--seed", OPTION_TEXT, &r->seed},
                            {"--pool-block", OPTION_TEXT, &r->pool_block},
                            {"--group-bits", OPTION_TEXT, &r->group_bits},
                            {"--layout", OPTION_TEXT, &r->layout},
                            {"--dtype", OPTION_TEXT, &r->dtype},
                            {"--shape", OPTION_TEXT, &r->shape},
                            {"--checksum", OPTION_FLAG, &r->checksum},
                            {"--threads", OPTION_TEXT, &r->threads},
                            {"--output", OPTION_TEXT, &r->output},
                            {"-o", OPTION_TEXT, &r->output},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->operands.count != 1)
        return misuse(r->operands.count ? "more than one input" : "no input");
    return r->output ? DONE : misuse("no output: add -o OUT");
}

static int read_bound(const request *r, comet_codec_params *params) {
    if (r->error_abs && r->error_rel)
        return misuse("--error-abs and --error-rel exclude each other");
    params->bound = 0.1;
    params->bound_kind = r->error_abs ? COMET_BOUND_ABSOLUTE : COMET_BOUND_RELATIVE;
    if (r->error_abs)
        return parse_number("--error-abs", r->error_abs, &params->bound);
    return r->error_rel ? parse_number("--error-rel", r->error_rel, &params->bound) : DONE;
}

static int read_integer(const char *name, const char *text, int64_t low, int64_t high, int32_t *value) {
    int64_t number;
    if (!text)
        return DONE;
    if (parse_integer(name, text, low, high, &number) != DONE)
        return MISUSED;
    *value = (int32_t)number;
    return DONE;
}

/* An option that the codec would ignore is a misunderstanding, so it is refused. */
static int check_combination(const request *r, comet_codec codec) {
    int eb = codec == COMET_CODEC_EB, group = codec == COMET_CODEC_GROUP;
    if (!eb && (r->error_abs || r->error_rel))
        return misuse("only eb has an error bound; leave %s out", r->error_abs ? "--error-abs" : "--error-rel");
    if (!eb && r->keep_mask)
        return misuse("--keep-mask is for eb");
    if (!eb && !group && r->stochastic)
        return misuse("--stochastic is for eb and group");
    if (r->keep_mask && r->stochastic)
        return misuse("--keep-mask and --stochastic exclude each other: near 0 both cannot hold");
    if (r->seed && !r->stochastic)
        return misuse("--seed is for --stochastic");
    if (r->pool_block && codec != COMET_CODEC_POOL)
        return misuse("--pool-block is for --codec pool");
    if (r->group_bits && !group)
        return misuse("--group-bits is for --codec group");
    return DONE;
}

static int read_params(const request *r, comet_codec_params *params) {
    *params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    if (r->codec && comet_codec_from_name(r->codec, &params->codec) != COMET_OK)
        return misuse("--codec: '%s' is not one of eb, zvc, mask, pool, group, dct, raw", r->codec);
    if (check_combination(r, params->codec) != DONE || read_bound(r, params) != DONE)
        return MISUSED;
    if (read_integer("--pool-block", r->pool_block, 1, 64, &params->pool_block) != DONE ||
        read_integer("--group-bits", r->group_bits, 2, 8, &params->group_bits) != DONE)
        return MISUSED;
    if (params->group_bits != 2 && params->group_bits != 4 && params->group_bits != 8)
        return misuse("--group-bits is 2, 4 or 8");
    params->keep_mask = r->keep_mask;
    params->checksum = r->checksum;
    params->rounding = r->stochastic ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    return r->seed ? parse_seed("--seed", r->seed, &params->seed) : DONE;
}

/* What all tensors of a run share, and what they add up to. */
typedef struct compressor {
    comet_codec_params params;
    comet_codec_exec exec;
    array_format format;
    buffer stream; /* grows to the largest */
    size_t raw_bytes, stream_bytes;
    double bound;
} compressor;

static int cannot_compress(const blob *piece, const compressor *c, comet_status status) {
    const char *codec = comet_codec_name(c->params.codec);
    int needs_maps = c->params.codec == COMET_CODEC_POOL || c->params.codec == COMET_CODEC_DCT;
    return fail("%s cannot be compressed with %s: %s%s", piece->where, codec, why(status),
                needs_maps && status != COMET_ERROR_MEMORY ? "; it needs maps: is --layout right?" : "");
}

/* The stream is then in c->stream; *bytes of it. */
static int compress_blob(compressor *c, const blob *piece, size_t *bytes) {
    array a;
    if (array_from_blob(piece, &c->format, &a) != DONE)
        return FAILED;
    size_t capacity = 0;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_status status = comet_codec_max_bytes(&a.tensor, &c->params, &capacity);
    int answer = DONE;
    if (status == COMET_OK && capacity > c->stream.bytes) {
        buffer_give(&c->stream);
        answer = buffer_take(&c->stream, capacity);
    }
    if (status == COMET_OK && answer == DONE)
        status = comet_codec_compress(&a.tensor, &c->params, &c->exec, c->stream.data, capacity, &result);
    if (status != COMET_OK)
        answer = cannot_compress(piece, c, status);
    c->raw_bytes += array_bytes(&a);
    c->stream_bytes += result.bytes;
    c->bound = result.bound;
    *bytes = result.bytes;
    array_give(&a);
    return answer;
}

static int compress_plain(compressor *c, const bundle *in, output_file *out) {
    blob piece;
    size_t bytes;
    if (bundle_get(in, 0, &piece) != DONE || compress_blob(c, &piece, &bytes) != DONE)
        return FAILED;
    return output_write(out, c->stream.data, bytes);
}

static int compress_member(compressor *c, const bundle *in, size_t index, zip_writer *writer) {
    blob piece;
    size_t bytes;
    if (bundle_get(in, index, &piece) != DONE)
        return FAILED;
    int answer = compress_blob(c, &piece, &bytes);
    char *name = answer == DONE ? name_replace_ending(piece.name, ".npy", ".comet") : NULL;
    if (answer == DONE && !name)
        answer = fail_memory();
    if (answer == DONE)
        answer = zip_writer_add(writer, name, &(zip_chunk){c->stream.data, bytes}, 1);
    free(name);
    blob_give(&piece);
    return answer;
}

static int compress_archive(compressor *c, const bundle *in, output_file *out) {
    zip_writer writer;
    zip_writer_init(&writer, out);
    int answer = DONE;
    for (size_t i = 0; i < in->count && answer == DONE; i++)
        answer = compress_member(c, in, i, &writer);
    if (answer == DONE)
        answer = zip_writer_finish(&writer);
    zip_writer_free(&writer);
    return answer;
}

static void print_sizes(const compressor *c, const bundle *in, const char *path) {
    char raw[32], stored[32];
    printf("%s: %s -> %s", path, text_size(c->raw_bytes, raw, sizeof raw),
           text_size(c->stream_bytes, stored, sizeof stored));
    if (c->stream_bytes)
        printf(", ratio %.2f", (double)c->raw_bytes / (double)c->stream_bytes);
    if (in->is_archive)
        printf(", %zu tensor%s", in->count, in->count == 1 ? "" : "s");
    else if (c->params.codec == COMET_CODEC_EB)
        printf(", error bound %.6g", c->bound);
    printf("\n");
}

static int compress_file(compressor *c, const request *r) {
    const char *path = r->operands.items[0];
    bundle in;
    output_file out;
    if (bundle_open(&in, path, c->format.has_shape) != DONE)
        return FAILED;
    int answer = output_open(&out, r->output, path);
    if (answer == DONE) {
        answer = in.is_archive ? compress_archive(c, &in, &out) : compress_plain(c, &in, &out);
        if (answer == DONE)
            answer = output_commit(&out);
        if (answer != DONE)
            output_abandon(&out);
    }
    if (answer == DONE && !r->quiet)
        print_sizes(c, &in, path);
    bundle_close(&in);
    return answer;
}

static int run(const request *r) {
    compressor c = {.exec = COMET_CODEC_EXEC_INIT};
    int answer = read_params(r, &c.params);
    if (answer == DONE)
        answer = array_format_parse(&c.format, r->dtype, r->layout, r->shape);
    if (answer == DONE)
        answer = workers_new(r->threads, &c.exec.threads);
    if (answer == DONE)
        answer = compress_file(&c, r);
    comet_threads_free(c.exec.threads);
    buffer_give(&c.stream);
    return answer;
}

int command_compress(int argc, char **argv) {
    request r = {0};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE)
        answer = run(&r);
    text_array_free(&r.operands);
    return answer;
}
