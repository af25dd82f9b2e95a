/* SPDX-License-Identifier: Apache-2.0 */
/* The options of comet bench step, and its variants one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/loader/loader.h"
#include "cmd/bench/step/step.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/stop.h"
#include "cmd/common/workers.h"

static const char help[] =
    "Usage: comet bench step --model NAME [--device cuda] [--batch B] [--image N] [OPTION...]\n"
    "\n"
    "What a training step takes: time, and memory at the measured peak beyond what there was before the network was\n"
    "made. Each variant trains for a while, so that bounds and sizes are those of training; then batches that are\n"
    "ready go round: steps one by one, each from its call to its end, and steps in a row, those included in which a\n"
    "controller looks at statistics. Loader and evaluation are not in it. On a GPU all variants of a type take the\n"
    "convolutions that the first one has chosen. Times of the first steps are in the JSON.\n"
    "\n"
    "  --variants LIST       as 'comet compare' takes them: forms, and controllers by name (none,eb)\n"
    "  --dtype LIST          on a GPU: of fp32, tf32, bf16, fp16 (tf32,bf16)\n"
    "  --settle N            updates before it is measured, on fresh batches (200)\n"
    "  --steps N             steps one by one (20)      --row N  in a row (100)\n"
    "  --ready N             batches that go round (8)\n"
    "  --parts N             more steps, in which the time of each kind of op is taken, by the device's clock (0)\n"
    "  --json                one JSON object on standard output instead of the table\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "All other options are those of 'comet train'; data is 'generated' and images are 224 x 224 if nothing is said.\n"
    "Memory of a GPU is what its driver says is taken, by whoever: nobody else should use it.\n"
    "\n"
    "Examples:\n"
    "  comet bench step --model resnet50 --device cuda --batch 128 --data folder:photographs\n"
    "  comet bench step --model resnet18 --batch 16 --settle 10 --steps 3 --row 5\n"
    "  comet bench step --model resnet50 --device cuda --batch 128 --variants none --dtype bf16 --parts 5 --json\n";

typedef struct request {
    step_plan plan;
    const char *variants, *dtypes, *settle, *steps, *row, *ready, *parts;
    int help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--variants", OPTION_TEXT, &r->variants},
                          {"--settle", OPTION_TEXT, &r->settle},
                          {"--row", OPTION_TEXT, &r->row},
                          {"--ready", OPTION_TEXT, &r->ready},
                          {"--parts", OPTION_TEXT, &r->parts},
                          {"--json", OPTION_FLAG, &r->plan.json},
                          {"--quiet", OPTION_FLAG, &r->plan.quiet},
                          {"--help", OPTION_FLAG, &r->help},
                          {"-h", OPTION_FLAG, &r->help},
                          {NULL, OPTION_FLAG, NULL}};
    train_texts *t = &r->plan.texts;
    int answer = train_options_parse(t, own, sizeof own / sizeof *own, argc, argv, &r->operands);
    r->dtypes = t->place.dtype;
    r->steps = t->steps; /* here: those that are measured */
    t->place.dtype = t->steps = NULL;
    if (answer == DONE && !r->help && (t->codec || t->epochs || t->schedule))
        return misuse("%s is for 'comet train'%s",
                      t->codec    ? "--codec"
                      : t->epochs ? "--epochs"
                                  : "--schedule",
                      t->codec ? "; give --variants" : "");
    if (!t->data)
        t->data = "generated";
    if (!t->image)
        t->image = "224";
    return answer;
}

static int read_count(const char *name, const char *text, int least, int usual, int *value) {
    int64_t number = usual;
    int answer = text ? parse_integer(name, text, least, 1000000, &number) : DONE;
    *value = (int)number;
    return answer;
}

static int read_counts(request *r) {
    step_plan *p = &r->plan;
    int answer = read_count("--settle", r->settle, 0, 200, &p->settle);
    if (answer == DONE)
        answer = read_count("--steps", r->steps, 1, 20, &p->steps);
    if (answer == DONE)
        answer = read_count("--row", r->row, 0, 100, &p->row);
    if (answer == DONE)
        answer = read_count("--ready", r->ready, 2, 8, &p->ready);
    return answer == DONE ? read_count("--parts", r->parts, 0, 0, &p->parts) : answer;
}

static int on_gpu(const step_plan *p) {
    return p->run.trainer.place.device.kind == COMET_CUDA;
}

static int read_lists(request *r) {
    step_plan *p = &r->plan;
    int answer = parse_list("--variants", r->variants ? r->variants : "none,eb", &p->variants);
    if (answer == DONE)
        answer = parse_list("--dtype", r->dtypes ? r->dtypes : on_gpu(p) ? "tf32,bf16" : "fp32", &p->dtypes);
    return answer;
}

/* A variant in a type: what of the run it changes. */
static int apply(const step_plan *p, int variant, int dtype, comet_run_options *run) {
    place_texts place = p->texts.place;
    *run = p->run;
    place.dtype = p->dtypes.items[dtype];
    int answer = place_read(&place, &run->trainer.place);
    return answer == DONE ? train_control_read(&p->texts, p->variants.items[variant], 1, &run->trainer) : answer;
}

static int check_variants(const step_plan *p) {
    comet_run_options unused;
    int answer = DONE;
    for (int d = 0; d < p->dtypes.count; d++)
        for (int v = 0; v < p->variants.count && answer == DONE; v++)
            answer = apply(p, v, d, &unused);
    return answer;
}

static int make_plan(request *r, comet_dataset **data) {
    step_plan *p = &r->plan;
    int answer = train_options_read(&p->texts, &p->run);
    if (answer == DONE)
        answer = read_counts(r);
    if (answer == DONE)
        answer = read_lists(r);
    if (answer == DONE)
        answer = check_variants(p);
    if (answer == DONE)
        answer = train_options_data(&p->texts, &p->run, data);
    p->run.epochs = 0;
    p->run.steps = p->settle;
    p->run.schedule = COMET_SCHEDULE_CONSTANT;
    p->run.evaluate_every = 0;
    if (on_gpu(p)) /* the loader is not measured; beside a CPU's step it would be in the way, and in the memory */
        p->run.loader_threads = comet_usable_cores();
    return answer;
}

/* All variants have the convolutions that the first one chose: they differ in nothing but what is held. */
static int measure_type(const step_plan *p, int dtype, step_result *results, int *count) {
    int answer = DONE;
    char *choices = NULL;
    for (int v = 0; v < p->variants.count && !stop_asked; v++) {
        step_result *result = &results[(*count)++];
        comet_run_options run;
        (void)apply(p, v, dtype, &run); /* check_variants has seen that it can be */
        result->variant = p->variants.items[v];
        result->numbers = comet_place_numbers(&run.trainer.place);
        step_measure(p, &run, &choices, result);
        if (!p->json)
            step_print(result);
        if (result->status != COMET_OK)
            answer = FAILED;
    }
    free(choices);
    return answer;
}

static int measure_all(const step_plan *p, step_result *results, int *count) {
    int answer = DONE;
    for (int d = 0; d < p->dtypes.count && !stop_asked; d++)
        if (measure_type(p, d, results, count) != DONE)
            answer = FAILED;
    return answer;
}

static int run_request(request *r) {
    comet_dataset *data = NULL;
    step_result *results = NULL;
    int count = 0, answer = make_plan(r, &data);
    if (answer == DONE) {
        results = calloc((size_t)r->plan.variants.count * (size_t)r->plan.dtypes.count, sizeof *results);
        answer = results ? DONE : fail_memory();
    }
    if (answer == DONE) {
        stop_on_signals();
        if (!r->plan.json)
            step_print_head(&r->plan);
        answer = measure_all(&r->plan, results, &count);
        for (int i = 0; i < count && !r->plan.json; i++)
            step_print_parts(&results[i]);
        if (r->plan.json)
            step_print_json(&r->plan, results, count);
    }
    free(results);
    comet_dataset_free(data);
    return stop_asked ? stop_code() : answer;
}

static int bench_step(int argc, char **argv) {
    request *r = calloc(1, sizeof *r);
    int answer = r ? read_request(r, argc, argv) : fail_memory();
    if (answer == DONE && r->help)
        fputs(help, stdout);
    else if (answer == DONE) {
        openmp_wait_passively(argv - 2); /* main's: comet bench step */
        answer = run_request(r);
    }
    if (r)
        text_array_free(&r->operands);
    free(r);
    return answer;
}

/* comet bench: of tensors, of a network's steps, or of what gives them their images. */
int command_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "loader") == 0)
        return bench_loader(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return bench_step(argc - 1, argv + 1);
    return bench_tensors(argc, argv);
}
