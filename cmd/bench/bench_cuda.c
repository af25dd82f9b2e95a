/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench codec --device cuda, as far as it is the same with every GPU. */
#include "cmd/bench/bench_cuda.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/measure.h"
#include "cmd/common/message.h"
#include "comet/cuda.h"

/* ---- results of many tensors in a few numbers ---- */

double cuda_compress_over_copy(const cuda_result *result) {
    return result->ms.compress / result->ms.copy;
}

double cuda_decompress_over_copy(const cuda_result *result) {
    return result->ms.decompress / result->ms.copy;
}

double cuda_decompress_bn_over_copy(const cuda_result *result) {
    return result->ms.decompress_bn / result->ms.copy;
}

static double copy_ms(const cuda_result *result) {
    return result->ms.copy;
}

static double compress_ms(const cuda_result *result) {
    return result->ms.compress;
}

static double decompress_ms(const cuda_result *result) {
    return result->ms.decompress;
}

static double decompress_bn_ms(const cuda_result *result) {
    return result->ms.decompress_bn;
}

static int is_in(const cuda_group *g, const cuda_result *a) {
    const cuda_result *b = g->example;
    double x = a->base.error_rel, y = b->base.error_rel;
    return a->base.coder == b->base.coder && (g->mode == CODER_TRAINING || g->mode == a->base.mode) &&
           a->base.tensor.layout == b->base.tensor.layout && a->base.tensor.dtype == b->base.tensor.dtype &&
           a->size == b->size && (x == y || (isnan(x) && isnan(y)));
}

/* What `of` says of each result of the group where that is a number. `values` has room for all results. */
static double median_in(const cuda_results *all, const cuda_group *g, double (*of)(const cuda_result *),
                        double *values) {
    int count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (is_in(g, &all->items[i]) && !isnan(of(&all->items[i])))
            values[count++] = of(&all->items[i]);
    return median_of(values, count);
}

static cuda_quotient quotient_in(const cuda_results *all, const cuda_group *g, double (*of)(const cuda_result *),
                                 double *values) {
    cuda_quotient q = {median_in(all, g, of, values), NAN, NULL};
    for (size_t i = 0; i < all->count; i++) {
        double value = of(&all->items[i]);
        if (!is_in(g, &all->items[i]) || isnan(value) || value <= q.worst)
            continue;
        q.worst = value;
        q.worst_name = all->items[i].base.name;
    }
    return q;
}

static void add_to_group(cuda_group *g, const cuda_result *r) {
    const check_report *check = &r->base.check;
    double raw = (double)r->base.bytes_raw;
    g->tensors++;
    g->ratio += log(raw / (double)r->base.bytes_stored);
    g->ratio_resident += log(raw / (double)r->bytes_resident);
    g->max_error_over_bound = fmax(g->max_error_over_bound, check->max_error_over_bound); /* a NaN loses */
    g->rms_error += isnan(check->rms_error) ? 0 : check->rms_error;
    g->violations += check->violations;
    g->zeros_broken += check->zeros_broken;
    g->mask_broken += check->mask_broken;
    g->differ += r->stream_as_cpu == 0 || r->stats_as_cpu == 0;
}

static void finish_group(cuda_group *g, const cuda_results *all, double *values) {
    g->ratio = exp(g->ratio / g->tensors);
    g->ratio_resident = exp(g->ratio_resident / g->tensors);
    g->rms_error /= g->tensors;
    g->ms.copy = median_in(all, g, copy_ms, values);
    g->ms.compress = median_in(all, g, compress_ms, values);
    g->ms.decompress = median_in(all, g, decompress_ms, values);
    g->ms.decompress_bn = median_in(all, g, decompress_bn_ms, values);
    g->compress = quotient_in(all, g, cuda_compress_over_copy, values);
    g->decompress = quotient_in(all, g, cuda_decompress_over_copy, values);
    g->decompress_bn = quotient_in(all, g, cuda_decompress_bn_over_copy, values);
}

static cuda_group *group_of(cuda_summary *summary, const cuda_result *result, coder_mode mode) {
    for (size_t i = 0; i < summary->count; i++)
        if (summary->items[i].mode == mode && is_in(&summary->items[i], result))
            return &summary->items[i];
    cuda_group *added = &summary->items[summary->count++];
    *added =
        (cuda_group){.example = result, .mode = mode, .max_error_over_bound = result->base.check.max_error_over_bound};
    return added;
}

static void make_groups(const cuda_results *results, cuda_summary *summary) {
    for (size_t i = 0; i < results->count; i++)
        add_to_group(group_of(summary, &results->items[i], results->items[i].base.mode), &results->items[i]);
    for (size_t i = 0; i < results->count; i++)
        if (results->items[i].base.coder->mode == CODER_TRAINING)
            add_to_group(group_of(summary, &results->items[i], CODER_TRAINING), &results->items[i]);
}

int bench_cuda_summarise(const cuda_results *results, cuda_summary *summary) {
    *summary = (cuda_summary){.items = calloc(2 * results->count + 1, sizeof *summary->items)};
    double *values = calloc(results->count + 1, sizeof *values);
    int answer = summary->items && values ? DONE : fail_memory();
    if (answer == DONE)
        make_groups(results, summary);
    for (size_t i = 0; i < summary->count; i++)
        finish_group(&summary->items[i], results, values);
    free(values);
    return answer;
}

/* ---- the command ---- */

#ifdef COMET_HAVE_CUDA

int bench_cuda_check(const bench_plan *plan) {
    comet_status status = comet_cuda_check(plan->device.index);
    if (status == COMET_ERROR_NO_DEVICE)
        return fail(
            "there is no CUDA GPU number %d; --device cuda needs an NVIDIA GPU and its driver (nvidia-smi lists "
            "them); without --device the CPU is measured",
            (int)plan->device.index);
    if (status == COMET_ERROR_DRIVER)
        return fail("the NVIDIA driver is older than the CUDA that comet was built with; update the driver, or build "
                    "comet with an older CUDA toolkit");
    if (status == COMET_ERROR_UNSUPPORTED)
        return fail("GPU number %d is older than those comet was built for; build it again with its compute capability "
                    "in COMET_CUDA_ARCHS",
                    (int)plan->device.index);
    return status == COMET_OK ? DONE : fail("the GPU cannot be used: %s", why(status));
}

static int judge(const cuda_results *results) {
    int64_t broken = 0, differ = 0;
    for (size_t i = 0; i < results->count; i++) {
        const cuda_result *r = &results->items[i];
        broken += bench_broken(&r->base);
        differ += r->stream_as_cpu == 0 || r->stats_as_cpu == 0;
    }
    if (!broken && !differ)
        return DONE;
    return fail("%lld values are not what the codec promises, %lld streams or statistics are not the CPU's",
                (long long)broken, (long long)differ);
}

int bench_cuda(const bench_plan *plan, int as_json) {
    cuda_results results = {0};
    cuda_summary summary = {0};
    if (!as_json)
        bench_cuda_print_head();
    int answer = bench_cuda_run(plan, as_json ? NULL : bench_cuda_print_result, &results);
    if (answer == DONE)
        answer = bench_cuda_summarise(&results, &summary);
    if (answer == DONE && as_json)
        bench_cuda_print_json(plan, &results, &summary);
    else if (answer == DONE)
        bench_cuda_print_summary(&results, &summary);
    if (answer == DONE && results.left_out)
        note("%zu combinations left out: on a GPU the codec does not take such tensors", results.left_out);
    if (answer == DONE)
        answer = judge(&results);
    free(summary.items);
    free(results.items);
    return answer;
}

#else

int bench_cuda_check(const bench_plan *plan) {
    (void)plan;
    return fail("this comet was built without CUDA; install the CUDA toolkit (nvcc) and build it again, or leave "
                "--device cuda out");
}

int bench_cuda(const bench_plan *plan, int as_json) {
    (void)as_json;
    return bench_cuda_check(plan);
}

#endif
