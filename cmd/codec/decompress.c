/* SPDX-License-Identifier: Apache-2.0 */
/* comet decompress: Comet streams back to a .npy, .npz or raw file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/workers.h"
#include "cmd/files/array.h"
#include "cmd/files/npy.h"
#include "comet/comet.h"

static const char help[] =
    "Usage: comet decompress [OPTION...] IN -o OUT\n"
    "\n"
    "Decompresses what 'comet compress' wrote: a stream to a tensor, a zip archive of streams to an .npz.\n"
    "The ending of OUT says how: .npy, .npz, anything else is raw values in row-major order.\n"
    "numpy has no bfloat16: such a tensor becomes a .npy of 16-bit words (uint16).\n"
    "\n"
    "  -o, --output OUT  where to write; never half a file, never over the input\n"
    "  --threads N       0 is one for each core (0)\n"
    "\n"
    "Examples:\n"
    "  comet decompress conv1.comet -o conv1.npy\n"
    "  comet decompress acts.zip -o acts.npz\n"
    "  comet decompress acts.comet -o acts.bin\n";

typedef struct request {
    const char *threads, *output;
    int help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--threads", OPTION_TEXT, &r->threads}, {"--output", OPTION_TEXT, &r->output},
                            {"-o", OPTION_TEXT, &r->output},         {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},           {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->operands.count != 1)
        return misuse(r->operands.count ? "more than one input" : "no input");
    return r->output ? DONE : misuse("no output: add -o OUT");
}

/* No codec does better than pool with blocks of 64 x 64. A larger claim is a lie that would only cost memory. */
enum { MAX_RATIO = 64 * 64 };

static int check_stream(const blob *piece, comet_codec_info *info) {
    comet_status status = comet_codec_inspect(piece->data, piece->bytes, info);
    if (status != COMET_OK)
        return fail("%s is not a good Comet stream: %s", piece->where, why(status));
    if (info->bytes != piece->bytes)
        return fail("%s has %zu bytes behind its stream", piece->where, piece->bytes - info->bytes);
    if ((size_t)info->count * comet_dtype_size(info->dtype) / MAX_RATIO > info->bytes)
        return fail("%s is not a good Comet stream: it is too short for its shape", piece->where);
    if (info->has_grid)
        return fail("%s has a grid on thresholds, which only the program that wrote it knows", piece->where);
    return DONE;
}

static int decompress_blob(const blob *piece, const comet_codec_exec *exec, array *a) {
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    *a = (array){0};
    if (check_stream(piece, &info) != DONE || array_new(a, info.dtype, info.layout, info.ndim, info.shape) != DONE)
        return FAILED;
    comet_status status = comet_codec_decompress(piece->data, piece->bytes, NULL, exec, &a->tensor);
    if (status == COMET_OK)
        return DONE;
    array_give(a);
    return fail("%s cannot be decompressed: %s", piece->where, why(status));
}

static size_t npy_header_of(const array *a, uint8_t header[NPY_HEADER_MAX]) {
    return npy_format(a->tensor.dtype, a->tensor.ndim, a->tensor.shape, header);
}

static int write_plain(const array *a, output_file *out) {
    uint8_t header[NPY_HEADER_MAX];
    if (file_has_extension(out->given, ".npy") && output_write(out, header, npy_header_of(a, header)) != DONE)
        return FAILED;
    return output_write(out, a->tensor.data, array_bytes(a));
}

static int decompress_plain(const bundle *in, const comet_codec_exec *exec, output_file *out) {
    blob piece;
    array a;
    if (bundle_get(in, 0, &piece) != DONE || decompress_blob(&piece, exec, &a) != DONE)
        return FAILED;
    int answer = write_plain(&a, out);
    if (answer == DONE && a.tensor.dtype == COMET_BF16 && file_has_extension(out->given, ".npy"))
        note("numpy has no bfloat16: the values are in '%s' as uint16 bit patterns", out->given);
    array_give(&a);
    return answer;
}

static int write_member(zip_writer *writer, const char *stream_name, const array *a) {
    uint8_t header[NPY_HEADER_MAX];
    zip_chunk chunks[] = {{header, npy_header_of(a, header)}, {a->tensor.data, array_bytes(a)}};
    char *name = name_replace_ending(stream_name, ".comet", ".npy");
    int answer = name ? zip_writer_add(writer, name, chunks, 2) : fail_memory();
    free(name);
    return answer;
}

static int decompress_member(const bundle *in, size_t index, const comet_codec_exec *exec, zip_writer *writer) {
    blob piece;
    array a;
    if (bundle_get(in, index, &piece) != DONE)
        return FAILED;
    int answer = decompress_blob(&piece, exec, &a);
    if (answer == DONE)
        answer = write_member(writer, piece.name, &a);
    array_give(&a);
    blob_give(&piece);
    return answer;
}

static int decompress_archive(const bundle *in, const comet_codec_exec *exec, output_file *out) {
    zip_writer writer;
    zip_writer_init(&writer, out);
    int answer = DONE;
    for (size_t i = 0; i < in->count && answer == DONE; i++)
        answer = decompress_member(in, i, exec, &writer);
    if (answer == DONE)
        answer = zip_writer_finish(&writer);
    zip_writer_free(&writer);
    return answer;
}

static int check_ending(const bundle *in, const char *output_path) {
    int npz = file_has_extension(output_path, ".npz");
    if (in->is_archive && !npz)
        return misuse("'%s' holds several streams: the name for -o must end in .npz", in->path);
    if (!in->is_archive && npz)
        return misuse("'%s' is one stream: the name for -o ends in .npy, or in anything else for raw values", in->path);
    return DONE;
}

static int decompress_bundle(const bundle *in, const comet_codec_exec *exec, const char *output_path) {
    output_file out;
    int answer = check_ending(in, output_path);
    if (answer != DONE)
        return answer;
    if (output_open(&out, output_path, in->path) != DONE)
        return FAILED;
    answer = in->is_archive ? decompress_archive(in, exec, &out) : decompress_plain(in, exec, &out);
    if (answer == DONE)
        answer = output_commit(&out);
    if (answer != DONE)
        output_abandon(&out);
    return answer;
}

static int run(const request *r) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    bundle in;
    int answer = workers_new(r->threads, &exec.threads);
    if (answer == DONE)
        answer = bundle_open(&in, r->operands.items[0], 0);
    if (answer == DONE) {
        answer = decompress_bundle(&in, &exec, r->output);
        bundle_close(&in);
    }
    comet_threads_free(exec.threads);
    return answer;
}

int command_decompress(int argc, char **argv) {
    request r = {0};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE)
        answer = run(&r);
    text_array_free(&r.operands);
    return answer;
}
