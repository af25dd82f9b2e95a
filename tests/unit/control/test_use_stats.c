/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses against sums in fp64, value by value, written from docs/theory.md: random shapes, strides,
 * layouts.
 */
#include "support/use_stats_case.h"

enum { ROUNDS = 40 };

/* Up to 4 products are added in fp32: half a unit in the last place each, of terms that have one sign. */
static const double rounding = 1e-6;

/* ---- layers ---- */

/* Input (channel, tap) of an output at a position; 0 in the padding. */
static double input_at(const conv *v, int64_t n, int64_t y, int64_t x, int64_t channel, int r, int s, int *is_inside) {
    const int64_t h = y * v->stride[0] + r * v->dilation[0] - v->padding[0],
                  w = x * v->stride[1] + s * v->dilation[1] - v->padding[1];
    *is_inside = h >= 0 && h < v->x.height && w >= 0 && w < v->x.width;
    return *is_inside ? at(&v->x, n, h, w, channel) : 0;
}

static double inside_of(const conv *v) {
    double inside = 0, all = 0;
    for (int64_t y = 0; y < v->dy.height; y++)
        for (int64_t x = 0; x < v->dy.width; x++)
            for (int r = 0; r < v->kernel[0]; r++)
                for (int s = 0; s < v->kernel[1]; s++) {
                    int is_inside;
                    (void)input_at(v, 0, y, x, 0, r, s, &is_inside);
                    inside += is_inside;
                    all++;
                }
    return inside / all;
}

typedef struct sums {
    double squares, sizes, mean, variance; /* of all values; mean over channels of x^2 and (x - mean)^2 */
} sums;

static sums sums_of(const batch *b) {
    sums s = {0};
    const double pixels = (double)(count_of(b) / b->channels);
    for (int64_t c = 0; c < b->channels; c++) {
        double sum = 0, square = 0, variance = 0;
        for (int64_t i = c; i < count_of(b); i += b->channels) {
            sum += (double)b->values[i];
            square += (double)b->values[i] * (double)b->values[i];
            s.sizes += fabs((double)b->values[i]);
        }
        for (int64_t i = c; i < count_of(b); i += b->channels)
            variance += pow((double)b->values[i] - sum / pixels, 2);
        s.squares += square;
        s.mean += square / pixels / (double)b->channels;
        s.variance += variance / pixels / (double)b->channels;
    }
    return s;
}

static void test_layers(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = 0; round < ROUNDS; round++) {
        conv v = conv_new(&r, 5);
        laid x = lay(&v.x, (int)rng_below(&r, FORMS)), dy = lay(&v.dy, (int)rng_below(&r, FORMS));
        comet_layer_pass pass = conv_pass(&v, &x.tensor, &dy.tensor);
        comet_stats_layer layer = COMET_STATS_LAYER_INIT;
        comet_stats_tensor tensor = COMET_STATS_TENSOR_INIT;
        comet_stats_use use = COMET_STATS_USE_INIT;
        comet_use_stats stats;
        const sums of_x = sums_of(&v.x), of_dy = sums_of(&v.dy);
        const double positions = (double)(v.dy.images * v.dy.height * v.dy.width), inside = inside_of(&v);
        SEE(layer, &pass, NULL, &layer);
        assert_near(layer.gradient_squares, of_dy.squares, rounding);
        assert_near(layer.gradient_sizes, of_dy.sizes, rounding);
        assert_near(layer.inside, inside, 1e-12);
        assert_near(layer.input_squares, of_x.mean * positions * inside, rounding);
        assert_near(layer.input_variances, of_x.variance * positions * inside, 4 * rounding); /* a difference */
        tensor.count = 100, tensor.nonzero = 60, tensor.streams = 1;
        use.tensor = &tensor, use.layer = &layer, use.momentum = 0.5, use.weight_gradient_squares = 3;
        assert_ok(comet_stats_of_use(&use, &stats)); /* docs/theory.md, 2.1 */
        assert_near(stats.derivative_squares, 0.6 * inside, 1e-12);
        assert_near(stats.gradient_squares, of_dy.squares / (double)v.dy.channels, rounding);
        assert_near(stats.gradient_mean, of_dy.sizes / positions / (double)v.dy.channels, rounding);
        assert_near(stats.positions, positions, 0);
        assert_near(stats.momentum, 0.5, 0);
        assert_near(stats.correction, 1, 0); /* nothing is known of the errors */
        assert_near(stats.acgc,              /* 6 */
                    3 * (double)(v.stride[0] * v.stride[1]) /
                        (2 * 100 * (double)(v.kernel[0] * v.kernel[1]) * of_dy.squares),
                    2 * rounding);
        conv_free(&v);
        free(x.memory);
        free(dy.memory);
    }
}

/*
 * Y of docs/theory.md, 2.4, from all positions: mean over outputs, weighted by 1 / sum of u^2, of T / (inputs * sum
 * of u^2). The mean of an input is that of its channel over all pixels times the share at which its tap is inside,
 * which is what the library takes for it. Never less than what positions make with themselves alone.
 */
static double tap_inside(const conv *v, int axis, int tap) {
    const int64_t in = axis ? v->x.width : v->x.height, out = axis ? v->dy.width : v->dy.height;
    double inside = 0;
    for (int64_t i = 0; i < out; i++) {
        const int64_t place = i * v->stride[axis] + tap * v->dilation[axis] - v->padding[axis];
        inside += place >= 0 && place < in;
    }
    return inside / (double)out;
}

/* Inputs of the outputs of a group at a position, less their means, in the order of the weights. */
static void inputs_at(const conv *v, int64_t position, int64_t group, const double *means, double *to) {
    const int64_t channels = v->x.channels / v->groups, map = v->dy.height * v->dy.width;
    for (int64_t c = 0; c < channels; c++)
        for (int r = 0; r < v->kernel[0]; r++)
            for (int s = 0; s < v->kernel[1]; s++) {
                int is_inside;
                const int64_t channel = group * channels + c;
                *to++ = input_at(v, position / map, position % map / v->dy.width, position % v->dy.width, channel, r, s,
                                 &is_inside) -
                        means[channel] * tap_inside(v, 0, r) * tap_inside(v, 1, s);
            }
}

static double common_of(const conv *v) {
    const int64_t fan_in = fan_in_of(v), positions = v->dy.images * v->dy.height * v->dy.width;
    double *means = calloc((size_t)v->x.channels, sizeof *means), *x = malloc((size_t)fan_in * sizeof *x),
           *t = malloc((size_t)fan_in * sizeof *t), all = 0, own = 0, weights = 0;
    for (int64_t i = 0; i < count_of(&v->x); i++)
        means[i % v->x.channels] += (double)v->x.values[i] * (double)v->x.channels / (double)count_of(&v->x);
    for (int64_t k = 0; k < v->dy.channels; k++) {
        double squares = 0, sum = 0, alone = 0;
        memset(t, 0, (size_t)fan_in * sizeof *t);
        for (int64_t p = 0; p < positions; p++) {
            double u = 0;
            inputs_at(v, p, k / (v->dy.channels / v->groups), means, x);
            for (int64_t i = 0; i < fan_in; i++)
                u += (double)v->weights[k * fan_in + i] * x[i];
            for (int64_t i = 0; i < fan_in; i++) {
                t[i] += u * x[i];
                alone += u * x[i] * u * x[i] / (double)fan_in;
            }
            squares += u * u;
        }
        for (int64_t i = 0; i < fan_in; i++)
            sum += t[i] * t[i] / (double)fan_in;
        all += sum / squares / squares;
        own += alone / squares / squares;
        weights += 1 / squares;
    }
    free(means);
    free(x);
    free(t);
    return fmax(all, own) / weights;
}

/* Of few images, small maps and at most 16 outputs all positions are drawn: the estimate is the sum itself. */
static void test_common(void **state) {
    (void)state;
    rng r = rng_seed(2);
    int seen = 0;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        conv v = conv_new(&r, 6);
        if (v.dy.height * v.dy.width <= 32 && v.dy.channels <= 16) {
            laid x = lay(&v.x, (int)rng_below(&r, FORMS)), dy = lay(&v.dy, ROWS);
            comet_layer_pass pass = conv_pass(&v, &x.tensor, &dy.tensor);
            comet_stats_layer layer = COMET_STATS_LAYER_INIT;
            SEE(layer, &pass, NULL, &layer);
            assert_near(layer.common_squares, common_of(&v), 1e-4); /* sums of products of both signs, in fp32 */
            seen++;
            free(x.memory);
            free(dy.memory);
        }
        conv_free(&v);
    }
    assert_true(seen > ROUNDS / 2);
}

/* ---- batch norms ---- */

typedef struct norm_sums {
    double derivative, scale_squares, own, common, acgc; /* acgc: for a sum of dX^2 of 1 */
} norm_sums;

/* Of one channel, added to all. `is_x`: values are x, not u; `of_x`: and so is the error. */
static void add_channel(const norm *n, int64_t c, int is_x, int of_x, int relu, int has_mask, norm_sums *all) {
    const double m = (double)(count_of(&n->x) / n->x.channels), channels = (double)n->x.channels;
    const double gamma = (double)n->gamma[c], scale = (double)n->scale[c], of_u = of_x ? scale : 1;
    double squares = 0, product = 0, on = 0, most_g = 0, most_u = 0;
    for (int64_t i = c; i < count_of(&n->x); i += n->x.channels) {
        const double x = (double)n->x.values[i], u = is_x ? scale * x + (double)n->shift[c] : x;
        const int is_on = !relu || (has_mask ? x > 0 : gamma * u + (double)n->beta[c] > 0);
        const double g = is_on ? (double)n->dy.values[i] : 0;
        squares += g * g;
        product += g * u;
        on += is_on;
        most_g = fmax(most_g, fabs(g));
        most_u = fmax(most_u, fabs(u));
    }
    all->derivative += pow(gamma * of_u, 2) * on / m / channels;
    all->scale_squares += squares * of_u * of_u / channels;
    all->own += pow(gamma * scale * of_u * product / m, 2) / channels;
    all->common += pow(gamma * scale * of_u, 2) * squares / m / channels;
    const double s2 = scale * scale;
    const double worst = s2 * pow(on * most_g, 2) * pow(most_u / scale / 2, 2);
    const double bound = m / (channels * gamma * gamma * s2 * s2 * (worst + product * product)) * s2;
    all->acgc = all->acgc > 0 ? fmin(all->acgc, bound) : bound;
}

static void check_norm(const norm *n, rng *r, int is_x, int normalised, int relu, int has_mask, int acgc) {
    laid x = lay(&n->x, (int)rng_below(r, FORMS)), dy = lay(&n->dy, (int)rng_below(r, FORMS));
    comet_norm_pass pass = norm_pass(n, &x.tensor, &dy.tensor);
    comet_stats_norm seen = COMET_STATS_NORM_INIT;
    norm_sums all = {0};
    pass.shift = is_x ? n->shift : NULL;
    pass.normalised = normalised;
    pass.mask = has_mask ? n->mask : NULL;
    pass.relu = relu;
    pass.acgc = acgc;
    for (int64_t c = 0; c < n->x.channels; c++)
        add_channel(n, c, is_x, is_x && !normalised, relu, has_mask, &all);
    SEE(norm, &pass, NULL, &seen);
    assert_near(seen.batches, 1, 0);
    assert_near(seen.derivative, all.derivative, rounding);
    assert_near(seen.scale_squares, all.scale_squares, rounding);
    assert_near(seen.common_gain, all.common, 1e-5);                             /* a difference */
    assert_true(fabs(seen.own_gain - all.own) <= 1e-6 * (all.own + all.common)); /* squares of sums of both signs */
    if (acgc)
        assert_near(seen.acgc, all.acgc, 1e-5);
    else
        assert_true(seen.acgc == 0);
    free(x.memory);
    free(dy.memory);
}

static void test_norms(void **state) {
    (void)state;
    rng r = rng_seed(3);
    for (int round = 0; round < ROUNDS; round++) {
        norm n = norm_new(&r, rng_between(&r, 2, 5));
        for (int k = 0; k < 32; k++)
            if ((k & 2) || !(k & 4)) /* a mask is a ReLU's */
                check_norm(&n, &r, k & 1, k & 16, k & 2, k & 4, k & 8);
        norm_free(&n);
    }
}

/* ---- SiLUs ---- */

static void check_silu(const norm *n, rng *r, int has_norm, int normalised) {
    laid y = lay(&n->x, (int)rng_below(r, FORMS)), dz = lay(&n->dy, (int)rng_below(r, FORMS));
    comet_silu_pass pass = COMET_SILU_PASS_INIT;
    comet_stats_silu seen = COMET_STATS_SILU_INIT;
    const double count = (double)count_of(&n->x);
    double derivative = 0, gain = 0, scale = 0;
    pass.input = &y.tensor, pass.gradient = &dz.tensor, pass.normalised = normalised;
    if (has_norm)
        pass.scale = n->scale, pass.gamma = n->gamma, pass.beta = n->beta;
    for (int64_t i = 0; i < count_of(&n->x); i++) {
        const int64_t c = i % n->x.channels;
        const double v = (double)n->x.values[i], g = (double)n->dy.values[i], s = 1 / (1 + exp(-v));
        const double slope = s + v * s * (1 - s), curve = s * (1 - s) * (2 + v * (1 - 2 * s));
        const double to_y = normalised ? (double)n->gamma[c] : 1;
        const double through = has_norm ? (double)n->gamma[c] * (double)n->scale[c] : 1;
        derivative += pow(to_y * slope, 2) / count;
        gain += pow(to_y * through * g * curve, 2) / count;
        scale += pow(g * slope + g * curve * (v - (has_norm ? (double)n->beta[c] : 0)), 2);
    }
    SEE(silu, &pass, NULL, &seen);
    assert_near(seen.derivative, derivative, 1e-5); /* of the sigmoid in fp32 */
    assert_near(seen.curve_gain, gain, 1e-5);
    assert_near(seen.scale_squares, scale / (double)n->x.channels, 1e-5);
    free(y.memory);
    free(dz.memory);
}

static void test_silus(void **state) {
    (void)state;
    rng r = rng_seed(4);
    for (int round = 0; round < ROUNDS; round++) {
        norm n = norm_new(&r, rng_between(&r, 1, 5));
        check_silu(&n, &r, 0, 0);
        check_silu(&n, &r, 1, 0);
        check_silu(&n, &r, 1, 1);
        norm_free(&n);
    }
}

/* ---- channel scales ---- */

static void test_scales(void **state) {
    (void)state;
    rng r = rng_seed(5);
    for (int round = 0; round < ROUNDS; round++) {
        batch dy = batch_new(&r, rng_between(&r, 1, 20), rng_between(&r, 1, 9), rng_between(&r, 1, 9),
                             rng_between(&r, 1, 21), 0);
        batch s = batch_new(&r, dy.images, 1, 1, dy.channels, 0);
        const double factors = (double)count_of(&s);
        double gain = 0, squares = 0;
        for (int64_t i = 0; i < count_of(&s); i++) {
            double map = 0;
            s.values[i] = (float)rng_unit(&r);
            const double v = (double)s.values[i];
            for (int64_t p = 0; p < dy.height * dy.width; p++)
                map += pow(at(&dy, i / s.channels, p / dy.width, p % dy.width, i % s.channels), 2);
            gain += pow(v * (1 - v), 2) * map / factors;
            squares += v * v / factors;
        }
        laid ls = lay(&s, (int)rng_below(&r, FORMS)), ldy = lay(&dy, (int)rng_below(&r, FORMS));
        comet_scale_pass pass = COMET_SCALE_PASS_INIT;
        comet_stats_scale seen = COMET_STATS_SCALE_INIT;
        pass.factors = &ls.tensor, pass.gradient = &ldy.tensor;
        SEE(scale, &pass, NULL, &seen);
        assert_near(seen.gain, gain, 1e-12); /* all in fp64 */
        assert_near(seen.squares, squares, 1e-12);
        free(ls.memory);
        free(ldy.memory);
        free(dy.values);
        free(s.values);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_common), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_silus),  cmocka_unit_test(test_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
