/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/look/look_network.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/predict/classify.h"
#include "cmd/train/train_options.h"
#include "train/graph/graph_impl.h"

void look_network_free(look_network *n) {
    comet_look_free(n->look);
    comet_about_free(&n->about);
    free(n->taken);
    free(n->filters);
    n->look = NULL;
    n->taken = NULL;
    n->filters = NULL;
}

/* ---- is it of the same kind as the first? ---- */

static int check_classes(const comet_about *first, const comet_about *a, const char *from) {
    if (first->classes != a->classes)
        return fail("'%s' has %d classes, the first network %d", from, a->classes, first->classes);
    for (int k = 0; k < a->classes; k++) {
        const char *one = comet_about_label(first, k), *other = comet_about_label(a, k);
        if (one && other && strcmp(one, other) != 0)
            return fail("class %d of '%s' is '%s', that of the first network '%s'", k, from, other, one);
    }
    return DONE;
}

static int check_same(const comet_about *first, const comet_about *a, const char *from) {
    if (strcmp(first->model, a->model) != 0)
        return fail("'%s' is of %s, the first network of %s: layers can only be put beside those of the same network",
                    from, a->model, first->model);
    if (first->height != a->height || first->width != a->width || first->channels != a->channels)
        return fail("'%s' was trained on images of %dx%dx%d, the first network on %dx%dx%d", from, a->width, a->height,
                    a->channels, first->width, first->height, first->channels);
    return check_classes(first, a, from);
}

/* ---- what stays ---- */

static const comet_node *first_convolution(const comet_graph *g) {
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == COMET_OP_CONV)
            return &g->nodes[i];
    return NULL;
}

static int take_filters(look_network *n, comet_predictor *predictor) {
    const comet_graph *g = comet_predictor_graph(predictor);
    const comet_node *node = first_convolution(g);
    if (!node)
        return DONE;
    const comet_parameter *weights = comet_node_parameter(g, node, COMET_PARAMETER_WEIGHT);
    const size_t bytes = (size_t)weights->count * sizeof(float);
    n->filters = malloc(bytes);
    if (!n->filters)
        return fail_memory();
    memcpy(n->filter_shape, weights->shape, sizeof n->filter_shape);
    snprintf(n->filter_layer, sizeof n->filter_layer, "%s", node->name);
    const comet_status status = weights->space->read(weights->space, n->filters, weights->value, bytes);
    return status == COMET_OK ? DONE : fail("%s: %s", weights->name, comet_status_string(status));
}

static int begin(look_case *c, look_network *n, comet_predictor *predictor) {
    const comet_look_options options = {.images = c->images.count, .batch = c->batch};
    comet_message message;
    comet_status status = comet_look_new(comet_predictor_graph(predictor), comet_predictor_backend(predictor), &options,
                                         NULL, &n->look, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    n->taken = calloc((size_t)c->images.count, sizeof *n->taken);
    return n->taken ? take_filters(n, predictor) : fail_memory();
}

static void note_taken(look_network *n, int first, int count, const double *probabilities) {
    for (int i = 0; i < count; i++) {
        const double *of = probabilities + (int64_t)i * n->about.classes;
        int best = -1;
        if (!isnan(of[0]))
            classify_best(of, n->about.classes, 1, &best);
        n->taken[first + i] = best;
    }
}

static int show_images(const look_case *c, look_network *n, comet_predictor *predictor, double *probabilities,
                       progress *bar) {
    comet_status status = COMET_OK;
    comet_message message;
    comet_predictor_show(predictor, comet_look_sight(n->look));
    for (int at = 0; at < c->images.count && status == COMET_OK; at += c->batch) {
        const int count = c->images.count - at < c->batch ? c->images.count - at : c->batch;
        status =
            comet_predictor_run(predictor, c->images.pixels + at * c->images.bytes, count, probabilities, &message);
        if (status != COMET_OK)
            break;
        note_taken(n, at, count, probabilities);
        comet_look_next(n->look);
        progress_step(bar, n->name.text);
    }
    comet_predictor_show(predictor, NULL);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

int look_network_add(look_case *c, network *open, const char *from, progress *bar) {
    look_network *n = &c->networks[c->count++];
    *n = (look_network){.about = open->about};
    open->about.labels = NULL; /* they stay */
    snprintf(n->path, sizeof n->path, "%s", open->path);
    int answer = check_same(&c->networks[0].about, &n->about, from);
    if (answer == DONE)
        answer = look_name_of(n->path, from, &n->name);
    if (answer == DONE)
        answer = begin(c, n, open->predictor);
    double *probabilities = calloc((size_t)c->batch * (size_t)n->about.classes, sizeof *probabilities);
    if (answer == DONE)
        answer = probabilities ? show_images(c, n, open->predictor, probabilities, bar) : fail_memory();
    free(probabilities);
    return answer;
}
