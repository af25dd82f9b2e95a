/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for tests that write weights and checkpoints, and a small network with values to write. */
#ifndef TEST_TRAIN_FOLDER_H
#define TEST_TRAIN_FOLDER_H

#define _XOPEN_SOURCE 700 /* nftw, mkdtemp */
#include "support/assert_ok.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/models/model.h"

static char temporary_folder[64];

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline int make_temporary_folder(void **state) {
    (void)state;
    snprintf(temporary_folder, sizeof temporary_folder, "/tmp/comet-train-XXXXXX");
    return mkdtemp(temporary_folder) ? 0 : -1;
}

static inline int remove_temporary_folder(void **state) {
    (void)state;
    return nftw(temporary_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the temporary folder; the result of one of the last 16 calls. */
static inline const char *in_folder(const char *name) {
    static char paths[16][256];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", temporary_folder, name);
    return path;
}

/* A network with memory, for gradients too, and first values. */
static inline comet_graph *network(const char *name, int classes, uint64_t seed) {
    comet_graph *g = NULL;
    comet_message why;
    const comet_model *model;
    assert_ok(comet_graph_new(NULL, &g));
    assert_ok(comet_model_find(name, &model, &why));
    if (comet_model_build(g, name, classes, model->image, model->image, 3, &why) != COMET_OK)
        fail_msg("%s", why.text);
    assert_ok(comet_graph_allocate(g, 1));
    comet_initialise(model->initialisation, seed, comet_graph_parameter(g, 0), comet_graph_parameters(g), NULL);
    return g;
}

static inline int same_values(comet_graph *a, comet_graph *b, int first, int end) {
    for (int i = first; i < end; i++) {
        const comet_parameter *p = comet_graph_parameter(a, i), *q = comet_graph_parameter(b, i);
        if (p->count != q->count || memcmp(p->value, q->value, (size_t)p->count * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

/* The call answers `expected`, with one line that has `part` in it. */
#define assert_refused(call, expected, message, part)                                                                  \
    do {                                                                                                               \
        (message).text[0] = '\0';                                                                                      \
        assert_status(call, expected);                                                                                 \
        if (!strstr((message).text, part))                                                                             \
            fail_msg("no '%s' in: %s", part, (message).text);                                                          \
    } while (0)

#endif
