/* SPDX-License-Identifier: Apache-2.0 */
/* What a network does on a data set, as tables and as JSON. */
#include <stdio.h>

#include "cmd/common/json.h"
#include "cmd/common/text.h"
#include "cmd/predict/evaluate.h"

enum { NAME = 24, MOST_MATRIX = 16 };

static const char *label_of(const evaluation *e, int label, char text[64]) {
    char number[NETWORK_NAME];
    return text_printable(network_label(&e->network, label, number), text, 64);
}

static double mean_loss(const evaluation *e) {
    return e->tally.images ? e->tally.loss / (double)e->tally.images : 0;
}

/* ---- text ---- */

static void print_head(const evaluation *e) {
    const comet_about *a = &e->network.about;
    const tally *t = &e->tally;
    printf("weights   %s: %s, %d classes, images of %dx%d%s", e->network.path, a->model, a->classes, a->width,
           a->height, a->channels == 1 ? " (grey)" : "");
    if (a->step >= 0)
        printf(", after step %lld", (long long)a->step);
    printf("\ndata      %s, %lld images%s\n", e->data_name, (long long)t->images, t->images ? "" : ": none");
    printf("accuracy  %.2f %% (top-5 %.2f %%), loss %.4f\n", tally_part(t->top1, t->images),
           tally_part(t->top5, t->images), mean_loss(e));
    if (e->seconds > 0)
        printf("speed     %.0f images/s\n", (double)t->images / e->seconds);
    if (e->broken)
        printf("left out  %lld files that cannot be used\n", (long long)e->broken);
}

static void print_classes(const evaluation *e) {
    const tally *t = &e->tally;
    char name[64], other[64];
    printf("\n%-*s  %8s  %9s  most often taken for\n", NAME, "class", "images", "accuracy");
    for (int k = 0; k < t->classes; k++) {
        const int confused = tally_confused(t, k);
        if (t->of_class[k] == 0)
            continue;
        printf("%-*.*s  %8lld  %7.2f %%", NAME, NAME, label_of(e, k, name), (long long)t->of_class[k],
               tally_part(t->right[k], t->of_class[k]));
        if (confused >= 0)
            printf("  %s (%lld)", label_of(e, confused, other),
                   (long long)t->confusion[(int64_t)k * t->classes + confused]);
        putchar('\n');
    }
}

static void print_matrix(const evaluation *e) {
    const tally *t = &e->tally;
    char name[64];
    printf("\nConfusion: rows are what images show, columns what they are taken for\n%*s", NAME + 4, "");
    for (int k = 0; k < t->classes; k++)
        printf(" %6d", k);
    putchar('\n');
    for (int i = 0; i < t->classes; i++) {
        printf("%3d %-*.*s", i, NAME, NAME, label_of(e, i, name));
        for (int k = 0; k < t->classes; k++)
            printf(" %6lld", (long long)t->confusion[(int64_t)i * t->classes + k]);
        putchar('\n');
    }
}

void evaluate_print(const evaluation *e) {
    print_head(e);
    print_classes(e);
    if (e->tally.classes <= MOST_MATRIX)
        print_matrix(e);
    else
        printf("\nThe confusion matrix of %d classes is in --json.\n", e->tally.classes);
}

/* ---- JSON ---- */

static void put_class(json *j, const evaluation *e, int label) {
    const tally *t = &e->tally;
    char number[NETWORK_NAME];
    json_open(j, NULL, '{', 1);
    json_string(j, "name", network_label(&e->network, label, number));
    json_integer(j, "images", t->of_class[label]);
    if (t->of_class[label])
        json_number(j, "accuracy", tally_part(t->right[label], t->of_class[label]));
    else
        json_null(j, "accuracy");
    json_close(j, '}');
}

void evaluate_print_json(const evaluation *e) {
    const comet_about *a = &e->network.about;
    const tally *t = &e->tally;
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "weights", e->network.path);
    json_string(&j, "model", a->model);
    json_integers(&j, "image", 3, (const int64_t[]){a->height, a->width, a->channels});
    json_string(&j, "data", e->data_name);
    json_integer(&j, "images", t->images);
    json_integer(&j, "left_out", e->broken);
    json_number(&j, "accuracy", tally_part(t->top1, t->images));
    json_number(&j, "top5", tally_part(t->top5, t->images));
    json_number(&j, "loss", mean_loss(e));
    json_number(&j, "images_per_s", e->seconds > 0 ? (double)t->images / e->seconds : 0);
    json_open(&j, "classes", '[', 0);
    for (int k = 0; k < t->classes; k++)
        put_class(&j, e, k);
    json_close(&j, ']');
    json_open(&j, "confusion", '[', 0);
    for (int k = 0; k < t->classes; k++)
        json_integers(&j, NULL, t->classes, t->confusion + (int64_t)k * t->classes);
    json_close(&j, ']');
    json_close(&j, '}');
}
