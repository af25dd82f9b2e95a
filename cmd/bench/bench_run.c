/* SPDX-License-Identifier: Apache-2.0 */
/* All combinations of a plan, one after the other: tensors in other layouts and dtypes, with each coder. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/common/progress.h"
#include "cmd/files/values.h"

/* ---- tensors in other layouts and dtypes ---- */

int bench_errors_of(const bench_plan *plan, const coder_spec *spec) {
    return spec->promise == CHECK_BOUNDED ? plan->error_count : 1;
}

/* The view of a tensor in another layout: NCHW and NHWC are permutations of each other, flat is a name. */
static int view_in_layout(const named_tensor *item, comet_layout layout, comet_tensor *view) {
    *view = item->array.tensor;
    int from_nchw = view->layout == COMET_NCHW && layout == COMET_NHWC;
    int from_nhwc = view->layout == COMET_NHWC && layout == COMET_NCHW;
    if (layout != COMET_FLAT && view->ndim != 4)
        return fail("'%s' has %d dimensions; %s needs 4", item->name, (int)view->ndim, layout_name(layout));
    static const int to_nhwc[] = {0, 2, 3, 1}, to_nchw[] = {0, 3, 1, 2};
    for (int d = 0; d < 4 && (from_nchw || from_nhwc); d++) {
        int source = from_nchw ? to_nhwc[d] : to_nchw[d];
        view->shape[d] = item->array.tensor.shape[source];
        view->strides[d] = item->array.tensor.strides[source];
    }
    view->layout = layout;
    return DONE;
}

int bench_variant(const named_tensor *item, comet_layout layout, comet_dtype dtype, array *variant) {
    comet_tensor view;
    array packed;
    if (view_in_layout(item, layout, &view) != DONE)
        return FAILED;
    if (array_new(&packed, view.dtype, layout, view.ndim, view.shape) != DONE)
        return FAILED;
    values_pack(&view, packed.tensor.data);
    int answer = array_new(variant, dtype, layout, view.ndim, view.shape);
    if (answer == DONE)
        values_convert(view.dtype, packed.tensor.data, dtype, variant->tensor.data, comet_tensor_count(&view));
    array_give(&packed);
    return answer;
}

/* ---- combinations ---- */

typedef struct bench_state {
    const bench_plan *plan;
    void (*show)(const bench_result *result);
    bench_results *results;
    bench_room room;
    progress progress;
} bench_state;

static size_t count_cases(const bench_plan *plan) {
    size_t cases = 0, layouts = plan->layout_count ? (size_t)plan->layout_count : 1;
    size_t dtypes = plan->dtype_count ? (size_t)plan->dtype_count : 1;
    for (int i = 0; i < plan->coder_count; i++)
        cases += (size_t)bench_errors_of(plan, &plan->coders[i]);
    return cases * plan->data.count * layouts * dtypes;
}

static bench_result *new_result(bench_results *results) {
    bench_result *items =
        comet_array_reserve(NULL, results->items, results->count, results->count + 1, &results->room, sizeof *items);
    if (!items)
        return NULL;
    results->items = items;
    results->items[results->count] = (bench_result){0};
    return &results->items[results->count];
}

void bench_results_free(bench_results *results) {
    free(results->items);
    *results = (bench_results){0};
}

static int run_case(bench_state *s, const char *name, const comet_tensor *tensor, const coder_spec *spec,
                    double error) {
    bench_result *result = new_result(s->results);
    if (!result)
        return fail_memory();
    result->name = name;
    result->coder = spec;
    result->error_rel = error;
    comet_status status = bench_measure(s->plan, tensor, &s->room, result);
    progress_step(&s->progress, name);
    if (status == COMET_ERROR_UNSUPPORTED) {
        s->results->left_out++;
        return DONE;
    }
    if (status != COMET_OK) {
        progress_clear(&s->progress);
        return fail("%s with %s: %s", name, spec->label, why(status));
    }
    s->results->count++;
    if (s->show) {
        progress_clear(&s->progress);
        s->show(result);
    }
    return DONE;
}

static int run_coders(bench_state *s, const char *name, const comet_tensor *tensor) {
    for (int i = 0; i < s->plan->coder_count; i++) {
        const coder_spec *spec = &s->plan->coders[i];
        for (int e = 0; e < bench_errors_of(s->plan, spec); e++) {
            double error = spec->promise == CHECK_BOUNDED ? s->plan->errors[e] : (double)NAN;
            if (run_case(s, name, tensor, spec, error) != DONE)
                return FAILED;
        }
    }
    return DONE;
}

static int run_variant(bench_state *s, const named_tensor *item, comet_layout layout, comet_dtype dtype) {
    array variant;
    if (bench_variant(item, layout, dtype, &variant) != DONE)
        return FAILED;
    int answer = run_coders(s, item->name, &variant.tensor);
    array_give(&variant);
    return answer;
}

static int run_tensor(bench_state *s, const named_tensor *item) {
    const bench_plan *plan = s->plan;
    for (int l = 0; l < (plan->layout_count ? plan->layout_count : 1); l++)
        for (int d = 0; d < (plan->dtype_count ? plan->dtype_count : 1); d++) {
            comet_layout layout = plan->layout_count ? plan->layouts[l] : item->array.tensor.layout;
            comet_dtype dtype = plan->dtype_count ? plan->dtypes[d] : item->array.tensor.dtype;
            if (run_variant(s, item, layout, dtype) != DONE)
                return FAILED;
        }
    return DONE;
}

int bench_run(const bench_plan *plan, void (*show)(const bench_result *result), bench_results *results) {
    bench_state s = {.plan = plan, .show = show, .results = results};
    int answer = DONE;
    progress_start(&s.progress, count_cases(plan), plan->quiet);
    for (size_t i = 0; i < plan->data.count && answer == DONE; i++)
        answer = run_tensor(&s, &plan->data.items[i]);
    progress_clear(&s.progress);
    buffer_give(&s.room.input);
    buffer_give(&s.room.output);
    buffer_give(&s.room.stream);
    bench_grid_free(&s.room.grid);
    return answer;
}
