/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/study/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/stop.h"
#include "cmd/common/workers.h"
#include "cmd/files/file.h"

/* What may change between an interruption and going on. */
static const char *const of_no_account[] = {"--report", "--json",      "--quiet",  "--help",   "-h",
                                            "--state",  "--spill-dir", "--resume", "--config", NULL};

int study_parse(study_options *o, const option *own, size_t own_count, int argc, char **argv) {
    const option common[] = {{"--report", OPTION_TEXT, &o->report}, {"--json", OPTION_FLAG, &o->json},
                             {"--quiet", OPTION_FLAG, &o->quiet},   {"--help", OPTION_FLAG, &o->help},
                             {"-h", OPTION_FLAG, &o->help},         {NULL, OPTION_FLAG, NULL}};
    enum { COMMON = sizeof common / sizeof *common };
    option all[MOST_OWN_OPTIONS];
    memcpy(all, own, own_count * sizeof *own);
    memcpy(all + own_count, common, sizeof common);
    int answer = train_options_parse(&o->texts, all, own_count + COMMON, argc, argv, &o->operands);
    o->given = train_options_given(&o->texts, all, own_count + COMMON, of_no_account);
    return answer == DONE && !o->given ? fail_memory() : answer;
}

int study_carry_out(const study_command *command, study_options *o, void *request, int parsed, char **argv) {
    int answer = parsed;
    if (answer == DONE && o->help) {
        fputs(command->begin, stdout);
        if (command->end) {
            fprintf(stdout, "%s\n", command->more);
            fputs(train_options_help, stdout);
            fputs(command->end, stdout);
        }
    } else if (answer == DONE) {
        openmp_wait_passively(argv - 1);
        answer = command->run(request);
    }
    text_array_free(&o->operands);
    free(o->given);
    return answer;
}

/* ---- comparisons ---- */

const char study_runs_help[] =
    "  --state FILE          where finished runs are kept until all are; none: nowhere\n"
    "                        (comet-COMMAND-MODEL-DATA.runs, in the current folder)\n"
    "  --resume              go on with the runs that an interrupted one has not finished, with the same options; an\n"
    "                        error if there are none. --resume=auto begins anew then\n";

/* Names of our own. */
typedef struct names {
    char data[TRAIN_DATA_NAME], place[TRAIN_DATA_PLACE], state[2 * TRAIN_DATA_NAME + 64];
    char *given;
} names;

/* The options, and the data itself: it is the same comparison only with the same images. */
static int name_given(const study_options *o, const comet_dataset *data, names *n) {
    const comet_dataset_info *info = comet_dataset_get_info(data);
    const size_t bytes = strlen(o->given) + 128;
    n->given = malloc(bytes);
    if (!n->given)
        return fail_memory();
    snprintf(n->given, bytes, "%sdata %lld+%lld images, digest %08lx%08lx\n", o->given,
             (long long)info->count[COMET_SPLIT_TRAIN], (long long)info->count[COMET_SPLIT_EVALUATE],
             (unsigned long)info->digest[COMET_SPLIT_TRAIN], (unsigned long)info->digest[COMET_SPLIT_EVALUATE]);
    return DONE;
}

static int set_state(compare_plan *plan, const char *command, const study_options *o, names *n) {
    const int wanted = !o->state || strcmp(o->state, "none") != 0;
    if (!wanted && o->resume)
        return misuse("--resume needs a file of finished runs");
    train_data_name(&plan->texts, &plan->run, n->data);
    train_data_place(&plan->texts, &plan->run, n->place);
    plan->run.data_name = n->place;
    snprintf(n->state, sizeof n->state, "comet-%s-%s-%s.runs", command, plan->run.trainer.model, n->data);
    plan->state.path = !wanted ? NULL : o->state ? o->state : n->state;
    if (train_resume_read(o->resume, &plan->state.resume) != DONE)
        return MISUSED;
    const int answer = name_given(o, plan->run.data, n);
    plan->state.given = n->given;
    return answer;
}

static int write_report(const compare_plan *plan, const compare_results *results, const study_views *views,
                        const study_options *o, int complete) {
    if (!o->report)
        return DONE;
    if (!complete && access(o->report, F_OK) == 0) {
        note("'%.400s' stays as it was: not all runs are finished", o->report);
        return DONE;
    }
    const int answer = views->report(o->report, plan, results);
    if (answer == DONE && !o->json)
        printf("Report: %s\n", o->report);
    if (answer != DONE && results->state.kept)
        note("the results are on standard output, and in '%.400s': --resume writes the report again",
             results->state.path);
    else if (answer != DONE)
        note("the results are on standard output");
    return answer;
}

static int run_and_show(const compare_plan *plan, const study_views *views, const study_options *o) {
    compare_results results = {0};
    int answer = compare_run(plan, &results), shown = DONE;
    const int complete = answer == DONE && compare_failures(&results) == 0;
    if (results.count && (answer == DONE || answer == stop_code())) {
        (o->json ? views->json : views->table)(plan, &results);
        shown = write_report(plan, &results, views, o, complete);
    }
    compare_state_close(&results.state, complete && shown == DONE);
    if (answer == DONE)
        answer = shown == DONE && !complete ? FAILED : shown;
    compare_results_free(&results);
    return answer;
}

int study_try_report(const study_options *o) {
    comet_message message;
    comet_status status = output_try("--report", o->report, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

int study_compare(compare_plan *plan, const study_views *views, const study_options *o) {
    names n = {.given = NULL};
    int answer = study_try_report(o);
    if (answer == DONE)
        answer = set_state(plan, views->name, o, &n);
    if (answer == DONE)
        answer = run_and_show(plan, views, o);
    free(n.given);
    return answer;
}
