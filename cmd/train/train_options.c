/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a run from their texts. */
#include "cmd/train/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/nearest.h"
#include "cmd/common/command.h"
#include "cmd/common/config.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "study/inject.h"
#include "train/models/model.h"
#include "train/trainer/control_text.h"

const char train_options_help[] =
    "What to train:\n"
    "  --model NAME          alexnet, vgg16, vgg16_bn, resnet18, resnet34, resnet50, efficientnet_b0;\n"
    "                        for small images resnet8, resnet20, resnet18-cifar\n"
    "  --data SET            fashion-mnist[:DIR], cifar10:DIR, folder:DIR (a folder for each class; in train/\n"
    "                        and val/ or test/, or in DIR itself), generated[:N] (fashion-mnist)\n"
    "  --image N             images are resized to N x N (the data's size; the model's own for folders)\n"
    "  --channels 1|3        grey or RGB (what the data has)\n"
    "  --no-augment          images as they are: no crops, no flips\n"
    "  --weights FILE        first values from a .safetensors file or a checkpoint; the number of classes may "
    "differ\n"
    "\n"
    "How activations are held until the backward pass:\n"
    "  --control NAME        who sets the bounds of eb where none is given: comet, comet:mean, comet:paper, acgc,\n"
    "                        budget, fixed:F; with settings behind colons, as comet:warmup=100 (comet)\n"
    "  --calibration C       of comet, comet:mean and budget: a gradient's error may be C times its momentum (1)\n"
    "  --error-rel F         a bound for eb, in units of the rms of what is stored, and no controller\n"
    "  --forms RULES         another form for some layers: 'layer1.*=eb:0.1,bn1=none', the last that fits wins\n"
    "  --inject-error RULES  errors on purpose: LAYER:SIGMA[:uniform|normal][:gradient|activation], SIGMA in parts "
    "of\n"
    "                        the rms: 'layer1.*:0.3,conv1:0.1:uniform:activation'\n"
    "  --memory SIZE         the most that weights, gradients, optimiser, activations, workspaces, oneDNN, data "
    "may\n"
    "                        take: 2GiB, 500MB; what does not fit is spilled, then recomputed\n"
    "  --spill-dir DIR       where the file for that goes ($TMPDIR or /var/tmp; none: no file)\n"
    "\n"
    "How long, and in what steps:\n"
    "  --epochs N            (5)\n"
    "  --steps N             updates in all, instead of epochs\n"
    "  --batch B             images of a step (128; folders 32)\n"
    "  --accumulate N        batches for one update (1)\n"
    "  --optimiser sgd|adamw (sgd); --optimizer is the same\n"
    "  --freeze PATTERNS     layers whose weights stay as they are: 'conv1,bn1,layer1.*'; '*,!fc': all but fc\n"
    "  --lr F                the highest learning rate (sgd 0.1 for a batch of 128, folders 256, and in "
    "proportion; a\n"
    "                        tenth for networks without batch norm or with --weights; adamw 0.001)\n"
    "  --schedule constant|step|cosine|one-cycle\n"
    "                        (one-cycle)\n"
    "  --warmup EPOCHS       of a rate that grows to --lr (0)\n"
    "  --momentum F          (0.9)    --nesterov\n"
    "  --weight-decay F      (sgd 5e-4, folders 1e-4; adamw 0.01)\n"
    "  --label-smoothing F   (0)\n"
    "  --eval-every N        epochs between evaluations; 0: at the end only (1)\n"
    "  --patience N          ends after N evaluations without a better accuracy than before (never)\n"
    "  --eval-images N       images of an evaluation, of all classes (all)\n"
    "  --config FILE         options from a file, a line each: epochs = 3; those given here come first\n"
    "  --seed S              of first values, order, augmentation and dropout (1)\n"
    "  --threads N           0: one for each core (0)\n" PLACE_HELP;

static void fill_table(train_texts *t, option *table) {
    const option entries[TRAIN_OPTIONS] = {{"--model", OPTION_TEXT, &t->model},
                                           {"--data", OPTION_TEXT, &t->data},
                                           {"--codec", OPTION_TEXT, &t->codec},
                                           {"--error-rel", OPTION_TEXT, &t->error_rel},
                                           {"--forms", OPTION_TEXT, &t->forms},
                                           {"--control", OPTION_TEXT, &t->control},
                                           {"--calibration", OPTION_TEXT, &t->calibration},
                                           {"--inject-error", OPTION_TEXT, &t->inject},
                                           {"--memory", OPTION_TEXT, &t->memory},
                                           {"--spill-dir", OPTION_TEXT, &t->spill},
                                           {"--batch", OPTION_TEXT, &t->batch},
                                           {"--epochs", OPTION_TEXT, &t->epochs},
                                           {"--steps", OPTION_TEXT, &t->steps},
                                           {"--seed", OPTION_TEXT, &t->seed},
                                           {"--image", OPTION_TEXT, &t->image},
                                           {"--channels", OPTION_TEXT, &t->channels},
                                           {"--lr", OPTION_TEXT, &t->rate},
                                           {"--optimiser", OPTION_TEXT, &t->optimiser},
                                           {"--optimizer", OPTION_TEXT, &t->optimiser},
                                           {"--freeze", OPTION_TEXT, &t->freeze},
                                           {"--patience", OPTION_TEXT, &t->patience},
                                           {"--config", OPTION_TEXT, &t->config},
                                           {"--momentum", OPTION_TEXT, &t->momentum},
                                           {"--weight-decay", OPTION_TEXT, &t->decay},
                                           {"--schedule", OPTION_TEXT, &t->schedule},
                                           {"--warmup", OPTION_TEXT, &t->warmup},
                                           {"--accumulate", OPTION_TEXT, &t->accumulate},
                                           {"--label-smoothing", OPTION_TEXT, &t->smoothing},
                                           {"--eval-every", OPTION_TEXT, &t->evaluate_every},
                                           {"--eval-images", OPTION_TEXT, &t->evaluate_most},
                                           {"--weights", OPTION_TEXT, &t->weights},
                                           {"--threads", OPTION_TEXT, &t->threads},
                                           PLACE_OPTIONS(t->place),
                                           {"--nesterov", OPTION_FLAG, &t->nesterov},
                                           {"--no-augment", OPTION_FLAG, &t->no_augment}};
    memcpy(table, entries, sizeof entries);
}

/* One of the two on the command line comes before the other one in the file. */
static int read_config(train_texts *t, const option *table) {
    const char *epochs = t->epochs, *steps = t->steps;
    const int answer = config_read(table, t->config);
    if (steps && !epochs)
        t->epochs = NULL;
    else if (epochs && !steps)
        t->steps = NULL;
    return answer;
}

int train_options_parse(train_texts *texts, const option *own, size_t own_count, int argc, char **argv,
                        text_array *operands) {
    option table[TRAIN_OPTIONS + MOST_OWN_OPTIONS];
    fill_table(texts, table);
    memcpy(table + TRAIN_OPTIONS, own, own_count * sizeof *own);
    int answer = options_parse(table, argc, argv, operands);
    if (answer == DONE && texts->config)
        answer = read_config(texts, table);
    if (answer == DONE && operands->count)
        return misuse("unexpected '%s'", operands->items[0]);
    return answer;
}

char *train_options_given(train_texts *texts, const option *own, size_t own_count, const char *const *without) {
    option table[TRAIN_OPTIONS + MOST_OWN_OPTIONS];
    fill_table(texts, table);
    memcpy(table + TRAIN_OPTIONS, own, own_count * sizeof *own);
    return given_text(table, without);
}

int train_fail(comet_status status, const comet_message *message) {
    return status == COMET_ERROR_ARGUMENT ? misuse("%s", message->text) : fail("%s", message->text);
}

/* ---- reading ---- */

/* *value is left alone where there is no text. */
static int read_count(const char *name, const char *text, int64_t low, int64_t high, int64_t *value) {
    return text ? parse_integer(name, text, low, high, value) : DONE;
}

static int read_int(const char *name, const char *text, int low, int high, int *value) {
    int64_t number = *value;
    int answer = read_count(name, text, low, high, &number);
    *value = (int)number;
    return answer;
}

static int read_number(const char *name, const char *text, double high, double *value) {
    if (!text)
        return DONE;
    int answer = parse_number(name, text, value);
    return answer == DONE && *value > high ? misuse("%s: %s is more than %g", name, text, high) : answer;
}

static int read_optimiser(const train_texts *t, comet_run_options *run) {
    const char *name = t->optimiser ? t->optimiser : "sgd";
    comet_message message;
    if (strcmp(name, "sgd") != 0 && strcmp(name, "adamw") != 0)
        return misuse("--optimiser: '%s' is not one of sgd, adamw", name);
    comet_optimiser *o = &run->trainer.optimiser;
    *o = comet_optimiser_default(name[0] == 's' ? COMET_SGD : COMET_ADAMW);
    o->nesterov = t->nesterov;
    if (t->momentum && o->kind == COMET_ADAMW)
        return misuse("--momentum is for --optimiser sgd");
    if (read_number("--momentum", t->momentum, 1, &o->momentum) != DONE ||
        read_number("--weight-decay", t->decay, 1e3, &o->weight_decay) != DONE)
        return MISUSED;
    comet_status status = comet_optimiser_check(o, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int read_schedule(const train_texts *t, comet_run_options *run) {
    comet_message message;
    comet_status status = comet_schedule_find(t->schedule ? t->schedule : "one-cycle", &run->schedule, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    if (read_number("--lr", t->rate, 1e6, &run->rate) != DONE)
        return MISUSED;
    if (t->rate && run->rate == 0)
        return misuse("--lr: a learning rate is above 0");
    return read_number("--warmup", t->warmup, 1e6, &run->warmup_epochs);
}

static int read_length(const train_texts *t, comet_run_options *run) {
    if (t->steps && t->epochs)
        return misuse("--steps and --epochs exclude each other");
    run->epochs = 5;
    run->evaluate_every = 1;
    int answer = read_int("--epochs", t->epochs, 1, 1000000, &run->epochs);
    if (answer == DONE)
        answer = read_count("--steps", t->steps, 1, (int64_t)1 << 40, &run->steps);
    if (answer == DONE)
        answer = read_int("--eval-every", t->evaluate_every, 0, 1000000, &run->evaluate_every);
    if (answer == DONE)
        answer = read_int("--patience", t->patience, 1, 1000000, &run->patience);
    if (answer == DONE && run->patience && run->evaluate_every == 0)
        answer = misuse("--patience needs evaluations on the way: --eval-every of 1 or more");
    if (answer == DONE)
        answer = read_count("--eval-images", t->evaluate_most, 1, (int64_t)1 << 40, &run->evaluate_most);
    return answer;
}

static int read_sizes(const train_texts *t, comet_run_options *run) {
    comet_trainer_options *o = &run->trainer;
    int threads = 0, answer = read_int("--batch", t->batch, 1, 1 << 20, &o->batch);
    if (answer == DONE)
        answer = read_int("--accumulate", t->accumulate, 1, 1 << 20, &o->accumulate);
    if (answer == DONE)
        answer = read_int("--image", t->image, 1, 4096, &o->height);
    if (answer == DONE)
        answer = read_int("--channels", t->channels, 1, 3, &o->channels);
    if (answer == DONE && o->channels == 2)
        answer = misuse("--channels: 1 (grey) or 3 (RGB)");
    if (answer == DONE)
        answer = read_int("--threads", t->threads, 0, 1024, &threads);
    o->width = o->height;
    o->threads = (unsigned)threads;
    return answer;
}

int train_resume_read(const char *text, comet_run_resume *resume) {
    *resume = !text ? COMET_RUN_ANEW : *text ? COMET_RUN_RESUME_AUTO : COMET_RUN_RESUME;
    if (text && *text && strcmp(text, "auto") != 0)
        return misuse("--resume=%.60s is neither --resume nor --resume=auto", text);
    return DONE;
}

static int read_place(const train_texts *t, comet_run_options *run) {
    return place_read(&t->place, &run->trainer.place);
}

static int read_seed(const train_texts *t, comet_run_options *run) {
    run->trainer.seed = 1;
    return t->seed ? parse_seed("--seed", t->seed, &run->trainer.seed) : DONE;
}

/* ---- forms and memory ---- */

static int names_offload(const char *text) {
    return text && strstr(text, "offload") != NULL;
}

const char *train_default_spill(void) {
    const char *temporary = getenv("TMPDIR");
    return temporary && *temporary ? temporary : "/var/tmp";
}

/* A file is made as soon as there is a directory for it: none where nothing can want it. */
static const char *spill_directory(const train_texts *t) {
    if (t->spill)
        return strcmp(t->spill, "none") == 0 ? NULL : t->spill;
    if (!t->memory && !names_offload(t->codec) && !names_offload(t->forms))
        return NULL;
    return train_default_spill();
}

static int read_forms(const train_texts *t, comet_run_options *run) {
    comet_trainer_options *o = &run->trainer;
    double smoothing = 0;
    o->forms = t->forms;
    o->hooks = comet_inject_hooks(t->inject);
    o->error_rel = 0.3;
    o->spill_directory = spill_directory(t);
    int answer = read_number("--error-rel", t->error_rel, 1e6, &o->error_rel);
    if (answer == DONE && t->memory)
        answer = parse_bytes("--memory", t->memory, &o->memory_bytes);
    if (answer == DONE)
        answer = read_number("--label-smoothing", t->smoothing, 1, &smoothing);
    o->smoothing = (float)smoothing;
    return answer == DONE ? train_control_read(t, t->codec ? t->codec : "eb", 0, o) : answer;
}

static int read_model(const train_texts *t, comet_run_options *run) {
    const comet_model *model;
    comet_message message;
    if (!t->model)
        return misuse("no --model given");
    comet_status status = comet_model_find(t->model, &model, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    run->trainer.model = model->name;
    run->weights = t->weights;
    run->trainer.freeze = t->freeze;
    run->augment = t->no_augment ? COMET_AUGMENT_NONE : COMET_AUGMENT_DEFAULT;
    return DONE;
}

int train_options_read(const train_texts *texts, comet_run_options *run) {
    static int (*const readers[])(const train_texts *, comet_run_options *) = {
        read_model, read_optimiser, read_schedule, read_length, read_sizes, read_seed, read_place, read_forms};
    int answer = DONE;
    for (size_t i = 0; i < sizeof readers / sizeof *readers && answer == DONE; i++)
        answer = readers[i](texts, run);
    return answer;
}

/* ---- which form, and who sets its bounds ---- */

/* eb whose bound nobody has given. */
static int is_open(const train_texts *t, const char *form) {
    return !t->error_rel && (strcmp(form, "eb") == 0 || strcmp(form, "eb+offload") == 0);
}

static comet_status try_forms(const comet_trainer_options *o, const char *overrides, comet_message *message) {
    comet_forms *forms = NULL;
    comet_status status = comet_forms_new(o->codec, o->error_rel, overrides, NULL, &forms, message);
    comet_forms_free(forms);
    return status;
}

static const char *form_at(const void *named, int index) {
    static const char *const names[] = {"none",      "eb",    "pool", "group", "dct",    "zvc", "offload",
                                        "recompute", "comet", "acgc", "fixed", "budget", NULL};
    const char *name = names[index];
    return !*(const int *)named && name && strcmp(name, "comet") == 0 ? NULL : name; /* controllers are behind */
}

static const char *nearest_form(const char *form, int named) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(form, ":+"), form);
    const char *meant = comet_nearest(name, form_at, &named);
    return meant && strcmp(meant, name) != 0 ? meant : NULL; /* what is behind the name is wrong, then */
}

/* `named`: what is no form might have been meant as a controller. */
static int check_forms(const comet_trainer_options *o, int named) {
    comet_message message;
    comet_status status = try_forms(o, NULL, &message);
    if (status != COMET_OK) {
        const char *meant = nearest_form(o->codec, named);
        const char *others = named ? "; or a controller: comet, comet:mean, comet:paper, acgc, fixed:F, budget" : "";
        return meant ? misuse("%.400s%s (did you mean %s?)", message.text, others, meant)
                     : misuse("%.500s%s", message.text, others);
    }
    status = try_forms(o, o->forms, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int check_control(const comet_trainer_options *o) {
    const comet_control_methods *methods;
    comet_control_options unused = COMET_CONTROL_OPTIONS_INIT;
    comet_message message;
    comet_status status = o->control ? comet_control_read(o->control, &methods, &unused, &message) : COMET_OK;
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

/* Of those that know one: comet, comet:mean, comet:paper, budget. */
static int read_calibration(const train_texts *t, comet_trainer_options *o) {
    o->calibration = 0;
    if (!t->calibration || !o->control)
        return DONE;
    if (parse_number("--calibration", t->calibration, &o->calibration) != DONE)
        return MISUSED;
    return o->calibration > 0 ? DONE : misuse("--calibration: above 0 (1 is usual)");
}

int train_control_read(const train_texts *t, const char *form, int named, comet_trainer_options *o) {
    const int is_name = named && comet_control_is_named(form);
    o->codec = is_name ? "eb" : form;
    o->control = is_name ? form : is_open(t, form) ? (t->control ? t->control : "comet") : NULL;
    if (t->control && !named && t->error_rel)
        return misuse("--control and --error-rel exclude each other; a fixed bound is --control fixed:%.20s",
                      t->error_rel);
    if (t->control && !named && !o->control)
        return misuse("--control is for --codec eb without a bound, not for '%.60s'", form);
    if (t->calibration && !named && !o->control)
        return misuse("--calibration is for controllers: --codec eb without a bound");
    if (read_calibration(t, o) != DONE)
        return MISUSED;
    int answer = check_control(o);
    return answer == DONE ? check_forms(o, named) : answer;
}
