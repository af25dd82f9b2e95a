/* SPDX-License-Identifier: Apache-2.0 */
/* Results from a GPU as tables for people and as one JSON object. */
#include <math.h>
#include <stdio.h>

#include "cmd/bench/bench_cuda.h"
#include "cmd/common/machine.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "comet/version.h"

static const double microseconds = 1000; /* in a millisecond */

static void print_head(const char *first, int width, const char *second, const char *third) {
    printf("%-*s %-8s %-6s %-5s %7s %5s %8s %8s %9s %6s %6s %8s %8s %8s %6s%s %6s%s %9s\n", width, first, "codec",
           "layout", "dtype", "MiB", "bound", "ratio", "resident", "err/bound", "broken", "zeros", "copy us",
           "compr us", "decompr", "c/copy", second, "d/copy", third, "d+bn/copy");
}

void bench_cuda_print_head(void) {
    print_head("tensor", 40, "", "");
}

static void print_key(const bench_result *r, double mib) {
    char label[32];
    printf(" %-8s %-6s %-5s %7.4g", bench_label(r, label, sizeof label), layout_name(r->tensor.layout),
           dtype_option(r->tensor.dtype), mib);
    if (isnan(r->error_rel))
        printf(" %5s", "-");
    else
        printf(" %5g", r->error_rel);
}

static void print_times(const cuda_times *ms) {
    bench_print_number(8, 2, microseconds * ms->copy);
    bench_print_number(8, 2, microseconds * ms->compress);
    bench_print_number(8, 2, microseconds * ms->decompress);
}

static double mib_of(const cuda_result *r) {
    return (double)r->base.bytes_raw / (1 << 20);
}

static double ratio_of(const cuda_result *r, size_t bytes) {
    return (double)r->base.bytes_raw / (double)bytes;
}

void bench_cuda_print_result(const cuda_result *r) {
    const check_report *check = &r->base.check;
    char name[256];
    printf("%-40.40s", text_printable(r->base.name, name, sizeof name));
    print_key(&r->base, mib_of(r));
    bench_print_number(8, 2, ratio_of(r, r->base.bytes_stored));
    bench_print_number(8, 2, ratio_of(r, r->bytes_resident));
    bench_print_number(9, 4, check->max_error_over_bound);
    bench_print_count(6, r->base.coder->promise != CHECK_NOTHING, check->violations + check->mask_broken);
    bench_print_count(6, r->base.mode != CODER_GRID, check->zeros_broken);
    print_times(&r->ms);
    bench_print_number(6, 3, cuda_compress_over_copy(r));
    bench_print_number(6, 3, cuda_decompress_over_copy(r));
    bench_print_number(9, 3, cuda_decompress_bn_over_copy(r));
    printf("%s%s\n", r->stream_as_cpu == 0 ? "  the stream is not the CPU's" : "",
           r->stats_as_cpu == 0 ? "  the statistics are not the CPU's" : "");
    fflush(stdout);
}

static void print_group(const cuda_group *g) {
    const bench_result *e = &g->example->base;
    char tensors[32];
    snprintf(tensors, sizeof tensors, "%d tensors", g->tensors);
    printf("%-12s", tensors);
    print_key(e, g->example->size);
    bench_print_number(8, 2, g->ratio);
    bench_print_number(8, 2, g->ratio_resident);
    bench_print_number(9, 4, g->max_error_over_bound);
    bench_print_count(6, e->coder->promise != CHECK_NOTHING, g->violations + g->mask_broken);
    bench_print_count(6, g->mode != CODER_GRID, g->zeros_broken);
    print_times(&g->ms);
    bench_print_number(6, 3, g->compress.median);
    bench_print_number(6, 3, g->compress.worst);
    bench_print_number(6, 3, g->decompress.median);
    bench_print_number(6, 3, g->decompress.worst);
    bench_print_number(9, 3, g->decompress_bn.median);
    printf("%s\n", g->differ ? "  not all as on the CPU" : "");
}

static void print_quotient(const char *what, const cuda_quotient *q) {
    char name[256];
    if (q->worst_name)
        printf("  %s %.3f (worst %.3f: %s)", what, q->median, q->worst,
               text_printable(q->worst_name, name, sizeof name));
}

/* The whole of a training step's tensors, in a line. */
static void print_training(const cuda_group *g) {
    const bench_result *e = &g->example->base;
    printf("%3d tensors %-4s %-4s %7.4g MiB at %-5g", g->tensors, layout_name(e->tensor.layout),
           dtype_option(e->tensor.dtype), g->example->size, e->error_rel);
    print_quotient("c/copy", &g->compress);
    print_quotient("d/copy", &g->decompress);
    print_quotient("d+bn/copy", &g->decompress_bn);
    printf("%s\n", g->differ ? "  not all as on the CPU" : "");
}

static void print_all_training(const cuda_summary *summary) {
    int lines = 0;
    for (size_t i = 0; i < summary->count; i++) {
        if (summary->items[i].mode != CODER_TRAINING)
            continue;
        if (lines++ == 0)
            printf("\nAs in training: eb+mask and eb+grid together (medians over tensors, and the slowest tensor)\n");
        print_training(&summary->items[i]);
    }
}

void bench_cuda_print_summary(const cuda_results *results, const cuda_summary *summary) {
    printf("\nSummary, %s (ratios: geometric means; error: worst; broken: sums; times and quotients: medians, then the "
           "worst tensor)\n",
           results->facts.name);
    print_head("", 12, "  worst", "  worst");
    for (size_t i = 0; i < summary->count; i++)
        if (summary->items[i].mode != CODER_TRAINING)
            print_group(&summary->items[i]);
    print_all_training(summary);
    printf(
        "\n"
        "MiB: what was asked for, 0 is tensors as they are. bound: in units of the rms of the non-zeros, with +grid "
        "of\n"
        "the normalised values, which is 1. resident: the ratio in device memory, where streams have gaps; ratio:\n"
        "without. broken: values beyond the bound (with +mask also non-zeros lost or turned, with +grid values on the\n"
        "wrong side of their threshold). zeros: zeros that came back as something else. Times in microseconds a call;\n"
        "c/copy, d/copy: time to compress and decompress over that of a device-to-device copy of the same tensor;\n"
        "d+bn/copy: to decompress to the output of a batch norm with a ReLU.\n");
}

/* 13020 is "13.2". */
static void put_cuda_version(json *j, const char *key, int version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    json_string(j, key, text);
}

static void put_machine(json *j, const cuda_facts *facts) {
    char text[512];
    json_string(j, "machine", machine_text(text, sizeof text));
    json_string(j, "gpu", facts->name);
    snprintf(text, sizeof text, "%d.%d", facts->compute / 10, facts->compute % 10);
    json_string(j, "compute_capability", text);
    json_integer(j, "multiprocessors", facts->multiprocessors);
    json_integer(j, "memory_bytes", (int64_t)facts->memory);
    json_integer(j, "l2_bytes", (int64_t)facts->l2);
    if (*machine_nvidia_driver(text, sizeof text))
        json_string(j, "driver", text);
    else
        json_number(j, "driver", NAN);
    put_cuda_version(j, "driver_cuda", facts->driver_cuda);
    put_cuda_version(j, "cuda", facts->runtime_cuda);
}

static void put_times(json *j, const cuda_times *ms) {
    json_number(j, "copy_ms", ms->copy);
    json_number(j, "compress_ms", ms->compress);
    json_number(j, "decompress_ms", ms->decompress);
    json_number(j, "decompress_bn_ms", ms->decompress_bn);
}

static void put_answer(json *j, const char *key, int value) {
    if (value < 0)
        json_number(j, key, NAN);
    else
        json_bool(j, key, value);
}

static void put_result(json *j, const cuda_result *r) {
    json_open(j, NULL, '{', 0);
    bench_json_result(j, &r->base);
    json_string(j, "device", "cuda");
    json_number(j, "size_mib", r->size);
    json_number(j, "mib", mib_of(r));
    json_integer(j, "bytes_resident", (int64_t)r->bytes_resident);
    json_number(j, "ratio_resident", ratio_of(r, r->bytes_resident));
    put_answer(j, "stream_as_cpu", r->stream_as_cpu);
    put_answer(j, "stats_as_cpu", r->stats_as_cpu);
    json_integer(j, "tiles", r->tiles);
    json_integer(j, "tiles_exact", r->tiles_exact);
    json_integer(j, "tiles_wide", r->tiles_wide);
    json_integer(j, "buffers", r->buffers);
    json_number(j, "l2_turns", r->l2_turns);
    put_times(j, &r->ms);
    json_number(j, "compress_over_copy", cuda_compress_over_copy(r));
    json_number(j, "decompress_over_copy", cuda_decompress_over_copy(r));
    json_number(j, "decompress_bn_over_copy", cuda_decompress_bn_over_copy(r));
    json_close(j, '}');
}

/* "compress": compress_over_copy, compress_over_copy_worst, and worst_compress, the name of that tensor. */
static void put_quotient(json *j, const char *what, const cuda_quotient *q) {
    char key[64];
    snprintf(key, sizeof key, "%s_over_copy", what);
    json_number(j, key, q->median);
    snprintf(key, sizeof key, "%s_over_copy_worst", what);
    json_number(j, key, q->worst);
    snprintf(key, sizeof key, "worst_%s", what);
    if (q->worst_name)
        json_string(j, key, q->worst_name);
    else
        json_null(j, key);
}

static void put_group(json *j, const cuda_group *g) {
    const bench_result *e = &g->example->base;
    json_open(j, NULL, '{', 0);
    bench_json_key(j, e, g->mode);
    json_number(j, "size_mib", g->example->size);
    json_integer(j, "tensors", g->tensors);
    json_number(j, "ratio", g->ratio);
    json_number(j, "ratio_resident", g->ratio_resident);
    json_number(j, "max_error_over_bound", g->max_error_over_bound);
    json_number(j, "rms_error", g->rms_error);
    bench_json_count(j, "violations", e->coder->promise != CHECK_NOTHING, g->violations);
    bench_json_count(j, "zeros_broken", g->mode != CODER_GRID, g->zeros_broken);
    bench_json_count(j, "mask_broken", g->mode != CODER_NEAREST, g->mask_broken);
    json_integer(j, "differ_from_cpu", g->differ);
    put_times(j, &g->ms);
    put_quotient(j, "compress", &g->compress);
    put_quotient(j, "decompress", &g->decompress);
    put_quotient(j, "decompress_bn", &g->decompress_bn);
    json_close(j, '}');
}

void bench_cuda_print_json(const bench_plan *plan, const cuda_results *results, const cuda_summary *summary) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "comet", comet_version_string());
    json_string(&j, "device", "cuda");
    put_machine(&j, &results->facts);
    json_integer(&j, "runs", plan->runs);
    json_integer(&j, "left_out", (int64_t)results->left_out);
    json_open(&j, "tensors", '[', 0);
    for (size_t i = 0; i < results->count; i++)
        put_result(&j, &results->items[i]);
    json_close(&j, ']');
    json_open(&j, "summary", '[', 0);
    for (size_t i = 0; i < summary->count; i++)
        put_group(&j, &summary->items[i]);
    json_close(&j, ']');
    json_close(&j, '}');
}
