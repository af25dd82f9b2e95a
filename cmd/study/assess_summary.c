/* SPDX-License-Identifier: Apache-2.0 */
/* Many layers in a few numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/message.h"
#include "cmd/study/assess.h"

static int by_size(const void *a, const void *b) {
    const double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

/* Between the two values around it. */
static double quantile(const double *sorted, int count, double part) {
    const double place = part * (count - 1);
    const int below = (int)place, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

assess_spread assess_spread_of(double *values, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (isfinite(values[i]))
            values[kept++] = values[i];
    if (kept == 0)
        return (assess_spread){0, (double)NAN, (double)NAN, (double)NAN};
    qsort(values, (size_t)kept, sizeof *values, by_size);
    return (assess_spread){kept, quantile(values, kept, 0.5), quantile(values, kept, 0.1), quantile(values, kept, 0.9)};
}

double assess_variance(const comet_assess_tensor *t) {
    return t->errors->count > 0 ? 3 * comet_histogram_variance(t->errors) : (double)NAN;
}

/* ---- uses ---- */

static int is_listed(const assess_use_summary *list, int count, const char *use) {
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].use, use) == 0)
            return 1;
    return 0;
}

static int list_uses(const assess_case *c, assess_use_summary *list) {
    int count = 0;
    for (int i = 0; i < comet_assess_rows(c->assess); i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, 0, i, &row);
        if (!is_listed(list, count, row.use))
            memcpy(list[count++].use, row.use, sizeof row.use);
    }
    return count;
}

int assess_has_factors(const assess_case *c) {
    for (int b = 0; b < c->bounds.count; b++)
        for (int i = 0; i < comet_assess_rows(c->assess); i++) {
            comet_assess_row row;
            comet_assess_get_row(c->assess, b, i, &row);
            if (row.measured_times > 0)
                return 1;
        }
    return 0;
}

/* `values`: room for four of each row. */
static void summarise_use(const assess_case *c, assess_use_summary *s, double *values) {
    const int rows = comet_assess_rows(c->assess);
    int count = 0;
    for (int i = 0; i < rows; i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, s->bound, i, &row);
        if (strcmp(row.use, s->use) != 0)
            continue;
        values[count] = row.ratio;
        values[rows + count] = row.joint_ratio;
        values[2 * rows + count] = row.ratio_with_factor;
        values[3 * rows + count++] = row.joint_ratio_with_factor;
    }
    s->ratio = assess_spread_of(values, count);
    s->joint_ratio = assess_spread_of(values + rows, count);
    s->ratio_with_factor = assess_spread_of(values + 2 * rows, count);
    s->joint_ratio_with_factor = assess_spread_of(values + 3 * rows, count);
}

assess_use_summary *assess_summarise(const assess_case *c, int *count) {
    const size_t rows = (size_t)comet_assess_rows(c->assess), bounds = (size_t)c->bounds.count;
    assess_use_summary *list = calloc(rows * bounds, sizeof *list);
    double *values = calloc(4 * rows, sizeof *values);
    *count = 0;
    if (list && values) {
        const int uses = list_uses(c, list);
        *count = uses * c->bounds.count;
        for (int i = *count - 1; i >= 0; i--) { /* from the end: the first hold the names */
            assess_use_summary s = {.bound = i / uses};
            memcpy(s.use, list[i % uses].use, sizeof s.use);
            summarise_use(c, &s, values);
            list[i] = s;
        }
    } else {
        free(list);
        list = NULL;
        fail_memory();
    }
    free(values);
    return list;
}

/* ---- tensors ---- */

assess_tensor_summary assess_summarise_tensors(const assess_case *c, int bound) {
    const int count = comet_assess_tensors(c->assess);
    double *values = calloc(2 * (size_t)count, sizeof *values);
    assess_tensor_summary s = {0};
    for (int i = 0; values && i < count; i++) {
        comet_assess_tensor t;
        comet_assess_get_tensor(c->assess, bound, i, &t);
        values[i] = assess_variance(&t);
        values[count + i] =
            t.errors->count > 0 ? comet_histogram_distance(t.errors, comet_uniform_distribution) : (double)NAN;
    }
    if (values) {
        s.variance = assess_spread_of(values, count);
        s.distance = assess_spread_of(values + count, count);
    }
    free(values);
    return s;
}
