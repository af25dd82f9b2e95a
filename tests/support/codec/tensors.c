/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/tensors.h"

#include <stdlib.h>
#include <string.h>

enum { EDGE = 64, GUARD = 0x5A };

const char *layout_name(comet_layout layout) {
    static const char *const names[] = {"flat", "nchw", "nhwc"};
    return (unsigned)layout < 3 ? names[layout] : "?";
}

/* ---- shapes ---- */

int64_t shape_count(const test_shape *s) {
    int64_t count = 1;
    for (int32_t d = 0; d < s->ndim; d++)
        count *= s->shape[d];
    return count;
}

int64_t shape_channels(const test_shape *s) {
    if (s->layout == COMET_NHWC && s->ndim >= 1)
        return s->shape[s->ndim - 1];
    return s->layout == COMET_NCHW && s->ndim >= 3 ? s->shape[1] : 1;
}

int64_t shape_channel_stride(const test_shape *s) {
    int64_t stride = 1;
    if (s->layout == COMET_NCHW && s->ndim >= 3)
        for (int32_t d = 2; d < s->ndim; d++)
            stride *= s->shape[d];
    return stride ? stride : 1;
}

static int64_t odd_extent(rng *r, int64_t most) {
    static const int64_t usual[] = {1,  2,  3,  5,  7,  8,  9,  15,  16,  17,  20,  31, 32,
                                    33, 40, 63, 64, 65, 80, 96, 100, 127, 256, 257, 300};
    int64_t extent = usual[rng_below(r, sizeof usual / sizeof *usual)];
    return extent < most ? extent : most < 1 ? 1 : most;
}

static test_shape any_shape(rng *r, comet_layout layout, int64_t most) {
    test_shape s = {.layout = layout, .ndim = (int32_t)rng_between(r, 0, COMET_MAX_DIMS)};
    for (int32_t d = 0; d < s.ndim; d++) {
        s.shape[d] = rng_below(r, 3) == 0 ? 1 : odd_extent(r, most);
        most /= s.shape[d];
    }
    if (s.ndim && rng_below(r, 12) == 0)
        s.shape[rng_below(r, (uint64_t)s.ndim)] = 0;
    return s;
}

static test_shape map_shape(rng *r, comet_layout layout, int64_t most) {
    test_shape s = {.layout = layout, .ndim = 4};
    int64_t width = odd_extent(r, most), height = odd_extent(r, most / width);
    int64_t channels = odd_extent(r, most / (width * height)), left = most / (width * height * channels);
    s.shape[0] = left < 1 ? 1 : rng_between(r, 1, left < 8 ? left : 8);
    s.shape[1] = layout == COMET_NHWC ? height : channels;
    s.shape[2] = layout == COMET_NHWC ? width : height;
    s.shape[3] = layout == COMET_NHWC ? channels : width;
    return s;
}

test_shape shape_random(rng *r, comet_layout layout, int64_t most) {
    if (layout == COMET_FLAT && rng_below(r, 2))
        return (test_shape){layout, 1, {rng_between(r, 0, most)}};
    return rng_below(r, 3) == 0 ? any_shape(r, layout, most) : map_shape(r, layout, most);
}

/* ---- strides ---- */

static void shuffle(rng *r, int32_t n, int32_t *order) {
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)rng_below(r, (uint64_t)i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/*
 * Strides in values for dimensions laid out in `order`, innermost last; returns how many values the memory must hold.
 */
static int64_t set_strides(comet_tensor *v, rng *r, const int32_t *order, stride_kind kind) {
    int64_t stride = 1;
    int gaps = kind == STRIDES_GAPS || kind == STRIDES_MIXED, wide = 0;
    for (int32_t i = v->ndim - 1; i >= 0; i--) {
        int32_t d = order[i];
        if (gaps && wide < 2 && rng_below(r, 2)) { /* twice at most: memory grows with each */
            stride *= rng_between(r, 1, 3);
            wide++;
        }
        v->strides[d] = stride;
        stride *= v->shape[d] > 0 ? v->shape[d] : 1;
        if (gaps && rng_below(r, 2))
            stride += rng_between(r, 1, 5);
    }
    if (kind == STRIDES_EXPANDED && v->ndim)
        v->strides[rng_below(r, (uint64_t)v->ndim)] = 0;
    return stride;
}

/* Turns some dimensions around; returns the offset of the first value. */
static int64_t reverse_some(comet_tensor *v, rng *r, stride_kind kind) {
    int64_t offset = 0;
    if (kind != STRIDES_REVERSED && kind != STRIDES_MIXED)
        return 0;
    for (int32_t d = 0; d < v->ndim; d++)
        if (v->shape[d] > 0 && rng_below(r, 3)) {
            offset += (v->shape[d] - 1) * v->strides[d];
            v->strides[d] = -v->strides[d];
        }
    return offset;
}

void test_tensor_new(test_tensor *t, rng *r, comet_dtype dtype, const test_shape *shape, stride_kind kind) {
    comet_tensor *v = &t->view;
    if (comet_tensor_init(v, NULL, dtype, shape->layout, shape->ndim, shape->shape) != COMET_OK)
        abort();
    size_t size = comet_dtype_size(dtype);
    int64_t values = shape_count(shape), first = 0;
    if (kind != STRIDES_CONTIGUOUS) {
        int32_t order[COMET_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
        if (kind == STRIDES_PERMUTED || kind == STRIDES_MIXED)
            shuffle(r, v->ndim, order);
        values = set_strides(v, r, order, kind);
        first = reverse_some(v, r, kind);
    }
    t->bytes = (size_t)values * size + 2 * EDGE;
    t->memory = aligned_alloc(EDGE, (t->bytes + EDGE - 1) / EDGE * EDGE);
    if (!t->memory)
        abort();
    memset(t->memory, GUARD, t->bytes);
    v->data = t->memory + EDGE + (size_t)first * size;
    t->contiguous = kind == STRIDES_CONTIGUOUS;
}

void test_tensor_free(test_tensor *t) {
    free(t->memory);
    t->memory = NULL;
}

/* ---- values ---- */

/* Steps through a view in logical order. */
typedef struct odometer {
    const comet_tensor *view;
    int64_t index[COMET_MAX_DIMS];
    unsigned char *at;
} odometer;

static odometer odometer_at_first(const test_tensor *t) {
    return (odometer){.view = &t->view, .at = t->view.data};
}

static void odometer_next(odometer *o) {
    int64_t size = (int64_t)comet_dtype_size(o->view->dtype);
    for (int32_t d = o->view->ndim - 1; d >= 0; d--) {
        o->at += o->view->strides[d] * size;
        if (++o->index[d] < o->view->shape[d])
            return;
        o->at -= o->view->shape[d] * o->view->strides[d] * size;
        o->index[d] = 0;
    }
}

void test_tensor_write(test_tensor *t, const void *patterns) {
    size_t size = comet_dtype_size(t->view.dtype);
    int64_t count = comet_tensor_count(&t->view);
    if (t->contiguous && count) {
        memcpy(t->view.data, patterns, (size_t)count * size);
        return;
    }
    odometer o = odometer_at_first(t);
    for (int64_t i = 0; i < count; i++, odometer_next(&o))
        memcpy(o.at, (const char *)patterns + (size_t)i * size, size);
}

void test_tensor_read(const test_tensor *t, void *patterns) {
    size_t size = comet_dtype_size(t->view.dtype);
    int64_t count = comet_tensor_count(&t->view);
    if (t->contiguous && count) {
        memcpy(patterns, t->view.data, (size_t)count * size);
        return;
    }
    odometer o = odometer_at_first(t);
    for (int64_t i = 0; i < count; i++, odometer_next(&o))
        memcpy((char *)patterns + (size_t)i * size, o.at, size);
}

static int edges_intact(const test_tensor *t) {
    int intact = 1;
    for (size_t i = 0; i < EDGE; i++)
        intact &= t->memory[i] == GUARD && t->memory[t->bytes - 1 - i] == GUARD;
    return intact;
}

int test_tensor_gaps_intact(const test_tensor *t) {
    if (t->contiguous)
        return edges_intact(t);
    size_t size = comet_dtype_size(t->view.dtype);
    int64_t count = comet_tensor_count(&t->view);
    unsigned char *copy = malloc(t->bytes);
    if (!copy)
        abort();
    memcpy(copy, t->memory, t->bytes);
    odometer o = odometer_at_first(t);
    for (int64_t i = 0; i < count; i++, odometer_next(&o))
        memset(copy + (o.at - t->memory), GUARD, size);
    int intact = copy[0] == GUARD && memcmp(copy, copy + 1, t->bytes - 1) == 0; /* so all are */
    free(copy);
    return intact;
}
