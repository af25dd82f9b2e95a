/* SPDX-License-Identifier: Apache-2.0 */
/* Forms as a user writes them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/plan/forms_impl.h"

static const char known[] =
    "none, eb[:ERROR], pool:K, group:BITS, dct, zvc, offload, recompute, or one of them with +offload";

static comet_status unknown(const char *text, comet_message *message) {
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no form '%.60s'; there are: %s", text, known);
}

static int is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* The number behind a colon; `otherwise` if there is none. 0: it is not one. */
static int read_number(const char *text, size_t length, double otherwise, double *number) {
    char copy[32], *end;
    *number = otherwise;
    if (length == 0)
        return 1;
    if (length < 2 || length > sizeof copy) /* the colon alone, or more digits than a number has */
        return 0;
    memcpy(copy, text + 1, length - 1);
    copy[length - 1] = 0;
    *number = strtod(copy, &end);
    return *end == 0 && isfinite(*number);
}

static comet_status read_eb(const char *text, double number, comet_wish *w, comet_message *message) {
    if (!(number >= 0 && number <= 100))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'%.60s': the error is a part of the rms of what is stored, from 0 to 100", text);
    w->codec.bound_kind = COMET_BOUND_RELATIVE;
    w->codec.bound = number;
    return COMET_OK;
}

static comet_status read_pool(const char *text, double number, comet_wish *w, comet_message *message) {
    if (!(number >= 1 && number <= 64) || number != floor(number))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.60s': pool:K averages K x K values, K from 1 to 64",
                                 text);
    w->codec.pool_block = (int32_t)number;
    return COMET_OK;
}

static comet_status read_group(const char *text, double number, comet_wish *w, comet_message *message) {
    if (number != 2 && number != 4 && number != 8)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.60s': group:BITS has 2, 4 or 8 bits a value", text);
    w->codec.group_bits = (int32_t)number;
    return COMET_OK;
}

static comet_status read_codec(const char *text, size_t name, size_t rest, double error_rel, comet_wish *w,
                               comet_message *message) {
    static const comet_codec codecs[] = {COMET_CODEC_EB, COMET_CODEC_POOL, COMET_CODEC_GROUP, COMET_CODEC_DCT,
                                         COMET_CODEC_ZVC};
    double number = 0;
    w->form = COMET_FORM_CODEC;
    w->codec.codec = COMET_CODEC_RAW;
    w->fixed = rest > 0;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (is_word(text, name, comet_codec_name(codecs[i])))
            w->codec.codec = codecs[i];
    const comet_codec codec = w->codec.codec;
    const double usual = codec == COMET_CODEC_EB ? error_rel : codec == COMET_CODEC_POOL ? 2 : 4;
    const int takes_number = codec == COMET_CODEC_EB || codec == COMET_CODEC_POOL || codec == COMET_CODEC_GROUP;
    if (codec == COMET_CODEC_RAW || (rest && !takes_number) || !read_number(text + name, rest, usual, &number))
        return unknown(text, message);
    switch (codec) {
    case COMET_CODEC_EB:
        return read_eb(text, number, w, message);
    case COMET_CODEC_POOL:
        return read_pool(text, number, w, message);
    case COMET_CODEC_GROUP:
        return read_group(text, number, w, message);
    default:
        return COMET_OK;
    }
}

/* `text` ends with a zero. */
comet_status comet_forms_read_wish(const char *text, double error_rel, comet_wish *w, comet_message *message) {
    static const char behind[] = "+offload";
    size_t length = strlen(text);
    const size_t tail = sizeof behind - 1;
    *w = (comet_wish){.form = COMET_FORM_KEEP, .codec = COMET_CODEC_PARAMS_INIT};
    if (length > tail && strcmp(text + length - tail, behind) == 0) {
        w->offload = 1;
        length -= tail;
    }
    const char *colon = memchr(text, ':', length);
    const size_t name = colon ? (size_t)(colon - text) : length;
    if (is_word(text, length, "none") || is_word(text, length, "keep"))
        return COMET_OK;
    if (is_word(text, length, "offload")) {
        w->offload = 1;
        return COMET_OK;
    }
    if (!is_word(text, length, "recompute"))
        return read_codec(text, name, length - name, error_rel, w, message);
    if (w->offload)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "recompute+offload: what is computed again is not in the file; say one of the two");
    w->form = COMET_FORM_RECOMPUTE;
    return COMET_OK;
}

/* "layer1.*=eb:0.1", `length` bytes of it. */
static comet_status read_rule(const char *text, size_t length, double error_rel, comet_form_rule *r,
                              comet_message *message) {
    char form[64];
    const char *equals = memchr(text, '=', length);
    const size_t name = equals ? (size_t)(equals - text) : 0;
    if (name == 0 || name >= sizeof r->pattern || length - name - 1 >= sizeof form)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'%.*s' is not a rule: LAYER=FORM, as in layer1.*=eb:0.1", (int)length, text);
    memcpy(r->pattern, text, name);
    r->pattern[name] = 0;
    memcpy(form, equals + 1, length - name - 1);
    form[length - name - 1] = 0;
    return comet_forms_read_wish(form, error_rel, &r->wish, message);
}

int comet_forms_count(const char *text) {
    int count = text && *text ? 1 : 0;
    for (; text && *text; text++)
        count += *text == ',';
    return count;
}

comet_status comet_forms_read_rules(comet_forms *f, const char *text, double error_rel, comet_message *message) {
    comet_status status = COMET_OK;
    for (int i = 0; i < f->rules && status == COMET_OK; i++) {
        const size_t length = strcspn(text, ",");
        status = read_rule(text, length, error_rel, &f->rule[i], message);
        text += length + (text[length] == ',');
    }
    return status;
}
