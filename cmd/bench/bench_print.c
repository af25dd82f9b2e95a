/* SPDX-License-Identifier: Apache-2.0 */
/* Results as tables and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/common/json.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "comet/version.h"

void bench_print_number(int width, int precision, double value) {
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, precision, value);
}

void bench_print_count(int width, int promised, int64_t value) {
    if (promised)
        printf(" %*lld", width, (long long)value);
    else
        printf(" %*s", width, "-");
}

const char *bench_label(const bench_result *r, char *label, size_t capacity) {
    static const char *const behind[] = {
        [CODER_NEAREST] = "", [CODER_KEEP] = "+mask", [CODER_GRID] = "+grid", [CODER_TRAINING] = ""};
    snprintf(label, capacity, "%s%s", r->coder->label, behind[r->mode]);
    return label;
}

static void print_head_line(const char *first, int first_width) {
    printf("%-*s %-8s %-6s %-5s %5s %8s %9s %7s %6s %6s %7s %7s %7s %8s %8s\n", first_width, first, "codec", "layout",
           "dtype", "bound", "ratio", "err/bound", "rms err", "broken", "zeros", "compr", "decompr", "memcpy", "compr*",
           "decompr*");
}

static void print_key(const bench_result *r, double ratio) {
    char label[32];
    printf(" %-8s %-6s %-5s", bench_label(r, label, sizeof label), layout_name(r->tensor.layout),
           dtype_option(r->tensor.dtype));
    if (isnan(r->error_rel))
        printf(" %5s", "-");
    else
        printf(" %5g", r->error_rel);
    bench_print_number(8, 2, ratio);
}

static void print_speeds(const bench_speed *one, const bench_speed *all) {
    bench_print_number(7, 2, one->compress);
    bench_print_number(7, 2, one->decompress);
    bench_print_number(7, 2, one->copy);
    bench_print_number(8, 2, all->compress);
    bench_print_number(8, 2, all->decompress);
    printf("\n");
}

void bench_print_head(void) {
    print_head_line("tensor", 40);
}

void bench_print_result(const bench_result *r) {
    char name[256];
    printf("%-40.40s", text_printable(r->name, name, sizeof name));
    print_key(r, (double)r->bytes_raw / (double)r->bytes_stored);
    bench_print_number(9, 4, r->check.max_error_over_bound);
    bench_print_number(7, 4, r->check.rms_error);
    bench_print_count(6, r->coder->promise != CHECK_NOTHING, r->check.violations + r->check.mask_broken);
    bench_print_count(6, r->mode != CODER_GRID, r->check.zeros_broken);
    print_speeds(&r->one, &r->all);
    fflush(stdout);
}

static void print_group(const bench_group *g) {
    char tensors[32];
    snprintf(tensors, sizeof tensors, "%d tensors", g->tensors);
    printf("%-12s", tensors);
    print_key(g->example, g->ratio);
    bench_print_number(9, 4, g->max_error_over_bound);
    bench_print_number(7, 4, g->rms_error);
    bench_print_count(6, g->example->coder->promise != CHECK_NOTHING, g->violations + g->mask_broken);
    bench_print_count(6, g->example->mode != CODER_GRID, g->zeros_broken);
    print_speeds(&g->one, &g->all);
}

static void print_relative(const bench_group *g) {
    char label[32], bound[24] = "";
    bench_label(g->example, label, sizeof label);
    if (!isnan(g->example->error_rel))
        snprintf(bound, sizeof bound, " at %g", g->example->error_rel);
    printf("  %s%s, %s, %s: compress %.2f x, decompress %.2f x memcpy", label, bound,
           layout_name(g->example->tensor.layout), dtype_option(g->example->tensor.dtype), g->compress_over_copy,
           g->decompress_over_copy);
    if (!isnan(g->compress_over_copy_all))
        printf("; all threads: %.2f x, %.2f x", g->compress_over_copy_all, g->decompress_over_copy_all);
    if (!isnan(g->compress_over_zfp) && strcmp(label, "zfp") != 0)
        printf("; %.1f x, %.1f x zfp", g->compress_over_zfp, g->decompress_over_zfp);
    printf("\n");
}

void bench_print_summary(const bench_summary *summary) {
    printf("\nSummary (ratio: geometric mean; error: worst, rms mean; broken: sums; speed: medians)\n");
    print_head_line("", 12);
    for (size_t i = 0; i < summary->count; i++)
        print_group(&summary->items[i]);
    printf("\nSpeed in units of memcpy of the same tensor in the same run (medians)\n");
    for (size_t i = 0; i < summary->count; i++)
        if (!isnan(summary->items[i].compress_over_copy))
            print_relative(&summary->items[i]);
    printf("\nbound: in units of the rms of the non-zeros, with +grid of the normalised values, as rms err. broken: "
           "values\n"
           "beyond the bound (with +mask also non-zeros lost or turned, with +grid values on the wrong side of their\n"
           "threshold). zeros: zeros that came back as something else. Speeds in GB/s of tensor, one thread; columns "
           "with\n"
           "* all threads.\n");
}

/* ---- one JSON object: what a coder does not promise, or was not measured, is null ---- */

static void put_mode(json *j, const coder_spec *spec, coder_mode mode) {
    if (spec->kind == &coder_comet && spec->params.codec == COMET_CODEC_EB)
        json_string(j, "mode", coder_mode_name(mode));
    else
        json_null(j, "mode");
}

void bench_json_key(json *j, const bench_result *r, coder_mode mode) {
    json_string(j, "layout", layout_name(r->tensor.layout));
    json_string(j, "dtype", dtype_option(r->tensor.dtype));
    json_string(j, "codec", r->coder->label);
    put_mode(j, r->coder, mode);
    json_bool(j, "keep_mask", mode == CODER_KEEP);
    json_number(j, "error_rel", r->error_rel);
}

void bench_json_count(json *j, const char *key, int promised, int64_t value) {
    if (promised)
        json_integer(j, key, value);
    else
        json_number(j, key, NAN);
}

static void put_speeds(json *j, const bench_speed *one, const bench_speed *all) {
    json_number(j, "compress_gbps", one->compress);
    json_number(j, "decompress_gbps", one->decompress);
    json_number(j, "memcpy_gbps", one->copy);
    json_number(j, "compress_gbps_all_threads", all->compress);
    json_number(j, "decompress_gbps_all_threads", all->decompress);
    json_number(j, "memcpy_gbps_all_threads", all->copy);
}

void bench_json_result(json *j, const bench_result *r) {
    int bounded = r->coder->promise != CHECK_NOTHING;
    json_string(j, "name", r->name);
    json_integers(j, "shape", r->tensor.ndim, r->tensor.shape);
    bench_json_key(j, r, r->mode);
    json_number(j, "bound", r->bound);
    json_integer(j, "bytes_raw", (int64_t)r->bytes_raw);
    json_integer(j, "bytes_stored", (int64_t)r->bytes_stored);
    json_number(j, "ratio", (double)r->bytes_raw / (double)r->bytes_stored);
    json_number(j, "max_error_over_bound", r->check.max_error_over_bound);
    json_number(j, "max_error", r->check.max_error);
    json_number(j, "rms_error", r->check.rms_error);
    bench_json_count(j, "violations", bounded, r->check.violations);
    json_integer(j, "zeros", r->check.zeros);
    bench_json_count(j, "zeros_broken", r->mode != CODER_GRID, r->check.zeros_broken);
    bench_json_count(j, "mask_broken", r->mode != CODER_NEAREST, r->check.mask_broken);
    json_integer(j, "bytes_timed", (int64_t)r->bytes_timed);
    put_speeds(j, &r->one, &r->all);
}

static void put_group(json *j, const bench_group *g) {
    json_open(j, NULL, '{', 0);
    bench_json_key(j, g->example, g->example->mode);
    json_integer(j, "tensors", g->tensors);
    json_number(j, "ratio", g->ratio);
    json_number(j, "max_error_over_bound", g->max_error_over_bound);
    json_number(j, "rms_error", g->rms_error);
    bench_json_count(j, "violations", g->example->coder->promise != CHECK_NOTHING, g->violations);
    bench_json_count(j, "zeros_broken", g->example->mode != CODER_GRID, g->zeros_broken);
    bench_json_count(j, "mask_broken", g->example->mode != CODER_NEAREST, g->mask_broken);
    put_speeds(j, &g->one, &g->all);
    json_number(j, "compress_over_memcpy", g->compress_over_copy);
    json_number(j, "decompress_over_memcpy", g->decompress_over_copy);
    json_number(j, "compress_over_memcpy_all_threads", g->compress_over_copy_all);
    json_number(j, "decompress_over_memcpy_all_threads", g->decompress_over_copy_all);
    json_number(j, "compress_over_zfp", g->compress_over_zfp);
    json_number(j, "decompress_over_zfp", g->decompress_over_zfp);
    json_close(j, '}');
}

void bench_print_json(const bench_plan *plan, const bench_results *results, const bench_summary *summary) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "comet", comet_version_string());
    json_string(&j, "device", "cpu");
    json_string(&j, "isa", isa_name(plan->isa));
    json_integer(&j, "threads", comet_threads_count(plan->threads));
    json_integer(&j, "runs", plan->runs);
    json_integer(&j, "left_out", (int64_t)results->left_out);
    json_open(&j, "tensors", '[', 0);
    for (size_t i = 0; i < results->count; i++) {
        json_open(&j, NULL, '{', 0);
        bench_json_result(&j, &results->items[i]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_open(&j, "summary", '[', 0);
    for (size_t i = 0; i < summary->count; i++)
        put_group(&j, &summary->items[i]);
    json_close(&j, ']');
    json_close(&j, '}');
}
