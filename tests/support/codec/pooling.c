/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/pooling.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MAP_VALUES = 1 << 20 }; /* that are pooled in earnest */

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

/* ---- windows ---- */

static int64_t span_of(const comet_pool_window *w, int d) {
    return (int64_t)(w->kernel[d] - 1) * w->dilation[d] + 1;
}

/* As frameworks count outputs; `up`: ceil mode. */
static int64_t outputs_of(const comet_pool_window *w, int d, int up) {
    int64_t room = w->input[d] + 2 * (int64_t)w->padding[d] - span_of(w, d);
    int64_t n = (room + (up ? w->stride[d] - 1 : 0)) / w->stride[d] + 1;
    if (up && (n - 1) * w->stride[d] >= w->input[d] + w->padding[d])
        n--;
    return n;
}

static void random_side(rng *r, comet_pool_window *w, int d) {
    w->kernel[d] = (int32_t)rng_between(r, 1, rng_below(r, 3) ? 4 : 16);
    w->dilation[d] = rng_below(r, 4) ? 1 : (int32_t)rng_between(r, 1, 4);
    w->stride[d] = (int32_t)rng_between(r, 1, w->kernel[d] + 1);
    w->padding[d] = (int32_t)rng_between(r, 0, rng_below(r, 4) ? w->kernel[d] / 2 : span_of(w, d) / 2);
    int64_t least = span_of(w, d) - 2 * w->padding[d];
    least = least < 1 ? 1 : least;
    w->input[d] = rng_between(r, least, least + (rng_below(r, 4) ? 20 : 90));
    w->output[d] = outputs_of(w, d, (int)rng_below(r, 2));
}

comet_pool_window pooling_window(rng *r, int64_t most) {
    comet_pool_window w;
    do {
        w = (comet_pool_window)COMET_POOL_WINDOW_INIT;
        if (rng_below(r, 5)) /* else along one dimension */
            random_side(r, &w, 0);
        random_side(r, &w, 1);
    } while (!pooling_is_possible(&w));
    int64_t maps = most / (w.output[0] * w.output[1]);
    maps = maps < 1 ? 1 : maps;
    w.channels = rng_between(r, 0, maps < 40 ? maps : 40);
    w.batch = rng_between(r, 0, w.channels ? maps / w.channels : maps);
    w.layout = rng_below(r, 2) ? COMET_NCHW : COMET_NHWC;
    return w;
}

comet_pool_window pooling_extreme(int which) {
    const int32_t most = 1 << 28;
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    const int d = which % 2; /* along rows, along columns */
    w.batch = 3, w.channels = 50;
    w.layout = which % 3 ? COMET_NHWC : COMET_NCHW;
    w.input[d] = most;
    if (which < 2) { /* the widest windows */
        w.kernel[d] = 2, w.dilation[d] = most - 1, w.padding[d] = most / 2, w.stride[d] = most / 3, w.output[d] = 5;
    } else if (which < 4) { /* the widest strides */
        w.kernel[d] = 256, w.dilation[d] = most / 256, w.padding[d] = most / 2 - 1000000, w.stride[d] = most,
        w.output[d] = 2;
    } else { /* large maps in both directions, many windows */
        w.input[0] = w.input[1] = 1 << 14;
        w.kernel[0] = 3, w.kernel[1] = 5, w.dilation[0] = 1000, w.padding[1] = 2;
        w.stride[0] = 2000, w.stride[1] = 3000, w.output[0] = 8, w.output[1] = 6;
    }
    return w;
}

/* ---- values ---- */

typedef struct at {
    int64_t map, place[2];
} at;

static at at_of(const comet_pool_window *w, int64_t i) {
    int64_t inner = w->layout == COMET_NHWC ? w->channels : 1, channel = i % inner;
    at a = {.place = {i / inner / w->output[1] % w->output[0], i / inner % w->output[1]}};
    int64_t outer = i / inner / w->output[1] / w->output[0];
    a.map = w->layout == COMET_NHWC ? outer * w->channels + channel : outer;
    return a;
}

/* Where place k of the window of output o is; negative or behind the map: padding. */
static int64_t coordinate(const comet_pool_window *w, int d, int64_t o, int64_t k) {
    return o * w->stride[d] - w->padding[d] + k * w->dilation[d];
}

static int is_inside(const comet_pool_window *w, int d, int64_t coordinate) {
    return coordinate >= 0 && coordinate < w->input[d];
}

int pooling_is_possible(const comet_pool_window *w) {
    for (int d = 0; d < 2; d++)
        for (int64_t o = 0; o < w->output[d]; o++) {
            int any = 0;
            for (int64_t k = 0; k < w->kernel[d]; k++)
                any |= is_inside(w, d, coordinate(w, d, o, k));
            if (!any)
                return 0;
        }
    return 1;
}

int pooling_is_place(const comet_pool_window *w, int64_t i, int64_t index, unsigned *code) {
    const at a = at_of(w, i);
    for (int64_t k = 0; k < (int64_t)w->kernel[0] * w->kernel[1]; k++) {
        int64_t row = coordinate(w, 0, a.place[0], k / w->kernel[1]);
        int64_t column = coordinate(w, 1, a.place[1], k % w->kernel[1]);
        if (is_inside(w, 0, row) && is_inside(w, 1, column) && row * w->input[1] + column == index) {
            *code = (unsigned)k;
            return 1;
        }
    }
    return 0;
}

static int64_t nearest(int64_t v, int64_t extent, int *valid) {
    if (v >= 0 && v < extent)
        return v;
    *valid = 0;
    return v < 0 ? 0 : extent - 1;
}

int64_t pooling_index(const comet_pool_window *w, int64_t i, unsigned code, int *valid) {
    const at a = at_of(w, i);
    const int64_t k = nearest(code, (int64_t)w->kernel[0] * w->kernel[1], valid);
    const int64_t row = nearest(coordinate(w, 0, a.place[0], k / w->kernel[1]), w->input[0], valid);
    return row * w->input[1] + nearest(coordinate(w, 1, a.place[1], k % w->kernel[1]), w->input[1], valid);
}

/* ---- pooling ---- */

static int64_t any_place(const comet_pool_window *w, rng *r, int64_t i) {
    for (;;) {
        int valid = 1;
        int64_t index =
            pooling_index(w, i, (unsigned)rng_below(r, (uint64_t)w->kernel[0] * (uint64_t)w->kernel[1]), &valid);
        if (valid)
            return index;
    }
}

/* The first of the greatest values. */
static int64_t greatest(const comet_pool_window *w, const unsigned char *maps, int64_t i) {
    const at a = at_of(w, i);
    const unsigned char *map = maps + a.map * w->input[0] * w->input[1];
    int64_t best = -1;
    for (int64_t down = 0; down < w->kernel[0]; down++)
        for (int64_t right = 0; right < w->kernel[1]; right++) {
            int64_t row = coordinate(w, 0, a.place[0], down), column = coordinate(w, 1, a.place[1], right);
            if (!is_inside(w, 0, row) || !is_inside(w, 1, column))
                continue;
            int64_t index = row * w->input[1] + column;
            if (best < 0 || map[index] > map[best])
                best = index;
        }
    return best;
}

static void pool(pooling *p, rng *r) {
    const comet_pool_window *w = &p->window;
    const int64_t map = w->input[0] * w->input[1], maps = w->batch * w->channels;
    if (map > MOST_MAP_VALUES || maps * map > MOST_MAP_VALUES) {
        for (int64_t i = 0; i < p->count; i++)
            p->indices[i] = any_place(w, r, i);
        return;
    }
    unsigned char *values = take((size_t)(maps * map));
    for (int64_t i = 0; i < maps * map; i++)
        values[i] = (unsigned char)rng_below(r, 256);
    for (int64_t i = 0; i < p->count; i++)
        p->indices[i] = greatest(w, values, i);
    free(values);
}

static unsigned bits_of(int places) {
    unsigned bits = 1;
    while (places - 1 >= 1 << bits)
        bits *= 2;
    return bits;
}

pooling pooling_new(rng *r, const comet_pool_window *window) {
    pooling p = {.window = *window};
    p.count = window->batch * window->channels * window->output[0] * window->output[1];
    p.indices = take((size_t)p.count * sizeof *p.indices);
    pool(&p, r);
    p.bits = bits_of(window->kernel[0] * window->kernel[1]);
    p.bytes = ((size_t)p.count * p.bits + 127) / 128 * 16;
    p.packed = take(p.bytes);
    memset(p.packed, 0, p.bytes);
    for (int64_t i = 0; i < p.count; i++) {
        unsigned code;
        if (!pooling_is_place(window, i, p.indices[i], &code))
            abort();
        p.packed[i * p.bits / 8] |= (unsigned char)(code << i * p.bits % 8);
    }
    return p;
}

void pooling_free(pooling *p) {
    free(p->indices);
    free(p->packed);
}

unsigned pooling_code(const pooling *p, const unsigned char *packed, int64_t i) {
    return packed[i * p->bits / 8] >> i * p->bits % 8 & ((1u << p->bits) - 1);
}
