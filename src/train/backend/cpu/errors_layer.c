/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of gradients, computed: what reaches the weights of a convolution or linear layer. */
#include <string.h>

#include "base/memory.h"
#include "base/vector/loop.h"
#include "train/backend/cpu/errors.h"

/* Images are looked at in so many blocks, each with sums and an image's errors of its own. */
enum { BLOCKS = 4 };

typedef struct block {
    double sums[COMET_ERRORS_SUMS];
    float errors[]; /* of the input: pixels x width */
} block;

static size_t block_bytes(int64_t pixels, int width) {
    const size_t bytes = sizeof(block) + (size_t)pixels * (size_t)width * sizeof(float);
    return (bytes + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
}

size_t comet_cpu_errors_workspace(comet_backend *backend, int64_t pixels, int width) {
    (void)backend;
    return BLOCKS * block_bytes(pixels, width);
}

typedef struct work {
    const comet_errors_layer *l;
    int64_t images, each; /* all, and of a block */
    size_t stride;        /* bytes of a block */
} work;

static int64_t pixels_of(const comet_tensor *t) {
    return t->shape[1] * t->shape[2];
}

/* An image's errors: of x against what it was, or of dy as they are. */
COMET_INLINE const float *take_errors(const comet_errors_layer *l, int64_t image, float *errors) {
    const int64_t pixels = pixels_of(l->exact ? l->x : l->dy), channels = l->x->shape[3];
    if (!l->exact)
        return l->error->values + image * pixels * l->error->width;
    const float *x = (const float *)l->x->data + image * pixels * channels + l->exact->kept.first;
    const int width = l->exact->kept.width;
    for (int64_t p = 0; p < pixels; p++)
        for (int i = 0; i < l->count; i++)
            errors[p * width + i] = x[p * channels + i] - comet_errors_rebuild(l->exact, image * pixels + p, image, i);
    return errors;
}

/* Positions of a row of the output at which a tap is inside the image. */
typedef struct span {
    int64_t first, end;
} span;

COMET_INLINE span inside(int64_t outputs, int64_t inputs, int tap, int padding, int stride) {
    const int64_t offset = tap - padding, last = inputs - 1 - offset;
    span s = {offset < 0 ? (-offset + stride - 1) / stride : 0, last < 0 ? 0 : last / stride + 1};
    s.end = s.end < outputs ? s.end : outputs;
    return s;
}

/* The products of `positions` rows of errors and of the other side; m: how many others, a constant where it is hot. */
COMET_INLINE void add_products(const float *e, int64_t e_step, const float *o, int64_t o_step, int64_t positions,
                               int count, int m, double *sums) {
    for (int i = 0; i < count; i++) {
        float sum[COMET_ERRORS_OTHERS] = {0};
        for (int64_t p = 0; p < positions; p++) {
            const float error = e[p * e_step + i];
            const float *other = o + p * o_step;
            for (int j = 0; j < m; j++)
                sum[j] += error * other[j];
        }
        for (int j = 0; j < m; j++)
            sums[i * m + j] += (double)sum[j];
    }
}

COMET_INLINE void add_row(const float *e, int64_t e_step, const float *o, int64_t o_step, int64_t positions, int count,
                          int m, double *sums) {
    if (m == 16)
        add_products(e, e_step, o, o_step, positions, count, 16, sums);
    else if (m == 8)
        add_products(e, e_step, o, o_step, positions, count, 8, sums);
    else
        add_products(e, e_step, o, o_step, positions, count, m, sums);
}

/* All rows of one image at one tap. */
COMET_INLINE void add_tap(const comet_errors_layer *l, int64_t image, const int tap[2], const float *errors,
                          double *sums) {
    const comet_tensor *other = l->exact ? l->dy : l->x;
    const int64_t channels = other->shape[3], stride = l->stride,
                  width = l->exact ? l->exact->kept.width : l->error->width;
    const float *all = (const float *)other->data + image * pixels_of(other) * channels + l->other;
    const span down = inside(l->dy->shape[1], l->x->shape[1], tap[0], l->padding[0], l->stride),
               right = inside(l->dy->shape[2], l->x->shape[2], tap[1], l->padding[1], l->stride);
    for (int64_t h = down.first; h < down.end && right.first < right.end; h++) {
        const int64_t y = h * l->dy->shape[2] + right.first,
                      x = (h * stride + tap[0] - l->padding[0]) * l->x->shape[2] + right.first * stride + tap[1] -
                          l->padding[1];
        const int64_t e = l->exact ? x : y, o = l->exact ? y : x;
        add_row(errors + e * width, (l->exact ? stride : 1) * width, all + o * channels,
                (l->exact ? 1 : stride) * channels, right.end - right.first, l->count, l->others, sums);
    }
}

COMET_RANGE(layer_images) {
    const work *w = context;
    const comet_errors_layer *l = w->l;
    for (int64_t image = first; image < end; image++) {
        block *b = (block *)((char *)l->workspace + (size_t)(image / w->each) * w->stride);
        double *sums = b->sums;
        const float *errors = take_errors(l, image, b->errors);
        for (int r = 0; r < l->kernel[0]; r++)
            for (int s = 0; s < l->kernel[1]; s++, sums += l->count * l->others)
                add_tap(l, image, (const int[2]){r, s}, errors, sums);
    }
}

/* Channels of different groups have no weight in common. */
static int is_weight(const comet_errors_layer *l, int i, int j) {
    const int error = (l->exact ? l->exact->kept.first : l->error->first) + i, other = l->other + j;
    const int64_t inputs = l->x->shape[3] / l->groups, outputs = l->dy->shape[3] / l->groups;
    return l->exact ? error / inputs == other / outputs : error / outputs == other / inputs;
}

comet_status comet_cpu_errors_layer(comet_backend *backend, const comet_errors_layer *l, double *sums) {
    const int taps = l->kernel[0] * l->kernel[1], pairs = l->count * l->others;
    work w = {.l = l, .images = l->x->shape[0]};
    w.each = (w.images + BLOCKS - 1) / BLOCKS;
    w.stride = block_bytes(l->exact ? pixels_of(l->x) : 0, l->exact ? l->exact->kept.width : 0);
    if (taps * pairs > COMET_ERRORS_SUMS)
        return COMET_ERROR_CAPACITY;
    for (int k = 0; k < BLOCKS; k++)
        memset((char *)l->workspace + (size_t)k * w.stride, 0, sizeof(block));
    comet_loop(backend->threads, w.images, w.each, layer_images, &w);
    for (int k = 0; k < BLOCKS; k++) {
        const block *b = (const block *)((const char *)l->workspace + (size_t)k * w.stride);
        for (int i = 0; i < taps * pairs; i++)
            if (is_weight(l, i % pairs / l->others, i % l->others))
                sums[i] += b->sums[i];
    }
    return COMET_OK;
}
