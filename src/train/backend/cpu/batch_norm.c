/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, with the ReLU behind it if there is one. Forward reads its input twice (statistics, then the output),
 * backward twice. A value is u = fma(scale, x, shift) with scale = 1 / sigma and shift = -mean / sigma, its output
 * fma(gamma, u, beta). The ReLU is on where u lies on the right side of -beta / gamma: the same test in both
 * directions, so that a mask need not be kept.
 *
 * Sums are formed in fp64, in blocks of rows that do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "base/vector/loop.h"
#include "base/vector/math.h"
#include "train/backend/cpu/batch_norm.h"
#include "train/backend/cpu/bits.h"

enum { NORM_BLOCKS = 32, NORM_ARRAYS = 10 };

/* A channel's numbers, each an array over the channels. */
typedef struct norm {
    const comet_op_call *call;
    int64_t rows, channels;
    int64_t block; /* rows in a block: a multiple of 8, so that masks of different blocks share no byte */
    int parts;     /* of the rows, each with an equal share of the blocks */
    int64_t first; /* row of the part under way: its x lies at the start of x[0] */
    double *sums;  /* [block][2][channels] */
    float *scale, *shift, *gamma, *beta;
    float *side, *edge;         /* on where side * u > edge; side is 1 or -1 */
    float *by_g, *by_u, *plain; /* backward: dx = by_g * g + by_u * u + plain */
    float *inverse;             /* 1 / sigma */
} norm;

static int64_t part_rows(const norm *n) {
    return n->rows / n->parts;
}

/* Of one part. */
static int64_t blocks_of(const norm *n) {
    return (part_rows(n) + n->block - 1) / n->block;
}

/* The sums of a block of the part under way. */
static double *sums_of(const norm *n, int64_t row) {
    const int64_t part = n->first / part_rows(n);
    return n->sums + (part * (NORM_BLOCKS / n->parts) + row / n->block) * 2 * n->channels;
}

static size_t norm_scratch(const comet_op_call *call, int backward) {
    (void)backward;
    const size_t channels = (size_t)comet_value_shape(call->graph, call->node->output)->channels;
    return channels * (NORM_BLOCKS * 2 * sizeof(double) + NORM_ARRAYS * sizeof(float));
}

static void edge_of(norm *n, int64_t c) {
    const float gamma = n->gamma[c], beta = n->beta[c];
    n->side[c] = gamma < 0 ? -1 : 1;
    if (gamma == 0)
        n->edge[c] = beta > 0 ? -INFINITY : INFINITY;
    else
        n->edge[c] = n->side[c] * (-beta / gamma);
}

static norm norm_of(const comet_op_call *call, int parts) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->output);
    norm n = {.call = call, .channels = s->channels, .rows = (int64_t)s->height * s->width * call->batch};
    n.parts = parts;
    const int64_t blocks = NORM_BLOCKS / n.parts;
    n.block = ((part_rows(&n) + blocks - 1) / blocks + 7) / 8 * 8;
    n.sums = call->scratch;
    float *next = (float *)(n.sums + NORM_BLOCKS * 2 * n.channels);
    float **arrays[NORM_ARRAYS] = {&n.scale, &n.shift, &n.gamma, &n.beta,  &n.side,
                                   &n.edge,  &n.by_g,  &n.by_u,  &n.plain, &n.inverse};
    for (int i = 0; i < NORM_ARRAYS; i++, next += n.channels)
        *arrays[i] = next;
    const size_t bytes = (size_t)n.channels * sizeof(float);
    memcpy(n.gamma, comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->value, bytes);
    memcpy(n.beta, comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->value, bytes);
    for (int64_t c = 0; c < n.channels; c++)
        edge_of(&n, c);
    return n;
}

COMET_INLINE int is_on(float u, float side, float edge) {
    return !(side * u <= edge); /* NaN: on, so that it is seen */
}

/* ---- forward ---- */

COMET_CLONES(sum_block, (const float *x, int64_t rows, int64_t channels, double *restrict sum, double *restrict square),
             (x, rows, channels, sum, square)) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *a = x + r * channels, *b = a + channels, *d = b + channels, *e = d + channels;
        COMET_EACH for (int64_t c = 0; c < channels; c++) {
            const double p = (double)a[c], q = (double)b[c], s = (double)d[c], t = (double)e[c];
            sum[c] += (p + q) + (s + t);
            square[c] += (p * p + q * q) + (s * s + t * t);
        }
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            const double p = (double)x[r * channels + c];
            sum[c] += p;
            square[c] += p * p;
        }
}

/* Loops over blocks get first and end in rows. */
static int64_t block_rows(const norm *n, int64_t row) {
    return n->rows - row < n->block ? n->rows - row : n->block;
}

static void statistics_range(const void *context, int64_t first, int64_t end) {
    const norm *n = context;
    for (int64_t row = first; row < end; row += n->block) {
        double *sums = sums_of(n, row);
        memset(sums, 0, (size_t)(2 * n->channels) * sizeof *sums);
        sum_block((const float *)n->call->x[0] + row * n->channels, block_rows(n, row), n->channels, sums,
                  sums + n->channels);
    }
}

/* The blocks' sums, in their order. */
static void total(const norm *n, int64_t c, double *first, double *second) {
    *first = *second = 0;
    for (int part = 0; part < n->parts; part++) {
        const double *sums = n->sums + part * (NORM_BLOCKS / n->parts) * 2 * n->channels;
        for (int64_t b = 0; b < blocks_of(n); b++) {
            *first += sums[b * 2 * n->channels + c];
            *second += sums[(b * 2 + 1) * n->channels + c];
        }
    }
}

static void update(float *running, double value, double momentum) {
    *running = (float)((1 - momentum) * (double)*running + momentum * value);
}

/*
 * The shift is of the rounded scale: what rounding does to the scale then goes with x - mean, not with x, which may be
 * many times as large.
 */
static void set_scale(norm *n, int64_t c, double mean, double variance) {
    n->scale[c] = (float)(1 / sqrt(variance + (double)n->call->node->as.norm.epsilon));
    n->shift[c] = (float)(-mean * (double)n->scale[c]);
}

static void batch_statistics(norm *n) {
    const comet_op_call *call = n->call;
    float *mean = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_MEAN)->value;
    float *var = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_VAR)->value;
    float *side = call->side;
    comet_loop(call->backend->threads, n->rows, n->block, statistics_range, n);
    for (int64_t c = 0; c < n->channels; c++) {
        double sum, square, count = (double)n->rows;
        total(n, c, &sum, &square);
        const double m = sum / count, v = fmax(square / count - m * m, 0) + 0 * square; /* NaN stays */
        set_scale(n, c, m, v);
        update(&mean[c], m, (double)call->node->as.norm.momentum);
        update(&var[c], n->rows > 1 ? v * (count / (count - 1)) : v, (double)call->node->as.norm.momentum);
    }
    if (side) {
        memcpy(side, n->scale, (size_t)n->channels * sizeof *side);
        memcpy(side + n->channels, n->shift, (size_t)n->channels * sizeof *side);
    }
}

static void running_statistics(norm *n) {
    const comet_op_call *call = n->call;
    const float *mean = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_MEAN)->value;
    const float *var = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_VAR)->value;
    for (int64_t c = 0; c < n->channels; c++)
        set_scale(n, c, (double)mean[c], (double)var[c]);
}

COMET_CLONES(apply_rows, (const norm *n, int64_t first, int64_t end), (n, first, end)) {
    const float *restrict scale = n->scale, *restrict shift = n->shift, *restrict gamma = n->gamma,
                          *restrict beta = n->beta;
    const float *restrict side = n->side, *restrict edge = n->edge;
    const int64_t channels = n->channels;
    for (int64_t r = first; r < end; r++) {
        const float *x = (const float *)n->call->x[0] + r * channels;
        float *y = (float *)n->call->y + r * channels;
        if (n->call->relu) {
            COMET_EACH for (int64_t c = 0; c < channels; c++) {
                const float u = fmaf(scale[c], x[c], shift[c]), v = fmaf(gamma[c], u, beta[c]);
                y[c] = is_on(u, side[c], edge[c]) ? v : 0;
            }
        } else {
            COMET_EACH for (int64_t c = 0; c < channels; c++) y[c] =
                fmaf(gamma[c], fmaf(scale[c], x[c], shift[c]), beta[c]);
        }
    }
}

/* The mask is of the test, not of y > 0: a value next to the edge may round to 0. */
static void mask_rows(const norm *n, const float *x, int64_t first, int64_t end) {
    uint8_t *mask = n->call->mask;
    memset(mask + first * n->channels / 8, 0, (size_t)((end - first) * n->channels + 7) / 8);
    for (int64_t r = first; r < end; r++)
        for (int64_t c = 0; c < n->channels; c++) {
            const int64_t i = r * n->channels + c;
            const int on = is_on(fmaf(n->scale[c], x[i], n->shift[c]), n->side[c], n->edge[c]);
            mask[i / 8] = (uint8_t)(mask[i / 8] | on << i % 8);
        }
}

static void apply_range(const void *context, int64_t first, int64_t end) {
    const norm *n = context;
    for (int64_t row = first; row < end; row += 8) {
        const int64_t stop = row + 8 < end ? row + 8 : end;
        if (n->call->mask && n->call->relu)
            mask_rows(n, n->call->x[0], row, stop);
        apply_rows(n, row, stop);
    }
}

static void saved_statistics(norm *n) {
    const float *side = n->call->side;
    memcpy(n->scale, side, (size_t)n->channels * sizeof *side);
    memcpy(n->shift, side + n->channels, (size_t)n->channels * sizeof *side);
}

static void apply(const norm *n) {
    comet_loop(n->call->backend->threads, n->rows, n->block, apply_range, n);
}

static comet_status norm_forward(const comet_op_call *call) {
    norm n = norm_of(call, 1);
    if (call->training)
        batch_statistics(&n);
    else
        running_statistics(&n);
    apply(&n);
    return COMET_OK;
}

void comet_cpu_norm_statistics(const comet_op_call *call) {
    norm n = norm_of(call, 1);
    batch_statistics(&n);
}

comet_status comet_cpu_norm_output(const comet_op_call *call) {
    norm n = norm_of(call, 1);
    saved_statistics(&n);
    apply(&n);
    return COMET_OK;
}

/* ---- backward ---- */

/* Gradient g behind the ReLU: dy where it is on. `how` is 0 (no ReLU), 1 (from u) or 2 (from the mask). */
COMET_INLINE float behind(int how, float dy, float u, float side, float edge, const uint8_t *mask, int64_t i) {
    if (how == 0)
        return dy;
    const uint32_t on = (uint32_t)(how == 1 ? is_on(u, side, edge) : comet_bit(mask, i));
    uint32_t bits; /* not a choice: the compiler would make a branch of it, and no vector code */
    memcpy(&bits, &dy, sizeof bits);
    bits &= -on;
    memcpy(&dy, &bits, sizeof dy);
    return dy;
}

COMET_INLINE void sum_gradients(const norm *n, int how, int64_t first, int64_t end, double *restrict sum,
                                double *restrict product) {
    const float *restrict scale = n->scale, *restrict shift = n->shift, *restrict side = n->side;
    const float *restrict edge = n->edge;
    const uint8_t *mask = n->call->mask;
    const int64_t channels = n->channels;
    for (int64_t r = first; r < end; r++) {
        const int64_t at = (n->first + r) * channels;
        const float *restrict x = (const float *)n->call->x[0] + r * channels, *restrict dy =
                                                                                   (const float *)n->call->dy + at;
        COMET_EACH for (int64_t c = 0; c < channels; c++) {
            const float u = fmaf(scale[c], x[c], shift[c]);
            const float g = behind(how, dy[c], u, side[c], edge[c], mask, at + c);
            sum[c] += (double)g;
            product[c] += (double)g * (double)u;
        }
    }
}

COMET_INLINE void write_gradients(const norm *n, int how, int64_t first, int64_t end) {
    const float *restrict scale = n->scale, *restrict shift = n->shift, *restrict side = n->side;
    const float *restrict edge = n->edge, *restrict by_g = n->by_g, *restrict by_u = n->by_u,
                          *restrict plain = n->plain;
    const uint8_t *mask = n->call->mask;
    const int64_t channels = n->channels;
    for (int64_t r = first; r < end; r++) {
        const int64_t at = (n->first + r) * channels;
        const float *x = (const float *)n->call->x[0] + r * channels, *dy = (const float *)n->call->dy + at;
        float *dx = (float *)n->call->dx[0] + at;
        COMET_EACH for (int64_t c = 0; c < channels; c++) {
            const float u = fmaf(scale[c], x[c], shift[c]);
            const float g = behind(how, dy[c], u, side[c], edge[c], mask, at + c);
            dx[c] = fmaf(by_g[c], g, fmaf(by_u[c], u, plain[c]));
        }
    }
}

static int how_of(const norm *n) {
    return !n->call->relu ? 0 : n->call->mask ? 2 : 1;
}

COMET_RANGE(sum_range) {
    const norm *n = context;
    for (int64_t row = first; row < end; row += n->block) {
        double *sums = sums_of(n, row);
        const int64_t stop = row + n->block < part_rows(n) ? row + n->block : part_rows(n);
        memset(sums, 0, (size_t)(2 * n->channels) * sizeof *sums);
        if (how_of(n) == 0)
            sum_gradients(n, 0, row, stop, sums, sums + n->channels);
        else if (how_of(n) == 1)
            sum_gradients(n, 1, row, stop, sums, sums + n->channels);
        else
            sum_gradients(n, 2, row, stop, sums, sums + n->channels);
    }
}

COMET_RANGE(write_range) {
    const norm *n = context;
    if (how_of(n) == 0)
        write_gradients(n, 0, first, end);
    else if (how_of(n) == 1)
        write_gradients(n, 1, first, end);
    else
        write_gradients(n, 2, first, end);
}

static void parameter_gradients(norm *n) {
    const comet_op_call *call = n->call;
    float *dgamma = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->gradient;
    float *dbeta = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->gradient;
    for (int64_t c = 0; c < n->channels; c++) {
        double sum, product, count = (double)n->rows;
        total(n, c, &sum, &product);
        if (!(call->unwanted & COMET_BY_BIAS))
            dbeta[c] = (float)(call->accumulate ? (double)dbeta[c] + sum : sum);
        if (!(call->unwanted & COMET_BY_WEIGHT))
            dgamma[c] = (float)(call->accumulate ? (double)dgamma[c] + product : product);
        n->by_g[c] = n->gamma[c] * n->inverse[c];
        const double by_g = (double)n->by_g[c]; /* as rounded: see set_scale */
        n->by_u[c] = (float)(-by_g * product / count);
        n->plain[c] = (float)(-by_g * sum / count);
    }
}

static void backward_part(norm *n, int part, comet_loop_body body) {
    n->first = part * part_rows(n);
    comet_loop(n->call->backend->threads, part_rows(n), n->block, body, n);
}

static norm backward_of(const comet_op_call *call, int parts) {
    norm n = norm_of(call, parts);
    const float *side = call->side;
    for (int64_t c = 0; c < n.channels; c++) {
        n.inverse[c] = side[c];
        n.scale[c] = call->normalised ? 1 : side[c];
        n.shift[c] = call->normalised ? 0 : side[n.channels + c];
    }
    return n;
}

static comet_status norm_backward(const comet_op_call *call) {
    norm n = backward_of(call, 1);
    backward_part(&n, 0, sum_range);
    parameter_gradients(&n);
    if (call->dx[0])
        backward_part(&n, 0, write_range);
    return COMET_OK;
}

comet_status comet_cpu_norm_backward_by_parts(const comet_op_call *call, const comet_norm_parts *source) {
    norm n = backward_of(call, source->count);
    comet_status status = COMET_OK;
    for (int part = 0; part < n.parts && status == COMET_OK; part++) {
        status = source->fetch(source->context, part);
        if (status == COMET_OK)
            backward_part(&n, part, sum_range);
    }
    if (status != COMET_OK)
        return status;
    parameter_gradients(&n);
    for (int part = n.parts - 1; part >= 0 && call->dx[0] && status == COMET_OK; part--) {
        if (part < n.parts - 1) /* the last one is still there */
            status = source->fetch(source->context, part);
        if (status == COMET_OK)
            backward_part(&n, part, write_range);
    }
    return status;
}

const comet_op_kernel comet_cpu_batch_norm = {.scratch = norm_scratch,
                                              .forward = norm_forward,
                                              .forward_again = comet_cpu_norm_output,
                                              .backward = norm_backward};

/* ---- stored once ---- */

typedef struct rebuilding {
    int64_t channels;
    const float *gamma, *beta;
    float *y;
    comet_rebuild what;
} rebuilding;

COMET_INLINE float edge_for(float gamma, float beta) {
    return gamma == 0 ? (beta > 0 ? -INFINITY : INFINITY) : (gamma < 0 ? -1.0f : 1.0f) * (-beta / gamma);
}

COMET_RANGE(rebuild_rows) {
    const rebuilding *b = context;
    const float *restrict gamma = b->gamma, *restrict beta = b->beta;
    for (int64_t r = first; r < end; r++) {
        float *restrict y = b->y + r * b->channels;
        if (b->what == COMET_REBUILD_RELU)
            for (int64_t c = 0; c < b->channels; c++) {
                const float u = y[c], v = fmaf(gamma[c], u, beta[c]);
                y[c] = is_on(u, gamma[c] < 0 ? -1.0f : 1.0f, edge_for(gamma[c], beta[c])) ? v : 0;
            }
        else if (b->what == COMET_REBUILD_SILU)
            for (int64_t c = 0; c < b->channels; c++) {
                const float v = fmaf(gamma[c], y[c], beta[c]);
                y[c] = v * comet_sigmoidf(v);
            }
        else
            for (int64_t c = 0; c < b->channels; c++)
                y[c] = fmaf(gamma[c], y[c], beta[c]);
    }
}

void comet_cpu_norm_rebuild(const comet_op_call *call, comet_rebuild what, float *values) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->output);
    rebuilding b = {s->channels, comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->value,
                    comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->value, values, what};
    comet_loop(call->backend->threads, (int64_t)s->height * s->width * call->batch, 32, rebuild_rows, &b);
}

void comet_cpu_norm_grid(const comet_op_call *call, comet_codec_grid *grid) {
    const int64_t channels = comet_value_shape(call->graph, call->node->output)->channels;
    const float *gamma = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT)->value;
    const float *beta = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS)->value;
    float *threshold = call->scratch;
    for (int64_t c = 0; c < channels; c++) /* without a ReLU, or where it is on or off as a whole, there is none */
        threshold[c] = call->relu && gamma[c] != 0 ? -beta[c] / gamma[c] : NAN;
    const float *side = call->side;
    *grid = (comet_codec_grid){channels, side, side + channels, threshold, gamma};
}
