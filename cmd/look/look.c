/* SPDX-License-Identifier: Apache-2.0 */
/* comet look: what trained networks have learnt, side by side. */
#include "cmd/look/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "cmd/common/parse.h"
#include "cmd/common/workers.h"
#include "cmd/files/file.h"
#include "cmd/look/look_network.h"
#include "cmd/train/train_options.h"

static const char help[] =
    "Usage: comet look --from PATH --from PATH... [--data SET] [OPTION...]\n"
    "\n"
    "Shows the same images to trained networks of one kind and says how alike they are, layer by layer, to the first "
    "of\n"
    "them: whether training with compressed activations has learnt something else than training without.\n"
    "\n"
    "  --from PATH...        weights of two to six networks: folders of checkpoints (their best ones, else their "
    "last),\n"
    "                        checkpoints, or .safetensors files; the first is what the others are put beside\n"
    "  --names LIST          what they are called, in this order (the forms that they were trained with)\n"
    "  --model NAME          the network, where the weights do not say\n"
    "  --image N             images of N x N (what the networks were trained with)\n"
    "  --data SET            as for comet train; its images for evaluation are taken (what the first weights name)\n"
    "  --images N            so many of them, of all classes (256)\n"
    "  --batch B             images at a time, from 4 to 512 (64): similarities are estimated within these, and the\n"
    "                        estimate is unbiased, so that it does not depend on B but for chance\n"
    "  --threads N           0: one for each core (0)\n" PLACE_HELP "\n"
    "The answer:\n"
    "  --json                one object instead of tables\n"
    "  --report FILE.html    similarities as lines, the first layer's filters and maps of some images as pictures\n"
    "  --quiet               no progress on standard error\n"
    "\n"
    "Similarity is linear CKA (centred kernel alignment): 1 for layers that differ by a rotation and a scale at most,\n"
    "about 0 for such that have nothing in common. A second training of the first form, with another --seed, shows\n"
    "what chance alone does to it.\n"
    "\n"
    "Examples:\n"
    "  comet look --from run-none --from run-eb --from run-pool --report look.html\n"
    "  comet look --from a/best.safetensors b/best.safetensors --data cifar10:data --images 1024 --json\n";

enum { IMAGES = 256, BATCH = 64, MOST_IMAGES = 1 << 20 };

typedef struct request {
    network_texts network;
    text_array from, operands;
    const char *data, *images, *names, *report;
    int64_t most, batch;
    text_list name_list;
    int json, quiet, help;
} request;

static int read_request(request *r, int argc, char **argv) {
    const option table[] = {{"--from", OPTION_MANY, &r->from},
                            {"--names", OPTION_TEXT, &r->names},
                            {"--model", OPTION_TEXT, &r->network.model},
                            {"--image", OPTION_TEXT, &r->network.image},
                            {"--data", OPTION_TEXT, &r->data},
                            {"--images", OPTION_TEXT, &r->images},
                            {"--batch", OPTION_TEXT, &r->network.batch},
                            {"--threads", OPTION_TEXT, &r->network.threads},
                            {"--device", OPTION_TEXT, &r->network.place.device},
                            {"--dtype", OPTION_TEXT, &r->network.place.dtype},
                            {"--deterministic", OPTION_FLAG, &r->network.place.deterministic},
                            {"--no-graphs", OPTION_FLAG, &r->network.place.no_graphs},
                            {"--json", OPTION_FLAG, &r->json},
                            {"--report", OPTION_TEXT, &r->report},
                            {"--quiet", OPTION_FLAG, &r->quiet},
                            {"--help", OPTION_FLAG, &r->help},
                            {"-h", OPTION_FLAG, &r->help},
                            {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &r->operands);
    if (answer == DONE && r->operands.count)
        return misuse("unexpected '%s'", r->operands.items[0]);
    return answer;
}

static int read_numbers(request *r) {
    r->most = IMAGES;
    r->batch = BATCH;
    if (r->from.count < 2 || r->from.count > LOOK_MOST)
        return misuse("--from: from 2 to %d networks can be put beside each other", LOOK_MOST);
    if ((r->images && parse_integer("--images", r->images, COMET_GRAM_LEAST, MOST_IMAGES, &r->most) != DONE) ||
        (r->network.batch &&
         parse_integer("--batch", r->network.batch, COMET_GRAM_LEAST, COMET_GRAM_MOST, &r->batch) != DONE) ||
        (r->names && parse_list("--names", r->names, &r->name_list) != DONE))
        return MISUSED;
    if (r->names && r->name_list.count != r->from.count)
        return misuse("--names: %d names for %d networks", r->name_list.count, r->from.count);
    return DONE;
}

static int open_network(const request *r, int index, network *n) {
    network_texts texts = r->network;
    char batch[24];
    snprintf(batch, sizeof batch, "%lld", (long long)r->batch);
    texts.from = r->from.items[index];
    texts.batch = batch;
    return network_open(&texts, n);
}

static int load_images(const request *r, const network *n, look_case *c) {
    const int answer = look_images_load(&c->images, n, r->data, r->most);
    if (answer != DONE)
        return answer;
    if (c->images.count < COMET_GRAM_LEAST)
        return fail("'%s': %d images can be used, similarities need at least %d", c->images.name, c->images.count,
                    COMET_GRAM_LEAST);
    c->batch = (int)r->batch < c->images.count ? (int)r->batch : c->images.count;
    return DONE;
}

static int show_to(const request *r, int index, look_case *c, progress *bar) {
    network n = {.predictor = NULL};
    int answer = open_network(r, index, &n);
    if (answer == DONE && index == 0) {
        answer = load_images(r, &n, c);
        if (answer == DONE)
            progress_start(bar, (size_t)(c->images.count + c->batch - 1) / (size_t)c->batch * (size_t)r->from.count,
                           r->quiet);
    }
    if (answer == DONE)
        answer = look_network_add(c, &n, r->from.items[index], bar);
    network_free(&n);
    return answer;
}

/* Those that the user gave; or no two of them the same. */
static void settle_names(const request *r, look_case *c) {
    look_name *names[LOOK_MOST];
    for (int i = 0; i < c->count; i++) {
        names[i] = &c->networks[i].name;
        if (r->names)
            snprintf(names[i]->text, LOOK_NAME, "%.90s", r->name_list.items[i]);
    }
    if (!r->names)
        look_names_apart(names, r->from.items, c->count);
}

static int show_answer(const request *r, const look_case *c) {
    (r->json ? look_print_json : look_print)(c);
    if (!r->report)
        return DONE;
    if (look_report(r->report, c) != DONE) {
        note("the results are on standard output");
        return FAILED;
    }
    if (!r->json)
        printf("\nReport: %s\n", r->report);
    return DONE;
}

/* Before minutes go by with the first ones. */
static int find_all(const request *r) {
    char path[COMET_ABOUT_PATH];
    comet_message message;
    comet_status status = output_try("--report", r->report, &message);
    for (int i = 0; i < r->from.count && status == COMET_OK; i++) {
        status = comet_about_find(r->from.items[i], NULL, path, &message);
        if (status == COMET_OK && access(path, R_OK) != 0)
            return fail("cannot read '%s': %s", path, strerror(errno));
    }
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int look(const request *r, look_case *c) {
    progress bar = {.silent = 1};
    int answer = find_all(r);
    for (int i = 0; i < r->from.count && answer == DONE; i++)
        answer = show_to(r, i, c, &bar);
    progress_clear(&bar);
    if (answer != DONE)
        return answer;
    settle_names(r, c);
    return show_answer(r, c);
}

static int run(request *r, char **argv) {
    look_case *c = calloc(1, sizeof *c);
    int answer = c ? read_numbers(r) : fail_memory();
    if (answer == DONE) {
        openmp_wait_passively(argv - 1); /* main's, in which the command's name is the second */
        answer = look(r, c);
    }
    for (int i = 0; c && i < c->count; i++)
        look_network_free(&c->networks[i]);
    if (c)
        look_images_free(&c->images);
    free(c);
    return answer;
}

int command_look(int argc, char **argv) {
    request r = {.json = 0};
    int answer = read_request(&r, argc, argv);
    if (answer == DONE && r.help)
        fputs(help, stdout);
    else if (answer == DONE)
        answer = run(&r, argv);
    text_array_free(&r.from);
    text_array_free(&r.operands);
    return answer;
}
