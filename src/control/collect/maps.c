/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect/maps.h"

#include <string.h>

#include "base/fail.h"
#include "base/tensor_check.h"

/* Which dimension of the tensor is which; -1: there is none, and it counts as one of extent 1. */
typedef struct axes {
    int image, row, pixel, channel;
} axes;

static int find_axes(const comet_tensor *t, axes *a) {
    if (t->ndim == 2)
        *a = (axes){0, -1, -1, 1};
    else if (t->layout == COMET_NHWC && (t->ndim == 3 || t->ndim == 4))
        *a = (axes){0, t->ndim == 4 ? 1 : -1, t->ndim - 2, t->ndim - 1};
    else if (t->layout == COMET_NCHW && (t->ndim == 3 || t->ndim == 4))
        *a = (axes){0, t->ndim == 4 ? 2 : -1, t->ndim - 1, 1};
    else
        return 0;
    return 1;
}

static int64_t extent(const comet_tensor *t, int axis) {
    return axis < 0 ? 1 : t->shape[axis];
}

static int64_t stride(const comet_tensor *t, int axis) {
    return axis < 0 ? 0 : t->strides[axis];
}

/* A stride along an extent of 1 is never taken. */
static int is_dense(int64_t extent, int64_t stride, int64_t expected) {
    return extent == 1 || stride == expected;
}

static int are_rows(const comet_maps *m) {
    return is_dense(m->channels, m->to_channel, 1) && is_dense(m->width, m->to_pixel, m->channels) &&
           is_dense(m->height, m->to_row, m->width * m->channels) &&
           is_dense(m->images, m->to_image, m->height * m->width * m->channels);
}

static comet_status check_place(const comet_tensor *t, const char *name, int on_device) {
    if (on_device && (t->dtype == COMET_U8 || t->device.kind != COMET_CUDA))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s must be fp32, fp16 or bf16, in device memory", name);
    if (!on_device && (t->dtype != COMET_F32 || t->device.kind != COMET_CPU))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s must be fp32, in CPU memory", name);
    return COMET_OK;
}

comet_status comet_maps_of(const comet_tensor *t, const char *name, int how, comet_maps *m) {
    axes a;
    COMET_TRY(comet_tensor_check_shape(t, name));
    COMET_REQUIRE(find_axes(t, &a), "%s must have 2 dimensions, or be NHWC or NCHW with 3 or 4", name);
    COMET_REQUIRE(comet_tensor_count(t) > 0, "%s is empty", name);
    COMET_TRY(check_place(t, name, (how & COMET_MAPS_DEVICE) != 0));
    COMET_REQUIRE((how & COMET_MAPS_SHAPE) || t->data, "%s->data is NULL", name);
    *m = (comet_maps){.data = t->data,
                      .dtype = t->dtype,
                      .images = extent(t, a.image),
                      .height = extent(t, a.row),
                      .width = extent(t, a.pixel),
                      .channels = extent(t, a.channel),
                      .to_image = stride(t, a.image),
                      .to_row = stride(t, a.row),
                      .to_pixel = stride(t, a.pixel),
                      .to_channel = stride(t, a.channel)};
    m->is_rows = are_rows(m);
    return COMET_OK;
}

static const float *pixel_at(const comet_maps *m, int64_t pixel) {
    const int64_t row = pixel / m->width;
    return m->data + row / m->height * m->to_image + row % m->height * m->to_row + pixel % m->width * m->to_pixel;
}

/* Some pixels of one line of a map: channel by channel, as planes lie in memory. */
static void gather_line(const comet_maps *m, const float *from, int64_t count, float *rows) {
    for (int64_t c = 0; c < m->channels; c++)
        for (int64_t p = 0; p < count; p++)
            rows[p * m->channels + c] = from[p * m->to_pixel + c * m->to_channel];
}

void comet_maps_gather(const comet_maps *m, int64_t first, int64_t count, float *rows) {
    while (count > 0) {
        const int64_t left = m->width - first % m->width, now = left < count ? left : count;
        const float *from = pixel_at(m, first);
        if (m->to_channel == 1)
            for (int64_t p = 0; p < now; p++)
                memcpy(rows + p * m->channels, from + p * m->to_pixel, (size_t)m->channels * sizeof *rows);
        else
            gather_line(m, from, now, rows);
        first += now;
        count -= now;
        rows += now * m->channels;
    }
}

void comet_maps_values(const comet_maps *m, int64_t first, int64_t count, float *values) {
    while (count > 0) {
        const int64_t pixel = first / m->channels, channel = first % m->channels, whole = count / m->channels;
        if (channel == 0 && whole > 0) {
            comet_maps_gather(m, pixel, whole, values);
            first += whole * m->channels;
            count -= whole * m->channels;
            values += whole * m->channels;
            continue;
        }
        const int64_t left = m->channels - channel, now = left < count ? left : count;
        const float *from = pixel_at(m, pixel) + channel * m->to_channel;
        for (int64_t c = 0; c < now; c++)
            values[c] = from[c * m->to_channel];
        first += now;
        count -= now;
        values += now;
    }
}
