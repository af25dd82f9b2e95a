/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an error that a channel of a batch norm has in common, one number times u, reaches the weights before it: by the sums of u_k x_i over all positions
 * (docs/theory.md, 2.4). All of them would be a convolution's backward more; here they are estimated from a few positions and outputs. With G the products of the inputs at two
 * positions, their squares add up to sum over i of (sum over p of u x_i)^2 = sum over pairs of positions of u(p) u(q) G(p, q): positions with themselves, pairs within
 * an image, which are alike, and pairs of different images each stand for all of their kind.
 */
#include <math.h>

#include "train/collect_impl.h"

enum { IMAGES = 8, OUTPUTS = 32 };

/* A convolution, or a linear layer as one. */
typedef struct layer {
    const float *x, *weights; /* NHWC; outputs, inputs, kernel */
    comet_shape in, out;
    int batch, kernel[2], padding[2], stride, groups, fan_in;
} layer;

typedef struct sample {
    int images, each; /* positions of an image */
    int count;
    int64_t position[COMET_COLLECT_SAMPLES]; /* of the outputs, in the batch */
    const float *inputs;                     /* of each, less their means: fan_in */
    double products[COMET_COLLECT_SAMPLES][COMET_COLLECT_SAMPLES];
} sample;

static layer layer_of(const comet_op_call *call) {
    const comet_node *node = call->node;
    layer l = {.x = call->x[0],
               .weights = comet_node_parameter(call->graph, node, COMET_PARAMETER_WEIGHT)->value,
               .in = *comet_value_shape(call->graph, node->input[0]),
               .out = *comet_value_shape(call->graph, node->output),
               .batch = call->batch,
               .kernel = {1, 1},
               .stride = 1,
               .groups = 1};
    if (node->kind == COMET_OP_CONV) {
        const comet_conv2d *conv = &node->as.conv;
        l.kernel[0] = conv->kernel;
        l.kernel[1] = conv->kernel_width;
        l.padding[0] = conv->padding;
        l.padding[1] = conv->padding_width;
        l.stride = conv->stride;
        l.groups = conv->groups;
    } else
        l.in = (comet_shape){1, 1, (int)comet_shape_count(l.in)};
    l.fan_in = l.in.channels / l.groups * l.kernel[0] * l.kernel[1];
    return l;
}

/* ---- which positions ---- */

static uint64_t scramble(uint64_t x) { /* splitmix64 */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static int is_drawn(const int64_t *list, int count, int64_t position) {
    for (int i = 0; i < count; i++)
        if (list[i] == position)
            return 1;
    return 0;
}

/* Without any twice (Floyd), always the same ones: a run that is resumed must decide as it would have. */
static void draw(sample *s, const layer *l) {
    const int64_t positions = (int64_t)l->out.height * l->out.width;
    s->images = l->batch < IMAGES ? l->batch : IMAGES;
    if (positions == 1)
        s->images = l->batch < COMET_COLLECT_SAMPLES ? l->batch : COMET_COLLECT_SAMPLES;
    const int most = COMET_COLLECT_SAMPLES / s->images;
    s->each = positions < most ? (int)positions : most;
    s->count = 0;
    for (int image = 0; image < s->images; image++) {
        const int64_t first = (int64_t)image * l->batch / s->images * positions;
        int64_t *list = &s->position[s->count];
        for (int i = 0; i < s->each; i++) {
            const int64_t last = positions - s->each + i;
            const int64_t drawn = (int64_t)(scramble((uint64_t)s->count) % (uint64_t)(last + 1));
            list[i] = first + (is_drawn(list, i, first + drawn) ? last : drawn);
            s->count++;
        }
    }
}

/* How many pairs of a kind each pair of the sample stands for. */
static double stands_for(const sample *s, const layer *l, int a, int b) {
    const double positions = (double)l->out.height * l->out.width, batch = l->batch;
    if (a == b)
        return batch * positions / s->count;
    if (a / s->each == b / s->each)
        return batch * positions * (positions - 1) / ((double)s->images * s->each * (s->each - 1));
    return batch * (batch - 1) * positions * positions / ((double)s->images * (s->images - 1) * s->each * s->each);
}

/* ---- their inputs ---- */

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
    const layer l = layer_of(call);
    double share[2] = {0, 0};
    for (int axis = 0; axis < 2; axis++)
        for (int tap = 0; tap < l.kernel[axis]; tap++)
            share[axis] += inside(&l, axis, tap) / l.kernel[axis];
    return share[0] * share[1];
}

static void read_inputs(const layer *l, int group, const sample *s, const double *sums, float *to) {
    const int channels = l->in.channels / l->groups, taps = l->kernel[0] * l->kernel[1];
    const double pixels = (double)l->in.height * l->in.width * l->batch;
    for (int tap = 0; tap < taps; tap++) {
        const int r = tap / l->kernel[1], t = tap % l->kernel[1];
        const double part = inside(l, 0, r) * inside(l, 1, t) / pixels;
        for (int p = 0; p < s->count; p++) {
            const int64_t at = s->position[p], column = at % l->out.width, row = at / l->out.width % l->out.height;
            const int64_t y = row * l->stride + r - l->padding[0], x = column * l->stride + t - l->padding[1];
            const int is_inside = y >= 0 && y < l->in.height && x >= 0 && x < l->in.width;
            const int64_t image = at / l->out.width / l->out.height;
            const float *pixel =
                l->x + ((image * l->in.height + y) * l->in.width + x) * l->in.channels + group * channels;
            for (int c = 0; c < channels; c++)
                to[(int64_t)p * l->fan_in + c * taps + tap] =
                    (float)((is_inside ? (double)pixel[c] : 0) - sums[group * channels + c] * part);
        }
    }
}

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void multiply(sample *s, const layer *l) {
    for (int a = 0; a < s->count; a++)
        for (int b = 0; b <= a; b++)
            s->products[a][b] = s->products[b][a] =
                stands_for(s, l, a, b) *
                dot(s->inputs + (int64_t)a * l->fan_in, s->inputs + (int64_t)b * l->fan_in, l->fan_in);
}

/* ---- what follows ---- */

/* Of one output: the mean over inputs of (sum of u x_i)^2 / sum of u^2; and what of it is of positions with themselves. */
static void see_output(const sample *s, const layer *l, int output, double *all, double *own) {
    double u[COMET_COLLECT_SAMPLES], squares = 0, sum = 0, diagonal = 0;
    for (int p = 0; p < s->count; p++)
        u[p] = dot(l->weights + (int64_t)output * l->fan_in, s->inputs + (int64_t)p * l->fan_in, l->fan_in);
    for (int a = 0; a < s->count; a++) {
        squares += u[a] * u[a] * stands_for(s, l, a, a);
        diagonal += u[a] * u[a] * s->products[a][a];
        for (int b = 0; b < s->count; b++)
            sum += u[a] * u[b] * s->products[a][b];
    }
    if (!(squares > 0))
        return;
    *all += sum / squares / l->fan_in;
    *own += diagonal / squares / l->fan_in;
}

double comet_collect_common(comet_collect *c, const comet_op_call *call, const double *sums) {
    const layer l = layer_of(call);
    const int outputs = l.out.channels < OUTPUTS ? l.out.channels : OUTPUTS;
    double all = 0, own = 0;
    int group = -1;
    sample s = {.inputs = c->inputs};
    draw(&s, &l);
    for (int i = 0; i < outputs; i++) {
        const int output = (int)((int64_t)i * l.out.channels / outputs);
        if (output / (l.out.channels / l.groups) != group) {
            group = output / (l.out.channels / l.groups);
            read_inputs(&l, group, &s, sums, c->inputs);
            multiply(&s, &l);
        }
        see_output(&s, &l, output, &all, &own);
    }
    return fmax(all, own) / outputs + 0 * all; /* NaN stays */
}
