/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/predict/network.h"

#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "cmd/train/train_options.h"

enum { BATCH = 32 };

static int read_numbers(const network_texts *t, network *n, comet_predictor_wishes *wanted) {
    int64_t batch = BATCH, image = 0, threads = 0;
    if ((t->batch && parse_integer("--batch", t->batch, 1, 1 << 16, &batch) != DONE) ||
        (t->image && parse_integer("--image", t->image, 1, 4096, &image) != DONE) ||
        (t->threads && parse_integer("--threads", t->threads, 0, 1024, &threads) != DONE))
        return MISUSED;
    n->batch = (int)batch;
    n->threads = (unsigned)threads;
    *wanted = (comet_predictor_wishes){.model = t->model, .image = (int)image};
    return place_read(&t->place, &n->place);
}

int network_open(const network_texts *t, network *n) {
    comet_predictor_wishes wanted;
    comet_message message;
    if (!t->from)
        return misuse("no --from given: a folder of checkpoints, or a file of weights");
    if (read_numbers(t, n, &wanted) != DONE)
        return MISUSED;
    comet_status status = comet_about_find(t->from, NULL, n->path, &message);
    if (status == COMET_OK)
        status = comet_predictor_about(n->path, &wanted, NULL, &n->about, &message);
    const comet_predictor_options options = {.place = n->place, .threads = n->threads, .batch = n->batch};
    if (status == COMET_OK)
        status = comet_predictor_new(n->path, &n->about, &options, NULL, &n->predictor, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

void network_free(network *n) {
    comet_predictor_free(n->predictor);
    comet_about_free(&n->about);
    n->predictor = NULL;
}

const char *network_label(const network *n, int label, char text[NETWORK_NAME]) {
    const char *name = comet_about_label(&n->about, label);
    if (name)
        return name;
    snprintf(text, NETWORK_NAME, "class %d", label);
    return text;
}
