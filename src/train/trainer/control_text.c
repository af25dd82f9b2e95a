/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/control_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comet/control_methods.h"

static const char known[] =
    "c, floor, ceiling, warmup, warmup-bound, window, every, adaptive, moved, smoothing, loosen, spike, tighten, "
    "recover, most-skips, measured, joint; budget: bytes, error; acgc: e; fixed: a number, absolute";

/* The controller whose name the text begins with, the longest if several do; *length: of the name. */
static const comet_control_methods *find(const char *text, size_t *length) {
    const char *best = NULL;
    *length = 0;
    for (int i = 0; comet_control_name(i); i++) {
        const char *name = comet_control_name(i);
        const size_t n = strlen(name);
        if (strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == ':') && n > *length) {
            best = name;
            *length = n;
        }
    }
    return comet_control_find(best);
}

int comet_control_is_named(const char *text) {
    size_t length;
    return text && find(text, &length) != NULL;
}

static double *number_named(const char *key, comet_control_options *o) {
    const struct {
        const char *key;
        double *number;
    } all[] = {{"c", &o->calibration},       {"floor", &o->floor},
               {"ceiling", &o->ceiling},     {"warmup-bound", &o->warmup_bound},
               {"moved", &o->moved},         {"smoothing", &o->smoothing},
               {"loosen", &o->loosen},       {"spike", &o->spike},
               {"tighten", &o->tighten},     {"bytes", &o->budget_bytes},
               {"error", &o->budget_error},  {"e", &o->acgc_e},
               {"absolute", &o->fixed_bound}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(key, all[i].key) == 0)
            return all[i].number;
    return NULL;
}

/* 0: no such key, or not a whole number. */
static int set_count(const char *key, double value, comet_control_options *o) {
    const struct {
        const char *key;
        int64_t *count;
    } all[] = {{"warmup", &o->warmup}, {"window", &o->window}, {"every", &o->every}, {"recover", &o->recover}};
    if (value != floor(value) || fabs(value) > 1e9)
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(key, all[i].key) == 0) {
            *all[i].count = (int64_t)value;
            return 1;
        }
    int32_t *flag = strcmp(key, "adaptive") == 0     ? &o->adaptive
                    : strcmp(key, "measured") == 0   ? &o->measured
                    : strcmp(key, "joint") == 0      ? &o->joint
                    : strcmp(key, "most-skips") == 0 ? &o->most_skips
                                                     : NULL;
    if (flag)
        *flag = (int32_t)value;
    return flag != NULL;
}

static int set(const char *key, double value, comet_control_options *o) {
    double *number = number_named(key, o);
    if (!number)
        return set_count(key, value, o);
    *number = value;
    if (strcmp(key, "absolute") == 0)
        o->fixed_kind = COMET_BOUND_ABSOLUTE;
    return 1;
}

/* "c=0.3", or for `fixed` a number alone. */
static comet_status read_setting(const char *text, size_t length, const comet_control_methods *methods,
                                 comet_control_options *o, comet_message *message) {
    char copy[48], *end;
    if (length < sizeof copy && length > 0) {
        memcpy(copy, text, length);
        copy[length] = 0;
        char *equals = strchr(copy, '=');
        const char *digits = equals ? equals + 1 : copy;
        const double value = strtod(digits, &end);
        const int is_number = end != digits && *end == 0 && isfinite(value);
        if (equals)
            *equals = 0;
        if (is_number && equals && set(copy, value, o))
            return COMET_OK;
        if (is_number && !equals && strcmp(methods->name, "fixed") == 0) {
            o->fixed_bound = value;
            return COMET_OK;
        }
    }
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.*s' is no setting of controller %s: NAME=NUMBER of %s",
                             length < 60 ? (int)length : 60, text, methods->name, known);
}

comet_status comet_control_read(const char *text, const comet_control_methods **methods, comet_control_options *options,
                                comet_message *message) {
    size_t length;
    *methods = find(text, &length);
    if (!*methods)
        return comet_message_set(
            message, COMET_ERROR_ARGUMENT,
            "there is no controller '%.60s'; there are comet, comet:mean, comet:paper, acgc, fixed and budget", text);
    if (*methods == comet_control_find("comet:paper")) { /* which looks every 1000 iterations, at what there is then */
        options->adaptive = 0;
        options->smoothing = 1;
    }
    comet_status status = COMET_OK;
    for (const char *at = text + length; *at && status == COMET_OK; at += length) {
        length = strcspn(++at, ":");
        status = read_setting(at, length, *methods, options, message);
    }
    if (status != COMET_OK)
        return status;
    const char *problem = comet_control_check(options);
    return problem ? comet_message_set(message, COMET_ERROR_ARGUMENT, "controller %.60s: %s", text, problem) : COMET_OK;
}
