/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an error that a channel of a batch norm has in common, one number times u, reaches the weights before it: by the sums of u_k x_i over all positions
 * (docs/theory.md, 2.4). All of them would be one more backward of the convolution; here they are estimated from some outputs at some positions. The square of a sum over
 * positions is a sum over pairs of positions: with themselves, within an image, where they are alike, and of different images. What is seen of each kind stands for all
 * pairs of the kind.
 */
#include <math.h>
#include <string.h>

#include "train/collect_impl.h"

enum { POSITIONS = 512, IMAGES = 32 };

/* A convolution, or a linear layer as one. */
typedef struct layer {
    const float *x, *weights; /* NHWC; outputs, inputs, kernel */
    comet_shape in, out;
    int batch, kernel[2], padding[2], stride, groups, fan_in;
    const double *sums; /* of x, by channel */
} layer;

static layer layer_of(const comet_op_call *call, const double *sums) {
    const comet_node *node = call->node;
    layer l = {.x = call->x[0],
               .weights = comet_node_parameter(call->graph, node, COMET_PARAMETER_WEIGHT)->value,
               .in = *comet_value_shape(call->graph, node->input[0]),
               .out = *comet_value_shape(call->graph, node->output),
               .batch = call->batch,
               .kernel = {1, 1},
               .stride = 1,
               .groups = 1,
               .sums = sums};
    if (node->kind == COMET_OP_CONV) {
        const comet_conv2d *conv = &node->as.conv;
        l.kernel[0] = conv->kernel;
        l.kernel[1] = conv->kernel_width;
        l.padding[0] = conv->padding;
        l.padding[1] = conv->padding_width;
        l.stride = conv->stride;
        l.groups = conv->groups;
    }
    l.fan_in = l.in.channels / l.groups * l.kernel[0] * l.kernel[1];
    return l;
}

/* ---- taps in the padding ---- */

/* Of the positions of outputs, the part at which a tap is inside the image. */
static double inside(const layer *l, int axis, int tap) {
    const int in = axis ? l->in.width : l->in.height, out = axis ? l->out.width : l->out.height;
    int count = 0;
    for (int i = 0; i < out; i++) {
        const int at = i * l->stride + tap - l->padding[axis];
        count += at >= 0 && at < in;
    }
    return (double)count / out;
}

double comet_collect_inside(const comet_op_call *call) {
    const layer l = layer_of(call, NULL);
    double share[2] = {0, 0};
    for (int axis = 0; axis < 2; axis++)
        for (int tap = 0; tap < l.kernel[axis]; tap++)
            share[axis] += inside(&l, axis, tap) / l.kernel[axis];
    return share[0] * share[1];
}

/* ---- which positions ---- */

typedef struct sample {
    int images, each; /* positions of an image */
    int64_t place[POSITIONS];
    float *inputs; /* at the places of one image */
    float *sums;   /* for each output: over all of them, then over those of one image */
} sample;

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

/* None twice (Floyd), and always the same ones: a run that is resumed must decide as it would have. */
static void draw(sample *s, const layer *l) {
    const int64_t positions = (int64_t)l->out.height * l->out.width;
    s->images = l->batch < IMAGES ? l->batch : IMAGES;
    const int most = COMET_COLLECT_SAMPLES < POSITIONS / s->images ? COMET_COLLECT_SAMPLES : POSITIONS / s->images;
    s->each = positions < most ? (int)positions : most;
    for (int image = 0; image < s->images; image++) {
        int64_t *list = s->place + image * s->each;
        for (int i = 0; i < s->each; i++) {
            const int64_t last = positions - s->each + i;
            const int64_t drawn = (int64_t)(scramble((uint64_t)(image * s->each + i)) % (uint64_t)(last + 1));
            list[i] = is_drawn(list, i, drawn) ? last : drawn;
        }
    }
}

/* ---- their inputs ---- */

/* One tap at one place, without its mean. */
static void read_tap(const layer *l, int64_t image, int64_t place, int group, int tap, float *to) {
    const int channels = l->in.channels / l->groups, taps = l->kernel[0] * l->kernel[1];
    const int r = tap / l->kernel[1], t = tap % l->kernel[1];
    const int64_t y = place / l->out.width * l->stride + r - l->padding[0],
                  x = place % l->out.width * l->stride + t - l->padding[1];
    const int is_inside = y >= 0 && y < l->in.height && x >= 0 && x < l->in.width;
    const double pixels = (double)l->in.height * l->in.width * l->batch;
    const double part = inside(l, 0, r) * inside(l, 1, t) / pixels;
    const double *sums = l->sums + group * channels;
    const float *pixel = is_inside ? l->x + ((image * l->in.height + y) * l->in.width + x) * l->in.channels : NULL;
    for (int c = 0; c < channels; c++)
        to[c * taps + tap] = (float)((pixel ? (double)pixel[group * channels + c] : 0) - sums[c] * part);
}

static void read_inputs(const layer *l, const sample *s, int image, int group) {
    const int64_t from = (int64_t)image * l->batch / s->images;
    for (int p = 0; p < s->each; p++)
        for (int tap = 0; tap < l->kernel[0] * l->kernel[1]; tap++)
            read_tap(l, from, s->place[image * s->each + p], group, tap, s->inputs + (int64_t)p * l->fan_in);
}

/* ---- what follows ---- */

/* Sums over inputs of (sum of u x_i)^2, over all pairs of the sample: of different images, of one, of a position with itself. */
typedef struct output {
    comet_correlation with_itself;
    double in_images, in_all;
} output;

static double squares_of(const float *x, int64_t count) {
    return comet_statistics_dot(x, x, count);
}

/* Outputs of a group, one image after the other. */
static void see_group(const layer *l, const sample *s, const int *which, int count, output *found) {
    const int64_t n = l->fan_in;
    float *now = s->sums + count * n;
    memset(s->sums, 0, (size_t)(count * n) * sizeof *s->sums);
    for (int image = 0; image < s->images; image++) {
        read_inputs(l, s, image, which[0] / (l->out.channels / l->groups));
        for (int i = 0; i < count; i++) {
            float *all = s->sums + i * n;
            memset(now, 0, (size_t)n * sizeof *now);
            comet_statistics_correlate(s->inputs, s->each, n, l->weights + which[i] * n, now, &found[i].with_itself);
            found[i].in_images += squares_of(now, n);
            for (int64_t k = 0; k < n; k++)
                all[k] += now[k];
        }
    }
    for (int i = 0; i < count; i++)
        found[i].in_all = squares_of(s->sums + i * n, n);
}

/* From the sample to the batch: as many pairs of each kind as there are. */
static double whole(const layer *l, const sample *s, const output *o) {
    const double batch = l->batch, positions = (double)l->out.height * l->out.width, images = s->images, each = s->each;
    const double alike = each > 1 ? batch * positions * (positions - 1) / (images * each * (each - 1)) : 0;
    const double others =
        images > 1 ? batch * (batch - 1) * positions * positions / (images * (images - 1) * each * each) : 0;
    return o->with_itself.own * batch * positions / (images * each) + (o->in_images - o->with_itself.own) * alike +
           (o->in_all - o->in_images) * others;
}

double comet_collect_common(comet_collect *c, const comet_op_call *call, const double *sums) {
    const layer l = layer_of(call, sums);
    const int count = l.out.channels < COMET_COLLECT_OUTPUTS ? l.out.channels : COMET_COLLECT_OUTPUTS,
              in_group = l.out.channels / l.groups;
    int which[COMET_COLLECT_OUTPUTS];
    output found[COMET_COLLECT_OUTPUTS] = {{{0, 0}, 0, 0}};
    double all = 0, own = 0, weights = 0;
    sample s = {.inputs = c->inputs, .sums = c->inputs + COMET_COLLECT_SAMPLES * c->most_inputs};
    draw(&s, &l);
    for (int i = 0; i < count; i++)
        which[i] = (int)((int64_t)i * l.out.channels / count);
    for (int first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && which[end] / in_group == which[first] / in_group; end++)
            continue;
        see_group(&l, &s, which + first, end - first, found + first);
    }
    /* A channel counts as the norm multiplies it: by 1 / variance. */
    const double scale = (double)l.batch * l.out.height * l.out.width / (s.images * s.each);
    for (int i = 0; i < count; i++) {
        const double variance = found[i].with_itself.squares * scale;
        if (!(variance > 0))
            continue;
        all += whole(&l, &s, &found[i]) / (variance * variance);
        own += found[i].with_itself.own * scale / (variance * variance);
        weights += 1 / variance;
    }
    return weights > 0 ? (fmax(all, own) + 0 * all) / weights / l.fan_in : 0 * all; /* NaN stays */
}
