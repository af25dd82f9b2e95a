/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the trainer from outside, for tests/train/test_torchvision.py. Not a tool: arguments are taken as they come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/backend/cpu/space.h"
#include "train/checkpoint/weights.h"
#include "train/models/model.h"
#include "train/optimiser/optimiser.h"
#include "train/optimiser/schedule.h"
#include "unit/train/cpu_update.h"

static comet_message message;

static void must(comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "%s: %s\n", comet_status_string(status), message.text);
    exit(1);
}

static double number(const char *text) {
    return strtod(text, NULL);
}

static comet_graph *build(char **arguments) { /* MODEL CLASSES SIZE */
    comet_graph *g = NULL;
    int size = atoi(arguments[2]);
    must(comet_graph_new(NULL, &g));
    must(comet_model_build(g, arguments[0], atoi(arguments[1]), size, size, 3, &message));
    return g;
}

/* MODEL CLASSES SIZE: "NAME 64x3x7x7" lines. */
static void parameters(char **arguments) {
    comet_graph *g = build(arguments);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        printf("%s ", p->name);
        for (int d = 0; d < p->ndim; d++)
            printf("%s%lld", d ? "x" : "", (long long)p->shape[d]);
        printf("\n");
    }
    comet_graph_free(g);
}

/* MODEL CLASSES SIZE IN OUT: reads a file and writes it again. */
static void weights(char **arguments) {
    comet_graph *g = build(arguments);
    comet_weights_report report;
    int count = comet_graph_parameters(g);
    must(comet_graph_allocate(g, comet_host_space_plain(), 0));
    must(comet_weights_read(arguments[3], comet_graph_parameter(g, 0), count, COMET_WEIGHTS_FINETUNE, &report, NULL,
                            &message));
    must(comet_weights_write(arguments[4], comet_graph_parameter(g, 0), count, report.batches, NULL, &message));
    printf("%s\n", report.note.text);
    comet_graph_free(g);
}

/* MODEL CLASSES SIZE SEED OUT: first values. */
static void initial(char **arguments) {
    comet_graph *g = build(arguments);
    const comet_model *model;
    int count = comet_graph_parameters(g);
    must(comet_graph_allocate(g, comet_host_space_plain(), 0));
    must(comet_model_find(arguments[0], &model, &message));
    must(comet_initialise(model->initialisation, (uint64_t)atoll(arguments[3]), comet_graph_parameter(g, 0), count,
                          NULL));
    must(comet_weights_write(arguments[4], comet_graph_parameter(g, 0), count, 0, NULL, &message));
    comet_graph_free(g);
}

static void read_floats(float *values, size_t count) {
    if (fread(values, sizeof *values, count, stdin) != count)
        exit(1);
}

/* sgd|adamw MOMENTUM NESTEROV DECAY COUNT STEPS RATE: values and gradients of each step in, values of each step out. */
static void optimiser(char **arguments) {
    comet_optimiser o = comet_optimiser_default(strcmp(arguments[0], "sgd") == 0 ? COMET_SGD : COMET_ADAMW);
    o.momentum = number(arguments[1]);
    o.nesterov = atoi(arguments[2]);
    o.weight_decay = number(arguments[3]);
    size_t count = (size_t)atoi(arguments[4]);
    float *value = calloc(4 * count, sizeof *value);
    comet_parameter p = {.name = "p",
                         .kind = COMET_LINEAR_WEIGHT,
                         .ndim = 1,
                         .shape = {(int64_t)count},
                         .count = (int64_t)count,
                         .value = value,
                         .gradient = value + count};
    read_floats(value, count);
    for (int64_t step = 0; step < atoi(arguments[5]); step++) {
        comet_optimiser_step s = {
            .number = step + 1, .learning_rate = number(arguments[6]) / (double)(step + 1), .gradient_scale = 1.0};
        read_floats(p.gradient, count);
        cpu_update(&o, &s, &p, 1, value + 2 * count, NULL, NULL);
        fwrite(value, sizeof *value, count, stdout);
    }
    free(value);
}

/* NAME RATE STEPS WARMUP START EVERY GAMMA LEAST: rate and momentum of each step. */
static void schedule(char **arguments) {
    comet_schedule_kind kind;
    must(comet_schedule_find(arguments[0], &kind, &message));
    comet_schedule s = comet_schedule_default(kind, number(arguments[1]), atoi(arguments[2]));
    s.warmup = atoi(arguments[3]);
    s.warmup_start = number(arguments[4]);
    s.every = atoi(arguments[5]);
    s.gamma = number(arguments[6]);
    s.least = number(arguments[7]);
    s.momentum_low = 0.85;
    s.momentum_high = 0.95;
    must(comet_schedule_check(&s, &message));
    for (int64_t step = 0; step < s.steps; step++)
        printf("%.17g %.17g\n", comet_schedule_rate(&s, step), comet_schedule_momentum(&s, step));
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        int arguments;
        void (*run)(char **arguments);
    } commands[] = {{"parameters", 3, parameters},
                    {"weights", 5, weights},
                    {"initial", 5, initial},
                    {"optimiser", 7, optimiser},
                    {"schedule", 8, schedule}};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (count == 2 + commands[i].arguments && strcmp(arguments[1], commands[i].name) == 0) {
            commands[i].run(arguments + 2);
            return 0;
        }
    fprintf(stderr, "usage: train_probe parameters|weights|initial|optimiser|schedule ...\n");
    return 2;
}
