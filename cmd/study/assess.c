/* SPDX-License-Identifier: Apache-2.0 */
/* comet assess: what the theory says of gradient errors, and what they are. */
#include "cmd/study/assess.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/progress.h"
#include "cmd/common/stop.h"
#include "cmd/study/reach.h"
#include "cmd/study/study.h"
#include "cmd/train/train_progress.h"

static const char help[] =
    "Usage: comet assess --model NAME [--data SET] [OPTION...]\n"
    "\n"
    "An activation that is stored with an error bound makes an error in gradients. The controllers predict how large "
    "(its\n"
    "standard deviation, sigma) from statistics of a step, and choose bounds by that. This command measures it: "
    "backward "
    "is\n"
    "run with activations as they are and compressed, on the same batch with the same dropout, one tensor at a time "
    "and "
    "all\n"
    "together, and the gradients are compared.\n"
    "\n"
    "  --model NAME          as for 'comet train', and so are --data, --image, --channels, --batch, --seed, "
    "--threads,\n"
    "                        --forms, --no-augment and the options of the optimiser\n"
    "  --weights FILE        of a .safetensors file or a checkpoint; --checkpoint DIR takes the last one there\n"
    "  --steps N             updates to train before (0)\n"
    "  --error-rel LIST      bounds, in units of the rms of what is stored; 'control': those that the controller has "
    "set\n"
    "                        after --steps (0.1,0.3)\n"
    "  --control NAME        that controller, which also sets the bounds of --steps (comet)\n"
    "  --layers PATTERN      only tensors that these layers made: bn1, 'layer1.*'; the others stay as they are\n"
    "  --batches N           to average over (2); gradients with few values, such as batch norms' scales, need more\n"
    "  --factors N           so many other batches before, at each bound, from which factors are measured as in a "
    "training\n"
    "                        (0); without, those of the training are shown, for 'control'\n"
    "  --reach SIGMA         how far errors reach, instead: normal ones of that deviation, in parts of the rms, are "
    "put\n"
    "                        into the gradient of one layer's output after the other, and each tensor is compressed\n"
    "                        alone (--error-rel, one bound: 0.3); what becomes of the error in the layers before, on\n"
    "                        its way to the input\n"
    "  --json                one JSON object on standard output instead of tables\n"
    "  --report FILE.html    predicted against measured, and how errors are distributed, as pictures\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Each use of a tensor reaches a gradient: conv_weights, linear_weights (the layer that reads it), norm_scale (a "
    "batch\n"
    "norm's scale), norm_input and curve_input (through the gradient of a batch norm's or a SiLU's input: the weights "
    "right\n"
    "before), channel_scale (squeeze-excite's last weights). docs/theory.md derives each.\n"
    "\n"
    "Columns: sigma predicted and measured; ratio: one over the other, 1 is right, below 1 the theory is too hopeful; "
    "joint:\n"
    "the same with all tensors compressed; error: measured sigma in parts of the gradient's rms; <1s: how many errors "
    "are\n"
    "within one sigma, 68.3 % of a normal distribution; kurtosis: in excess of a normal one, 0 if it is one. Of "
    "tensors:\n"
    "variance over bound^2 / 3, 1 if errors are uniform; distance: the greatest difference of distribution functions\n"
    "(Kolmogorov-Smirnov) from a uniform one. Where factors were measured: the factor, and both ratios with it.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 used wrongly; stopped by Ctrl-C 130, by SIGTERM 143, by SIGHUP 129.\n"
    "\n"
    "Each tensor, bound and batch takes a forward and a backward. Streams without loss take about as much memory as "
    "'comet\n"
    "train --codec none'.\n"
    "\n"
    "Examples:\n"
    "  comet assess --model resnet8 --report assess.html\n"
    "  comet assess --model resnet18 --data folder:pets --image 96 --batch 16 --steps 100 --error-rel 0.3,control\n"
    "  comet assess --model resnet50 --data folder:pets --checkpoint run1 --batch 8 --layers 'layer1.*' --json\n"
    "  comet assess --model resnet18 --data cifar10:data --steps 200 --reach 0.1 --report reach.html\n";

typedef struct request {
    study_options study;
    const char *checkpoint, *layers, *batches, *factors, *reach;
    const char *bounds; /* --error-rel, which is not the trainer's here */
    char weights[4096]; /* a checkpoint's file */
} request;

/* ---- options ---- */

static int read_request(request *r, int argc, char **argv) {
    const option own[] = {{"--checkpoint", OPTION_TEXT, &r->checkpoint},
                          {"--layers", OPTION_TEXT, &r->layers},
                          {"--batches", OPTION_TEXT, &r->batches},
                          {"--factors", OPTION_TEXT, &r->factors},
                          {"--reach", OPTION_TEXT, &r->reach}};
    int answer = study_parse(&r->study, own, sizeof own / sizeof *own, argc, argv);
    if (answer == DONE && r->study.texts.codec)
        return misuse("--codec is for 'comet train'; here tensors are held by eb, but for those that --forms names");
    if (answer == DONE && r->study.texts.memory)
        return misuse("--memory is for 'comet train': what is compared must be held without loss");
    if (answer == DONE && r->study.texts.epochs)
        return misuse("--epochs is for 'comet train'; give --steps");
    if (answer == DONE && r->checkpoint && r->study.texts.weights)
        return misuse("--checkpoint and --weights exclude each other");
    if (answer == DONE && r->reach && r->factors)
        return misuse("--factors are of predictions, which --reach has none of");
    r->bounds = r->study.texts.error_rel ? r->study.texts.error_rel : r->reach ? "0.3" : "0.1,0.3";
    r->study.texts.error_rel = NULL;
    if (r->study.texts.steps && strcmp(r->study.texts.steps, "0") == 0)
        r->study.texts.steps = NULL;
    return answer;
}

/* A folder of checkpoints stands for the last one in it. */
static int find_checkpoint(request *r) {
    struct stat status;
    if (!r->checkpoint)
        return DONE;
    r->study.texts.weights = r->checkpoint;
    if (stat(r->checkpoint, &status) != 0 || !S_ISDIR(status.st_mode))
        return DONE; /* reading it says what is wrong */
    if (snprintf(r->weights, sizeof r->weights, "%s/last.safetensors", r->checkpoint) >= (int)sizeof r->weights)
        return misuse("--checkpoint: the folder's name is too long");
    r->study.texts.weights = r->weights;
    return DONE;
}

static int read_bounds(const request *r, assess_case *c, comet_assess_options *o) {
    int answer = parse_list("--error-rel", r->bounds, &c->bounds);
    if (answer == DONE && c->bounds.count > COMET_ASSESS_MOST_BOUNDS)
        return misuse("--error-rel: at most %d bounds at a time", COMET_ASSESS_MOST_BOUNDS);
    o->bounds = c->bounds.count;
    for (int i = 0; i < c->bounds.count && answer == DONE; i++) {
        const char *text = c->bounds.items[i];
        o->error_rel[i] = -1;
        if (strcmp(text, "control") == 0)
            continue;
        answer = parse_number("--error-rel", text, &o->error_rel[i]);
        if (answer == DONE && !(o->error_rel[i] > 0 && o->error_rel[i] <= 100))
            return misuse("--error-rel: %s is not a part of the rms above 0 (0.1 is usual), nor 'control'", text);
    }
    return answer;
}

/* One bound, a number: those of the controller differ from tensor to tensor. */
static int read_reach(const request *r, const assess_case *c, const comet_assess_options *o, double *sigma) {
    int answer = parse_number("--reach", r->reach, sigma);
    if (answer == DONE && !(*sigma > 0 && *sigma <= 100))
        return misuse("--reach: %s is not a part of the rms above 0 (0.1 is usual)", r->reach);
    if (answer == DONE && (c->bounds.count != 1 || o->error_rel[0] < 0))
        return misuse("--reach: --error-rel must be one number, such as 0.3");
    return answer;
}

/* ---- measuring ---- */

typedef struct measurement {
    const request *request;
    assess_case shown;
    comet_assess_options options;
    double reach; /* 0: not asked for */
    progress progress;
    train_progress training;
    memory_mark mark;
    int answer; /* of showing */
} measurement;

static void observe(void *context, const comet_run_event *event) {
    train_progress_event(&((measurement *)context)->training, event);
}

static void step(void *context, const char *what) {
    progress_step(&((measurement *)context)->progress, what);
}

static void show(measurement *s) {
    const char *report = s->request->study.report;
    s->answer = s->request->study.json ? assess_print_json(&s->shown) : assess_print(&s->shown);
    if (s->answer == DONE && report) {
        s->answer = assess_report(report, &s->shown);
        if (s->answer != DONE)
            note("the results are on standard output");
    }
    if (s->answer == DONE && report && !s->request->study.json)
        printf("\nReport: %s\n", report);
}

static comet_status measure(measurement *s, comet_assess *a, comet_loader *batches, comet_message *message) {
    comet_status status = COMET_OK;
    const int64_t passes = comet_assess_passes(a) * s->shown.batches + comet_assess_learn_passes(a) * s->shown.factors;
    progress_start(&s->progress, (size_t)passes, s->request->study.quiet);
    for (int i = 0; i < s->shown.factors + s->shown.batches && status == COMET_OK; i++) {
        comet_batch batch;
        status = comet_loader_next(batches, &batch, message);
        if (status == COMET_OK)
            status = (i < s->shown.factors ? comet_assess_learn : comet_assess_batch)(a, batch.pixels, batch.labels,
                                                                                      message);
    }
    progress_clear(&s->progress);
    return status;
}

/* How far errors reach, instead. */
static comet_status look_how_far(measurement *s, comet_trainer *trainer, comet_loader *batches,
                                 comet_message *message) {
    const comet_reach_options options = {.sigma = s->reach,
                                         .error_rel = s->options.error_rel[0],
                                         .layers = s->options.layers,
                                         .seed = s->shown.run->trainer.seed,
                                         .stop = s->options.stop,
                                         .progress = step,
                                         .context = s};
    comet_reach *r = NULL;
    comet_batch batch;
    comet_status status = comet_reach_new(trainer, &options, NULL, &r, message);
    if (status == COMET_OK)
        progress_start(&s->progress, (size_t)(comet_reach_passes(r) * s->shown.batches), s->request->study.quiet);
    for (int i = 0; i < s->shown.batches && status == COMET_OK; i++) {
        status = comet_loader_next(batches, &batch, message);
        if (status == COMET_OK)
            status = comet_reach_batch(r, batch.pixels, batch.labels, message);
    }
    progress_clear(&s->progress);
    const reach_case shown = {&s->shown, r, s->reach};
    if (status == COMET_OK)
        s->answer = reach_show(&shown, s->request->study.json, s->request->study.report);
    comet_reach_free(r);
    return status;
}

/* While the network is there. */
static comet_status look(void *context, comet_trainer *trainer, comet_loader *batches, comet_message *message) {
    measurement *s = context;
    comet_assess *a = NULL;
    train_progress_clear(&s->training);
    s->shown.steps = *comet_trainer_updates(trainer);
    if (s->reach > 0)
        return look_how_far(s, trainer, batches, message);
    comet_status status = comet_assess_new(trainer, &s->options, NULL, &a, message);
    if (status == COMET_OK)
        status = measure(s, a, batches, message);
    s->shown.assess = a;
    if (status == COMET_OK)
        show(s);
    comet_assess_free(a);
    return status;
}

static void set_size(assess_case *c, const comet_trainer_options *o) {
    c->height = o->height;
    c->width = o->width;
    c->channels = o->channels;
}

static int assess(measurement *s, comet_run_options *run) {
    comet_run_result result;
    comet_trainer_options trainer;
    size_t loader_bytes[COMET_SPLITS];
    comet_message message = {.text = ""};
    comet_status status = comet_run_trainer_options(run, &trainer, loader_bytes, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    set_size(&s->shown, &trainer);
    s->shown.run = run;
    run->observe = observe;
    run->study = look;
    run->context = s;
    run->stop = s->options.stop = &stop_asked;
    s->options.progress = step;
    s->options.context = s;
    memory_begin(&s->mark, &run->trainer.place);
    train_progress_begin(&s->training, "", &s->mark, s->request->study.quiet);
    stop_on_signals();
    status = comet_run(run, NULL, &result, &message);
    train_progress_clear(&s->training);
    if (status == COMET_OK && (!result.stopped || result.step >= run->steps))
        return s->answer;
    if (!stop_asked)
        return train_fail(status, &message);
    if (status == COMET_OK)
        note("stopped after %lld of %lld updates", (long long)result.step, (long long)run->steps);
    else
        note("%s", message.text);
    return stop_code();
}

static int read_study(request *r, measurement *s, comet_run_options *run) {
    int64_t batches = 2, factors = 0;
    int answer = find_checkpoint(r);
    if (answer == DONE)
        answer = train_options_read(&r->study.texts, run);
    if (answer == DONE)
        answer = read_bounds(r, &s->shown, &s->options);
    if (answer == DONE && r->reach)
        answer = read_reach(r, &s->shown, &s->options, &s->reach);
    if (answer == DONE && r->batches)
        answer = parse_integer("--batches", r->batches, 1, 1 << 20, &batches);
    if (answer == DONE && r->factors)
        answer = parse_integer("--factors", r->factors, 0, 1 << 20, &factors);
    run->epochs = 0;
    s->request = r;
    s->shown.batches = (int)batches;
    s->shown.factors = (int)factors;
    s->options.layers = r->layers;
    return answer;
}

static int run_request(void *context) {
    request *r = context;
    comet_run_options run = {0};
    comet_dataset *data = NULL;
    measurement *s = calloc(1, sizeof *s);
    int answer = s ? read_study(r, s, &run) : fail_memory();
    if (answer == DONE)
        answer = train_options_data(&r->study.texts, &run, &data);
    if (answer == DONE)
        answer = study_try_report(&r->study);
    if (answer == DONE)
        answer = assess(s, &run);
    comet_dataset_free(data);
    free(s);
    return answer;
}

int command_assess(int argc, char **argv) {
    static const study_command command = {help, NULL, run_request, NULL};
    request r = {0};
    return study_carry_out(&command, &r.study, &r, read_request(&r, argc, argv), argv);
}
