/* SPDX-License-Identifier: Apache-2.0 */
/* comet compare: variants of a run beside one another. */
#include "cmd/study/compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/study/study.h"
#include "cmd/train/forms_idle.h"

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
    "  --report FILE.html    curves, memory over a step, ratio per layer; an existing one is replaced only by one of "
    "all runs\n"
    "  --quiet               no progress on standard error\n";

static const char help_end[] =
    "\n"
    "Peaks: planned is what was computed before the first step (weights, gradients, optimiser, activations, "
    "workspaces,\n"
    "prefetch); measured is the most that was resident beyond what was before the run, as the operating system counts "
    "it,\n"
    "without the code of libraries. The data set itself is in neither.\n"
    "\n"
    "Exit codes: 0 done, 1 a run failed, 2 used wrongly; stopped by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.\n"
    "\n"
    "Examples:\n"
    "  comet compare --model resnet8 --epochs 1\n"
    "  comet compare --model resnet18 --data cifar10:data --variants none,eb,pool:2,group:4 --seeds 3 --report r.html\n"
    "  comet compare --model resnet50 --data folder:pets --memory 4GiB --steps 20 --json\n";

enum { MOST_BATCH = 1024 };

typedef struct request {
    study_options study;
    const char *variants, *seeds;
    text_list list; /* of variants */
} request;

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--variants", OPTION_TEXT, &r->variants},
                          {"--seeds", OPTION_TEXT, &r->seeds},
                          {"--state", OPTION_TEXT, &r->study.state},
                          {"--resume", OPTION_MAYBE, &r->study.resume}};
    int answer = study_parse(&r->study, own, sizeof own / sizeof *own, argc, argv);
    if (answer == DONE && r->study.texts.codec)
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

/* Rules that change nothing in any variant. */
static void find_and_tell(const compare_plan *plan) {
    comet_trainer_options options;
    uint64_t idle = UINT64_MAX;
    size_t unused[COMET_SPLITS];
    comet_message unread;
    for (int i = 0; i < plan->variant_count && idle; i++) {
        comet_run_options run = plan->run;
        if (plan->apply(plan, plan->variants[i], &run) != DONE ||
            comet_run_trainer_options(&run, &options, unused, &unread) != COMET_OK)
            return;
        idle &= forms_find_idle(&options);
    }
    forms_tell_idle(&options, idle);
}

/* In a process of its own: planning may start threads, and this one is to fork. */
static void tell_idle_forms(const compare_plan *plan) {
    if (!plan->run.trainer.forms)
        return;
    fflush(NULL); /* what is buffered would come twice */
    const pid_t child = fork();
    if (child == 0) {
        find_and_tell(plan);
        _exit(DONE);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
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
    plan->quiet = r->study.quiet;
    plan->texts = r->study.texts;
    if (answer == DONE)
        answer = train_options_read(&r->study.texts, &plan->run);
    if (!r->study.texts.spill)
        plan->run.trainer.spill_directory = strstr(variants, "offload") ? train_default_spill() : NULL;
    if (answer == DONE)
        answer = check_variants(plan);
    if (answer == DONE)
        answer = train_options_data(&r->study.texts, &plan->run, data);
    plan->largest = r->study.texts.memory != NULL;
    if (plan->largest && !r->study.texts.batch)
        plan->run.trainer.batch = MOST_BATCH;
    return answer;
}

static int run_request(void *context) {
    static const study_views views = {"compare", compare_print, compare_print_json, compare_report};
    request *r = context;
    comet_dataset *data = NULL;
    compare_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? make_plan(r, plan, &data) : fail_memory();
    if (answer == DONE)
        tell_idle_forms(plan);
    if (answer == DONE)
        answer = study_compare(plan, &views, &r->study);
    comet_dataset_free(data);
    free(plan);
    return answer;
}

int command_compare(int argc, char **argv) {
    static const study_command command = {help_begin, help_end, run_request, study_runs_help};
    request r = {0};
    return study_carry_out(&command, &r.study, &r, read_request(&r, argc, argv), argv);
}
