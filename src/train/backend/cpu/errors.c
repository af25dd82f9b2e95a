/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of gradients, computed: a few channels of batch norms, SiLUs and channel scales. */
#include "train/backend/cpu/errors.h"

#include <math.h>
#include <string.h>

#include "base/vector/loop.h"
#include "train/backend/cpu/bits.h"

/* Rows are looked at in so many blocks, each with sums of its own, whatever the number of threads. */
enum { BLOCKS = 8, NORM_SUMS = 4 };

static int64_t rows_of(const comet_tensor *t) {
    return t->shape[0] * t->shape[1] * t->shape[2];
}

static int64_t block_of(int64_t rows) {
    return (rows + BLOCKS - 1) / BLOCKS;
}

/* ---- keeping ---- */

typedef struct keeping {
    const comet_tensor *values;
    const comet_codec_grid *grid;
    int first, width;
    float *kept;
} keeping;

COMET_RANGE(keep_rows) {
    const keeping *k = context;
    const int64_t channels = k->values->shape[3];
    const float *scale = k->grid ? k->grid->scale : NULL, *shift = k->grid ? k->grid->shift : NULL;
    for (int64_t row = first; row < end; row++)
        for (int i = 0; i < k->width; i++) {
            const int c = k->first + i;
            const float v = ((const float *)k->values->data)[row * channels + c];
            k->kept[row * k->width + i] = fmaf(scale ? scale[c] : 1, v, shift ? shift[c] : 0);
        }
}

static comet_status keep(comet_backend *b, const comet_tensor *values, const comet_codec_grid *grid, int first,
                         int width, float *kept) {
    const keeping k = {values, grid, first, width, kept};
    comet_loop(b->threads, rows_of(values), 4096, keep_rows, &k);
    return COMET_OK;
}

/* ---- batch norms ---- */

typedef struct norm_work {
    const comet_errors_norm *n;
    int64_t rows, block;
    double (*parts)[NORM_SUMS * COMET_ERRORS_WIDTH];
} norm_work;

/* Of one value: the gradient with what was stored and as it was, and u. */
typedef struct norm_pair {
    float g_stored, g, u_stored, u;
} norm_pair;

COMET_INLINE norm_pair pair_at(const comet_errors_norm *n, int64_t row, int i) {
    const int c = n->kept.first + i;
    const int64_t channels = n->x->shape[3], at = row * channels + c, kept = (n->row + row) * n->kept.width + i;
    const float x = ((const float *)n->x->data)[at], v = n->kept.values[kept];
    norm_pair p = {.u_stored = n->normalised ? x : fmaf(n->scale[c], x, n->shift[c]),
                   .u = n->kept_normalised ? v : fmaf(n->scale[c], v, n->shift[c]),
                   .g_stored = ((const float *)n->dy->data)[at]};
    if (n->relu &&
        !(n->mask ? comet_bit(n->mask, n->row * channels + at) : fmaf(n->gamma[c], p.u_stored, n->beta[c]) > 0))
        p.g_stored = 0;
    p.g = p.g_stored + (n->curve ? n->curve[kept] : 0);
    return p;
}

COMET_RANGE(norm_sums) {
    const norm_work *w = context;
    for (int64_t row = first; row < end; row++) {
        double *sums = w->parts[row / w->block];
        for (int i = 0; i < w->n->kept.width; i++, sums += NORM_SUMS) {
            const norm_pair p = pair_at(w->n, row, i);
            sums[0] += (double)p.g_stored;
            sums[1] += (double)p.g_stored * (double)p.u_stored;
            sums[2] += (double)p.g;
            sums[3] += (double)p.g * (double)p.u;
        }
    }
}

COMET_RANGE(norm_errors) {
    const norm_work *w = context;
    const comet_errors_norm *n = w->n;
    const double inverse = 1 / (double)n->rows;
    for (int64_t row = first; row < end; row++)
        for (int i = 0; i < n->kept.width; i++) {
            const int c = n->kept.first + i;
            const double *sums = n->totals + NORM_SUMS * i;
            const norm_pair p = pair_at(n, row, i);
            const double own = (double)p.g_stored - (double)p.g, mean = (sums[0] - sums[2]) * inverse,
                         common = ((double)p.u_stored * sums[1] - (double)p.u * sums[3]) * inverse;
            n->error[(n->row + row) * n->kept.width + i] =
                (float)((double)n->gamma[c] * (double)n->scale[c] * (own - mean - common));
        }
}

static void add_totals(const comet_errors_norm *n, double (*parts)[NORM_SUMS * COMET_ERRORS_WIDTH], double *scale) {
    for (int i = 0; i < NORM_SUMS * n->kept.width; i++) {
        double sum = n->row > 0 ? n->totals[i] : 0;
        for (int k = 0; k < BLOCKS; k++)
            sum += parts[k][i];
        n->totals[i] = sum;
    }
    for (int i = 0; i < n->kept.width && scale; i++)
        scale[i] += n->totals[NORM_SUMS * i + 1] - n->totals[NORM_SUMS * i + 3];
}

static comet_status norm(comet_backend *b, const comet_errors_norm *n, double *scale) {
    double parts[BLOCKS][NORM_SUMS * COMET_ERRORS_WIDTH] = {{0}};
    norm_work w = {.n = n, .rows = rows_of(n->x), .parts = parts};
    w.block = block_of(w.rows);
    comet_loop(b->threads, w.rows, w.block, n->error ? norm_errors : norm_sums, &w);
    if (!n->error)
        add_totals(n, parts, scale);
    return COMET_OK;
}

/* ---- SiLUs ---- */

COMET_INLINE float silu_slope(float y) {
    const float s = comet_sigmoidf(y);
    return s * (1 + y * (1 - s));
}

COMET_RANGE(silu_rows) {
    const comet_errors_silu *s = context;
    const int width = s->exact.kept.width;
    for (int64_t row = first; row < end; row++)
        for (int i = 0; i < width; i++) {
            const int64_t at = row * s->x->shape[3] + s->exact.kept.first + i;
            const float slope = silu_slope(comet_errors_rebuild(&s->exact, row, 0, i)),
                        stored = silu_slope(((const float *)s->x->data)[at]);
            s->curve[row * width + i] = s->sign * ((const float *)s->dy->data)[at] * (slope - stored);
        }
}

static comet_status silu(comet_backend *b, const comet_errors_silu *s) {
    comet_loop(b->threads, rows_of(s->x), 4096, silu_rows, s);
    return COMET_OK;
}

/* ---- channel scales ---- */

COMET_RANGE(scale_images) {
    const comet_errors_scale *s = context;
    const int64_t pixels = s->x->shape[1] * s->x->shape[2], channels = s->x->shape[3];
    const int width = s->exact.kept.width;
    for (int64_t image = first; image < end; image++)
        for (int i = 0; i < width; i++) {
            const int c = s->exact.kept.first + i;
            const float factor = ((const float *)s->factors->data)[image * channels + c];
            double sum = 0;
            for (int64_t row = image * pixels; row < (image + 1) * pixels; row++) {
                const int64_t at = row * channels + c;
                const float error = ((const float *)s->x->data)[at] - comet_errors_rebuild(&s->exact, row, image, i);
                sum += (double)((const float *)s->dy->data)[at] * (double)error;
            }
            s->error[image * width + i] = (float)(sum * (double)(factor * (1 - factor)));
        }
}

static comet_status scale(comet_backend *b, const comet_errors_scale *s) {
    comet_loop(b->threads, s->x->shape[0], 1, scale_images, s);
    return COMET_OK;
}

const comet_backend_errors comet_cpu_errors = {.workspace = comet_cpu_errors_workspace,
                                               .keep = keep,
                                               .layer = comet_cpu_errors_layer,
                                               .norm = norm,
                                               .silu = silu,
                                               .scale = scale};
