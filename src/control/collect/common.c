/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an error that a channel of a batch norm has in common, one number times u, reaches the weights before it: by
 * the sums of u_k x_i over all positions (docs/theory.md, 2.4). All of them would be one more backward of the
 * convolution; here they are estimated from some outputs at some positions. The square of a sum over positions is a
 * sum over pairs of positions: with themselves, within an image, where they are alike, and of different images. What
 * is seen of each kind stands for all pairs of the kind.
 */
#include <math.h>
#include <string.h>

#include "base/vector/loop.h"
#include "control/collect/layer.h"

enum { POSITIONS = COMET_COMMON_POSITIONS, IMAGES = 32, MOST_EACH = 32 };

/* For each block of outputs: inputs at some positions, their means, weights and two sums of each output. */
enum { OUTPUTS = COMET_COMMON_OUTPUTS, BLOCK = 4, TOGETHER = 4, ARRAYS = TOGETHER + 1 + 3 * BLOCK };

size_t comet_common_floats(int64_t fan_in) {
    return (size_t)fan_in * (OUTPUTS / BLOCK * ARRAYS);
}

/* ---- taps in the padding ---- */

double comet_layer_tap_inside(const comet_layer *l, int axis, int tap) {
    const int64_t in = axis ? l->in.width : l->in.height, out = axis ? l->out.width : l->out.height;
    int64_t count = 0;
    for (int64_t i = 0; i < out; i++) {
        const int64_t at = i * l->stride[axis] + (int64_t)tap * l->dilation[axis] - l->padding[axis];
        count += at >= 0 && at < in;
    }
    return (double)count / (double)out;
}

double comet_layer_inside(const comet_layer *l) {
    double share[2] = {0, 0};
    for (int axis = 0; axis < 2; axis++)
        for (int tap = 0; tap < l->kernel[axis]; tap++)
            share[axis] += comet_layer_tap_inside(l, axis, tap) / l->kernel[axis];
    return share[0] * share[1];
}

/* ---- which positions ---- */

static uint64_t scramble(uint64_t x) { /* splitmix64 */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static int is_drawn(const int64_t *list, int count, int64_t place) {
    for (int i = 0; i < count; i++)
        if (list[i] == place)
            return 1;
    return 0;
}

comet_common_sample comet_common_sample_of(const comet_layer *l) {
    comet_common_sample s = {.batch = l->in.images, .positions = l->out.height * l->out.width, .fan_in = l->fan_in};
    s.outputs = l->out.channels < OUTPUTS ? (int)l->out.channels : OUTPUTS;
    s.images = l->in.images < IMAGES ? (int)l->in.images : IMAGES;
    const int most = MOST_EACH < POSITIONS / s.images ? MOST_EACH : POSITIONS / s.images;
    s.each = s.positions < most ? (int)s.positions : most;
    return s;
}

/* None twice (Floyd), and always the same ones: a run that is resumed must decide as it would have. */
void comet_common_draw(const comet_common_sample *s, int64_t *places) {
    for (int image = 0; image < s->images; image++) {
        int64_t *list = places + image * s->each;
        for (int i = 0; i < s->each; i++) {
            const int64_t last = s->positions - s->each + i;
            const int64_t drawn = (int64_t)(scramble((uint64_t)(image * s->each + i)) % (uint64_t)(last + 1));
            list[i] = is_drawn(list, i, drawn) ? last : drawn;
        }
    }
}

/* ---- their inputs: tap by tap, all channels of a group together ---- */

/* The mean of each input: 0 counts in the padding. */
static void read_means(const comet_layer *l, const double *all_sums, int64_t group, float *means) {
    const int64_t channels = l->in.channels / l->groups;
    const double pixels = (double)comet_maps_pixels(&l->in), *sums = all_sums + group * channels;
    for (int r = 0; r < l->kernel[0]; r++)
        for (int t = 0; t < l->kernel[1]; t++) {
            const double part = comet_layer_tap_inside(l, 0, r) * comet_layer_tap_inside(l, 1, t) / pixels;
            for (int64_t c = 0; c < channels; c++)
                *means++ = (float)(sums[c] * part);
        }
}

/* Where a tap reads; NULL: in the padding. */
static const float *tap_at(const comet_layer *l, int64_t image, int64_t place, int r, int t) {
    const comet_maps *in = &l->in;
    const int64_t y = place / l->out.width * l->stride[0] + (int64_t)r * l->dilation[0] - l->padding[0],
                  x = place % l->out.width * l->stride[1] + (int64_t)t * l->dilation[1] - l->padding[1];
    const int is_inside = y >= 0 && y < in->height && x >= 0 && x < in->width;
    return is_inside ? in->data + image * in->to_image + y * in->to_row + x * in->to_pixel : NULL;
}

/* All channels of a group, less their means. */
static void read_pixel(const float *pixel, int64_t stride, int64_t channels, const float *means, float *inputs) {
    if (stride == 1)
        for (int64_t c = 0; c < channels; c++)
            inputs[c] = pixel[c] - means[c];
    else
        for (int64_t c = 0; c < channels; c++)
            inputs[c] = pixel[c * stride] - means[c];
}

/* At a place of an image, without their means. */
static void read_inputs(const comet_layer *l, int64_t image, int64_t place, int64_t group, const float *means,
                        float *inputs) {
    const int64_t channels = l->in.channels / l->groups, to_channel = l->in.to_channel;
    for (int r = 0; r < l->kernel[0]; r++)
        for (int t = 0; t < l->kernel[1]; t++) {
            const float *pixel = tap_at(l, image, place, r, t);
            if (pixel)
                read_pixel(pixel + group * channels * to_channel, to_channel, channels, means, inputs);
            else
                for (int64_t c = 0; c < channels; c++)
                    inputs[c] = 0 - means[c];
            inputs += channels;
            means += channels;
        }
}

/* An output's weights, in the order of the inputs. */
static void read_weights(const comet_layer *l, int64_t output, float *to) {
    const int64_t channels = l->in.channels / l->groups, taps = (int64_t)l->kernel[0] * l->kernel[1];
    const float *from = l->weights + output * l->fan_in;
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t c = 0; c < channels; c++)
            to[tap * channels + c] = from[c * taps + tap];
}

/* ---- what follows ---- */

static double squares_of(const float *x, int64_t count) {
    return comet_correlate_dot(x, x, count);
}

/* Some outputs of a group. */
typedef struct outputs {
    int count;
    int64_t group;
    float *inputs, *means;
    float *weights, *all, *now; /* of each output; sums of u x over all images, over one */
    comet_common_output *found;
} outputs;

/* What the outputs of a layer are seen with. */
typedef struct outputs_work {
    const comet_layer *l;
    const double *sums;
    const comet_common_sample *s;
    const int64_t *places, *which;
    float *memory;
    comet_common_output *found;
} outputs_work;

static void see_image(const outputs_work *w, int image, const outputs *o) {
    const comet_layer *l = w->l;
    const comet_common_sample *s = w->s;
    const int64_t n = l->fan_in, from = comet_common_which(image, s->images, l->in.images);
    memset(o->now, 0, (size_t)(o->count * n) * sizeof *o->now);
    for (int first = 0; first < s->each; first += TOGETHER) {
        const int count = s->each - first < TOGETHER ? s->each - first : TOGETHER;
        double squares[TOGETHER];
        for (int p = 0; p < count; p++) {
            float *inputs = o->inputs + p * n;
            read_inputs(l, from, w->places[image * s->each + first + p], o->group, o->means, inputs);
            squares[p] = squares_of(inputs, n);
        }
        for (int i = 0; i < o->count; i++)
            comet_correlate(o->inputs, squares, count, n, o->weights + i * n, o->now + i * n, &o->found[i].with_itself);
    }
    for (int i = 0; i < o->count; i++)
        o->found[i].in_images += squares_of(o->now + i * n, n);
    for (int64_t k = 0; k < o->count * n; k++)
        o->all[k] += o->now[k];
}

static void see_outputs(const outputs_work *w, int first, int count, float *memory) {
    const comet_layer *l = w->l;
    const int64_t *which = w->which + first;
    comet_common_output *found = w->found + first;
    const int64_t n = l->fan_in;
    const outputs o = {.count = count,
                       .group = which[0] / (l->out.channels / l->groups),
                       .inputs = memory,
                       .means = memory + TOGETHER * n,
                       .weights = memory + (TOGETHER + 1) * n,
                       .all = memory + (TOGETHER + 1 + BLOCK) * n,
                       .now = memory + (TOGETHER + 1 + 2 * BLOCK) * n,
                       .found = found};
    read_means(l, w->sums, o.group, o.means);
    for (int i = 0; i < count; i++)
        read_weights(l, which[i], o.weights + i * n);
    memset(o.all, 0, (size_t)(count * n) * sizeof *o.all);
    for (int image = 0; image < w->s->images; image++)
        see_image(w, image, &o);
    for (int i = 0; i < count; i++)
        found[i].in_all = squares_of(o.all + i * n, n);
}

/* Threads share the outputs, by blocks. */
static void outputs_range(const void *context, int64_t first, int64_t end) {
    const outputs_work *w = context;
    const int64_t in_group = w->l->out.channels / w->l->groups;
    float *memory = w->memory + first / BLOCK * ARRAYS * w->l->fan_in;
    for (int i = (int)first, stop; i < (int)end; i = stop) {
        for (stop = i + 1; stop < (int)end && stop - i < BLOCK; stop++)
            if (w->which[stop] / in_group != w->which[i] / in_group)
                break;
        see_outputs(w, i, stop - i, memory);
    }
}

/* From the sample to the batch: as many pairs of each kind as there are. */
static double whole(const comet_common_sample *s, const comet_common_output *o) {
    const double batch = (double)s->batch, positions = (double)s->positions;
    const double images = s->images, each = s->each;
    const double alike = each > 1 ? batch * positions * (positions - 1) / (images * each * (each - 1)) : 0;
    const double others =
        images > 1 ? batch * (batch - 1) * positions * positions / (images * (images - 1) * each * each) : 0;
    return o->with_itself.own * batch * positions / (images * each) + (o->in_images - o->with_itself.own) * alike +
           (o->in_all - o->in_images) * others;
}

double comet_common_end(const comet_common_sample *s, const comet_common_output *found) {
    double all = 0, own = 0, weights = 0;
    /* A channel counts as the norm multiplies it: by 1 / variance. */
    const double scale = (double)(s->batch * s->positions) / (s->images * s->each);
    for (int i = 0; i < s->outputs; i++) {
        const double variance = found[i].with_itself.squares * scale;
        if (isnan(variance)) /* weights that are not finite are to be seen */
            return variance;
        if (!(variance > 0))
            continue;
        all += whole(s, &found[i]) / (variance * variance);
        own += found[i].with_itself.own * scale / (variance * variance);
        weights += 1 / variance;
    }
    return weights > 0 ? (fmax(all, own) + 0 * all) / weights / (double)s->fan_in : 0 * all; /* NaN stays */
}

double comet_layer_common(comet_threads *threads, const comet_layer *l, const double *sums, float *memory) {
    int64_t which[OUTPUTS];
    comet_common_output found[OUTPUTS] = {{{0, 0}, 0, 0}};
    int64_t places[POSITIONS];
    const comet_common_sample s = comet_common_sample_of(l);
    comet_common_draw(&s, places);
    for (int i = 0; i < s.outputs; i++)
        which[i] = comet_common_which(i, s.outputs, l->out.channels);
    const outputs_work work = {l, sums, &s, places, which, memory, found};
    comet_loop(threads, s.outputs, BLOCK, outputs_range, &work);
    return comet_common_end(&s, found);
}
