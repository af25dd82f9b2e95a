/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comet demo codec: the built-in activations through the error-bounded codec and others, in two tables and two
 * sentences.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/bench/example.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/text.h"
#include "cmd/demo/demo.h"

static const char help[] =
    "Usage: comet demo codec [--quick] [--quiet]\n"
    "\n"
    "Runs a small convolutional network on rendered images, compresses the activations that its training would keep,\n"
    "and shows ratio, error and speed. 'comet bench codec' does it for your own tensors.\n"
    "\n"
    "  --quick       measure speed only roughly\n"
    "  --quiet       no progress on standard error\n"
    "\n"
    "Examples:\n"
    "  comet demo codec\n"
    "  comet bench codec --data acts.npz\n";

typedef struct request {
    int quick, quiet, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--quick", OPTION_FLAG, &r->quick},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer == DONE && r->operands.count)
        return misuse("unexpected '%s'", r->operands.items[0]);
    return answer;
}

static int make_plan(const request *r, bench_plan *plan) {
    static const struct {
        const char *codec;
        coder_mode mode;
    } coders[] = {{"eb", CODER_NEAREST},
                  {"eb", CODER_KEEP},
                  {"zvc", CODER_NEAREST},
                  {"group:4", CODER_NEAREST},
                  {"pool:2", CODER_NEAREST}};
    for (size_t i = 0; i < sizeof coders / sizeof *coders; i++)
        if (coder_spec_parse(coders[i].codec, coders[i].mode, &plan->coders[plan->coder_count++]) != DONE)
            return MISUSED;
    plan->errors[plan->error_count++] = 0.1;
    plan->errors[plan->error_count++] = 0.3;
    plan->runs = r->quick ? 1 : 5;
    plan->timed_bytes = r->quick ? 0 : (size_t)64 << 20;
    plan->warm_up = !r->quick;
    plan->quiet = r->quiet;
    return example_add(&plan->data);
}

static int is_plain_eb(const bench_result *result) {
    return result->coder->promise == CHECK_BOUNDED && result->mode == CODER_NEAREST;
}

static void print_zeros(int64_t zeros, int64_t broken) {
    char text[32] = "none there";
    if (zeros)
        snprintf(text, sizeof text, broken ? "%lld lost" : "all %lld", (long long)(broken ? broken : zeros));
    printf(" %12s", text);
}

static void print_result(const bench_result *result) {
    char raw[32], stored[32];
    if (!is_plain_eb(result))
        return;
    printf("%-16s %5.1f %10s %10s %7.1f %15.4f", result->name, result->error_rel,
           text_size(result->bytes_raw, raw, sizeof raw), text_size(result->bytes_stored, stored, sizeof stored),
           (double)result->bytes_raw / (double)result->bytes_stored, result->check.max_error_over_bound);
    print_zeros(result->check.zeros, result->check.zeros_broken);
    printf(" %9.2f %11.2f\n", result->one.compress / result->one.copy, result->one.decompress / result->one.copy);
    fflush(stdout);
}

static void print_group(const bench_group *g) {
    static const struct {
        const char *label, *meaning;
    } names[] = {{"eb", "error-bounded"},
                 {"zvc", "lossless, zeros dropped"},
                 {"group:4", "4 bits a value, per group"},
                 {"pool:2", "2 x 2 averages"}};
    const coder_spec *spec = g->example->coder;
    char label[64] = "", bound[24] = "no bound";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].label, spec->label) == 0)
            snprintf(label, sizeof label, "%s%s", names[i].meaning,
                     g->example->mode == CODER_KEEP ? ", mask kept" : "");
    if (spec->promise == CHECK_BOUNDED)
        snprintf(bound, sizeof bound, "%.1f x rms", g->example->error_rel);
    else if (spec->promise == CHECK_EXACT)
        snprintf(bound, sizeof bound, "exact");
    printf("%-27s %-10s %7.1f %10.4f %13lld %9.2f %11.2f\n", label, bound, g->ratio, g->rms_error,
           (long long)g->zeros_broken, g->compress_over_copy, g->decompress_over_copy);
}

/* The group of plain eb at `error`. */
static const bench_group *find_eb(const bench_summary *summary, double error) {
    for (size_t i = 0; i < summary->count; i++)
        if (is_plain_eb(summary->items[i].example) && summary->items[i].example->error_rel == error)
            return &summary->items[i];
    return NULL;
}

static void print_meaning(const bench_summary *summary) {
    const bench_group *fine = find_eb(summary, 0.1), *coarse = find_eb(summary, 0.3);
    if (!fine || !coarse)
        return;
    double copies = 1 / coarse->compress_over_copy + 1 / coarse->decompress_over_copy;
    printf("\nThe activations that this network's training would keep shrink %.0f to %.0f times, %s value is off by "
           "more than\n"
           "its bound, and %s. On one thread compressing runs at %.2f x and decompressing at %.2f x the\n"
           "speed of memcpy: there and back take as long as copying the tensor %.1f times.\n",
           fine->ratio, coarse->ratio, fine->violations + coarse->violations ? "but SOME" : "no",
           fine->zeros_broken + coarse->zeros_broken ? "SOME zeros are LOST" : "every zero is still zero",
           coarse->compress_over_copy, coarse->decompress_over_copy, copies);
}

static int run(const bench_plan *plan) {
    bench_results results = {0};
    bench_summary summary = {0};
    printf("Activations of a small network (convolution, batch norm, ReLU), fp32, computed just now.\n"
           "Bounds in units of the rms of the non-zeros; speeds in units of memcpy, one thread.\n\n"
           "%-16s %5s %10s %10s %7s %15s %12s %9s %11s\n",
           "tensor", "bound", "raw", "stored", "ratio", "max error/bound", "zeros kept", "compress", "decompress");
    int answer = bench_run(plan, print_result, &results);
    if (answer == DONE)
        answer = bench_summarise(&results, &summary);
    if (answer == DONE) {
        printf("\n%-27s %-10s %7s %10s %13s %9s %11s\n", "all tensors", "bound", "ratio", "rms error", "zeros broken",
               "compress", "decompress");
        for (size_t i = 0; i < summary.count; i++)
            print_group(&summary.items[i]);
        print_meaning(&summary);
    }
    bench_summary_free(&summary);
    bench_results_free(&results);
    return answer;
}

int demo_codec(int argc, char **argv) {
    request r = {0};
    bench_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? read_request(&r, argc, argv) : fail_memory();
    if (answer == DONE && r.help) {
        fputs(help, stdout);
    } else if (answer == DONE) {
        answer = make_plan(&r, plan);
        if (answer == DONE)
            answer = run(plan);
        tensors_free(&plan->data);
    }
    free(plan);
    text_array_free(&r.operands);
    return answer;
}
