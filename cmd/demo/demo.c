/* SPDX-License-Identifier: Apache-2.0 */
/* comet demo: a small network trained with its activations as they are and compressed, side by side. */
#include "cmd/demo/demo.h"

#include <math.h>
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
    "Trains a small ResNet on Fashion-MNIST (on generated images where it is not installed) for less than an epoch, "
    "from\n"
    "three first values each: with the activations that the backward pass needs kept as they are, and compressed. "
    "Shows\n"
    "what that does to accuracy, memory and time, in about two minutes on two cores. 'comet demo codec' shows the "
    "codecs\n"
    "alone.\n"
    "\n"
    "  --quick       a few steps of one run only: the accuracy says nothing\n"
    "  --quiet       no progress on standard error\n"
    "  --report FILE.html\n"
    "                where the report goes (demo-report.html)\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 used wrongly; stopped by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.\n"
    "\n"
    "Examples:\n"
    "  comet demo\n"
    "  comet compare --model resnet20 --variants none,eb,pool:2,group:4 --epochs 1    the same with more variants\n";

/*
 * Deep enough that what is saved is most of the memory, as in large networks; as many seeds as make an interval of the
 * difference; and as many steps as two minutes have room for.
 */
enum { SEEDS = 3, LARGE_BATCH = 64 };
#define STEPS "200"

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
    const train_texts texts = {.model = "resnet20",
                               .data = "fashion-mnist",
                               .steps = r->quick ? "8" : STEPS,
                               .rate = "0.1",
                               .no_augment = 1}; /* crops and flips pay in longer runs only */
    plan->seeds = r->quick ? 1 : SEEDS;
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

/* Of a variant, means over its runs. */
typedef struct figures {
    double raw, stored, peak, ms; /* bytes; of a step */
} figures;

static figures mean_of(const compare_results *results, int variant) {
    figures mean = {0};
    const int n = results->per_variant;
    for (int i = 0; i < n; i++) {
        const record_figures *f = &results->records[variant * n + i].figures;
        mean.raw += (double)f->result.saved_raw_bytes / n;
        mean.stored += (double)f->result.saved_stored_bytes / n;
        mean.peak += (double)f->measured_peak_bytes / n;
        mean.ms += f->result.ms_per_step / n;
    }
    return mean;
}

static void print_meaning(const compare_results *results) {
    const figures none = mean_of(results, 0), eb = mean_of(results, 1);
    char a[32], b[32];
    printf("\nWhat the backward pass needs, %s a step, was held in %s.", text_size((uint64_t)none.stored, a, sizeof a),
           text_size((uint64_t)eb.stored, b, sizeof b));
    if (none.peak > 0 && eb.peak > 0)
        printf(" The process took %s in place of\n%s: %.1f x less.", text_size((uint64_t)eb.peak, a, sizeof a),
               text_size((uint64_t)none.peak, b, sizeof b), none.peak / eb.peak);
    printf(" A step took %.0f ms in place of %.0f: %.2f x as long. Convolutions of small\n"
           "images are cheap beside compressing; large networks pay less.\n",
           eb.ms, none.ms, none.ms > 0 ? eb.ms / none.ms : 0);
}

/* Of few runs little can be said: whether the difference is beyond what chance makes of it. */
static void print_accuracy(const compare_results *results) {
    const comet_paired p = compare_accuracy(results, 1);
    if (p.pairs > 1)
        printf("Accuracy differs by %.2f points, %s than first values and the order of images alone explain.\n",
               fabs(p.mean), fabs(p.mean) <= p.half_width ? "no more" : "more");
}

/* The planned peak of a large network's training; 0: there is no plan. */
static size_t planned_peak(const char *codec) {
    const comet_trainer_options options = {.model = "resnet50",
                                           .classes = 1000,
                                           .height = 224,
                                           .width = 224,
                                           .channels = 3,
                                           .batch = LARGE_BATCH,
                                           .codec = codec,
                                           .control = strcmp(codec, "eb") == 0 ? "comet" : NULL,
                                           .optimiser = comet_optimiser_default(COMET_SGD)};
    comet_fit fit;
    comet_message message;
    const comet_status status = comet_trainer_fit(&options, NULL, &fit, NULL, NULL, NULL, &message);
    return status == COMET_OK ? fit.bytes.planned_peak_bytes + fit.bytes.library_bytes : 0;
}

static void print_large(void) {
    const size_t none = planned_peak("none"), eb = planned_peak("eb");
    char a[32], b[32];
    if (none && eb)
        printf("What 'comet plan' says of ResNet-50, %d photographs a step: %s in place of %s, %.1f x less.\n",
               LARGE_BATCH, text_size(eb, a, sizeof a), text_size(none, b, sizeof b), (double)none / (double)eb);
}

static int show(const request *r, const compare_plan *plan, const compare_results *results) {
    compare_print(plan, results);
    if (compare_failures(results))
        return FAILED;
    print_meaning(results);
    print_accuracy(results);
    print_large();
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
