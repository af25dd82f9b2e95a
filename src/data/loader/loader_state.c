/* SPDX-License-Identifier: Apache-2.0 */
/* States of loaders as text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/loader/loader.h"

void comet_loader_state_format(const comet_loader_state *state, char text[COMET_LOADER_STATE_TEXT]) {
    snprintf(text, COMET_LOADER_STATE_TEXT,
             "seed=%" PRIu64 " epoch=%" PRIu32 " position=%" PRId64 " count=%" PRId64 " digest=%" PRIu32, state->seed,
             state->epoch, state->position, state->count, state->digest);
}

/* What reads back as it was written is right: sscanf alone would let much more pass. */
comet_status comet_loader_state_parse(const char *text, comet_loader_state *state) {
    char again[COMET_LOADER_STATE_TEXT];
    comet_loader_state s = {0};
    if (strlen(text) >= sizeof again)
        return COMET_ERROR_CORRUPT;
    if (sscanf(text, "seed=%" SCNu64 " epoch=%" SCNu32 " position=%" SCNd64 " count=%" SCNd64 " digest=%" SCNu32,
               &s.seed, &s.epoch, &s.position, &s.count, &s.digest) != 5)
        return COMET_ERROR_CORRUPT;
    comet_loader_state_format(&s, again);
    if (strcmp(again, text) != 0)
        return COMET_ERROR_CORRUPT;
    *state = s;
    return COMET_OK;
}
