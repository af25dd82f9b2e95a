/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/look/look_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "train/checkpoint/about.h"

enum { VALUE = 64 };

/* What stands behind " key=" in a text of options, up to the next space. */
static const char *value_of(const char *given, const char *key, char value[VALUE]) {
    const size_t length = strlen(key);
    const char *at = given;
    value[0] = '\0';
    while ((at = strstr(at, key)) && !((at == given || at[-1] == ' ') && at[length] == '='))
        at += length;
    if (at)
        snprintf(value, VALUE, "%.*s", (int)strcspn(at + length + 1, " "), at + length + 1);
    return value;
}

/* "none", "eb:0.3", "eb" under the usual controller, "acgc", "pool:2"; with exceptions "eb, layer1.*=none". */
static void name_form(const char *given, char text[LOOK_NAME]) {
    char codec[VALUE], error[VALUE], control[VALUE], forms[VALUE]; /* error: at first, where a controller sets it */
    value_of(given, "codec", codec);
    value_of(given, "error", error);
    value_of(given, "control", control);
    value_of(given, "forms", forms);
    const int is_eb = strcmp(codec, "eb") == 0;
    if (is_eb && control[0] && strcmp(control, "comet") != 0)
        snprintf(text, LOOK_NAME, "%.60s", control);
    else if (is_eb && !control[0])
        snprintf(text, LOOK_NAME, "%.30s:%.20s", codec, error);
    else
        snprintf(text, LOOK_NAME, "%.60s", codec);
    if (forms[0] && text[0])
        snprintf(text + strlen(text), LOOK_NAME - strlen(text), ", %.30s", forms);
}

/* The last part of a path, without what weight files end with. */
static void name_file(const char *from, char text[LOOK_NAME]) {
    static const char end[] = ".safetensors";
    size_t length = strlen(from);
    while (length > 1 && from[length - 1] == '/')
        length--;
    size_t first = length;
    while (first > 0 && from[first - 1] != '/')
        first--;
    if (length - first > sizeof end - 1 && strncmp(from + length - (sizeof end - 1), end, sizeof end - 1) == 0)
        length -= sizeof end - 1;
    snprintf(text, LOOK_NAME, "%.*s", (int)(length - first), from + first);
}

int look_name_of(const char *path, const char *from, look_name *name) {
    char given[COMET_ABOUT_GIVEN], seed[VALUE];
    if (comet_about_given(path, NULL, given) != COMET_OK)
        return fail_memory();
    name_form(given, name->text);
    if (!name->text[0])
        name_file(from, name->text);
    snprintf(name->seed, sizeof name->seed, "%.23s", value_of(given, "seed", seed));
    return DONE;
}

static int is_twice(look_name *const *names, int count, int which) {
    for (int i = 0; i < count; i++)
        if (i != which && strcmp(names[i]->text, names[which]->text) == 0)
            return 1;
    return 0;
}

static void add(look_name *name, const char *format, const char *what) {
    const size_t length = strlen(name->text);
    snprintf(name->text + length, LOOK_NAME - length, format, what);
}

void look_names_apart(look_name *const *names, const char *const *from, int count) {
    int twice[LOOK_NAMES] = {0};
    char file[LOOK_NAME];
    for (int i = 0; i < count; i++)
        twice[i] = names[i]->seed[0] && is_twice(names, count, i);
    for (int i = 0; i < count; i++)
        if (twice[i])
            add(names[i], ", seed %.20s", names[i]->seed);
    for (int i = 0; i < count; i++)
        twice[i] = is_twice(names, count, i);
    for (int i = 0; i < count; i++) {
        name_file(from[i], file);
        if (twice[i])
            add(names[i], " (%.40s)", file);
    }
}
