/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a network, for comparison with others.
 *
 * train_driver run MODEL CLASSES IMAGE IN OUT [STEPS [RATE [BOUND [THREADS]]]]
 *   IN: parameters, "batch.input" (N, H, W, C) and "batch.labels" as fp32. Nothing is dropped. OUT: "losses" of an
 *   evaluation and then of each step, "gradient.NAME" of the first step, "weight.NAME" after STEPS of SGD with momentum
 *   0.9. BOUND: saved tensors compressed at that relative bound; below 0: kept.
 * train_driver time MODEL CLASSES IMAGE BATCH STEPS [BOUND [THREADS]]
 *   Milliseconds of each step but the first two (the median), and bytes, as JSON.
 * MODEL "small" is a network of this program's own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "data/files/safetensors.h"
#include "train/backend/cpu/space.h"
#include "train/checkpoint/weights.h"
#include "train/graph/graph_impl.h"
#include "train/models/model.h"
#include "train/optimiser/optimiser.h"
#include "train/step/step.h"

typedef struct driver {
    comet_graph *graph;
    comet_backend *backend;
    comet_learned *learned;
    comet_holder *holder;
    comet_plan *plan;
    comet_step *step;
    comet_message message;
    double bound;
} driver;

static void check(comet_status status, const comet_message *message) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "train_driver: %s: %s\n", comet_status_string(status), message->text);
    exit(1);
}

static comet_value block(comet_graph *g, const char *name, comet_value x, int out, int stride, int relu) {
    char conv[32], bn[32];
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(bn, sizeof bn, "%s.1", name);
    x = comet_graph_conv2d(g, conv, x, &(comet_conv2d){.out = out, .kernel = 3, .stride = stride, .padding = 1});
    x = comet_graph_batch_norm(g, bn, x);
    return relu ? comet_graph_relu(g, x) : x;
}

static void build_small(comet_graph *g, int classes, int image) {
    comet_value x = comet_graph_input(g, image, image, 3);
    x = comet_graph_max_pool(g, block(g, "stem", x, 16, 1, 1), &(comet_pool2d){.kernel = 3, .stride = 2, .padding = 1});
    comet_value y = block(g, "second", block(g, "first", x, 16, 1, 1), 16, 1, 0);
    x = comet_graph_relu(g, comet_graph_add(g, y, x));
    x = comet_graph_average_pool(g, block(g, "third", x, 32, 2, 1), &(comet_pool2d){.kernel = 2});
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_flatten(g, x), classes, 1));
}

static void build(driver *d, const char *model, int classes, int image) {
    check(comet_graph_new(NULL, &d->graph), &d->message);
    if (strcmp(model, "small") == 0)
        build_small(d->graph, classes, image);
    else
        check(comet_model_build(d->graph, model, classes, image, image, 3, &d->message), &d->message);
    check(comet_graph_check(d->graph, &d->message), &d->message);
    check(comet_graph_allocate(d->graph, comet_host_space_plain(), 1), &d->message);
    for (int i = 0; i < d->graph->node_count; i++)
        if (d->graph->nodes[i].kind == COMET_OP_DROPOUT || d->graph->nodes[i].kind == COMET_OP_STOCHASTIC_DEPTH)
            d->graph->nodes[i].as.probability = 0;
}

static void start(driver *d, int batch, double bound, unsigned threads) {
    d->bound = bound;
    check(comet_backend_onednn_new(threads, NULL, &d->backend), &d->message);
    comet_plan_options options = {
        .batch = batch, .training = 1, .choose = bound >= 0 ? comet_plan_choose_eb : NULL, .context = &d->bound};
    check(comet_plan_new(d->graph, d->backend, &options, NULL, &d->plan, &d->message), &d->message);
    check(comet_learned_new(d->plan, NULL, &d->learned), &d->message);
    const comet_holder_options holder = {.slots = comet_plan_entries(d->plan)};
    check(d->backend->holder_new(d->backend, &holder, &d->holder), &d->message);
    const comet_step_parts parts = {.learned = d->learned, .holder = d->holder};
    check(comet_step_new(d->plan, &parts, NULL, &d->step, &d->message), &d->message);
}

static void finish(driver *d) {
    comet_step_free(d->step);
    comet_holder_free(d->holder);
    comet_learned_free(d->learned);
    comet_plan_free(d->plan);
    comet_graph_free(d->graph);
    comet_backend_free(d->backend);
}

static float *read_tensor(comet_safetensors *file, const char *name, int64_t *count, int64_t *first) {
    comet_message message = {{0}};
    const comet_safetensors_entry *entry = comet_safetensors_find(file, name);
    if (!entry) {
        fprintf(stderr, "train_driver: no %s\n", name);
        exit(1);
    }
    *count = 1;
    for (int i = 0; i < entry->ndim; i++)
        *count *= entry->shape[i];
    *first = entry->shape[0];
    float *values = malloc((size_t)*count * sizeof *values);
    check(comet_safetensors_read_f32(file, entry, values, &message), &message);
    return values;
}

static void read_parameters(driver *d, comet_safetensors *file) {
    for (int i = 0; i < d->graph->parameter_count; i++) {
        comet_parameter *p = &d->graph->parameters[i];
        int64_t count, first;
        float *values = read_tensor(file, p->name, &count, &first);
        if (count != p->count)
            exit(2);
        memcpy(p->value, values, (size_t)count * sizeof *values);
        free(values);
    }
}

/* ---- run ---- */

static comet_safetensors_source source(const char *prefix, const comet_parameter *p, const float *data, char *name) {
    comet_safetensors_source s = {.data = data};
    snprintf(name, 128, "%s%s", prefix, p->name);
    s.entry.name = name;
    s.entry.type = COMET_SAFETENSORS_F32;
    s.entry.ndim = p->ndim;
    memcpy(s.entry.shape, p->shape, sizeof p->shape);
    return s;
}

static void write_results(driver *d, const char *path, float *const *gradients, const double *losses, int steps) {
    const int count = d->graph->parameter_count;
    comet_safetensors_source *sources = calloc(2 * (size_t)count + 1, sizeof *sources);
    char(*names)[128] = calloc(2 * (size_t)count, sizeof *names);
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        const comet_parameter *p = &d->graph->parameters[i];
        sources[n] = source("weight.", p, p->value, names[n]);
        n++;
        if (p->gradient) {
            sources[n] = source("gradient.", p, gradients[i], names[n]);
            n++;
        }
    }
    sources[n++] = (comet_safetensors_source){
        .entry = {.name = "losses", .type = COMET_SAFETENSORS_F64, .ndim = 1, .shape = {steps + 1}}, .data = losses};
    check(comet_safetensors_write(path, sources, n, NULL, 0, NULL, &d->message), &d->message);
    free(names);
    free(sources);
}

static double evaluate(driver *d, const float *input, size_t bytes, const int32_t *labels, int batch) {
    comet_plan *plan;
    comet_step *step;
    comet_step_result result;
    check(comet_plan_new(d->graph, d->backend, &(comet_plan_options){.batch = batch}, NULL, &plan, &d->message),
          &d->message);
    check(comet_step_new(plan, &(comet_step_parts){0}, NULL, &step, &d->message), &d->message);
    memcpy(comet_step_input(step), input, bytes);
    check(comet_step_run(step, &(comet_step_options){.labels = labels}, &result, &d->message), &d->message);
    comet_step_free(step);
    comet_plan_free(plan);
    return result.loss;
}

static void run_steps(driver *d, const float *input, size_t bytes, const int32_t *labels, int steps, double rate,
                      float **gradients, double *losses) {
    comet_optimiser optimiser = comet_optimiser_default(COMET_SGD);
    const int count = d->graph->parameter_count;
    float *state = calloc(1, comet_optimiser_bytes(&optimiser, d->graph->parameters, count) + 1);
    for (int k = 0; k < steps; k++) {
        comet_step_result result;
        comet_step_options options = {.labels = labels, .seed = 1, .step = (uint64_t)k};
        memcpy(comet_step_input(d->step), input, bytes);
        check(comet_step_run(d->step, &options, &result, &d->message), &d->message);
        for (int i = 0; k == 0 && i < count; i++)
            if (d->graph->parameters[i].gradient)
                memcpy(gradients[i], d->graph->parameters[i].gradient,
                       (size_t)d->graph->parameters[i].count * sizeof(float));
        losses[k] = result.loss;
        comet_optimiser_step step = {.number = k + 1, .learning_rate = rate, .gradient_scale = 1};
        comet_update_call update = {.backend = d->backend,
                                    .optimiser = &optimiser,
                                    .step = &step,
                                    .parameters = d->graph->parameters,
                                    .count = count,
                                    .state = state};
        check(d->backend->update(&update), &d->message);
    }
    free(state);
}

static int run(int argc, char **argv) {
    driver d = {0};
    comet_safetensors *file;
    build(&d, argv[2], atoi(argv[3]), atoi(argv[4]));
    check(comet_safetensors_open(argv[5], NULL, &file, &d.message), &d.message);
    read_parameters(&d, file);
    int64_t values, batch, labelled;
    float *input = read_tensor(file, "batch.input", &values, &batch),
          *classes = read_tensor(file, "batch.labels", &labelled, &labelled);
    comet_safetensors_close(file);
    int32_t *labels = malloc((size_t)batch * sizeof *labels);
    for (int64_t i = 0; i < batch; i++)
        labels[i] = (int32_t)classes[i];
    start(&d, (int)batch, argc > 9 ? atof(argv[9]) : -1, argc > 10 ? (unsigned)atoi(argv[10]) : 0);
    float **gradients = calloc((size_t)d.graph->parameter_count, sizeof *gradients);
    for (int i = 0; i < d.graph->parameter_count; i++)
        gradients[i] = calloc((size_t)d.graph->parameters[i].count, sizeof(float));
    const int steps = argc > 7 ? atoi(argv[7]) : 1;
    double *losses = calloc((size_t)steps + 1, sizeof *losses);
    const size_t bytes = (size_t)values * sizeof(float);
    losses[0] = evaluate(&d, input, bytes, labels, (int)batch);
    run_steps(&d, input, bytes, labels, steps, argc > 8 ? atof(argv[8]) : 0, gradients, losses + 1);
    write_results(&d, argv[6], gradients, losses, steps);
    free(losses);
    for (int i = 0; i < d.graph->parameter_count; i++)
        free(gradients[i]);
    free(gradients);
    free(labels);
    free(classes);
    free(input);
    finish(&d);
    return 0;
}

/* ---- time ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int time_steps(int argc, char **argv) {
    driver d = {0};
    const int batch = atoi(argv[5]), steps = atoi(argv[6]);
    build(&d, argv[2], atoi(argv[3]), atoi(argv[4]));
    for (int i = 0; i < d.graph->parameter_count; i++)
        for (int64_t k = 0; d.graph->parameters[i].ndim > 1 && k < d.graph->parameters[i].count; k++)
            d.graph->parameters[i].value[k] =
                (float)((double)(k * 7919 % 2001 - 1000) * 1e-3 / (1 + 0.1 * d.graph->parameters[i].fan_in));
    start(&d, batch, argc > 7 ? atof(argv[7]) : -1, argc > 8 ? (unsigned)atoi(argv[8]) : 0);
    int32_t *labels = calloc((size_t)batch, sizeof *labels);
    double *ms = calloc((size_t)steps + 1, sizeof *ms);
    const int64_t values = comet_shape_count(d.graph->values[d.graph->input].shape) * batch;
    comet_step_result result = {0};
    for (int k = 0; k < steps; k++) {
        float *input = comet_step_input(d.step);
        for (int64_t i = 0; i < values; i++)
            input[i] = (float)((double)(i * 104729 % 4001 - 2000) * 1e-3);
        const double before = now();
        check(comet_step_run(d.step, &(comet_step_options){.labels = labels, .step = (uint64_t)k}, &result, &d.message),
              &d.message);
        ms[k] = now() - before;
    }
    const int skip = steps > 4 ? 2 : 0;
    qsort(ms + skip, (size_t)(steps - skip), sizeof *ms, by_value);
    comet_plan_bytes b = comet_plan_get_bytes(d.plan, d.learned);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"ms\": %.2f, \"loss\": %.6f, \"static\": %zu, \"arena\": %zu, \"live\": %zu, \"saved_raw\": %zu, "
           "\"saved_stored\": %zu, "
           "\"peak\": %zu, \"resident_peak\": %zu}\n",
           ms[skip + (steps - skip) / 2], result.loss, b.static_bytes, b.buffer_bytes, b.live_bytes, b.saved_raw_bytes,
           b.saved_stored_bytes, b.peak_bytes, (size_t)usage.ru_maxrss * 1024);
    free(ms);
    free(labels);
    finish(&d);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 7 && strcmp(argv[1], "run") == 0)
        return run(argc, argv);
    if (argc >= 7 && strcmp(argv[1], "time") == 0)
        return time_steps(argc, argv);
    fprintf(stderr, "usage: train_driver run|time ...\n");
    return 2;
}
