/* SPDX-License-Identifier: Apache-2.0 */
/* comet train: a network on a data set, its saved activations held compressed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/stop.h"
#include "cmd/common/text.h"
#include "cmd/common/workers.h"
#include "cmd/files/file.h"
#include "cmd/train/forms_idle.h"
#include "cmd/train/record.h"
#include "cmd/train/train_csv.h"
#include "cmd/train/train_log.h"
#include "cmd/train/train_options.h"
#include "cmd/train/train_print.h"
#include "cmd/train/train_progress.h"
#include "cmd/train/train_report.h"

static const char help_begin[] =
    "Usage: comet train --model NAME [--data SET] [OPTION...]\n"
    "\n"
    "Trains a convolutional network with the activations that its backward pass needs held compressed.\n"
    "\n"
    "  --codec FORM          eb, eb:0.1 (error-bounded), none, pool:K, group:B, dct, zvc, offload, recompute,\n"
    "                        eb+offload (eb)\n"
    "\n";

static const char help_end[] =
    "\n"
    "What it leaves behind:\n"
    "  --checkpoint DIR      a checkpoint each epoch, at the end and on Ctrl-C, and the weights of the best "
    "evaluation;\n"
    "                        none: no checkpoints\n"
    "                        (comet-MODEL-DATA, in the current folder; DATA is the last part of folder:DIR)\n"
    "  --checkpoint-every N  every N updates instead of each epoch\n"
    "  --resume              go on from the checkpoint, bit by bit as if it had not been interrupted; an error if\n"
    "                        there is none. --resume=auto begins anew then\n"
    "  --save-weights FILE   the weights alone, .safetensors with torchvision's names\n"
    "  --json-log FILE       a line of JSON for each step and evaluation\n"
    "  --csv-log FILE        a row for each step and evaluation, for spreadsheets\n"
    "  --report FILE.html    curves and tables\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "The peak that is shown is the most that was resident beyond what was before training began, as the operating\n"
    "system counts it, without the code of libraries; on a GPU the most that its driver said was taken, without the\n"
    "context. Ctrl-C finishes the step, saves and ends; twice ends at once.\n"
    "SIGTERM does the same; so does SIGHUP, unless it is ignored (nohup), and a second one changes nothing.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 used wrongly; stopped by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.\n"
    "\n"
    "Examples:\n"
    "  comet train --model resnet8 --epochs 3\n"
    "  comet train --model resnet18 --data cifar10:cifar-10-batches-bin --codec eb --memory 1GiB\n"
    "  comet train --model resnet50 --data folder:pets --weights resnet50.safetensors --lr 0.01 --batch 16\n"
    "  comet train --model resnet18 --data cifar10:data --checkpoint run1 --resume\n"
    "  comet predict --from run1 photo.jpg                              what it has learned\n"
    "  comet plan --model resnet50 --batch 64 --image 224 --codec eb    what that would take, without training\n";

typedef struct request {
    train_texts texts;
    const char *checkpoint, *every, *save_weights, *log, *csv, *report, *resume;
    int quiet, help;
    text_array operands;
} request;

/* What the observer of the run needs. */
typedef struct watch {
    const request *request;
    const comet_run_options *run;
    record record;
    train_progress progress;
    log_file log, csv;
} watch;

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--checkpoint", OPTION_TEXT, &r->checkpoint},
                          {"--checkpoint-every", OPTION_TEXT, &r->every},
                          {"--save-weights", OPTION_TEXT, &r->save_weights},
                          {"--json-log", OPTION_TEXT, &r->log},
                          {"--csv-log", OPTION_TEXT, &r->csv},
                          {"--report", OPTION_TEXT, &r->report},
                          {"--resume", OPTION_MAYBE, &r->resume},
                          {"--quiet", OPTION_FLAG, &r->quiet},
                          {"--help", OPTION_FLAG, &r->help},
                          {"-h", OPTION_FLAG, &r->help},
                          {NULL, OPTION_FLAG, NULL}};
    return train_options_parse(&r->texts, own, sizeof own / sizeof *own, argc, argv, &r->operands);
}

/* One would take the place of the other. */
static int check_same(const request *r) {
    const char *const names[] = {"--save-weights", "--json-log", "--csv-log", "--report"};
    const char *const paths[] = {r->save_weights, r->log, r->csv, r->report};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            if (paths[i] && paths[k] && strcmp(paths[i], paths[k]) == 0)
                return misuse("%s and %s name the same file", names[k], names[i]);
    return DONE;
}

/* Names of our own. */
typedef struct own_names {
    char data[TRAIN_DATA_NAME], place[TRAIN_DATA_PLACE], folder[2 * TRAIN_DATA_NAME + 64];
} own_names;

static int set_outputs(const request *r, comet_run_options *run, own_names *n) {
    int wanted = !r->checkpoint || strcmp(r->checkpoint, "none") != 0;
    if (!wanted && (r->resume || r->every))
        return misuse("%s needs a folder of checkpoints", r->resume ? "--resume" : "--checkpoint-every");
    if (r->every && parse_integer("--checkpoint-every", r->every, 1, (int64_t)1 << 40, &run->checkpoint_every) != DONE)
        return MISUSED;
    train_data_name(&r->texts, run, n->data);
    train_data_place(&r->texts, run, n->place);
    snprintf(n->folder, sizeof n->folder, "comet-%s-%s", run->trainer.model, n->data);
    run->folder = !wanted ? NULL : r->checkpoint ? r->checkpoint : n->folder;
    run->data_name = n->place;
    run->weights_out = r->save_weights;
    run->stop = &stop_asked;
    return train_resume_read(r->resume, &run->resume) == DONE ? check_same(r) : MISUSED;
}

/* ---- while it runs ---- */

/*
 * What cannot be written is better known now than at the end. The folder of checkpoints is there: outputs may be in it.
 */
static comet_status prepare(void *context, comet_message *message) {
    watch *w = context;
    const request *r = w->request;
    comet_status status = output_try("--save-weights", r->save_weights, message);
    if (status == COMET_OK)
        status = output_try("--report", r->report, message);
    if (status == COMET_OK)
        status = log_file_open(&w->csv, "--csv-log", r->csv, r->resume != NULL, message);
    return status == COMET_OK ? log_file_open(&w->log, "--json-log", r->log, r->resume != NULL, message) : status;
}

static void observe(void *context, const comet_run_event *event) {
    watch *w = context;
    record_event(&w->record, event);
    train_progress_event(&w->progress, event);
    train_log_event(&w->log, w->run, event);
    train_csv_event(&w->csv, event);
    if (event->kind == COMET_RUN_EVALUATED) {
        train_progress_clear(&w->progress);
        train_print_evaluation(event);
    } else if (event->kind == COMET_RUN_STARTED && !w->progress.silent)
        train_print_start(w->run, event);
}

/* ---- at the end ---- */

/* What there is of a training whose report there is not. */
static void say_where(const comet_run_options *run) {
    if (run->folder)
        note("the training itself is in its checkpoint: '%.400s'", run->folder);
    else if (run->weights_out)
        note("what was learned is in '%.400s'", run->weights_out);
    else
        note("the figures above are all that is left of the training");
}

static int write_report(const request *r, const watch *w) {
    char title[128], subtitle[160];
    const comet_trainer_options *t = &w->run->trainer;
    if (!r->report)
        return DONE;
    snprintf(title, sizeof title, "%s on %s", t->model, comet_dataset_get_info(w->run->data)->name);
    snprintf(subtitle, sizeof subtitle, "%.60s%s%.40s, batch %d, %lld steps", t->codec, t->control ? " under " : "",
             t->control ? t->control : "", t->batch, (long long)w->record.figures.result.step);
    int answer = train_report_write(r->report, title, subtitle, NULL, w->run, &w->record, 1);
    if (answer != DONE)
        say_where(w->run);
    return answer;
}

static void tell_idle_forms(const comet_run_options *run) {
    comet_trainer_options options;
    size_t unused[COMET_SPLITS];
    comet_message unread;
    if (run->trainer.forms && comet_run_trainer_options(run, &options, unused, &unread) == COMET_OK)
        forms_tell_idle(&options, forms_find_idle(&options));
}

static int train(const request *r, comet_run_options *run, watch *w) {
    comet_run_result result;
    comet_message message = {.text = ""};
    w->request = r;
    w->run = run;
    run->prepare = prepare;
    run->observe = observe;
    run->context = w;
    record_begin(&w->record, run->trainer.codec, run);
    train_progress_begin(&w->progress, "", &w->record.mark, r->quiet);
    tell_idle_forms(run);
    stop_on_signals();
    comet_status status = comet_run(run, NULL, &result, &message);
    record_end(&w->record, status, &result, &message);
    train_progress_clear(&w->progress);
    int logged = train_log_close(&w->log, &w->record), listed = log_file_close(&w->csv);
    if (status != COMET_OK)
        return train_fail(status, &message);
    train_print_summary(run, &w->record);
    int answer = write_report(r, w);
    if (answer == DONE)
        answer = logged == DONE ? listed : logged;
    return answer == DONE && result.stopped ? stop_code() : answer;
}

static int run_request(const request *r) {
    comet_run_options run = {0};
    comet_dataset *data = NULL;
    own_names names;
    watch *w = calloc(1, sizeof *w);
    int answer = w ? train_options_read(&r->texts, &run) : fail_memory();
    if (answer == DONE)
        answer = train_options_data(&r->texts, &run, &data);
    if (answer == DONE)
        answer = set_outputs(r, &run, &names);
    if (answer == DONE) {
        answer = train(r, &run, w);
        record_free(&w->record);
    }
    comet_dataset_free(data);
    free(w);
    return answer;
}

int command_train(int argc, char **argv) {
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
