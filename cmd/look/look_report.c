/* SPDX-License-Identifier: Apache-2.0 */
/* What was found, as a report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/look/look.h"

enum { CELL = 32, NETWORK_COLUMNS = 5, MOST_LAYER_COLUMNS = LOOK_MOST + 2 };

static void put_networks(report *r, const look_case *c) {
    static const char *const columns[NETWORK_COLUMNS] = {"network", "accuracy", "taken for the same as by the first",
                                                         "seed", "weights"};
    char text[LOOK_MOST][2][CELL];
    const char *cells[LOOK_MOST * NETWORK_COLUMNS];
    for (int i = 0; i < c->count; i++) {
        const look_network *n = &c->networks[i];
        snprintf(text[i][0], CELL, "%.2f %%", look_accuracy(c, i));
        snprintf(text[i][1], CELL, "%.2f %%", look_agreement(c, i));
        const char *const row[NETWORK_COLUMNS] = {n->name.text, text[i][0], text[i][1], n->name.seed, n->path};
        for (int k = 0; k < NETWORK_COLUMNS; k++)
            cells[i * NETWORK_COLUMNS + k] = row[k];
    }
    report_table(r, "The networks, on these images", columns, NETWORK_COLUMNS, cells, c->count);
}

/* ---- similarities ---- */

/* By network, then by layer; NULL after a line. */
static double *similarities(const look_case *c, int layers) {
    double *cka = calloc((size_t)layers * (size_t)c->count, sizeof *cka);
    if (!cka)
        fail_memory();
    for (int i = 0; cka && i < c->count; i++)
        for (int layer = 0; layer < layers; layer++)
            cka[i * layers + layer] = look_cka(c, i, layer);
    return cka;
}

static int put_lines(report *r, const look_case *c, const double *cka, int layers) {
    report_series series[LOOK_MOST];
    double *x = calloc((size_t)layers, sizeof *x);
    if (!x)
        return fail_memory();
    for (int layer = 0; layer < layers; layer++)
        x[layer] = layer + 1;
    for (int i = 0; i < c->count; i++)
        series[i] = (report_series){c->networks[i].name.text, x, cka + (ptrdiff_t)i * layers, (size_t)layers, i};
    report_lines(r, "Similarity of each layer to that of the first network", "layer, from the input to the classes",
                 "CKA", series, (size_t)c->count, 0);
    free(x);
    return DONE;
}

static int put_layers(report *r, const look_case *c, const double *cka, int layers) {
    const char *columns[MOST_LAYER_COLUMNS] = {"", "layer", "output"};
    const int count = c->count + 2;
    char(*text)[MOST_LAYER_COLUMNS][LOOK_SHAPE] = calloc((size_t)layers, sizeof *text);
    const char **cells = calloc((size_t)layers * (size_t)count, sizeof *cells);
    const int answer = text && cells ? DONE : fail_memory();
    for (int i = 1; i < c->count; i++)
        columns[2 + i] = c->networks[i].name.text;
    for (int layer = 0; answer == DONE && layer < layers; layer++) {
        const comet_look_layer *l = comet_look_layer_at(c->networks[0].look, layer);
        const char **row = cells + (ptrdiff_t)layer * count;
        snprintf(text[layer][LOOK_MOST], LOOK_SHAPE, "%d", layer + 1);
        row[0] = text[layer][LOOK_MOST];
        row[1] = l->name;
        row[2] = look_shape_text(l->shape, text[layer][0]);
        for (int i = 1; i < c->count; i++) {
            const double value = cka[i * layers + layer];
            snprintf(text[layer][i], LOOK_SHAPE, isfinite(value) ? "%.4f" : "-", value);
            row[2 + i] = text[layer][i];
        }
    }
    if (answer == DONE)
        report_table(r, "Similarity by layer", columns, count, cells, layers);
    free(cells);
    free(text);
    return answer;
}

static int put_similarities(report *r, const look_case *c) {
    const int layers = comet_look_layers(c->networks[0].look);
    double *cka = similarities(c, layers);
    if (!cka)
        return FAILED;
    int answer = put_lines(r, c, cka, layers);
    if (answer == DONE)
        answer = put_layers(r, c, cka, layers);
    free(cka);
    return answer;
}

static int put_all(report *r, const look_case *c) {
    report_text(r, "All networks were shown the same images. A layer's output, behind its norm and its activation, is "
                   "compared with that of the first network by linear CKA, from batches of images with the unbiased "
                   "estimator: 1 where the two differ by a rotation and a scale at most, about 0 where they have "
                   "nothing in common. How far chance alone brings two trainings apart is seen from one more of the "
                   "first form, with another seed.");
    put_networks(r, c);
    int answer = put_similarities(r, c);
    if (answer == DONE)
        answer = look_put_filters(r, c);
    if (answer == DONE)
        answer = look_put_maps(r, c);
    return answer;
}

int look_report(const char *path, const look_case *c) {
    report r;
    char title[1200], subtitle[1400];
    snprintf(title, sizeof title, "What %s has learnt on %s", c->networks[0].about.model, c->images.name);
    look_describe(c, subtitle, sizeof subtitle);
    int answer = report_open(&r, path, title, subtitle);
    if (answer != DONE)
        return answer;
    answer = put_all(&r, c);
    if (answer == DONE)
        return report_close(&r);
    report_abandon(&r);
    return answer;
}
