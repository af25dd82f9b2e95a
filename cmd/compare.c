/* SPDX-License-Identifier: Apache-2.0 */
/* comet compare: variants of a run beside one another. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "message.h"
#include "openmp.h"
#include "options.h"

static const char help_begin[] =
    "Usage: comet compare --model NAME [--data SET] [--variants LIST] [OPTION...]\n"
    "\n"
    "Trains a network once for each variant and seed, with the same first values and the same batches, and shows "
    "accuracy,\n"
    "saved bytes, memory and time side by side. Each run is a process of its own: its peak of memory is its own, and "
    "if\n"
    "one fails the others go on.\n"
    "\n"
    "  --variants LIST       forms as 'comet train --codec' takes them, and controllers as --control does: comet, "
    "acgc,\n"
    "                        budget, comet:c=0.3 are eb under them (none,eb)\n"
    "  --seeds N             runs of each variant (1); from 2 on the difference from the first variant has an "
    "interval\n"
    "  --memory SIZE         each variant runs at the largest batch that fits, up to --batch (1024), with nothing "
    "spilled\n"
    "                        or recomputed that its name does not say\n"
    "  --json                one JSON object on standard output instead of the table\n"
    "  --report FILE.html    curves, memory over a step, ratio per layer\n"
    "  --quiet               no progress on standard error\n"
    "\n";

static const char help_end[] =
    "\n"
    "Peaks: planned is what was computed before the first step (weights, gradients, optimiser, activations, "
    "workspaces,\n"
    "prefetch); measured is the most that was resident beyond what was before the run, as the operating system counts "
    "it,\n"
    "without the code of libraries. The data set itself is in neither.\n"
    "\n"
    "Examples:\n"
    "  comet compare --model resnet8 --epochs 1\n"
    "  comet compare --model resnet18 --data cifar10:data --variants none,eb,pool:2,group:4 --seeds 3 --report r.html\n"
    "  comet compare --model resnet50 --data folder:pets --memory 4GiB --steps 20 --json\n";

enum { MOST_BATCH = 1024 };

typedef struct request {
    train_texts texts;
    const char *variants, *seeds, *report;
    int json, quiet, help;
    text_array operands;
    text_list list; /* of variants */
} request;

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--variants", OPTION_TEXT, &r->variants},
                          {"--seeds", OPTION_TEXT, &r->seeds},
                          {"--report", OPTION_TEXT, &r->report},
                          {"--json", OPTION_FLAG, &r->json},
                          {"--quiet", OPTION_FLAG, &r->quiet},
                          {"--help", OPTION_FLAG, &r->help},
                          {"-h", OPTION_FLAG, &r->help},
                          {NULL, OPTION_FLAG, NULL}};
    int answer = train_options_parse(&r->texts, own, sizeof own / sizeof *own, argc, argv, &r->operands);
    if (answer == DONE && r->texts.codec)
        return misuse("--codec is for 'comet train'; give --variants");
    return answer;
}

static int check_variants(const compare_plan *plan) {
    int answer = DONE;
    for (int i = 0; i < plan->variant_count && answer == DONE; i++) {
        comet_run_options unused = plan->run;
        answer = plan->apply(plan, plan->variants[i], &unused);
    }
    return answer;
}

static int make_plan(request *r, compare_plan *plan, comet_dataset **data) {
    const char *variants = r->variants ? r->variants : "none,eb";
    int64_t seeds = 1;
    int answer = parse_list("--variants", variants, &r->list);
    if (answer == DONE && r->seeds)
        answer = parse_integer("--seeds", r->seeds, 1, 1000, &seeds);
    plan->variants = r->list.items;
    plan->variant_count = r->list.count;
    plan->apply = compare_form;
    plan->seeds = (int)seeds;
    plan->quiet = r->quiet;
    plan->texts = r->texts;
    if (answer == DONE)
        answer = train_options_read(&r->texts, &plan->run);
    if (!r->texts.spill)
        plan->run.trainer.spill_directory = strstr(variants, "offload") ? train_default_spill() : NULL;
    if (answer == DONE)
        answer = check_variants(plan);
    if (answer == DONE)
        answer = train_options_data(&r->texts, &plan->run, data);
    plan->largest = r->texts.memory != NULL;
    if (plan->largest && !r->texts.batch)
        plan->run.trainer.batch = MOST_BATCH;
    return answer;
}

static int show(const request *r, const compare_plan *plan, const compare_results *results) {
    if (r->json)
        compare_print_json(plan, results);
    else
        compare_print(plan, results);
    int answer = r->report ? compare_report(r->report, plan, results) : DONE;
    if (answer == DONE && r->report && !r->json)
        printf("Report: %s\n", r->report);
    return answer;
}

static int run_request(request *r) {
    comet_dataset *data = NULL;
    compare_results results = {0};
    compare_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? make_plan(r, plan, &data) : fail_memory();
    if (answer == DONE) {
        answer = compare_run(plan, &results);
        int shown = results.count ? show(r, plan, &results) : DONE;
        if (answer == DONE)
            answer = shown == DONE && compare_failures(&results) ? FAILED : shown;
    }
    compare_results_free(&results);
    comet_dataset_free(data);
    free(plan);
    return answer;
}

int command_compare(int argc, char **argv) {
    request r = {0};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help) {
        fputs(help_begin, stdout);
        fputs(train_options_help, stdout);
        fputs(help_end, stdout);
    } else if (answer == DONE) {
        openmp_wait_passively(argv - 1); /* main's, in which the command's name is the second */
        answer = run_request(&r);
    }
    text_array_free(&r.operands);
    return answer;
}
