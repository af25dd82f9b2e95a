/* SPDX-License-Identifier: Apache-2.0 */
/* Options of comet plan. */
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/plan/plan.h"
#include "cmd/train/train_options.h"
#include "train/models/model.h"

const char plan_help[] =
    "Usage: comet plan --model NAME [OPTION...]\n"
    "\n"
    "Says what training a network would take before anything is trained: what each layer saves for its backward pass,\n"
    "how it would be held, and the peak of all memory. It allocates no weights and answers at once.\n"
    "\n"
    "The network:\n"
    "  --model NAME          alexnet, vgg16, vgg16_bn, resnet18, resnet34, resnet50, efficientnet_b0;\n"
    "                        for small images resnet8, resnet20, resnet18-cifar\n"
    "  --data SET            what it would be trained on, as for comet train: sizes and classes come from it, and the\n"
    "                        memory of the data set and its prefetch is counted (none)\n"
    "  --batch B             images of a step (32; with --data what comet train takes)\n"
    "  --image N             images of N x N pixels (what the network was made for; with --data the data's)\n"
    "  --channels 1|3        grey or RGB (3; with --data the data's)\n"
    "  --classes N           (1000; networks for small images 10); not with --data\n"
    "\n"
    "How activations are held until the backward pass:\n"
    "  --codec FORM          none, eb[:ERROR], pool:K, group:BITS, dct, zvc, offload, recompute, eb+offload (eb)\n"
    "  --error-rel F         a bound for eb, in units of the rms of what is stored; without one a controller will set\n"
    "                        bounds, and the plan is for those with which it begins (0.3)\n"
    "  --forms RULES         another form for some layers: 'layer1.*=eb:0.1,bn1=none', the last that fits wins;\n"
    "                        the names are those in the table\n"
    "  --memory SIZE         plan within it (2GiB, 500MB): what does not fit is spilled to a file, then recomputed.\n"
    "                        Says whether that is enough, and which batch would be the largest\n"
    "  --spill-dir none      no file to spill to\n"
    "\n"
    "The rest of a step:\n"
    "  --freeze PATTERNS     layers whose weights stay as they are, as for comet train: 'conv1,bn1,layer1.*'; '*,!fc'\n"
    "  --optimiser sgd|adamw (sgd, with momentum)\n"
    "  --accumulate N        batches for one update (1)\n"
    "  --threads N           0: one for each core (0)\n" PLACE_HELP "\n"
    "The answer:\n"
    "  --json                the same for programs\n"
    "  --report FILE.html    and as pictures: memory over a step beside that of --codec none, saved bytes by layer\n"
    "\n"
    "Sizes with a * are estimates: how well activations compress is known once steps have run. Training learns it, "
    "and\n"
    "keeps a reserve. Without --data the data set and its prefetch are not counted.\n"
    "\n"
    "Examples:\n"
    "  comet plan --model resnet50 --batch 64\n"
    "  comet plan --model resnet50 --batch 64 --codec none          how much more would it be?\n"
    "  comet plan --model resnet18 --memory 2GiB                    which batch can I train in 2 GiB?\n"
    "  comet plan --model resnet18 --data folder:pets --memory 300MiB    and with that data?\n"
    "  comet plan --model resnet50 --freeze '*,!layer4.*,!fc'       and if only the last block and fc are trained?\n"
    "  comet plan --model vgg16 --forms 'features.relu.1=none' --json\n";

/* As they were given; NULL where they were not. */
typedef struct texts {
    const char *model, *data, *batch, *image, *channels, *classes, *codec, *error_rel, *forms, *memory, *spill,
        *optimiser, *accumulate, *freeze, *threads;
    place_texts place;
} texts;

/* *value is left alone where there is no text. */
static int read_count(const char *name, const char *text, int low, int high, int *value) {
    int64_t number = *value;
    int answer = text ? parse_integer(name, text, low, high, &number) : DONE;
    *value = (int)number;
    return answer;
}

static int read_network(const texts *t, comet_trainer_options *o) {
    const comet_model *model;
    comet_message message;
    if (!t->model)
        return misuse("no --model given");
    if (comet_model_find(t->model, &model, &message) != COMET_OK)
        return misuse("--model: %s", message.text);
    o->model = model->name;
    if (t->data && t->classes)
        return misuse("--classes and --data exclude each other: the data says how many there are");
    o->batch = 32;
    o->height = t->data ? 0 : model->image;
    o->channels = t->data ? 0 : 3;
    o->classes = model->image < 100 ? 10 : 1000;
    int answer = read_count("--batch", t->batch, 1, 1 << 20, &o->batch);
    if (answer == DONE)
        answer = read_count("--image", t->image, 1, 4096, &o->height);
    if (answer == DONE)
        answer = read_count("--channels", t->channels, 1, 3, &o->channels);
    if (answer == DONE && o->channels == 2)
        answer = misuse("--channels: 1 (grey) or 3 (RGB)");
    if (answer == DONE)
        answer = read_count("--classes", t->classes, 1, 1 << 20, &o->classes);
    o->width = o->height;
    return answer;
}

static int read_forms(const texts *t, comet_trainer_options *o) {
    int answer = DONE;
    o->codec = t->codec ? t->codec : "eb";
    o->forms = t->forms;
    if (!t->error_rel && (strcmp(o->codec, "eb") == 0 || strcmp(o->codec, "eb+offload") == 0))
        o->control = "comet"; /* as comet train has it */
    /* Nothing is written: that there is a directory says that spilling is allowed. */
    o->spill_directory = t->spill && strcmp(t->spill, "none") == 0 ? NULL : t->spill ? t->spill : ".";
    if (t->error_rel)
        answer = parse_number("--error-rel", t->error_rel, &o->error_rel);
    if (answer == DONE && t->memory)
        answer = parse_bytes("--memory", t->memory, &o->memory_bytes);
    return answer;
}

static int read_step(const texts *t, comet_trainer_options *o) {
    const char *name = t->optimiser ? t->optimiser : "sgd";
    int threads = 0;
    o->freeze = t->freeze;
    if (strcmp(name, "sgd") != 0 && strcmp(name, "adamw") != 0)
        return misuse("--optimiser: '%s' is not one of sgd, adamw", name);
    o->optimiser = comet_optimiser_default(name[0] == 's' ? COMET_SGD : COMET_ADAMW);
    int answer = read_count("--accumulate", t->accumulate, 1, 1 << 20, &o->accumulate);
    if (answer == DONE)
        answer = read_count("--threads", t->threads, 0, 1024, &threads);
    o->threads = (unsigned)threads;
    if (answer == DONE)
        answer = place_read(&t->place, &o->place);
    return answer;
}

/* Sizes, classes, and what data and prefetch take: as comet train finds them. */
static int read_data(const texts *t, plan_request *r) {
    comet_message message;
    size_t loader_bytes[COMET_SPLITS];
    comet_status status = comet_dataset_open(t->data, NULL, &r->data, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    if (comet_dataset_get_info(r->data)->note)
        note("%s", comet_dataset_get_info(r->data)->note);
    if (!t->batch)
        r->trainer.batch = train_default_batch(r->data);
    r->data_name = t->data;
    const comet_run_options run = {.trainer = r->trainer, .data = r->data};
    status = comet_run_trainer_options(&run, &r->trainer, loader_bytes, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

void plan_request_free(plan_request *r) {
    comet_dataset_free(r->data);
}

static int read_texts(const texts *t, plan_request *r) {
    int answer = read_network(t, &r->trainer);
    if (answer == DONE)
        answer = read_forms(t, &r->trainer);
    if (answer == DONE)
        answer = read_step(t, &r->trainer);
    return answer == DONE && t->data ? read_data(t, r) : answer;
}

int plan_options_read(plan_request *r, int argc, char **argv) {
    texts t = {0};
    text_array operands = {0};
    const option table[] = {{"--model", OPTION_TEXT, &t.model},
                            {"--data", OPTION_TEXT, &t.data},
                            {"--batch", OPTION_TEXT, &t.batch},
                            {"--image", OPTION_TEXT, &t.image},
                            {"--channels", OPTION_TEXT, &t.channels},
                            {"--classes", OPTION_TEXT, &t.classes},
                            {"--codec", OPTION_TEXT, &t.codec},
                            {"--error-rel", OPTION_TEXT, &t.error_rel},
                            {"--forms", OPTION_TEXT, &t.forms},
                            {"--memory", OPTION_TEXT, &t.memory},
                            {"--spill-dir", OPTION_TEXT, &t.spill},
                            {"--optimiser", OPTION_TEXT, &t.optimiser},
                            {"--optimizer", OPTION_TEXT, &t.optimiser},
                            {"--accumulate", OPTION_TEXT, &t.accumulate},
                            {"--freeze", OPTION_TEXT, &t.freeze},
                            {"--threads", OPTION_TEXT, &t.threads},
                            PLACE_OPTIONS(t.place),
                            {"--json", OPTION_FLAG, &r->json},
                            {"--report", OPTION_TEXT, &r->report},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &operands);
    if (answer == DONE && !r->help && operands.count)
        answer = misuse("unexpected '%s'", operands.items[0]);
    text_array_free(&operands);
    return answer == DONE && !r->help ? read_texts(&t, r) : answer;
}
