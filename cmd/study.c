/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "openmp.h"

int study_parse(study_options *o, const option *own, size_t own_count, int argc, char **argv) {
    const option common[] = {{"--report", OPTION_TEXT, &o->report}, {"--json", OPTION_FLAG, &o->json},
                             {"--quiet", OPTION_FLAG, &o->quiet},   {"--help", OPTION_FLAG, &o->help},
                             {"-h", OPTION_FLAG, &o->help},         {NULL, OPTION_FLAG, NULL}};
    enum { COMMON = sizeof common / sizeof *common };
    option all[MOST_OWN_OPTIONS];
    memcpy(all, own, own_count * sizeof *own);
    memcpy(all + own_count, common, sizeof common);
    return train_options_parse(&o->texts, all, own_count + COMMON, argc, argv, &o->operands);
}

int study_carry_out(const study_command *command, study_options *o, void *request, int parsed, char **argv) {
    int answer = parsed;
    if (answer == DONE && o->help) {
        fputs(command->begin, stdout);
        if (command->end) {
            fputs(train_options_help, stdout);
            fputs(command->end, stdout);
        }
    } else if (answer == DONE) {
        openmp_wait_passively(argv - 1);
        answer = command->run(request);
    }
    text_array_free(&o->operands);
    return answer;
}

static int show(const compare_plan *plan, const compare_results *results, const study_views *views,
                const study_options *o) {
    (o->json ? views->json : views->table)(plan, results);
    int answer = o->report ? views->report(o->report, plan, results) : DONE;
    if (answer == DONE && o->report && !o->json)
        printf("Report: %s\n", o->report);
    return answer;
}

int study_compare(const compare_plan *plan, const study_views *views, const study_options *o) {
    compare_results results = {0};
    int answer = compare_run(plan, &results);
    const int shown = results.count ? show(plan, &results, views, o) : DONE;
    if (answer == DONE)
        answer = shown == DONE && compare_failures(&results) ? FAILED : shown;
    compare_results_free(&results);
    return answer;
}
