/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in other layouts and dtypes. */
#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/files/values.h"

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
