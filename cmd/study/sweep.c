/* SPDX-License-Identifier: Apache-2.0 */
/* comet sweep: how much error which layer stands. */
#include "cmd/study/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/study/study.h"

static const char help_begin[] =
    "Usage: comet sweep --model NAME [--data SET] [--layers LIST] [--sigma LIST] [OPTION...]\n"
    "\n"
    "Trains a network with errors put into one layer, for each layer and size of error, beside the same training "
    "without\n"
    "them, and shows what each costs in accuracy. Runs of a seed have the same first values, batches and "
    "augmentation.\n"
    "\n"
    "  --layers LIST         layers, or patterns of them: conv1,'layer1.*'; each: every convolution and linear layer "
    "alone\n"
    "                        (each)\n"
    "  --sigma LIST          deviations of the errors, in parts of the rms of what they are put into (0.3,1)\n"
    "  --on gradient|activation\n"
    "                        errors in gradients of weights before each update; or in saved tensors when backward "
    "loads\n"
    "                        them, of which 'each' is then every one in the store (gradient)\n"
    "  --shape normal|uniform\n"
    "                        of the errors (normal)\n"
    "  --seeds N             runs of each (1); from 2 on differences have an interval\n"
    "  --codec FORM          as for 'comet train' (none; eb:0, which is without loss, for --on activation)\n"
    "  --json                one JSON object on standard output instead of the table\n"
    "  --report FILE.html    the differences as a picture; an existing one is replaced only by one of all runs\n"
    "  --quiet               no progress on standard error\n";

static const char help_end[] = "\n"
                               "Exit codes: 0 done, 1 a run failed, 2 used wrongly; stopped by Ctrl-C 130, by "
                               "SIGTERM 143, by SIGHUP 129.\n"
                               "\n"
                               "Examples:\n"
                               "  comet sweep --model resnet8 --epochs 1 --layers conv1,fc --sigma 0.3,1,3\n"
                               "  comet sweep --model resnet8 --data cifar10:data --seeds 3 --report sweep.html\n"
                               "  comet sweep --model resnet18 --data cifar10:data --on activation --shape uniform "
                               "--layers 'layer1.*','layer4.*'\n";

typedef struct request {
    study_options study;
    const char *layers, *sigmas, *on, *shape, *seeds;
    text_list sigma_list;
    double values[LIST_MAX];
} request;

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--layers", OPTION_TEXT, &r->layers},
                          {"--sigma", OPTION_TEXT, &r->sigmas},
                          {"--on", OPTION_TEXT, &r->on},
                          {"--shape", OPTION_TEXT, &r->shape},
                          {"--seeds", OPTION_TEXT, &r->seeds},
                          {"--state", OPTION_TEXT, &r->study.state},
                          {"--resume", OPTION_MAYBE, &r->study.resume}};
    int answer = study_parse(&r->study, own, sizeof own / sizeof *own, argc, argv);
    r->layers = r->layers ? r->layers : "each";
    r->sigmas = r->sigmas ? r->sigmas : "0.3,1";
    r->on = r->on ? r->on : "gradient";
    r->shape = r->shape ? r->shape : "normal";
    if (answer == DONE && r->study.texts.inject)
        return misuse("--inject-error is for 'comet train'; give --layers and --sigma");
    if (answer == DONE && strcmp(r->on, "gradient") != 0 && strcmp(r->on, "activation") != 0)
        return misuse("--on: '%s' is not one of gradient, activation", r->on);
    if (answer == DONE && strcmp(r->shape, "normal") != 0 && strcmp(r->shape, "uniform") != 0)
        return misuse("--shape: '%s' is not one of normal, uniform", r->shape);
    if (!r->study.texts.codec && !r->study.texts.control && !r->study.texts.error_rel)
        r->study.texts.codec = r->on[0] == 'a' ? "eb:0" : "none";
    return answer;
}

static int read_sigmas(request *r, sweep_plan *plan) {
    int answer = parse_list("--sigma", r->sigmas, &r->sigma_list);
    for (int i = 0; i < r->sigma_list.count && answer == DONE; i++) {
        answer = parse_number("--sigma", r->sigma_list.items[i], &r->values[i]);
        if (answer == DONE && r->values[i] == 0)
            answer = misuse("--sigma: an error of 0 is none; the training without errors runs anyway");
    }
    plan->sigmas = r->values;
    plan->sigma_texts = r->sigma_list.items;
    plan->sigma_count = r->sigma_list.count;
    return answer;
}

/* ---- all of it ---- */

static int read_runs(request *r, sweep_plan *plan, comet_dataset **data) {
    compare_plan *c = &plan->compare;
    int64_t seeds = 1;
    int answer = read_sigmas(r, plan);
    if (answer == DONE && r->seeds)
        answer = parse_integer("--seeds", r->seeds, 1, 1000, &seeds);
    if (answer == DONE)
        answer = train_options_read(&r->study.texts, &c->run);
    if (answer == DONE)
        answer = train_options_data(&r->study.texts, &c->run, data);
    if (!r->study.texts.evaluate_every)
        c->run.evaluate_every = 0; /* the end is what is shown */
    plan->on = r->on;
    plan->shape = r->shape;
    c->apply = sweep_apply;
    c->texts = r->study.texts;
    c->seeds = (int)seeds;
    c->quiet = r->study.quiet;
    return answer;
}

static int run_request(void *context) {
    static const study_views views = {"sweep", sweep_print, sweep_print_json, sweep_report};
    request *r = context;
    comet_dataset *data = NULL;
    sweep_memory m = {0};
    sweep_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? read_runs(r, plan, &data) : fail_memory();
    if (answer == DONE)
        answer = sweep_name_variants(r->layers, plan, &m);
    if (answer == DONE)
        answer = study_compare(&plan->compare, &views, &r->study);
    comet_dataset_free(data);
    sweep_memory_free(&m);
    free(plan);
    return answer;
}

int command_sweep(int argc, char **argv) {
    static const study_command command = {help_begin, help_end, run_request, study_runs_help};
    request r = {0};
    return study_carry_out(&command, &r.study, &r, read_request(&r, argc, argv), argv);
}
