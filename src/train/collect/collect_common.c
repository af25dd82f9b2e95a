/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an error that a channel of a batch norm has in common, one number times u, reaches the weights before it: by the sums of u_k x_i over all positions
 * (docs/theory.md, 2.4). All of them would be one more backward of the convolution; here they are estimated from some outputs at some positions. The square of a sum over
 * positions is a sum over pairs of positions: with themselves, within an image, where they are alike, and of different images. What is seen of each kind stands for all
 * pairs of the kind.
 */
#include <math.h>
#include <string.h>

#include "train/backend/cpu/loop.h"
#include "train/collect/collect_impl.h"

enum { POSITIONS = 512, IMAGES = 32, MOST_EACH = 32 };
enum { BLOCK = COMET_COLLECT_BLOCK, TOGETHER = COMET_COLLECT_TOGETHER };

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
    const int most = MOST_EACH < POSITIONS / s->images ? MOST_EACH : POSITIONS / s->images;
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

/* ---- their inputs: tap by tap, all channels of a group together ---- */

/* The mean of each input: 0 counts in the padding. */
static void read_means(const layer *l, int group, float *means) {
    const int channels = l->in.channels / l->groups;
    const double pixels = (double)l->in.height * l->in.width * l->batch, *sums = l->sums + group * channels;
    for (int r = 0; r < l->kernel[0]; r++)
        for (int t = 0; t < l->kernel[1]; t++) {
            const double part = inside(l, 0, r) * inside(l, 1, t) / pixels;
            for (int c = 0; c < channels; c++)
                *means++ = (float)(sums[c] * part);
        }
}

/* Where a tap reads; NULL: in the padding. */
static const float *tap_at(const layer *l, int64_t image, int64_t place, int r, int t) {
    const int64_t y = place / l->out.width * l->stride + r - l->padding[0],
                  x = place % l->out.width * l->stride + t - l->padding[1];
    const int is_inside = y >= 0 && y < l->in.height && x >= 0 && x < l->in.width;
    return is_inside ? l->x + ((image * l->in.height + y) * l->in.width + x) * l->in.channels : NULL;
}

/* At a place of an image, without their means. */
static void read_inputs(const layer *l, int64_t image, int64_t place, int group, const float *means, float *inputs) {
    const int channels = l->in.channels / l->groups;
    for (int r = 0; r < l->kernel[0]; r++)
        for (int t = 0; t < l->kernel[1]; t++) {
            const float *pixel = tap_at(l, image, place, r, t);
            for (int c = 0; c < channels; c++)
                inputs[c] = (pixel ? pixel[group * channels + c] : 0) - means[c];
            inputs += channels;
            means += channels;
        }
}

/* An output's weights, in the order of the inputs. */
static void read_weights(const layer *l, int output, float *to) {
    const int channels = l->in.channels / l->groups, taps = l->kernel[0] * l->kernel[1];
    const float *from = l->weights + (int64_t)output * l->fan_in;
    for (int tap = 0; tap < taps; tap++)
        for (int c = 0; c < channels; c++)
            to[tap * channels + c] = from[c * taps + tap];
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

/* Some outputs of a group. */
typedef struct outputs {
    int count, group;
    float *inputs, *means;
    float *weights, *all, *now; /* of each output; sums of u x over all images, over one */
    output *found;
} outputs;

static void see_image(const layer *l, const sample *s, int image, const outputs *o) {
    const int64_t n = l->fan_in, from = (int64_t)image * l->batch / s->images;
    memset(o->now, 0, (size_t)(o->count * n) * sizeof *o->now);
    for (int first = 0; first < s->each; first += TOGETHER) {
        const int count = s->each - first < TOGETHER ? s->each - first : TOGETHER;
        double squares[TOGETHER];
        for (int p = 0; p < count; p++) {
            float *inputs = o->inputs + p * n;
            read_inputs(l, from, s->place[image * s->each + first + p], o->group, o->means, inputs);
            squares[p] = squares_of(inputs, n);
        }
        for (int i = 0; i < o->count; i++)
            comet_statistics_correlate(o->inputs, squares, count, n, o->weights + i * n, o->now + i * n,
                                       &o->found[i].with_itself);
    }
    for (int i = 0; i < o->count; i++)
        o->found[i].in_images += squares_of(o->now + i * n, n);
    for (int64_t k = 0; k < o->count * n; k++)
        o->all[k] += o->now[k];
}

static void see_outputs(const layer *l, const sample *s, const int *which, int count, float *memory, output *found) {
    const int64_t n = l->fan_in;
    const outputs o = {.count = count,
                       .group = which[0] / (l->out.channels / l->groups),
                       .inputs = memory,
                       .means = memory + TOGETHER * n,
                       .weights = memory + (TOGETHER + 1) * n,
                       .all = memory + (TOGETHER + 1 + BLOCK) * n,
                       .now = memory + (TOGETHER + 1 + 2 * BLOCK) * n,
                       .found = found};
    read_means(l, o.group, o.means);
    for (int i = 0; i < count; i++)
        read_weights(l, which[i], o.weights + i * n);
    memset(o.all, 0, (size_t)(count * n) * sizeof *o.all);
    for (int image = 0; image < s->images; image++)
        see_image(l, s, image, &o);
    for (int i = 0; i < count; i++)
        found[i].in_all = squares_of(o.all + i * n, n);
}

/* Threads share the outputs, by blocks. */
typedef struct outputs_work {
    const layer *l;
    const sample *s;
    const int *which;
    float *memory;
    output *found;
} outputs_work;

static void outputs_range(const void *context, int64_t first, int64_t end) {
    const outputs_work *w = context;
    const int in_group = w->l->out.channels / w->l->groups;
    float *memory = w->memory + first / BLOCK * COMET_COLLECT_ARRAYS * w->l->fan_in;
    for (int i = (int)first, stop; i < (int)end; i = stop) {
        for (stop = i + 1; stop < (int)end && stop - i < BLOCK; stop++)
            if (w->which[stop] / in_group != w->which[i] / in_group)
                break;
        see_outputs(w->l, w->s, w->which + i, stop - i, memory, w->found + i);
    }
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
    const int count = l.out.channels < COMET_COLLECT_OUTPUTS ? l.out.channels : COMET_COLLECT_OUTPUTS;
    int which[COMET_COLLECT_OUTPUTS];
    output found[COMET_COLLECT_OUTPUTS] = {{{0, 0}, 0, 0}};
    double all = 0, own = 0, weights = 0;
    sample s;
    draw(&s, &l);
    for (int i = 0; i < count; i++)
        which[i] = (int)((int64_t)i * l.out.channels / count);
    const outputs_work work = {&l, &s, which, c->inputs, found};
    comet_loop(c->threads, count, BLOCK, outputs_range, &work);
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
