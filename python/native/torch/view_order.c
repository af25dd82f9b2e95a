/* SPDX-License-Identifier: Apache-2.0 */
/* How the values of a view lie in memory. */
#include <string.h>

#include "torch/torch_api.h"

int view_is_alike(const tensor_view *a, const tensor_view *b) {
    const size_t bytes = sizeof(int64_t) * (size_t)a->ndim;
    return a->ndim == b->ndim && a->dtype == b->dtype && !memcmp(a->shape, b->shape, bytes) &&
           !memcmp(a->strides, b->strides, bytes);
}

/* Dimensions of more than one value, the outermost in memory first. */
static int sort_dimensions(const tensor_view *view, int *order) {
    int count = 0;
    for (int i = 0; i < view->ndim; i++) {
        if (view->shape[i] == 1)
            continue;
        int at = count++;
        for (; at > 0 && view->strides[order[at - 1]] < view->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return count;
}

static int is_dense(const tensor_view *view, const int *order, int count) {
    int64_t stride = 1;
    for (int i = count - 1; i >= 0; i--) {
        if (view->strides[order[i]] != stride)
            return 0;
        stride *= view->shape[order[i]];
    }
    return 1;
}

static int is_in_order(const int *order, int count) {
    for (int i = 1; i < count; i++)
        if (order[i] < order[i - 1])
            return 0;
    return 1;
}

/* N H W C in memory, though the dimensions are N C H W. */
static int is_channels_last(const tensor_view *view, const int *order, int count) {
    int before = -1;
    if (view->ndim < 3 || count < 2 || order[count - 1] != 1)
        return 0;
    for (int i = 0; i < count - 1; i++) {
        if (order[i] < before)
            return 0;
        before = order[i];
    }
    return 1;
}

static void set_shape(comet_tensor *tensor, comet_layout layout, int ndim, const int64_t *shape) {
    int64_t stride = 1;
    tensor->layout = layout;
    tensor->ndim = ndim;
    for (int i = ndim - 1; i >= 0; i--) {
        tensor->shape[i] = shape[i];
        tensor->strides[i] = stride;
        stride *= shape[i];
    }
}

/* Maps of any number of dimensions become rows of the last one. */
static void set_maps(comet_tensor *tensor, const tensor_view *v, int channels_last) {
    int64_t rows = 1;
    for (int i = 2; i < v->ndim - 1; i++)
        rows *= v->shape[i];
    const int64_t columns = v->shape[v->ndim - 1];
    if (channels_last)
        set_shape(tensor, COMET_NHWC, 4, (int64_t[]){v->shape[0], rows, columns, v->shape[1]});
    else
        set_shape(tensor, COMET_NCHW, 4, (int64_t[]){v->shape[0], v->shape[1], rows, columns});
}

int view_in_memory_order(const tensor_view *v, map_order order, comet_tensor *tensor) {
    int dimensions[VIEW_DIMS];
    const int count = sort_dimensions(v, dimensions);
    if (v->count == 0 || !is_dense(v, dimensions, count))
        return 0;
    *tensor = (comet_tensor){.data = v->data, .device = v->device};
    tensor->dtype = v->dtype == VIEW_BOOL ? COMET_U8 : (comet_dtype)v->dtype;
    const int in_order = is_in_order(dimensions, count);
    if (in_order && v->ndim >= 2 && (order == ORDER_CHANNELS_LAST ? v->ndim <= 3 : v->ndim == 2)) {
        const int64_t channels = v->shape[v->ndim - 1];
        set_shape(tensor, COMET_NHWC, 3,
                  (int64_t[]){v->ndim == 3 ? v->shape[0] : 1, v->count / channels / (v->ndim == 3 ? v->shape[0] : 1),
                              channels});
    } else if (in_order && v->ndim >= 3) {
        set_maps(tensor, v, 0);
    } else if (is_channels_last(v, dimensions, count)) {
        set_maps(tensor, v, 1);
    } else {
        set_shape(tensor, COMET_FLAT, 1, &v->count);
    }
    return 1;
}
