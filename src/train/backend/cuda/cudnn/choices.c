/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices as text, one convolution a line:
 *
 *     cudnn-choices 1 91900
 *     0 0 32 56 56 64 64 3 3 1 1 1 1 0 0 262144 : 42 17=1 2=3
 *
 * The key's numbers in their order; the engine; its knobs. The first line has the version of cuDNN, whose engines these
 * are.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/cudnn/cudnn_impl.h"

_Static_assert(sizeof(comet_cudnn_key) == COMET_CUDNN_KEY_NUMBERS * sizeof(int32_t), "no gaps, all of one type");

static const char title[] = "cudnn-choices 1 ";

const comet_cudnn_known *comet_cudnn_known_find(const comet_cudnn *cudnn, const comet_cudnn_key *key) {
    for (size_t i = 0; i < cudnn->known_count; i++)
        if (memcmp(&cudnn->known[i].key, key, sizeof *key) == 0)
            return &cudnn->known[i];
    return NULL;
}

/* ---- writing ---- */

typedef struct writer {
    char *text;
    size_t room, length;
} writer;

static void put(writer *w, const char *format, long long a, long long b) {
    char one[64];
    const size_t length = (size_t)snprintf(one, sizeof one, format, a, b);
    if (w->length + length < w->room)
        memcpy(w->text + w->length, one, length + 1);
    w->length += length;
}

static void put_line(writer *w, const comet_cudnn_key *key, const comet_cudnn_choice *choice) {
    int32_t numbers[COMET_CUDNN_KEY_NUMBERS];
    memcpy(numbers, key, sizeof numbers);
    if (choice->knobs < 0)
        return;
    for (int i = 0; i < COMET_CUDNN_KEY_NUMBERS; i++)
        put(w, "%lld ", numbers[i], 0);
    put(w, ": %lld", choice->engine, 0);
    for (int i = 0; i < choice->knobs; i++)
        put(w, " %lld=%lld", choice->knob[i].type, choice->knob[i].value);
    put(w, "\n", 0, 0);
}

static int is_made(const comet_cudnn *c, const comet_cudnn_key *key) {
    for (size_t i = 0; i < c->entry_count; i++)
        if (memcmp(&c->entries[i]->key, key, sizeof *key) == 0)
            return 1;
    return 0;
}

size_t comet_cudnn_choices_write(const comet_cudnn *cudnn, char *text, size_t room) {
    writer w = {text, room, 0};
    put(&w, "cudnn-choices 1 %lld\n", (long long)cudnn->library.version, 0);
    for (size_t i = 0; i < cudnn->entry_count; i++)
        put_line(&w, &cudnn->entries[i]->key, &cudnn->entries[i]->plan.choice);
    for (size_t i = 0; i < cudnn->known_count; i++)
        if (!is_made(cudnn, &cudnn->known[i].key))
            put_line(&w, &cudnn->known[i].key, &cudnn->known[i].choice);
    return w.length;
}

/* ---- reading ---- */

/* A number in decimals within the bounds, right at *at; 0: there is none. */
static int take_number(const char **at, int64_t least, int64_t most, int64_t *number) {
    char *end;
    if (**at != '-' && (**at < '0' || **at > '9'))
        return 0;
    errno = 0;
    const long long value = strtoll(*at, &end, 10);
    if (errno != 0 || end == *at || value < least || value > most)
        return 0;
    *number = value;
    *at = end;
    return 1;
}

static int take_mark(const char **at, char mark) {
    if (**at != mark)
        return 0;
    ++*at;
    return 1;
}

static int take_line(const char **at, comet_cudnn_known *known) {
    int32_t numbers[COMET_CUDNN_KEY_NUMBERS];
    *known = (comet_cudnn_known){.choice = {.knobs = 0}};
    for (int i = 0; i < COMET_CUDNN_KEY_NUMBERS; i++) {
        int64_t number;
        if (!take_number(at, 0, INT32_MAX, &number) || !take_mark(at, ' '))
            return 0;
        numbers[i] = (int32_t)number;
    }
    memcpy(&known->key, numbers, sizeof numbers);
    comet_cudnn_choice *c = &known->choice;
    if (!take_mark(at, ':') || !take_mark(at, ' ') || !take_number(at, 0, INT32_MAX, &c->engine))
        return 0;
    while (!take_mark(at, '\n')) {
        if (c->knobs == COMET_CUDNN_KNOBS || !take_mark(at, ' ') ||
            !take_number(at, 0, INT32_MAX, &c->knob[c->knobs].type) || !take_mark(at, '=') ||
            !take_number(at, INT64_MIN, INT64_MAX, &c->knob[c->knobs].value))
            return 0;
        c->knobs++;
    }
    return 1;
}

static comet_status keep(comet_cudnn *c, const comet_cudnn_known *one) {
    comet_cudnn_known *known =
        comet_array_reserve(c->allocator, c->known, c->known_count, c->known_count + 1, &c->known_room, sizeof *known);
    if (!known)
        return COMET_ERROR_MEMORY;
    c->known = known;
    known[c->known_count++] = *one;
    return COMET_OK;
}

static comet_status read_lines(comet_cudnn *c, const char *at) {
    int64_t version;
    if (strncmp(at, title, sizeof title - 1) != 0)
        return comet_fail(COMET_ERROR_CORRUPT, "no text of cuDNN's choices");
    at += sizeof title - 1;
    if (!take_number(&at, 0, INT32_MAX, &version) || !take_mark(&at, '\n'))
        return comet_fail(COMET_ERROR_CORRUPT, "cuDNN's choices are of no version");
    if ((size_t)version != c->library.version)
        return comet_fail(COMET_ERROR_MISMATCH, "choices are of cuDNN %lld, and this is %zu", (long long)version,
                          c->library.version);
    for (int line = 2; *at; line++) {
        comet_cudnn_known one;
        if (!take_line(&at, &one))
            return comet_fail(COMET_ERROR_CORRUPT, "line %d of cuDNN's choices cannot be read", line);
        if (!comet_cudnn_known_find(c, &one.key))
            COMET_TRY(keep(c, &one));
    }
    return COMET_OK;
}

comet_status comet_cudnn_choices_read(comet_cudnn *cudnn, const char *text) {
    const size_t before = cudnn->known_count;
    const comet_status status = read_lines(cudnn, text);
    if (status != COMET_OK)
        cudnn->known_count = before;
    return status;
}
