/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors reach, as tables of text and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/common/message.h"
#include "cmd/study/reach.h"

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

reach_growth reach_growth_of(const comet_reach *reach, int tensors) {
    const int sources = comet_reach_sources(reach);
    reach_growth g = {.count = 0};
    double *growth = calloc((size_t)sources, sizeof *growth);
    for (int i = 0; growth && i < sources; i++) {
        const double own = comet_reach_summarise(reach, i).growth;
        if (comet_reach_get_source(reach, i).is_tensor == tensors && isfinite(own))
            growth[g.count++] = own;
    }
    if (g.count > 0) {
        qsort(growth, (size_t)g.count, sizeof *growth, by_size);
        g.least = growth[0];
        g.greatest = growth[g.count - 1];
        g.median = (growth[(g.count - 1) / 2] + growth[g.count / 2]) / 2;
    }
    free(growth);
    return g;
}

/* ---- text ---- */

static int longest(const comet_reach *r, int is_source) {
    const int count = is_source ? comet_reach_sources(r) : comet_reach_layers(r);
    size_t width = 6;
    for (int i = 0; i < count; i++) {
        const char *name = is_source ? comet_reach_get_source(r, i).name : comet_reach_layer_name(r, i);
        width = strlen(name) > width ? strlen(name) : width;
    }
    return (int)width;
}

static void print_row(const comet_reach *r, int source, int first, int second) {
    const comet_reach_summary s = comet_reach_summarise(r, source);
    comet_reach_error near, far;
    printf("%-*s  ", first, comet_reach_get_source(r, source).name);
    if (s.near < 0) {
        printf("none: its error ends in the weights of the layers that read it\n");
        return;
    }
    comet_reach_get(r, source, s.near, &near);
    comet_reach_get(r, source, s.far, &far);
    printf("%-*s  %8.4f  %8.4f  %-*s", second, comet_reach_layer_name(r, s.near), s.near_flow, s.largest_flow, second,
           comet_reach_layer_name(r, s.largest));
    printf("  %8.4f", s.far_flow);
    if (isfinite(s.growth))
        printf("  %6.2f", s.growth);
    else
        printf("  %6s", "-");
    printf("  %8.4f  %8.4f\n", near.weights, far.weights);
}

static void print_rows(const reach_case *c, int tensors) {
    const int first = longest(c->reach, 1), second = longest(c->reach, 0);
    if (tensors)
        printf("\nOne stored tensor compressed, bound %s x rms\n\n", reach_bound(c));
    else
        printf("\nNormal errors of %g x rms in the gradient of a layer's output\n\n", c->sigma);
    printf("%-*s  %-*s  %8s  %8s  %-*s  %8s  %6s  %8s  %8s\n", first, tensors ? "tensor" : "layer", second, "nearest",
           "there", "largest", second, "at", "at first", "growth", "weights", "at first");
    for (int i = 0; i < comet_reach_sources(c->reach); i++)
        if (comet_reach_get_source(c->reach, i).is_tensor == tensors)
            print_row(c->reach, i, first, second);
}

static void print_growth(const reach_case *c) {
    static const char *const kinds[] = {"errors in gradients", "compressed tensors"};
    printf("\nGrowth on the way to the first layer: below 1 an error shrinks\n\n");
    for (int tensors = 0; tensors < 2; tensors++) {
        const reach_growth g = reach_growth_of(c->reach, tensors);
        if (g.count > 0)
            printf("%-20s  median %.2f, from %.2f to %.2f (%d)\n", kinds[tensors], g.median, g.least, g.greatest,
                   g.count);
    }
}

static int has_tensors(const comet_reach *r) {
    return comet_reach_get_source(r, comet_reach_sources(r) - 1).is_tensor;
}

static void print(const reach_case *c) {
    char text[256];
    assess_describe(c->circumstances, text, sizeof text);
    printf("%s\n", text);
    if (!comet_reach_get_source(c->reach, 0).is_tensor)
        print_rows(c, 0);
    if (has_tensors(c->reach))
        print_rows(c, 1);
    print_growth(c);
}

/* ---- JSON ---- */

static void put_source(json *j, const comet_reach *r, int source) {
    const comet_reach_summary s = comet_reach_summarise(r, source);
    const comet_reach_source which = comet_reach_get_source(r, source);
    json_open(j, NULL, '{', 0);
    json_string(j, "name", which.name);
    json_string(j, "error", which.is_tensor ? "tensor" : "gradient");
    json_number(j, "growth", s.growth);
    json_open(j, "layers", '[', 0);
    for (int i = 0; i < comet_reach_layers(r); i++) {
        comet_reach_error e;
        comet_reach_get(r, source, i, &e);
        if (e.flow == 0 && e.weights == 0)
            continue;
        json_open(j, NULL, '{', 1);
        json_string(j, "name", comet_reach_layer_name(r, i));
        json_number(j, "flow", e.flow);
        json_number(j, "weights", e.weights);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void print_json(const reach_case *c) {
    const comet_run_options *run = c->circumstances->run;
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "model", run->trainer.model);
    json_string(&j, "data", comet_dataset_get_info(run->data)->name);
    json_integers(&j, "image", 3,
                  (int64_t[]){c->circumstances->height, c->circumstances->width, c->circumstances->channels});
    json_integer(&j, "batch", run->trainer.batch);
    json_integer(&j, "batches", c->circumstances->batches);
    json_integer(&j, "steps", c->circumstances->steps);
    json_integer(&j, "seed", (int64_t)run->trainer.seed);
    json_number(&j, "sigma", c->sigma);
    json_string(&j, "bound", reach_bound(c));
    json_open(&j, "sources", '[', 0);
    for (int i = 0; i < comet_reach_sources(c->reach); i++)
        put_source(&j, c->reach, i);
    json_close(&j, ']');
    json_close(&j, '}');
}

int reach_show(const reach_case *c, int as_json, const char *report) {
    (as_json ? print_json : print)(c);
    if (!report)
        return DONE;
    const int answer = reach_report(report, c);
    if (answer != DONE)
        note("the results are on standard output");
    else if (!as_json)
        printf("\nReport: %s\n", report);
    return answer;
}
