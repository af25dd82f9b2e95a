/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench norm: tables for people and one JSON object. */
#include "cmd/bench/bench_norm.h"

#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/machine.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "comet/version.h"

#ifdef COMET_HAVE_CUDA

static const double microseconds = 1000; /* in a millisecond */

static const char *const time_names[NORM_TIMES] = {"copy",     "statistics",      "forward",     "forward_stream",
                                                   "backward", "backward_stream", "decompress",  "decompress_epilogue",
                                                   "add",      "add_stream",      "add_streams", "add_backward"};

/* Quotients of two times: what keeping a stream costs or saves. */
static const struct {
    const char *name, *head;
    norm_time over, under;
} ratios[] = {{"statistics_over_copy", "s/copy", NORM_STATISTICS, NORM_COPY},
              {"forward_over_copy", "f/copy", NORM_FORWARD, NORM_COPY},
              {"forward_stream_over_forward", "fs/f", NORM_FORWARD_STREAM, NORM_FORWARD},
              {"backward_stream_over_backward", "bs/b", NORM_BACKWARD_STREAM, NORM_BACKWARD},
              {"epilogue_over_decompress", "de/d", NORM_DECOMPRESS_EPILOGUE, NORM_DECOMPRESS},
              {"add_over_copy", "a/copy", NORM_ADD, NORM_COPY},
              {"add_stream_over_copy", "as/cp", NORM_ADD_STREAM, NORM_COPY},
              {"add_streams_over_copy", "ass/cp", NORM_ADD_STREAMS, NORM_COPY},
              {"add_backward_over_copy", "ab/cp", NORM_ADD_BACKWARD, NORM_COPY}};
enum { RATIOS = sizeof ratios / sizeof *ratios };

static double ratio_of(const norm_result *r, int which) {
    return r->ms[ratios[which].over] / r->ms[ratios[which].under];
}

static double mib_of(const norm_result *r) {
    return (double)r->bytes_raw / (1 << 20);
}

static double stored_ratio(const norm_result *r) {
    return (double)r->bytes_raw / (double)r->bytes_resident;
}

static void print_head(void) {
    printf("%-40s %-6s %-5s %7s %5s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s %8s", "tensor", "layout", "dtype",
           "MiB", "bound", "ratio", "copy us", "stats", "fwd", "fwd+str", "bwd x", "bwd str", "decompr", "+epilog",
           "add", "add+u", "add+u+y", "bwd add");
    for (int i = 0; i < RATIOS; i++)
        printf(" %6s", ratios[i].head);
    printf("\n");
}

static void print_result(const norm_result *r) {
    char name[256];
    printf("%-40.40s %-6s %-5s %7.4g %5g", text_printable(r->name, name, sizeof name), layout_name(r->tensor.layout),
           dtype_option(r->tensor.dtype), mib_of(r), r->error_rel);
    bench_print_number(8, 2, stored_ratio(r));
    for (int i = 0; i < NORM_TIMES; i++)
        bench_print_number(8, 2, microseconds * r->ms[i]);
    for (int i = 0; i < RATIOS; i++)
        bench_print_number(6, 3, ratio_of(r, i));
    printf("\n");
    fflush(stdout);
}

static void print_notes(const norm_results *results) {
    printf(
        "\n%s. Times in microseconds a call, medians. stats: those of the batch and the tables that follow from them;\n"
        "fwd: y = relu(bn(x)) alone, fwd+str: and the stream of the\n"
        "normalised values; bwd: dx, dgamma and dbeta from x or from that stream; decompr: the stream to normalised\n"
        "values, +epilog: to the layer's output; add: y = relu(bn(x) + z) alone, and with the stream of the "
        "normalised\n"
        "values and that of y; bwd add: from those two streams, with the gradient of z.\n"
        "ratio: bytes of x over bytes of the stream in device memory.\n",
        results->facts.name);
}

static void put_result(json *j, const norm_result *r) {
    char key[64];
    json_open(j, NULL, '{', 0);
    json_string(j, "tensor", r->name);
    json_string(j, "layout", layout_name(r->tensor.layout));
    json_string(j, "dtype", dtype_option(r->tensor.dtype));
    json_integers(j, "shape", r->tensor.ndim, r->tensor.shape);
    json_number(j, "size_mib", r->size);
    json_number(j, "mib", mib_of(r));
    json_number(j, "error_rel", r->error_rel);
    json_integer(j, "bytes_raw", (int64_t)r->bytes_raw);
    json_integer(j, "bytes_resident", (int64_t)r->bytes_resident);
    json_number(j, "ratio_resident", stored_ratio(r));
    json_integer(j, "tiles", r->tiles);
    json_integer(j, "tiles_exact", r->tiles_exact);
    json_integer(j, "tiles_wide", r->tiles_wide);
    json_integer(j, "buffers", r->buffers);
    for (int i = 0; i < NORM_TIMES; i++) {
        snprintf(key, sizeof key, "%s_ms", time_names[i]);
        json_number(j, key, r->ms[i]);
    }
    for (int i = 0; i < RATIOS; i++)
        json_number(j, ratios[i].name, ratio_of(r, i));
    json_close(j, '}');
}

static void print_json(const bench_plan *plan, const norm_results *results) {
    json j = {.file = stdout};
    char text[512];
    json_open(&j, NULL, '{', 0);
    json_string(&j, "comet", comet_version_string());
    json_string(&j, "device", "cuda");
    json_string(&j, "machine", machine_text(text, sizeof text));
    json_string(&j, "gpu", results->facts.name);
    json_integer(&j, "multiprocessors", results->facts.multiprocessors);
    json_integer(&j, "l2_bytes", (int64_t)results->facts.l2);
    json_integer(&j, "runs", plan->runs);
    json_open(&j, "tensors", '[', 0);
    for (size_t i = 0; i < results->count; i++)
        put_result(&j, &results->items[i]);
    json_close(&j, ']');
    json_close(&j, '}');
}

int bench_norm(const bench_plan *plan, int as_json) {
    norm_results results = {0};
    if (!as_json)
        print_head();
    int answer = bench_norm_run(plan, as_json ? NULL : print_result, &results);
    if (answer == DONE && as_json)
        print_json(plan, &results);
    else if (answer == DONE)
        print_notes(&results);
    free(results.items);
    return answer;
}

#else

int bench_norm(const bench_plan *plan, int as_json) {
    (void)as_json;
    return bench_cuda_check(plan);
}

#endif
