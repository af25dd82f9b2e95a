/* SPDX-License-Identifier: Apache-2.0 */
/* comet inspect: what a file of streams, or of tensors, holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "cmd/files/array.h"
#include "cmd/files/values.h"
#include "comet/comet.h"

static const char help[] =
    "Usage: comet inspect [OPTION...] IN\n"
    "\n"
    "Says what is in a Comet stream, in a zip archive of streams, or in a file of tensors (.npy, .npz, raw).\n"
    "Of a stream the header and the table are read and checked, not the values.\n"
    "\n"
    "  --json            one JSON object instead of a table\n"
    "  --dtype T, --shape N,C,H,W\n"
    "                    what a raw file of values holds, as for 'comet compress'\n"
    "\n"
    "Columns for streams: tiles exact, wide, empty, predicted are shares of its tiles (1,024 values each):\n"
    "stored exactly, with 16-bit codes, all zero, as differences to neighbours.\n"
    "\n"
    "Examples:\n"
    "  comet inspect conv1.comet\n"
    "  comet inspect acts.npz\n"
    "  comet inspect --json acts.zip\n";

typedef struct request {
    const char *dtype, *shape;
    int json, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--json", OPTION_FLAG, &r->json},   {"--dtype", OPTION_TEXT, &r->dtype},
                            {"--shape", OPTION_TEXT, &r->shape}, {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},       {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->operands.count != 1)
        return misuse(r->operands.count ? "more than one input" : "no input");
    return DONE;
}

/* Where the lines go: a table, or JSON. */
typedef struct printer {
    json *json; /* NULL: a table */
    int lines;
    int name_width;
} printer;

static void flag_names(const comet_codec_info *info, char *text, size_t capacity) {
    snprintf(text, capacity, "%s%s%s%s", info->keep_mask ? " keep-mask" : "", info->stochastic ? " stochastic" : "",
             info->has_grid ? " grid" : "", info->has_checksum ? " checksum" : "");
}

static double raw_bytes(const comet_codec_info *info) {
    return (double)info->count * (double)comet_dtype_size(info->dtype);
}

static void stream_to_json(json *j, const char *name, const comet_codec_info *info) {
    json_open(j, NULL, '{', 0);
    json_string(j, "name", name);
    json_string(j, "codec", comet_codec_name(info->codec));
    json_integer(j, "parameter", info->parameter);
    json_integer(j, "version", info->version);
    json_string(j, "dtype", dtype_option(info->dtype));
    json_string(j, "layout", layout_name(info->layout));
    json_integers(j, "shape", info->ndim, info->shape);
    json_integer(j, "count", info->count);
    json_number(j, "bytes_raw", raw_bytes(info));
    json_integer(j, "bytes_stored", (int64_t)info->bytes);
    json_number(j, "ratio", raw_bytes(info) / (double)info->bytes);
    json_number(j, "bound", info->bound);
    json_bool(j, "keep_mask", info->keep_mask);
    json_bool(j, "stochastic", info->stochastic);
    json_bool(j, "grid", info->has_grid);
    json_bool(j, "checksum", info->has_checksum);
    json_integer(j, "tiles", info->tiles);
    json_integer(j, "tiles_exact", info->tiles_exact);
    json_integer(j, "tiles_wide", info->tiles_wide);
    json_integer(j, "tiles_empty", info->tiles_empty);
    json_integer(j, "tiles_predicted", info->tiles_predicted);
    json_close(j, '}');
}

static void print_share(int64_t part, int64_t all) {
    if (all)
        printf(" %6.1f%%", 100.0 * (double)part / (double)all);
    else
        printf(" %7s", "-");
}

static void print_stream(printer *p, const char *name, const comet_codec_info *info) {
    if (p->lines++ == 0)
        printf("%-*s %-7s %-5s %-6s %-18s %11s %8s %10s %8s %7s %7s %7s %7s\n", p->name_width, "stream", "codec",
               "dtype", "layout", "shape", "stored", "ratio", "bound", "tiles", "exact", "wide", "empty", "predict");
    char shape[192], size[32], flags[64], codec[32];
    snprintf(codec, sizeof codec, info->parameter ? "%s:%d" : "%s", comet_codec_name(info->codec), info->parameter);
    flag_names(info, flags, sizeof flags);
    printf("%-*s %-7s %-5s %-6s %-18s %11s %8.2f", p->name_width, name, codec, dtype_option(info->dtype),
           layout_name(info->layout), text_shape(info->ndim, info->shape, shape, sizeof shape),
           text_size(info->bytes, size, sizeof size), raw_bytes(info) / (double)info->bytes);
    if (info->codec == COMET_CODEC_EB)
        printf(" %10.4g", info->bound);
    else
        printf(" %10s", "-");
    printf(" %8lld", (long long)info->tiles);
    print_share(info->tiles_exact, info->tiles);
    print_share(info->tiles_wide, info->tiles);
    print_share(info->tiles_empty, info->tiles);
    print_share(info->tiles_predicted, info->tiles);
    printf("%s\n", flags);
}

static int inspect_stream(printer *p, const blob *piece) {
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    comet_status status = comet_codec_inspect(piece->data, piece->bytes, &info);
    if (status != COMET_OK)
        return fail("%s is not a good Comet stream: %s", piece->where, why(status));
    char name[256];
    if (p->json)
        stream_to_json(p->json, piece->name, &info);
    else
        print_stream(p, text_printable(piece->name, name, sizeof name), &info);
    return DONE;
}

static void tensor_to_json(json *j, const char *name, const array *a, const values_summary *summary) {
    json_open(j, NULL, '{', 0);
    json_string(j, "name", name);
    json_string(j, "dtype", dtype_option(a->tensor.dtype));
    json_integers(j, "shape", a->tensor.ndim, a->tensor.shape);
    json_integer(j, "count", summary->count);
    json_integer(j, "bytes", (int64_t)array_bytes(a));
    json_integer(j, "zeros", summary->zeros);
    json_integer(j, "nonfinite", summary->nonfinite);
    json_number(j, "rms_nonzero", summary->rms);
    json_number(j, "min", summary->min);
    json_number(j, "max", summary->max);
    json_close(j, '}');
}

static void print_tensor(printer *p, const char *name, const array *a, const values_summary *summary) {
    if (p->lines++ == 0)
        printf("%-*s %-5s %-18s %11s %7s %11s %11s %11s %10s\n", p->name_width, "tensor", "dtype", "shape", "size",
               "zeros", "rms nonzero", "min", "max", "not finite");
    char shape[192], size[32];
    printf("%-*s %-5s %-18s %11s", p->name_width, name, dtype_option(a->tensor.dtype),
           text_shape(a->tensor.ndim, a->tensor.shape, shape, sizeof shape),
           text_size(array_bytes(a), size, sizeof size));
    print_share(summary->zeros, summary->count);
    printf(" %11.4g %11.4g %11.4g %10lld\n", summary->rms, summary->min, summary->max, (long long)summary->nonfinite);
}

static int inspect_tensor(printer *p, const blob *piece, const array_format *format) {
    array a;
    buffer packed;
    values_summary summary;
    if (array_from_blob(piece, format, &a) != DONE)
        return FAILED;
    int answer = buffer_take(&packed, array_bytes(&a));
    if (answer == DONE) {
        char name[256];
        values_pack(&a.tensor, packed.data);
        values_summarise(a.tensor.dtype, packed.data, comet_tensor_count(&a.tensor), &summary);
        if (p->json)
            tensor_to_json(p->json, piece->name, &a, &summary);
        else
            print_tensor(p, text_printable(piece->name, name, sizeof name), &a, &summary);
    }
    buffer_give(&packed);
    array_give(&a);
    return answer;
}

static int is_stream(const blob *piece) {
    return piece->bytes >= 4 && memcmp(piece->data, "CMET", 4) == 0;
}

static int holds_streams(const bundle *in) {
    if (in->is_archive)
        return in->count > 0 && file_has_extension(in->archive.entries[0].name, ".comet");
    return is_stream(&(blob){.data = in->file.data, .bytes = in->file.bytes});
}

static int inspect_pieces(printer *p, const bundle *in, const array_format *format) {
    int streams = !format->has_shape && holds_streams(in), answer = DONE;
    if (p->json)
        json_open(p->json, streams ? "streams" : "tensors", '[', 0);
    for (size_t i = 0; i < in->count && answer == DONE; i++) {
        blob piece;
        answer = bundle_get(in, i, &piece);
        if (answer == DONE)
            answer = streams ? inspect_stream(p, &piece) : inspect_tensor(p, &piece, format);
        blob_give(&piece);
    }
    if (p->json)
        json_close(p->json, ']');
    return answer;
}

static int name_width(const bundle *in) {
    size_t width = strlen(in->stem);
    for (size_t i = 0; i < in->archive.count; i++) {
        size_t length = strlen(in->archive.entries[i].name);
        width = length > width ? length : width;
    }
    return width < 6 ? 6 : width > 40 ? 40 : (int)width;
}

static int run(const request *r) {
    array_format format;
    bundle in;
    int answer = array_format_parse(&format, r->dtype, NULL, r->shape);
    if (answer == DONE)
        answer = bundle_open(&in, r->operands.items[0], format.has_shape);
    if (answer != DONE)
        return answer;
    json j = {.file = stdout};
    printer p = {.json = r->json ? &j : NULL, .name_width = name_width(&in)};
    if (p.json) {
        json_open(p.json, NULL, '{', 0);
        json_string(p.json, "file", in.path);
    }
    answer = inspect_pieces(&p, &in, &format);
    if (p.json)
        json_close(p.json, '}');
    bundle_close(&in);
    return answer;
}

int command_inspect(int argc, char **argv) {
    request r = {0};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE)
        answer = run(&r);
    text_array_free(&r.operands);
    return answer;
}
