/* SPDX-License-Identifier: Apache-2.0 */
/* comet plan: the command. */
#include "cmd/plan/plan.h"

#include <stdio.h>

#include "cmd/common/command.h"

static int show(const plan_request *r, const plan_answer *answer) {
    if (r->json)
        plan_print_json(r, answer);
    else
        plan_print(r, answer);
    return r->report ? plan_write_report(r, answer) : DONE;
}

int command_plan(int argc, char **argv) {
    plan_request request = {0};
    plan_answer answer = {0};
    int result = plan_options_read(&request, argc, argv);
    if (result == DONE && request.help)
        fputs(plan_help, stdout);
    else if (result == DONE)
        result = plan_ask(&request, &answer);
    if (result == DONE && !request.help)
        result = show(&request, &answer);
    plan_answer_free(&answer);
    plan_request_free(&request);
    return result;
}
