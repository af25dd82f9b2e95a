/* SPDX-License-Identifier: Apache-2.0 */
/* The loader as training uses it, with nobody who takes time between batches. */
#include "cmd/bench/loader/loader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/common/machine.h"
#include "cmd/common/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/progress.h"
#include "cmd/common/stop.h"
#include "comet/version.h"
#include "data/loader/loader.h"

static const char help[] =
    "Usage: comet bench loader [--data SET] [OPTION...]\n"
    "\n"
    "How many images a second are read, decoded, cut, turned and resized for training, by the loader's own threads,\n"
    "where nothing else is done: a trainer that takes more waits. Files come from the disk the first time, from the\n"
    "system's memory after that.\n"
    "\n"
    "  --data SET            as for 'comet train': folder:DIR, cifar10:DIR, generated[:N] (generated)\n"
    "  --image N             images of N x N pixels (what the data has; 224 where images differ)\n"
    "  --channels 1|3        grey or RGB (what the data has)\n"
    "  --batch B             images of a batch (128)\n"
    "  --threads LIST        of the loader, one measurement each; 0: one for each core (0)\n"
    "  --batches N           that are measured (40)\n"
    "  --warm-up N           before these (4)\n"
    "  --no-augment          the middle of each image: no crops, no flips\n"
    "  --json                one JSON object on standard output instead of the table\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Examples:\n"
    "  comet bench loader --data folder:photographs --threads 1,4,0\n"
    "  comet bench loader --data cifar10:DIR --batch 512 --json\n";

typedef struct request {
    const char *data, *image, *channels, *batch, *threads, *batches, *warm_up;
    int no_augment, json, quiet, help;
    text_array operands;
} request;

typedef struct loader_result {
    unsigned threads;
    double first_ms; /* from the loader's beginning to its first batch */
    double ms;       /* of a batch */
    double images_per_second;
} loader_result;

typedef struct loader_plan {
    const char *data_name;
    comet_dataset *data;
    comet_loader_options options;
    unsigned threads[LIST_MAX];
    int count, batches, warm_up, json;
    progress progress;
    loader_result results[LIST_MAX];
} loader_plan;

/* ---- options ---- */

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--data", OPTION_TEXT, &r->data},
                            {"--image", OPTION_TEXT, &r->image},
                            {"--channels", OPTION_TEXT, &r->channels},
                            {"--batch", OPTION_TEXT, &r->batch},
                            {"--threads", OPTION_TEXT, &r->threads},
                            {"--batches", OPTION_TEXT, &r->batches},
                            {"--warm-up", OPTION_TEXT, &r->warm_up},
                            {"--no-augment", OPTION_FLAG, &r->no_augment},
                            {"--json", OPTION_FLAG, &r->json},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer == DONE && !r->help && r->operands.count)
        return misuse("unexpected '%s'", r->operands.items[0]);
    return answer;
}

static int read_count(const char *name, const char *text, int64_t least, int64_t most, int64_t usual, int *value) {
    int64_t number = usual;
    int answer = text ? parse_integer(name, text, least, most, &number) : DONE;
    *value = (int)number;
    return answer;
}

static int read_threads(const char *text, loader_plan *p) {
    text_list list;
    int number, answer = parse_list("--threads", text ? text : "0", &list);
    for (int i = 0; i < list.count && answer == DONE; i++) {
        answer = read_count("--threads", list.items[i], 0, 256, 0, &number);
        p->threads[i] = number ? (unsigned)number : comet_usable_cores();
    }
    p->count = list.count;
    return answer;
}

static int read_sizes(const request *r, loader_plan *p) {
    const comet_dataset_info *info = comet_dataset_get_info(p->data);
    comet_loader_options *o = &p->options;
    int image = 0, channels = info->channels, answer = read_count("--image", r->image, 1, 4096, 0, &image);
    if (answer == DONE)
        answer = read_count("--channels", r->channels, 1, 3, channels, &channels);
    if (answer == DONE && channels == 2)
        answer = misuse("--channels: 1 (grey) or 3 (RGB)");
    o->channels = channels;
    o->height = image ? image : info->height ? info->height : 224;
    o->width = image ? image : info->width ? info->width : 224;
    return answer;
}

static int make_plan(const request *r, loader_plan *p) {
    comet_message message;
    int answer = read_count("--batch", r->batch, 1, 1 << 16, 128, &p->options.batch);
    p->json = r->json;
    if (answer == DONE)
        answer = read_count("--batches", r->batches, 1, 1000000, 40, &p->batches);
    if (answer == DONE)
        answer = read_count("--warm-up", r->warm_up, 0, 1000000, 4, &p->warm_up);
    if (answer == DONE)
        answer = read_threads(r->threads, p);
    if (answer != DONE)
        return answer;
    p->data_name = r->data ? r->data : "generated";
    comet_status status = comet_dataset_open(p->data_name, NULL, &p->data, &message);
    if (status != COMET_OK)
        return status == COMET_ERROR_ARGUMENT ? misuse("%s", message.text) : fail("%s", message.text);
    p->options.augment = r->no_augment ? COMET_AUGMENT_NONE : COMET_AUGMENT_DEFAULT;
    p->options.seed = 1;
    progress_start(&p->progress, (size_t)p->count * (size_t)(p->warm_up + p->batches), r->quiet);
    return read_sizes(r, p);
}

/* ---- measuring ---- */

static comet_status take(loader_plan *p, comet_loader *loader, int count, comet_message *message) {
    comet_batch batch;
    comet_status status = COMET_OK;
    for (int i = 0; i < count && status == COMET_OK && !stop_asked; i++) {
        status = comet_loader_next(loader, &batch, message);
        progress_step(&p->progress, p->data_name);
    }
    return status;
}

static comet_status measure(loader_plan *p, comet_loader *loader, double begun, loader_result *result,
                            comet_message *message) {
    comet_batch batch;
    comet_status status = comet_loader_next(loader, &batch, message);
    result->first_ms = 1e3 * (clock_seconds() - begun);
    if (status == COMET_OK)
        status = take(p, loader, p->warm_up, message);
    const double start = clock_seconds();
    if (status == COMET_OK)
        status = take(p, loader, p->batches, message);
    const double seconds = clock_seconds() - start;
    result->ms = 1e3 * seconds / p->batches;
    result->images_per_second = seconds > 0 ? p->batches * (double)p->options.batch / seconds : 0;
    return status;
}

static int measure_one(loader_plan *p, int index) {
    comet_loader_options options = p->options;
    comet_loader *loader = NULL;
    comet_message message;
    loader_result *result = &p->results[index];
    result->threads = options.threads = p->threads[index];
    const double begun = clock_seconds();
    comet_status status = comet_loader_new(p->data, &options, &loader, &message);
    if (status == COMET_OK)
        status = measure(p, loader, begun, result, &message);
    comet_loader_free(loader);
    progress_clear(&p->progress);
    if (status != COMET_OK)
        return status == COMET_ERROR_ARGUMENT ? misuse("%s", message.text) : fail("%s", message.text);
    return DONE;
}

/* ---- what is shown ---- */

static void print_row(const loader_result *r) {
    printf("%7u %10.0f %12.2f %12.1f\n", r->threads, r->images_per_second, r->ms, r->first_ms);
    fflush(stdout);
}

static void print_json(const loader_plan *p) {
    json j = {.file = stdout};
    char text[512];
    json_open(&j, NULL, '{', 0);
    json_string(&j, "comet", comet_version_string());
    json_string(&j, "machine", machine_text(text, sizeof text));
    json_string(&j, "data", p->data_name);
    json_integer(&j, "batch", p->options.batch);
    json_integer(&j, "height", p->options.height);
    json_integer(&j, "width", p->options.width);
    json_integer(&j, "channels", p->options.channels);
    json_integer(&j, "batches", p->batches);
    json_open(&j, "results", '[', 0);
    for (int i = 0; i < p->count; i++) {
        json_open(&j, NULL, '{', 1);
        json_integer(&j, "threads", p->results[i].threads);
        json_number(&j, "images_per_second", p->results[i].images_per_second);
        json_number(&j, "ms_per_batch", p->results[i].ms);
        json_number(&j, "first_batch_ms", p->results[i].first_ms);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
}

static int run_plan(loader_plan *p) {
    int answer = DONE;
    stop_on_signals();
    if (!p->json)
        printf("%s, %d x %d, batches of %d\n\n%7s %10s %12s %12s\n", p->data_name, p->options.height, p->options.width,
               p->options.batch, "threads", "images/s", "ms a batch", "ms, first");
    for (int i = 0; i < p->count && answer == DONE && !stop_asked; i++) {
        answer = measure_one(p, i);
        if (answer == DONE && !p->json && !stop_asked)
            print_row(&p->results[i]);
    }
    if (answer == DONE && p->json && !stop_asked)
        print_json(p);
    return stop_asked ? stop_code() : answer;
}

int bench_loader(int argc, char **argv) {
    request r = {0};
    loader_plan *p = calloc(1, sizeof *p);
    int answer = p ? read_request(&r, argc, argv) : fail_memory();
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE) {
        answer = make_plan(&r, p);
        answer = answer == DONE ? run_plan(p) : answer;
    }
    if (p)
        comet_dataset_free(p->data);
    free(p);
    text_array_free(&r.operands);
    return answer;
}
