/* SPDX-License-Identifier: Apache-2.0 */
/* comet predict: what images show. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/csv.h"
#include "cmd/common/json.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/text.h"
#include "cmd/common/workers.h"
#include "cmd/predict/classify.h"
#include "cmd/predict/image_files.h"
#include "cmd/train/train_options.h"

static const char help[] =
    "Usage: comet predict --from PATH [OPTION...] FILE|FOLDER...\n"
    "\n"
    "Says what a trained network sees in images (JPEG, PNG): for each the likeliest classes and their probabilities.\n"
    "Of a folder all images below it are taken.\n"
    "\n" NETWORK_HELP "  --top K               so many classes (1)\n" NETWORK_HELP_MACHINE "\n"
    "The answer:\n"
    "  --json                one object\n"
    "  --csv                 a row for each image and class\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Exit codes: 0 done, 1 failed, or a file cannot be used (the others are shown), 2 used wrongly.\n"
    "\n"
    "Examples:\n"
    "  comet predict --from comet-resnet18-pets photo.jpg\n"
    "  comet predict --from comet-resnet18-pets --top 3 --csv photos/ > photos.csv\n"
    "  comet predict --from resnet50.safetensors --model resnet50 --top 5 photo.jpg\n";

typedef struct request {
    network_texts network;
    const char *top;
    int json, csv, quiet, help;
    text_array operands;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {NETWORK_OPTIONS(r->network),         {"--top", OPTION_TEXT, &r->top},
                            {"--json", OPTION_FLAG, &r->json},   {"--csv", OPTION_FLAG, &r->csv},
                            {"--quiet", OPTION_FLAG, &r->quiet}, {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},       {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer != DONE || r->help)
        return answer;
    if (r->json && r->csv)
        return misuse("--json and --csv exclude each other");
    return r->operands.count ? DONE : misuse("no image given: a file or a folder of them");
}

/* ---- images ---- */

typedef struct sight {
    const request *request;
    const network *network;
    const image_files *files;
    int top, *best;
    json json;
    csv csv;
} sight;

static void put_json(sight *s, const char *file, const double *probabilities) {
    char number[NETWORK_NAME];
    json_open(&s->json, NULL, '{', 0);
    json_string(&s->json, "image", file);
    json_open(&s->json, "classes", '[', 0);
    for (int i = 0; i < s->top; i++) {
        json_open(&s->json, NULL, '{', 1);
        json_string(&s->json, "name", network_label(s->network, s->best[i], number));
        json_integer(&s->json, "class", s->best[i]);
        json_number(&s->json, "probability", probabilities[s->best[i]]);
        json_close(&s->json, '}');
    }
    json_close(&s->json, ']');
    json_close(&s->json, '}');
}

static void put_rows(sight *s, const char *file, const double *probabilities) {
    char number[NETWORK_NAME];
    for (int i = 0; i < s->top; i++) {
        csv_text(&s->csv, file);
        csv_integer(&s->csv, i + 1);
        csv_text(&s->csv, network_label(s->network, s->best[i], number));
        csv_number(&s->csv, probabilities[s->best[i]]);
        csv_end(&s->csv);
    }
}

/* One class behind the file's name; more below it. */
static void put_text(sight *s, const char *file, const double *probabilities) {
    char number[NETWORK_NAME], name[256], path[1024];
    printf("%s%s", text_printable(file, path, sizeof path), s->top > 1 ? "\n" : ": ");
    for (int i = 0; i < s->top; i++) {
        const double percent = 100 * probabilities[s->best[i]];
        text_printable(network_label(s->network, s->best[i], number), name, sizeof name);
        if (s->top > 1)
            printf("  %5.1f %%  %s\n", percent, name);
        else
            printf("%s, %.1f %%\n", name, percent);
    }
}

static void see(void *context, const classified *image) {
    sight *s = context;
    const char *file = s->files->paths[image->sample];
    classify_best(image->probabilities, s->network->about.classes, s->top, s->best);
    if (s->request->json)
        put_json(s, file, image->probabilities);
    else if (s->request->csv)
        put_rows(s, file, image->probabilities);
    else
        put_text(s, file, image->probabilities);
}

static void begin(sight *s) {
    s->json = (json){.file = stdout};
    s->csv = (csv){.file = stdout};
    if (s->request->csv)
        csv_head(&s->csv, "image,rank,class,probability");
    if (!s->request->json)
        return;
    json_open(&s->json, NULL, '{', 0);
    json_string(&s->json, "weights", s->network->path);
    json_string(&s->json, "model", s->network->about.model);
    json_open(&s->json, "images", '[', 0);
}

static void end(sight *s, int64_t broken) {
    if (!s->request->json)
        return;
    json_close(&s->json, ']');
    json_integer(&s->json, "left_out", broken);
    json_close(&s->json, '}');
}

static int show(const request *r, network *n, const image_files *files, const comet_dataset *data, int top) {
    sight s = {.request = r, .network = n, .files = files, .top = top < n->about.classes ? top : n->about.classes};
    const classify_options options = {.data = data, .quiet = r->quiet || files->count == 1, .see = see, .context = &s};
    int64_t broken = 0;
    s.best = calloc((size_t)s.top, sizeof *s.best);
    if (!s.best)
        return fail_memory();
    begin(&s);
    const int answer = classify(n, &options, &broken);
    end(&s, broken);
    free(s.best);
    if (answer == DONE && broken)
        return fail("%lld of %lld files cannot be used", (long long)broken, (long long)files->count);
    return answer;
}

static int predict(const request *r, network *n, image_files *files, comet_dataset **data) {
    int64_t top = 1;
    comet_message message;
    int answer = r->top ? parse_integer("--top", r->top, 1, 1 << 20, &top) : DONE;
    if (answer == DONE)
        answer = image_files_find(files, &r->operands);
    if (answer == DONE)
        answer = network_open(&r->network, n);
    if (answer != DONE)
        return answer;
    comet_status status = comet_dataset_open_files(files->paths, files->count, n->about.centre, NULL, data, &message);
    return status == COMET_OK ? show(r, n, files, *data, (int)top) : train_fail(status, &message);
}

int command_predict(int argc, char **argv) {
    request r = {0};
    network n = {.predictor = NULL};
    image_files files = {.count = 0};
    comet_dataset *data = NULL;
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE) {
        openmp_wait_passively(argv - 1); /* main's, in which the command's name is the second */
        answer = predict(&r, &n, &files, &data);
    }
    comet_dataset_free(data);
    image_files_free(&files);
    network_free(&n);
    text_array_free(&r.operands);
    return answer;
}
