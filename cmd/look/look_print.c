/* SPDX-License-Identifier: Apache-2.0 */
/* What was found, as tables and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/common/json.h"
#include "cmd/common/text.h"
#include "cmd/look/look.h"

/* ---- figures ---- */

double look_accuracy(const look_case *c, int which) {
    int right = 0;
    for (int i = 0; i < c->images.count; i++)
        right += c->networks[which].taken[i] == c->images.labels[i];
    return 100.0 * right / c->images.count;
}

double look_agreement(const look_case *c, int which) {
    int alike = 0;
    for (int i = 0; i < c->images.count; i++)
        alike += c->networks[which].taken[i] == c->networks[0].taken[i];
    return 100.0 * alike / c->images.count;
}

double look_cka(const look_case *c, int which, int layer) {
    return comet_look_cka(c->networks[0].look, c->networks[which].look, layer);
}

void look_describe(const look_case *c, char *text, size_t capacity) {
    snprintf(text, capacity, "%s on %s: %d images of %dx%d%s, %d at a time", c->networks[0].about.model, c->images.name,
             c->images.count, c->images.width, c->images.height, c->images.channels == 1 ? " (grey)" : "", c->batch);
}

const char *look_label(const look_case *c, int label, char text[NETWORK_NAME]) {
    const char *name = comet_about_label(&c->networks[0].about, label);
    if (name)
        return name;
    snprintf(text, NETWORK_NAME, label < 0 ? "nothing" : "class %d", label);
    return text;
}

const char *look_shape_text(comet_shape shape, char text[LOOK_SHAPE]) {
    if (shape.height == 1 && shape.width == 1)
        snprintf(text, LOOK_SHAPE, "%d", shape.channels);
    else
        snprintf(text, LOOK_SHAPE, "%dx%dx%d", shape.height, shape.width, shape.channels);
    return text;
}

/* ---- text ---- */

enum { LEAST_COLUMN = 8, MOST_COLUMN = 30 };

static int column_of(const look_case *c, int which) {
    const int width = (int)strlen(c->networks[which].name.text);
    return width < LEAST_COLUMN ? LEAST_COLUMN : width > MOST_COLUMN ? MOST_COLUMN : width;
}

static const char *name_of(const look_case *c, int which, char text[LOOK_NAME]) {
    return text_printable(c->networks[which].name.text, text, LOOK_NAME);
}

static void print_networks(const look_case *c) {
    char name[LOOK_NAME];
    int width = LEAST_COLUMN;
    for (int i = 0; i < c->count; i++)
        width = column_of(c, i) > width ? column_of(c, i) : width;
    printf("%-*s  %8s  %12s  weights\n", width, "network", "accuracy", "as the first");
    for (int i = 0; i < c->count; i++)
        printf("%-*.*s  %6.2f %%  %10.2f %%  %s\n", width, width, name_of(c, i, name), look_accuracy(c, i),
               look_agreement(c, i), c->networks[i].path);
}

static void print_layers(const look_case *c) {
    const comet_look *first = c->networks[0].look;
    char name[LOOK_NAME], shape[LOOK_SHAPE];
    int width = LEAST_COLUMN;
    for (int i = 0; i < comet_look_layers(first); i++)
        if ((int)strlen(comet_look_layer_at(first, i)->name) > width)
            width = (int)strlen(comet_look_layer_at(first, i)->name);
    printf("\nSimilarity to %s (CKA: 1 the same, about 0 nothing in common)\n\n%-*s  %12s", name_of(c, 0, name), width,
           "layer", "output");
    for (int i = 1; i < c->count; i++)
        printf("  %*.*s", column_of(c, i), column_of(c, i), name_of(c, i, name));
    putchar('\n');
    for (int layer = 0; layer < comet_look_layers(first); layer++) {
        const comet_look_layer *l = comet_look_layer_at(first, layer);
        printf("%-*s  %12s", width, l->name, look_shape_text(l->shape, shape));
        for (int i = 1; i < c->count; i++) {
            const double cka = look_cka(c, i, layer);
            if (isfinite(cka))
                printf("  %*.4f", column_of(c, i), cka);
            else
                printf("  %*s", column_of(c, i), "-");
        }
        putchar('\n');
    }
}

void look_print(const look_case *c) {
    char text[1400];
    look_describe(c, text, sizeof text);
    printf("%s\n\n", text);
    print_networks(c);
    print_layers(c);
}

/* ---- JSON ---- */

static void put_networks(json *j, const look_case *c) {
    json_open(j, "networks", '[', 0);
    for (int i = 0; i < c->count; i++) {
        json_open(j, NULL, '{', 1);
        json_string(j, "name", c->networks[i].name.text);
        json_string(j, "weights", c->networks[i].path);
        json_number(j, "accuracy", look_accuracy(c, i));
        json_number(j, "as_the_first", look_agreement(c, i));
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_layers(json *j, const look_case *c) {
    const comet_look *first = c->networks[0].look;
    json_open(j, "layers", '[', 0);
    for (int layer = 0; layer < comet_look_layers(first); layer++) {
        const comet_look_layer *l = comet_look_layer_at(first, layer);
        double cka[LOOK_MOST];
        for (int i = 0; i < c->count; i++)
            cka[i] = look_cka(c, i, layer);
        json_open(j, NULL, '{', 1);
        json_string(j, "name", l->name);
        json_integers(j, "shape", 3, (const int64_t[]){l->shape.height, l->shape.width, l->shape.channels});
        json_numbers(j, "cka", (size_t)c->count, cka);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void look_print_json(const look_case *c) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "model", c->networks[0].about.model);
    json_string(&j, "data", c->images.name);
    json_integers(&j, "image", 3, (const int64_t[]){c->images.height, c->images.width, c->images.channels});
    json_integer(&j, "images", c->images.count);
    json_integer(&j, "batch", c->batch);
    put_networks(&j, c);
    put_layers(&j, c);
    json_close(&j, '}');
}
