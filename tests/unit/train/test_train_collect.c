/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics for controllers: against sums made here, value by value, from what each layer's backward is given; and what follows from them
 * against the gradients' errors as they are.
 */
#include "test_train_case.h"

#include <math.h>
#include <stdio.h>

#include "support/effort.h"
#include "train/backend/cpu/alike.h"
#include "train/collect/collect_impl.h"
#include "train/models/model.h"

/* ---- sums of our own: kernels that look at what they are given before they do their work ---- */

enum { MOST_NODES = 400, MOST_CHANNELS = 64, MOST_POSITIONS = 2000 };

typedef struct seen {
    double dy_squares, dy_sizes, x_squares, x_variances, x_common; /* a layer's */
    double g_squares[MOST_CHANNELS], product[MOST_CHANNELS], on[MOST_CHANNELS];
    double greatest_g[MOST_CHANNELS], greatest_u[MOST_CHANNELS];
    double slope[MOST_CHANNELS], curve[MOST_CHANNELS], scale[MOST_CHANNELS];
    double dy_channel[MOST_CHANNELS]; /* dy_squares by channel */
    double gain, factor;
    float inverse[MOST_CHANNELS];
} seen;

static seen saw[MOST_NODES];
static const comet_op_kernel *inner[COMET_OP_KINDS];

static seen *saw_at(const comet_op_call *call) {
    return &saw[call->node - call->graph->nodes];
}

static int64_t rows_of(const comet_op_call *call, comet_value v, int *channels) {
    const comet_shape *s = comet_value_shape(call->graph, v);
    *channels = s->channels;
    return (int64_t)s->height * s->width * call->batch;
}

/* Input `i` of a convolution's output at a position, its group's first channel being `channel`; 0 in the padding. */
static double input_at(const comet_op_call *call, int64_t position, int channel, int i) {
    const comet_conv2d *conv = &call->node->as.conv;
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const int taps = conv->kernel * conv->kernel_width, tap = i % taps;
    const int64_t image = position / out->width / out->height;
    const int64_t y = position / out->width % out->height * conv->stride + tap / conv->kernel_width - conv->padding;
    const int64_t x = position % out->width * conv->stride + tap % conv->kernel_width - conv->padding_width;
    if (y < 0 || y >= in->height || x < 0 || x >= in->width)
        return 0;
    return (double)call->x[0][((image * in->height + y) * in->width + x) * in->channels + channel + i / taps];
}

/* Of a kernel's taps, the part that is not in the padding. */
static double inside_of(const comet_op_call *call) {
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const comet_conv2d *conv = &call->node->as.conv;
    double inside = 0;
    if (call->node->kind != COMET_OP_CONV)
        return 1;
    for (int y = 0; y < out->height; y++)
        for (int r = 0; r < conv->kernel; r++) {
            const int at = y * conv->stride + r - conv->padding;
            inside += at >= 0 && at < in->height ? 1 : 0;
        }
    inside /= out->height * conv->kernel;
    return inside * inside; /* all is square here */
}

/* Of a convolution: mean over inputs of (sum of u x)^2 / sum of u^2, outputs weighted by 1 / sum of u^2. */
static double common_of(const comet_op_call *call) {
    int channels;
    const int64_t positions = rows_of(call, call->node->output, &channels);
    const comet_parameter *weight = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    const comet_conv2d *conv = &call->node->as.conv;
    const int inputs = (int)(weight->count / channels), in_group = inputs / conv->kernel / conv->kernel_width;
    double u[MOST_POSITIONS], sum = 0, weights = 0;
    for (int k = 0; k < channels; k++) {
        const int group = k / (channels / conv->groups);
        double mean = 0, squares = 0, all = 0;
        for (int64_t p = 0; p < positions; p++) {
            u[p] = 0;
            for (int i = 0; i < inputs; i++)
                u[p] += (double)weight->value[k * inputs + i] * input_at(call, p, group * in_group, i);
            mean += u[p] / (double)positions;
        }
        for (int64_t p = 0; p < positions; p++)
            squares += (u[p] - mean) * (u[p] - mean);
        for (int i = 0; i < inputs; i++) {
            double product = 0;
            for (int64_t p = 0; p < positions; p++)
                product += (u[p] - mean) * input_at(call, p, group * in_group, i);
            all += product * product / inputs;
        }
        sum += all / squares / squares;
        weights += 1 / squares;
    }
    return sum / weights;
}

static comet_status watch_layer(const comet_op_call *call) {
    int in, out;
    const int64_t rows = rows_of(call, call->node->input[0], &in), outputs = rows_of(call, call->node->output, &out);
    seen *s = saw_at(call);
    for (int64_t i = 0; i < outputs * out; i++) {
        s->dy_squares += (double)call->dy[i] * (double)call->dy[i];
        s->dy_sizes += fabs((double)call->dy[i]);
        s->dy_channel[i % out] += (double)call->dy[i] * (double)call->dy[i];
    }
    for (int c = 0; c < in; c++) {
        double mean = 0, square = 0, variance = 0;
        for (int64_t i = 0; i < rows; i++)
            mean += (double)call->x[0][i * in + c] / (double)rows;
        for (int64_t i = 0; i < rows; i++) {
            const double x = (double)call->x[0][i * in + c];
            square += x * x;
            variance += (x - mean) * (x - mean);
        }
        s->x_squares += square / in / (double)rows * (double)outputs * inside_of(call);
        s->x_variances += variance / in / (double)rows * (double)outputs * inside_of(call);
    }
    if (call->node->kind == COMET_OP_CONV && outputs <= MOST_POSITIONS)
        s->x_common = common_of(call);
    return inner[call->node->kind]->backward(call);
}

static void watch_norm_value(const comet_op_call *call, seen *s, int c, double u, double dy) {
    const double gamma = (double)comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->value[c];
    const double beta = (double)comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->value[c];
    const int on = !call->relu || gamma * u + beta > 0;
    const double g = on ? dy : 0;
    s->g_squares[c] += g * g;
    s->product[c] += g * u;
    s->on[c] += on;
    s->greatest_g[c] = fmax(s->greatest_g[c], fabs(g));
    s->greatest_u[c] = fmax(s->greatest_u[c], fabs(u));
}

/* Samples of its input, or of that normalised, beside as many of dy. */
static void watch_norm_rows(const comet_op_call *call, const float *x, const float *dy, int64_t rows) {
    const int channels = comet_value_shape(call->graph, call->node->output)->channels;
    const float *side = call->side;
    for (int64_t i = 0; i < rows; i++)
        for (int c = 0; c < channels; c++) {
            const float v = x[i * channels + c], u = call->normalised ? v : fmaf(side[c], v, side[channels + c]);
            watch_norm_value(call, saw_at(call), c, (double)u, (double)dy[i * channels + c]);
        }
    memcpy(saw_at(call)->inverse, side, (size_t)channels * sizeof *side);
}

static comet_status watch_norm(const comet_op_call *call) {
    int channels;
    watch_norm_rows(call, call->x[0], call->dy, rows_of(call, call->node->output, &channels));
    return inner[call->node->kind]->backward(call);
}

static comet_status (*inner_held_norm)(comet_holder *, const comet_held *, const comet_op_call *, int);

static comet_status watch_held_norm(comet_holder *holder, const comet_held *held, const comet_op_call *call,
                                    int by_parts) {
    int channels;
    const int64_t some = rows_of(call, call->node->output, &channels) / held->parts;
    float *u = malloc((size_t)(some * channels) * sizeof *u);
    for (int part = 0; part < held->parts; part++) {
        assert_ok(holder->load_part(holder, held, part, u));
        watch_norm_rows(call, u, call->dy + part * some * channels, some);
    }
    free(u);
    return inner_held_norm(holder, held, call, by_parts);
}

static comet_status watch_silu(const comet_op_call *call) {
    int channels;
    const int64_t rows = rows_of(call, call->node->output, &channels);
    const int before = call->graph->values[call->node->input[0]].producer;
    const comet_node *norm = &call->graph->nodes[before];
    seen *s = saw_at(call);
    for (int64_t i = 0; i < rows * channels; i++) {
        const int c = (int)(i % channels);
        const double y = (double)call->x[0][i], dz = (double)call->dy[i], step = 1e-4;
        const double act[3] = {(y - step) / (1 + exp(step - y)), y / (1 + exp(-y)), (y + step) / (1 + exp(-y - step))};
        const double slope = (act[2] - act[0]) / (2 * step), curve = (act[2] - 2 * act[1] + act[0]) / (step * step);
        const double beta = norm->kind == COMET_OP_BATCH_NORM
                                ? (double)comet_node_parameter(call->graph, norm, COMET_PARAMETER_BIAS)->value[c]
                                : 0;
        s->slope[c] += slope * slope;
        s->curve[c] += dz * curve * dz * curve;
        s->scale[c] += pow(dz * slope + dz * curve * (y - beta), 2);
    }
    return inner[call->node->kind]->backward(call);
}

static comet_status watch_scale(const comet_op_call *call) {
    int channels;
    const int64_t pixels = rows_of(call, call->node->output, &channels) / call->batch;
    seen *s = saw_at(call);
    for (int n = 0; n < call->batch; n++)
        for (int c = 0; c < channels; c++) {
            const double v = (double)call->x[1][n * channels + c];
            double squares = 0;
            for (int64_t p = 0; p < pixels; p++)
                squares += pow((double)call->dy[(n * pixels + p) * channels + c], 2);
            s->gain += v * v * (1 - v) * (1 - v) * squares / (call->batch * channels);
            s->factor += v * v / (call->batch * channels);
        }
    return inner[call->node->kind]->backward(call);
}

static void watch(train_case *watched) {
    comet_backend *b = watched->backend;
    static comet_op_kernel watchers[COMET_OP_KINDS];
    comet_status (*const functions[COMET_OP_KINDS])(const comet_op_call *) = {[COMET_OP_CONV] = watch_layer,
                                                                              [COMET_OP_LINEAR] = watch_layer,
                                                                              [COMET_OP_BATCH_NORM] = watch_norm,
                                                                              [COMET_OP_SILU] = watch_silu,
                                                                              [COMET_OP_SCALE] = watch_scale};
    for (int k = 0; k < COMET_OP_KINDS; k++) {
        if (!functions[k])
            continue;
        inner[k] = b->kernels[k];
        watchers[k] = *b->kernels[k];
        watchers[k].backward = functions[k];
        b->kernels[k] = &watchers[k];
    }
    inner_held_norm = watched->holder->norm_backward;
    watched->holder->norm_backward = watch_held_norm;
}

/* ---- networks ---- */

/* Convolutions with and without norms, a residual sum, strides; large enough for norms that come in parts. */
static comet_graph *plain_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    comet_value y = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    y = comet_graph_relu(g, comet_graph_batch_norm(g, "bn2", y));
    y = comet_graph_conv2d(g, "conv3", y, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    y = comet_graph_batch_norm(g, "bn3", y);
    x = comet_graph_relu(g, comet_graph_add(g, x, y));
    x = comet_graph_conv2d(g, "conv4", x, &(comet_conv2d){.out = 12, .kernel = 3, .stride = 2, .padding = 1});
    x = comet_graph_relu(g, x);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/* Behind a mean over parts of a map, gradients are the same all over a part; behind a norm they add up to 0 in each channel. */
static comet_graph *pooled(int has_norm) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = has_norm ? comet_graph_batch_norm(g, "bn2", x) : x;
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

static comet_graph *pooled_network(void) {
    return pooled(1);
}

static comet_graph *pooled_network_without_norm(void) {
    return pooled(0);
}

/* Maps so small that all positions of 16 images are drawn where some are; more images are not. */
static comet_graph *small_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 5, 5, 6);
    x = comet_graph_batch_norm(g, "bn1", comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 8, .kernel = 1}));
    x = comet_graph_conv2d(g, "conv2", comet_graph_relu(g, x), &(comet_conv2d){.out = 8, .kernel = 3, .padding = 1});
    x = comet_graph_batch_norm(g, "bn2", x);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 2, 2));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/* An inverted bottleneck with squeeze-excite. */
static comet_graph *curved_network(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 12, .kernel = 3, .padding = 1});
    x = comet_graph_silu(g, comet_graph_batch_norm(g, "bn1", x));
    x = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 12, .kernel = 3, .padding = 1, .groups = 12});
    x = comet_graph_silu(g, comet_graph_batch_norm(g, "bn2", x));
    comet_value s = comet_graph_adaptive_average_pool(g, x, 1, 1);
    s = comet_graph_conv2d(g, "fc1", s, &(comet_conv2d){.out = 6, .kernel = 1, .bias = 1});
    s = comet_graph_conv2d(g, "fc2", comet_graph_silu(g, s), &(comet_conv2d){.out = 12, .kernel = 1, .bias = 1});
    x = comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, s));
    x = comet_graph_batch_norm(g, "bn3", comet_graph_conv2d(g, "conv3", x, &(comet_conv2d){.out = 10, .kernel = 1}));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 5, 1));
    return g;
}

/* ---- what is stored by eb ---- */

typedef struct wish {
    const char *only; /* the layer that made it; NULL: all */
    double bound;
} wish;

static void choose(void *context, comet_plan_entry *e) {
    const wish *w = context;
    if (e->op == COMET_OP_SCALE) {
        e->form.form = COMET_FORM_RECOMPUTE;
        e->form.always = 1;
    }
    if (e->op == COMET_OP_SCALE || e->op == COMET_OP_SIGMOID || (w->only && strcmp(w->only, e->name) != 0))
        return;
    comet_plan_choose_eb((void *)&w->bound, e);
}

static train_case case_on(unsigned threads, comet_graph *g, int batch, wish *w) {
    comet_plan_options options = {.batch = batch, .training = 1, .choose = choose, .context = w};
    return case_new(g, batch, threads, &options);
}

static train_case case_of(comet_graph *g, int batch, wish *w) {
    return case_on(2, g, batch, w);
}

/* Momentum is of no interest: 1 everywhere. */
static comet_collect_update any_update(void) {
    static double means[MOST_NODES];
    static comet_optimiser optimiser;
    for (int i = 0; i < MOST_NODES; i++)
        means[i] = 1;
    optimiser = comet_optimiser_default(COMET_SGD);
    optimiser.momentum = 0;
    return (comet_collect_update){&optimiser, 0, means, 1};
}

/* Weights, images and labels of their own. */
static void draw_case(train_case *c, uint64_t seed) {
    rng r = rng_seed(seed);
    fill_parameters(c->graph, &r);
    for (int64_t i = 0; i < c->batch * comet_shape_count(c->graph->values[c->graph->input].shape); i++)
        c->input[i] = (float)rng_gauss(&r);
    for (int i = 0; i < c->batch; i++)
        c->labels[i] = (int32_t)rng_below(&r, 5);
}

/* Photographs are smooth, and their channels are alike: so are the inputs of the first layers. `slope`: how much they change from pixel to pixel. */
static void smooth_input(train_case *c, double slope, uint64_t seed) {
    const comet_shape shape = c->graph->values[c->graph->input].shape;
    rng r = rng_seed(seed);
    for (int n = 0; n < c->batch; n++) {
        const double phase = 6 * rng_unit(&r), x = rng_unit(&r), y = rng_unit(&r);
        for (int64_t i = 0; i < comet_shape_count(shape); i++) {
            const int64_t pixel = i / shape.channels;
            const double wave =
                phase + slope * x * (double)(pixel % shape.width) + slope * y * (double)(pixel / shape.width);
            c->input[n * comet_shape_count(shape) + i] = (float)(1.4 * sin(wave) + 0.06 * slope * rng_gauss(&r));
        }
    }
}

/* A step with statistics. */
static comet_collect_update collect_step(train_case *c, comet_collect **collect, int acgc) {
    assert_done(comet_collect_new(c->plan, acgc, NULL, collect, &c->message), c->message);
    comet_collect_begin(*collect);
    case_run(c, &(comet_step_options){.seed = 1, .step = 1, .collect = *collect});
    return any_update();
}

static int32_t tensor_named(const comet_collect *collect, const char *name) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return -1;
}

static int node_named(const comet_graph *g, const char *name) {
    for (int i = 0; i < g->node_count; i++)
        if (strcmp(g->nodes[i].name, name) == 0)
            return i;
    fail_msg("no node %s", name);
    return -1;
}

/* The tensor's use of a kind that reaches a parameter; `tensor` NULL: of whichever has it. */
typedef struct found {
    int32_t tensor, use;
} found;

static found find_use(const comet_collect *collect, const comet_graph *g, const char *tensor, comet_use_kind kind,
                      const char *parameter) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t t = 0; t < count; t++)
        for (int32_t i = 0; i < tensors[t].use_count; i++)
            if ((!tensor || strcmp(tensors[t].name, tensor) == 0) && tensors[t].uses[i].kind == kind &&
                strcmp(g->parameters[tensors[t].uses[i].gradient].name, parameter) == 0)
                return (found){t, i};
    fail_msg("%s has no use %s of %s", tensor ? tensor : "nothing", comet_use_name(kind), parameter);
    return (found){-1, -1};
}

static comet_use_stats use_of(comet_collect *collect, const comet_collect_update *update, const comet_graph *g,
                              const char *tensor, comet_use_kind kind, const char *parameter) {
    const found f = find_use(collect, g, tensor, kind, parameter);
    const comet_control_observation *o = comet_collect_observation(collect, update, f.tensor);
    assert_non_null(o);
    return o->uses[f.use];
}

static double sum(const double *x, int count) {
    double total = 0;
    for (int i = 0; i < count; i++)
        total += x[i];
    return total;
}

/* ---- the list ---- */

static void assert_uses(const comet_collect *collect, const char *tensor, int uses) {
    int32_t count;
    const comet_control_tensor *t = &comet_collect_tensors(collect, &count)[tensor_named(collect, tensor)];
    if (t->use_count != uses)
        fail_msg("%s has %d uses, not %d", tensor, (int)t->use_count, uses);
}

static void test_uses(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    assert_uses(collect, "input", 1); /* conv1 */
    assert_uses(collect, "bn1", 3);   /* conv2, gamma, conv1's gradient */
    assert_uses(collect, "bn2", 3);
    assert_uses(collect, "bn3", 2); /* the sum needs nothing */
    comet_collect_free(collect);
    case_free(&c);
    c = case_of(curved_network(), 8, &w);
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    assert_uses(collect, "bn1", 4); /* conv2, gamma, conv1's gradient twice */
    assert_uses(collect, "bn2", 5); /* conv3 through the factors, gamma, conv2's gradient twice, fc2's */
    assert_uses(collect, "fc1", 1); /* its own gradient, through the SiLU */
    comet_collect_free(collect);
    case_free(&c);
}

/* Where the rms is known before, from a norm's statistics or a ReLU's own pass, it is the one that the codec finds. */
static void test_relative_bounds(void **state) {
    (void)state;
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    for (int n = 0; n < 2; n++) {
        wish w = {NULL, 0.1};
        comet_collect *collect;
        train_case c = case_of(networks[n](), 8, &w);
        const comet_collect_update update = collect_step(&c, &collect, 0);
        int32_t count;
        const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
        for (int32_t i = 0; i < count; i++) {
            const comet_control_observation *o = comet_collect_observation(collect, &update, i);
            assert_non_null(o);
            assert_int_equal(o->size_count, 1);
            if (fabs(o->sizes[0].bound / (w.bound * o->rms) - 1) > 1e-3)
                fail_msg("%s: bound %g, rms %g", tensors[i].name, o->sizes[0].bound, o->rms);
        }
        comet_collect_free(collect);
        case_free(&c);
    }
}

/* A tensor whose bound was given is nobody's to set. */
static void fix(void *context, comet_plan_entry *e) {
    choose(context, e);
    e->form.fixed = strcmp(e->name, "bn2") == 0;
}

static void test_fixed(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_plan_options options = {.batch = 8, .training = 1, .choose = fix, .context = &w};
    train_case c = case_new(plain_network(), 8, 2, &options);
    comet_collect *collect;
    int32_t count;
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    const comet_control_tensor *tensors = comet_collect_tensors(collect, &count);
    for (int32_t i = 0; i < count; i++)
        assert_string_not_equal(tensors[i].name, "bn2");
    comet_collect_free(collect);
    case_free(&c);
}

/* ---- statistics ---- */

/* What a layer behind the ReLU reads has the errors of values that pass it, at its own stride; a norm reads all of them. */
static void check_correction(comet_collect *collect, const comet_collect_update *u, const comet_graph *g,
                             comet_use_kind kind, const char *node, const char *parameter) {
    const found f = find_use(collect, g, NULL, kind, parameter);
    const comet_collect_tensor *t = &collect->tensors[f.tensor];
    const int reader = node_named(g, node), is_conv = kind == COMET_USE_CONV_WEIGHTS;
    const double together = comet_collect_together(is_conv ? &t->masked : &t->plain, &collect->nodes[reader].gradient,
                                                   is_conv ? g->nodes[reader].as.conv.stride : 1);
    const comet_control_observation *o = comet_collect_observation(collect, u, f.tensor);
    assert_true(fabs(together - 1) > 1e-6 && together > 0.5);
    assert_near(o->uses[f.use].correction, sqrt(together), 1e-12);
}

static void check_plain(train_case *c, comet_collect *collect, const comet_collect_update *u) {
    const comet_graph *g = c->graph;
    const seen *conv2 = &saw[node_named(g, "conv2")], *bn1 = &saw[node_named(g, "bn1")],
               *conv1 = &saw[node_named(g, "conv1")], *fc = &saw[node_named(g, "fc")];
    const float *gamma = g->parameters[g->nodes[node_named(g, "bn1")].parameter[COMET_PARAMETER_WEIGHT]].value;
    const double m = 144.0 * c->batch;
    comet_use_stats s = use_of(collect, u, g, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    double derivative = 0, own = 0, common = 0;
    for (int k = 0; k < 8; k++) {
        const double a = (double)gamma[k], scale = a * (double)bn1->inverse[k], m1 = bn1->product[k] / m;
        derivative += a * a * bn1->on[k] / m / 8 * 34 * 34 / 36 / 36; /* 2 of 36 taps of a line are in the padding */
        own += scale * scale * m1 * m1 / 8;
        common += scale * scale * bn1->g_squares[k] / m / 8 * collect->nodes[node_named(g, "conv1")].common_squares /
                  conv1->x_squares;
    }
    assert_near(s.gradient_squares, conv2->dy_squares / 8, 1e-6);
    assert_near(s.derivative_squares, derivative, 1e-3);
    assert_near(s.gradient_mean, conv2->dy_sizes / 8 / m, 1e-6);
    assert_near(s.positions, m, 0);
    assert_near(s.momentum, 1, 0);
    s = use_of(collect, u, g, "bn1", COMET_USE_NORM_SCALE, "bn1.weight");
    assert_near(s.derivative_squares, 1, 0);
    assert_near(s.gradient_squares, sum(bn1->g_squares, 8) / 8, 1e-4);
    s = use_of(collect, u, g, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    assert_near(collect->nodes[node_named(g, "bn1")].own_gain, own, 1e-3); /* next to nothing beside the other here */
    assert_near(s.error_gain, own + common, 1e-3);
    assert_near(s.input_squares, conv1->x_squares, 1e-6);
    s = use_of(collect, u, g, NULL, COMET_USE_LINEAR_WEIGHTS, "fc.weight");
    assert_near(s.gradient_squares, fc->dy_squares / 5, 1e-6);
    check_correction(collect, u, g, COMET_USE_CONV_WEIGHTS, "conv2", "conv2.weight");
    check_correction(collect, u, g, COMET_USE_CONV_WEIGHTS, "conv4", "conv4.weight");
    check_correction(collect, u, g, COMET_USE_NORM_SCALE, "bn1", "bn1.weight");
    check_correction(collect, u, g, COMET_USE_NORM_INPUT, "bn1", "conv1.weight");
}

static void check_curved(train_case *c, comet_collect *collect, const comet_collect_update *u) {
    const comet_graph *g = c->graph;
    const int bn = node_named(g, "bn2");
    int silu = bn + 1, scale = bn;
    while (g->nodes[scale].kind != COMET_OP_SCALE)
        scale++;
    assert_int_equal(g->nodes[silu].kind, COMET_OP_SILU);
    const seen *curve = &saw[silu], *norm = &saw[bn], *factors = &saw[scale], *conv2 = &saw[node_named(g, "conv2")];
    const float *gamma = g->parameters[g->nodes[bn].parameter[COMET_PARAMETER_WEIGHT]].value;
    const double m = 144.0 * c->batch;
    double derivative = 0, gain = 0;
    for (int k = 0; k < 12; k++) {
        const double a = (double)gamma[k];
        derivative += a * a * curve->slope[k] / m / 12;
        gain += pow(a * a * (double)norm->inverse[k], 2) * curve->curve[k] / m / 12;
    }
    comet_use_stats s = use_of(collect, u, g, "bn2", COMET_USE_CONV_WEIGHTS, "conv3.weight");
    assert_near(s.derivative_squares, derivative * factors->factor, 1e-3);
    assert_near(s.gradient_squares, saw[node_named(g, "conv3")].dy_squares / 10, 1e-6);
    s = use_of(collect, u, g, "bn2", COMET_USE_NORM_SCALE, "bn2.weight");
    assert_near(s.gradient_squares, sum(curve->scale, 12) / 12, 1e-3);
    s = use_of(collect, u, g, "bn2", COMET_USE_CURVE_INPUT, "conv2.weight");
    assert_near(s.error_gain, gain, 1e-3);
    assert_near(s.input_squares, conv2->x_variances, 1e-6);
    s = use_of(collect, u, g, "bn2", COMET_USE_CHANNEL_SCALE, "fc2.weight");
    assert_near(s.error_gain, derivative * factors->gain, 1e-3);
    assert_near(s.input_squares, saw[node_named(g, "fc2")].x_squares, 1e-6);
    s = use_of(collect, u, g, "fc1", COMET_USE_CURVE_INPUT, "fc1.weight");
    assert_near(s.error_gain, sum(saw[node_named(g, "fc1") + 1].curve, 6) / 6 / c->batch, 1e-3);
}

static void test_statistics(void **state) {
    (void)state;
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    void (*const checks[])(train_case *, comet_collect *, const comet_collect_update *) = {check_plain, check_curved};
    for (int n = 0; n < 2; n++)
        for (int batch = 6; batch <= 8; batch += 2) { /* of 8 large norms come in parts */
            wish w = {NULL, 0.05};
            comet_collect *collect;
            train_case c = case_of(networks[n](), batch, &w);
            watch(&c);
            memset(saw, 0, sizeof saw);
            const comet_collect_update update = collect_step(&c, &collect, 0);
            checks[n](&c, collect, &update);
            comet_collect_free(collect);
            case_free(&c);
        }
}

/* common_squares of some steps, of two layers: from some positions, and from all of them. */
typedef struct common_sums {
    double found[2], right[2];
} common_sums;

static common_sums common_sums_of(int batch, double slope) {
    wish w = {NULL, 0.05};
    common_sums sums = {{0, 0}, {0, 0}};
    train_case c = case_on(1, small_network(), batch, &w);
    const int nodes[] = {node_named(c.graph, "conv1"), node_named(c.graph, "conv2")};
    watch(&c);
    for (uint64_t seed = 1; seed <= 24; seed++) {
        comet_collect *collect;
        draw_case(&c, seed);
        if (slope > 0)
            smooth_input(&c, slope, seed);
        memset(saw, 0, sizeof saw);
        (void)collect_step(&c, &collect, 0);
        for (int k = 0; k < 2; k++) {
            sums.found[k] += collect->nodes[nodes[k]].common_squares;
            sums.right[k] += saw[nodes[k]].x_common;
        }
        comet_collect_free(collect);
    }
    case_free(&c);
    return sums;
}

/*
 * Of 16 images all positions are drawn, and what is found is exact but for the means of inputs at a map's border. Of 64 images half are drawn, and 16 of 25 positions:
 * the sum over steps may be off by 1 to 2 %, if no kind of pairs is counted too often or too rarely.
 */
static void test_common(void **state) {
    (void)state;
    for (double slope = 0; slope < 1; slope += 0.8) {
        const common_sums all = common_sums_of(16, slope), some = common_sums_of(64, slope);
        assert_near(all.found[0], all.right[0], 1e-5);
        assert_near(all.found[1], all.right[1], 5e-3);
        assert_near(some.found[0], some.right[0], 0.04);
        assert_near(some.found[1], some.right[1], 0.04);
    }
}

/* A run's decisions are the same on any machine: what is seen does not depend on how many threads look. */
static void test_threads(void **state) {
    (void)state;
    const size_t seen_bytes = sizeof(comet_collect_node) - offsetof(comet_collect_node, batches);
    comet_graph *(*const networks[])(void) = {plain_network, curved_network};
    for (int n = 0; n < 2; n++) {
        wish w = {NULL, 0.05};
        comet_collect *collects[4];
        const unsigned threads[] = {1, 2, 3, 16};
        train_case c = case_of(networks[n](), 8, &w);
        for (int i = 0; i < 4; i++) {
            comet_threads *pool;
            assert_ok(comet_threads_new(threads[i], NULL, &pool));
            assert_done(comet_collect_new(c.plan, 1, NULL, &collects[i], &c.message), c.message);
            collects[i]->threads = pool;
            comet_collect_begin(collects[i]);
            case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collects[i]});
            comet_threads_free(pool);
        }
        for (int i = 1; i < 4; i++) {
            for (int32_t t = 0; t < collects[0]->count; t++) {
                assert_memory_equal(&collects[i]->tensors[t].plain, &collects[0]->tensors[t].plain,
                                    sizeof collects[i]->tensors[t].plain);
                assert_memory_equal(&collects[i]->tensors[t].masked, &collects[0]->tensors[t].masked,
                                    sizeof collects[i]->tensors[t].masked);
            }
            for (int k = 0; k < c.graph->node_count; k++)
                assert_memory_equal(&collects[i]->nodes[k].batches, &collects[0]->nodes[k].batches, seen_bytes);
            comet_collect_free(collects[i]);
        }
        comet_collect_free(collects[0]);
        case_free(&c);
    }
}

/* Sums of several batches add up, means do not; a batch that failed does not count. */
static void test_batches(void **state) {
    (void)state;
    wish w = {NULL, 0.05};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    const comet_collect_update update = collect_step(&c, &collect, 0);
    const comet_use_stats once = use_of(collect, &update, c.graph, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    const comet_use_stats input = use_of(collect, &update, c.graph, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    const comet_control_observation o = *comet_collect_observation(collect, &update, tensor_named(collect, "bn1"));
    const comet_control_size size = o.sizes[0];
    comet_collect_batch_begin(collect);
    comet_collect_saved(collect, comet_plan_get_entry(c.plan, 0), NULL, NULL,
                        &(comet_codec_result){.stats = {.count = 1}});
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    comet_use_stats twice = use_of(collect, &update, c.graph, "bn1", COMET_USE_CONV_WEIGHTS, "conv2.weight");
    assert_near(twice.gradient_squares, 2 * once.gradient_squares, 1e-12);
    assert_near(twice.positions, 2 * once.positions, 0);
    assert_near(twice.derivative_squares, once.derivative_squares, 1e-12);
    twice = use_of(collect, &update, c.graph, "bn1", COMET_USE_NORM_INPUT, "conv1.weight");
    assert_near(twice.error_gain, input.error_gain, 1e-12);
    assert_near(twice.input_squares, 2 * input.input_squares, 1e-12);
    const comet_control_observation *after = comet_collect_observation(collect, &update, tensor_named(collect, "bn1"));
    assert_near(after->rms, o.rms, 1e-12);
    assert_near(after->sizes[0].bytes, size.bytes, 1e-12);
    assert_near(after->sizes[0].bound, size.bound, 1e-12);
    comet_collect_begin(collect);
    assert_null(comet_collect_observation(collect, &update, tensor_named(collect, "bn1")));
    comet_collect_free(collect);
    case_free(&c);
}

static double squares(const float *x, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += (double)x[i] * (double)x[i];
    return total;
}

static void test_acgc(void **state) {
    (void)state;
    wish w = {NULL, 0.05};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    watch(&c);
    memset(saw, 0, sizeof saw);
    const comet_collect_update update = collect_step(&c, &collect, 1);
    const comet_graph *g = c.graph;
    const seen *bn = &saw[node_named(g, "bn2")], *conv4 = &saw[node_named(g, "conv4")],
               *conv2 = &saw[node_named(g, "conv2")];
    const comet_parameter *weight = comet_graph_parameter_named(c.graph, "conv4.weight");
    const float *gamma = comet_graph_parameter_named(c.graph, "bn2.weight")->value;
    const double values = 144.0 * 8 * 8, m = 144.0 * 8;
    comet_use_stats s = use_of(collect, &update, g, NULL, COMET_USE_CONV_WEIGHTS, "conv4.weight");
    assert_near(s.acgc, squares(weight->gradient, weight->count) / (2 * values * 9 / 4 * conv4->dy_squares), 1e-6);
    double least = INFINITY;
    for (int k = 0; k < 8; k++) {
        const double s2 = pow((double)bn->inverse[k], 2), a = (double)gamma[k];
        const double worst =
            s2 * pow(bn->on[k] * bn->greatest_g[k], 2) * pow(bn->greatest_u[k] / (double)bn->inverse[k] / 2, 2);
        least = fmin(least, conv2->dy_squares * m / (8 * a * a * s2 * s2 * (worst + pow(bn->product[k], 2))) * s2);
    }
    s = use_of(collect, &update, g, "bn2", COMET_USE_NORM_INPUT, "conv2.weight");
    assert_near(s.acgc, least, 1e-3);
    comet_collect_free(collect);
    case_free(&c);
}

/* ---- errors that are alike ---- */

/* Rounding to cells of 1, wherever a value lies in its cell. */
static double product_of_errors(double apart) {
    enum { PHASES = 20000 };
    double sum = 0;
    for (int i = 0; i < PHASES; i++) {
        const double a = (i + 0.5) / PHASES, b = a + apart;
        sum += (floor(a + 0.5) - a) * (floor(b + 0.5) - b);
    }
    return sum / PHASES * 12;
}

static void test_alike(void **state) {
    (void)state;
    float a[37], b[37], weight[37], on[37];
    for (int round = 0; round < 8; round++) {
        const double apart = -1.3 + 0.37 * round;
        comet_alike_errors_sums sums = {0};
        for (int i = 0; i < 37; i++) {
            a[i] = (float)i * 0.7f;
            b[i] = a[i] + (float)apart;
            weight[i] = i % 3 ? (float)i : 0;
            on[i] = (float)(i % 2);
        }
        comet_alike_errors(a, b, weight, on, 37, &sums);
        const double expected = product_of_errors(apart);
        double both = 0, weights = 0;
        for (int i = 0; i < 37; i++) {
            both += (double)weight[i] * (double)on[i];
            weights += (double)weight[i];
        }
        assert_int_equal(sums.pairs, 37);
        assert_true(fabs(sums.plain / 37 - expected) < 1e-3);
        assert_true(fabs(sums.masked / both - expected) < 1e-3);
        assert_near(sums.weights, weights, 1e-6);
    }
}

/* Gradients that are the same everywhere, and independent ones, with errors that fall off. */
static void test_together(void **state) {
    (void)state;
    static comet_collect_alike white, flat, falling;
    double all = 0;
    for (int k = 0; k < COMET_ALIKE_OFFSETS; k++) {
        white.part[k] = k == 0;
        flat.part[k] = 1;
    }
    for (int down = 0, k = 0; down <= COMET_ALIKE_REACH; down++)
        for (int right = down ? -COMET_ALIKE_REACH : 0; right <= COMET_ALIKE_REACH; right++, k++) {
            falling.part[k] = pow(0.5, down + abs(right));
            all += (k ? 2 : 1) * falling.part[k];
        }
    assert_near(comet_collect_together(&falling, &white, 1), 1, 1e-12);
    assert_near(comet_collect_together(&white, &flat, 1), 1, 1e-12);
    assert_near(comet_collect_together(&falling, &flat, 1), all, 1e-12);
    assert_near(comet_collect_together(&flat, &flat, 1), 13 * 13, 1e-12);
    assert_near(comet_collect_together(&flat, &flat, 2), 7 * 7, 1e-12); /* every second pixel */
}

/* ---- what it costs ---- */

/* The gradient of each layer's output once, and of a norm's beside u; the input of each layer before a norm. */
static void test_cost(void **state) {
    (void)state;
    wish w = {NULL, 0.1};
    comet_collect *collect;
    train_case c = case_of(plain_network(), 8, &w);
    const uint64_t map = 12 * 12, outputs = 3 * map * 8 + map / 4 * 12 + 5, norms = 3 * 2 * map * 8,
                   inputs = map * 3 + 2 * map * 8;
    (void)collect_step(&c, &collect, 0);
    const uint64_t read = comet_collect_read_bytes(collect);
    assert_int_equal(read, 8 * (outputs + norms + inputs) * sizeof(float));
    case_run(&c, NULL);
    assert_int_equal(comet_collect_read_bytes(collect), read); /* a step that is not asked reads nothing */
    comet_collect_free(collect);
    case_free(&c);
}

/* ---- predicted and measured ---- */

/*
 * A norm's gamma has 8 errors a step: a sigma measured once may be off by a quarter. So variances are summed over many steps, with other weights and images, and at several
 * bounds around the one given, whose errors have nothing in common. What is left of chance is 1 to 4 %, twice that where there are few: tolerances are three times as much.
 */
enum { SEEDS = EFFORT_SLOW ? 8 : 24, BOUNDS = 4, MOST_GRADIENTS = 3 };
static const double predicted_tolerance = EFFORT_SLOW ? 0.2 : 0.1;

/* One tensor compressed, all others as they are. */
typedef struct prediction {
    comet_graph *(*network)(void);
    const char *tensor;
    double slope, error_rel; /* `slope`: how much smooth images change from pixel to pixel; 0: noise */
    const char *gradients[MOST_GRADIENTS];
    double expected;       /* predicted over measured sigma */
    int rounds;            /* times as many seeds: where errors are alike, few of them are independent */
    const char *depthwise; /* of the gradients, that of a depthwise convolution */
} prediction;

typedef struct variances {
    double predicted, measured;
} variances;

/* Of the one tensor there is. */
static void set_bound(train_case *c, comet_bound_kind kind, double bound) {
    for (int i = 0; i < comet_plan_entries(c->plan); i++)
        if (comet_plan_get_entry(c->plan, i)->form.form == COMET_FORM_CODEC)
            comet_learned_set_bound(c->learned, i, kind, bound);
}

static float *gradient_copy(const comet_parameter *p) {
    float *copy = malloc((size_t)p->count * sizeof *copy);
    memcpy(copy, p->gradient, (size_t)p->count * sizeof *copy);
    return copy;
}

/* Of the one tensor there is: the uses that reach a parameter are taken as independent. */
static double predicted_variance(comet_collect *collect, const comet_graph *g, const char *parameter) {
    int32_t count;
    const comet_control_tensor *tensor = comet_collect_tensors(collect, &count);
    const comet_collect_update update = any_update();
    const comet_control_observation *o = comet_collect_observation(collect, &update, 0);
    double variance = 0;
    assert_int_equal(count, 1);
    assert_non_null(o);
    for (int32_t i = 0; i < tensor->use_count; i++)
        if (strcmp(g->parameters[tensor->uses[i].gradient].name, parameter) == 0)
            variance += pow(comet_error_sigma(comet_error_sensitivity(tensor->uses[i].kind, &o->uses[i]), NULL,
                                              o->sizes[0].bound, o->rms),
                            2);
    assert_true(variance > 0);
    return variance;
}

static double measured_variance(const comet_parameter *p, const float *exact) {
    double off = 0;
    for (int64_t i = 0; i < p->count; i++)
        off += pow((double)p->gradient[i] - (double)exact[i], 2) / (double)p->count;
    return off;
}

/*
 * A depthwise convolution's weights see one channel each, but means over channels of the derivative and of the gradient are multiplied (docs/theory.md, 8): what that
 * makes of the variance, from sums of each channel.
 */
static double product_of_means(const comet_graph *g, const prediction *p) {
    const int norm = node_named(g, p->tensor), conv = norm + 2, channels = g->nodes[conv].as.conv.groups;
    const float *gamma = g->parameters[g->nodes[norm].parameter[COMET_PARAMETER_WEIGHT]].value;
    double derivative = 0, gradient = 0, both = 0;
    assert_true(g->nodes[conv].kind == COMET_OP_CONV && channels > 1);
    for (int k = 0; k < channels; k++) {
        const double slope = pow((double)gamma[k], 2) * saw[norm + 1].slope[k] / channels;
        derivative += slope;
        gradient += saw[conv].dy_channel[k] / channels;
        both += slope * saw[conv].dy_channel[k];
    }
    return derivative * gradient / both;
}

/* A seed's steps. */
static void measure(train_case *c, comet_collect *collect, const prediction *p, variances *sums) {
    const comet_parameter *parameters[MOST_GRADIENTS] = {0};
    float *exact[MOST_GRADIENTS] = {0};
    set_bound(c, COMET_BOUND_ABSOLUTE, 0);
    case_run(c, NULL);
    for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
        parameters[k] = comet_graph_parameter_named(c->graph, p->gradients[k]);
        exact[k] = gradient_copy(parameters[k]);
    }
    for (int i = 0; i < BOUNDS; i++) {
        set_bound(c, COMET_BOUND_RELATIVE, p->error_rel * (0.88 + 0.08 * i));
        memset(saw, 0, sizeof saw);
        comet_collect_begin(collect);
        case_run(c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
            const int is_depthwise = p->depthwise && strcmp(p->depthwise, p->gradients[k]) == 0;
            sums[k].measured += measured_variance(parameters[k], exact[k]);
            sums[k].predicted += predicted_variance(collect, c->graph, p->gradients[k]) /
                                 (is_depthwise ? product_of_means(c->graph, p) : 1);
        }
    }
    for (int k = 0; k < MOST_GRADIENTS; k++)
        free(exact[k]);
}

static void check_prediction(const prediction *p) {
    wish one = {p->tensor, p->error_rel};
    train_case c = case_on(1, p->network(), 32, &one); /* small layers: a second thread would only wait */
    variances sums[MOST_GRADIENTS] = {{0, 0}};
    comet_collect *collect;
    int wrong = 0;
    assert_done(comet_collect_new(c.plan, 0, NULL, &collect, &c.message), c.message);
    if (p->depthwise)
        watch(&c);
    for (uint64_t seed = 1; seed <= (uint64_t)(p->rounds * SEEDS); seed++) {
        draw_case(&c, seed);
        if (p->slope > 0)
            smooth_input(&c, p->slope, seed);
        measure(&c, collect, p, sums);
    }
    for (int k = 0; k < MOST_GRADIENTS && p->gradients[k]; k++) {
        const double ratio = sqrt(sums[k].predicted / sums[k].measured);
        print_message("%s in the gradient of %s: predicted / measured sigma %.3f\n", p->tensor, p->gradients[k], ratio);
        wrong += !(fabs(ratio / p->expected - 1) < predicted_tolerance);
    }
    assert_int_equal(wrong, 0);
    comet_collect_free(collect);
    case_free(&c);
}

static void test_predicted(void **state) {
    (void)state;
    const prediction all[] = {
        {plain_network, "bn1", 0, 0.1, {"conv2.weight", "bn1.weight"}, 1, 1, NULL},
        {plain_network, "bn2", 0, 0.1, {"conv3.weight", "bn2.weight", "conv2.weight"}, 1, 1, NULL},
        {plain_network, "bn3", 0, 0.1, {"conv3.weight"}, 1, 1, NULL},
        /* Of a batch norm's dX, where the inputs of a convolution are far from independent. */
        {plain_network, "bn1", 0.8, 0.1, {"conv1.weight"}, 1, 1, NULL},
        {plain_network, "bn2", 0.8, 0.1, {"conv2.weight"}, 1, 1, NULL},
        /* Bounds coarser than what smooth maps change from pixel to pixel: errors of neighbours are alike. */
        {pooled_network, "bn1", 0.2, 0.3, {"conv2.weight"}, 1, 4, NULL},
        /* And their mean is not 0, which shows where gradients do not add up to 0 (docs/theory.md, 5). */
        {pooled_network_without_norm, "bn1", 0.2, 0.3, {"conv2.weight"}, 0.88, 4, NULL},
        {curved_network, "bn1", 0, 0.1, {"conv2.weight", "bn1.weight", "conv1.weight"}, 1, 1, "conv2.weight"},
        {curved_network, "bn2", 0, 0.1, {"conv3.weight", "fc2.weight"}, 1, 2, NULL},
        {curved_network, "fc1", 0, 0.1, {"fc1.weight"}, 1, 3, NULL},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_prediction(&all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uses),     cmocka_unit_test(test_relative_bounds),
        cmocka_unit_test(test_fixed),    cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_common),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_batches),  cmocka_unit_test(test_acgc),
        cmocka_unit_test(test_cost),     cmocka_unit_test(test_alike),
        cmocka_unit_test(test_together), cmocka_unit_test(test_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
