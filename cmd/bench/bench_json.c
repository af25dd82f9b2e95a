/* SPDX-License-Identifier: Apache-2.0 */
/* Results as one JSON object on standard output. What a coder does not promise, or was not measured, is null. */
#include <math.h>

#include "cmd/bench/bench.h"
#include "cmd/common/json.h"
#include "cmd/common/parse.h"
#include "comet/version.h"

void bench_json_key(json *j, const bench_result *r) {
    json_string(j, "layout", layout_name(r->tensor.layout));
    json_string(j, "dtype", dtype_option(r->tensor.dtype));
    json_string(j, "codec", r->coder->label);
    json_bool(j, "keep_mask", r->coder->params.keep_mask);
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
    bench_json_key(j, r);
    json_number(j, "bound", r->bound);
    json_integer(j, "bytes_raw", (int64_t)r->bytes_raw);
    json_integer(j, "bytes_stored", (int64_t)r->bytes_stored);
    json_number(j, "ratio", (double)r->bytes_raw / (double)r->bytes_stored);
    json_number(j, "max_error_over_bound", r->check.max_error_over_bound);
    json_number(j, "max_error", r->check.max_error);
    json_number(j, "rms_error", r->check.rms_error);
    bench_json_count(j, "violations", bounded, r->check.violations);
    json_integer(j, "zeros", r->check.zeros);
    json_integer(j, "zeros_broken", r->check.zeros_broken);
    bench_json_count(j, "mask_broken", r->coder->params.keep_mask, r->check.mask_broken);
    json_integer(j, "bytes_timed", (int64_t)r->bytes_timed);
    put_speeds(j, &r->one, &r->all);
}

static void put_group(json *j, const bench_group *g) {
    json_open(j, NULL, '{', 0);
    bench_json_key(j, g->example);
    json_integer(j, "tensors", g->tensors);
    json_number(j, "ratio", g->ratio);
    json_number(j, "max_error_over_bound", g->max_error_over_bound);
    json_number(j, "rms_error", g->rms_error);
    bench_json_count(j, "violations", g->example->coder->promise != CHECK_NOTHING, g->violations);
    json_integer(j, "zeros_broken", g->zeros_broken);
    bench_json_count(j, "mask_broken", g->example->coder->params.keep_mask, g->mask_broken);
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
