/* SPDX-License-Identifier: Apache-2.0 */
/* All combinations of a plan on a GPU, one after the other. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cmd/bench/cuda/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/common/progress.h"
#include "cmd/files/values.h"

typedef struct cuda_run {
    const bench_plan *plan;
    void (*show)(const cuda_result *result);
    cuda_results *results;
    gpu gpu;
    cuda_bed bed;
    progress progress;
} cuda_run;

/* Layouts to measure a tensor in. Unless some were asked for: both, of what has four dimensions. */
static int layouts_of(const bench_plan *plan, const comet_tensor *tensor, const comet_layout **layouts) {
    static const comet_layout both[] = {COMET_NCHW, COMET_NHWC};
    *layouts = plan->layout_count ? plan->layouts : tensor->ndim == 4 ? both : &tensor->layout;
    return plan->layout_count ? plan->layout_count : tensor->ndim == 4 ? 2 : 1;
}

/* Measurements of a tensor in one layout and dtype. */
static size_t cases_of_variant(const bench_plan *plan) {
    size_t cases = 0;
    for (int i = 0; i < plan->coder_count; i++)
        cases += (size_t)bench_errors_of(plan, &plan->coders[i]);
    return cases * (size_t)plan->size_count;
}

static size_t count_cases(const bench_plan *plan) {
    size_t variants = 0, dtypes = plan->dtype_count ? (size_t)plan->dtype_count : 1;
    const comet_layout *unused;
    for (size_t i = 0; i < plan->data.count; i++)
        variants += dtypes * (size_t)layouts_of(plan, &plan->data.items[i].array.tensor, &unused);
    return variants * cases_of_variant(plan);
}

static cuda_result *new_result(cuda_results *results) {
    cuda_result *items =
        comet_array_reserve(NULL, results->items, results->count, results->count + 1, &results->room, sizeof *items);
    if (!items)
        return NULL;
    results->items = items;
    results->items[results->count] = (cuda_result){0};
    return &results->items[results->count];
}

static int tell(cuda_run *r, const char *name) {
    const comet_tensor *t = &r->bed.tensor;
    progress_clear(&r->progress);
    return fail("%s, %s, %s, %g MiB: %s", name, layout_name(t->layout), dtype_option(t->dtype),
                (double)r->bed.bytes / (1 << 20), r->gpu.problem);
}

static int run_case(cuda_run *r, const char *name, const coder_spec *spec, double error) {
    cuda_result *result = new_result(r->results);
    if (!result)
        return fail_memory();
    result->base.name = name;
    result->base.coder = spec;
    result->base.mode = coder_mode_for(spec, &r->bed.values);
    result->base.error_rel = error;
    int answer = cuda_measure(&r->bed, result);
    progress_step(&r->progress, name);
    if (answer == LEFT_OUT) {
        r->results->left_out++;
        return DONE;
    }
    if (answer != DONE)
        return tell(r, name);
    r->results->count++;
    if (r->show) {
        progress_clear(&r->progress);
        r->show(result);
    }
    return DONE;
}

static int run_size(cuda_run *r, const char *name, double size) {
    const bench_plan *plan = r->plan;
    if (cuda_bed_fill(&r->bed, size) != DONE)
        return tell(r, name);
    for (int i = 0; i < plan->coder_count; i++) {
        const coder_spec *spec = &plan->coders[i];
        for (int e = 0; e < bench_errors_of(plan, spec); e++)
            TRY(run_case(r, name, spec, spec->promise == CHECK_BOUNDED ? plan->errors[e] : (double)NAN));
    }
    return DONE;
}

/* There is nothing to time in a tensor without values. */
static void leave_out(cuda_run *r, const char *name) {
    for (size_t i = 0; i < cases_of_variant(r->plan); i++)
        progress_step(&r->progress, name);
    r->results->left_out += cases_of_variant(r->plan);
}

static int needs_grid(const cuda_run *r) {
    for (int i = 0; i < r->plan->coder_count; i++)
        if (coder_mode_for(&r->plan->coders[i], &r->bed.values) == CODER_GRID)
            return 1;
    return 0;
}

static int run_source(cuda_run *r, const char *name, const comet_tensor *source) {
    if (comet_tensor_count(source) == 0) {
        leave_out(r, name);
        return DONE;
    }
    values_summarise(source->dtype, source->data, comet_tensor_count(source), &r->bed.values);
    r->bed.source = source;
    r->bed.tensor = *source;
    if (cuda_bed_upload(&r->bed) != DONE || (needs_grid(r) && cuda_grid_set(&r->bed) != DONE))
        return tell(r, name);
    for (int i = 0; i < r->plan->size_count; i++)
        TRY(run_size(r, name, r->plan->sizes[i]));
    return DONE;
}

static int run_variant(cuda_run *r, const named_tensor *item, comet_layout layout, comet_dtype dtype) {
    array variant;
    TRY(bench_variant(item, layout, dtype, &variant));
    int answer = run_source(r, item->name, &variant.tensor);
    array_give(&variant);
    return answer;
}

static int run_tensor(cuda_run *r, const named_tensor *item) {
    const bench_plan *plan = r->plan;
    const comet_layout *layouts;
    int count = layouts_of(plan, &item->array.tensor, &layouts);
    for (int l = 0; l < count; l++)
        for (int d = 0; d < (plan->dtype_count ? plan->dtype_count : 1); d++)
            TRY(run_variant(r, item, layouts[l], plan->dtype_count ? plan->dtypes[d] : item->array.tensor.dtype));
    return DONE;
}

static int run_all(cuda_run *r) {
    if (gpu_open(&r->gpu, r->plan->device) != DONE)
        return fail("GPU number %d: %s", (int)r->plan->device.index, r->gpu.problem);
    r->bed.gpu = &r->gpu;
    r->bed.plan = r->plan;
    r->results->facts = r->gpu.facts;
    progress_start(&r->progress, count_cases(r->plan), r->plan->quiet);
    for (size_t i = 0; i < r->plan->data.count; i++)
        TRY(run_tensor(r, &r->plan->data.items[i]));
    return DONE;
}

int bench_cuda_run(const bench_plan *plan, void (*show)(const cuda_result *result), cuda_results *results) {
    cuda_run *r = calloc(1, sizeof *r);
    if (!r)
        return fail_memory();
    r->plan = plan;
    r->show = show;
    r->results = results;
    int answer = run_all(r);
    progress_clear(&r->progress);
    gpu_close(&r->gpu);
    buffer_give(&r->bed.cpu_input);
    buffer_give(&r->bed.cpu_stream);
    buffer_give(&r->bed.serialised);
    bench_grid_free(&r->bed.grid);
    free(r);
    return answer;
}
