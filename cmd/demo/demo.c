/* SPDX-License-Identifier: Apache-2.0 */
/* comet demo: a small network trained with its activations as they are and compressed, side by side. */
#include "cmd/demo/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/text.h"
#include "cmd/common/workers.h"
#include "cmd/files/file.h"
#include "cmd/study/compare.h"
#include "cmd/train/train_options.h"

static const char help[] =
    "Usage: comet demo [--quick] [--quiet] [--report FILE.html]\n"
    "       comet demo codec [--quick] [--quiet]\n"
    "\n"
    "Trains a small ResNet on Fashion-MNIST (on generated images where it is not installed) twice: with the "
    "activations\n"
    "that the backward pass needs kept as they are, and compressed. Shows what that does to accuracy, memory and time, "
    "in\n"
    "about two minutes on two cores. 'comet demo codec' shows the codecs alone.\n"
    "\n"
    "  --quick       a few steps only: the accuracy says nothing\n"
    "  --quiet       no progress on standard error\n"
    "  --report FILE.html\n"
    "                where the report goes (demo-report.html)\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 used wrongly; stopped by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.\n"
    "\n"
    "Examples:\n"
    "  comet demo\n"
    "  comet compare --model resnet8 --variants none,eb,pool:2,group:4 --epochs 2    the same with more variants\n";

typedef struct request {
    const char *report;
    int quick, quiet, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--report", OPTION_TEXT, &r->report}, {"--quick", OPTION_FLAG, &r->quick},
                            {"--quiet", OPTION_FLAG, &r->quiet},   {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},         {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer == DONE && r->operands.count)
        return misuse("unexpected '%s'", r->operands.items[0]);
    if (!r->report)
        r->report = "demo-report.html";
    return answer;
}

static int make_plan(const request *r, compare_plan *plan, comet_dataset **data) {
    static const char *const variants[] = {"none", "eb"};
    const train_texts texts = {.model = "resnet8",
                               .data = "fashion-mnist",
                               .epochs = r->quick ? NULL : "2",
                               .steps = r->quick ? "8" : NULL,
                               .rate = "0.2",
                               .no_augment = 1}; /* crops and flips pay in longer runs only */
    plan->seeds = 1;
    plan->quiet = r->quiet;
    plan->texts = texts;
    plan->variants = variants;
    plan->variant_count = 2;
    plan->apply = compare_form;
    int answer = train_options_read(&texts, &plan->run);
    if (answer == DONE)
        answer = train_options_data(&texts, &plan->run, data);
    if (r->quick)
        plan->run.evaluate_most = 500;
    return answer;
}

static void print_meaning(const compare_results *results) {
    const record_figures *none = &results->records[0].figures, *eb = &results->records[1].figures;
    char raw[32], stored[32], before[32], after[32];
    printf("\nWhat the backward pass needs, %s a step, was held in %s;\n"
           "the process needed %s instead of %s.\n"
           "Accuracy went from %.2f to %.2f %%, the time of a step from %.1f to %.1f ms.\n",
           text_size(none->result.saved_stored_bytes, raw, sizeof raw),
           text_size(eb->result.saved_stored_bytes, stored, sizeof stored),
           text_measured(eb->measured_peak_bytes, after, sizeof after),
           text_measured(none->measured_peak_bytes, before, sizeof before), none->result.top1, eb->result.top1,
           none->result.ms_per_step, eb->result.ms_per_step);
}

static int show(const request *r, const compare_plan *plan, const compare_results *results) {
    compare_print(plan, results);
    if (compare_failures(results))
        return FAILED;
    print_meaning(results);
    int answer = compare_report(r->report, plan, results);
    if (answer == DONE)
        printf("Curves, memory over a step and bytes of each layer: %s\n", r->report);
    else
        note("the results are on standard output");
    return answer;
}

static int try_report(const request *r) {
    comet_message message;
    comet_status status = output_try("--report", r->report, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int run_request(const request *r) {
    comet_dataset *data = NULL;
    compare_results results = {0};
    compare_plan *plan = calloc(1, sizeof *plan);
    int answer = plan ? make_plan(r, plan, &data) : fail_memory();
    if (answer == DONE)
        answer = try_report(r);
    if (answer == DONE)
        answer = compare_run(plan, &results);
    if (answer == DONE)
        answer = show(r, plan, &results);
    compare_results_free(&results);
    comet_dataset_free(data);
    free(plan);
    return answer;
}

int command_demo(int argc, char **argv) {
    request r = {0};
    if (argc > 1 && strcmp(argv[1], "codec") == 0)
        return demo_codec(argc - 1, argv + 1);
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help) {
        fputs(help, stdout);
    } else if (answer == DONE) {
        openmp_wait_passively(argv - 1); /* main's, in which the command's name is the second */
        answer = run_request(&r);
    }
    text_array_free(&r.operands);
    return answer;
}
