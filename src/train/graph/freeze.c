/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters stay as they are. */
#include <string.h>

#include "train/graph/graph_impl.h"
#include "train/graph/pattern.h"

/* The name itself, or that of its layer. */
static int fits(const char *pattern, const comet_parameter *p) {
    char layer[2 * COMET_NAME_BYTES];
    const char *dot = strrchr(p->name, '.');
    const size_t length = dot ? (size_t)(dot - p->name) : strlen(p->name);
    if (comet_pattern_fits(pattern, p->name))
        return 1;
    if (length >= sizeof layer)
        return 0;
    memcpy(layer, p->name, length);
    layer[length] = '\0';
    return comet_pattern_fits(pattern, layer);
}

static int apply(comet_graph *g, const char *pattern, int frozen) {
    int found = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        comet_parameter *p = &g->parameters[i];
        if (p->kind >= COMET_RUNNING_MEAN || !fits(pattern, p))
            continue;
        p->frozen = frozen;
        found = 1;
    }
    return found;
}

comet_status comet_graph_freeze(comet_graph *g, const char *patterns, comet_message *message) {
    char pattern[COMET_NAME_BYTES];
    for (const char *at = patterns; *at;) {
        const size_t length = strcspn(at, ",");
        const int keeps = *at == '!';
        if (length - (size_t)keeps == 0 || length >= sizeof pattern)
            return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.200s' is no list of layers to freeze",
                                     patterns);
        memcpy(pattern, at + keeps, length - (size_t)keeps);
        pattern[length - (size_t)keeps] = '\0';
        if (!apply(g, pattern, !keeps))
            return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                     "no layer with weights is called '%s': there is nothing to freeze", pattern);
        at += length + (at[length] == ',');
    }
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].kind < COMET_RUNNING_MEAN && !g->parameters[i].frozen)
            return COMET_OK;
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "all layers are frozen: there is nothing to train");
}
