/* SPDX-License-Identifier: Apache-2.0 */
/* An assessment as tables of text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/study/assess.h"

void assess_describe(const assess_case *c, char *text, size_t capacity) {
    snprintf(text, capacity, "%s on %s, %dx%dx%d, batch %d, after %lld updates; %d batch%s, seed %llu",
             c->run->trainer.model, comet_dataset_get_info(c->run->data)->name, c->height, c->width, c->channels,
             c->run->trainer.batch, (long long)c->steps, c->batches, c->batches > 1 ? "es" : "",
             (unsigned long long)c->run->trainer.seed);
}

/* "0.93", "-" for what is not known. */
static const char *number(double value, int decimals, char text[32]) {
    if (isfinite(value))
        snprintf(text, 32, "%.*f", decimals, value);
    else
        strcpy(text, "-");
    return text;
}

typedef struct widths {
    int tensor, use, gradient;
} widths;

static int longer(int width, const char *text) {
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static widths find_widths(const assess_case *c) {
    widths w = {6, 3, 8};
    for (int i = 0; i < comet_assess_rows(c->assess); i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, 0, i, &row);
        w.tensor = longer(w.tensor, row.tensor);
        w.use = longer(w.use, row.use);
        w.gradient = longer(w.gradient, row.gradient);
    }
    return w;
}

static void print_row(const comet_assess_row *r, const widths *w, int has_factors) {
    char a[32], b[32];
    printf("%-*s  %-*s  %-*s  %9.3g  %9.3g", w->tensor, r->tensor, w->use, r->use, w->gradient, r->gradient,
           r->predicted, r->measured);
    printf("  %5s  %5s", number(r->ratio, 2, a), number(r->joint_ratio, 2, b));
    printf("  %8s", number(100 * r->measured / r->gradient_rms, 2, a));
    printf("  %6s  %8s", number(100 * comet_histogram_within_one(r->errors), 1, a),
           number(comet_histogram_kurtosis(r->errors), 2, b));
    if (has_factors)
        printf("  %6.2f  %5s  %5s", r->factor, number(r->ratio_with_factor, 2, a),
               number(r->joint_ratio_with_factor, 2, b));
    printf("\n");
}

static void print_rows(const assess_case *c, int bound) {
    const widths w = find_widths(c);
    const int has_factors = assess_has_factors(c);
    printf("%-*s  %-*s  %-*s  %9s  %9s  %5s  %5s  %8s  %6s  %8s%s\n", w.tensor, "tensor", w.use, "use", w.gradient,
           "gradient", "predicted", "measured", "ratio", "joint", "error, %", "<1s, %", "kurtosis",
           has_factors ? "  factor  ratio  joint" : "");
    for (int i = 0; i < comet_assess_rows(c->assess); i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, bound, i, &row);
        print_row(&row, &w, has_factors);
    }
}

static void print_tensors(const assess_case *c, int bound) {
    int width = 6;
    char a[32];
    for (int i = 0; i < comet_assess_tensors(c->assess); i++) {
        comet_assess_tensor t;
        comet_assess_get_tensor(c->assess, bound, i, &t);
        width = longer(width, t.name);
    }
    printf("\n%-*s  %9s  %6s  %8s  %10s  %8s  %10s\n", width, "tensor", "bound/rms", "zeros", "variance", "mean/bound",
           "distance", "most/bound");
    for (int i = 0; i < comet_assess_tensors(c->assess); i++) {
        comet_assess_tensor t;
        comet_assess_get_tensor(c->assess, bound, i, &t);
        printf("%-*s  %9.4g  %4.0f %%  %8s  %10.4f  %8.4f  %10.4f\n", width, t.name, t.error_rel,
               100 * t.zeros / t.values, number(assess_variance(&t), 3, a), comet_histogram_mean(t.errors),
               comet_histogram_distance(t.errors, comet_uniform_distribution), t.largest);
    }
}

static void print_spread(const assess_spread *s) {
    char a[32], b[32], d[32];
    printf("  %6s  %5s - %-5s", number(s->median, 2, a), number(s->low, 2, b), number(s->high, 2, d));
}

static void print_summary(const assess_case *c, const assess_use_summary *list, int count, int with_factors) {
    int width = 3;
    for (int i = 0; i < count; i++)
        width = longer(width, list[i].use);
    printf("\nPredicted / measured sigma%s, median and 10th - 90th percentile:\n\n%-8s  %-*s  %6s  %6s  %13s  %6s  "
           "%13s\n",
           with_factors ? " with measured factors" : "", "bound", width, "use", "layers", "alone", "", "joint", "");
    for (int i = 0; i < count; i++) {
        printf("%-8s  %-*s  %6d", c->bounds.items[list[i].bound], width, list[i].use, list[i].ratio.count);
        print_spread(with_factors ? &list[i].ratio_with_factor : &list[i].ratio);
        print_spread(with_factors ? &list[i].joint_ratio_with_factor : &list[i].joint_ratio);
        printf("\n");
    }
}

static void print_joint(const assess_case *c) {
    char a[32], b[32], d[32], e[32];
    printf("\nAll tensors together: error of a layer's gradient in parts of its rms, rms over layers, %%:\n\n"
           "%-8s  %6s  %8s  %9s  %12s  %8s\n",
           "bound", "layers", "measured", "predicted", "with factors", "largest");
    for (int i = 0; i < c->bounds.count; i++) {
        comet_assess_joint j;
        comet_assess_get_joint(c->assess, i, &j);
        printf("%-8s  %6d  %8s  %9s  %12s  %8s  %s\n", c->bounds.items[i], j.layers, number(100 * j.measured, 2, a),
               number(100 * j.predicted, 2, b), number(100 * j.with_factor, 2, d), number(100 * j.largest, 2, e),
               j.largest_of);
    }
}

static void print_tensor_summary(const assess_case *c) {
    printf("\nVariance of stored values' errors over bound^2 / 3, and distance from a uniform distribution:\n\n");
    for (int b = 0; b < c->bounds.count; b++) {
        const assess_tensor_summary s = assess_summarise_tensors(c, b);
        printf("%-8s  %6d tensors", c->bounds.items[b], s.variance.count);
        print_spread(&s.variance);
        print_spread(&s.distance);
        printf("\n");
    }
}

int assess_print(const assess_case *c) {
    char text[256];
    int count;
    assess_use_summary *list = assess_summarise(c, &count);
    if (!list)
        return FAILED;
    assess_describe(c, text, sizeof text);
    printf("%s\n", text);
    for (int b = 0; b < c->bounds.count; b++) {
        printf(strcmp(c->bounds.items[b], "control") == 0 ? "\nBounds of the controller %s\n\n"
                                                          : "\nBounds of %s x rms\n\n",
               strcmp(c->bounds.items[b], "control") == 0 ? c->run->trainer.control : c->bounds.items[b]);
        print_rows(c, b);
        print_tensors(c, b);
    }
    print_summary(c, list, count, 0);
    if (assess_has_factors(c))
        print_summary(c, list, count, 1);
    print_joint(c);
    print_tensor_summary(c);
    free(list);
    return DONE;
}
