/* SPDX-License-Identifier: Apache-2.0 */
/* Results of many tensors in a few numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/measure.h"
#include "cmd/common/message.h"

int64_t bench_broken(const bench_result *r) {
    const check_report *check = &r->check;
    if (r->coder->kind != &coder_comet || r->coder->promise == CHECK_NOTHING)
        return 0;
    return check->violations + check->mask_broken + check->zeros_broken;
}

static int same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

static int same_group(const bench_result *a, const bench_result *b) {
    return a->coder == b->coder && a->mode == b->mode && a->tensor.layout == b->tensor.layout &&
           a->tensor.dtype == b->tensor.dtype && same_number(a->error_rel, b->error_rel);
}

/* The median of `quantity` over the group, results where it is NaN left out. `scratch` has room for all. */
typedef double (*quantity)(const bench_results *results, const bench_result *result);

static double group_median(const bench_results *results, const bench_result *example, quantity of, double *scratch) {
    int count = 0;
    for (size_t i = 0; i < results->count; i++) {
        if (!same_group(&results->items[i], example))
            continue;
        double value = of(results, &results->items[i]);
        if (!isnan(value))
            scratch[count++] = value;
    }
    return median_of(scratch, count);
}

/* zfp's result on the same tensor with the same bound; NULL if there is none. */
static const bench_result *zfp_beside(const bench_results *results, const bench_result *result) {
    for (size_t i = 0; i < results->count; i++) {
        const bench_result *other = &results->items[i];
        if (strcmp(other->coder->label, "zfp") == 0 && other->name == result->name &&
            other->tensor.layout == result->tensor.layout && other->tensor.dtype == result->tensor.dtype &&
            other->error_rel == result->error_rel)
            return other;
    }
    return NULL;
}

#define QUANTITY(name, expression)                                                                                     \
    static double name(const bench_results *all, const bench_result *r) {                                              \
        (void)all;                                                                                                     \
        return expression;                                                                                             \
    }
QUANTITY(one_copy, r->one.copy)
QUANTITY(one_compress, r->one.compress)
QUANTITY(one_decompress, r->one.decompress)
QUANTITY(all_copy, r->all.copy)
QUANTITY(all_compress, r->all.compress)
QUANTITY(all_decompress, r->all.decompress)
QUANTITY(compress_over_copy, r->one.compress / r->one.copy)
QUANTITY(decompress_over_copy, r->one.decompress / r->one.copy)
QUANTITY(compress_over_copy_all, r->all.compress / r->all.copy)
QUANTITY(decompress_over_copy_all, r->all.decompress / r->all.copy)

static double compress_over_zfp(const bench_results *all, const bench_result *r) {
    const bench_result *zfp = zfp_beside(all, r);
    return zfp ? r->one.compress / zfp->one.compress : (double)NAN;
}

static double decompress_over_zfp(const bench_results *all, const bench_result *r) {
    const bench_result *zfp = zfp_beside(all, r);
    return zfp ? r->one.decompress / zfp->one.decompress : (double)NAN;
}

static void add_to_group(bench_group *g, const bench_result *r) {
    g->tensors++;
    g->ratio += log((double)r->bytes_raw / (double)r->bytes_stored); /* of an empty tensor: -infinity, ratio 0 */
    g->max_error_over_bound = fmax(g->max_error_over_bound, r->check.max_error_over_bound); /* a NaN loses */
    g->rms_error += isnan(r->check.rms_error) ? 0 : r->check.rms_error;
    g->violations += r->check.violations;
    g->zeros_broken += r->check.zeros_broken;
    g->mask_broken += r->check.mask_broken;
}

static void finish_group(bench_group *g, const bench_results *all, double *scratch) {
    const bench_result *e = g->example;
    g->ratio = exp(g->ratio / g->tensors);
    g->rms_error /= g->tensors;
    g->one.copy = group_median(all, e, one_copy, scratch);
    g->one.compress = group_median(all, e, one_compress, scratch);
    g->one.decompress = group_median(all, e, one_decompress, scratch);
    g->all.copy = group_median(all, e, all_copy, scratch);
    g->all.compress = group_median(all, e, all_compress, scratch);
    g->all.decompress = group_median(all, e, all_decompress, scratch);
    g->compress_over_copy = group_median(all, e, compress_over_copy, scratch);
    g->decompress_over_copy = group_median(all, e, decompress_over_copy, scratch);
    g->compress_over_copy_all = group_median(all, e, compress_over_copy_all, scratch);
    g->decompress_over_copy_all = group_median(all, e, decompress_over_copy_all, scratch);
    g->compress_over_zfp = group_median(all, e, compress_over_zfp, scratch);
    g->decompress_over_zfp = group_median(all, e, decompress_over_zfp, scratch);
}

static bench_group *group_of(bench_summary *summary, const bench_result *result) {
    for (size_t i = 0; i < summary->count; i++)
        if (same_group(summary->items[i].example, result))
            return &summary->items[i];
    bench_group *added = &summary->items[summary->count++];
    *added = (bench_group){.example = result, .max_error_over_bound = result->check.max_error_over_bound};
    return added;
}

int bench_summarise(const bench_results *results, bench_summary *summary) {
    *summary = (bench_summary){.items = calloc(results->count + 1, sizeof *summary->items)};
    double *scratch = calloc(results->count + 1, sizeof *scratch);
    int answer = DONE;
    if (!summary->items || !scratch)
        answer = fail_memory();
    for (size_t i = 0; i < results->count && answer == DONE; i++)
        add_to_group(group_of(summary, &results->items[i]), &results->items[i]);
    for (size_t i = 0; i < summary->count; i++)
        finish_group(&summary->items[i], results, scratch);
    free(scratch);
    return answer;
}

void bench_summary_free(bench_summary *summary) {
    free(summary->items);
    *summary = (bench_summary){0};
}
