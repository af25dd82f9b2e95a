/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for tests that write weights and checkpoints, and a small network with values to write. */
#ifndef TEST_TRAIN_FOLDER_H
#define TEST_TRAIN_FOLDER_H

#include "support/temporary_folder.h"

#include "train/backend/cpu/space.h"
#include "train/models/model.h"

/* A network with memory, for gradients too, and first values. */
static inline comet_graph *network(const char *name, int classes, uint64_t seed) {
    comet_graph *g = NULL;
    comet_message why;
    const comet_model *model;
    assert_ok(comet_graph_new(NULL, &g));
    assert_ok(comet_model_find(name, &model, &why));
    if (comet_model_build(g, name, classes, model->image, model->image, 3, &why) != COMET_OK)
        fail_msg("%s", why.text);
    assert_ok(comet_graph_allocate(g, comet_host_space_plain(), 1));
    assert_ok(
        comet_initialise(model->initialisation, seed, comet_graph_parameter(g, 0), comet_graph_parameters(g), NULL));
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
