/* SPDX-License-Identifier: Apache-2.0 */
/* comet evaluate: how good a trained network is on images whose classes are known. */
#include "cmd/predict/evaluate.h"

#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/csv.h"
#include "cmd/common/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/common/workers.h"
#include "cmd/predict/classify.h"
#include "cmd/predict/network_data.h"

static const char help[] =
    "Usage: comet evaluate --from PATH [--data SET] [OPTION...]\n"
    "\n"
    "Says how well a trained network does on the images of a data set that it has not seen: loss, accuracy, accuracy\n"
    "of each class, and what each class is taken for.\n"
    "\n" NETWORK_HELP
    "  --data SET            as for comet train; its images for evaluation are taken (what the weights name)\n"
    "  --images N            so many of them, of all classes (all)\n" NETWORK_HELP_MACHINE "\n"
    "The answer:\n"
    "  --json                one object, with the confusion matrix\n"
    "  --csv                 a row for each image: its file or number, its class, what it was taken for\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Examples:\n"
    "  comet evaluate --from comet-resnet8-fashion-mnist\n"
    "  comet evaluate --from comet-resnet18-pets --data folder:other-pets --csv > images.csv\n"
    "  comet evaluate --from resnet18.safetensors --model resnet18 --data folder:imagenet\n";

typedef struct request {
    network_texts network;
    const char *data, *images;
    int json, csv, quiet, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {
        NETWORK_OPTIONS(r->network),       {"--data", OPTION_TEXT, &r->data}, {"--images", OPTION_TEXT, &r->images},
        {"--json", OPTION_FLAG, &r->json}, {"--csv", OPTION_FLAG, &r->csv},   {"--quiet", OPTION_FLAG, &r->quiet},
        {"--help", OPTION_FLAG, &r->help}, {"-h", OPTION_FLAG, &r->help},     {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer == DONE && r->operands.count)
        return misuse("unexpected '%s'", r->operands.items[0]);
    return answer == DONE && r->json && r->csv ? misuse("--json and --csv exclude each other") : answer;
}

/* ---- images ---- */

typedef struct sight {
    evaluation *evaluation;
    csv *csv; /* NULL: none is wanted */
} sight;

static void put_row(const sight *s, const classified *image, int label, int taken) {
    const evaluation *e = s->evaluation;
    const char *file = comet_dataset_file_name(e->data, COMET_SPLIT_EVALUATE, image->sample);
    char name[NETWORK_NAME];
    if (file)
        csv_text(s->csv, file);
    else
        csv_integer(s->csv, image->sample);
    csv_text(s->csv, network_label(&e->network, label, name));
    csv_text(s->csv, taken < 0 ? "" : network_label(&e->network, taken, name));
    csv_number(s->csv, taken < 0 ? 0 : image->probabilities[taken]);
    csv_number(s->csv, image->probabilities[label]);
    csv_end(s->csv);
}

static void see(void *context, const classified *image) {
    const sight *s = context;
    const int label = s->evaluation->classes[image->label];
    const int taken = tally_add(&s->evaluation->tally, label, image->probabilities);
    if (s->csv)
        put_row(s, image, label, taken);
}

static int go_through(const request *r, evaluation *e) {
    csv rows = {.file = stdout};
    sight s = {e, r->csv ? &rows : NULL};
    classify_options options = {.data = e->data, .quiet = r->quiet, .see = see, .context = &s};
    if (r->images && parse_integer("--images", r->images, 1, (int64_t)1 << 40, &options.most) != DONE)
        return MISUSED;
    if (r->csv)
        csv_head(&rows, "image,class,taken_for,probability,probability_of_class");
    const double start = clock_seconds();
    const int answer = classify(&e->network, &options, &e->broken);
    e->seconds = clock_seconds() - start;
    return answer;
}

static int evaluate(const request *r, evaluation *e) {
    int answer = network_open(&r->network, &e->network);
    if (answer == DONE)
        answer = network_data_open(&e->network, r->data, &e->data_name, &e->data);
    if (answer == DONE)
        answer = network_data_classes(&e->network, e->data, e->data_name, &e->classes);
    if (answer == DONE)
        answer = tally_init(&e->tally, e->network.about.classes);
    if (answer == DONE)
        answer = go_through(r, e);
    if (answer == DONE && !r->csv)
        (r->json ? evaluate_print_json : evaluate_print)(e);
    return answer;
}

int command_evaluate(int argc, char **argv) {
    request r = {0};
    evaluation e = {.data = NULL};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE) {
        openmp_wait_passively(argv - 1); /* main's, in which the command's name is the second */
        answer = evaluate(&r, &e);
    }
    tally_free(&e.tally);
    free(e.classes);
    comet_dataset_free(e.data);
    network_free(&e.network);
    text_array_free(&r.operands);
    return answer;
}
